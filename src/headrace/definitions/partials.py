"""Aggregates taken apart: partial states that can be stored, merged and finished.

Count, sum, average, minimum, maximum, variance, correlation and their kin can be computed from
partial states of disjoint sets of rows (the paper on factor windows calls them distributive and
algebraic; ``moments`` has those of variances and of what goes beyond, ``sketches`` that of an
approximate count). Every other aggregate is *holistic* and needs the rows themselves.

A partial column is named by a hash of what it computes, so that ``AVG(x)`` and ``SUM(x)``, of one
query or of two, share one stored sum.

Paper: Factor Windows, Section III-A, Theorem 5, Theorem 6.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from sqlglot import exp

from headrace.definitions.definition import Sql, call, column, number
from headrace.definitions.moments import (
    PAIRED,
    PAIRS,
    SHAPED,
    SHAPES,
    VALUES,
    VARIANCES,
    finished_pairs,
    finished_shape,
    finished_values,
    merged_pairs,
    merged_shapes,
    merged_values,
    pair_of_row,
    shape_of_row,
    state_of_pairs,
    state_of_shape,
    state_of_values,
    values_of_row,
)
from headrace.definitions.sketches import (
    CELLS,
    cells_of_row,
    different_values,
    merged_cells,
    register_bits,
    state_of_cells,
)
from headrace.definitions.sketches import NAME as SKETCHED
from headrace.optimizer.safety import argument_can_raise, can_raise
from headrace.plan.coverage import Coverage
from headrace.plan.expressions import AggregateCall, Call, Cast, Expr, Literal, Named, conjunction
from headrace.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, DataType, Field
from headrace.sql.render import data_type, spark_sql, to_sqlglot

_HALF_BITS = 32
_HALF = 1 << _HALF_BITS

# Aggregates that merge with themselves.
_SELF_MERGING = frozenset(
    {"min", "max", "bool_and", "bool_or", "every", "some", "any", "bit_and", "bit_or", "bit_xor"}
)
#: Aggregates to which a NULL is as good as no row.
_WITHOUT_NULLS = (
    _SELF_MERGING | VARIANCES.keys() | SHAPED | {"count", "count_if", "sum", "avg", "mean"}
)


@dataclass(frozen=True)
class Partial:
    """One stored column of partial states."""

    name: str
    type: DataType
    update: Sql
    merge: Callable[[Sql], Sql]
    #: Whether merging a row's state twice is as good as once.
    idempotent: bool = False
    #: The aggregate that it is; None for a state that SQL has no function for.
    call: AggregateCall | None = None
    #: Whether a row might stop the query on its way into it.
    raises: bool = False
    #: The state of a single row, of one that has no call.
    row: Sql | None = None

    @property
    def field(self) -> Field:
        return Field(self.name, self.type)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partial) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True)
class Decomposed:
    """An aggregate as partial columns and the expression that finishes them."""

    partials: tuple[Partial, ...]
    finish: Sql


def decompose_all(
    aggregates: Iterable[Named],
    one: Callable[[AggregateCall], Decomposed | None] | None = None,
) -> dict[str, Decomposed] | None:
    """Partial states of all aggregates, or None if one of them needs the rows.

    ``one`` takes an aggregate apart, if not ``decompose``.
    """
    parts: dict[str, Decomposed] = {}
    for named in aggregates:
        assert isinstance(named.expr, AggregateCall)
        decomposed = (one or decompose)(named.expr)
        if decomposed is None:
            return None
        parts[named.name] = decomposed
    return parts


def coverage_of(parts: Iterable[Decomposed]) -> Coverage:
    """Whether states may be merged that have rows in common."""
    once_is_enough = all(p.idempotent for decomposed in parts for p in decomposed.partials)
    return Coverage.COVERED if once_is_enough else Coverage.PARTITIONED


def decompose(aggregate: AggregateCall) -> Decomposed | None:
    """Partial states of an aggregate, or None where only the rows will do."""
    name, kind = aggregate.function, aggregate.type
    if aggregate.distinct and name not in ("min", "max"):
        return None
    if name == "count":
        partial = _partial(aggregate, _plain(aggregate), BIGINT, _sum_as(BIGINT))
        return Decomposed((partial,), column(partial.name))
    if name == "count_if":
        partial = _partial(aggregate, _plain(aggregate), BIGINT, _sum_as(BIGINT))
        return Decomposed((partial,), column(partial.name))
    if name == "sum" and _is_wide(aggregate):
        return _wide_sum(aggregate)
    if name == "sum":
        partial = _partial(aggregate, _plain(aggregate), kind, _sum_as(kind))
        return Decomposed((partial,), column(partial.name))
    if name in _SELF_MERGING:
        partial = _partial(aggregate, _plain(aggregate), kind, lambda stored: call(name, stored))
        once_is_enough = replace(partial, idempotent=name != "bit_xor")
        return Decomposed((once_is_enough,), column(partial.name))
    if name in ("avg", "mean"):
        return _average(aggregate)
    if name in VARIANCES or name in SHAPED:
        return _moments(aggregate)
    if name in PAIRED:
        return _pairs(aggregate)
    if name in ("min_by", "max_by"):
        return _extreme_by(aggregate)
    if name == SKETCHED:
        return _sketch(aggregate)
    return None


def of_rows(aggregate: Expr) -> Sql:
    """An aggregate of rows that are all at hand."""
    assert isinstance(aggregate, AggregateCall)
    if aggregate.function == SKETCHED:
        # What is promised of it holds however it is computed.
        return different_values(state_of_cells(aggregate), register_bits(aggregate))
    if not _is_wide(aggregate) or aggregate.distinct:
        return to_sqlglot(lazily_filtered(aggregate))
    parts = _wide_sum(aggregate)
    updates = {partial.name: partial.update for partial in parts.partials}

    def in_place(node: Sql) -> Sql:
        if not isinstance(node, exp.Column) or node.name not in updates:
            return node
        # In DuckDB a sum of bigints is wider than they are.
        return exp.Cast(this=updates[node.name].copy(), to=data_type(BIGINT))

    return parts.finish.copy().transform(in_place)


def lazily_filtered(aggregate: AggregateCall) -> AggregateCall:
    """The same aggregate, whose arguments are never computed for rows that its filter leaves out.

    Spark computes an argument that several aggregates share once and for every row, before it asks
    their filters. A CASE it leaves alone.
    """
    condition, arguments = aggregate.filter, aggregate.arguments
    if condition is None or aggregate.function not in _WITHOUT_NULLS or len(arguments) != 1:
        return aggregate
    if not can_raise(arguments[0]):
        return aggregate
    chosen = Call("case", (condition, arguments[0]), arguments[0].type)
    return replace(aggregate, arguments=(chosen,), filter=None)


def update_where(partial: Partial, condition: Expr) -> Sql:
    """The partial state of the rows that satisfy a condition; nothing is computed of the others."""
    update = partial.call
    assert update is not None
    both = [condition, *([] if update.filter is None else [update.filter])]
    return to_sqlglot(lazily_filtered(replace(update, filter=conjunction(both))))


def state_of_row(partial: Partial) -> Sql:
    """The partial state of a single row."""
    if partial.row is not None:
        return partial.row.copy()
    call_of_rows = partial.call
    assert call_of_rows is not None
    arguments, condition = call_of_rows.arguments, call_of_rows.filter
    if call_of_rows.function in ("count", "count_if"):
        nulls = (Call("isnull", (argument,), BOOLEAN) for argument in arguments)
        counted: list[Expr] = [Call("not", (null,), BOOLEAN) for null in nulls]
        if call_of_rows.function == "count_if":
            counted = list(arguments)
        wanted = conjunction([*([] if condition is None else [condition]), *counted])
        if wanted is None:
            return number(1)
        chosen = exp.If(this=to_sqlglot(wanted), true=number(1))
        return exp.Case(ifs=[chosen], default=number(0))
    value: Sql = to_sqlglot(arguments[0])
    if condition is not None:
        value = exp.Case(ifs=[exp.If(this=to_sqlglot(condition), true=value)])
    return exp.Cast(this=value, to=data_type(partial.type))


def _plain(aggregate: AggregateCall) -> AggregateCall:
    return replace(aggregate, distinct=False)


def _partial(
    aggregate: AggregateCall, update: AggregateCall, kind: DataType, merge: Callable[[Sql], Sql]
) -> Partial:
    rendered = to_sqlglot(lazily_filtered(update))
    raises = argument_can_raise(update)
    return Partial(_column_name(update), kind, rendered, merge, call=update, raises=raises)


#: Remembered: plans are compiled anew whenever a query comes or goes, and text takes the longest.
@lru_cache(16_384)
def _column_name(update: AggregateCall) -> str:
    digest = hashlib.sha256(f"{spark_sql(update)}:{update.type}".encode()).hexdigest()[:12]
    return f"__{update.function}_{digest}"


def _sum_as(kind: DataType) -> Callable[[Sql], Sql]:
    """Merge by summing; the cast keeps a decimal from growing with each level of merging."""
    return lambda stored: exp.Cast(this=call("sum", stored), to=data_type(kind))


def _is_wide(aggregate: AggregateCall) -> bool:
    """Whether sums on the way may lie outside the range of the sum's own type."""
    return aggregate.function == "sum" and aggregate.arguments[0].type == BIGINT


