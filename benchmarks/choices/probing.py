"""Probe orders: the work of the orders that were chosen, and of the best that there are.

Work is as the planner's model has it, with rows that are counted instead of estimated: a row that
is looked up costs α_q, one that is found α_m. What a step finds depends on the input whose new rows
began, on the inputs they have met and on the next one, but not on the order in which they met
those. So a few fixed orders that between them take every such step tell the work of all orders, and
the best one is found for the new rows of each input by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import permutations
from typing import Any
from unittest import mock

from benchmarks.choices.measuring import Forced, Measured, Problem
from headrace.cost.probing import ProbeTuning
from headrace.optimizer.probing.fixed_order import initial_orders
from headrace.optimizer.probing.graph import ProbeGraph, ProbeSequence
from headrace.plan.join_graph import (
    JoinGraph,
    inputs_of,
    join_graph,
    left_deep,
    topmost_joins,
    with_order,
)
from headrace.plan.nodes import Node
from headrace.planner.policy import PlannerPolicy
from headrace.planner.probe_order import ProbeOrders, Switch, probe_graph
from headrace.stats.probes import EdgeCounts

#: New rows of an input that have met a set of inputs (a mask) and probe another one.
Step = tuple[int, int, int]
TUNING = ProbeTuning()
#: Never more orders than this are run; the last ones take steps that hardly any row gets to.
MOST_RUN = 28


def step_work(counts: EdgeCounts) -> float:
    """Seconds of a step, by the rows that it looked up and found."""
    return TUNING.query * counts.queries + TUNING.match * (counts.rows + counts.wasted)


class ProbedProblem(Problem):
    """In which order the new rows of each input probe the others."""

    def __init__(self, plan: Node) -> None:
        self.plan = plan
        (self.join,) = topmost_joins(plan)
        self.graph: JoinGraph = join_graph(self.join)
        self.probes: ProbeGraph = probe_graph(self.graph)

    def forced(self, chosen: Measured) -> Iterator[Forced]:
        """Fixed orders, the written one first, that between them take every step."""
        drivers = frozenset(driver for steps in chosen.steps.values() for driver, _, _ in steps)
        count = len(self.graph.leaves)
        written = inputs_of(self.graph.written)
        missing = set(self._steps(drivers))
        pending = [written, *(o for o in permutations(range(count)) if o != written)]
        order = written
        for _ in range(MOST_RUN):
            missing -= self._taken(order, drivers)
            yield self._forced(order)
            if not missing:
                return
            order = max(pending, key=lambda o: len(missing & self._taken(o, drivers)))

    def all_forced(self) -> Iterator[Forced]:
        return map(self._forced, permutations(range(len(self.graph.leaves))))

    def _forced(self, order: Sequence[int]) -> Forced:
        name = " ".join(self.graph.names[index] for index in order)
        return Forced(name, with_order(self.plan, self.join, left_deep(order)), PlannerPolicy())

    def blind(self) -> Forced:
        written = self.graph.written
        name = " ".join(self.graph.names[index] for index in inputs_of(written))
        return Forced(name, with_order(self.plan, self.join, written), PlannerPolicy())

    def _taken(self, order: Sequence[int], drivers: frozenset[int]) -> set[Step]:
        sequences = initial_orders(self.probes, tuple(order))
        return {step for d in drivers for step in steps_of_sequence(d, sequences[d])}

    def _steps(self, drivers: frozenset[int]) -> Iterator[Step]:
        for driver in drivers:
            reached, todo = {1 << driver}, [1 << driver]
            while todo:
                met = todo.pop()
                for index in range(len(self.graph.leaves)):
                    if not met >> index & 1 and self.probes.pairs(met, driver, index):
                        yield driver, met, index
                        if met | 1 << index not in reached:
                            reached.add(met | 1 << index)
                            todo.append(met | 1 << index)

    @contextmanager
    def watching(self, measured: Measured) -> Iterator[None]:
        learn = ProbeOrders.learn

        def watched(
            orders: ProbeOrders, epoch: int, observed: Sequence[Mapping[str, Any]]
        ) -> list[Switch]:
            steps: dict[Step, EdgeCounts] = {}
            for part in observed:
                for driver, met, _, other, *counts in part["observed"]:
                    step = driver, met, other
                    steps[step] = steps.get(step, EdgeCounts()) + EdgeCounts(*counts)
            measured.steps[epoch - 1] = steps
            measured.work[epoch - 1] = sum(map(step_work, steps.values()))
            return learn(orders, epoch, observed)

        with mock.patch.object(ProbeOrders, "learn", watched):
            yield

    def best_work(self, runs: Sequence[Measured], epochs: Sequence[int]) -> float:
        """The work of the best order for each input's new rows, one for all of these epochs."""
        works: dict[Step, float] = {}
        for step in {s for run in runs for e in epochs for s in run.steps.get(e, ())}:
            # Where no row got that far there is no count, in whichever run there is one.
            works[step] = sum(
                max(
                    (step_work(r.steps[e][step]) for r in runs if step in r.steps.get(e, ())),
                    default=0.0,
                )
                for e in epochs
            )
        return sum(self._best_of(driver, works) for driver in {driver for driver, _, _ in works})

    def _best_of(self, driver: int, works: Mapping[Step, float]) -> float:
        """The cheapest way from one input's new rows to all of them having met all others."""
        everything = self.probes.everything
        least = {1 << driver: 0.0}
        for met in sorted(range(everything + 1), key=int.bit_count):
            if met not in least:
                continue
            for index in range(self.probes.count):
                if met >> index & 1 or not self.probes.pairs(met, driver, index):
                    continue
                reached = least[met] + works.get((driver, met, index), 0.0)
                known = least.get(met | 1 << index)
                if known is None or reached < known:
                    least[met | 1 << index] = reached
        return least[everything]


def steps_of_sequence(driver: int, sequence: ProbeSequence) -> Iterator[Step]:
    met = 1 << driver
    for _, other in sequence:
        yield driver, met, other
        met |= 1 << other
