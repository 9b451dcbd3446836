"""What ``explain`` tells of a query's joins: the order, those that it could have, and why not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

from headrace.cost.cost import Cost, unknown_cost
from headrace.cost.join_sizes import JoinSizes, mask_of
from headrace.cost.window_joins import JoinLoad
from headrace.names import folded
from headrace.optimizer.joins.properties import Level, cases, classify
from headrace.optimizer.joins.search import (
    MOST_LISTED,
    JoinOrder,
    as_written,
    cost_of,
    join_cost,
    listed_orders,
    runs_as_written,
)
from headrace.optimizer.joins.steps import InvalidOrder, JoinStep, steps_of
from headrace.plan.join_graph import (
    JoinGraph,
    inputs_of,
    join_graph,
    left_deep,
    order_text,
    topmost_joins,
)
from headrace.plan.json import plan_hash
from headrace.plan.nodes import Filter, Join, Node, Order, Project, SameSession, SameWindow
from headrace.plan.text import join_time_text
from headrace.stats.figure import Estimated

UNIT = "s per hour of the streams"
ROWS = "rows per hour"
HOUR = 3_600_000
#: How many orders, and how many refusals, are told in text.
MOST_TOLD = 8


@dataclass(frozen=True)
class DescribedJoin:
    """A graph of joins and its orders, best first. ``refused`` are orders that are not valid."""

    join: Join
    graph: JoinGraph
    level: Level | None
    #: Cases of the paper's Table 2 that say so.
    cases: tuple[str, ...]
    chosen: JoinOrder
    orders: tuple[JoinOrder, ...]
    refused: tuple[tuple[Order, str], ...]
    #: How many rows joins give, while something is known of the streams.
    sizes: JoinSizes | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return self.graph.names

    def name(self, order: JoinOrder) -> str:
        return order_text(order.order, self.names)

    @property
    def text(self) -> str:
        lines = [f"{', '.join(self.names)}: {self._possible()}"]
        lines += [f"   {line}" for line in self._steps()]
        others = [order for order in self.orders if order.order != self.chosen.order]
        if others:
            lines.append("   instead of")
            lines += [f"      {line}" for line in self._others(others[:MOST_TOLD])]
            if len(others) > MOST_TOLD:
                lines.append(f"      … and {len(others) - MOST_TOLD} more")
        for order, reason in self.refused[:MOST_TOLD]:
            lines.append(f"   not {order_text(order, self.names)}: {reason}")
        return "\n".join(lines)

    def _possible(self) -> str:
        if self.level is None:
            return "equal keys alone, any order that follows them"
        further = "" if self.level is Level.FULL else ", and in any order by containment"
        return f"{self.level.value}{self._by_cases()}{further}"

    def _by_cases(self) -> str:
        if not self.cases:
            return ""
        return f", by case{'s' * (len(self.cases) > 1)} {' and '.join(self.cases)}"

    def _steps(self) -> Iterator[str]:
        yield f"order {self.name(self.chosen)}, {_cost_in_words(self.chosen)}"
        for position, step in enumerate(self.chosen.steps):
            later = self.chosen.steps[position + 1 :]
            yield "   " + step_text(self.graph, step, later) + self._rows_in_words(step)

    def _rows_in_words(self, step: JoinStep) -> str:
        rows, seen = self.hourly_rows(step), self.seen_rows(step)
        predicted = f", gives {rows}" if rows.known else ""
        return f"{predicted}; seen: {seen}" if seen.known else predicted

    def hourly_rows(self, step: JoinStep) -> Cost:
        """Rows that come out of a join, by all that is known of its inputs and of other joins."""
        if self.sizes is None:
            return unknown_cost(ROWS)
        inputs = frozenset(inputs_of((step.left, step.right)))
        load = self.sizes.load
        others = {one: rows for one, rows in load.seen.items() if not inputs <= one}
        sizes = JoinSizes(self.graph, replace(load, seen=others), self.sizes.spans)
        return Cost(Estimated(sizes.rows(mask_of(inputs)) * HOUR), ROWS)

    def seen_rows(self, step: JoinStep) -> Cost:
        """Rows that came out of a join when it ran last."""
        seen = {} if self.sizes is None else self.sizes.load.seen
        rows = seen.get(frozenset(inputs_of((step.left, step.right))))
        return unknown_cost(ROWS) if rows is None else Cost(Estimated(rows * HOUR), ROWS)

    def _others(self, orders: list[JoinOrder]) -> Iterator[str]:
        names = [self.name(order) for order in orders]
        width = max(map(len, names))
        for name, order in zip(names, orders, strict=True):
            rules = ", ".join(order.rules) or "as written"
            cost = "" if order.cost is None else f"cost {hourly_cost(order)}  "
            yield f"{name.ljust(width)}  {cost}({rules})"

    def to_json(self) -> dict[str, Any]:
        return {
            "inputs": list(self.names),
            "level": None if self.level is None else self.level.value,
            "order": self.name(self.chosen),
            "joins": [
                {
                    "left": order_text(step.left, self.names),
                    "right": order_text(step.right, self.names),
                    "rows": self.hourly_rows(step).to_json(),
                    "seen": self.seen_rows(step).to_json(),
                }
                for step in self.chosen.steps
            ],
            "orders": [
                {
                    "order": self.name(order),
                    "cost": hourly_cost(order).to_json(),
                    "rules": list(order.rules),
                }
                for order in self.orders
            ],
            "refused": [
                {"order": order_text(order, self.names), "reason": reason}
                for order, reason in self.refused
            ],
        }


@dataclass(frozen=True)
class FixedJoin:
    """A join that has to stay where it is, and the reason."""

    text: str

    def to_json(self) -> dict[str, Any]:
        return {"fixed": self.text}


def _cost_in_words(order: JoinOrder) -> str:
    if order.cost is None:
        return "by its windows alone: nothing is known of the streams yet"
    return f"cost {hourly_cost(order)}"


def hourly_cost(order: JoinOrder) -> Cost:
    """Seconds of work for an hour of the streams' own time."""
    if order.cost is None:
        return unknown_cost(UNIT)
    return Cost(Estimated(order.cost * HOUR), UNIT)