def _wide_sum(aggregate: AggregateCall) -> Decomposed:
    """A sum of bigints as two: of their upper and of their lower 32 bits.

    Neither overflows for as long as a group has less than 2^31 rows, in whatever order they are
    added, subtracted or multiplied by counts. So whether a sum fails is decided where it is
    finished, by its value alone. A decimal would do the same at three times the cost.
    """
    (argument,) = aggregate.arguments
    upper = Call("shiftright", (argument, Literal(_HALF_BITS, INT)), BIGINT)
    lower = Call("&", (argument, Literal(_HALF - 1, BIGINT)), BIGINT)
    halves = [sum_of_bigints(aggregate, half) for half in (upper, lower)]
    high, low = (column(half.name) for half in halves)
    carried = exp.paren(high + call("shiftright", low, exp.Literal.number(_HALF_BITS)))
    rest = exp.BitwiseAnd(this=low.copy(), expression=number(_HALF - 1))
    # Too great a number of upper halves overflows here, and nothing else does.
    return Decomposed(tuple(halves), carried * number(_HALF) + exp.paren(rest))


def sum_of_bigints(aggregate: AggregateCall, argument: Expr) -> Partial:
    """The sum of bigints that is one itself, over the rows of an aggregate."""
    summed = AggregateCall("sum", (argument,), BIGINT, False, aggregate.filter)
    return _partial(aggregate, summed, BIGINT, _sum_as(BIGINT))


