"""Arrangements of panes: partial aggregates per group and pane of time.

Every window of a set is a union of panes, so one pass over the new rows feeds all of them. A pane
store belongs to (input, grouping, pane); the queries that use it add the partial columns they
need. Each epoch appends the partials of its own rows; whoever reads merges them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from headrace.definitions.definition import (
    Definition,
    Sql,
    any_of,
    call,
    column,
    constants,
    floor_to,
    keep,
    millis,
    number,
    select,
    sql_of,
)
from headrace.definitions.partials import Partial, update_where
from headrace.operators.base import EpochStep, Operator, Store
from headrace.operators.counting import (
    GREATEST,
    counted_stream,
    note_counts,
    rows_to_count,
    watch_counts,
)
from headrace.operators.epoch import Epoch
from headrace.operators.rows.row_store import Retention, all_covered, least_horizon, releasing
from headrace.operators.write import RowFilter, Writing
from headrace.optimizer.safety import can_raise
from headrace.plan.coverage import is_partitioned_by
from headrace.plan.durations import format_duration
from headrace.plan.expressions import Call, Column, Expr
from headrace.plan.types import BIGINT, BOOLEAN, Field, Schema
from headrace.plan.windows import Hopping
from headrace.state.arrangement import span
from headrace.stats.load import SeenPanes

PANE = "__pane"
PANE_END = "__pane_end"
ROWS = "__rows"
_TAKEN = "__taken"


@dataclass(frozen=True)
class Panes:
    """How time is cut: into equal panes, by the window a row carries, or not at all."""

    length: int | None = None
    offset: int = 0
    given: bool = False

    @property
    def text(self) -> str:
        if self.length is not None:
            return f"panes of {format_duration(self.length)}"
        return "panes of the given windows" if self.given else "one pane"


@dataclass(frozen=True)
class WindowLateness:
    """When windows over these panes close, by which rows that missed one are counted."""

    windows: tuple[Hopping, ...]
    streams: frozenset[str]
    lag: int
    #: Which rows count, where the store has those of other filters too.
    condition: Expr | None = None

    @property
    def counter(self) -> str:
        words = f"{self.windows}:{sorted(self.streams)}:{self.lag}"
        if self.condition is not None:
            words += f":{self.condition}"
        return f"__late_{hashlib.sha256(words.encode()).hexdigest()[:8]}"

    @property
    def mark(self) -> str:
        """The column that holds the watermark of these windows."""
        return f"{self.counter}_mark"

    def missed(self, time: Sql, watermark: Sql) -> Sql:
        """Whether the earliest window that should hold a time (ms) is closed already."""
        checks = []
        for window in self.windows:
            before = exp.paren(time.copy() - number(window.length))
            first = floor_to(before, window.slide, window.offset)
            start = exp.paren(first) + number(window.slide)
            closed = start + number(window.length + self.lag) <= watermark.copy()
            checks.append(exp.paren(exp.and_(closed, start.copy() <= time.copy(), copy=False)))
        # No window is closed that holds a time at or above the watermark: the rest is for few.
        return exp.and_(time.copy() < watermark.copy(), exp.paren(any_of(checks)), copy=False)


@dataclass
class PaneStore(Store):
    """Partial aggregates per (grouping, pane).

    A store that is not ``active`` is of an earlier layout: it is read, but gets no new rows.
    """

    name: str
    source: Operator
    keys: tuple[Expr, ...]
    time: Column
    panes: Panes
    partials: dict[str, Partial] = field(default_factory=dict)
    retentions: list[Retention] = field(default_factory=list)
    closings: set[WindowLateness] = field(default_factory=set)
    family: str = ""
    #: Which of the grouping's layouts it is of, and from when it sees its input.
    generation: int = 0
    since: int | None = None
    active: bool = True
    #: Filters of the queries that use it; None stands for a query that wants every row.
    wanted: set[Expr | None] = field(default_factory=set)

    @property
    def identity(self) -> str:
        if not self.family:
            return self.name
        return self.family if self.since is None else f"{self.family}-{self.since}"

    @property
    def immediate(self) -> bool:
        return self.source.immediate

    def inputs(self) -> tuple[Operator, ...]:
        return (self.source,)

    @property
    def key_names(self) -> list[str]:
        return [f"__key{index}" for index in range(len(self.keys))]

    @property
    def group_names(self) -> list[str]:
        return [*self.key_names, PANE, *([PANE_END] if self.panes.given else [])]

    @property
    def schema(self) -> Schema:
        fields = [Field(n, k.type) for n, k in zip(self.key_names, self.keys, strict=True)]
        fields += [Field(name, BIGINT) for name in self.group_names[len(self.keys) :]]
        fields.append(Field(ROWS, BIGINT))
        return Schema((*fields, *(p.field for p in self.ordered())))

    def ordered(self) -> list[Partial]:
        return [self.partials[name] for name in sorted(self.partials)]

    def counts(self) -> str | None:
        if not self.active or self.panes.given or self._is_filtered:
            return None
        if any(partial.raises and partial.call is None for partial in self.partials.values()):
            return None
        return counted_stream(self.source)

    @property
    def _is_filtered(self) -> bool:
        """Whether no query wants all rows."""
        return bool(self.wanted) and None not in self.wanted

    def advance(self, epoch: Epoch) -> Writing[None]:
        if not self.active:
            return
        stream = self.counts()
        counting = stream is not None and epoch.counted_by.get(stream) == self.name
        rows = rows_to_count(self.source, epoch) if counting else self.source.new_rows(epoch)
        if rows is None:
            return
        if self.panes.length is None and not self.panes.given and not counting:
            # Above an outer join a time may be missing: such a row is in no window, nor in all.
            timed = column(self.time.name).is_(exp.Null()).not_()
            rows = Definition(select(rows.query, None, [timed]), rows.schema)
        if self._is_filtered:
            filters = sorted((f for f in self.wanted if f is not None), key=str)
            anyone = any_of([exp.paren(sql_of(f)) for f in filters])
            rows = Definition(select(rows.query, None, [anyone]), rows.schema)
        groups: dict[str, Sql] = {
            name: sql_of(self._of_timed_rows(key) if counting else key)
            for name, key in zip(self.key_names, self.keys, strict=True)
        }
        groups |= self._pane_columns()
        query, counted = self._aggregated(epoch, rows, groups, counting)
        marks = self._marks(epoch)
        if marks:
            query = select(query, None).select(call("inline", constants([marks])), copy=False)
        last = PANE_END if self.panes.given else PANE
        length = self.panes.length or 0
        watch = {
            _TAKEN: call("sum", column(ROWS)),
            **self._late_rows(epoch),
            **self._watched(epoch),
        }
        row_filter = RowFilter(exp.true(), self.schema.names) if marks or len(counted) > 1 else None
        if counting:
            # Rows without a time form groups of their own, which are counted and not written.
            missing = exp.Is(this=column(GREATEST), expression=exp.Null())
            without = exp.Case(ifs=[exp.If(this=missing, true=column(ROWS))])
            watch |= watch_counts(
                call("sum", column(ROWS)), call("sum", without), call("max", column(GREATEST))
            )
            row_filter = RowFilter(exp.Not(this=missing.copy()), self.schema.names)
        row_filter = self._kept(epoch, row_filter)
        seen = yield from epoch.append(
            self.name,
            Definition(query, self.schema),
            first=call("min", column(PANE)),
            last=call("max", column(last)) + number(max(length - 1, 0)),
            watch=watch,
            keep=row_filter,
            partial=True,
            split_by=self.split_by,
        )
        if counting and stream is not None:
            note_counts(epoch, stream, seen)
        self._note_load(epoch, int(seen.pop(_TAKEN) or 0), seen)
        for counter, rows_missed in seen.items():
            epoch.late[self.name, counter] = int(rows_missed or 0)

    def _aggregated(
        self, epoch: Epoch, rows: Definition, groups: dict[str, Sql], counting: bool
    ) -> tuple[exp.Select, dict[str, Sql]]:
        """The new rows' partial states, and the columns that are only there to be counted."""
        # Group by position: a key expression is then written once.
        positions = [exp.Literal.number(i + 1) for i in range(len(groups))]
        sums = {
            p.name: update_where(p, self._has_time) if counting and p.raises else p.update
            for p in self.ordered()
        }
        counted: dict[str, Sql] = {ROWS: exp.Count(this=exp.Star()), **self._late_by_row(epoch)}
        if counting:
            counted[GREATEST] = call("max", millis(column(self.time.name)))
        return select(rows.query, {**groups, **counted, **sums}, group_by=positions), counted

    @property
    def _has_time(self) -> Expr:
        return Call("not", (Call("isnull", (self.time,), BOOLEAN),), BOOLEAN)

    def _of_timed_rows(self, key: Expr) -> Expr:
        """A key of which nothing is computed for rows without a time, which no query sees."""
        return Call("case", (self._has_time, key), key.type) if can_raise(key) else key

    def _watched(self, epoch: Epoch) -> dict[str, Sql]:
        """What else a kind of panes wants to see of its rows."""
        return {}

    def _kept(self, epoch: Epoch, row_filter: RowFilter | None) -> RowFilter | None:
        """Which of the rows are written, if not all."""
        return row_filter

    def _note_load(self, epoch: Epoch, rows: int, seen: dict[str, Any]) -> None:
        """Tell what came in and how many groups it made: layouts are chosen by that.

        What else was watched for its sake is taken out of what was seen.
        """
        written = [f for f in epoch.new_files(self.name) if f.first is not None]
        if self.family and self.panes.length and written:
            first, last = span(written) or (0, 0)
            groups = sum(file.rows for file in written)
            epoch.note_panes(
                self.family, SeenPanes(self.panes.length, rows, groups, last - first + 1)
            )

    def _marks(self, epoch: Epoch) -> dict[str, int]:
        """The watermarks by which panes are late, as columns."""
        marks = {
            c.mark: epoch.before(c.streams) for c in self.closings if self._pane_is_wholly_late(c)
        }
        return {name: mark for name, mark in marks.items() if mark is not None}

    def _late_rows(self, epoch: Epoch) -> dict[str, Sql]:
        """Rows that came too late for at least one window."""
        counters: dict[str, Sql] = {}
        for closing in self.closings:
            watermark = epoch.before(closing.streams)
            if watermark is not None:
                late: Sql = column(closing.counter)
                if self._pane_is_wholly_late(closing):
                    missed = closing.missed(column(PANE), column(closing.mark))
                    late = exp.Case(ifs=[exp.If(this=missed, true=column(ROWS))])
                counters[closing.counter] = call("sum", late)
        return counters

    def _late_by_row(self, epoch: Epoch) -> dict[str, Sql]:
        """The same, counted row by row where a pane may be late in part only."""
        counters: dict[str, Sql] = {}
        for closing in self.closings:
            watermark = epoch.before(closing.streams)
            if watermark is not None and not self._pane_is_wholly_late(closing):
                missed = closing.missed(millis(column(self.time.name)), number(watermark))
                if closing.condition is not None:
                    missed = exp.and_(missed, exp.paren(sql_of(closing.condition)), copy=False)
                counters[closing.counter] = call("count_if", missed)
        return counters

    def _pane_is_wholly_late(self, closing: WindowLateness) -> bool:
        """Whether a pane is late for these windows as a whole."""
        length = self.panes.length
        if length is None or closing.condition is not None:
            return False
        pane = Hopping(length, length, self.panes.offset)
        return all(is_partitioned_by(window, pane) for window in closing.windows)

    def _pane_columns(self) -> dict[str, Sql]:
        time: Sql = column(self.time.name)
        if self.panes.given:
            return {
                PANE: millis(exp.Dot(this=time, expression=exp.to_identifier("start"))),
                PANE_END: millis(exp.Dot(this=time.copy(), expression=exp.to_identifier("end"))),
            }
        if self.panes.length is None:
            # One pane for all rows that have a time.
            timeless = exp.Is(this=time, expression=exp.Null())
            return {PANE: exp.Case(ifs=[exp.If(this=timeless, true=exp.Null())], default=number(0))}
        return {PANE: floor_to(millis(time), self.panes.length, self.panes.offset)}

    @property
    def split_by(self) -> tuple[str, ...]:
        return tuple(self.key_names)

    def late_counters(self) -> list[str]:
        return [closing.counter for closing in self.closings]

    def horizon(self, epoch: Epoch) -> int | None:
        return least_horizon(self.retentions, epoch)

    def serves(self, needed: Store) -> bool:
        assert isinstance(needed, PaneStore)
        return super().serves(needed) and all_covered(needed.retentions, self.retentions)

    def released_by(self) -> frozenset[frozenset[str]]:
        return releasing(self.retentions)

    @property
    def endless(self) -> bool:
        return any(retention.keep is None for retention in self.retentions)

    def compacted(self, epoch: Epoch, rows: Definition) -> Definition:
        """Merge the partials of each group and pane; drop the panes that nobody needs."""
        where: list[Sql] = []
        horizon = self.horizon(epoch)
        if horizon is not None:
            end = (
                column(PANE_END)
                if self.panes.given
                else column(PANE) + number(self.panes.length or 0)
            )
            where.append(end > number(horizon))
        query = select(
            rows.query,
            {**keep(self.group_names), **self.merged()},
            where,
            [column(name) for name in self.group_names],
        )
        return Definition(query, self.schema)

    def merged(self) -> dict[str, Sql]:
        """The merge of each stored column, over a group of stored rows."""
        sums: dict[str, Sql] = {
            ROWS: exp.Cast(this=call("sum", column(ROWS)), to=exp.DataType.build("bigint"))
        }
        return sums | {p.name: p.merge(column(p.name)) for p in self.ordered()}

    def step(self) -> EpochStep:
        keys = ", ".join(map(str, self.keys)) or "(all rows)"
        return EpochStep(
            f"append partial aggregates to {self.name}",
            (
                f"group by {keys}, {self.panes.text}",
                f"partials: {len(self.partials)}",
                *([f"filters of {len(self.wanted)} queries"] if len(self.wanted) > 1 else []),
            ),
        )
