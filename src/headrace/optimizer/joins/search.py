"""The cheapest order: dynamic programming over connected sets of inputs, bushy trees included.

Paper: Window Join Reordering, Section 6.1, Section 6.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

from headrace.cost.window_joins import JoinCost, JoinLoad, time_span
from headrace.optimizer.joins import largest_window
from headrace.optimizer.joins.containment import NAME as CONTAINMENT
from headrace.optimizer.joins.containment import implied_time, implied_windows
from headrace.optimizer.joins.steps import JoinStep, Refusal, rules_of, steps_of
from headrace.optimizer.safety import key_can_raise
from headrace.plan.join_graph import JoinGraph, inputs_of, left_deep, pairs_of
from headrace.plan.nodes import Order, SameWindow

#: Above this many inputs the search is greedy: sets are then too many to look at.
MOST_INPUTS = 10
#: Up to this many inputs all orders of one input after the other are listed.
MOST_LISTED = 5


@dataclass(frozen=True)
class JoinOrder:
    """A valid order with what it computes; its cost is None while rates are unknown."""

    order: Order
    steps: tuple[JoinStep, ...]
    cost: float | None

    @property
    def rules(self) -> tuple[str, ...]:
        return rules_of(self.steps)


def join_cost(graph: JoinGraph, load: JoinLoad) -> JoinCost:
    """The cost model of a graph under a load."""
    spans: dict[tuple[int, int], float | None] = {}
    windows: set[tuple[int, int]] = set()
    nested = implied_windows(graph)
    for one in range(len(graph.leaves)):
        for other in range(one + 1, len(graph.leaves)):
            written = [edge.time for edge in graph.times if {edge.left, edge.right} == {one, other}]
            implied = implied_time(graph, one, other)
            candidates = written or ([] if implied is None else [implied])
            known = [span for time in candidates if (span := time_span(time)) is not None]
            spans[one, other] = min(known, default=None)
            if (one, other) in nested or any(
                isinstance(time, SameWindow) and time.window.overlap == 1 for time in written
            ):
                windows.add((one, other))
    return JoinCost(graph, load, spans, frozenset(windows))


def cost_of(order: Order, costs: JoinCost) -> float:
    """Seconds per millisecond of the streams' time."""
    return sum(costs.join(_mask(left), _mask(right)) for left, right in pairs_of(order))


def best_order(
    graph: JoinGraph, load: JoinLoad, disabled: frozenset[str] = frozenset()
) -> JoinOrder:
    """The cheapest valid order under a load."""
    costs = join_cost(graph, load)
    ties = _Ties(graph, disabled)
    order = _exact(costs, ties) if len(graph.leaves) <= MOST_INPUTS else _greedy(costs, ties)
    if order is not None:
        steps = steps_of(graph, order, disabled)
        if not isinstance(steps, Refusal):
            return JoinOrder(order, steps, cost_of(order, costs))
    return as_written(graph, load)


def as_written(graph: JoinGraph, load: JoinLoad | None = None) -> JoinOrder:
    """The order of the query's text, which is always valid."""
    steps = steps_of(graph, graph.written)
    if isinstance(steps, Refusal):
        # Only a product of inputs comes to this, and it is what the user asked for.
        steps = ()
    cost = None if load is None else cost_of(graph.written, join_cost(graph, load))
    return JoinOrder(graph.written, steps, cost)


def runs_as_written(graph: JoinGraph) -> bool:
    """Whether another order might fail for rows that a join before would have dropped."""
    risky = any(key_can_raise(edge.left_key, edge.right_key) for edge in graph.keys)
    return len(graph.leaves) > 2 and risky


def listed_orders(
    graph: JoinGraph, load: JoinLoad | None, disabled: frozenset[str] = frozenset()
) -> list[JoinOrder]:
    """Valid orders for people, best first: by cost, or by window parameters while rates are
    unknown. All that add one input after the other where there are few inputs; of more, the best
    one that begins with each pair."""
    costs = None if load is None else join_cost(graph, load)
    orders: dict[Order, None] = {graph.written: None}
    if load is not None:
        orders[best_order(graph, load, disabled).order] = None
    orders |= dict.fromkeys(_sequences(graph, costs, disabled))
    found = []
    for order in orders:
        steps = steps_of(graph, order, disabled)
        if not isinstance(steps, Refusal):
            found.append(JoinOrder(order, steps, None if costs is None else cost_of(order, costs)))
    if not found:
        return [as_written(graph, load)]
    rank = _by_windows if costs is None else (lambda order: (order.cost or 0.0,))
    # Sorting is stable: of equals, the one written comes first.
    return sorted(found, key=rank)


