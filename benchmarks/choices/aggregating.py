"""Early aggregation: the work of the inputs that were chosen, and of every other choice.

Work is as the planner's model has it (``cost.early_aggregation``), with rows that are counted
instead of estimated: those that are grouped before they are stored, that are stored, that the joins
read, and that come out of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf

from benchmarks.choices.measuring import Forced, Measured, Problem
from headrace.cost.early_aggregation import Tuning, choices, plan_name
from headrace.optimizer.early.shape import AggregationJoin, aggregation_join, with_early
from headrace.plan.nodes import Aggregate, Node
from headrace.planner.policy import PlannerPolicy

TUNING = Tuning()


class EarlyProblem(Problem):
    """Which inputs are aggregated before the join."""

    def __init__(self, plan: Node) -> None:
        self.plan = plan
        (self.node,) = (node for node in plan.walk() if isinstance(node, Aggregate))
        shape = aggregation_join(self.node)
        assert isinstance(shape, AggregationJoin)
        self.shape = shape

    def forced(self, chosen: Measured) -> Iterator[Forced]:
        """Aggregated late first, as the query is written."""
        for early in choices(self.shape.eligible):
            names = ", ".join(self.shape.names[index] for index in sorted(early)) or "none"
            name = plan_name(early, len(self.shape.names))
            yield Forced(name, with_early(self.plan, self.node, names), PlannerPolicy())

    def blind(self) -> Forced:
        return Forced("without statistics", self.plan, PlannerPolicy(least_gain=inf))

    @contextmanager
    def watching(self, measured: Measured) -> Iterator[None]:
        yield

    def settle(self, runs: Sequence[Measured]) -> None:
        for run in runs:
            run.work = {epoch: _work(run, epoch) for epoch in run.counted}

    def best_work(self, runs: Sequence[Measured], epochs: Sequence[int]) -> float:
        return min(run.work_of(epochs) for run in runs)


def _work(run: Measured, epoch: int) -> float:
    storing, answering = run.counted[epoch].storing, run.counted[epoch].answering
    return (
        TUNING.group * storing.grouped
        + TUNING.update * storing.written
        + TUNING.probe * answering.scanned
        + TUNING.pair * answering.joined
    )
