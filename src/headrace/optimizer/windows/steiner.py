"""The best factor windows of all: a Steiner tree over every candidate.

The published search (Algorithm 3 of "Factor Windows") puts at most one factor window below each
window, and says itself that the whole problem is a Steiner tree: the rows are the root, the
windows asked for are the terminals, and an arc's length is the cost of computing one window from
another. Here all that ``candidates`` finds compete, and ``arborescence`` searches. The answer says
how far it can be from the best, and over which windows.

Paper: Factor Windows, Section IV-C.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from headrace.cost.factor_windows import PaperCost
from headrace.optimizer.windows.arborescence import cheapest_tree
from headrace.optimizer.windows.candidates import factor_candidates
from headrace.optimizer.windows.published import min_cost_graph_with_factors
from headrace.plan.coverage import Coverage, covering_multiplier, is_derived_from
from headrace.plan.window_graph import WindowGraph
from headrace.plan.windows import Hopping

#: How many arcs the search may look at. A count and not a time, so that the same windows always get
#: the same plan; some tenths of a second of a present core.
BUDGET = 400_000


@dataclass(frozen=True)
class Searched:
    """The graph that was found, and what is known of better ones.

    No graph of the windows asked for and of the ``candidates`` costs less than ``bound``; if they
    are ``complete``, no graph at all does.
    """

    graph: WindowGraph
    cost: Fraction
    bound: Fraction
    candidates: int
    complete: bool

    @property
    def gap(self) -> float:
        """The share of the cost by which a graph of the candidates might be cheaper."""
        return float(1 - self.bound / self.cost) if self.cost else 0.0

    @property
    def is_best(self) -> bool:
        """Whether no graph is cheaper, whatever its factor windows."""
        return self.complete and self.bound == self.cost

    @property
    def text(self) -> str:
        if self.is_best:
            return "no graph costs less"
        weighed = f"graph of the {self.candidates:,} factor windows that were weighed"
        others = "" if self.complete else "; there are other factor windows"
        if self.bound == self.cost:
            return f"no {weighed} costs less{others}"
        share = f"up to {self.gap:.1%}" if self.gap >= 0.001 else "up to 0.1%"
        return f"a {weighed} may cost {share} less{others}"


def best_graph(
    windows: Iterable[Hopping], coverage: Coverage, costs: PaperCost, budget: int = BUDGET
) -> Searched:
    """The cheapest graph with any factor windows, never worse than that of Algorithm 3."""
    windows = list(dict.fromkeys(windows))
    starts = [min_cost_graph_with_factors(windows, coverage, costs).factors]
    if coverage is Coverage.COVERED:
        # Fewer windows are weighed for this one, and mostly it is not far from the best.
        starts.append(best_graph(windows, Coverage.PARTITIONED, costs, budget // 4).graph.factors)
    candidates = factor_candidates(windows, coverage, costs)
    nodes = list(dict.fromkeys([*windows, *candidates.windows, *starts[0], *starts[-1]]))
    scale, arcs = _arcs(nodes, coverage, costs)
    numbers = {window: number for number, window in enumerate(nodes)}
    opened = [[numbers[window] for window in factors] for factors in starts]
    tree = cheapest_tree(len(windows), arcs, opened, budget)
    graph = _graph(windows, nodes, arcs, tree.opened)
    cost, bound = Fraction(tree.cost, scale), Fraction(tree.bound, scale)
    return Searched(graph, cost, bound, len(nodes) - len(windows), candidates.complete)


def _arcs(
    nodes: Sequence[Hopping], coverage: Coverage, costs: PaperCost
) -> tuple[int, list[list[tuple[int, int]]]]:
    """For each window what it can be computed from, with costs as whole numbers on one scale."""
    often = [costs.occurrences(window) for window in nodes]
    from_rows = [costs.step(window, None) for window in nodes]
    scale = lcm(*(figure.denominator for figure in (*often, *from_rows)))
    arcs = []
    for index, window in enumerate(nodes):
        times = int(often[index] * scale)
        rows = int(from_rows[index] * scale)
        entering = [(rows, len(nodes))]
        for other, source in enumerate(nodes):
            if (
                source.length < window.length
                and window.slide % source.slide == 0
                and is_derived_from(window, source, coverage)
                and (cost := times * covering_multiplier(window, source)) < rows
            ):
                entering.append((cost, other))
        arcs.append(entering)
    return scale, arcs


def _graph(
    windows: Sequence[Hopping],
    nodes: Sequence[Hopping],
    arcs: Sequence[Sequence[tuple[int, int]]],
    opened: frozenset[int],
) -> WindowGraph:
    present = {*range(len(windows)), *opened}
    sources: dict[Hopping, Hopping | None] = {}
    for node in present:
        ways = [arc for arc in arcs[node] if arc[1] == len(nodes) or arc[1] in present]
        _, source = min(ways, key=lambda arc: (arc[0], arc[1] != len(nodes), arc[1]))
        sources[nodes[node]] = None if source == len(nodes) else nodes[source]
    return WindowGraph.of(windows, sources)
