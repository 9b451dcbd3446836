"""Arrangements of rows: what joins, holistic aggregates and trailing windows remember.

One store per stream serves every query: it holds the union of the columns they need, and the rows
that any of them wants. A row carries a flag per *lateness rule*: whether it was on time for the
operators that share a watermark, since a row may be late for one query and welcome to another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlglot import exp

from headrace.definitions.definition import (
    Definition,
    Sql,
    any_of,
    call,
    column,
    keep,
    millis,
    number,
    select,
    sql_of,
)
from headrace.definitions.lateness import Lateness
from headrace.operators.base import EpochStep, Operator, Store
from headrace.operators.counting import (
    counted_stream,
    note_counts,
    rows_to_count,
    watch_counts,
)
from headrace.operators.epoch import Epoch
from headrace.operators.inputs import FilesInput
from headrace.operators.stateless import RowByRow, apply
from headrace.operators.write import RowFilter, Write, Writing
from headrace.plan.expressions import Column, Expr, conjunction
from headrace.plan.nodes import Filter, Join, Project
from headrace.plan.types import BIGINT, BOOLEAN, INT, STRING, WINDOW, Field, Schema
from headrace.planner.statistics import least_frequent
from headrace.state.arrangement import span

#: So many filters over one store are counted.
MOST_FILTERS = 64
_VALUE, _ROWS = "__value", "__rows"
_COUNTS = Schema.of(((_VALUE, STRING), (_ROWS, BIGINT)))


@dataclass(frozen=True)
class Retention:
    """How far below the watermark of these streams rows are needed; None is for ever.

    Rows of sessions are needed for as long as the session is open, however long it gets:
    ``sessions`` names the arrangement that knows the first instant of each.
    """

    streams: frozenset[str]
    keep: int | None
    sessions: str | None = None

    def covers(self, other: Retention) -> bool:
        """Whether everything that the other asks for is kept for this one's sake."""
        longer = self.keep is None or (other.keep is not None and self.keep >= other.keep)
        sessions = other.sessions is None or self.sessions == other.sessions
        # The watermark of more streams may be ahead of that of fewer, where one of them is idle.
        return longer and sessions and self.streams == other.streams

    def horizon(self, epoch: Epoch) -> int | None:
        watermark = epoch.after(self.streams)
        if watermark is None or self.keep is None:
            return None
        horizon = watermark - self.keep
        if self.sessions is not None:
            open_span = span(epoch.state.arrangement(self.sessions).files)
            if open_span is not None:
                horizon = min(horizon, open_span[0])
        return horizon


def least_horizon(retentions: list[Retention], epoch: Epoch) -> int | None:
    """The horizon that satisfies everybody; None keeps everything."""
    horizons = [retention.horizon(epoch) for retention in retentions]
    bounded = [horizon for horizon in horizons if horizon is not None]
    return min(bounded) if bounded and len(bounded) == len(horizons) else None


def all_covered(needed: list[Retention], present: list[Retention]) -> bool:
    return all(any(one.covers(other) for one in present) for other in needed)


def releasing(retentions: list[Retention]) -> frozenset[frozenset[str]]:
    """The sets of clocks by whose watermarks somebody lets rows go."""
    return frozenset(retention.streams for retention in retentions if retention.keep is not None)


