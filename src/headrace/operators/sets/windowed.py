"""Aggregates over joins in tumbling and hopping windows, from aggregation sets.

In append mode nothing of a window comes out before it closes, so nothing is joined before: as
windows close, the sets of all inputs are joined, once, whatever the number of epochs in between.
An input that is not aggregated early takes part with its rows, each a group of one; with no input
aggregated early this is the late aggregation plan.

Where the query pairs rows once per common window, each window's sets are first put together from
panes that its neighbours share. Over a trailing window the rows of one input are those that the
window holds, and the sets of the others those that these may meet.

Paper: Early Aggregation, Section 6.1.
"""

from __future__ import annotations

from sqlglot import exp

from headrace.cost.panes import tree_pays
from headrace.definitions.definition import Definition, Sql, column, number, select, window_struct
from headrace.definitions.partials import coverage_of
from headrace.definitions.windows import (
    WINDOW_INDEX,
    WINDOW_START,
    Ends,
    end_of,
    ends_of_interest,
    expand,
    name_of,
    numbered,
)
from headrace.operators.base import EpochStep, Operator
from headrace.operators.epoch import Epoch
from headrace.operators.old_and_new import NEW
from headrace.operators.panes.pane_store import PANE
from headrace.operators.panes.partial_rows import finished, merge_groups, merges, read_panes
from headrace.operators.panes.window_aggregate import any_closes
from headrace.operators.panes.window_tree import close_by_tree
from headrace.operators.sets.aggregation_set import AggregationSet
from headrace.operators.sets.definition import SetJoin, place_of
from headrace.operators.sets.table_set import TableSet
from headrace.optimizer.windows.closing import closing_graph
from headrace.plan.nodes import WINDOW_COLUMN, WINDOW_ID_COLUMN, Aggregate, OutputMode
from headrace.plan.windows import Hopping, Trailing
from headrace.planner.early_aggregation import EarlyChoice


