"""In which order the joins of an epoch are computed, from the rows that are there.

What is known of a join grows as it runs: how many rows of each input there are and over which time
they spread is known of every epoch's files, and how many keys they have is counted in some epochs;
what is not counted, such as a key that is computed, is derived from the rest. Of steps that have
run it is known how many rows they gave, which beats any estimate (``joined_rows``).
No state depends on the order, so it may be another one in every epoch; it changes when that
promises to save something.

Paper: Window Join Reordering, Section 6.2.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from headrace.cost.jobs import SECONDS_PER_JOIN
from headrace.cost.key_counts import key_counts
from headrace.cost.window_joins import JoinLoad
from headrace.optimizer.joins.describe import (
    DescribedJoin,
    FixedJoin,
    describe_joins,
    hourly_cost,
)
from headrace.optimizer.joins.search import (
    JoinOrder,
    as_written,
    best_order,
    best_without_statistics,
    cost_of,
    join_cost,
    runs_as_written,
)
from headrace.optimizer.joins.steps import InvalidOrder, steps_of
from headrace.plan.join_graph import JoinGraph, inputs_of, left_deep, order_text, with_order
from headrace.plan.nodes import Node, Order
from headrace.planner.choices import Choices
from headrace.planner.decision import Alternative, PlannedQuery, RankedPlan
from headrace.planner.joined_rows import plan_name, seen_rows, subject_of
from headrace.planner.policy import PlannerPolicy
from headrace.planner.probe_order import is_probed
from headrace.planner.regret import Promise
from headrace.planner.statistics import RuntimeStatistics


@dataclass(frozen=True)
class InputCardinality:
    """Rows of a join's inputs in an epoch: new ones, and older ones that may meet them.

    ``stretch`` is the milliseconds that they spread over. ``frequent`` are the most frequent values
    of keys, and ``matches`` the shares of combinations that joins of sets of inputs were seen to
    give.
    """

    new: tuple[int, ...]
    old: tuple[int, ...]
    keys: Mapping[tuple[int, int], float | None]
    stretch: float
    frequent: Mapping[tuple[int, int], Mapping[Hashable, float]] = field(default_factory=dict)
    matches: Mapping[frozenset[int], float] = field(default_factory=dict)
    graph: JoinGraph | None = None

    def completed(self, graph: JoinGraph) -> InputCardinality:
        """With a number for every key: one that was not counted is derived from the others."""
        rates = [(n + o) / self.stretch for n, o in zip(self.new, self.old, strict=True)]
        return replace(self, keys=key_counts(graph, rates, self.stretch, self.keys), graph=graph)

    @property
    def known(self) -> bool:
        """Whether there is anything to order joins by: rows, and a number for every key."""
        counts = self.keys.values()
        return any(self.new + self.old) and all(count is not None for count in counts)

    def load(self, driver: int | None = None) -> JoinLoad:
        """Of one pass over all rows, or of the new rows of one input against the others."""
        rows = []
        for index, (new, old) in enumerate(zip(self.new, self.old, strict=True)):
            if driver is None or index > driver:
                rows.append(new + old)
            else:
                rows.append(new if index == driver else old)
        keys = {end: count for end, count in self.keys.items() if count is not None}
        frequent = {end: some for end, some in self.frequent.items() if some}
        rates = tuple(n / self.stretch for n in rows)
        load = JoinLoad(rates, keys, self.stretch, frequent=frequent)
        if self.graph is None or not self.matches:
            return load
        return replace(load, seen=seen_rows(self.graph, load, self.matches))


@dataclass(frozen=True)
class JoinPasses:
    """How the new results of an epoch are found: the order of one pass over everything, or for
    each input with new rows the order in which these meet the others."""

    whole: JoinOrder | None
    terms: Mapping[int, JoinOrder]


def choose_join_orders(
    graph: JoinGraph,
    identity: str,
    forced: Order | None,
    counted: InputCardinality,
    policy: PlannerPolicy,
    statistics: RuntimeStatistics,
    choices: Choices,
) -> JoinPasses:
    """The orders for an epoch."""
    if forced is None and runs_as_written(graph):
        return JoinPasses(as_written(graph), {})
    planner = _Planner(graph, identity, forced, counted, policy, statistics, choices)
    if policy.join_passes == "whole":
        return JoinPasses(planner.whole(), {})
    drivers = [index for index, new in enumerate(counted.new) if new]
    terms = {driver: planner.term(driver) for driver in drivers}
    if policy.join_passes == "auto":
        whole = planner.whole()
        if _one_pass_pays(graph, whole, terms, counted):
            return JoinPasses(whole, {})
    return JoinPasses(None, terms)


@dataclass(frozen=True)
class _Planner:
    """Plans one join of one epoch."""

    graph: JoinGraph
    identity: str
    forced: Order | None
    counted: InputCardinality
    policy: PlannerPolicy
    statistics: RuntimeStatistics
    choices: Choices

    def whole(self) -> JoinOrder:
        """The order of one pass over all rows."""
        load = self.counted.load()
        self.statistics.joins[self.identity] = load
        if self.forced is not None:
            return self._as_asked(self.forced)
        if not self.policy.reorder_joins:
            return as_written(self.graph)
        before = self.choices.join_orders.get(self.identity)
        chosen = self._admitted(None, self._stable(before, self._planned(None, load), load), load)
        if before != chosen.order:
            self._tell(before, chosen.order)
            self.choices.join_orders[self.identity] = chosen.order
        return chosen

    def term(self, driver: int) -> JoinOrder:
        """New rows of one input first, then along the order asked for, or the cheapest."""
        if self.forced is None and self.policy.reorder_joins and self.counted.known:
            load = self.counted.load(driver)
            return self._admitted(driver, self._planned(driver, load), load)
        if self.forced is None:
            return self._as_asked(written_order(self.graph, driver))
        sequence = inputs_of(self.forced)
        return self._as_asked(left_deep(_tied_sequence(self.graph, driver, sequence)))

    def _admitted(self, driver: int | None, chosen: JoinOrder, load: JoinLoad) -> JoinOrder:
        """The order, or the written one after all that was seen of it."""
        written = written_order(self.graph, driver)
        if chosen.cost is None or chosen.order == written:
            return chosen
        promise = Promise(chosen.cost, cost_of(written, join_cost(self.graph, load)))
        subject = subject_of(self.identity, driver)
        if self.statistics.regrets.admits(subject, plan_name(chosen.order), promise):
            return chosen
        return replace(self._as_asked(written), cost=promise.written)

    def _as_asked(self, order: Order) -> JoinOrder:
        steps = steps_of(self.graph, order)
        return JoinOrder(order, () if isinstance(steps, InvalidOrder) else steps, None)

    def _planned(self, driver: int | None, load: JoinLoad) -> JoinOrder:
        """The cheapest order; planned anew only when the load is not what it was."""
        if not self.counted.known:
            return best_without_statistics(self.graph, self.policy.disabled_join_rules)
        key = self.identity, driver, self.policy.disabled_join_rules
        remembered = self.choices.join_plans.get(key)
        if remembered is None or not _alike(remembered[0], load):
            remembered = load, best_order(self.graph, load, self.policy.disabled_join_rules)
            self.choices.join_plans[key] = remembered
        return remembered[1]

    def _stable(self, before: Order | None, planned: JoinOrder, load: JoinLoad) -> JoinOrder:
        """The order as it was, unless the planned one promises enough."""
        if before is None or before == planned.order or planned.cost is None:
            return planned
        steps = steps_of(self.graph, before, self.policy.disabled_join_rules)
        costs = join_cost(self.graph, load)
        stay, change = cost_of(before, costs), cost_of(planned.order, costs)
        enough = stay * (1 - self.policy.least_gain_of_orders)
        if isinstance(steps, InvalidOrder) or change <= enough:
            return planned
        return JoinOrder(before, steps, stay)

    def _tell(self, before: Order | None, after: Order) -> None:
        if before is None and after == self.graph.written:
            return
        names = self.graph.names
        was = "as written" if before is None else order_text(before, names)
        self.choices.changes.append(f"join order {order_text(after, names)} (was {was})")


def written_order(graph: JoinGraph, driver: int | None) -> Order:
    """The order that needs no planner: for new rows of one input, along the one that is written."""
    if driver is None:
        return graph.written
    return left_deep(_tied_sequence(graph, driver, inputs_of(graph.written)))


def _alike(one: JoinLoad, other: JoinLoad) -> bool:
    """Whether two loads are near enough to have the same best order, for all practical purposes."""
    pairs = [*zip(one.rates, other.rates, strict=True)]
    pairs += [(count, other.keys.get(end, 0.0)) for end, count in one.keys.items()]
    pairs += [(rows, other.seen.get(inputs, 0.0)) for inputs, rows in one.seen.items()]
    known_alike = one.frequent == other.frequent and one.seen.keys() == other.seen.keys()
    return known_alike and all(a <= 1.25 * b and b <= 1.25 * a for a, b in pairs)


def _tied_sequence(graph: JoinGraph, driver: int, sequence: tuple[int, ...]) -> list[int]:
    """The driver, then the others as in the sequence, those first that have a condition with
    what is there already."""
    ordered = [driver]
    rest = [index for index in sequence if index != driver]
    while rest:
        present = frozenset(ordered)
        tied = [
            index
            for index in rest
            if any(edge.joins(present, frozenset((index,))) for edge in graph.times)
        ]
        tied = tied or [i for i in rest if graph.shares_key(present, frozenset((i,)))]
        index = (tied or rest)[0]
        ordered.append(index)
        rest.remove(index)
    return ordered


def _one_pass_pays(
    graph: JoinGraph, whole: JoinOrder, terms: Mapping[int, JoinOrder], counted: InputCardinality
) -> bool:
    """Whether joining everything and leaving out what is not new costs less than a term for each
    input: it does unless older rows are many more than new ones."""
    joins = len(graph.leaves) - 1

    def seconds(order: Order, load: JoinLoad) -> float:
        return SECONDS_PER_JOIN * joins + cost_of(order, join_cost(graph, load)) * counted.stretch

    apart = sum(seconds(order.order, counted.load(driver)) for driver, order in terms.items())
    return seconds(whole.order, counted.load()) < apart


def describe(query: PlannedQuery) -> list[DescribedJoin | FixedJoin]:
    """The joins of a query with their orders; those that probe are told by ``probe_order``."""
    return [
        join
        for join in _joins(query, query.plan)
        if isinstance(join, FixedJoin) or not is_probed(join.join, join.graph, query.policy)
    ]


def alternatives(query: PlannedQuery) -> Iterator[RankedPlan]:
    """The other orders that the joins of a query could have."""
    for joins in _joins(query, query.own):
        if isinstance(joins, FixedJoin) or is_probed(joins.join, joins.graph, query.policy):
            continue
        for order in joins.orders:
            info = Alternative(
                f"join order {joins.name(order)}",
                hourly_cost(order),
                ", ".join(order.rules) or "none",
                order is joins.chosen,
                _reason(order),
            )
            yield RankedPlan(info, with_order(query.own, joins.join, order.order))


def _joins(query: PlannedQuery, plan: Node) -> list[DescribedJoin | FixedJoin]:
    return describe_joins(
        plan,
        query.statistics.joins,
        query.choices.join_orders,
        query.policy.disabled_join_rules,
        query.policy.reorder_joins,
    )


def _reason(order: JoinOrder) -> str:
    if any(step.implied is not None for step in order.steps):
        return "a pair by what its other conditions imply"
    return "each pair by a condition of the query"
