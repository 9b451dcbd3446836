"""Which panes are stored for the windows over one grouping of one stream.

A *layout* names, for each window, the panes it is computed from. Fewer kinds of panes are fewer
passes over the new rows; longer panes hold fewer groups. Windows that agree on a pane share all of
its cost, whichever query asked for them.

This is where the graph of "Factor Windows" meets the rows: the windows that its graphs compute
from rows are stored, as panes that they are unions of. With a load, layouts are compared in
seconds; without one, by their parameters alone: fewer passes first, then longer panes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from heapq import heapify, heappop, heappush
from math import log2

from headrace.cost.cost import Cost, unknown_cost
from headrace.cost.factor_windows import PaperCost
from headrace.cost.panes import PaneCost
from headrace.optimizer.windows.published import min_cost_graph, min_cost_graph_with_factors
from headrace.optimizer.windows.steiner import best_graph
from headrace.plan.coverage import Coverage
from headrace.plan.durations import SECOND
from headrace.plan.window_graph import WindowGraph
from headrace.plan.windows import Hopping, common_pane
from headrace.stats.figure import Estimated
from headrace.stats.load import Load

UNIT = "s/epoch"


class Sharing(Enum):
    """How much windows may share; each includes the ones before."""

    NONE = "none"
    #: Windows are computed from other windows that were asked for.
    WINDOWS = "windows"
    #: Auxiliary windows may be added.
    FACTORS = "factors"


class CostModel(Enum):
    """By what layouts are compared."""

    ENGINE = "engine"
    PAPER = "paper"


@dataclass(frozen=True)
class PaneLayout:
    """For each window the tumbling window whose results are stored for it."""

    stored: tuple[tuple[Hopping, Hopping], ...]

    @classmethod
    def of(cls, panes: Mapping[Hopping, Hopping]) -> PaneLayout:
        return cls(tuple(sorted(panes.items(), key=lambda entry: _size(entry[0]))))

    @cached_property
    def pane_of(self) -> dict[Hopping, Hopping]:
        return dict(self.stored)

    @cached_property
    def panes(self) -> tuple[Hopping, ...]:
        return tuple(sorted(set(self.pane_of.values()), key=_size))

    def windows_of(self, pane: Hopping) -> tuple[Hopping, ...]:
        return tuple(window for window, stored in self.stored if stored == pane)


@dataclass(frozen=True)
class RankedLayout:
    """A layout that is possible, what it costs, and where it comes from."""

    name: str
    layout: PaneLayout
    cost: Cost


def layouts(
    windows: Iterable[Hopping],
    load: Load | None,
    sharing: Sharing = Sharing.FACTORS,
    model: CostModel = CostModel.ENGINE,
) -> list[RankedLayout]:
    """The layouts worth comparing, the best first."""
    windows = sorted(set(windows), key=_size)
    candidates = [("no sharing", own_panes(windows))]
    if sharing is not Sharing.NONE:
        candidates.append(("windows share", _from_graph(_published(windows, load, False))))
    if sharing is Sharing.FACTORS:
        candidates.append(
            ("published factor windows", _from_graph(_published(windows, load, True)))
        )
        candidates.append(("best factor windows", _from_graph(_best(windows, load))))
        candidates.append(("one common pane", _common(windows)))
        if load is not None:
            candidates += [("merged panes", layout) for layout in _merged(windows, load)]
    named: dict[PaneLayout, str] = {}
    for name, layout in candidates:
        named.setdefault(layout, name)
    ranked = [
        RankedLayout(name, layout, layout_cost(layout, load)) for layout, name in named.items()
    ]
    if model is CostModel.PAPER:
        factors = sharing is Sharing.FACTORS
        wanted = _from_graph(_best(windows, load) if factors else _published(windows, load, False))
        return sorted(ranked, key=lambda r: r.layout != wanted)
    if load is None:
        return sorted(ranked, key=lambda r: _passes_then_length(r.layout))
    return sorted(ranked, key=lambda r: r.cost.figure.number or 0.0)


def layout_cost(layout: PaneLayout, load: Load | None) -> Cost:
    """What an epoch costs with this layout, its windows closed straight from the panes."""
    if load is None:
        return unknown_cost(UNIT)
    costs = PaneCost(load)
    seconds = sum(
        costs.store(pane) + costs.flat(pane, layout.windows_of(pane)) for pane in layout.panes
    )
    return Cost(Estimated(seconds), UNIT)


def own_panes(windows: Iterable[Hopping]) -> PaneLayout:
    return PaneLayout.of({w: pane_of([w]) for w in windows})


def _common(windows: list[Hopping]) -> PaneLayout:
    pane = pane_of(windows)
    return PaneLayout.of(dict.fromkeys(windows, pane))


def pane_of(windows: Iterable[Hopping]) -> Hopping:
    """The longest pane that all these windows are unions of."""
    length, offset = common_pane(tuple(windows))
    return Hopping(length, length, offset)


def _published(windows: list[Hopping], load: Load | None, factors: bool) -> WindowGraph:
    """The paper's graph."""
    return _built(tuple(windows), _paper_cost(windows, load), factors)


