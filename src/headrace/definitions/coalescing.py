"""The coalescing property (Definition 5): the aggregate of c rows that are all alike.

What joined rows of sets amount to in the output: a row of one set stands for as many pairs as the
other sets' rows have rows. Sums and counts are multiplied by that number, extremes are what they
are. An average is a sum and a count; moments are of so many times as many values.

Paper: Early Aggregation, Section 4, Definition 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from sqlglot import exp

from headrace.definitions.definition import Sql, column, number
from headrace.definitions.moments import times
from headrace.definitions.partials import Partial, state_of_row
from headrace.optimizer.early.aggregates import SCALED
from headrace.plan.types import BIGINT, DataType
from headrace.sql.render import data_type


def coalesced(partial: Partial, owned: bool, counts: Sequence[str]) -> Sql:
    """An aggregate over joined rows of sets, from a partial aggregate of one of them.

    ``counts`` are the columns that say how many rows each of the *other* sets' rows stands for.
    An aggregate that no single input owns is one of the joined rows, and all sets are others.
    """
    value: Sql = column(partial.name) if owned else state_of_row(partial)
    return partial.merge(_of_all(partial, value, counts))


def coalesced_where_sound(
    partial: Partial, sound: str, counts: Sequence[str], everybody: Sequence[str]
) -> Sql:
    """The same of a partial aggregate that its set has only where the column ``sound`` is true.

    Where it is not, the aggregate is one of the joined rows, and ``everybody`` has counts.
    """
    stored = _of_all(partial, column(partial.name), counts)
    computed = _of_all(partial, state_of_row(partial), everybody)
    chosen = exp.Case(ifs=[exp.If(this=column(sound), true=stored)], default=computed)
    return partial.merge(chosen)


def _of_all(partial: Partial, value: Sql, counts: Sequence[str]) -> Sql:
    """The partial aggregate of all the rows that a joined row stands for."""
    if not counts:
        return value
    factors: list[Sql] = [column(name) for name in counts]
    product = reduce(lambda a, b: exp.Mul(this=a, expression=b), factors)
    if partial.call is None:
        # Moments count; the value at an extreme place does not.
        return value if partial.idempotent else times(value, partial.type, product)
    if partial.call.function == "bit_xor":
        # Two that are alike are none.
        odd = exp.Mod(this=exp.paren(product), expression=number(2))
        return _times(value, exp.paren(odd), partial.type)
    if partial.call.function not in SCALED:
        return value
    return _times(value, product, partial.type)


def _times(value: Sql, count: Sql, kind: DataType) -> Sql:
    if kind == BIGINT:
        return exp.Mul(this=exp.paren(value), expression=exp.paren(count))
    as_factor = DataType("decimal(20,0)") if kind.is_decimal else kind
    factor = exp.Cast(this=count, to=data_type(as_factor))
    # The cast keeps a decimal from growing.
    return exp.Cast(this=exp.Mul(this=exp.paren(value), expression=factor), to=data_type(kind))
