"""What a query would do beside those that run, and what all of them do together.

Everything is answered by the plan that runs, or by the one that would run if the query took part
now: both come out of ``plan_all``, with what was learnt while queries ran.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.compiler.physical_plan import PhysicalPlan
from headrace.compiler.planning import PlanState, plan_all
from headrace.compiler.shared_state import described_stores
from headrace.engine.epochs.live_plan import plans_that_ran
from headrace.engine.ingest.file_streams import folder_of
from headrace.engine.introspection.dry_run import Locations, executors_of
from headrace.engine.policy import planner_policy
from headrace.merge import MergeStrategy
from headrace.merge.describe import Description, describe, planned_together
from headrace.operators.base import EpochStep
from headrace.plan.nodes import Node, Sink
from headrace.planner.choices import Choices
from headrace.planner.decision import PlannedQuery
from headrace.planner.live_query import LiveQuery
from headrace.planner.merging import TrialMerge, begin_merging
from headrace.planner.policy import PlannerPolicy
from headrace.planner.statistics import RuntimeStatistics
from headrace.state.committed import Committed, joins_at

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
    #: What was learnt up to now, and what is stored.
    statistics: RuntimeStatistics
    state: Committed

    @property
    def steps(self) -> list[EpochStep]:
        """What happens for it in an epoch."""
        return self.physical.steps(self.name)

    @property
    def planned(self) -> PlannedQuery:
        """What its decisions were taken from."""
        engine, own_sink = self.engine, self.physical.queries[self.name].sink
        part = self.physical.only(self.name)
        own = {id(operator) for operator in part.operators()}
        return PlannedQuery(
            self.sink.input,
            own_sink.input,
            self.physical.panes,
            tuple(
                name
                for name, query in self.physical.queries.items()
                if name != self.name and own_sink.relabelling.is_same(query.sink.relabelling)
            ),
            self.physical.early_choices,
            {
                operator.node: readers
                for operator, readers in self.physical.readers()
                if readers > 1 and id(operator) in own
            },
            self.physical.policy,
            self.statistics,
            Choices() if engine.plan is None else engine.plan.choices,
            self._stored_rows,
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

    def _stored_rows(self, store: str) -> int:
        arrangement = self.state.arrangements.get(store)
        return 0 if arrangement is None else arrangement.rows


class Explaining:
    """Answers for one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def beside_others(self, sink: Sink) -> ExplainedQuery:
        """A query as it runs, or would if it took part now."""
        engine = self._engine
        own_sink = next((own for own in engine.sinks().values() if own.input == sink.input), None)
        running, state = engine.plan, self._state
        if own_sink is not None and running is not None and own_sink.name in running.queries:
            statistics = running.statistics
            return ExplainedQuery(
                engine, own_sink, own_sink.name, running.physical, statistics, state
            )
        queries: dict[str, LiveQuery] = {}
        if running is not None and engine.active:
            statistics = running.statistics
            queries |= running.asked
            merging = None if running.merging is None else TrialMerge(running.merging)
            goes_on = PlanState(state.panes, merging=merging)
        else:
            statistics = RuntimeStatistics.from_json(state.statistics)
            queries |= {name: _enrolled(own, state) for name, own in engine.sinks().items()}
            fresh = begin_merging(self._policy, lambda: statistics.streams)
            ran = plans_that_ran(queries, state)
            goes_on = PlanState(state.panes, merging=fresh, ran=ran)
        if own_sink is None:
            own_sink = replace(sink, name=_unused(sink.name, queries))
        if own_sink.name not in queries:
            # A new one, or one that stands still or goes on by itself.
            queries[own_sink.name] = _enrolled(own_sink, state)
        physical = plan_all(queries.values(), goes_on, statistics, self._policy)
        return ExplainedQuery(engine, own_sink, own_sink.name, physical, statistics, state)

    def alone(self, plan: Node, sink: Sink) -> PlannedQuery:
        """A plan as it would run over the state that there is, merged with no other."""
        own, state = replace(sink, input=plan), self._state
        running = self._engine.plan
        statistics = (
            RuntimeStatistics.from_json(state.statistics) if running is None else running.statistics
        )
        goes_on = PlanState(state.panes)
        physical = plan_all([LiveQuery(own, None)], goes_on, statistics, self._policy)
        return ExplainedQuery(self._engine, own, own.name, physical, statistics, state).planned

    def merged(self) -> Description:
        """All queries merged: as they run, or as they would if the engine were started now."""
        engine = self._engine
        streams, apart = engine.statistics.streams, engine.apart
        if engine.active and self._policy.merge_strategy is not MergeStrategy.NONE:
            assert engine.plan is not None
            assert engine.plan.merging is not None
            stores = described_stores(engine.plan.physical)
            return engine.plan.merging.with_locked_plan(
                lambda plan: describe(plan, streams, apart, stores)
            )
        merging, state = begin_merging(self._policy, lambda: streams), self._state
        queries = {name: _enrolled(sink, state) for name, sink in engine.sinks().items()}
        goes_on = PlanState(state.panes, merging=merging, ran=plans_that_ran(queries, state))
        physical = plan_all(queries.values(), goes_on, engine.statistics, self._policy)
        planned = planned_together(merging, {name: own.sink for name, own in queries.items()})
        return describe(planned, streams, apart, described_stores(physical))

    @property
    def _policy(self) -> PlannerPolicy:
        return planner_policy(self._engine.settings)

    @property
    def _state(self) -> Committed:
        """What is stored; nothing where that cannot be read, which a start would tell of."""
        with suppress(Exception):
            return self._engine.state()
        return Committed()


def _enrolled(sink: Sink, state: Committed) -> LiveQuery:
    """A query with the moment from which it sees every row: the one it has, or would have now."""
    record = state.queries.get(sink.name)
    return LiveQuery(sink, joins_at(sink, state) if record is None else record.starts_at)


def _unused(name: str, queries: Collection[str]) -> str:
    while name in queries:
        name += "'"
    return name
