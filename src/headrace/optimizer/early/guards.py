"""Conditions under which an expression that can raise does not.

A set is computed from all rows of its input, and some of them meet nobody: what raises for such a
row must not stop the query, since an aggregate of joined rows never sees it. A *guard* is a
condition that never raises and is never NULL. Where it holds, the expression does not raise; where
it does not, the expression might, and the row is kept as it is until it has met somebody.

A guard may ask for more than it must. Arithmetic is guarded by the same arithmetic of doubles, so
bigints beyond 9.2e18 count as dangerous; and what stands in a branch of a CASE is guarded as if the
branch were always taken.
"""

from __future__ import annotations

from headrace.optimizer.safety import argument_can_raise, can_raise, raises_itself
from headrace.plan.expressions import AggregateCall, Call, Cast, Column, Expr, Literal, conjunction
from headrace.plan.types import BIGINT, BOOLEAN, DOUBLE, DataType

_TRUE, _FALSE = Literal(True, BOOLEAN), Literal(False, BOOLEAN)
#: What a double may be at most for its whole part to be surely within a type.
_GREATEST = {"tinyint": 127.0, "smallint": 32767.0, "int": 2147483647.0, "bigint": 9.2e18}
_ARITHMETIC = frozenset({"+", "-", "*", "negative", "abs"})
_BY_ZERO = frozenset({"/", "%", "div"})


def may_fail(expr: Expr) -> bool:
    """Whether computing it for a row, or taking the row into it, might stop the query."""
    if isinstance(expr, AggregateCall):
        return argument_can_raise(expr)
    return can_raise(expr)


def guard(expr: Expr) -> Expr | None:
    """Where this is true, the expression does not raise. None if no such condition is known."""
    if isinstance(expr, AggregateCall) and argument_can_raise(_of_columns(expr)):
        return None
    return _guard(expr)


def _of_columns(call: AggregateCall) -> AggregateCall:
    """The same aggregate of arguments that are just there."""
    arguments = tuple(Column(f"__{i}", a.type) for i, a in enumerate(call.arguments))
    return AggregateCall(call.function, arguments, call.type, call.distinct)


def _guard(expr: Expr) -> Expr | None:
    inner: list[Expr] = []
    for child in expr.children:
        guard_of_child = _guard(child)
        if guard_of_child is None:
            return None
        if guard_of_child != _TRUE:
            inner.append(guard_of_child)
    below = conjunction(inner)
    if isinstance(expr, AggregateCall) or not raises_itself(expr):
        return below or _TRUE
    own = _own_guard(expr)
    if own is None:
        return None
    # A NULL never raises; and what is asked of the arguments can only be asked where they are safe.
    sure = Call("coalesce", (own, _TRUE), BOOLEAN)
    return sure if below is None else Call("case", (below, sure, _FALSE), BOOLEAN)


def _own_guard(expr: Expr) -> Expr | None:
    """What has to hold of the arguments; NULL where one of them is."""
    match expr:
        case Call(function=function, arguments=arguments) if function in _ARITHMETIC:
            if expr.type.name not in _GREATEST or not all(a.type.is_integer for a in arguments):
                return None
            wide = tuple(Cast(argument, DOUBLE) for argument in arguments)
            return _within(Call(function, wide, DOUBLE), expr.type.name)
        case Call(function=function, arguments=(left, right)) if function in _BY_ZERO:
            if not all(a.type.is_integer or a.type.is_fractional for a in (left, right)):
                return None
            divides = _differs(right, 0)
            # The least bigint divided by -1 is none.
            return _both(divides, _differs(right, -1)) if function == "div" else divides
        case Cast(argument=argument, data_type=kind, safe=False):
            return _cast_guard(argument, expr, kind.name)
        case _:
            return None


def _cast_guard(argument: Expr, cast: Cast, wanted: str) -> Expr | None:
    given = argument.type
    if wanted in _GREATEST and (given.is_integer or given.is_fractional):
        return _within(_as(argument, DOUBLE), wanted)
    if given.name == "string" or (given.is_decimal and cast.type.is_numeric):
        tried = Call("isnull", (Cast(argument, cast.type, safe=True),), BOOLEAN)
        missing = Call("isnull", (argument,), BOOLEAN)
        return Call("or", (missing, Call("not", (tried,), BOOLEAN)), BOOLEAN)
    return None


def _within(value: Expr, kind: str) -> Expr:
    bound = _GREATEST[kind]
    return _both(
        Call(">=", (value, Literal(-bound, DOUBLE)), BOOLEAN),
        Call("<=", (value, Literal(bound, DOUBLE)), BOOLEAN),
    )


def _differs(value: Expr, number: int) -> Expr:
    if value.type.is_integer:
        return Call("!=", (_as(value, BIGINT), Literal(number, BIGINT)), BOOLEAN)
    return Call("!=", (_as(value, DOUBLE), Literal(float(number), DOUBLE)), BOOLEAN)


def _as(value: Expr, kind: DataType) -> Expr:
    return value if value.type == kind else Cast(value, kind)


def _both(one: Expr, other: Expr) -> Expr:
    return Call("and", (one, other), BOOLEAN)
