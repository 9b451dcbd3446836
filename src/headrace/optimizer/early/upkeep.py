"""Whether the output of an aggregation join can be kept up to date by what its windows lose.

Where inputs have windows of their own, rows leave them, and pairs with them. Counts, and sums of
whole numbers and decimals, are subtracted. Of an extreme, or a sum of doubles, it is not known what
is left once a pair is gone; these are computed from all pairs.

And what may fail must not be computed of pairs that never were: on the way from one watermark to
the next a row that has entered one window meets rows that have just left another.

Paper: Early Aggregation, Section 4, Definition 4.
"""

from __future__ import annotations

from headrace.optimizer.early.guards import may_fail
from headrace.optimizer.early.sets import early_sets
from headrace.optimizer.early.shape import AggregationJoin
from headrace.plan.expressions import AggregateCall

#: The ways in which an output may follow its windows: joined anew, or kept up to date.
ANEW, KEPT = "anew", "incremental"


def why_joined_anew(shape: AggregationJoin) -> str | None:
    """Why the output cannot follow its windows; None where it can."""
    if shape.different:
        return f"{shape.different[0].name} is of different values"
    factored = early_sets(shape).factored
    if factored:
        first = shape.aggregates[min(factored)].expr
        return f"{first} is made of factors, which are not subtracted"
    for named in shape.aggregates:
        assert isinstance(named.expr, AggregateCall)
        if not is_subtracted(named.expr):
            return f"{named.expr} cannot be told from what leaves a window"
    computed = [named.expr for named in (*shape.keys, *shape.aggregates)]
    for expr in (*computed, *shape.graph.predicates):
        if may_fail(expr):
            return f"{expr} may fail for rows that are never in their windows together"
    return None


def is_subtracted(aggregate: AggregateCall) -> bool:
    """Whether its value for rows that are left follows from all rows and from those that are gone.

    An average of whole numbers is made of an exact sum where a window moves.
    """
    if aggregate.distinct:
        return False
    if aggregate.function in ("count", "count_if"):
        return True
    if aggregate.function not in ("sum", "avg", "mean"):
        return False
    (argument,) = aggregate.arguments
    return argument.type.is_integer or argument.type.is_decimal
