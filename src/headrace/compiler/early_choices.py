"""The choices of early aggregation that a compilation holds, for explain and for alternatives."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.compiler.physical_plan import PhysicalPlan
from headrace.operators.base import Operator
from headrace.operators.sets.early_choice import EarlyChoice
from headrace.optimizer.early.describe import (
    DescribedEarly,
    LateAggregate,
    aggregates_over_joins,
)
from headrace.optimizer.early.shape import Declined, aggregation_join
from headrace.plan.nodes import Node
from headrace.planner.early_aggregation import EarlyMemory, plan_costs
from headrace.planner.join_order import JoinMemory
from headrace.state.committed import Committed


def describe_early(
    plan: Node, physical: PhysicalPlan, early: EarlyMemory, joins: JoinMemory, state: Committed
) -> list[DescribedEarly | LateAggregate]:
    """Each aggregate over joins: by which plan it is computed, and what the others would cost."""
    found: list[DescribedEarly | LateAggregate] = []
    choices = {choice.shape.node: choice for choice in _choices(physical)}
    for node in aggregates_over_joins(plan):
        choice = choices.get(node)
        if choice is None:
            shape = aggregation_join(node)
            reason = shape.reason if isinstance(shape, Declined) else "as asked for"
            found.append(LateAggregate(node, reason))
            continue
        loads = choice.known_loads(early, joins, state)
        costs = (
            None
            if loads is None
            else plan_costs(choice.shape, loads, choice.policy.tuning, choice.policy.model)
        )
        _, last = early.chosen.get(choice.identity, (0, choice.shape.eligible))
        chosen = last if choice.forced is None else choice.forced
        found.append(DescribedEarly(choice.shape, chosen, choice.forced is not None, costs))
    return found


def _choices(physical: PhysicalPlan) -> Iterator[EarlyChoice]:
    seen: set[int] = set()

    def visit(operator: Operator) -> Iterator[EarlyChoice]:
        if id(operator) in seen:
            return
        seen.add(id(operator))
        choice = getattr(operator, "choice", None)
        if isinstance(choice, EarlyChoice):
            yield choice
        for below in operator.inputs:
            yield from visit(below)
        for store in operator.stores:
            for source in store.inputs():
                yield from visit(source)

    for output in physical.outputs.values():
        yield from visit(output)
