"""Aggregates over several inputs, put together from what the set of each knows of its factor.

``optimizer.early.factors`` says which aggregates these are, and what a set knows. Totals of bigints
are put together from their halves in numbers that are wide enough for every product. So the sum of
all pairs fails if it does not fit, and for no other reason.

Paper: Early Aggregation, Section 4, Definition 5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from sqlglot import exp

from headrace.definitions.definition import Sql, call, number
from headrace.definitions.moments import pairs_of_each, product_of_each, sum_of_each, times
from headrace.definitions.partials import Partial
from headrace.optimizer.early.aggregates import PAIRS, SPREADS
from headrace.optimizer.early.factors import COUNT, LEAST, MOST, SPREAD, TOTAL, Factored
from headrace.plan.types import DOUBLE
from headrace.sql.render import data_type

#: The columns that hold what is known of an input's factor, by input and by what it is.
FactorColumns = Callable[[int, str], Sequence[Sql]]
_WHOLE_HALF = 1 << 32


def of_factors(
    split: Factored, partials: Sequence[Partial], columns: FactorColumns, counts: Sequence[Sql]
) -> list[Sql]:
    """The partial states of all pairs that a joined row stands for.

    ``counts`` say how many rows the sets of the other inputs stand for, which have no factor.
    """

    def known(what: str) -> list[Sql]:
        return [columns(index, what)[0] for index in split.inputs]

    function = split.call.function
    if function in SPREADS | PAIRS:
        left, right = known(SPREAD)
        if split.operator == ",":
            state = pairs_of_each(left, right)
        elif split.operator == "*":
            state = product_of_each(left, right)
        else:
            state = sum_of_each(left, right, split.operator == "-")
        if counts:
            state = times(state, partials[0].type, _product(counts))
        return [_checked(split, known, state)]
    if function == "count":
        return [_checked(split, known, _product([*known(COUNT), *counts]), number(0))]
    halves = len(columns(split.inputs[0], TOTAL)) > 1
    totals = [_whole(*columns(index, TOTAL)) for index in split.inputs] if halves else known(TOTAL)
    total = _total(split, totals, known(COUNT) if split.operator != "*" else [])
    if counts:
        total = exp.Mul(this=exp.paren(total), expression=exp.paren(_product(counts)))
    states = [_upper(total), _lower(total)] if halves else [_finite(split, known, total)]
    checked = [_checked(split, known, state) for state in states]
    if function != "sum":
        checked.append(_checked(split, known, _product([*known(COUNT), *counts]), number(0)))
    return [
        exp.Cast(this=state, to=data_type(partial.type))
        for state, partial in zip(checked, partials, strict=True)
    ]


def _total(split: Factored, totals: list[Sql], counts: list[Sql]) -> Sql:
    """The sum over all pairs; NULL where a side has no values."""
    if split.operator == "*":
        return _product(totals)
    terms: list[Sql] = []
    for at, total in enumerate(totals):
        others = [count for other, count in enumerate(counts) if other != at]
        terms.append(exp.paren(_product([total, *others])))
    joined = exp.Sub if split.operator == "-" else exp.Add
    total = terms[0]
    for term in terms[1:]:
        total = joined(this=total, expression=term)
    return total


def _product(factors: Sequence[Sql]) -> Sql:
    return reduce(
        lambda one, other: exp.Mul(this=one, expression=other),
        (factor.copy() for factor in factors),
    )


def _corners(split: Factored, extremes: Callable[[str], list[Sql]]) -> list[Sql]:
    """The pairs of least and greatest factors, of which one is beyond what any other pair is."""
    sides = list(zip(extremes(LEAST), extremes(MOST), strict=True))
    corners: list[list[Sql]] = [[]]
    for least, most in sides:
        corners = [[*corner, end] for corner in corners for end in (least, most)]
    operator = {"*": exp.Mul, "+": exp.Add, "-": exp.Sub}[split.operator]
    return [
        reduce(lambda one, other: operator(this=one, expression=other), [c.copy() for c in corner])
        for corner in corners
    ]


def _checked(
    split: Factored, extremes: Callable[[str], list[Sql]], value: Sql, otherwise: Sql | None = None
) -> Sql:
    """The value, once the operator has worked on the outermost pairs of whole numbers.

    Where a side has no values there are no such pairs.
    """
    if not split.corners or not split.type.is_integer:
        return value
    works = exp.Not(
        this=exp.Is(this=call("greatest", *_corners(split, extremes)), expression=exp.Null())
    )
    return exp.Case(ifs=[exp.If(this=works, true=value)], default=otherwise)


def _finite(split: Factored, extremes: Callable[[str], list[Sql]], total: Sql) -> Sql:
    """A product of totals, or what it is of doubles of which a product is not finite.

    Infinity times a total knows nothing of the zeros and the signs in it; the outermost pairs do.
    """
    if not split.corners or split.type != DOUBLE:
        return total
    corners = _corners(split, extremes)
    share = exp.Cast(this=exp.Literal.string(str(1 / len(corners))), to=data_type(DOUBLE))
    terms: list[Sql] = [exp.paren(exp.Mul(this=share.copy(), expression=c)) for c in corners]
    mean = reduce(lambda one, other: exp.Add(this=one, expression=other), terms)
    # What is not finite is no zero when it is taken off itself.
    nothing = exp.Sub(this=exp.paren(mean), expression=exp.paren(mean.copy()))
    zero = exp.Cast(this=exp.Literal.number(0), to=data_type(DOUBLE))
    is_finite = exp.EQ(this=nothing, expression=zero)
    return exp.Case(ifs=[exp.If(this=is_finite, true=total)], default=mean.copy())


# Sums of bigints: their halves as one number, and one number as halves


def _whole(high: Sql, low: Sql) -> Sql:
    spark = (part.sql(dialect="spark") for part in (high, low))
    text = "(CAST({} AS DECIMAL(38,0)) * {} + {})"
    high_text, low_text = spark
    return exp.Var(
        this=text.format(high_text, _WHOLE_HALF, low_text),
        twin=call("whole_of_halves", high.copy(), low.copy()),
    )


def _upper(total: Sql) -> Sql:
    text = f"(({total.sql(dialect='spark')}) DIV {_WHOLE_HALF})"
    return exp.Var(this=text, twin=call("upper_half", total.copy(), number(_WHOLE_HALF)))


def _lower(total: Sql) -> Sql:
    text = f"(({total.sql(dialect='spark')}) % {_WHOLE_HALF})"
    return exp.Var(this=text, twin=call("lower_half", total.copy(), number(_WHOLE_HALF)))
