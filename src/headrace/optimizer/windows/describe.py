"""What ``explain`` tells of the windows of an aggregate: the whole graph, and what it saves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.cost.cost import Cost
from headrace.cost.factor_windows import PaperCost
from headrace.optimizer.windows.closing import closing_graph
from headrace.optimizer.windows.layout import PaneLayout, RankedLayout, layout_cost, own_panes
from headrace.plan.coverage import Coverage
from headrace.plan.durations import SECOND, format_duration
from headrace.plan.window_graph import WindowGraph, graph_text
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
    costs: dict[Hopping, float]
    period: int
    items_before: float
    items_after: float
    seconds_before: Cost
    seconds_after: Cost
    layouts: tuple[RankedLayout, ...]

    @property
    def text(self) -> str:
        lines = [
            self.title,
            *(f"   {line}" for line in graph_text(self.graph, self.costs).splitlines()),
            f"   items in {format_duration(self.period)} at a row a second: "
            f"{self.items_before:,.0f} without sharing, {self.items_after:,.0f} with",
        ]
        if self.seconds_after.known:
            before, after = self.seconds_before, self.seconds_after
            lines.append(f"   cost: {before} without sharing, {after} with")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            **self.graph.to_json(),
            "items": {"before": self.items_before, "after": self.items_after},
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
    for pane in layout.panes:
        sources[pane] = None
        members = [w for w in layout.windows_of(pane) if w != pane]
        if members:
            closing = closing_graph(layout.windows_of(pane), pane, coverage)
            for edge in closing.edges:
                if edge.window != pane:
                    sources[edge.window] = edge.source or pane
    graph = WindowGraph.of(windows, sources)
    costs = PaperCost.of(windows, 1.0, SECOND)
    return DescribedWindows(
        title,
        graph,
        costs.windows(graph),
        costs.period,
        sum(costs.step(window, None) for window in windows),
        costs.total(graph),
        layout_cost(own_panes(windows), load),
        layout_cost(layout, load),
        layouts,
    )
