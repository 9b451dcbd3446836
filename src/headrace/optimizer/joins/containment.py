"""Containment: what conditions on the times of some pairs say about the times of others.

The paper leaves overlapping sliding joins and interval joins only conditionally associative: under
(a, b) and (a, c) there is no window for (b, c). Seen as predicates on pairs there is a bound. From
|b - a| <= x and |c - a| <= y follows |c - b| <= x + y. So b and c may be joined first under that
wider bound, which loses no pair that has an a, and the conditions with a are checked when a comes.
Every order is valid then, under multiset semantics. ``docs/join-order.md`` has the proof.

Sessions are no predicates on pairs, and stay out of this.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from headrace.optimizer.joins.largest_window import implied_window
from headrace.plan.expressions import Column
from headrace.plan.join_graph import JoinGraph
from headrace.plan.nodes import IntervalBound, JoinTime, SameWindow
from headrace.plan.types import TIMESTAMP
from headrace.plan.windows import Hopping

NAME = "containment"

Pair = tuple[int, int]


def implied_bound(graph: JoinGraph, left: int, right: int) -> IntervalBound | None:
    """The bound on the times of two inputs that follows from all conditions; None without one.

    Windows are exact to the millisecond and times to the microsecond: what is cut off on each of
    the conditions in between is less than a millisecond, and is added here.
    """
    reach = graph.reaches[left][right]
    if reach.before is None and reach.after is None:
        return None
    slack = len(graph.leaves)
    return IntervalBound(
        _time(graph, left),
        _time(graph, right),
        None if reach.before is None else -reach.before - slack,
        None if reach.after is None else reach.after + slack,
    )


@lru_cache(maxsize=1_000)
def implied_windows(graph: JoinGraph) -> Mapping[Pair, Hopping]:
    """Pairs of inputs that share a window of which no condition speaks (largest window first)."""
    count = len(graph.leaves)
    narrowest: dict[Pair, Hopping] = {}
    for edge in graph.times:
        if isinstance(edge.time, SameWindow) and edge.bounds and edge.time.window.overlap == 1:
            _keep_narrowest(narrowest, edge.left, edge.right, edge.time.window)
    for middle in range(count):
        for one in range(count):
            for other in range(count):
                first, second = narrowest.get((one, middle)), narrowest.get((middle, other))
                if one == other or first is None or second is None:
                    continue
                window = implied_window(first, second)
                if window is not None:
                    _keep_narrowest(narrowest, one, other, window)
    return narrowest


def _keep_narrowest(narrowest: dict[Pair, Hopping], one: int, other: int, window: Hopping) -> None:
    for pair in ((one, other), (other, one)):
        present = narrowest.get(pair)
        if present is None or window.length < present.length:
            narrowest[pair] = window


def implied_time(graph: JoinGraph, left: int, right: int) -> JoinTime | None:
    """The tightest implied condition on two inputs: a shared window, else a bound."""
    window = implied_windows(graph).get((left, right))
    if window is not None:
        return SameWindow(_time(graph, left), _time(graph, right), window)
    return implied_bound(graph, left, right)


def _time(graph: JoinGraph, index: int) -> Column:
    return Column(graph.leaves[index].time, TIMESTAMP)
