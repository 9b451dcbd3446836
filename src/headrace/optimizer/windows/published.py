"""Algorithms 1 to 5 of "Factor Windows" (Wu, Bernstein, Raizman, Pavlopoulou), Sections III and IV.

Right for aggregates with partial states: under COVERED for those that may count a row twice (MIN,
MAX), under PARTITIONED for all. Holistic aggregates have no part in it.

Three places go beyond the letter of the paper. Algorithm 5 takes factor windows from the divisors
of the lengths alone, which for hopping windows gives windows that do not partition them: a slide
must be a multiple too (Theorem 4). Algorithm 2 tries every length for a slide, where the benefit is
a convex function of the length, so that the shortest and the longest valid ones are enough. And
Algorithm 4 calls every factor window of two others a benefit, which it may not be for windows that
pause between their intervals.

Paper: Factor Windows, Section II-C, Section III-B, Algorithm 1, Definition 6, Section IV-A,
Equation 2, Section IV-B, Algorithm 2, Section IV-C, Algorithm 3, Section IV-D, Algorithm 4,
Algorithm 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

from headrace.cost.factor_windows import PaperCost
from headrace.optimizer.windows.divisors import divisors
from headrace.plan.coverage import Coverage, is_derived_from
from headrace.plan.window_graph import WindowGraph
from headrace.plan.windows import Hopping, common_pane

Sources = dict[Hopping, list[Hopping]]


def coverage_graph(windows: Iterable[Hopping], coverage: Coverage) -> Sources:
    """The window coverage graph (Section II-C): for each window, all it can be computed from."""
    windows = list(windows)
    return {
        window: [o for o in windows if o != window and is_derived_from(window, o, coverage)]
        for window in windows
    }


def min_cost_graph(windows: Iterable[Hopping], coverage: Coverage, costs: PaperCost) -> WindowGraph:
    """Algorithm 1: each window from the cheapest of the others, or from the rows."""
    windows = list(windows)
    return _cheapest(windows, coverage_graph(windows, coverage), costs)


def _cheapest(wanted: Iterable[Hopping], graph: Sources, costs: PaperCost) -> WindowGraph:
    """Lines 2 to 7 of Algorithm 1; factor windows that nothing is computed from are left out."""
    wanted = frozenset(wanted)
    chosen: dict[Hopping, Hopping | None] = {}
    for window, sources in graph.items():
        best: Hopping | None = None
        for source in sources:
            if costs.step(window, source) < costs.step(window, best):
                best = source
        chosen[window] = best
    used = {source for source in chosen.values() if source is not None}
    unused = [w for w in chosen if w not in wanted and w not in used]
    if unused:
        used_sources = {w: sources for w, sources in graph.items() if w not in unused}
        return _cheapest(
            wanted,
            {w: [s for s in used_sources[w] if s not in unused] for w in used_sources},
            costs,
        )
    return WindowGraph.of(wanted, chosen)


@dataclass(frozen=True)
class Target:
    """A window of the augmented graph with its downstream windows (Figure 9).

    The virtual root is a window of one unit of time; computing from it is computing from rows.
    """

    window: Hopping
    downstream: tuple[Hopping, ...]
    virtual: bool

    @property
    def source(self) -> Hopping | None:
        return None if self.virtual else self.window


def targets(windows: Iterable[Hopping], coverage: Coverage, costs: PaperCost) -> list[Target]:
    """The windows of the augmented graph between which and their downstream a factor may go."""
    windows = list(windows)
    graph = coverage_graph(windows, coverage)
    pane, offset = common_pane(tuple(windows))
    unit = gcd(pane, costs.unit)
    root = Hopping(unit, unit, offset)
    listed = []
    if root not in graph:
        listed.append(Target(root, tuple(w for w in windows if not graph[w]), True))
    for window in windows:
        downstream = tuple(w for w in windows if window in graph[w])
        if downstream:
            listed.append(Target(window, downstream, False))
    return listed


def benefit(factor: Hopping, target: Target, costs: PaperCost) -> Fraction:
    """Equations 1 and 2: what is saved by putting the factor window in."""
    before = sum((costs.step(w, target.source) for w in target.downstream), Fraction(0))
    after = sum((costs.step(w, factor) for w in target.downstream), Fraction(0))
    return before - after - costs.step(factor, target.source)


def best_covering_factor(target: Target, costs: PaperCost) -> Hopping | None:
    """Algorithm 2: the best factor window under "covered by"."""
    best, most = None, Fraction(0)
    for factor in covering_candidates(target):
        saved = benefit(factor, target, costs)
        if saved > most:
            best, most = factor, saved
    return best


def covering_candidates(target: Target) -> list[Hopping]:
    """Lines 1 to 11 of Algorithm 2, with the shortest and the longest window of each slide."""
    shortest = min(w.length for w in target.downstream)
    factors = []
    for slide in _divisors(gcd(*(w.slide for w in target.downstream)), target.window.slide):
        # Longer than the window it is computed from, and a multiple of its slide.
        least = target.window.length // slide * slide + slide
        longest = shortest - shortest % slide
        # The longest may be one of the downstream windows itself.
        ends = (slide, least, longest - slide, longest)
        for length in dict.fromkeys(length for length in ends if length > 0):
            factor = Hopping(length, slide, target.downstream[0].offset)
            if _fits(factor, target, Coverage.COVERED):
                factors.append(factor)
    return factors


def is_beneficial(factor: Hopping, target: Target, costs: PaperCost) -> bool:
    """Algorithm 4: whether a tumbling factor window costs no more than it saves.

    With ``x`` for the items that one factor window takes in from its target, it does if and only if
    ``λ (x - 1) >= x`` (Equation 7). The paper's cases follow from it: λ is at least the number of
    the downstream windows, as long as these do not pause between their intervals, and ``x`` is at
    least 2, as long as the target is a window. Windows may pause here, and rows may be fewer than
    units of time, so the inequality itself is tested.
    """
    times = sum(
        (costs.occurrences(w) * w.length / costs.period for w in target.downstream), Fraction(0)
    )
    taken = costs.items(factor, target.source)
    return times * (taken - 1) >= taken


def partitioning_candidates(target: Target, costs: PaperCost) -> list[Hopping]:
    """Lines 1 to 12 of Algorithm 5: tumbling windows that help, the longest first."""
    pane, offset = common_pane(target.downstream)
    factors = [Hopping(length, length, offset) for length in _divisors(pane, target.window.length)]
    return [
        f
        for f in reversed(factors)
        if _fits(f, target, Coverage.PARTITIONED) and is_beneficial(f, target, costs)
    ]


def best_partitioning_factor(target: Target, costs: PaperCost) -> Hopping | None:
    """Algorithm 5: the best of the candidates that do not depend on each other.

    A candidate that saves just what it costs is none that is put in.
    """
    candidates = partitioning_candidates(target, costs)
    independent = [
        f
        for f in candidates
        if not any(o != f and is_derived_from(o, f, Coverage.PARTITIONED) for o in candidates)
    ]
    best = max(independent, key=lambda f: benefit(f, target, costs), default=None)
    return best if best is not None and benefit(best, target, costs) > 0 else None


def min_cost_graph_with_factors(
    windows: Iterable[Hopping], coverage: Coverage, costs: PaperCost
) -> WindowGraph:
    """Algorithm 3: the best factor window of each target put in, then Algorithm 1.

    The benefits are those of one factor window at a time. Where together they do not pay, which
    the paper does not speak of, the graph without any is the answer.
    """
    windows = list(windows)
    graph = coverage_graph(windows, coverage)
    find = best_covering_factor if coverage is Coverage.COVERED else best_partitioning_factor
    for target in targets(windows, coverage, costs):
        factor = find(target, costs)
        if factor is None or factor in windows:
            continue
        above = graph.setdefault(factor, [])
        if target.source is not None and target.source not in above:
            above.append(target.source)
        for window in target.downstream:
            if factor not in graph[window]:
                graph[window].append(factor)
    factored, plain = _cheapest(windows, graph, costs), min_cost_graph(windows, coverage, costs)
    return factored if costs.total(factored) <= costs.total(plain) else plain


def _fits(factor: Hopping, target: Target, coverage: Coverage) -> bool:
    return (
        factor != target.window
        and factor not in target.downstream
        and is_derived_from(factor, target.window, coverage)
        and all(is_derived_from(w, factor, coverage) for w in target.downstream)
    )


def _divisors(number: int, multiple_of: int) -> Sequence[int]:
    """The divisors that are multiples of another number, ascending.

    >>> _divisors(40, 10)
    [10, 20, 40]
    """
    if number % multiple_of:
        return []
    return [multiple_of * divisor for divisor in divisors(number // multiple_of)]
