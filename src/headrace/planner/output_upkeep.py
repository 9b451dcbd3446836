"""Whether the output of windows that move is joined anew, or kept up to date with them.

It is decided in every epoch, after the inputs that are aggregated early: of each choice of these
there is a plan of either kind, and the cheaper one stands for it. What is kept of an output is
dropped in an epoch that joins anew, so a change costs one whole join, and must promise to save
something.

Paper: Early Aggregation, Section 6.1, Figure 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from headrace.cost.cost import Cost, unknown_cost
from headrace.optimizer.early.describe import UNIT, aggregate_text
from headrace.optimizer.early.upkeep import ANEW, KEPT, why_joined_anew
from headrace.plan.nodes import Aggregate, Node
from headrace.planner.choices import Choices
from headrace.planner.decision import Alternative, PlannedQuery, RankedPlan
from headrace.planner.early_aggregation import EarlyChoice, PlanningEpoch, SetLoads, output_costs
from headrace.planner.names import INCREMENTAL_OUTPUT
from headrace.stats.figure import Estimated

_TEXTS = {
    ANEW: "joined anew with each step of the watermark",
    KEPT: "kept up to date by what enters and leaves the windows",
}


@dataclass(frozen=True)
class OutputChoice:
    """How the output of one aggregate follows its windows, which may change in each epoch."""

    early: EarlyChoice

    @cached_property
    def reason(self) -> str | None:
        """Why it is always joined anew; None where there is a choice."""
        return why_joined_anew(self.early.shape)

    @property
    def _forced(self) -> str:
        if self.reason is not None or not self.early.policy.keeps_outputs:
            return ANEW
        return self.early.shape.node.output

    def keeps(self, epoch: PlanningEpoch) -> bool:
        """Whether the output is kept up to date in this epoch."""
        if self._forced:
            return self._forced == KEPT
        inputs = self.early.inputs(epoch)
        loads = self.early.loads(epoch.statistics, epoch.stored_rows)
        return choose_output(self.early, epoch.number, inputs, loads, epoch.choices)

    def described(self, query: PlannedQuery) -> DescribedOutput:
        loads = self.early.loads(query.statistics, query.stored_rows)
        inputs = self.early.chosen(query.choices)
        costs = None if loads is None else costs_of(self.early, inputs, loads)
        _, is_kept = query.choices.outputs.get(self.early.subject, (0, False))
        chosen = self._forced or (KEPT if is_kept else ANEW)
        reason = self.reason
        if reason is None and not self.early.policy.keeps_outputs:
            reason = "the decision is turned off"
        return DescribedOutput(self.early.shape.node, chosen, costs, reason)


def costs_of(early: EarlyChoice, inputs: frozenset[int], loads: SetLoads) -> dict[str, float]:
    """Seconds per millisecond of the streams' time, either way."""
    return output_costs(early.shape, loads, early.policy.early_tuning, inputs)


def choose_output(
    early: EarlyChoice,
    epoch: int,
    inputs: frozenset[int],
    loads: SetLoads | None,
    choices: Choices,
) -> bool:
    """Whether to keep the output up to date in an epoch; not while nothing is known."""
    last, is_kept = choices.outputs.get(early.subject, (0, False))
    if last == epoch:
        return is_kept
    if loads is not None:
        costs = costs_of(early, inputs, loads)
        now, other = (KEPT, ANEW) if is_kept else (ANEW, KEPT)
        if costs[other] <= costs[now] * (1 - early.policy.least_gain):
            saved = 1 - costs[other] / costs[now]
            names = ", ".join(early.shape.names)
            choices.changes.append(
                f"output of {names} {_TEXTS[other]} (was {_TEXTS[now]}, expected to save "
                f"{saved:.0%})"
            )
            is_kept = not is_kept
    choices.outputs[early.subject] = epoch, is_kept
    return is_kept


@dataclass(frozen=True)
class DescribedOutput:
    """How an output follows its windows, for people."""

    node: Aggregate
    chosen: str
    costs: dict[str, float] | None
    reason: str | None

    def cost(self, way: str) -> Cost:
        if self.costs is None:
            return unknown_cost(UNIT)
        return Cost(Estimated(self.costs[way] * 3_600_000), UNIT)

    def _told(self, way: str) -> str:
        cost = self.cost(way)
        return f"{_TEXTS[way]}{f', {cost}' if cost.known else ''}"

    @property
    def text(self) -> str:
        lines = [f"its output is {self._told(self.chosen)}"]
        if self.reason is not None:
            lines.append(f"   always: {self.reason}")
        else:
            other = ANEW if self.chosen == KEPT else KEPT
            lines.append(f"   instead of: {self._told(other)}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "aggregate": aggregate_text(self.node),
            "output": self.chosen,
            "costs": {way: self.cost(way).to_json() for way in (ANEW, KEPT)},
            "reason": self.reason,
        }


def describe(query: PlannedQuery) -> list[DescribedOutput]:
    """The outputs of windows that move, of one query."""
    nodes = set(query.plan.walk())
    return [
        OutputChoice(early).described(query)
        for early in query.early_choices
        if early.output_store and early.shape.node in nodes
    ]


def alternatives(query: PlannedQuery) -> Iterator[RankedPlan]:
    """The output the other way, where there is another."""
    for described in describe(query):
        if described.reason is None and not described.node.output:
            for way in (ANEW, KEPT):
                info = Alternative(
                    f"output {_TEXTS[way]}",
                    described.cost(way),
                    INCREMENTAL_OUTPUT,
                    way == described.chosen,
                    "Figure 5 of the paper" if way == KEPT else "whole sets, whole windows",
                )
                yield RankedPlan(info, with_output(query.own, described.node, way))


def with_output(plan: Node, aggregate: Aggregate, output: str) -> Node:
    """The plan with the way in which an aggregate's output follows its windows."""
    return plan.transform(lambda n: replace(aggregate, output=output) if n == aggregate else n)