class AggregationSetJoin(Operator):
    """Emits the groups of windows as they close (append) or as they change (update)."""

    def __init__(
        self,
        join: SetJoin,
        sets: tuple[AggregationSet | TableSet, ...],
        sources: tuple[Operator, ...],
        streams: frozenset[str],
        lag: int,
        mode: OutputMode,
        starts_at: int | None,
        closing: str,
        choice: EarlyChoice,
    ) -> None:
        self.node: Aggregate = join.shape.node
        self.shape = join.shape
        self._join = join
        self._sets = sets
        self._sources = sources
        self._streams = streams
        self._lag = lag
        self._mode = mode
        self._starts_at = starts_at
        self._closing = closing
        self.choice = choice

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self._sources

    # What comes out of an epoch

    def delta(self, epoch: Epoch) -> Definition | None:
        marked = self._mode is OutputMode.UPDATE
        if marked and not any(epoch.new_files(store.name) for store in self._sets):
            return None
        before, after = epoch.before(self._streams), epoch.after(self._streams)
        if self.shape.trailing is not None:
            return self._trailing(epoch, self.shape.trailing, before, after)
        ends = ends_of_interest(before, after, self._lag, self._starts_at, marked)
        if ends is None or not any_closes(self.shape.windows, ends):
            return None
        joined = self._joined(epoch, ends, ends.least_time(self.shape.windows), marked)
        if joined is None:
            return None
        place = {PANE: column(place_of(self.shape.anchor))}
        return self._windows(self._join.late(joined, place, marked), ends, marked)

    def _trailing(
        self, epoch: Epoch, window: Trailing, before: int | None, after: int | None
    ) -> Definition | None:
        """The window that ends at the watermark, whenever that has moved."""
        if after is None or before == after:
            return None
        end = after - self._lag
        begin = end - window.length
        if self._starts_at is not None and begin < self._starts_at:
            return None
        joined = self._joined(epoch, Ends(None, end), begin, marked=False)
        if joined is None:
            return None
        late = self._join.late(joined, {}, marked=False)
        span: dict[str, Sql] = {WINDOW_COLUMN: window_struct(number(begin), number(end))}
        return self._finished(late, span, False)

    def _joined(
        self, epoch: Epoch, ends: Ends, first: int | None, marked: bool
    ) -> exp.Select | None:
        """The inputs of the windows of interest, which begin no earlier than ``first``."""
        spans = self._spans(first, ends.greatest_time())
        inputs: dict[int, exp.Select] = {}
        for index in range(len(self._sets)):
            rows = self._input(epoch, index, ends, spans[index], marked)
            if rows is None:
                return None
            inputs[index] = rows
        counts = [
            float(epoch.rows(s.name, *span)) for s, span in zip(self._sets, spans, strict=True)
        ]
        edges = [edge for span in spans for edge in span if edge is not None]
        stretch = float(max(1, max(edges) - min(edges))) if edges else 1.0
        return self._join.join(epoch, inputs, counts, stretch)

    def _spans(self, first: int | None, last: int | None) -> list[tuple[int | None, int | None]]:
        """Where rows of each input lie that the windows of interest are made of."""
        spans: list[tuple[int | None, int | None]] = []
        for index in range(len(self._sets)):
            if self.shape.is_table(index):
                spans.append((None, None))
                continue
            if self.shape.per_window is not None or index == self.shape.anchor:
                spans.append((first, last))
                continue
            reach = self.shape.graph.reaches[self.shape.anchor][index]
            slack = len(self._sets)
            begin = None if first is None or reach.before is None else first - reach.before - slack
            end = None if last is None or reach.after is None else last + reach.after + slack
            spans.append((begin, end))
        return spans

    def _input(
        self,
        epoch: Epoch,
        index: int,
        ends: Ends,
        span: tuple[int | None, int | None],
        marked: bool,
    ) -> exp.Select | None:
        """One input's sets, or its rows, with its columns named as above the join."""
        store, (first, last) = self._sets[index], span
        if isinstance(store, TableSet):
            table = store.rows(epoch)
            # A table is never news.
            flag = exp.false() if marked else None
            return None if table is None else self._join.named(index, table, None, flag)
        stored = read_panes(epoch, store, first, last, marked)
        if stored is None:
            return None
        place = PANE
        if self.shape.per_window is not None:
            stored = expand(stored, column(PANE), {0: self.shape.per_window}, ends)
            place = WINDOW_START
        else:
            where: list[Sql] = []
            if first is not None:
                where.append(column(PANE) > number(first - (store.panes.length or 1)))
            if last is not None:
                where.append(column(PANE) <= number(last))
            stored = select(stored, None, where)
        if index in self.choice.inputs(epoch):
            stored = self._join.inputs[index].merged(stored, place, marked)
        return self._join.named(index, stored, place, column(NEW) if marked else None)

    def _windows(self, panes: exp.Select, ends: Ends, marked: bool) -> Definition:
        """The query's windows from the groups of panes, through other windows where that pays."""
        windows, aggregates, keys = self.shape.windows, self._join.aggregates, self._join.keys
        pane = self.shape.panes[self.shape.anchor]
        if self.shape.per_window is not None or windows == (pane,):
            (window,) = windows
            rows: exp.Query = select(panes, None, _ends_in(column(PANE), window, ends))
            end = column(PANE) + number(window.length)
            extra: dict[str, Sql] = {WINDOW_COLUMN: window_struct(column(PANE), end)}
            return self._finished(rows, extra, marked)
        merged = merges(aggregates, marked)
        wanted = numbered(windows)
        finest = pane or Hopping(1, 1)
        graph = closing_graph(windows, finest, coverage_of(aggregates.values()))
        by_tree = self._closing == "tree"
        if self._closing == "auto":
            by_tree = len(windows) > 1 and tree_pays(graph, finest, 1, None)
        if by_tree:
            rows = close_by_tree(panes, keys, merged, finest, graph, wanted, ends)
        else:
            placed = expand(panes, column(PANE), wanted, ends)
            rows = merge_groups(placed, [*keys, WINDOW_INDEX, WINDOW_START], merged)
        extra = {WINDOW_COLUMN: window_struct(column(WINDOW_START), end_of(windows))}
        if len(windows) > 1:
            extra[WINDOW_ID_COLUMN] = name_of(windows)
        return self._finished(rows, extra, marked)

    def _finished(self, rows: exp.Query, extra: dict[str, Sql], marked: bool) -> Definition:
        join = self._join
        return finished(
            self.node, join.keys, join.aggregates, rows, extra, marked, different=join.different
        )

    def steps(self) -> tuple[EpochStep, ...]:
        names = ", ".join(self.shape.names)
        when = "windows that changed" if self._mode is OutputMode.UPDATE else "windows that closed"
        return (EpochStep(f"join aggregation sets of {names} in {when}", (self.choice.text,)),)


def _ends_in(start: Sql, window: Hopping, ends: Ends) -> list[Sql]:
    """Whether a window of this length is one of interest."""
    end = start.copy() + number(window.length)
    bounds: list[Sql] = []
    if ends.above is not None:
        bounds.append(end > number(ends.above))
    if ends.up_to is not None:
        bounds.append(end.copy() <= number(ends.up_to))
    if ends.start_from is not None:
        bounds.append(start.copy() >= number(ends.start_from))
    return bounds
