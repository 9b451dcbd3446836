"""Joins of session windows: rows of one session of their key, over both inputs together.

A session is not known before it closes, so its pairs come out then: the closed sessions of the
session store are joined with the stored rows of both sides that lie in them.
"""

from __future__ import annotations

from sqlglot import exp

from headrace.definitions.definition import (
    Definition,
    Sql,
    all_of,
    any_of,
    call,
    column,
    keep,
    micros,
    named,
    null_columns,
    number,
    qualify,
    select,
    sql_of,
    struct,
    union_all,
)
from headrace.definitions.join_shape import key_condition
from headrace.operators.base import EpochStep, Operator
from headrace.operators.epoch import Epoch
from headrace.operators.rows.delta_join import JoinInput
from headrace.operators.sessions.session_store import FIRST, LAST, SessionStore
from headrace.plan.expressions import Column, Expr
from headrace.plan.nodes import WINDOW_COLUMN, Join, JoinKind, SameSession
from headrace.plan.types import TIMESTAMP, Schema

_TIME = "__time"


class SessionMembers(Operator):
    """Keys and times of the new rows of both sides: what sessions are made of.

    Rows with a NULL key match nothing and are members of no session.
    """

    def __init__(self, node: Join, time: SameSession, left: Operator, right: Operator) -> None:
        self.node: Join = node
        self._sides = ((left, node.left_schema, time.left), (right, node.right_schema, time.right))
        self.immediate = left.immediate and right.immediate
        self.keys: tuple[Expr, ...] = tuple(
            Column(f"__member{i}", left_key.type) for i, (left_key, _) in enumerate(node.keys)
        )
        self.time = Column(_TIME, TIMESTAMP)

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return tuple(side for side, _, _ in self._sides)

    def delta(self, epoch: Epoch) -> Definition | None:
        parts: list[exp.Query] = []
        for position, (side, schema, time) in enumerate(self._sides):
            rows = side.new_rows(epoch)
            if rows is None:
                continue
            columns: dict[str, Sql] = {
                f"__member{i}": sql_of(pair[position]) for i, pair in enumerate(self.node.keys)
            }
            columns[_TIME] = column(time.name)
            members = select(qualify(rows, schema), columns)
            present: list[Sql] = [
                exp.Not(this=exp.Is(this=column(f"__member{i}"), expression=exp.Null()))
                for i in range(len(self.node.keys))
            ]
            parts.append(select(members, None, present))
        fields = [(key.name, key.type) for key in self.keys if isinstance(key, Column)]
        schema = Schema.of([*fields, (_TIME, TIMESTAMP)])
        return Definition(union_all(parts), schema) if parts else None

    def steps(self) -> tuple[EpochStep, ...]:
        return (EpochStep("take keys and times of both sides"),)


class SessionJoin(Operator):
    """The pairs of closed sessions, and for outer joins the rows that were alone in theirs."""

    def __init__(self, node: Join, store: SessionStore, left: JoinInput, right: JoinInput) -> None:
        self.node: Join = node
        self._store = store
        self._sides = (left, right)

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self._store.inputs()[0].inputs

    def delta(self, epoch: Epoch) -> Definition | None:
        before = self._store.closed_at(epoch.before(self._store.streams))
        after = self._store.closed_at(epoch.after(self._store.streams))
        if after is None or before == after:
            return None
        parts: list[exp.Query] = []
        sessions = self._store.closed(epoch)
        if sessions is not None:
            parts.append(self._pairs(epoch, sessions))
        for index, is_kept in enumerate((self.node.kind.keeps_left, self.node.kind.keeps_right)):
            alone = self._without_key(epoch, index, before, after) if is_kept else None
            if alone is not None:
                parts.append(alone)
        return Definition(union_all(parts), self.node.schema) if parts else None

    def _pairs(self, epoch: Epoch, sessions: exp.Query) -> exp.Query:
        left, right = (self._in_sessions(epoch, index, sessions) for index in range(2))
        on: list[Sql] = [exp.EQ(this=column("__session0"), expression=column("__session1"))]
        on += [key_condition(a, b) for a, b in self.node.keys]
        if self.node.residual is not None:
            on.append(sql_of(self.node.residual))
        kinds = {JoinKind.INNER: "inner", JoinKind.LEFT: "left", JoinKind.RIGHT: "right"}
        joined = (
            exp.Select(expressions=[exp.Star()])
            .from_(left.subquery("l", copy=False), copy=False)
            .join(
                right.subquery("r", copy=False),
                on=all_of(on),
                join_type=kinds.get(self.node.kind, "full"),
                copy=False,
            )
        )
        if not self.node.emits_window:
            return select(joined, keep(self.node.schema.names))
        end = column("__last") + number(self._store.gap * 1_000)
        window = struct(
            start=call("timestamp_micros", column("__session0")), end=call("timestamp_micros", end)
        )
        names = [name for name in self.node.schema.names if name != WINDOW_COLUMN]
        return select(joined, {**keep(names), WINDOW_COLUMN: window})

    def _in_sessions(self, epoch: Epoch, index: int, sessions: exp.Query) -> exp.Select:
        """The rows of one side that lie in a closed session, with the session's first instant."""
        side, name = self._sides[index], f"__session{index}"
        # The session's last instant is needed once, for its window.
        extra = {name: FIRST} if index else {name: FIRST, "__last": LAST}
        rows = self._stored(epoch, index)
        if rows is None:
            empty = {**null_columns(side.schema), **{n: number(0) for n in extra}}
            return exp.Select(expressions=[named(value, n) for n, value in empty.items()]).where(
                exp.false()
            )
        at = micros(column(side.time))
        on: list[Sql] = [
            exp.EQ(this=sql_of(pair[index]), expression=column(key))
            for pair, key in zip(self.node.keys, self._store.key_names, strict=True)
        ]
        on += [at >= column(FIRST), at.copy() <= column(LAST)]
        wanted = select(sessions.copy(), keep([*self._store.key_names, FIRST, LAST]))
        matched = (
            exp.Select(expressions=[exp.Star()])
            .from_(rows.subquery("x", copy=False), copy=False)
            .join(wanted.subquery("s", copy=False), on=all_of(on), join_type="inner", copy=False)
        )
        return select(
            matched, {**keep(side.schema.names), **{n: column(c) for n, c in extra.items()}}
        )

    def _stored(self, epoch: Epoch, index: int) -> exp.Select | None:
        side = self._sides[index]
        sides = [side.rows.old(epoch), side.rows.new(epoch)]
        parts: list[exp.Query] = [qualify(rows, side.schema) for rows in sides if rows is not None]
        return select(union_all(parts), None) if parts else None

    def _without_key(
        self, epoch: Epoch, index: int, before: int | None, after: int
    ) -> exp.Query | None:
        """Rows with a NULL key, each a session of its own."""
        side, other = self._sides[index], self._sides[1 - index]
        rows = self._stored(epoch, index)
        if rows is None or not self.node.keys:
            return None
        at = micros(column(side.time))
        missing = any_of(
            exp.Is(this=exp.paren(sql_of(pair[index])), expression=exp.Null())
            for pair in self.node.keys
        )
        where: list[Sql] = [exp.paren(missing), at <= number(after)]
        if before is not None:
            where.append(at.copy() > number(before))
        nulls = null_columns(other.schema)
        columns = {n: nulls.get(n, column(n)) for n in self.node.schema.names}
        return select(select(rows, None, where), columns)

    def steps(self) -> tuple[EpochStep, ...]:
        return (EpochStep(f"join the rows of closed sessions of {self._store.name}"),)