@dataclass
class RowStore(Store):
    """The rows of one operator (mostly a source), kept for as long as somebody needs them."""

    name: str
    source: Operator
    time: str
    columns: set[str] = field(default_factory=set)
    wanted: list[Expr | None] = field(default_factory=list)
    lateness: set[Lateness] = field(default_factory=set)
    retentions: list[Retention] = field(default_factory=list)
    #: Columns whose different values are counted now and then, for the sake of join orders.
    counted: set[str] = field(default_factory=set)
    #: Columns by which operators would have the rows told apart, the first wish first.
    split_wishes: list[str] = field(default_factory=list)

    @property
    def immediate(self) -> bool:
        return self.source.immediate

    def inputs(self) -> tuple[Operator, ...]:
        return (self.source,)

    @property
    def schema(self) -> Schema:
        fields = [f for f in self.source.node.schema if f.name in self.columns]
        flags = [Field(rule.flag, BOOLEAN) for rule in self._rules()]
        return Schema((*fields, *flags))

    def moments(self) -> tuple[Sql, Sql]:
        """The instants between which a row counts: its time, or the window that it carries."""
        time = column(self.time)
        if self.source.node.schema[self.time].type != WINDOW:
            return time, time.copy()
        start, end = (
            exp.Dot(this=column(self.time), expression=exp.to_identifier(part))
            for part in ("start", "end")
        )
        return start, end

    def _rules(self) -> list[Lateness]:
        return sorted(self.lateness, key=lambda rule: rule.flag)

    def counts(self) -> str | None:
        return counted_stream(self.source) if self._predicate() is None else None

    def _predicate(self) -> Sql | None:
        """What somebody wants of the rows; None where somebody wants them all."""
        wanted = [predicate for predicate in self.wanted if predicate is not None]
        if not wanted or len(wanted) < len(self.wanted):
            return None
        return any_of(sql_of(predicate) for predicate in dict.fromkeys(wanted))

    def advance(self, epoch: Epoch) -> Writing[None]:
        stream = self.counts()
        counting = stream is not None and epoch.counted_by.get(stream) == self.name
        rows = rows_to_count(self.source, epoch) if counting else self.source.new_rows(epoch)
        if rows is None:
            return
        begin, end = self.moments()
        flags = {
            rule.flag: rule.condition(begin, epoch.before(rule.streams)) for rule in self._rules()
        }
        names = [f.name for f in rows.schema if f.name in self.columns]
        predicate = self._predicate()
        flagged = select(
            rows.query, {**keep(names), **flags}, [] if predicate is None else [predicate]
        )
        watch: dict[str, Sql] = {
            rule.flag: call("count_if", exp.Not(this=column(rule.flag))) for rule in self._rules()
        }
        counted = sorted(self.counted) if epoch.counts_keys else []
        watch |= {f"keys {name}": call("approx_count_distinct", column(name)) for name in counted}
        filters = self.counted_filters() if epoch.counts_keys else []
        watch |= {f"filter {i}": call("count_if", sql_of(p)) for i, p in enumerate(filters)}
        last = call("max", millis(end))
        row_filter = None
        if counting:
            missing = exp.Is(this=column(self.time), expression=exp.Null())
            watch |= watch_counts(
                exp.Count(this=exp.Star()), call("count_if", missing), last.copy()
            )
            row_filter = RowFilter(exp.Not(this=missing.copy()), self.schema.names)
        seen = yield from epoch.append(
            self.name,
            Definition(flagged, self.schema),
            first=call("min", millis(begin)),
            last=last,
            watch=watch,
            keep=row_filter,
            split_by=self.split_by,
        )
        for name in counted:
            epoch.statistics.note_keys(self.name, name, float(seen[f"keys {name}"] or 0))
            yield from self._note_frequent(epoch, name)
        if counting and stream is not None:
            note_counts(epoch, stream, seen)
        rows_stored = sum(file.rows for file in epoch.new_files(self.name))
        for place, filtered in enumerate(filters):
            passed = int(seen[f"filter {place}"] or 0)
            epoch.statistics.note_share(self.name, str(filtered), passed, rows_stored)
        for rule in self._rules():
            epoch.late[self.name, rule.flag] = int(seen[rule.flag] or 0)

    def counted_filters(self) -> list[Expr]:
        """Filters of joins that read some of the rows, where others want more: what these leave is
        counted like keys, for the sake of join orders."""
        filters = {predicate: None for predicate in self.wanted if predicate is not None}
        shared = len(filters) > 1 or None in self.wanted
        return [*filters][:MOST_FILTERS] if shared and self.counted else []

    def _note_frequent(self, epoch: Epoch, name: str) -> Writing[None]:
        """Which values of a key many of the new rows have."""
        rows = sum(file.rows for file in epoch.new_files(self.name))
        stored = epoch.new(self.name, self.schema)
        if stored is None or self.schema[name].type not in (STRING, BIGINT, INT):
            return
        missing = exp.Is(this=column(name), expression=exp.Null())
        value = exp.Cast(this=column(name), to=exp.DataType.build("string"))
        counts = select(
            stored.query,
            {_VALUE: value, _ROWS: exp.Count(this=exp.Star())},
            [exp.Not(this=missing)],
            [column(name)],
        )
        many = select(counts, None, [column(_ROWS) >= number(least_frequent(rows))])
        written = yield Write(f"frequent {name} of {self.name}", many, _COUNTS, partial=True)
        if written.table is not None:
            counted = written.table.to_pydict()
            epoch.statistics.note_frequent(
                self.name, name, zip(counted[_VALUE], counted[_ROWS], strict=True), rows
            )

    @property
    def split_by(self) -> tuple[str, ...]:
        return tuple(name for name in self.split_wishes if name in self.columns)

    def wish_split(self, names: Iterable[str]) -> None:
        """Note by which columns an operator would have the rows told apart."""
        self.split_wishes += [name for name in names if name not in self.split_wishes]

    def late_counters(self) -> list[str]:
        return [rule.flag for rule in self._rules()]

    def horizon(self, epoch: Epoch) -> int | None:
        return least_horizon(self.retentions, epoch)

    def serves(self, needed: Store) -> bool:
        assert isinstance(needed, RowStore)
        return super().serves(needed) and all_covered(needed.retentions, self.retentions)

    def released_by(self) -> frozenset[frozenset[str]]:
        return releasing(self.retentions)

    @property
    def endless(self) -> bool:
        return any(retention.keep is None for retention in self.retentions)

    def compacted(self, epoch: Epoch, rows: Definition) -> Definition:
        horizon = self.horizon(epoch)
        if horizon is None:
            return rows
        fresh = millis(self.moments()[1]) >= number(horizon)
        return Definition(select(rows.query, None, [fresh]), rows.schema)

    def step(self) -> EpochStep:
        lifetime = "for ever"
        if self.retentions and all(r.keep is not None for r in self.retentions):
            longest = max(r.keep for r in self.retentions if r.keep is not None)
            lifetime = f"until {longest} ms below the watermark"
        return EpochStep(
            f"append rows to {self.name}",
            (f"columns: {', '.join(sorted(self.columns))}", f"kept {lifetime}"),
        )