def _average(aggregate: AggregateCall) -> Decomposed:
    (argument,) = aggregate.arguments
    exact = argument.type.is_decimal
    if exact:
        precision, scale = argument.type.decimal_parameters
        sum_type = DataType(f"decimal({min(38, precision + 10)},{scale})")
        summed: Expr = argument
    else:
        sum_type, summed = DOUBLE, Cast(argument, DOUBLE)
    total = AggregateCall("sum", (summed,), sum_type, False, aggregate.filter)
    count = AggregateCall("count", (argument,), BIGINT, False, aggregate.filter)
    sum_partial = _partial(aggregate, total, sum_type, _sum_as(sum_type))
    count_partial = _partial(aggregate, count, BIGINT, _sum_as(BIGINT))
    # No rows make NULL, not a division by zero.
    divisor = call("nullif", column(count_partial.name), exp.Literal.number(0))
    quotient = exp.Div(this=column(sum_partial.name), expression=divisor)
    finish = exp.Cast(this=quotient, to=data_type(aggregate.type))
    return Decomposed((sum_partial, count_partial), finish)


def _moments(aggregate: AggregateCall) -> Decomposed:
    """Variances and their roots, skewness and kurtosis."""
    value = Cast(aggregate.arguments[0], DOUBLE)
    shaped = aggregate.function in SHAPED
    kind = SHAPES if shaped else VALUES
    state = AggregateCall("shape" if shaped else "moments", (value,), kind, False, aggregate.filter)

    def over(name: str) -> Sql:
        kind = BIGINT if name == "count" else DOUBLE
        return to_sqlglot(
            lazily_filtered(AggregateCall(name, (value,), kind, False, aggregate.filter))
        )

    update = state_of_shape(over) if shaped else state_of_values(over)
    merge = merged_shapes if shaped else merged_values
    row = shape_of_row if shaped else values_of_row
    partial = Partial(
        _column_name(state),
        kind,
        update,
        merge,
        raises=argument_can_raise(state),
        row=row(to_sqlglot(_where(aggregate.filter, value))),
    )
    finish = finished_shape if shaped else finished_values
    return Decomposed((partial,), finish(aggregate.function, partial.name))


