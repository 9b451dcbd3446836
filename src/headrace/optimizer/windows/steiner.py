"""The best factor windows of all: a Steiner tree over every candidate.

The published search (Algorithm 3 of "Factor Windows") puts at most one factor window below each
window, and says itself that the whole problem is a Steiner tree: the rows are the root, the
windows asked for are the terminals, and an arc's length is the cost of computing one window from
another. Here all candidates that can be part of an optimal tree compete.

Which candidates matter. Take a factor window of an optimal tree and hold its source and what is
computed from it. A longer slide makes it and its dependants cheaper, so its slide is the common
pane of windows that were asked for. In its length the cost is concave (the number of its
occurrences falls while the cost of one rises, both linearly), so its length is the longest that its
dependants allow, or the shortest that its source allows. Under PARTITIONED that leaves the common
panes of all subsets, and the search is over everything; under COVERED, the lengths are the slide
and those of the windows asked for, as far as such a window pays by itself.

A local search finds a tree, and the dual ascent of Wong (1984) a bound that no tree over the
candidates is below. Mostly the two meet, and the tree is proven best. Where they do not, all sets
of a few candidates are tried, or the search starts anew from pairs of them as long as its budget
lasts; what distance is left is part of the answer.

Paper: Factor Windows, Section IV-C.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from headrace.cost.factor_windows import PaperCost
from headrace.optimizer.windows.published import min_cost_graph_with_factors
from headrace.plan.coverage import Coverage, is_derived_from
from headrace.plan.window_graph import WindowGraph
from headrace.plan.windows import Hopping, common_pane

#: Hopping candidates, those that save most over the pane below them.
_MOST_HOPPING = 40
#: Swaps are tried for this many candidates at most, the most promising.
_MOST_SWAPS = 40
#: Up to this many candidates, every set of them is tried where the bound leaves a doubt.
_ALL_SETS_OF = 9
#: How many windows the search may look at, over all sets of candidates that it tries. A count and
#: not a time, so that the same windows always get the same plan; about 30 ms of a present core.
_BUDGET = 40_000
#: A smaller distance from the bound is not worth another search.
_CLOSE_ENOUGH = 0.02


@dataclass(frozen=True)
class Searched:
    """The tree that was found, and how far it can be from the best one."""

    graph: WindowGraph
    cost: float
    bound: float

    @property
    def gap(self) -> float:
        """The share of the cost by which the best tree might be cheaper; 0 if this one is best."""
        return max(0.0, 1 - self.bound / self.cost) if self.cost else 0.0


def best_graph(windows: Iterable[Hopping], coverage: Coverage, costs: PaperCost) -> Searched:
    """The cheapest graph with any factor windows, never worse than that of Algorithm 3."""
    windows = list(windows)
    published = min_cost_graph_with_factors(windows, coverage, costs)
    candidates = factor_candidates(windows, coverage, costs)
    problem = _Problem(
        windows, list(dict.fromkeys([*candidates, *published.factors])), coverage, costs
    )
    opened = problem.improved([problem.numbers(published.factors), set()])
    bound = problem.lower_bound(problem.cost(opened))
    if bound < problem.cost(opened) * (1 - _CLOSE_ENOUGH):
        if len(problem.candidates) <= _ALL_SETS_OF:
            opened = min(problem.all_sets(), key=problem.cost)
            bound = problem.cost(opened)
        else:
            opened = problem.improved([opened, *problem.pairs()])
    cost = problem.cost(opened)
    return Searched(problem.graph(opened), cost, min(cost, bound))


def factor_candidates(
    windows: Iterable[Hopping], coverage: Coverage, costs: PaperCost
) -> list[Hopping]:
    """All factor windows that an optimal tree may need; of hopping ones, the most promising."""
    windows = list(windows)
    panes = [pane for pane in _common_panes(windows) if pane not in windows]
    if coverage is Coverage.PARTITIONED:
        return panes
    hopping: dict[Hopping, float] = {}
    for pane in _common_panes(windows):
        for window in windows:
            longer = Hopping(window.length, pane.slide, pane.offset)
            if longer.length % longer.slide or longer == pane or longer in windows:
                continue
            saved = sum(
                costs.step(w, pane) - costs.step(w, longer)
                for w in windows
                if is_derived_from(w, longer, Coverage.COVERED)
            )
            hopping[longer] = saved - costs.step(longer, pane)
    promising = sorted(hopping, key=hopping.__getitem__, reverse=True)
    return panes + [f for f in promising if hopping[f] > 0][:_MOST_HOPPING]


def _common_panes(windows: list[Hopping]) -> list[Hopping]:
    """The common panes of all subsets of the windows, as tumbling windows."""
    panes: dict[Hopping, None] = {}
    for window in windows:
        for pane in [None, *panes]:
            both = (window,) if pane is None else (window, pane)
            length, offset = common_pane(both)
            panes[Hopping(length, length, offset)] = None
    return list(panes)


class _Problem:
    """Windows and candidates as numbers, and the cost of each arc between them.

    The rows have a number too, the one after the last node: they are always there.
    """

    def __init__(
        self,
        windows: list[Hopping],
        candidates: list[Hopping],
        coverage: Coverage,
        costs: PaperCost,
    ) -> None:
        self.windows = windows
        self.nodes = [*windows, *candidates]
        self.asked = range(len(windows))
        self.candidates = range(len(windows), len(self.nodes))
        self.rows = len(self.nodes)
        self.budget = _BUDGET
        #: For each node, what it can be computed from, the cheapest first and the rows last.
        self.sources: list[list[tuple[float, int]]] = []
        #: For each node, what can be computed from it and at which cost.
        self.users: list[list[tuple[int, float]]] = [[] for _ in self.nodes]
        for index, window in enumerate(self.nodes):
            from_rows = costs.step(window, None)
            arcs = [(from_rows, self.rows)]
            for other, source in enumerate(self.nodes):
                if other != index and is_derived_from(window, source, coverage):
                    cost = costs.step(window, source)
                    if cost < from_rows:
                        arcs.append((cost, other))
                        self.users[other].append((index, cost))
            self.sources.append(sorted(arcs))

    # The search

    def improved(self, starts: Iterable[set[int]]) -> set[int]:
        """The best set of factor windows that the search reaches from these."""
        return min((self._local_optimum(start) for start in starts), key=self.cost)

    def all_sets(self) -> Iterator[set[int]]:
        for size in range(len(self.candidates) + 1):
            yield from map(set, combinations(self.candidates, size))

    def pairs(self) -> Iterator[set[int]]:
        """Pairs of the candidates that most can be computed from, as long as the budget lasts."""
        ordered = sorted(self.candidates, key=lambda c: -len(self.users[c]))
        for pair in combinations(ordered, 2):
            if self.budget <= 0:
                return
            yield set(pair)

    def numbers(self, windows: Iterable[Hopping]) -> set[int]:
        return {self.nodes.index(window) for window in windows}

    def cost(self, opened: set[int]) -> float:
        self.budget -= len(self.windows) + len(opened)
        return sum(self._paid(opened).values())

    def graph(self, opened: set[int]) -> WindowGraph:
        present = self._present(opened)
        chosen: dict[Hopping, Hopping | None] = {}
        for node in (*self.asked, *opened):
            source = next(s for _, s in self.sources[node] if s in present)
            chosen[self.nodes[node]] = None if source == self.rows else self.nodes[source]
        return WindowGraph.of(self.windows, chosen)

    def grown(self, opened: set[int]) -> set[int]:
        """Add the candidate that saves most, until none saves anything."""
        chosen = set(opened)
        while self.budget > 0:
            gains = self._gains(chosen)
            best = max(gains, key=gains.__getitem__, default=None)
            if best is None or gains[best] <= 0:
                break
            chosen.add(best)
        return chosen

    def _local_optimum(self, start: set[int]) -> set[int]:
        current = self.grown(self._shrunk(start))
        while True:
            better = self._neighbour(current, self.cost(current) * (1 - 1e-12))
            if better is None:
                return current
            current = better

    def _neighbour(self, current: set[int], below: float) -> set[int] | None:
        """A cheaper set that differs by one candidate out, or one in and what it makes useless."""
        for out in sorted(current):
            if self.budget <= 0:
                return None
            trial = self._shrunk(self.grown(current - {out}))
            if self.cost(trial) < below:
                return trial
        gains = self._gains(current)
        promising = sorted(gains, key=gains.__getitem__, reverse=True)[:_MOST_SWAPS]
        for candidate in promising:
            if self.budget <= 0:
                return None
            trial = self._shrunk(current | {candidate})
            if self.cost(trial) < below:
                return trial
        return None

    def _shrunk(self, opened: set[int]) -> set[int]:
        """Close candidates as long as that makes the whole no dearer."""
        current, cost = set(opened), self.cost(opened)
        for out in sorted(opened):
            lower = self.cost(current - {out})
            if lower <= cost:
                current, cost = current - {out}, lower
        return current

    def _present(self, opened: set[int]) -> set[int]:
        return {*self.asked, *opened, self.rows}

    def _paid(self, opened: set[int]) -> dict[int, float]:
        """What each window costs when these candidates are open."""
        present = self._present(opened)
        return {
            node: next(cost for cost, source in self.sources[node] if source in present)
            for node in (*self.asked, *opened)
        }

    def _gains(self, opened: set[int]) -> dict[int, float]:
        """What opening one candidate more would save."""
        self.budget -= len(self.nodes)
        paid = self._paid(opened)
        present = self._present(opened)
        gains = {}
        for candidate in self.candidates:
            if candidate not in opened:
                saved = 0.0
                for user, cost in self.users[candidate]:
                    if user in paid and cost < paid[user]:
                        saved += paid[user] - cost
                if saved:
                    own = next(c for c, source in self.sources[candidate] if source in present)
                    gains[candidate] = saved - own
        return gains

    # The bound

    def lower_bound(self, enough: float) -> float:
        """A cost that no tree is below, by dual ascent; stops when it reaches ``enough``.

        As long as a window asked for is not reached from the rows over arcs of no remaining
        length, all arcs into the set of nodes that reach it are shortened together by the least
        of them. What was taken off is paid by every tree.
        """
        into = [{source: cost for cost, source in arcs} for arcs in self.sources]
        reaching = {terminal: {terminal} for terminal in self.asked}
        total = 0.0
        while reaching and total < enough * (1 - 1e-9):
            # The smallest set first: it has the fewest arcs to shorten.
            inside = min(reaching.values(), key=len)
            entering = [
                (node, source) for node in inside for source in into[node] if source not in inside
            ]
            least = min(into[node][source] for node, source in entering)
            total += least
            for node, source in entering:
                left = into[node][source] - least
                into[node][source] = left if left > 1e-9 * least else 0.0
                if not into[node][source]:
                    for nodes in reaching.values():
                        if node in nodes:
                            self._reach(nodes, source, into)
            reaching = {t: nodes for t, nodes in reaching.items() if self.rows not in nodes}
        return total

    def _reach(self, nodes: set[int], source: int, into: list[dict[int, float]]) -> None:
        """Add a node, and all from which it is reached over arcs of no length."""
        waiting = [source]
        while waiting:
            node = waiting.pop()
            if node in nodes:
                continue
            nodes.add(node)
            if node != self.rows:
                waiting += [s for s, cost in into[node].items() if not cost]