def _best(windows: list[Hopping], load: Load | None) -> WindowGraph:
    """The graph that costs least by the paper's model.

    Always under PARTITIONED: what is stored are panes, for a hopping window those it consists of.
    """
    return _searched(tuple(windows), _paper_cost(windows, load))


# Asked again whenever a query comes or goes, for all groupings that there are.
@lru_cache(maxsize=10_000)
def _built(windows: tuple[Hopping, ...], costs: PaperCost, factors: bool) -> WindowGraph:
    build = min_cost_graph_with_factors if factors else min_cost_graph
    return build(windows, Coverage.PARTITIONED, costs)


@lru_cache(maxsize=10_000)
def _searched(windows: tuple[Hopping, ...], costs: PaperCost) -> WindowGraph:
    return best_graph(windows, Coverage.PARTITIONED, costs).graph


def _paper_cost(windows: list[Hopping], load: Load | None) -> PaperCost:
    """The rate is that of the load, or one row a second.

    As a power of two: which windows are best hardly depends on it, and loads change all the time.
    """
    rate = 1.0
    if load is not None and load.rows > 0:
        rate = 2.0 ** round(log2(load.rows * SECOND / load.milliseconds))
    return PaperCost.of(windows, rate, SECOND)


def _from_graph(graph: WindowGraph) -> PaneLayout:
    """Store what the graph computes from rows. Factor windows that tumble are their own panes."""
    panes: dict[Hopping, Hopping] = {}
    for root in graph.roots:
        pane = pane_of([root])
        panes |= {w: pane for w in graph.tree(root) if w in graph.asked}
    return PaneLayout.of(panes)


def _merged(windows: list[Hopping], load: Load) -> list[PaneLayout]:
    """From panes of their own to one for all, each time merging the two where it pays most.

    What two groups gain is worked out when the later of them is made, and waits in a heap; pairs of
    which one has gone are passed over.
    """
    costs = PaneCost(load)

    def price(members: tuple[Hopping, ...]) -> float:
        pane = pane_of(members)
        return costs.store(pane) + costs.flat(pane, members)

    groups: dict[int, tuple[Hopping, ...]] = {
        number: (window,) for number, window in enumerate(windows)
    }
    prices = {number: price(members) for number, members in groups.items()}

    def pair(first: int, second: int) -> tuple[float, int, int]:
        both = price(_both(groups[first], groups[second]))
        return both - prices[first] - prices[second], first, second

    pairs = [pair(a, b) for a in groups for b in groups if a < b]
    heapify(pairs)
    layouts_of_groups = []
    while len(groups) > 1:
        _, first, second = heappop(pairs)
        if first not in groups or second not in groups:
            continue
        number = max(groups) + 1
        members = _both(groups.pop(first), groups.pop(second))
        others = list(groups)
        groups[number], prices[number] = members, price(members)
        for other in others:
            heappush(pairs, pair(other, number))
        panes = {each: pane_of(each) for each in groups.values()}
        layouts_of_groups.append(
            PaneLayout.of({w: pane for each, pane in panes.items() for w in each})
        )
    return layouts_of_groups


def _both(a: tuple[Hopping, ...], b: tuple[Hopping, ...]) -> tuple[Hopping, ...]:
    return tuple(sorted((*a, *b), key=_size))


def _passes_then_length(layout: PaneLayout) -> tuple[int, float]:
    return len(layout.panes), -sum(pane.length for pane in layout.panes)


def _size(window: Hopping) -> tuple[int, int, int]:
    return window.length, window.slide, window.offset
