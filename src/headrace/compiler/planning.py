"""The one way from queries to what runs: merge, lay out, compile.

Running, explaining, checking a new query and naming its stores all come here, so that none of them
can disagree with another.

Paper: Query Merging, Section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.compiler.compilation import Compilation
from headrace.compiler.physical_plan import PhysicalPlan
from headrace.plan.nodes import Node
from headrace.planner.late_joiners import stays_apart
from headrace.planner.live_query import LiveQuery
from headrace.planner.merging import Merges
from headrace.planner.pane_layout import Change, PanePlan, plan_pane_layouts
from headrace.planner.policy import PlannerPolicy
from headrace.planner.statistics import RuntimeStatistics


@dataclass(frozen=True)
class PlanState:
    """What a plan goes on from.

    ``panes`` are the layouts that rows are stored by; ``settled`` says that they stay as they are.
    ``merging`` knows the queries that run already, and may be left out where nothing is merged;
    ``ran`` are the plans that queries ran in an earlier life, by which their state is named.
    ``compilation`` is that of what runs, to go on from.
    """

    panes: PanePlan = field(default_factory=PanePlan)
    settled: bool = False
    merging: Merges | None = None
    ran: Mapping[str, Node] = field(default_factory=dict)
    compilation: Compilation | None = None


NOTHING_RUNS = PlanState()


def plan_all(
    queries: Iterable[LiveQuery],
    state: PlanState = NOTHING_RUNS,
    statistics: RuntimeStatistics | None = None,
    policy: PlannerPolicy | None = None,
) -> PhysicalPlan:
    """What runs for all of these queries together.

    What is decided here holds until queries come or go, or until ``layouts_are_outdated``; join
    orders, probe orders, early aggregation and shared rows are decided within each epoch.
    """
    policy = PlannerPolicy() if policy is None else policy
    statistics = RuntimeStatistics() if statistics is None else statistics
    given = {query.sink.name: query for query in queries}
    live = given
    if state.merging is not None:
        apart = [name for name, query in given.items() if stays_apart(query)]
        sinks = {name: query.sink for name, query in given.items()}
        late = [name for name, query in given.items() if query.starts_at is not None]
        merged = state.merging.update(sinks, state.ran, apart, late)
        live = {n: LiveQuery(merged[n], query.starts_at) for n, query in given.items()}
    panes = state.panes
    changes: list[Change] = []
    if not state.settled:
        plans = distinct_plans(live)
        panes, changes = plan_pane_layouts(
            plans, state.panes, statistics.loads, policy, statistics.regrets
        )
    compilation = Compilation() if state.compilation is None else state.compilation
    physical = compilation.compile(live.values(), panes, policy)
    physical.queries = live
    physical.changes = tuple(change.text for change in changes)
    return physical


def layouts_are_outdated(physical: PhysicalPlan, statistics: RuntimeStatistics) -> bool:
    """Whether panes would be laid out otherwise by what is known now."""
    plans = distinct_plans(physical.queries)
    _, changes = plan_pane_layouts(
        plans, physical.panes, statistics.loads, physical.policy, statistics.regrets
    )
    return bool(changes)


def distinct_plans(queries: Mapping[str, LiveQuery]) -> list[Node]:
    """The plans that run; queries that were merged wholly have one and the same."""
    computed = (query.sink.relabelling.computes for query in queries.values())
    return list({id(plan): plan for plan in computed}.values())