def best_without_statistics(graph: JoinGraph, disabled: frozenset[str] = frozenset()) -> JoinOrder:
    """The order by window parameters alone: the most selective windows first (Section 6.2)."""
    if len(graph.leaves) <= MOST_LISTED:
        return listed_orders(graph, None, disabled)[0]
    # As if all streams were alike: with few rows in a window, small windows first.
    load = JoinLoad((1e-6,) * len(graph.leaves), {}, 3.6e6)
    chosen = best_order(graph, load, disabled)
    return JoinOrder(chosen.order, chosen.steps, None)


def _by_windows(order: JoinOrder) -> tuple[float, ...]:
    """Spans of an order's joins, earliest first; an unbounded one is the worst."""
    spans = []
    for step in order.steps:
        known = [span for time in step.conditions if (span := time_span(time)) is not None]
        spans.append(min(known, default=float("inf")))
    return tuple(spans)


def _sequences(
    graph: JoinGraph, costs: JoinCost | None, disabled: frozenset[str]
) -> Iterator[Order]:
    count = len(graph.leaves)
    if count <= MOST_LISTED:
        for sequence in permutations(range(count)):
            yield left_deep(sequence)
        return
    if costs is None:
        return
    ties = _Ties(graph, disabled)
    for one in range(count):
        for other in range(one + 1, count):
            if ties.tied(1 << one, 1 << other):
                yield left_deep(_extended([one, other], costs, ties))


def _extended(sequence: list[int], costs: JoinCost, ties: _Ties) -> list[int]:
    """The cheapest next input, again and again."""
    rest = set(range(len(costs.graph.leaves))) - set(sequence)
    mask = sum(1 << index for index in sequence)
    while rest:
        tied = [index for index in sorted(rest) if ties.tied(mask, 1 << index)] or sorted(rest)
        index = min(tied, key=lambda i: costs.join(mask, 1 << i))
        sequence.append(index)
        rest.remove(index)
        mask |= 1 << index
    return sequence


def _mask(order: Order) -> int:
    return sum(1 << index for index in inputs_of(order))


class _Ties:
    """Which sets of inputs may be joined, decided by masks of bits."""

    def __init__(self, graph: JoinGraph, disabled: frozenset[str]) -> None:
        count = len(graph.leaves)
        #: For each input, those that it may be joined with first.
        self._partners = [0] * count
        for one in range(count):
            for other in range(count):
                if one != other and self._pair_allowed(graph, one, other, disabled):
                    self._partners[one] |= 1 << other

    @staticmethod
    def _pair_allowed(graph: JoinGraph, one: int, other: int, disabled: frozenset[str]) -> bool:
        left, right = frozenset((one,)), frozenset((other,))
        written = any(edge.joins(left, right) for edge in graph.times)
        if written:
            return True
        if not graph.shares_key(left, right):
            return False
        if not graph.timed:
            return True
        nested = (one, other) in implied_windows(graph)
        return (largest_window.FIRST if nested else CONTAINMENT) not in disabled

    def tied(self, left: int, right: int) -> bool:
        return any(
            partners & right for index, partners in enumerate(self._partners) if left >> index & 1
        )


def _exact(costs: JoinCost, ties: _Ties) -> Order | None:
    """The best tree of every connected set, from small sets to large ones."""
    count = len(costs.graph.leaves)
    best: dict[int, tuple[float, Order]] = {1 << i: (0.0, i) for i in range(count)}
    for mask in range(1, 1 << count):
        if mask in best:
            continue
        # Each split once: the lowest input is on the left.
        lowest = mask & -mask
        rest = mask ^ lowest
        part = rest
        while part:
            left, right = mask ^ part, part
            part = (part - 1) & rest
            if left not in best or right not in best or not ties.tied(left, right):
                continue
            cost = best[left][0] + best[right][0]
            known = best.get(mask)
            if known is not None and cost >= known[0]:
                continue
            cost += costs.join(left, right)
            if known is None or cost < known[0]:
                best[mask] = cost, (best[left][1], best[right][1])
    found = best.get((1 << count) - 1)
    return None if found is None else found[1]


def _greedy(costs: JoinCost, ties: _Ties) -> Order:
    """Join the two sets whose join is cheapest, again and again."""
    parts: dict[int, Order] = {1 << i: i for i in range(len(costs.graph.leaves))}
    while len(parts) > 1:
        masks = list(parts)
        pairs = [(a, b) for i, a in enumerate(masks) for b in masks[i + 1 :]]
        tied = [pair for pair in pairs if ties.tied(*pair)] or pairs
        left, right = min(tied, key=lambda pair: costs.join(*pair))
        parts[left | right] = parts.pop(left), parts.pop(right)
    return next(iter(parts.values()))
