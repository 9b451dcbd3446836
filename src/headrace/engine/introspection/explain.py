"""What a query would do beside those that run, and what all of them do together.

Everything is answered by the plan that runs, or by the one that would run if the query took part
now: both come out of ``plan_all``, with what was learnt while queries ran.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.compiler.physical_plan import PhysicalPlan
from headrace.compiler.planning import PlanState, plan_all
from headrace.engine.ingest.file_streams import folder_of
from headrace.engine.introspection.dry_run import Locations, executors_of
from headrace.engine.policy import planner_policy
from headrace.merge import Strategy
from headrace.merge.describe import Description, describe, planned_together
from headrace.operators.base import EpochStep
from headrace.plan.nodes import Node, Sink
from headrace.planner.choices import Choices
from headrace.planner.decision import PlannedQuery
from headrace.planner.live_query import LiveQuery
from headrace.planner.merging import TrialMerge, begin_merging
from headrace.planner.pane_layout import PanePlan
from headrace.planner.policy import PlannerPolicy

if TYPE_CHECKING:
    from headrace.engine.engine import Engine


@dataclass(frozen=True)
class ExplainedQuery:
    """A query in the plan of all: the one that runs, or that would run if it took part now."""

    engine: Engine
    sink: Sink
    #: Its name in that plan.
    name: str
    physical: PhysicalPlan

    @property
    def steps(self) -> list[EpochStep]:
        """What happens for it in an epoch."""
        return self.physical.steps(self.name)

    @property
    def planned(self) -> PlannedQuery:
        """What its decisions were taken from."""
        engine, plan = self.engine, self.physical.queries[self.name].sink.input
        part = self.physical.only(self.name)
        own = {id(operator) for operator in part.operators()}
        return PlannedQuery(
            self.sink.input,
            plan,
            self.physical.panes,
            tuple(
                name
                for name, query in self.physical.queries.items()
                if name != self.name and query.sink.input is plan
            ),
            self.physical.early_choices,
            {
                operator.node: readers
                for operator, readers in self.physical.readers()
                if readers > 1 and id(operator) in own
            },
            self.physical.policy,
            engine.statistics,
            Choices() if engine.plan is None else engine.plan.choices,
            engine.stored_rows,
        )

    @property
    def executors(self) -> list[str]:
        """Who runs each step that writes something, and why."""
        engine = self.engine
        part = self.physical.only(self.name)
        sink = part.queries[self.name].sink
        folders = {
            stream: folder_of(engine.streams[stream].frame) if stream in engine.streams else None
            for stream in part.sources
        }
        checkpoint = engine.checkpoint or ""
        folder = checkpoint if sink.format == "results" else dict(sink.options).get("path", "")
        places = Locations(checkpoint, folder, folders)
        return executors_of(part, engine.executor, engine.settings, places)


class Explaining:
    """Answers for one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def beside_others(self, sink: Sink) -> ExplainedQuery:
        """A query as it runs, or would if it took part now."""
        engine = self._engine
        known = next((own for own in engine.sinks().values() if own.input == sink.input), None)
        running = engine.plan
        if known is not None and running is not None and known.name in running.queries:
            return ExplainedQuery(engine, known, known.name, running.physical)
        if running is not None and engine.active:
            queries = dict(running.asked)
            merging = None if running.merging is None else TrialMerge(running.merging)
            state = PlanState(self._panes, merging=merging)
        else:
            queries = {name: LiveQuery(own, None) for name, own in engine.sinks().items()}
            fresh = begin_merging(self._policy, lambda: engine.statistics.streams)
            state = PlanState(self._panes, merging=fresh)
        if known is None:
            known = replace(sink, name=_unused(sink.name, queries))
            queries[known.name] = LiveQuery(known, None)
        physical = plan_all(queries.values(), state, engine.statistics, self._policy)
        return ExplainedQuery(engine, known, known.name, physical)

    def alone(self, plan: Node, sink: Sink) -> PlannedQuery:
        """A plan as it would run over the state that there is, merged with no other."""
        own = replace(sink, input=plan)
        state, statistics = PlanState(self._panes), self._engine.statistics
        physical = plan_all([LiveQuery(own, None)], state, statistics, self._policy)
        return ExplainedQuery(self._engine, own, own.name, physical).planned

    def merged(self) -> Description:
        """All queries merged: as they run, or as they would if the engine were started now."""
        engine = self._engine
        streams, apart = engine.statistics.streams, engine.apart
        if engine.active and self._policy.merge_strategy is not Strategy.NONE:
            assert engine.plan is not None
            assert engine.plan.merging is not None
            return engine.plan.merging.with_locked_plan(lambda plan: describe(plan, streams, apart))
        merging = begin_merging(self._policy, lambda: streams)
        return describe(planned_together(merging, engine.sinks()), streams, apart)

    @property
    def _policy(self) -> PlannerPolicy:
        return planner_policy(self._engine.settings)

    @property
    def _panes(self) -> PanePlan:
        """How panes are laid out that were stored already."""
        runner = self._engine.runner
        return PanePlan() if runner is None else runner.state.panes


def _unused(name: str, queries: Collection[str]) -> str:
    while name in queries:
        name += "'"
    return name
