"""Tumbling and hopping windows, one or many, computed from stored panes.

A window's rows may lie in panes of several stores: the layout of the panes may have changed since
the window began, and windows of one query may be computed from different panes. Whatever the
layout was in an epoch, each row of that epoch is in exactly one of the stores that a window reads.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sqlglot import exp

from headrace.cost.panes import comes_out_larger, tree_pays
from headrace.definitions.definition import (
    Definition,
    Sql,
    column,
    distributed,
    union_all,
    window_struct,
)
from headrace.definitions.partials import Decomposed
from headrace.definitions.windows import (
    WINDOW_INDEX,
    WINDOW_START,
    Ends,
    end_of,
    ends_of_interest,
    expand,
    name_of,
)
from headrace.operators.base import EpochStep, Operator
from headrace.operators.epoch import Epoch
from headrace.operators.panes.pane_store import PANE, PaneStore
from headrace.operators.panes.partial_rows import finished, merge_groups, merges, read_panes
from headrace.operators.panes.window_tree import close_by_tree
from headrace.plan.nodes import WINDOW_COLUMN, WINDOW_ID_COLUMN, Aggregate, OutputMode
from headrace.plan.window_graph import WindowGraph, graph_text
from headrace.plan.windows import Hopping
from headrace.stats.load import Load


@dataclass(frozen=True)
class PaneScan:
    """Panes of one store, and which of the query's windows they hold rows of.

    ``graph`` is the best way from the panes to the windows through other windows; whether it is
    taken is decided in each epoch, by how many panes there are to read.
    """

    store: PaneStore
    pane: Hopping
    windows: dict[int, Hopping]
    graph: WindowGraph


class WindowAggregate(Operator):
    """Emits windows as they close (append) or as they change (update)."""

    def __init__(
        self,
        node: Aggregate,
        readings: tuple[PaneScan, ...],
        keys: tuple[str, ...],
        aggregates: dict[str, Decomposed],
        streams: frozenset[str],
        lag: int,
        mode: OutputMode,
        starts_at: int | None,
        closing: str,
        present: str | None = None,
    ) -> None:
        self.node: Aggregate = node
        self.readings = readings
        #: The columns of the stores that are the query's keys; there may be others.
        self._keys = keys
        self._windows = tuple(w for w in node.windows if isinstance(w, Hopping))
        self._aggregates = aggregates
        self._streams = streams
        self._lag = lag
        self._mode = mode
        self._starts_at = starts_at
        self._closing = closing
        #: The column that marks the groups which hold rows of this query, where others have some.
        self._present = present

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self.readings[-1].store.inputs()

    def delta(self, epoch: Epoch) -> Definition | None:
        only_changed = self._mode is OutputMode.UPDATE
        if only_changed and not any(epoch.new_files(r.store.name) for r in self.readings):
            return None
        before, after = epoch.before(self._streams), epoch.after(self._streams)
        ends = ends_of_interest(before, after, self._lag, self._starts_at, only_changed)
        if ends is None or not any_closes(self._windows, ends):
            return None
        merged = merges(self._aggregates, only_changed, self._present)
        parts = [
            part
            for reading in self.readings
            if (part := self._closed(epoch, reading, ends, merged, only_changed)) is not None
        ]
        if not parts:
            return None
        rows = union_all(parts)
        if len(parts) > 1 and self._in_several_stores():
            rows = merge_groups(rows, self._groups, merged)
        extra: dict[str, Sql] = {
            WINDOW_COLUMN: window_struct(column(WINDOW_START), end_of(self._windows))
        }
        if len(self._windows) > 1:
            extra[WINDOW_ID_COLUMN] = name_of(self._windows)
        return finished(
            self.node, self._keys, self._aggregates, rows, extra, only_changed, self._present
        )

    def _closed(
        self,
        epoch: Epoch,
        reading: PaneScan,
        ends: Ends,
        merged: dict[str, Sql],
        only_changed: bool,
    ) -> exp.Query | None:
        """Groups of the windows of interest from the panes of one store."""
        windows = reading.windows
        span = ends.least_time(windows.values()), ends.greatest_time()
        panes = read_panes(epoch, reading.store, *span, only_changed)
        if panes is None:
            return None
        rows = epoch.rows(reading.store.name, *span)
        epoch.inputs.expect_more(panes, rows * sum(w.overlap for w in windows.values()))
        if self._by_tree(reading, rows, epoch.loads.get(reading.store.family)):
            return close_by_tree(
                panes, self._keys, merged, reading.pane, reading.graph, windows, ends
            )
        if self._keys and comes_out_larger(windows.values(), reading.pane):
            panes = distributed(panes, self._keys)
        placed = expand(panes, column(PANE), windows, ends)
        return merge_groups(placed, self._groups, merged)

    def _by_tree(self, reading: PaneScan, rows: int, load: Load | None) -> bool:
        if self._closing != "auto":
            return self._closing == "tree"
        return tree_pays(reading.graph, reading.pane, rows, load)

    @property
    def _groups(self) -> list[str]:
        return [*self._keys, WINDOW_INDEX, WINDOW_START]

    def _in_several_stores(self) -> bool:
        """Whether some window has rows in more than one store."""
        uses = Counter(index for reading in self.readings for index in reading.windows)
        return max(uses.values()) > 1

    def steps(self) -> tuple[EpochStep, ...]:
        when = "windows that changed" if self._mode is OutputMode.UPDATE else "windows that closed"
        steps = []
        for reading in self.readings:
            names = ", ".join(w.name for w in reading.windows.values())
            detail = [f"windows: {names}"]
            if reading.graph.factors or len(reading.graph.roots) < len(reading.graph.edges):
                detail += [
                    "through other windows when there are many panes:",
                    *graph_text(reading.graph, rows=reading.pane.name).splitlines(),
                ]
            steps.append(EpochStep(f"emit {when} from {reading.store.name}", tuple(detail)))
        return tuple(steps)


def any_closes(windows: tuple[Hopping, ...], ends: Ends) -> bool:
    """Whether the watermark passed the end of at least one window."""
    if ends.above is None or ends.up_to is None:
        return True
    return any(w.last_closed_start(ends.up_to) != w.last_closed_start(ends.above) for w in windows)
