"""What an order computes: its joins one by one, with their conditions and the rules behind them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.cost.window_joins import time_span
from headrace.optimizer.joins import boundary_swap, largest_window, time_propagation
from headrace.optimizer.joins.containment import NAME as CONTAINMENT
from headrace.optimizer.joins.containment import implied_time
from headrace.plan.expressions import Expr
from headrace.plan.join_graph import JoinGraph, inputs_of, order_text, pairs_of
from headrace.plan.nodes import JoinTime, Order, SameWindow

#: The rules by which an order may differ from the one written. Each can be turned off by name.
RULES = (
    boundary_swap.NAME,
    largest_window.FIRST,
    time_propagation.NAME,
    CONTAINMENT,
)


@dataclass(frozen=True)
class JoinStep:
    """One join of an order.

    ``times`` are the conditions of the query that can be checked here, read from left to right.
    Where there is none, ``implied`` is what follows from those that come later.
    """

    left: Order
    right: Order
    keys: tuple[tuple[Expr, Expr], ...]
    times: tuple[JoinTime, ...]
    implied: JoinTime | None
    predicates: tuple[Expr, ...]
    rules: frozenset[str]

    @property
    def conditions(self) -> tuple[JoinTime, ...]:
        return self.times or (() if self.implied is None else (self.implied,))


@dataclass(frozen=True)
class InvalidOrder:
    """Why an order is not valid."""

    reason: str


def steps_of(
    graph: JoinGraph, order: Order, disabled: frozenset[str] = frozenset()
) -> tuple[JoinStep, ...] | InvalidOrder:
    """The joins of an order, or why it cannot be taken."""
    if sorted(inputs_of(order)) != list(range(len(graph.leaves))):
        return InvalidOrder(f"an order names each of {', '.join(graph.names)} once")
    written = {_side_sets(pair) for pair in pairs_of(graph.written)}
    steps: list[JoinStep] = []
    checked: dict[Order, frozenset[int]] = {}
    for left, right in pairs_of(order):
        before = checked.get(left, frozenset()) | checked.get(right, frozenset())
        decidable = frozenset(
            position
            for position, predicate in enumerate(graph.predicates)
            if graph.owners(predicate) <= frozenset(inputs_of((left, right)))
        )
        checked[left, right] = before | decidable
        predicates = tuple(graph.predicates[position] for position in sorted(decidable - before))
        as_written = _side_sets((left, right)) in written
        step = _step(graph, left, right, as_written, predicates)
        refusal = _refused(graph, step, disabled)
        if refusal is not None:
            return refusal
        steps.append(step)
    return tuple(steps)


def rules_of(steps: Iterable[JoinStep]) -> tuple[str, ...]:
    """The rules that made an order possible, in the order of ``RULES``."""
    used = frozenset[str]().union(*(step.rules for step in steps))
    return tuple(rule for rule in RULES if rule in used)


def _side_sets(pair: tuple[Order, Order]) -> frozenset[frozenset[int]]:
    return frozenset(frozenset(inputs_of(side)) for side in pair)


def _step(
    graph: JoinGraph, left: Order, right: Order, as_written: bool, predicates: tuple[Expr, ...]
) -> JoinStep:
    one, other = frozenset(inputs_of(left)), frozenset(inputs_of(right))
    rules: set[str] = set()
    times: list[JoinTime] = []
    for edge in graph.times:
        if not edge.joins(one, other):
            continue
        if edge.left in one:
            times.append(edge.time)
            continue
        times.append(boundary_swap.swapped(edge.time))
        if boundary_swap.is_needed(edge.time):
            rules.add(boundary_swap.NAME)
    implied: JoinTime | None = None
    if times:
        if not as_written:
            rules.add(time_propagation.NAME)
    elif graph.timed:
        implied = _narrowest(graph, one, other)
        nested = isinstance(implied, SameWindow)
        rules.add(largest_window.FIRST if nested else CONTAINMENT)
    return JoinStep(
        left,
        right,
        _keys(graph, one, other),
        tuple(times),
        implied,
        predicates,
        frozenset(rules),
    )


def _narrowest(graph: JoinGraph, one: frozenset[int], other: frozenset[int]) -> JoinTime | None:
    """The implied condition that leaves the fewest pairs, a bound on both sides if there is one."""
    implied = [implied_time(graph, left, right) for left in sorted(one) for right in sorted(other)]
    times = [time for time in implied if time is not None]
    spans = {time: time_span(time) for time in times}
    bounded = [time for time in times if spans[time] is not None]
    if bounded:
        return min(bounded, key=lambda time: spans[time] or 0.0)
    return times[0] if times else None


def _keys(
    graph: JoinGraph, one: frozenset[int], other: frozenset[int]
) -> tuple[tuple[Expr, Expr], ...]:
    """One equality for each class of equal keys that both sides have a part of."""
    keys = []
    for members in graph.key_classes:
        left = next((key for index, key in members if index in one), None)
        right = next((key for index, key in members if index in other), None)
        if left is not None and right is not None:
            keys.append((left, right))
    return tuple(keys)


def _refused(graph: JoinGraph, step: JoinStep, disabled: frozenset[str]) -> InvalidOrder | None:
    left, right = (order_text(side, graph.names) for side in (step.left, step.right))
    if not step.keys and not step.times:
        return InvalidOrder(
            f"{left} and {right} have neither an equal key nor a condition on time in common, so "
            "every row of the one would meet every row of the other"
        )
    off = sorted(step.rules & disabled)
    if off:
        why = {
            boundary_swap.NAME: f"the bounds between {left} and {right} are not equal (Case C4)",
            largest_window.FIRST: f"{left} and {right} share a window only by Case A4",
            time_propagation.NAME: f"joining {left} with {right} moves a time past another join",
            CONTAINMENT: f"no condition on time is between {left} and {right} "
            "(Cases A1, A3, A6 and A7 with a.ts handed on)",
        }
        return InvalidOrder(f"{why[off[0]]}, and the rule {off[0]} is turned off")
    return None
