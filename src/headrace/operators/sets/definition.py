"""The relational definition of a join of aggregation sets, and of the late aggregation above it.

Definition 6 of the paper on aggregation join queries, for any number of inputs: a row of a set is
matched like a row of its input, and stands for as many joined rows as the counts of the matched
rows multiply to. What the aggregates are then follows by the coalescing property.

Paper: Early Aggregation, Section 4, Definition 6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from sqlglot import exp

from headrace.cost.window_joins import JoinLoad
from headrace.definitions.coalescing import coalesced, coalesced_where_sound
from headrace.definitions.definition import Sql, any_of, call, column, held, select, sql_of
from headrace.definitions.exact_partials import decompose_exactly
from headrace.definitions.factors import of_factors
from headrace.definitions.join_conditions import exact_condition
from headrace.definitions.join_shape import JoinConjunct, JoinShape, predicate_condition
from headrace.definitions.join_tree import join_in_order
from headrace.definitions.partials import Decomposed, Partial, decompose, of_rows
from headrace.operators.epoch import Epoch
from headrace.operators.old_and_new import NEW
from headrace.operators.panes.pane_store import ROWS
from headrace.operators.panes.partial_rows import merge_groups
from headrace.optimizer.early.sets import EarlySets
from headrace.optimizer.early.shape import AggregationJoin
from headrace.optimizer.joins.containment import NAME as CONTAINMENT
from headrace.optimizer.joins.search import best_order, best_without_statistics, join_cost
from headrace.optimizer.safety import can_raise
from headrace.plan.expressions import AggregateCall, Column, Expr, without_casts
from headrace.plan.join_graph import JoinGraph, KeyEdge
from headrace.plan.json import plan_hash
from headrace.plan.nodes import SameWindow
from headrace.plan.types import BIGINT, TIMESTAMP, Field, Schema
from headrace.planner.joined_sets import SetJoinRun


@dataclass(frozen=True)
class SetColumns:
    """What a set's stored columns are called above the join.

    ``groups`` are the grouping attributes with their expressions over the input, in the order of
    the store's keys. ``measures`` are stored partials by the name of the query's partial that they
    make up. ``joined_by`` are stored columns that are keys of the join, by the position of their
    class.
    """

    store: str
    groups: tuple[tuple[str, Expr], ...]
    measures: Mapping[str, Partial]
    counts: bool
    joined_by: tuple[tuple[int, str], ...]
    #: The group that says whether the partials named in ``guarded`` are computed.
    sound: str = ""
    guarded: frozenset[str] = frozenset()

    @property
    def key_names(self) -> list[str]:
        return [f"__key{index}" for index in range(len(self.groups))]

    def stored_key(self, name: str) -> str | None:
        """The stored column of the grouping attribute of this name."""
        names = [group for group, _ in self.groups]
        return self.key_names[names.index(name)] if name in names else None

    def merged(self, rows: exp.Query, place: str | None, marked: bool) -> exp.Query:
        """The rows of each group as one."""
        sums: dict[str, Sql] = {}
        if self.counts:
            total = call("sum", column(ROWS))
            sums[ROWS] = exp.Cast(this=total, to=exp.DataType.build("bigint"))
        sums |= {p.name: p.merge(column(p.name)) for p in self.measures.values()}
        if marked:
            sums[NEW] = call("max", column(NEW))
        groups = [*self.key_names, *([] if place is None else [place])]
        if not groups:
            # Without groups even no rows would make one.
            sums[ROWS] = sums.get(ROWS) or call("sum", column(ROWS))
            some = [column(ROWS) > exp.Literal.number(0)]
            return select(merge_groups(rows, [], sums), None, some)
        return merge_groups(rows, groups, sums)


def set_columns(
    shape: AggregationJoin,
    sets: EarlySets,
    index: int,
    aggregates: Mapping[str, Decomposed],
    store: str,
) -> SetColumns:
    """The columns of one input's set, stored under a name."""
    early = sets.inputs[index]
    measures: dict[str, Partial] = {
        factor_column(position, index, what, at): partial
        for position, what, factor in early.factors
        for at, partial in enumerate(_partials(factor))
    }
    guarded: set[str] = set()
    # A window that moves takes rows away from its set.
    take_apart = decompose if shape.input_windows is None else decompose_exactly
    for position, call_of_input in early.measures:
        outer = aggregates[shape.aggregates[position].name].partials
        measures |= {
            o.name: p for o, p in zip(outer, _partials(call_of_input, take_apart), strict=True)
        }
        if position in early.guarded:
            guarded |= {partial.name for partial in outer}
    names = [group.name for group in early.groups]
    joined_by = tuple(
        (position, f"__key{names.index(key.name)}")
        for position, members in enumerate(shape.graph.key_classes)
        for owner, key in ((o, without_casts(k)) for o, k in members)
        if owner == index and isinstance(key, Column)
    )
    groups = tuple((group.name, group.expr) for group in early.groups)
    sound = "" if early.sound is None else early.sound.name
    counts = early.counts
    return SetColumns(store, groups, measures, counts, joined_by, sound, frozenset(guarded))


