"""Partial aggregates of which rows can be taken away again, exactly.

A window that moves subtracts what leaves it. Sums of doubles cannot be subtracted, and an average
is made of one. Of whole numbers there is another: the sums of their digits to a large base, which
are whole numbers themselves, so what leaves is gone without a trace. The digits are so short that
their sums do not overflow before a group has 2^41 rows.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from sqlglot import exp

from headrace.definitions.definition import Sql, call, column, number
from headrace.definitions.partials import Decomposed, decompose, sum_of_bigints
from headrace.plan.expressions import AggregateCall, Call, Cast, Expr, Literal
from headrace.plan.types import BIGINT, DOUBLE, INT
from headrace.sql.render import data_type

#: A bigint is three digits of so many bits, the upper one with its sign.
_BITS = 22


def decompose_exactly(aggregate: AggregateCall) -> Decomposed | None:
    """The partial states of an aggregate, exact ones where there is a choice."""
    averages = aggregate.function in ("avg", "mean") and not aggregate.distinct
    if not averages or not aggregate.arguments[0].type.is_integer:
        return decompose(aggregate)
    whole = Cast(aggregate.arguments[0], BIGINT)
    shifts = (2 * _BITS, _BITS, 0)
    digits = [sum_of_bigints(aggregate, _digit(whole, shift)) for shift in shifts]
    count = decompose(replace(aggregate, function="count", data_type=BIGINT))
    assert count is not None
    values: list[Sql] = [
        _as_double(column(digit.name)) * _as_double(number(2**shift))
        for digit, shift in zip(digits, shifts, strict=True)
    ]
    total = reduce(lambda a, b: exp.Add(this=a, expression=b), values)
    # No rows make NULL, not a division by zero.
    divisor = call("nullif", count.finish, exp.Literal.number(0))
    finish = exp.Cast(
        this=exp.Div(this=exp.paren(total), expression=divisor), to=data_type(aggregate.type)
    )
    return Decomposed((*digits, *count.partials), finish)


def _as_double(value: Sql) -> Sql:
    return exp.Cast(this=value, to=data_type(DOUBLE))


def _digit(whole: Expr, shift: int) -> Expr:
    shifted = whole if not shift else Call("shiftright", (whole, Literal(shift, INT)), BIGINT)
    if shift == 2 * _BITS:
        return shifted
    return Call("&", (shifted, Literal(2**_BITS - 1, BIGINT)), BIGINT)