def step_text(graph: JoinGraph, step: JoinStep, later: tuple[JoinStep, ...]) -> str:
    """One join of an order: its sides, its condition on time, and the time that it hands on."""
    left, right = (order_text(side, graph.names) for side in (step.left, step.right))
    conditions = " AND ".join(join_time_text(time) for time in step.conditions) or "equal keys"
    implied = " (implied; what is written is checked later)" if step.implied is not None else ""
    text = f"{left} with {right} by {conditions}{implied}"
    inside = frozenset(inputs_of((step.left, step.right)))
    handed = sorted(
        {
            column.name
            for other in later
            for time in other.conditions
            for column in (time.left, time.right)
            if graph.owner(column.name) in inside
        }
    )
    return f"{text}, hands on {', '.join(handed)}" if handed else text


def describe_joins(
    plan: Node,
    loads: Mapping[str, JoinLoad],
    running: Mapping[str, Order],
    disabled: frozenset[str],
    reorder: bool,
) -> list[DescribedJoin | FixedJoin]:
    """All joins of streams in a plan. ``running`` are the orders in which they run at present."""
    described_joins: list[DescribedJoin | FixedJoin] = []
    for join in topmost_joins(plan):
        if not join.emits_window:
            described_joins.append(_described(join, loads, running, disabled, reorder))
    described_joins += [FixedJoin(text) for text in dict.fromkeys(fixed_joins(plan))]
    return described_joins


