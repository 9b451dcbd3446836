"""A tiny vocabulary for the hand-computed examples: two streams, times in seconds."""

from __future__ import annotations

import datetime
from typing import Any

from headrace.plan.expressions import AggregateCall, Column, Expr, Named
from headrace.plan.nodes import (
    Aggregate,
    IntervalBound,
    Join,
    JoinKind,
    JoinTime,
    Node,
    SameSession,
    SameWindow,
    Source,
    Table,
)
from headrace.plan.types import BIGINT, STRING, TIMESTAMP, Schema
from headrace.plan.windows import Hopping, Window
from tests.support.compare import plain_value

ZERO = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
SCHEMA = Schema.of([("k", STRING), ("v", BIGINT), ("ts", TIMESTAMP)])
NAMES = Table("names", Schema.of([("id", STRING), ("name", STRING)]))


def stream(name: str = "s", delay: float = 0, ttl: float | None = None) -> Source:
    return Source(name, SCHEMA, "ts", ms(delay), None if ttl is None else ms(ttl))


def ms(seconds: float) -> int:
    return round(seconds * 1000)


def at(seconds: float) -> datetime.datetime:
    return ZERO + datetime.timedelta(microseconds=round(seconds * 1_000_000))


def rows(*triples: tuple[str | None, int | None, float | None]) -> list[dict[str, Any]]:
    return [
        {"k": k, "v": v, "ts": None if seconds is None else at(seconds)}
        for k, v, seconds in triples
    ]


def hopping(length: float, slide: float | None = None, offset: float = 0) -> Hopping:
    return Hopping(ms(length), ms(length if slide is None else slide), ms(offset))


def column(name: str) -> Column:
    bare = name.rpartition(".")[2]
    return Column(name, SCHEMA[bare].type)


def per_key(node: Node, *windows: Window, time: Expr | None = None, key: str = "k") -> Aggregate:
    """COUNT(*) and SUM(v) per key and window."""
    moment = column("ts") if time is None else time
    assert isinstance(moment, Column)
    value = column(key.replace("k", "v"))
    return Aggregate(
        node,
        (Named("k", column(key)),),
        moment,
        windows,
        (
            Named("n", AggregateCall("count", (), BIGINT)),
            Named("total", AggregateCall("sum", (value,), BIGINT)),
        ),
    )


def join(
    left: Node,
    right: Node,
    time: JoinTime | None,
    kind: JoinKind = JoinKind.INNER,
    emits_window: bool = False,
    residual: Expr | None = None,
) -> Join:
    keys = ((column("a.k"), column("b.k")),)
    return Join(left, right, kind, "a", "b", keys, time, residual, emits_window)


def within(lower: float | None, upper: float | None) -> IntervalBound:
    return IntervalBound(
        column("a.ts"),
        column("b.ts"),
        None if lower is None else ms(lower),
        None if upper is None else ms(upper),
    )


def same_window(length: float, slide: float | None = None) -> SameWindow:
    return SameWindow(column("a.ts"), column("b.ts"), hopping(length, slide))


def same_session(gap: float) -> SameSession:
    return SameSession(column("a.ts"), column("b.ts"), ms(gap))


def short(out: list[list[tuple[Any, ...]]]) -> list[list[tuple[Any, ...]]]:
    """Results with times as seconds, sorted, so that examples read as the rules do."""
    return [sorted((tuple(map(_seconds, row)) for row in epoch), key=repr) for epoch in out]


def _seconds(value: Any) -> Any:
    value = plain_value(value)
    if isinstance(value, datetime.datetime):
        return (value - ZERO).total_seconds()
    if isinstance(value, tuple):
        return tuple(map(_seconds, value))
    return value
