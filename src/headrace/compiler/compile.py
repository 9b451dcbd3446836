"""From logical plans to physical operators that share stores.

A compilation covers all live queries at once. Stores are named by what they hold, not by who uses
them: queries that need the same state find the same store, and state outlives a recompilation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.compiler.joins import compile_join, held_back
from headrace.compiler.physical_plan import PhysicalPlan
from headrace.compiler.sets import compile_sets
from headrace.definitions.definition import is_table_join
from headrace.definitions.lateness import Lateness
from headrace.definitions.partials import Decomposed, coverage_of, decompose_all
from headrace.errors import QueryError
from headrace.operators.base import Operator, Store
from headrace.operators.panes.pane_aggregate import PaneAggregate
from headrace.operators.panes.pane_store import Panes, PaneStore, WindowLateness
from headrace.operators.panes.split_aggregate import SplitAggregate
from headrace.operators.panes.window_aggregate import PaneScan, WindowAggregate
from headrace.operators.rows.row_aggregate import RowAggregate
from headrace.operators.rows.row_store import (
    Retention,
    RowStore,
    StoredRows,
    lowest_filter,
    unchained,
)
from headrace.operators.sessions.session_aggregate import SessionAggregate
from headrace.operators.sessions.session_store import SessionStore
from headrace.operators.stateless import RowByRow, SourceRows, UnionRows, may_raise
from headrace.optimizer.windows.closing import closing_graph
from headrace.plan.expressions import Column
from headrace.plan.nodes import (
    Aggregate,
    Filter,
    Join,
    Node,
    OutputMode,
    Project,
    Source,
    Table,
    Union,
)
from headrace.plan.times import aggregate_lag
from headrace.plan.types import Schema
from headrace.plan.windows import Hopping, Landmark, Session, Trailing
from headrace.planner.early_aggregation import EarlyChoice
from headrace.planner.filter_sharing import FilterShare, filter_share
from headrace.planner.grouping import (
    Grouping,
    of_panes,
    of_rows_alone,
    reads_streams_plainly,
)
from headrace.planner.pane_layout import Generation, PanePlan
from headrace.planner.policy import PlannerPolicy
from headrace.planner.warm_up import warm_up
from headrace.state import store_names


def union_sources(plans: Iterable[Node]) -> dict[str, Source]:
    """Each stream with all columns that any plan reads."""
    merged: dict[str, Source] = {}
    for plan in plans:
        for node in plan.walk():
            if not isinstance(node, Source):
                continue
            present = merged.get(node.stream)
            merged[node.stream] = with_columns_of(present or node, node)
    return merged


def with_columns_of(source: Source, other: Source) -> Source:
    """A stream with the columns of two readings of it, in the order of their names."""
    fields = {f.name: f for f in (*source.columns, *other.columns)}
    return replace(other, columns=Schema(tuple(fields[name] for name in sorted(fields))))


class Compiler:
    """Compiles one query after another; equal subplans become one operator."""

    def __init__(self, panes: PanePlan, policy: PlannerPolicy) -> None:
        self.panes = panes
        self.policy = policy
        self.physical = PhysicalPlan(policy=policy)
        self._operators: dict[tuple[Node, int | None, OutputMode], Operator] = {}
        self.stores: dict[str, Store] = {}
        self._stream_rows: dict[str, SourceRows] = {}
        self.starts_at: int | None = None
        self.mode = OutputMode.APPEND

    def add(self, plan: Node, starts_at: int | None, mode: OutputMode) -> Operator:
        """The operator of a query's plan, with the stores that it needs.

        Late joiners last: what several queries store comes from the one that sees the most.
        """
        self.starts_at = starts_at
        self.mode = mode
        return self._operator(plan)

    def lay_out(self, panes: PanePlan) -> None:
        """Take the panes of more groupings; those of the others are what they were."""
        self.panes = panes

    def read(self, sources: Mapping[str, Source]) -> None:
        """Read more streams; the others are read as they were."""
        self.physical.sources.update(sources)
        for stream, source in sources.items():
            self._stream_rows[stream] = SourceRows(source)

    def _operator(self, node: Node) -> Operator:
        # What remembers nothing is the same whenever a query joined.
        key = (node, self.starts_at if remembers(node) else None, self.mode)
        if key not in self._operators:
            self._operators[key] = self._compile(node)
        return self._operators[key]

    def _since(self, node: Node) -> int | None:
        """From when an input is seen, where that is not for whoever reads to say.

        An input without state is the same for a query that joined late, and its state may be
        another's. One with state has begun anew: were its rows kept in the store of a query that
        saw more, they would end when that query leaves.
        """
        return self.starts_at if remembers(node) else None

    def whole_from(self, node: Node) -> int | None:
        """From when a query that joined late sees everything that this node would put out.

        A pair may need a row from before the query joined, and a window rows from its beginning.
        """
        if self.starts_at is None:
            return None
        return self.starts_at + warm_up(node)

    def input(self, node: Node) -> Operator:
        """An input of a stateful operator: it hands on final rows, whatever the query's mode."""
        mode, self.mode = self.mode, OutputMode.APPEND
        try:
            return self._operator(node)
        finally:
            self.mode = mode

    def _compile(self, node: Node) -> Operator:
        match node:
            case Source():
                return SourceRows(node)
            case Filter() | Project():
                return RowByRow(node, self._operator(node.input))
            case Union():
                return UnionRows(node, tuple(self._operator(part) for part in node.parts))
            case Aggregate():
                return self._aggregate(node)
            case Join() if is_table_join(node):
                stream = node.left if node.left.streams() else node.right
                return RowByRow(node, self._operator(stream))
            case Join():
                return compile_join(self, node)
            case Table():
                raise QueryError(
                    f"the query reads only the table {node.shown!r}",
                    hint="a standing query needs a stream; run this one with spark.sql",
                )
            case _:
                raise QueryError(f"{type(node).__name__} cannot run")

    # Aggregates

    def _aggregate(self, node: Aggregate) -> Operator:
        window = node.windows[0]
        streams = node.streams() | held_back(self, node.input, node.time.name)
        lag = 0 if isinstance(window, Landmark) else aggregate_lag(node)
        if node.from_sets:
            return compile_sets(self, node, streams, lag)
        parts = decompose_all(node.aggregates)
        if isinstance(window, Session):
            return self._session(node, window, streams, lag, parts)
        panes = of_panes(node)
        if parts is None and panes is not None:
            return self._split(node, panes, streams, lag)
        if parts is None or isinstance(window, Trailing):
            return self._from_rows(node, streams, lag)
        if isinstance(window, Hopping):
            return self._windows_from_panes(node, streams, lag, parts)
        return self._from_panes(node, streams, lag, parts)

    def _split(
        self, node: Aggregate, panes: Aggregate, streams: frozenset[str], lag: int
    ) -> Operator:
        """Functions that have partial states from panes, and from rows those that have none."""
        parts = decompose_all(panes.aggregates)
        assert parts is not None
        from_panes = self._windows_from_panes(panes, streams, lag, parts)
        from_rows = self._from_rows(of_rows_alone(node), streams, lag)
        return SplitAggregate(node, from_panes, from_rows)

    def _windows_from_panes(
        self, node: Aggregate, streams: frozenset[str], lag: int, parts: dict[str, Decomposed]
    ) -> Operator:
        """Tumbling and hopping windows, from the panes of every layout that holds some of them."""
        windows = {i: w for i, w in enumerate(node.windows) if isinstance(w, Hopping)}
        host = self.panes.host(node)
        share: FilterShare | None = None
        if host.rows != Grouping.of(node).rows:
            share = filter_share(node)
            parts = share.parts
        generations = self.panes.generations[host.family]
        keys = tuple(f"__key{host.keys.index(key.expr)}" for key in node.keys)
        longest = max(w.length for w in windows.values())
        retention = Retention(streams, lag + longest)
        readings = []
        for generation in generations:
            for pane in generation.layout.panes:
                closable = {
                    i: w for i, w in windows.items() if generation.layout.pane_of.get(w) == pane
                }
                if not closable:
                    continue
                active = generation is generations[-1]
                store = self._window_store(host, generation, pane, active)
                for decomposed in parts.values():
                    store.partials |= {partial.name: partial for partial in decomposed.partials}
                store.retentions.append(retention)
                store.wanted.add(None if share is None else share.condition)
                graph = closing_graph(closable.values(), pane, coverage_of(parts.values()))
                readings.append(PaneScan(store, pane, closable, graph))
        # One of the stores that get new rows counts those that come too late.
        counting = next(reading.store for reading in readings if reading.store.active)
        condition = None if share is None else share.condition
        counting.closings.add(WindowLateness(tuple(windows.values()), streams, lag, condition))
        operator = WindowAggregate(
            node,
            tuple(readings),
            keys,
            parts,
            streams,
            lag,
            self.mode,
            self.whole_from(node.input),
            self.policy.window_closing,
            None if share is None else share.present.name,
        )
        operator.stores = tuple(reading.store for reading in readings)
        return operator

    def _window_store(
        self, host: Grouping, generation: Generation, pane: Hopping, active: bool
    ) -> PaneStore:
        shift = f"+{pane.offset}" if pane.offset else ""
        since = self._since(host.input)
        name = store_names.panes_of_family(
            host.family, since, f"{pane.length}{shift}", generation.number
        )
        store = self.stores.get(name)
        if not isinstance(store, PaneStore):
            store = PaneStore(
                name,
                self.input(self._widened(host.input)),
                host.keys,
                host.time,
                Panes(pane.length, pane.offset),
                family=host.family,
                generation=generation.number,
                since=since,
                active=active,
            )
            self.register(store)
        return store

    def _widened(self, node: Node) -> Node:
        """A plain reading of a stream with all columns that any query reads of it."""
        if not reads_streams_plainly(node):
            return node
        sources = self.physical.sources
        return node.transform(lambda n: sources[n.stream] if isinstance(n, Source) else n)

    def _from_panes(
        self, node: Aggregate, streams: frozenset[str], lag: int, parts: dict[str, Decomposed]
    ) -> Operator:
        unbounded = isinstance(node.windows[0], Landmark)
        store = self._pane_store(node, Panes(given=not unbounded))
        for decomposed in parts.values():
            store.partials |= {partial.name: partial for partial in decomposed.partials}
        store.retentions.append(Retention(streams, None if unbounded else lag))
        operator = PaneAggregate(
            node, store, parts, streams, lag, self.mode, self.whole_from(node.input)
        )
        operator.stores = (store,)
        return operator

    def _pane_store(self, node: Aggregate, panes: Panes) -> PaneStore:
        keys = tuple(key.expr for key in node.keys)
        # A landmark counts from when its query joined, so it cannot use an older query's state.
        name = store_names.panes_of(
            node, self._since(node.input) if panes.given else self.starts_at
        )
        store = self.stores.get(name)
        if not isinstance(store, PaneStore):
            store = PaneStore(name, self.input(node.input), keys, node.time, panes)
            self.register(store)
        return store

    def _from_rows(self, node: Aggregate, streams: frozenset[str], lag: int) -> Operator:
        lengths = [w.length for w in node.windows if isinstance(w, Hopping | Trailing)]
        endless = isinstance(node.windows[0], Landmark)
        keep_for = None if endless else lag + max(lengths, default=0)
        rows = self.stored_rows(node.input, node.time.name, None, Retention(streams, keep_for))
        keys = (key.expr for key in node.keys)
        columns = (rows.stored_name(key.name) for key in keys if isinstance(key, Column))
        rows.store.wish_split(name for name in columns if name is not None)
        operator = RowAggregate(
            node,
            rows,
            self.input(node.input),
            streams,
            lag,
            self.mode,
            self.whole_from(node.input),
        )
        operator.stores = (rows.store,)
        return operator

    def _session(
        self,
        node: Aggregate,
        window: Session,
        streams: frozenset[str],
        lag: int,
        parts: dict[str, Decomposed] | None,
    ) -> Operator:
        if self.mode is OutputMode.UPDATE:
            raise QueryError(
                "sessions cannot be written in update mode, because sessions merge",
                hint="use outputMode('append')",
            )
        keys = tuple(key.expr for key in node.keys)
        late = Lateness(streams, window.gap + lag, strict=True)
        name = store_names.sessions_of(node, late, self.starts_at)
        store = self.stores.get(name)
        if not isinstance(store, SessionStore):
            store = SessionStore(
                name,
                self.input(node.input),
                keys,
                node.time,
                window.gap,
                late,
                lag,
                self.starts_at,
            )
            self.register(store)
        if parts is not None:
            for decomposed in parts.values():
                store.partials |= {partial.name: partial for partial in decomposed.partials}
            operator = SessionAggregate(node, store, parts, None)
            operator.stores = (store,)
            return operator
        retention = Retention(streams, lag + window.gap, sessions=store.name)
        rows = self.stored_rows(node.input, node.time.name, late, retention)
        operator = SessionAggregate(node, store, None, rows)
        operator.stores = (store, rows.store)
        return operator

    # Row stores

    def stored_rows(
        self, node: Node, time: str, lateness: Lateness | None, retention: Retention
    ) -> StoredRows:
        """A reading of the stored rows of a node; streams share one store each.

        What can raise on the way from a stream is computed once, when a row arrives: read from a
        shared store it would be computed for some rows and not for others, as epochs and other
        queries have it.
        """
        base, chain = unchained(self.input(node))
        if isinstance(base, SourceRows) and not any(map(may_raise, chain)):
            stream = base.node.stream
            name = store_names.rows_of_stream(stream)
            store = self._row_store(name, self._stream_rows[stream], base.node.time)
            store.columns |= {*base.node.schema.names, base.node.time}
            store.wanted.append(lowest_filter(chain))
            stored_rows = StoredRows(store, base.node.schema, chain, time, lateness, self.starts_at)
        else:
            operator = self.input(node)
            name = store_names.rows_of(node, time, self.starts_at)
            store = self._row_store(name, operator, time)
            store.columns |= set(node.schema.names)
            store.wanted.append(None)
            starts_at = self.starts_at if isinstance(base, SourceRows) else None
            stored_rows = StoredRows(store, node.schema, (), time, lateness, starts_at)
        if lateness is not None:
            store.lateness.add(lateness)
        store.retentions.append(retention)
        return stored_rows

    def _row_store(self, name: str, source: Operator, time: str) -> RowStore:
        store = self.stores.get(name)
        if not isinstance(store, RowStore):
            store = RowStore(name, source, time)
            self.register(store)
        return store

    def register(self, store: Store) -> None:
        self.stores[store.name] = store
        self.physical.stores.append(store)

    def note_choice(self, choice: EarlyChoice) -> None:
        self.physical.early_choices.append(choice)


def remembers(node: Node) -> bool:
    """Whether a plan has an operator with state."""
    return any(
        isinstance(part, Aggregate) or (isinstance(part, Join) and not is_table_join(part))
        for part in node.walk()
    )
