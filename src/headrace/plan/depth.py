"""How deep a plan may be.

Plans are walked by functions that call themselves, when a query is registered and again in each
epoch, and Python lets calls be nested a thousand deep. A plan that came close would be planned, and
then stop the engine for everybody where somebody calls one level more. So there is a bound that
leaves room, and what is above it is refused when it is registered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from headrace.errors import Position, SqlError
from headrace.plan.expressions import Expr
from headrace.plan.nodes import Node

#: The functions that walk take up to four calls for a level.
MOST_LEVELS = 150


def levels(plan: Node) -> int:
    """How many operators and expressions stand above each other at most.

    >>> from headrace.plan.expressions import Call, Column
    >>> from headrace.plan.nodes import Filter, Source
    >>> from headrace.plan.types import BOOLEAN, TIMESTAMP, Schema
    >>> source = Source("s", Schema.of([("ts", TIMESTAMP)]), "ts")
    >>> levels(Filter(source, Call("isnotnull", (Column("ts", TIMESTAMP),), BOOLEAN)))
    3
    """
    deepest: dict[int, int] = {}
    waiting: list[tuple[Node | Expr, int]] = [(plan, 1)]
    while waiting:
        part, level = waiting.pop()
        # What several share is walked again only where it stands deeper.
        if deepest.get(id(part), 0) < level:
            deepest[id(part)] = level
            waiting += ((below, level + 1) for below in _below(part))
    return max(deepest.values())


def check_depth(plan: Node, position: Position | None = None) -> None:
    """Refuse a plan that not every part of the engine could walk."""
    if levels(plan) > MOST_LEVELS:
        raise too_deep(position)


def too_deep(position: Position | None = None) -> SqlError:
    return SqlError(
        f"the query is nested too deeply: {MOST_LEVELS} operators in each other are possible, of "
        "which a OR b OR c has two, and fewer parentheses",
        hint="instead of many ORs write IN (…) or a join with a table, compute long sums in the "
        "DataFrame of the stream, and take the parts of a long UNION ALL as queries of their own",
        position=position,
    )


def _below(part: Node | Expr) -> Iterator[Node | Expr]:
    for field in fields(part):
        yield from _parts(getattr(part, field.name))


def _parts(value: Any) -> Iterator[Node | Expr]:
    if isinstance(value, Node | Expr):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _parts(item)
    elif is_dataclass(value):
        # Named expressions, conditions on time.
        for field in fields(value):
            yield from _parts(getattr(value, field.name))