def _described(
    join: Join,
    loads: Mapping[str, JoinLoad],
    running: Mapping[str, Order],
    disabled: frozenset[str],
    reorder: bool,
) -> DescribedJoin:
    graph = join_graph(join)
    identity = plan_hash(join)
    load = loads.get(identity)
    orders = listed_orders(graph, load, disabled)
    moves = reorder and not runs_as_written(graph)
    wanted = join.order or (running.get(identity) if moves else graph.written)
    chosen = orders[0] if wanted is None else _find(graph, wanted, orders, load)
    times = [edge.time for edge in graph.times]
    level = classify(times) if graph.timed else None
    sizes = None if load is None else join_cost(graph, load).sizes
    return DescribedJoin(
        join,
        graph,
        level,
        cases(times) if graph.timed else (),
        chosen,
        tuple(orders),
        tuple(_refused(graph, disabled)),
        sizes,
    )


def _find(
    graph: JoinGraph, wanted: Order, orders: list[JoinOrder], load: JoinLoad | None
) -> JoinOrder:
    for order in orders:
        if order.order == wanted:
            return order
    steps = steps_of(graph, wanted)
    if isinstance(steps, InvalidOrder):
        return as_written(graph, load)
    return JoinOrder(
        wanted, steps, None if load is None else cost_of(wanted, join_cost(graph, load))
    )


def _refused(graph: JoinGraph, disabled: frozenset[str]) -> Iterator[tuple[Order, str]]:
    """Orders of one input after the other that are not valid; of two that only exchange the sides
    of their first join, one."""
    if len(graph.leaves) > MOST_LISTED:
        return
    for sequence in permutations(range(len(graph.leaves))):
        if sequence[0] > sequence[1]:
            continue
        order = left_deep(sequence)
        steps = steps_of(graph, order, disabled)
        if isinstance(steps, InvalidOrder):
            yield order, steps.reason


def fixed_joins(plan: Node) -> Iterator[str]:
    """Joins whose place cannot change, each with the reason."""
    for node in plan.walk():
        if not isinstance(node, Join) or not (node.left.streams() and node.right.streams()):
            continue
        sides = " and ".join("+".join(sorted(side.streams())) for side in node.inputs)
        if isinstance(node.time, SameSession):
            yield (
                f"{sides}: a session join stays where it is, because its sessions depend on the "
                "rows that were joined before (Case A5); its sides may change places (Case C2)"
            )
        for side in node.inputs:
            below = _handing_on_its_window(side)
            if below is not None:
                yield f"{sides}: stay as written, {_why_windows_stay(below)}"


def _handing_on_its_window(side: Node) -> SameWindow | None:
    """The condition of a join below that hands on its windows, or their ends."""
    while isinstance(side, Filter | Project):
        side = side.input
    if isinstance(side, Join) and side.emits_window and isinstance(side.time, SameWindow):
        return side.time
    return None


def _why_windows_stay(time: SameWindow) -> str:
    if time.window.overlap > 1:
        return (
            "because overlapping windows whose ends are handed on do not associate (Cases A1 and "
            "A3 in processing time)"
        )
    return "because the join below comes out once per window and hands on its end"


def parse_order(graph: JoinGraph, wanted: object) -> Order | str:
    """An order given by names, in pairs or one after the other; a text says what is wrong."""
    positions = {folded(name): position for position, name in enumerate(graph.names)}

    def read(part: object) -> Order | str:
        if isinstance(part, str):
            if folded(part) not in positions:
                return f"{part!r} is none of {', '.join(graph.names)}"
            return positions[folded(part)]
        if not isinstance(part, tuple | list) or not part:
            return f"{part!r} is no order: write names, or pairs of them"
        orders = [read(item) for item in part]
        for order in orders:
            if isinstance(order, str):
                return order
        order_so_far: Order = orders[0]  # type: ignore[assignment]
        for order in orders[1:]:
            order_so_far = (order_so_far, order)  # type: ignore[assignment]
        return order_so_far

    order = read(wanted)
    if not isinstance(order, str) and sorted(inputs_of(order)) != sorted(positions.values()):
        return f"an order names each of {', '.join(graph.names)} once"
    return order
