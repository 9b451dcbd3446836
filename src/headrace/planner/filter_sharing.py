"""Aggregates that differ in their filters alone, folded into one arrangement of panes.

``SUM(x) … WHERE p`` per group is ``SUM(x) FILTER (WHERE p)`` over the groups of the stream, without
the groups in which no row satisfies ``p``. So many queries with filters of their own can take one
pass over the stream and one store: each adds its filtered partial states, and a mark of the groups
that it has rows in.

Only filters and arguments that cannot raise are folded: they meet rows that they never saw before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from headrace.definitions.partials import Decomposed, Partial, decompose_all
from headrace.optimizer.safety import argument_can_raise, is_movable
from headrace.plan.expressions import AggregateCall, Expr, Named, conjunction, conjuncts
from headrace.plan.nodes import Aggregate, Filter, Node, Source
from headrace.plan.types import BOOLEAN

#: The reserved name of the mark among a query's aggregates.
PRESENT = "__present"


@dataclass(frozen=True)
class FilterShare:
    """A query's share of a store that other filters use too."""

    condition: Expr
    parts: dict[str, Decomposed]
    present: Partial


def stream_below(node: Node) -> tuple[Source, Expr] | None:
    """The stream that a filtered input reads, and its filter."""
    predicates: list[Expr] = []
    while isinstance(node, Filter):
        predicates += conjuncts(node.predicate)
        node = node.input
    condition = conjunction(predicates)
    if isinstance(node, Source) and condition is not None:
        return node, condition
    return None


def can_share_filters(nodes: Iterable[Aggregate]) -> bool:
    """Whether aggregates over one filtered stream may meet the rows that the filter keeps away."""
    for node in nodes:
        below = stream_below(node.input)
        if below is None or not is_movable(below[1]):
            return False
        met = [key.expr for key in node.keys]
        for named in node.aggregates:
            assert isinstance(named.expr, AggregateCall)
            if argument_can_raise(named.expr):
                return False
            met += named.expr.children
        if not all(map(is_movable, met)):
            return False
    return True


def filter_share(node: Aggregate) -> FilterShare:
    """The aggregates of a filtered stream, with the filter in each of them."""
    below = stream_below(node.input)
    assert below is not None
    _, condition = below
    parts = decompose_all(Named(a.name, _within(a.expr, condition)) for a in node.aggregates)
    mark = AggregateCall("bool_or", (condition,), BOOLEAN)
    marked = decompose_all((Named(PRESENT, mark),))
    assert parts is not None
    assert marked is not None
    (present,) = marked[PRESENT].partials
    return FilterShare(condition, parts | marked, present)


def _within(call: Expr, condition: Expr) -> AggregateCall:
    assert isinstance(call, AggregateCall)
    both = [condition, *([] if call.filter is None else [call.filter])]
    return replace(call, filter=conjunction(both))
