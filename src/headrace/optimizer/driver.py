"""Runs the rules: recursion, fixed points, checks and the trace are here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.errors import PlanError
from headrace.optimizer.rule import Rule, Stage
from headrace.plan.nodes import Node
from headrace.plan.times import event_times

# A stage that needs more passes than this has rules that undo each other. Ordinary plans need
# about as many passes as they are deep.
MOST_PASSES = 100


@dataclass(frozen=True)
class Firing:
    """One use of a rule: the subplan it met and what it put there."""

    before: Node
    after: Node


@dataclass(frozen=True)
class RuleApplication:
    """One rule over the whole plan, in one pass of its stage."""

    stage: str
    rule: str
    number: int
    firings: tuple[Firing, ...]
    plan: Node

    @property
    def changed(self) -> bool:
        return bool(self.firings)


@dataclass(frozen=True)
class Trace:
    """All that happened to a plan, in order."""

    start: Node
    steps: tuple[RuleApplication, ...]

    @property
    def fired(self) -> dict[str, int]:
        """How often each rule that did something fired."""
        counts: dict[str, int] = {}
        for step in self.steps:
            if step.firings:
                counts[step.rule] = counts.get(step.rule, 0) + len(step.firings)
        return counts


@dataclass(frozen=True)
class Optimized:
    """The plan to run and how it came about."""

    plan: Node
    trace: Trace


def run_stages(
    plan: Node, stages: Iterable[Stage], disabled: frozenset[str] = frozenset()
) -> Optimized:
    """Run each stage to its fixed point, without the rules named in ``disabled``."""
    stages = tuple(stages)
    rule_names = {rule.name for stage in stages for rule in stage.rules}
    unknown = sorted(disabled - rule_names)
    if unknown:
        raise PlanError(
            f"no rule is named {', '.join(unknown)}",
            hint=f"the rules are {', '.join(sorted(rule_names))}",
        )
    steps: list[RuleApplication] = []
    current = plan
    for stage in stages:
        for number in range(1, MOST_PASSES + 1):
            before = current
            for rule in stage.rules:
                if rule.name in disabled:
                    continue
                current, firings = apply_rule(current, rule)
                steps.append(RuleApplication(stage.name, rule.name, number, firings, current))
            if current == before:
                break
        else:
            raise PlanError(f"the rules of the stage {stage.name!r} do not come to an end")
    return Optimized(current, Trace(plan, tuple(steps)))


def apply_rule(plan: Node, rule: Rule) -> tuple[Node, tuple[Firing, ...]]:
    """The rule at every node of the plan once, inputs first."""
    firings: list[Firing] = []
    # A shared subplan is rewritten once, and stays shared.
    done: dict[Node, Node] = {}

    def rewritten(node: Node) -> Node:
        after = rule.rewrite(node)
        if after is None or after == node:
            return node
        _check(rule, node, after)
        firings.append(Firing(node, after))
        return after

    def visit(node: Node) -> Node:
        if node not in done:
            inputs = tuple(visit(child) for child in node.inputs)
            done[node] = rewritten(node if inputs == node.inputs else node.with_inputs(inputs))
        return done[node]

    result = rewritten(plan) if rule.on_whole_plan else visit(plan)
    return result, tuple(firings)


def _check(rule: Rule, before: Node, after: Node) -> None:
    if after.schema != before.schema:
        raise PlanError(
            f"the rule {rule.name} changed the columns from ({before.schema}) to ({after.schema})"
        )
    lost = {
        name: lag
        for name, lag in event_times(before).items()
        if event_times(after).get(name, lag + 1) > lag
    }
    if lost:
        raise PlanError(f"the rule {rule.name} lost the event time of {', '.join(sorted(lost))}")