@dataclass(frozen=True)
class StoredRows:
    """How one operator reads a row store: its own columns, filters and lateness over shared rows.

    ``chain`` are the row-by-row nodes between the stored rows and what the operator reads, lowest
    first, and ``time`` is the store's time column as the operator sees it. ``starts_at`` hides
    rows of a time before the operator's query joined.
    """

    store: RowStore
    base: Schema
    chain: tuple[Filter | Project | Join, ...]
    time: str
    lateness: Lateness | None
    starts_at: int | None

    @property
    def schema(self) -> Schema:
        return self.chain[-1].schema if self.chain else self.base

    @property
    def wanted(self) -> Expr | None:
        """The filters directly above the stored rows: what of these the operator wants."""
        return lowest_filter(self.chain)

    def share(self, epoch: Epoch) -> float:
        """The share of the stored rows that the operator reads, as far as it is known."""
        wanted = self.wanted
        return 1.0 if wanted is None else epoch.statistics.share_of(self.store.name, str(wanted))

    def stored_name(self, name: str) -> str | None:
        """The store's column that the operator sees under a name, if it is one unchanged."""
        for node in reversed(self.chain):
            if isinstance(node, Project):
                expr = next(c.expr for c in node.columns if c.name == name)
                if not isinstance(expr, Column):
                    return None
                name = expr.name
            elif isinstance(node, Join):
                left = bool(node.left.streams())
                alias = node.left_alias if left else node.right_alias
                name = name.removeprefix(f"{alias}.") if alias else name
                if name not in (node.left if left else node.right).schema:
                    return None
        return name

    def files(self, epoch: Epoch) -> tuple[FilesInput, FilesInput]:
        """The stored rows of earlier epochs and of this one, as they are."""
        stored = epoch.state.arrangement(self.store.name)
        schema = self._stored_schema()
        old, new = (
            FilesInput([file for file in files if file.rows], schema)
            for files in (stored.before(epoch.number), stored.of(epoch.number))
        )
        return old, new

    def reading(self, stored: exp.Query) -> Definition:
        """What the operator makes of stored rows."""
        rows = self._finish(Definition(stored, self._stored_schema()), None, None)
        assert rows is not None
        return rows

    def new(self, epoch: Epoch) -> Definition | None:
        return self._finish(epoch.new(self.store.name, self._stored_schema()), None, None)

    def old(
        self, epoch: Epoch, first: int | None = None, last: int | None = None
    ) -> Definition | None:
        rows = epoch.old(self.store.name, self._stored_schema(), first, last)
        return self._finish(rows, first, last)

    def new_span(self, epoch: Epoch) -> tuple[int, int] | None:
        return span(epoch.new_files(self.store.name))

    def _stored_schema(self) -> Schema:
        flags = (Field(self.lateness.flag, BOOLEAN),) if self.lateness else ()
        time = (
            ()
            if self.store.time in self.base
            else (self.store.source.node.schema[self.store.time],)
        )
        return Schema((*self.base.fields, *time, *flags))

    def _finish(
        self, rows: Definition | None, first: int | None, last: int | None
    ) -> Definition | None:
        if rows is None:
            return None
        time = self.store.moments()[0]
        where: list[Sql] = []
        # Compared as timestamps, so that Parquet can skip what lies outside.
        if first is not None:
            where.append(time >= call("timestamp_millis", number(first)))
        if last is not None:
            where.append(time < call("timestamp_millis", number(last + 1)))
        if self.starts_at is not None:
            where.append(time >= call("timestamp_millis", number(self.starts_at)))
        if self.lateness is not None:
            where.append(column(self.lateness.flag))
        result = Definition(select(rows.query, keep(self.base.names), where), self.base)
        for node in self.chain:
            result = apply(node, result)
        return result


def lowest_filter(chain: tuple[Filter | Project | Join, ...]) -> Expr | None:
    """The filters directly above a source: what of its rows a query wants stored."""
    predicates = []
    for node in chain:
        if not isinstance(node, Filter):
            break
        predicates.append(node.predicate)
    return conjunction(predicates)


def unchained(operator: Operator) -> tuple[Operator, tuple[Filter | Project | Join, ...]]:
    """Peel the row-by-row operators off, down to what has to be stored."""
    chain: list[Filter | Project | Join] = []
    while isinstance(operator, RowByRow):
        chain.append(operator.node)
        operator = operator.inputs[0]
    return operator, tuple(reversed(chain))
