"""Join orders: the work of the orders that were chosen, and of the best that there are.

Work is as the planner's model has it, with rows that are counted instead of estimated: those that
go into each join of an order, those that it compares, and those that come out. How many come out of
joining a set of inputs is the same in every order; so a few orders that between them make every set
tell the work of all orders, bushy ones included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import combinations
from unittest import mock

from benchmarks.choices.measuring import Forced, Measured, Problem
from headrace.cost.join_load import JoinLoad
from headrace.engine.epochs import attempt
from headrace.optimizer.joins.search import best_without_statistics, cost_of, join_cost
from headrace.optimizer.joins.steps import InvalidOrder, steps_of
from headrace.plan.join_graph import (
    JoinGraph,
    inputs_of,
    join_graph,
    order_text,
    pairs_of,
    topmost_joins,
    with_order,
)
from headrace.plan.nodes import Node, Order
from headrace.planner import joined_rows
from headrace.planner.choices import Choices
from headrace.planner.joined_rows import NOTHING, JoinRun
from headrace.planner.policy import PlannerPolicy
from headrace.planner.statistics import RuntimeStatistics

#: All inputs in one pass, so that orders can be compared.
WHOLE = PlannerPolicy(join_passes="whole")
Inputs = frozenset[int]


class JoinedProblem(Problem):
    """In which order the joins of an epoch are computed."""

    def __init__(self, plan: Node) -> None:
        self.plan = plan
        (self.join,) = topmost_joins(plan)
        self.graph: JoinGraph = join_graph(self.join)

    @cached_property
    def orders(self) -> list[Order]:
        """All valid orders, the written one first; those that only exchange sides are one."""
        everything = frozenset(range(len(self.graph.leaves)))
        found = [
            order
            for order in _trees(everything)
            if not isinstance(steps_of(self.graph, order), InvalidOrder)
        ]
        written = _sets(self.graph.written)
        return [self.graph.written, *(order for order in found if _sets(order) != written)]

    def forced(self, chosen: Measured) -> Iterator[Forced]:
        missing = {members for order in self.orders for members in _sets(order)}
        pending = list(self.orders)
        while missing:
            order = max(pending, key=lambda o: len(missing & _sets(o)))
            if len(pending) == len(self.orders):
                order = self.graph.written
            pending.remove(order)
            missing -= _sets(order)
            yield self._forced(order)

    def _forced(self, order: Order) -> Forced:
        name = order_text(order, self.graph.names)
        return Forced(name, with_order(self.plan, self.join, order), WHOLE)

    def blind(self) -> Forced:
        return self._forced(best_without_statistics(self.graph).order)

    @contextmanager
    def watching(self, measured: Measured) -> Iterator[None]:
        learn = joined_rows.learn_joins

        def learn_joins(
            runs: Sequence[JoinRun], epoch: int, statistics: RuntimeStatistics, choices: Choices
        ) -> None:
            for run in runs:
                measured.steps[epoch - 1] = {"load": run.load, "rows": dict(run.found)}
                measured.orders[epoch - 1] = run.order
            learn(runs, epoch, statistics, choices)

        with mock.patch.object(attempt, "learn_joins", learn_joins):
            yield

    def settle(self, runs: Sequence[Measured]) -> None:
        """Work out the work of every epoch of these runs, by what all of them have counted."""
        for run in runs:
            for epoch, order in run.orders.items():
                run.work[epoch] = self._work(order, epoch, runs)

    def best_work(self, runs: Sequence[Measured], epochs: Sequence[int]) -> float:
        return min(self.work_of(order, runs, epochs) for order in self.orders)

    def work_of(self, order: Order, runs: Sequence[Measured], epochs: Sequence[int]) -> float:
        return sum(self._work(order, epoch, runs) for epoch in epochs)

    def _work(self, order: Order, epoch: int, runs: Sequence[Measured]) -> float:
        """Seconds of an order in an epoch, by the rows that each of its joins gave."""
        told = [run.steps[epoch] for run in runs if epoch in run.steps]
        if not told:
            return 0.0
        load: JoinLoad = told[0]["load"]
        rows: dict[Inputs, int] = {}
        for one in told:
            for members, count in one["rows"].items():
                assert rows.setdefault(members, count) == count, "all orders give the same rows"
        seen = {m: max(float(n), NOTHING) / load.stretch for m, n in rows.items()}
        missing = _sets(order) - seen.keys()
        assert not missing, f"no order has joined {missing}"
        return cost_of(order, join_cost(self.graph, replace(load, seen=seen))) * load.stretch


def _sets(order: Order) -> frozenset[Inputs]:
    """The sets of inputs that an order joins."""
    return frozenset(frozenset(inputs_of(pair)) for pair in pairs_of(order))


def _trees(inputs: Inputs) -> Iterator[Order]:
    """All binary trees over some inputs; the one with the first input is the left side."""
    if len(inputs) == 1:
        yield next(iter(inputs))
        return
    first, *others = sorted(inputs)
    for size in range(len(others)):
        for beside in combinations(others, size):
            left = frozenset((first, *beside))
            for one in _trees(left):
                for other in _trees(inputs - left):
                    yield one, other
