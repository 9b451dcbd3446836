"""Arrangements of sessions: per group the sessions that are open, with partial aggregates.

A new row may lengthen a session or join two, so sessions cannot only be appended to. Each epoch
writes the open sessions of the groups it *touched* anew; of a group's entries only those of its
last epoch count. A stale entry can never look open when the newer one is closed, because sessions
only grow: files may be dropped as soon as all sessions in them are closed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from headrace.definitions.definition import (
    Definition,
    Sql,
    call,
    column,
    keep,
    micros,
    named,
    number,
    select,
    sql_of,
    table,
    union_all,
)
from headrace.definitions.lateness import Lateness
from headrace.definitions.partials import Partial
from headrace.operators.base import EpochStep, Operator, Store
from headrace.operators.epoch import Epoch
from headrace.operators.write import Inner, Write, Writing
from headrace.plan.durations import format_duration
from headrace.plan.expressions import Column, Expr
from headrace.plan.types import BIGINT, Field, Schema

FIRST = "__first"
LAST = "__last"
EPOCH = "__epoch"
SESSION = "__session"
TOUCHED = "__touched"
LATE = "__late"


@dataclass
class SessionStore(Store):
    """The open sessions of every group; times are microseconds, as precise as the rows."""

    name: str
    source: Operator
    keys: tuple[Expr, ...]
    time: Column
    gap: int
    lateness: Lateness
    lag: int
    starts_at: int | None
    partials: dict[str, Partial] = field(default_factory=dict)
    #: Whether operators above go by the times that its open sessions hold back.
    holds_back: bool = False

    @property
    def immediate(self) -> bool:
        return self.source.immediate

    def inputs(self) -> tuple[Operator, ...]:
        return (self.source,)

    @property
    def streams(self) -> frozenset[str]:
        return self.lateness.streams

    @property
    def key_names(self) -> list[str]:
        return [f"__key{index}" for index in range(len(self.keys))]

    @property
    def schema(self) -> Schema:
        fields = [Field(n, k.type) for n, k in zip(self.key_names, self.keys, strict=True)]
        fields += [Field(name, BIGINT) for name in (FIRST, LAST, EPOCH)]
        return Schema((*fields, *(p.field for p in self._ordered())))

    def _ordered(self) -> list[Partial]:
        return [self.partials[name] for name in sorted(self.partials)]

    def advance(self, epoch: Epoch) -> Writing[None]:
        rows = self.source.new_rows(epoch)
        if rows is None:
            return
        on_time = self._on_time(epoch)
        late = call("count_if", exp.Not(this=exp.paren(on_time.copy())))
        inner = Inner(epoch.inputs.new_name(), rows.query, {LATE: late})
        fresh = self._sessions_of_new_rows(table(inner.name), on_time)
        parts: list[exp.Query] = [_marked(fresh, True)]
        stored = epoch.old(self.name, self.schema)
        if stored is not None:
            opened = self._open(stored.query, self.closed_at(epoch.before(self.streams)))
            parts.append(_marked(select(opened, keep(self._names())), False))
        together = self._sessions_of_sessions(union_all(parts))
        number_of_epoch = {EPOCH: number(epoch.number)}
        ordered = {name: number_of_epoch.get(name, column(name)) for name in self.schema.names}
        touched = select(together, ordered, [column(TOUCHED)])
        seen = yield from epoch.append(
            self.name,
            Definition(touched, self.schema),
            first=_whole_millis(call("min", column(FIRST))),
            last=_whole_millis(call("max", column(LAST))) + number(self.gap + 1),
            inner=inner,
            split_by=self.split_by,
        )
        epoch.late[self.name, LATE] = int(seen[LATE] or 0)

    def _on_time(self, epoch: Epoch) -> Sql:
        return self.lateness.condition(column(self.time.name), epoch.before(self.streams))

    def closed_at(self, watermark: int | None) -> int | None:
        """Sessions whose last row is at or below this time (microseconds) are closed."""
        return None if watermark is None else (watermark - self.lag - self.gap) * 1_000

    def _names(self) -> list[str]:
        return [name for name in self.schema.names if name != EPOCH]

    def _sessions_of_new_rows(self, rows: exp.Query, on_time: Sql) -> exp.Query:
        """The sessions that this epoch's rows form among themselves."""
        time = micros(column(self.time.name))
        where: list[Sql] = [on_time]
        if self.starts_at is not None:
            where.append(time.copy() >= number(self.starts_at * 1_000))
        groups = {n: sql_of(k) for n, k in zip(self.key_names, self.keys, strict=True)}
        extra = [
            named(value, name) for name, value in {**groups, FIRST: time, LAST: time.copy()}.items()
        ]
        placed = select(rows, None, where).select(*extra, copy=False)
        numbered = self._number(placed)
        sums = {p.name: p.update for p in self._ordered()}
        return self._group(numbered, sums)

    def _sessions_of_sessions(self, sessions: exp.Query) -> exp.Query:
        """Sessions that overlap or lie within the gap become one."""
        sums = {p.name: p.merge(column(p.name)) for p in self._ordered()}
        grouped = self._group(
            self._number(sessions), {**sums, TOUCHED: call("max", column(TOUCHED))}
        )
        # A group is written whole, with its sessions that got no row: its last entry must tell all.
        touched = exp.Window(
            this=call("max", column(TOUCHED)), partition_by=[column(k) for k in self.key_names]
        )
        columns = {**keep(self._names()), TOUCHED: touched}
        return select(grouped, columns)

    def _number(self, entries: exp.Query) -> exp.Query:
        """Number the sessions of each group: a pause longer than the gap begins a new one."""
        by = [column(name) for name in self.key_names]
        order = exp.Order(
            expressions=[exp.Ordered(this=column(FIRST)), exp.Ordered(this=column(LAST))]
        )
        reached = exp.Window(
            this=call("max", column(LAST)),
            partition_by=[b.copy() for b in by],
            order=order.copy(),
            spec=exp.WindowSpec(
                kind="ROWS",
                start="UNBOUNDED",
                start_side="PRECEDING",
                end=exp.Literal.number(1),
                end_side="PRECEDING",
            ),
        )
        begins = exp.Case(
            ifs=[
                exp.If(
                    this=column(FIRST) > column("__reached") + number(self.gap * 1_000),
                    true=number(1),
                )
            ],
            default=number(0),
        )
        with_reach = select(entries, None).select(named(reached, "__reached"), copy=False)
        flagged = select(with_reach, None).select(named(begins, "__begins"), copy=False)
        count = exp.Window(
            this=call("sum", column("__begins")),
            partition_by=[b.copy() for b in by],
            order=order,
            # By value: entries of the same times may come in another order than above.
            spec=exp.WindowSpec(
                kind="RANGE", start="UNBOUNDED", start_side="PRECEDING", end="CURRENT ROW"
            ),
        )
        return select(flagged, None).select(named(count, SESSION), copy=False)

    def _group(self, numbered: exp.Query, sums: dict[str, Sql]) -> exp.Query:
        columns = {
            **keep(self.key_names),
            FIRST: call("min", column(FIRST)),
            LAST: call("max", column(LAST)),
            **sums,
        }
        by = [column(name) for name in (*self.key_names, SESSION)]
        return select(numbered, columns, (), by)

    def closed(self, epoch: Epoch) -> exp.Query | None:
        """The sessions that closed in this epoch."""
        before = self.closed_at(epoch.before(self.streams))
        after = self.closed_at(epoch.after(self.streams))
        if after is None or before == after:
            return None
        current = self.current(epoch)
        if current is None:
            return None
        where: list[Sql] = [column(LAST) <= number(after)]
        if before is not None:
            where.append(column(LAST) > number(before))
        if self.starts_at is not None:
            # A session so near to the beginning of what is visible may have begun before it.
            where.append(column(FIRST) >= number((self.starts_at + self.gap) * 1_000))
        return select(current, None, where)

    def current(self, epoch: Epoch) -> exp.Query | None:
        """Every group's newest entries, this epoch's included; closed sessions may be among."""
        parts = [
            rows.query
            for rows in (epoch.old(self.name, self.schema), epoch.new(self.name, self.schema))
            if rows is not None
        ]
        return self._newest(union_all(parts)) if parts else None

    def _newest(self, stored: exp.Query) -> exp.Query:
        newest = exp.Window(
            this=call("max", column(EPOCH)), partition_by=[column(k) for k in self.key_names]
        )
        ranked = select(stored, None).select(named(newest, "__newest"), copy=False)
        return select(ranked, keep(self.schema.names), [column(EPOCH).eq(column("__newest"))])

    def _open(self, stored: exp.Query, closed: int | None) -> exp.Query:
        return self._open_among(self._newest(stored), closed)

    def _open_among(self, newest: exp.Query, closed: int | None) -> exp.Query:
        return newest if closed is None else select(newest, None, [column(LAST) > number(closed)])

    def frontier(self, epoch: Epoch) -> Writing[int | None]:
        """No row of a session that is still to come out is older than this.

        Known from the sessions themselves and not from their files: a file that holds one session
        of now and one of long ago would hold back everything above.
        """
        horizon = self.horizon(epoch)
        current = self.current(epoch)
        if horizon is None or current is None:
            return horizon
        opened = self._open_among(current, self.closed_at(epoch.after(self.streams)))
        least = {"least": call("min", column(FIRST))}
        written = yield Write(
            f"frontier of {self.name}", opened, self.schema, watch=least, only_seen=True
        )
        first = written.seen["least"]
        return horizon if first is None else min(horizon, first // 1_000)

    @property
    def split_by(self) -> tuple[str, ...]:
        return tuple(self.key_names)

    def late_counters(self) -> list[str]:
        return [LATE]

    def horizon(self, epoch: Epoch) -> int | None:
        watermark = epoch.after(self.streams)
        return None if watermark is None else watermark - self.lag

    def released_by(self) -> frozenset[frozenset[str]]:
        return frozenset({self.streams})

    def compacted(self, epoch: Epoch, rows: Definition) -> Definition:
        closed = self.closed_at(epoch.after(self.streams))
        return Definition(self._open(rows.query, closed), self.schema)

    def step(self) -> EpochStep:
        keys = ", ".join(map(str, self.keys)) or "(all rows)"
        return EpochStep(
            f"update open sessions in {self.name}",
            (f"group by {keys}, gap {format_duration(self.gap)}",),
        )


def _marked(rows: exp.Query, touched: bool) -> exp.Query:
    return select(rows, None).select(named(exp.convert(touched), TOUCHED), copy=False)


def _whole_millis(microseconds: Sql) -> Sql:
    return exp.IntDiv(this=microseconds, expression=number(1_000))
