"""Joins of aggregation sets as rows arrive: what a landmark over a join is kept up to date by.

A landmark is never closed, so its groups follow each epoch: the new rows of each input, aggregated
together if that input is aggregated early, meet the sets of the others (a one-way join of
Definition 6 for each input), and what they amount to is added to the groups so far.

Paper: Early Aggregation, Section 6.1, Definition 6.
"""

from __future__ import annotations

from sqlglot import exp

from headrace.definitions.definition import (
    Definition,
    call,
    column,
    named,
    number,
    select,
    union_all,
)
from headrace.operators.base import EpochStep, Operator
from headrace.operators.epoch import Epoch
from headrace.operators.old_and_new import old_and_new
from headrace.operators.panes.pane_store import PANE
from headrace.operators.sets.aggregation_set import AggregationSet
from headrace.operators.sets.definition import SetJoin
from headrace.operators.sets.table_set import TableSet
from headrace.plan.expressions import Column
from headrace.plan.nodes import Node
from headrace.plan.types import TIMESTAMP, Field, Schema
from headrace.planner.early_aggregation import EarlyChoice
from headrace.state.arrangement import span

#: Partial aggregates of joined rows have no time of their own; whoever stores them asks for one.
TIME = "__time"


class OneWaySetJoins(Operator):
    """The partial aggregates of an epoch's new joined rows, by the query's groups."""

    def __init__(
        self,
        join: SetJoin,
        sets: tuple[AggregationSet | TableSet, ...],
        sources: tuple[Operator, ...],
        choice: EarlyChoice,
    ) -> None:
        self.node: Node = join.shape.node
        self._join = join
        self._sets = sets
        self._sources = sources
        self.choice = choice

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self._sources

    @property
    def keys(self) -> tuple[Column, ...]:
        types = (key.expr.type for key in self._join.sets.keys)
        return tuple(Column(n, t) for n, t in zip(self._join.keys, types, strict=True))

    @property
    def schema(self) -> Schema:
        partials = {p.name: p for parts in self._join.aggregates.values() for p in parts.partials}
        fields = [Field(key.name, key.type) for key in self.keys]
        fields += [Field(TIME, TIMESTAMP), *(p.field for p in partials.values())]
        return Schema(tuple(fields))

    def delta(self, epoch: Epoch) -> Definition | None:
        terms = [
            term
            for driver in self._join.shape.streams
            if (term := self._term(epoch, driver)) is not None
        ]
        if not terms:
            return None
        names = [name for name in self.schema.names if name != TIME]
        rows = select(union_all(terms), {name: column(name) for name in names})
        timed = rows.select(named(call("timestamp_millis", number(0)), TIME), copy=False)
        return Definition(timed, self.schema)

    def _term(self, epoch: Epoch, driver: int) -> exp.Query | None:
        """New rows of one input with all others: old ones of those before it, all of the rest."""
        fresh = span(epoch.new_files(self._sets[driver].name))
        if fresh is None:
            return None
        shape = self._join.shape
        inputs: dict[int, exp.Select] = {}
        for index, store in enumerate(self._sets):
            if isinstance(store, TableSet):
                rows = store.rows(epoch)
                place = None
            else:
                reach = shape.graph.reaches[driver][index]
                begin, end = reach.span(*fresh) if shape.graph.timed else (None, None)
                old = None if index == driver else epoch.old(store.name, store.schema, begin, end)
                new = None if index < driver else epoch.new(store.name, store.schema)
                rows = old_and_new(old, new, mark=False)
                place = PANE if shape.graph.timed else None
            if rows is None:
                return None
            if index in self.choice.inputs(epoch) and not isinstance(store, TableSet):
                rows = self._join.inputs[index].merged(rows, place, marked=False)
            inputs[index] = self._join.named(index, rows, place, None)
        counts = [float(epoch.state.arrangement(store.name).rows) for store in self._sets]
        counts[driver] = float(sum(f.rows for f in epoch.new_files(self._sets[driver].name)))
        stretch = float(max(1, fresh[1] - fresh[0]))
        joined = self._join.join(epoch, inputs, counts, stretch)
        return self._join.late(joined, {}, marked=False)

    def steps(self) -> tuple[EpochStep, ...]:
        names = ", ".join(self._join.shape.names)
        return (EpochStep(f"join new rows with aggregation sets of {names}", (self.choice.text,)),)
