"""In which order the joins of an epoch are computed, from the rows that are there.

What is known of a join grows as it runs: how many rows of each input there are and over which time
they spread is known of every epoch's files, and how many keys they have is counted in some epochs.
No state depends on the order, so it may be another one in every epoch; it changes when that
promises to save something.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.cost.window_joins import JoinLoad
from headrace.optimizer.joins.search import (
    JoinOrder,
    as_written,
    best_order,
    best_without_statistics,
    cost_of,
    join_cost,
)
from headrace.optimizer.joins.steps import Refusal, steps_of
from headrace.plan.join_graph import JoinGraph, inputs_of, left_deep, order_text
from headrace.plan.nodes import Order

#: Seconds for a join in a job of Spark, however few rows it has.
JOIN = 0.04


@dataclass(frozen=True)
class JoinPolicy:
    """What the user asks of join orders.

    ``passes`` forces how the new results of an epoch are found: all inputs in one pass, or the new
    rows of each input against the others. ``least_gain`` is the share of the cost that another
    order must save.
    """

    disabled: frozenset[str] = frozenset()
    passes: str = "auto"
    reorder: bool = True
    least_gain: float = 0.1


@dataclass
class JoinMemory:
    """What was learnt of joins while they ran."""

    #: How many values a column of a store takes, in an epoch.
    keys: dict[tuple[str, str], float] = field(default_factory=dict)
    #: By the hash of a join: the load that it had last, and the order that it ran in.
    loads: dict[str, JoinLoad] = field(default_factory=dict)
    orders: dict[str, Order] = field(default_factory=dict)
    #: Changes of order since they were last asked for.
    changes: list[str] = field(default_factory=list)

    def counted(self, store: str, column: str, keys: float) -> None:
        known = self.keys.get((store, column))
        # Numbers of keys do not add up over epochs: a high one is slowly forgotten.
        self.keys[store, column] = keys if known is None else max(keys, (known + keys) / 2)


@dataclass(frozen=True)
class Counted:
    """Rows of a join's inputs in an epoch: new ones, and older ones that may meet them.

    ``stretch`` is the milliseconds that they spread over.
    """

    new: tuple[int, ...]
    old: tuple[int, ...]
    keys: Mapping[tuple[int, int], float | None]
    stretch: float

    @property
    def known(self) -> bool:
        return all(count is not None for count in self.keys.values())

    def load(self, driver: int | None = None) -> JoinLoad:
        """Of one pass over all rows, or of the new rows of one input against the others."""
        rows = []
        for index, (new, old) in enumerate(zip(self.new, self.old, strict=True)):
            if driver is None or index > driver:
                rows.append(new + old)
            else:
                rows.append(new if index == driver else old)
        keys = {end: count for end, count in self.keys.items() if count is not None}
        return JoinLoad(tuple(n / self.stretch for n in rows), keys, self.stretch)


@dataclass(frozen=True)
class Passes:
    """How the new results of an epoch are found: the order of one pass over everything, or for
    each input with new rows the order in which these meet the others."""

    whole: JoinOrder | None
    terms: Mapping[int, JoinOrder]


def choose(
    graph: JoinGraph,
    identity: str,
    forced: Order | None,
    counted: Counted,
    policy: JoinPolicy,
    memory: JoinMemory,
) -> Passes:
    """The orders for an epoch."""
    whole = _whole_order(graph, identity, forced, counted, policy, memory)
    drivers = [index for index, new in enumerate(counted.new) if new]
    terms = {index: _term_order(graph, index, forced, counted, policy) for index in drivers}
    if policy.passes == "whole" or (
        policy.passes == "auto" and _one_pass_pays(graph, whole, terms, counted)
    ):
        return Passes(whole, {})
    return Passes(None, terms)


def _whole_order(
    graph: JoinGraph,
    identity: str,
    forced: Order | None,
    counted: Counted,
    policy: JoinPolicy,
    memory: JoinMemory,
) -> JoinOrder:
    load = counted.load()
    memory.loads[identity] = load
    if forced is not None:
        steps = steps_of(graph, forced)
        return JoinOrder(forced, () if isinstance(steps, Refusal) else steps, None)
    if not policy.reorder:
        return as_written(graph)
    before = memory.orders.get(identity)
    if not counted.known:
        chosen = best_without_statistics(graph, policy.disabled)
    else:
        chosen = best_order(graph, load, policy.disabled)
        if before is not None and chosen.cost is not None:
            stay = cost_of(before, join_cost(graph, load))
            steps = steps_of(graph, before, policy.disabled)
            if chosen.cost > stay * (1 - policy.least_gain) and not isinstance(steps, Refusal):
                chosen = JoinOrder(before, steps, stay)
    if before != chosen.order:
        if before is not None or chosen.order != graph.written:
            was = "as written" if before is None else order_text(before, graph.names)
            memory.changes.append(f"join order {order_text(chosen.order, graph.names)} (was {was})")
        memory.orders[identity] = chosen.order
    return chosen


def _term_order(
    graph: JoinGraph, driver: int, forced: Order | None, counted: Counted, policy: JoinPolicy
) -> JoinOrder:
    """New rows of one input first, then along the order that is asked for, or the cheapest."""
    if forced is None and policy.reorder and counted.known:
        return best_order(graph, counted.load(driver), policy.disabled)
    sequence = inputs_of(graph.written if forced is None else forced)
    order = left_deep(_tied_sequence(graph, driver, sequence))
    steps = steps_of(graph, order)
    return JoinOrder(order, () if isinstance(steps, Refusal) else steps, None)


def _tied_sequence(graph: JoinGraph, driver: int, sequence: tuple[int, ...]) -> list[int]:
    """The driver, then the others as in the sequence, those first that have a condition with
    what is there already."""
    found = [driver]
    rest = [index for index in sequence if index != driver]
    while rest:
        present = frozenset(found)
        tied = [
            index
            for index in rest
            if any(edge.joins(present, frozenset((index,))) for edge in graph.times)
        ]
        tied = tied or [i for i in rest if graph.shares_key(present, frozenset((i,)))]
        index = (tied or rest)[0]
        found.append(index)
        rest.remove(index)
    return found


def _one_pass_pays(
    graph: JoinGraph, whole: JoinOrder, terms: Mapping[int, JoinOrder], counted: Counted
) -> bool:
    """Whether joining everything and leaving out what is not new costs less than a term for each
    input: it does unless older rows are many more than new ones."""
    joins = len(graph.leaves) - 1

    def seconds(order: Order, load: JoinLoad) -> float:
        return JOIN * joins + cost_of(order, join_cost(graph, load)) * counted.stretch

    apart = sum(seconds(order.order, counted.load(driver)) for driver, order in terms.items())
    return seconds(whole.order, counted.load()) < apart
