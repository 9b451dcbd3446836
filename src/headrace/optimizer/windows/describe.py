"""What ``explain`` tells of the windows of an aggregate: the whole graph, and what it saves."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from headrace.cost.cost import Cost
from headrace.cost.factor_windows import PaperCost
from headrace.optimizer.windows.closing import closing_search
from headrace.optimizer.windows.layout import PaneLayout, RankedLayout, layout_cost, own_panes
from headrace.optimizer.windows.steiner import Searched
from headrace.plan.coverage import Coverage
from headrace.plan.durations import SECOND, WEEK, format_duration
from headrace.plan.window_graph import WindowGraph, format_number, graph_text
from headrace.plan.windows import Hopping
from headrace.stats.load import Load


@dataclass(frozen=True)
class DescribedWindows:
    """The windows over one grouping: what is computed from what, before and after sharing.

    ``items`` count what aggregates take in over one period, by the published model with one row a
    second; ``seconds`` are this engine's, known once it has seen the stream.
    """

    title: str
    graph: WindowGraph
    costs: dict[Hopping, Fraction]
    period: int
    items_before: Fraction
    items_after: Fraction
    seconds_before: Cost
    seconds_after: Cost
    layouts: tuple[RankedLayout, ...]
    #: Of each kind of panes, how far what is computed from them can be from the best.
    searches: tuple[tuple[Hopping, Searched], ...] = ()

    @property
    def text(self) -> str:
        lines = [
            self.title,
            *(f"   {line}" for line in graph_text(self.graph, self.costs).splitlines()),
            f"   items in {_period_text(self.period)} at a row a second: "
            f"{format_number(self.items_before, ',.0f')} without sharing, "
            f"{format_number(self.items_after, ',.0f')} with",
            *(f"   over panes of {pane.name}: {search.text}" for pane, search in self.searches),
        ]
        if self.seconds_after.known:
            before, after = self.seconds_before, self.seconds_after
            lines.append(f"   cost: {before} without sharing, {after} with")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            **self.graph.to_json(),
            "items": {
                "before": _in_json(self.items_before),
                "after": _in_json(self.items_after),
            },
            "searches": [
                {"panes": pane.name, "gap": search.gap, "complete": search.complete}
                for pane, search in self.searches
            ],
            "seconds": {
                "before": self.seconds_before.figure.number,
                "after": self.seconds_after.figure.number,
            },
            "layouts": [
                {"name": entry.name, "cost": entry.cost.to_json()} for entry in self.layouts
            ],
        }


def described(
    title: str,
    layout: PaneLayout,
    coverage: Coverage,
    load: Load | None,
    layouts: tuple[RankedLayout, ...] = (),
) -> DescribedWindows:
    """The graph of a layout: from rows to panes, and from them to the windows."""
    windows = [window for window, _ in layout.stored]
    sources: dict[Hopping, Hopping | None] = {}
    searches = []
    for pane in layout.panes:
        sources[pane] = None
        members = [w for w in layout.windows_of(pane) if w != pane]
        if members:
            closing = closing_search(layout.windows_of(pane), pane, coverage)
            searches.append((pane, closing))
            for edge in closing.graph.edges:
                if edge.window != pane:
                    sources[edge.window] = edge.source or pane
    graph = WindowGraph.of(windows, sources)
    costs = PaperCost.of(windows, unit=SECOND)
    return DescribedWindows(
        title,
        graph,
        costs.windows(graph),
        costs.period,
        sum((costs.step(window, None) for window in windows), Fraction(0)),
        costs.total(graph),
        layout_cost(own_panes(windows), load),
        layout_cost(layout, load),
        layouts,
        tuple(searches),
    )


def _period_text(period: int) -> str:
    """Windows without common divisors come together once in more weeks than can be read."""
    weeks = Fraction(period, WEEK)
    return format_duration(period) if weeks < 10_000 else f"{format_number(weeks)} weeks"


def _in_json(number: Fraction) -> float | int:
    """JSON has numbers of any size, and floats only those that they can hold."""
    try:
        return float(number)
    except OverflowError:
        return round(number)
