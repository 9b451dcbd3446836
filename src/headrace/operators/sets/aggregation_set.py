"""Aggregation sets: inputs of a join that are aggregated before it, as arrangements.

A set holds, per group of its input and pane of time, how many rows there are and their partial
aggregates (Definition 3 of the paper on aggregation join queries). It is updated incrementally: an
epoch appends the partials of its own rows, the window increment, and files whose panes have left
every window are dropped, the decrement of Definition 4 for windows that are made of panes.

A row is a group of one. So an input that is *not* aggregated early is the same arrangement with a
row for each row, and which of the two an epoch appends makes no difference to who reads them. The
choice may change between any two epochs, and nothing has to be migrated.

Paper: Early Aggregation, Section 4, Definition 3, Definition 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from headrace.definitions.definition import (
    Definition,
    Sql,
    call,
    column,
    millis,
    number,
    select,
)
from headrace.definitions.lateness import Lateness
from headrace.definitions.partials import state_of_row
from headrace.operators.base import EpochStep
from headrace.operators.counting import GREATEST
from headrace.operators.epoch import Epoch
from headrace.operators.panes.pane_store import ROWS, PaneStore
from headrace.operators.sets.watched_keys import GROUPS, take_keys, watch_keys
from headrace.operators.write import RowFilter
from headrace.state.arrangement import span
from headrace.stats.load import SeenSet, SetWork, observed_load, skew_of

LATE, _SQUARES = "__late", "__squares"


@dataclass
class AggregationSet(PaneStore):
    """The set of a stream. Its rows are aggregated in an epoch where one of its users wants it."""

    lateness: Lateness | None = None
    wishes: list[Callable[[Epoch], bool]] = field(default_factory=list)
    #: Key columns by which it is joined; their values are counted.
    joined_by: set[str] = field(default_factory=set)

    @property
    def identity(self) -> str:
        return self.name

    def _aggregated(
        self, epoch: Epoch, rows: Definition, groups: dict[str, Sql], counting: bool
    ) -> tuple[exp.Select, dict[str, Sql]]:
        late = self._late(epoch)
        if self._early(epoch):
            query, watched = super()._aggregated(epoch, rows, groups | late, counting)
            return query, watched | late
        counted: dict[str, Sql] = {ROWS: number(1)}
        if counting:
            counted[GREATEST] = millis(column(self.time.name))
        states = {p.name: state_of_row(p) for p in self.ordered()}
        return select(rows.query, {**groups, **late, **counted, **states}), counted | late

    def _early(self, epoch: Epoch) -> bool:
        return any(wish(epoch) for wish in self.wishes)

    def _late(self, epoch: Epoch) -> dict[str, Sql]:
        """Whether a row comes too late for the join, where there is a watermark to tell."""
        rule = self.lateness
        watermark = None if rule is None else epoch.before(rule.streams)
        if rule is None or watermark is None:
            return {}
        on_time = rule.condition(column(self.time.name), watermark)
        return {LATE: exp.Not(this=exp.paren(on_time))}

    def _kept(self, epoch: Epoch, row_filter: RowFilter | None) -> RowFilter | None:
        if not self._late(epoch):
            return row_filter
        on_time = exp.Not(this=column(LATE))
        condition = (
            on_time if row_filter is None else exp.and_(row_filter.condition, on_time, copy=False)
        )
        return RowFilter(condition, self.schema.names)

    def _watched(self, epoch: Epoch) -> dict[str, Sql]:
        watched: dict[str, Sql] = {}
        if self.lateness is not None and self._late(epoch):
            late = exp.Case(ifs=[exp.If(this=column(LATE), true=column(ROWS))])
            watched[self.lateness.flag] = call("sum", late)
        counted: dict[str, list[Sql]] = {name: [column(name)] for name in self.joined_by}
        if self._early(epoch):
            watched[_SQUARES] = call("sum", column(ROWS) * column(ROWS))
        else:
            counted[GROUPS] = [column(name) for name in (*self.group_names, ROWS)]
        return watched | watch_keys(counted, epoch.state.arrangement(self.name).recent_rows)

    def _note_load(self, epoch: Epoch, rows: int, seen: dict[str, Any]) -> None:
        counted = take_keys(seen)
        squares = seen.pop(_SQUARES, None)
        written = [f for f in epoch.new_files(self.name) if f.first is not None]
        covered = span(written)
        if covered is None or not self.panes.length:
            return
        stored = sum(file.rows for file in written)
        groups = counted.pop(GROUPS, float(stored))
        load = observed_load(rows, groups, covered[1] - covered[0] + 1, self.panes.length)
        if load is None:
            return
        grouped = rows if self._early(epoch) else 0
        skew = None if squares is None else skew_of(float(squares), rows, groups)
        seen_set = SeenSet(rows, min(groups, rows), load, counted, skew=skew)
        epoch.statistics.note_set(self.name, seen_set)
        epoch.set_work[self.name] = SetWork(rows, load.milliseconds, grouped, stored)

    def late_counters(self) -> list[str]:
        return [*super().late_counters(), *([self.lateness.flag] if self.lateness else [])]

    def step(self) -> EpochStep:
        keys = ", ".join(map(str, self.keys)) or "(all rows)"
        return EpochStep(
            f"update aggregation set {self.name}",
            (f"group by {keys}, {self.panes.text}", f"partials: {len(self.partials)}"),
        )
