"""When a query that joined late has caught up with those that were there before it.

A late joiner must not see rows from before it joined, so at first it is computed apart. Once the
watermark has passed everything that such a row could still be part of, the query sees what every
other one sees, and is merged with those that mean the same.
"""

from __future__ import annotations

from headrace.plan.nodes import Aggregate, Join, Node
from headrace.plan.reach import reach_of
from headrace.plan.times import aggregate_lag
from headrace.plan.windows import Current, Hopping, InheritedWindow, Trailing
from headrace.planner.live_query import LiveQuery
from headrace.planner.warm_up import warm_up


def caught_up_at(query: LiveQuery) -> int | None:
    """The watermark (ms) from which a late joiner sees what all others see; None is never."""
    if query.starts_at is None:
        return None
    lag = 0
    for node in query.sink.walk():
        if not _forgets(node):
            return None
        if isinstance(node, Aggregate):
            lag += aggregate_lag(node)
    # Twice the reach: pairs and windows at its very edge are past, whichever way bounds include.
    return query.starts_at + 2 * warm_up(query.sink.input) + lag + 1


def stays_apart(query: LiveQuery) -> bool:
    """Whether a late joiner never comes to see what all others see."""
    return query.starts_at is not None and caught_up_at(query) is None


def _forgets(node: Node) -> bool:
    """Whether an operator lets go of every row in time."""
    if isinstance(node, Aggregate):
        return all(
            isinstance(window, Hopping | Trailing | Current | InheritedWindow)
            for window in node.windows
        )
    if isinstance(node, Join) and node.left.streams() and node.right.streams():
        reaches = [reach_of(time) for time in node.times]
        return bool(reaches) and all(reach.length is not None for reach in reaches)
    return True
