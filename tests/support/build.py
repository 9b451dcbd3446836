"""Short spellings for plans that tests write by hand."""

from __future__ import annotations

from headrace.plan.expressions import AggregateCall, Call, Cast, Column, Expr, Literal, Named
from headrace.plan.nodes import Aggregate, Filter, Join, JoinKind, JoinTime, Node, Project
from headrace.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, DataType
from headrace.plan.windows import Window


def lit(value: object) -> Literal:
    """A literal of the type that SQL gives to it."""
    match value:
        case bool():
            return Literal(value, BOOLEAN)
        case int():
            return Literal(value, INT)
        case float():
            return Literal(value, DOUBLE)
        case str():
            return Literal(value, STRING)
        case _:
            raise NotImplementedError(f"no literal for {value!r}")


def col(node: Node, name: str) -> Column:
    return Column(name, node.schema[name].type)


def call(function: str, *arguments: Expr | object, kind: DataType = BOOLEAN) -> Call:
    exprs = tuple(a if isinstance(a, Expr) else lit(a) for a in arguments)
    return Call(function, exprs, kind)


def both(*parts: Expr) -> Expr:
    result = parts[0]
    for part in parts[1:]:
        result = call("and", result, part)
    return result


def where(node: Node, *parts: Expr) -> Filter:
    return Filter(node, both(*parts))


def select(node: Node, *columns: str | tuple[str, Expr]) -> Project:
    """Columns by name, or (name, expression)."""
    return Project(
        node,
        tuple(Named(c, col(node, c)) if isinstance(c, str) else Named(*c) for c in columns),
    )


def count(condition: Expr | None = None) -> AggregateCall:
    return AggregateCall("count", (), BIGINT, filter=condition)


def group(
    node: Node,
    keys: tuple[str, ...],
    time: str,
    *windows: Window,
    **aggregates: AggregateCall,
) -> Aggregate:
    return Aggregate(
        node,
        tuple(Named(key, col(node, key)) for key in keys),
        col(node, time),
        windows,
        tuple(Named(name, value) for name, value in aggregates.items()),
    )


def join(
    left: Node,
    right: Node,
    on: tuple[str, str],
    time: JoinTime | None = None,
    kind: JoinKind = JoinKind.INNER,
    **options: object,
) -> Join:
    """A join of ``a`` and ``b`` on one column each."""
    keys = tuple(
        Column(f"{alias}.{name}", node.schema[name].type)
        for alias, node, name in (("a", left, on[0]), ("b", right, on[1]))
    )
    return Join(left, right, kind, "a", "b", ((keys[0], keys[1]),), time, **options)  # type: ignore[arg-type]


def cast(expr: Expr, kind: DataType, safe: bool = False) -> Cast:
    return Cast(expr, kind, safe)
