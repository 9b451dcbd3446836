"""Which aggregates can be taken apart below a join, and how.

An aggregate of one input is computed in that input's set. Of *different* values (``DISTINCT``,
``collect_set``) only one row per value is needed: the values are grouped by, in the set as above
the join, and the groups of a result are put together at the very end. An aggregate over several
inputs is a matter of ``factors``.

Paper: Early Aggregation, Section 4, Definition 5.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.plan.expressions import AggregateCall, Call, Column, Expr, Named

#: Aggregates whose states are moments: of values, of pairs of values, and of their shape.
SPREADS = frozenset(
    {"variance", "var_samp", "var_pop", "stddev", "std", "stddev_samp", "stddev_pop"}
)
PAIRS = frozenset({"corr", "covar_pop", "covar_samp"})
SHAPES = frozenset({"skewness", "kurtosis"})
#: Aggregates of a group that many equal rows change (f(c, a) of the coalescing property).
SCALED = (
    frozenset({"count", "count_if", "sum", "avg", "mean", "bit_xor"}) | SPREADS | PAIRS | SHAPES
)
#: Aggregates to which it is all the same how often a row is there.
UNSCALED = frozenset(
    {"min", "max", "bool_and", "bool_or", "every", "some", "any", "bit_and", "bit_or"}
    | {"min_by", "max_by", "approx_count_distinct"}
)
_SUMS = frozenset({"sum", "avg", "mean"})


def of_different_values(call: AggregateCall) -> bool:
    """Whether a value that comes again changes nothing, and which values there are does."""
    return (call.distinct and call.function not in UNSCALED) or call.function == "collect_set"


def needs_rows(expr: Expr) -> str | None:
    """Why an aggregate cannot be taken apart below a join."""
    assert isinstance(expr, AggregateCall)
    if of_different_values(expr):
        return None
    if expr.function not in SCALED | UNSCALED:
        return f"{expr} needs the joined rows themselves"
    for argument in expr.arguments:
        if argument.type.is_decimal and expr.function in _SUMS:
            precision, scale = argument.type.decimal_parameters
            if precision + 31 > 38 and scale > 6:
                return f"{expr} would lose digits when it is multiplied"
    return None


@dataclass(frozen=True)
class Grouped:
    """The groups of a query whose aggregates of different values are grouped by those values.

    The first keys are the query's own. ``different`` are the aggregates that are computed of
    groups; their arguments are columns named like ``value_column`` of the keys' positions.
    """

    keys: tuple[Named, ...]
    aggregates: tuple[Named, ...]
    different: tuple[Named, ...]


def group_by_values(keys: tuple[Named, ...], aggregates: tuple[Named, ...]) -> Grouped:
    """Keys and aggregates with the arguments of aggregates of different values as keys."""
    grouped, plain, different = list(keys), [], []
    for named in aggregates:
        call = named.expr
        assert isinstance(call, AggregateCall)
        if not of_different_values(call):
            plain.append(named)
            continue
        arguments = []
        for argument in call.arguments:
            value = argument
            if call.filter is not None:
                # A NULL counts for nothing.
                value = Call("case", (call.filter, argument), argument.type)
            positions = [at for at, key in enumerate(grouped) if key.expr == value]
            if not positions:
                positions = [len(grouped)]
                grouped.append(Named(f"__value{len(grouped)}", value))
            arguments.append(value_column(positions[0], argument))
        different.append(Named(named.name, replace(call, arguments=tuple(arguments), filter=None)))
    return Grouped(tuple(grouped), tuple(plain), tuple(different))


def value_column(position: int, argument: Expr) -> Column:
    """The column of groups that holds the key at a position."""
    return Column(f"__key{position}", argument.type)
