"""Aggregates over joins as operators over aggregation sets."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from headrace.compiler.context import CompilerContext
from headrace.compiler.physical_plan import distinct_stores
from headrace.definitions.definition import column
from headrace.definitions.exact_partials import decompose_exactly
from headrace.definitions.lateness import Lateness
from headrace.definitions.partials import Decomposed, decompose
from headrace.errors import QueryError
from headrace.operators.base import Operator
from headrace.operators.panes.pane_aggregate import PaneAggregate
from headrace.operators.panes.pane_store import Panes, PaneStore, WindowLateness
from headrace.operators.rows.row_store import Retention
from headrace.operators.sets.aggregation_set import AggregationSet
from headrace.operators.sets.definition import SetColumns, SetJoin, set_columns
from headrace.operators.sets.landmark import TIME, OneWaySetJoins
from headrace.operators.sets.output_set import OutputSet
from headrace.operators.sets.per_input_windows import InputWindowsJoin
from headrace.operators.sets.table_set import TableSet
from headrace.operators.sets.trailing_set import TrailingSet, WindowRows
from headrace.operators.sets.window_pairs import WindowPairs, counted_join
from headrace.operators.sets.windowed import AggregationSetJoin
from headrace.optimizer.early.sets import early_sets, owner_of
from headrace.optimizer.early.shape import (
    AggregationJoin,
    Declined,
    aggregation_join,
    forced_inputs,
)
from headrace.plan.expressions import AggregateCall, Column, Expr
from headrace.plan.nodes import Aggregate
from headrace.plan.times import graph_lag
from headrace.plan.types import TIMESTAMP
from headrace.plan.windows import Current, Hopping, InputWindowKind, Landmark, Trailing
from headrace.planner.early_aggregation import EarlyChoice
from headrace.planner.output_upkeep import OutputChoice
from headrace.state import store_names

AnySet = AggregationSet | TrailingSet | TableSet


def compile_sets(
    compilation: CompilerContext, node: Aggregate, streams: frozenset[str], lag: int
) -> Operator:
    """An aggregate over joins, from sets that are aggregated before the join."""
    shape = aggregation_join(node)
    if isinstance(shape, Declined):
        raise QueryError(
            f"windows of each input of a join cannot be computed here: {shape.reason}",
            hint="use aggregates that need no rows, such as sum and avg, or one window of all",
        )
    # A query whose inputs have windows of their own is computed so even where nothing is
    # aggregated early.
    forced = forced_inputs(shape) if node.early not in ("", "late") else frozenset[int]()
    return _SetCompiler(compilation, shape, streams, lag, forced).operator()


class _SetCompiler:
    def __init__(
        self,
        compilation: CompilerContext,
        shape: AggregationJoin,
        streams: frozenset[str],
        lag: int,
        forced: frozenset[int] | None,
    ) -> None:
        self._all = compilation
        self._shape = shape
        self._node = shape.node
        self._streams = streams
        self._lag = lag
        self._forced = forced

    def operator(self) -> Operator:
        join, stores = self._join()
        leaves = self._shape.graph.leaves
        sources = tuple(self._all.input(leaves[index].node) for index in self._shape.streams)
        output = ""
        if self._shape.input_windows is not None:
            output = store_names.output_of(self._node, self._all.starts_at)
        choice = EarlyChoice(self._shape, join.inputs, self._all.policy, self._forced, output)
        self._all.note_choice(choice)
        for index, store in enumerate(stores):
            store.wishes.append(partial(choice.wants, index))
        if self._shape.input_windows is not None:
            return self._windows_of_inputs(join, stores, sources, choice)
        sets = tuple(s for s in stores if not isinstance(s, TrailingSet))
        if self._shape.landmark:
            joins = OneWaySetJoins(join, sets, sources, choice)
            joins.stores = distinct_stores(sets)
            return self._landmark(join, joins)
        operator: Operator = AggregationSetJoin(
            join,
            sets,
            sources,
            self._streams,
            self._lag,
            self._all.mode,
            self._all.whole_from(self._node.input),
            self._all.policy.window_closing,
            choice,
        )
        operator.stores = distinct_stores(sets)
        return operator

    def _windows_of_inputs(
        self,
        join: SetJoin,
        stores: tuple[AnySet, ...],
        sources: tuple[Operator, ...],
        choice: EarlyChoice,
    ) -> Operator:
        """Joined anew with each step of the watermark, or from an output kept up to date."""
        upkeep = OutputChoice(choice)
        counted: dict[str, str] = {}
        if upkeep.reason is None:
            join, counted = counted_join(join)
            self._measure(join, stores)
        moving = tuple(s for s in stores if not isinstance(s, AggregationSet))
        window = self._node.windows[0]
        assert isinstance(window, Trailing | Current)
        pairs = WindowPairs(join, moving, sources, window.length)
        rows = [s.rows.store for s in stores if isinstance(s, TrailingSet)]
        pairs.stores = distinct_stores([*rows, *stores])
        output: OutputSet | None = None
        if upkeep.reason is None:
            output = self._output_set(choice.output_store, pairs, upkeep, counted)
        operator = InputWindowsJoin(
            pairs, output, self._streams, self._all.starts_at, choice, upkeep
        )
        operator.stores = (*pairs.stores, *([] if output is None else [output]))
        return operator

    def _output_set(
        self, name: str, pairs: WindowPairs, upkeep: OutputChoice, counted: dict[str, str]
    ) -> OutputSet:
        store = self._all.stores.get(name)
        if not isinstance(store, OutputSet):
            store = OutputSet(name, pairs, self._streams, counted)
            self._all.register(store)
        store.wishes.append(upkeep.keeps)
        return store

    def _measure(self, join: SetJoin, stores: tuple[AnySet, ...]) -> None:
        """Let the sets hold what a join reads of them."""
        for store, columns in zip(stores, join.inputs, strict=True):
            store.partials |= {p.name: p for p in columns.measures.values()}

    def _landmark(self, join: SetJoin, joins: OneWaySetJoins) -> Operator:
        """The groups so far, to which each epoch adds what its new joined rows amount to."""
        name = store_names.late_groups_of(self._node, self._all.starts_at)
        store = self._all.stores.get(name)
        if not isinstance(store, PaneStore):
            store = PaneStore(name, joins, joins.keys, Column(TIME, TIMESTAMP), Panes())
            self._all.register(store)
        partials = (p for parts in join.aggregates.values() for p in parts.partials)
        store.partials |= {p.name: replace(p, update=p.merge(column(p.name))) for p in partials}
        store.retentions.append(Retention(self._streams, None))
        operator = PaneAggregate(
            self._node,
            store,
            dict(join.aggregates),
            self._streams,
            0,
            self._all.mode,
            None,
            join.different,
        )
        operator.stores = (store,)
        return operator

    def _join(self) -> tuple[SetJoin, tuple[AnySet, ...]]:
        """The join of the aggregate's sets, and their stores."""
        shape = self._shape
        sets = early_sets(shape)
        parts: dict[str, Decomposed] = {}
        for position, named in enumerate(shape.aggregates):
            assert isinstance(named.expr, AggregateCall)
            # What is put together from factors is not taken off again.
            exact = shape.input_windows is not None and position not in sets.factored
            own = (decompose_exactly if exact else decompose)(named.expr)
            assert own is not None
            parts[named.name] = own
        stores: list[AnySet] = []
        inputs: list[SetColumns] = []
        for index, early in enumerate(sets.inputs):
            store = self._store(index, tuple(group.expr for group in early.groups))
            columns = set_columns(shape, sets, index, parts, store.name)
            if isinstance(store, AggregationSet | TrailingSet):
                store.joined_by |= {name for _, name in columns.joined_by}
            stores.append(store)
            inputs.append(columns)
        owners = {
            partial.name: owner_of(shape, named.expr)
            for named in shape.aggregates
            for partial in parts[named.name].partials
        }
        join = SetJoin(shape, sets, tuple(inputs), parts, owners)
        self._measure(join, tuple(stores))
        return join, tuple(stores)

    # Stores

    def _store(self, index: int, groups: tuple[Expr, ...]) -> AnySet:
        if self._shape.is_table(index):
            return self._table_set(index, groups)
        if self._shape.input_windows is not None:
            return self._trailing_set(index, groups)
        return self._stream_set(index, groups)

    def _stream_set(self, index: int, groups: tuple[Expr, ...]) -> AggregationSet:
        shape = self._shape
        leaf, pane = shape.graph.leaves[index], shape.panes[index] or Hopping(1, 1)
        time = self._time(index)
        # A row that is late for the join is in none of its sets; a join with tables alone has no
        # state, and its rows are welcome as long as a window is open.
        late = Lateness(self._streams, graph_lag(shape.graph)) if shape.graph.timed else None
        since = self._all.starts_at
        name = store_names.set_of(leaf.node, groups, time, pane, late, since)
        store = self._all.stores.get(name)
        if not isinstance(store, AggregationSet):
            panes, source = Panes(pane.length, pane.offset), self._all.input(leaf.node)
            store = AggregationSet(name, source, groups, time, panes, family=name, lateness=late)
            self._all.register(store)
        store.retentions.append(Retention(self._streams, self._kept(index)))
        if not shape.graph.timed and shape.windows:
            store.closings.add(WindowLateness(shape.windows, self._streams, self._lag))
        return store

    def _kept(self, index: int) -> int | None:
        """How far below the watermark a set is needed: until the last window closes that a row of
        it may have a part in; None is for ever."""
        shape = self._shape
        if shape.landmark:
            others = [reach.after for reach in shape.graph.reaches[index].values()]
            bounded = [after for after in others if after is not None]
            if not shape.graph.timed or len(bounded) < len(others):
                return None
            return graph_lag(shape.graph) + max(0, *bounded) + len(shape.graph.leaves)
        lengths = [window.length for window in shape.windows]
        longest = max([*lengths, *([shape.trailing.length] if shape.trailing else [])])
        if shape.per_window is not None or index == shape.anchor:
            return self._lag + longest
        after = shape.graph.reaches[index][shape.anchor].after
        return None if after is None else self._lag + longest + max(after, 0) + len(shape.names)

    def _trailing_set(self, index: int, groups: tuple[Expr, ...]) -> TrailingSet:
        shape = self._shape
        leaf, windows = shape.graph.leaves[index], shape.input_windows
        window = None if windows is None else windows[index]
        assert isinstance(window, InputWindowKind)
        time = self._time(index)
        # A landmark's rows are in its set for good; without a set they are needed themselves.
        keep_for = None if isinstance(window, Landmark) else window.length
        rows = self._all.stored_rows(leaf.node, time.name, None, Retention(self._streams, keep_for))
        name = store_names.trailing_set_of(
            leaf.node, groups, time, window, self._streams, self._all.starts_at
        )
        store = self._all.stores.get(name)
        if not isinstance(store, TrailingSet):
            reader = WindowRows(leaf.node, rows)
            store = TrailingSet(name, reader, rows, groups, window, self._streams)
            self._all.register(store)
        return store

    def _table_set(self, index: int, groups: tuple[Expr, ...]) -> TableSet:
        node = self._shape.graph.leaves[index].node
        name = store_names.table_set_of(node, groups)
        store = self._all.stores.get(name)
        if not isinstance(store, TableSet):
            store = TableSet(name, node, groups)
            self._all.register(store)
        return store

    def _time(self, index: int) -> Column:
        leaf = self._shape.graph.leaves[index]
        return Column(leaf.own_name(self._shape.times[index]), TIMESTAMP)