def _partials(
    aggregate: AggregateCall,
    take_apart: Callable[[AggregateCall], Decomposed | None] = decompose,
) -> tuple[Partial, ...]:
    own = take_apart(aggregate)
    assert own is not None
    return own.partials


@dataclass(frozen=True)
class SetJoin:
    """Everything about the join of sets beside the sets' rows."""

    shape: AggregationJoin
    sets: EarlySets
    inputs: tuple[SetColumns, ...]
    aggregates: Mapping[str, Decomposed]
    #: Which input each of the query's partials is of.
    owners: Mapping[str, int | None]

    @property
    def keys(self) -> list[str]:
        """The columns of the query's keys after the late aggregation, and of what is grouped by for
        the sake of aggregates of different values."""
        return [f"__key{position}" for position in range(len(self.sets.keys))]

    @property
    def different(self) -> dict[str, Sql]:
        """The aggregates that are computed of groups, from their columns."""
        return {named.name: of_rows(named.expr) for named in self.shape.different}

    def named(self, index: int, rows: exp.Query, place: str | None, flag: Sql | None) -> exp.Select:
        """An input's rows with their columns named as above the join.

        ``place`` is the column of their pane or window, ``flag`` says which of them are new.
        """
        source = self.inputs[index]
        columns: dict[str, Sql] = {} if place is None else {place_of(index): column(place)}
        names = (name for name, _ in source.groups)
        columns |= {name: column(key) for name, key in zip(names, source.key_names, strict=True)}
        if place is not None and self.shape.panes[index] is not None:
            columns[self.shape.times[index]] = call("timestamp_millis", column(place))
        columns |= {name: column(partial.name) for name, partial in source.measures.items()}
        if source.counts:
            columns[_count(index)] = column(ROWS)
        if flag is not None:
            columns[_flag(index)] = flag
        # An input may have no columns that anybody reads; a row is a row.
        return select(rows, columns or {_count(index): column(ROWS)})

    # How they are joined

    @cached_property
    def _joined(self) -> JoinShape:
        """Windows that are panes on both sides are equal keys, and no condition more."""
        shape, graph = self.shape, self.shape.graph
        keys, times = list(graph.keys), []
        for edge in graph.times:
            window = edge.time.window if isinstance(edge.time, SameWindow) else None
            panes = {shape.panes[edge.left], shape.panes[edge.right]}
            is_pane = window is not None and panes == {window}
            if shape.per_window is not None or is_pane:
                ends = (Column(place_of(i), BIGINT) for i in (edge.left, edge.right))
                keys.append(KeyEdge(edge.left, edge.right, *ends))
            else:
                times.append(edge)
        leaves = []
        for index, (leaf, source) in enumerate(zip(graph.leaves, self.inputs, strict=True)):
            fields = [Field(name, expr.type) for name, expr in source.groups]
            if not shape.is_table(index):
                fields.append(Field(place_of(index), BIGINT))
            if shape.panes[index] is not None:
                fields.append(Field(shape.times[index], TIMESTAMP))
            leaves.append(replace(leaf, schema=Schema(tuple(fields))))
        conditions = [
            JoinConjunct(sql, edge.time.left.columns() | edge.time.right.columns())
            for edge in times
            for sql in exact_condition(edge.time)
        ]
        conditions += map(predicate_condition, graph.predicates)
        reduced = JoinGraph(
            tuple(leaves), tuple(keys), tuple(times), graph.predicates, graph.written, graph.timed
        )
        # Times are rounded down to panes: a condition of the query does not mind, but what two of
        # them imply for a third pair is about the times as they were.
        return JoinShape(reduced, tuple(conditions), outer=False, implies=False)

    def join(
        self,
        epoch: Epoch,
        inputs: Mapping[int, exp.Select],
        rows: Sequence[float],
        stretch: float,
        watched: bool = True,
    ) -> exp.Select:
        """All inputs joined, in the order asked for or the cheapest.

        ``rows`` are how many each of them has, at most, and ``stretch`` the milliseconds over which
        they spread. With ``watched`` it is counted how many rows come out: it is the whole join.
        """
        graph = self.shape.graph
        load = self._load(epoch, rows, stretch)
        costs = None if load is None else join_cost(graph, load)

        def size(part: frozenset[int]) -> float:
            return 0.0 if costs is None else costs.rows(sum(1 << index for index in part))

        order = self.shape.order
        if order is None:
            # Pairs that only implied conditions tie have nothing here to be found by.
            untied = frozenset({CONTAINMENT}) if self._joined.graph.times else frozenset[str]()
            cheapest = (
                best_without_statistics(graph, untied)
                if load is None
                else best_order(graph, load, untied)
            )
            order = cheapest.order
        label = self._watched(epoch, load, rows, stretch) if watched else ""
        return join_in_order(self._joined, order, inputs, size, label)

    def _watched(
        self, epoch: Epoch, load: JoinLoad | None, rows: Sequence[float], stretch: float
    ) -> str:
        """A label by which the rows are counted that come out, where it is known how many should:
        not of windows whose sets are put together first, nor of the first that close."""
        if load is None or self.shape.per_window is not None or stretch <= 1:
            return ""
        label, rows_of_steps = epoch.inputs.watch_join()
        everybody = (1 << len(self.shape.graph.leaves)) - 1
        expected = join_cost(self.shape.graph, load).rows(everybody) * stretch
        identity = plan_hash(self.shape.node)
        epoch.set_joins.append(SetJoinRun(identity, rows, expected, rows_of_steps))
        return label

    def _load(self, epoch: Epoch, rows: Sequence[float], stretch: float) -> JoinLoad | None:
        keys = {}
        for index, source in enumerate(self.inputs):
            for position, key in source.joined_by:
                counted = epoch.statistics.keys.get((source.store, key))
                if counted is None and self.shape.is_table(index):
                    counted = rows[index]
                if counted is None:
                    return None
                keys[index, position] = counted
        return JoinLoad(tuple(count / stretch for count in rows), keys, stretch)

    # The late aggregation

    def late(self, joined: exp.Select, place: Mapping[str, Sql], marked: bool) -> exp.Select:
        """Groups of the joined rows: the query's keys, a place in time, and its partials."""
        factored = {self.shape.aggregates[position].name for position in self.sets.factored}
        partials = {
            p.name: p
            for name, parts in self.aggregates.items()
            if name not in factored
            for p in parts.partials
        }
        if any(can_raise(key.expr) for key in self.sets.keys):
            joined = held(joined, "__joined")
        columns: dict[str, Sql] = {
            name: sql_of(key.expr) for name, key in zip(self.keys, self.sets.keys, strict=True)
        }
        columns |= place
        # By position: a key may be a constant.
        groups = [exp.Literal.number(position + 1) for position in range(len(columns))]
        if not columns:
            columns[ROWS] = exp.Count(this=exp.Star())
        columns |= {name: self._coalesced(partial) for name, partial in partials.items()}
        columns |= self._of_factors()
        if marked:
            flags = [column(_flag(index)) for index in range(len(self.inputs))]
            columns[NEW] = call("max", exp.paren(any_of(flags)))
        grouped = select(joined, columns, (), groups)
        if groups:
            return grouped
        return select(grouped, None, [column(ROWS) > exp.Literal.number(0)])

    def _coalesced(self, partial: Partial) -> Sql:
        owner = self.owners[partial.name]
        everybody = {index: _count(index) for index, s in enumerate(self.inputs) if s.counts}
        counts = [name for index, name in everybody.items() if index != owner]
        if owner is not None and partial.name in self.inputs[owner].guarded:
            sound = self.inputs[owner].sound
            return coalesced_where_sound(partial, sound, counts, list(everybody.values()))
        return coalesced(partial, owner is not None, counts)

    def _of_factors(self) -> dict[str, Sql]:
        """The partials of aggregates over several inputs that are made of factors."""
        combined: dict[str, Sql] = {}
        for position, split in self.sets.factored.items():

            def columns(index: int, what: str, position: int = position) -> list[Sql]:
                names = self.inputs[index].measures
                prefix = factor_column(position, index, what, 0)[:-1]
                return [column(name) for name in names if name.startswith(prefix)]

            counts: list[Sql] = [
                column(_count(index))
                for index, source in enumerate(self.inputs)
                if source.counts and index not in split.inputs
            ]
            partials = self.aggregates[self.shape.aggregates[position].name].partials
            states = of_factors(split, partials, columns, counts)
            combined |= {
                partial.name: partial.merge(state)
                for partial, state in zip(partials, states, strict=True)
            }
        return combined


def factor_column(position: int, index: int, what: str, at: int) -> str:
    """The column that holds a part of what the set of an input knows of its factor."""
    return f"__factor{position}_{index}_{what}{at}"


def place_of(index: int) -> str:
    """The column that holds the pane, or the window, of an input's row."""
    return f"__place{index}"


def _count(index: int) -> str:
    """The column that says how many rows a row of an input stands for."""
    return f"__count{index}"


def _flag(index: int) -> str:
    """The column that tells new rows of an input from old ones."""
    return f"{NEW}{index}"
