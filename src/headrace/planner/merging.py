"""Which queries run as one, wholly or in part: the global plan, as the planner holds it.

Paper: Query Merging, Section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.cost.rows import flow_cost
from headrace.merge.rewriting import Merging
from headrace.plan.nodes import Node, Sink
from headrace.plan.text import plan_text
from headrace.planner.decision import PlannedQuery
from headrace.planner.policy import PlannerPolicy
from headrace.stats.catalog import Statistics


class Merges(Protocol):
    """Who gives each query the plan that it runs, merged with those of the others."""

    def update(
        self,
        queries: Mapping[str, Sink],
        ran: Mapping[str, Node],
        apart: Collection[str],
        late: Collection[str],
        /,
    ) -> dict[str, Sink]: ...


def begin_merging(policy: PlannerPolicy, streams: Callable[[], Statistics]) -> Merging:
    """Nothing merged yet; ``streams`` tells what is known of the streams at the time."""
    return Merging(
        policy.merge_strategy,
        policy.merge_unbounded,
        policy.merge_solver_steps,
        lambda plan: flow_cost(plan, streams()).figure.number,
    )


class TrialMerge:
    """Merges one query more, as if it came now, and leaves those that run as they are."""

    def __init__(self, running: Merging) -> None:
        self._running = running

    def update(
        self,
        queries: Mapping[str, Sink],
        ran: Mapping[str, Node],
        apart: Collection[str],
        late: Collection[str],
    ) -> dict[str, Sink]:
        return self._running.tried(queries)


@dataclass(frozen=True)
class DescribedMerge:
    """What became of a query beside the others: who has its rows too, and the plan that it runs."""

    own: Node
    plan: Node
    equals: tuple[str, ...]

    @property
    def text(self) -> str:
        lines = []
        if self.equals:
            lines.append(f"computed once, with {', '.join(self.equals)}")
        if self.plan != self.own:
            lines.append("runs by what is shared with others:")
            lines += [f"   {line}" for line in plan_text(self.plan).splitlines()]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {"equals": list(self.equals), "plan": plan_text(self.plan)}


def describe(query: PlannedQuery) -> list[DescribedMerge]:
    """How a query was merged; nothing where it runs as it would alone."""
    if not query.equals and query.plan == query.own:
        return []
    return [DescribedMerge(query.own, query.plan, query.equals)]