def _pairs(aggregate: AggregateCall) -> Decomposed:
    """Covariances and correlations, of pairs of which neither is NULL."""
    x, y = (Cast(argument, DOUBLE) for argument in aggregate.arguments)
    state = AggregateCall("pairs", (x, y), PAIRS, False, aggregate.filter)
    sides = {"x": (x, y), "y": (y, x)}

    def side(name: str) -> Expr:
        value, other = sides[name]
        is_present = Call("not", (Call("isnull", (other,), BOOLEAN),), BOOLEAN)
        return Call("case", (is_present, value), DOUBLE)

    def over(name: str, *names: str) -> Sql:
        kind = BIGINT if name == "count" else DOUBLE
        arguments = tuple(map(side, names))
        return to_sqlglot(
            lazily_filtered(AggregateCall(name, arguments, kind, False, aggregate.filter))
        )

    partial = Partial(
        _column_name(state),
        PAIRS,
        state_of_pairs(over),
        merged_pairs,
        raises=argument_can_raise(state),
        row=pair_of_row(*(to_sqlglot(_where(aggregate.filter, side(name))) for name in "xy")),
    )
    return Decomposed((partial,), finished_pairs(aggregate.function, partial.name))


def _sketch(aggregate: AggregateCall) -> Decomposed:
    """A sketch of the different values there are, of constant size."""
    bits, value = register_bits(aggregate), aggregate.arguments[0]
    sized = Literal(bits, INT)
    state = AggregateCall("cells", (value, sized), CELLS, False, aggregate.filter)
    partial = Partial(
        _column_name(state),
        CELLS,
        state_of_cells(aggregate),
        merged_cells,
        idempotent=True,
        raises=any(map(can_raise, aggregate.children)),
        row=cells_of_row(aggregate),
    )
    return Decomposed((partial,), different_values(column(partial.name), bits))


def _where(condition: Expr | None, value: Expr) -> Expr:
    return value if condition is None else Call("case", (condition, value), value.type)


def _extreme_by(aggregate: AggregateCall) -> Decomposed:
    """The value of the row that is first or last in an order, with its place in it.

    Where rows share a place either of their values is right, as it is in Spark.
    """
    value, order = aggregate.arguments
    extreme = aggregate.function.removesuffix("_by")
    kind = DataType(f"struct<value:{value.type},place:{order.type}>")
    state = AggregateCall(aggregate.function, (value, order), kind, False, aggregate.filter)

    def of(chosen: Sql, place: Sql) -> Sql:
        parts = (exp.Literal.string("value"), chosen, exp.Literal.string("place"), place)
        return call("named_struct", *parts)

    def merge(stored: Sql) -> Sql:
        chosen, place = (
            exp.Dot(this=stored.copy(), expression=exp.to_identifier(part))
            for part in ("value", "place")
        )
        return of(call(aggregate.function, chosen, place), call(extreme, place.copy()))

    least = AggregateCall(extreme, (order,), order.type, False, aggregate.filter)
    partial = Partial(
        _column_name(state),
        kind,
        of(to_sqlglot(_plain(aggregate)), to_sqlglot(lazily_filtered(least))),
        merge,
        idempotent=True,
        raises=argument_can_raise(state),
        row=of(*(to_sqlglot(_where(aggregate.filter, part)) for part in (value, order))),
    )
    chosen = exp.Dot(this=column(partial.name), expression=exp.to_identifier("value"))
    return Decomposed((partial,), chosen)
