"""How many values the keys of joins take, where only some of them were counted.

One key that is computed, or was not counted yet, is no reason to order joins by nothing. What is
not counted is taken, in this order,

- from the expression, where its form bounds it: ``k % 10`` has ten values, ``hour(ts)`` 24;
- from the other keys that it is equal to in the query: they are of one domain, and the largest
  count comes closest to it;
- otherwise such that a row finds one partner in a typical window.

No key takes more values than there are rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log

from headrace.cost.join_load import KeyEnd
from headrace.cost.window_joins import time_span
from headrace.plan.expressions import COMPARISONS, Call, Cast, Expr, Literal
from headrace.plan.join_graph import JoinGraph

_PARTS_OF_TIME = {
    "month": 12,
    "quarter": 4,
    "day": 31,
    "dayofmonth": 31,
    "dayofweek": 7,
    "hour": 24,
    "minute": 60,
    "second": 60,
}
_TRUTHS = COMPARISONS | {"and", "or", "not", "isnull", "isnotnull", "in", "like"}


def key_counts(
    graph: JoinGraph,
    rates: Sequence[float],
    stretch: float,
    counted: Mapping[KeyEnd, float | None],
) -> dict[KeyEnd, float]:
    """A number for every key, of inputs with these rows per millisecond over a stretch of time."""
    counts_by_end: dict[KeyEnd, float] = {}
    partners = _partners(graph, rates)
    for position, members in enumerate(graph.key_classes):
        least: dict[int, float] = {}
        for index, key in members:
            count = counted.get((index, position))
            bound = bounded_values(key)
            if count is None and bound is not None:
                count = float(bound)
            if count is not None:
                # An input may have two keys of a class: rows have both, so the fewer values count.
                least[index] = min(count, least.get(index, count))
        usual = max(least.values()) if least else partners
        for index, _ in members:
            most = max(1.0, rates[index] * stretch)
            counts_by_end[index, position] = min(max(least.get(index, usual), 1.0), most)
    return counts_by_end


def bounded_values(key: Expr) -> int | None:
    """How many values an expression takes at most, as far as its form tells.

    >>> from headrace.plan.expressions import Column
    >>> from headrace.plan.types import BIGINT
    >>> bounded_values(Call("pmod", (Column("k", BIGINT), Literal(10, BIGINT)), BIGINT))
    10
    """
    match key:
        case Literal():
            return 1
        case Cast(argument=argument):
            return bounded_values(argument)
        case Call(function="pmod" | "mod", arguments=(_, Literal(value=int(step)))) if step:
            return abs(step)
        case Call(function="%", arguments=(_, Literal(value=int(step)))) if step:
            # Remainders have the sign of what is divided, and most numbers are positive.
            return abs(step)
        case Call(function=function) if function in _TRUTHS:
            return 2
        case Call(function=function):
            return _PARTS_OF_TIME.get(function)
        case _:
            return None


def typical_span(graph: JoinGraph) -> float | None:
    """The time of another input that a row usually meets; None where nothing bounds any."""
    spans = [
        span for edge in graph.times if (span := time_span(edge.time)) is not None and span > 0
    ]
    return exp(sum(map(log, spans)) / len(spans)) if spans else None


def _partners(graph: JoinGraph, rates: Sequence[float]) -> float:
    """How many rows come in a typical window, of an input of the usual rate."""
    flowing = [rate for rate in rates if rate > 0]
    span = typical_span(graph)
    if not flowing or span is None:
        return 1.0
    return max(1.0, span * exp(sum(map(log, flowing)) / len(flowing)))
