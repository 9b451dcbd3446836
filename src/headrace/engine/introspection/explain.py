"""What a query would do beside those that run, and what all of them do together.

Everything is answered by what runs itself: by the operators that would be compiled, and by what was
learnt while they ran.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.compiler.compile import compile_queries
from headrace.compiler.early_choices import describe_early
from headrace.compiler.physical_plan import Physical
from headrace.engine.ingest.file_streams import folder_of
from headrace.engine.introspection.dry_run import Places, executors_of
from headrace.merge import Strategy
from headrace.merge.describe import Description, describe, planned_together
from headrace.optimizer.early.describe import DescribedEarly, LateAggregate
from headrace.optimizer.joins.describe import DescribedJoin, FixedJoin, describe_joins
from headrace.optimizer.probing.describe import DescribedProbes
from headrace.optimizer.windows.describe import DescribedWindows
from headrace.plan.json import plan_hash
from headrace.plan.nodes import Node, Sink
from headrace.planner.early_aggregation import EarlyMemory
from headrace.planner.join_order import JoinMemory
from headrace.planner.live_query import LiveQuery
from headrace.planner.pane_layout import PanePlan, decide, describe_windows
from headrace.planner.policy import early_policy, join_policy, layout_policy, merging
from headrace.planner.probe_order import ProbeMemory
from headrace.state.committed import Committed

if TYPE_CHECKING:
    from headrace.engine.engine import Race


class Explaining:
    """Answers for one race."""

    def __init__(self, race: Race) -> None:
        self._race = race

    def steps(self, sink: Sink) -> list[object]:
        """What happens for a query in an epoch."""
        return list(self._compiled(sink).steps(sink.name))

    def early(self, sink: Sink) -> list[DescribedEarly | LateAggregate]:
        """The aggregates over joins, and which of their inputs are aggregated before."""
        runner = self._race.runner
        if runner is None:
            known = EarlyMemory(), JoinMemory(), Committed(epoch=0)
        else:
            known = runner.early, runner.joins, runner.state
        return describe_early(sink.input, self._compiled(sink), *known)

    def executors(self, sink: Sink) -> list[str]:
        """Who runs each step that writes something, and why."""
        race = self._race
        # One that takes part has a name and a place for its results.
        sink = next((known for known in race.sinks().values() if known.input == sink.input), sink)
        physical = self._compiled(sink)
        folders = {
            name: folder_of(race.streams[name].frame) if name in race.streams else None
            for name in physical.sources
        }
        checkpoint = race.checkpoint or ""
        folder = checkpoint if sink.format == "results" else dict(sink.options).get("path", "")
        places = Places(checkpoint, folder, folders)
        return executors_of(physical, race.executor, race.settings, places)

    def windows(self, sink: Sink) -> list[DescribedWindows]:
        """The windows of a query that share work, or would if it paid."""
        race = self._race
        return describe_windows(
            sink, self._panes_with(sink), race.loads, layout_policy(race.settings)
        )

    def joins(self, plan: Node) -> list[DescribedJoin | FixedJoin | DescribedProbes]:
        """The joins of a plan with their orders."""
        memory, policy = self._race.join_memory, join_policy(self._race.settings)
        found: list[DescribedJoin | FixedJoin | DescribedProbes] = []
        for join in describe_joins(
            plan, memory.loads, memory.orders, policy.disabled, policy.reorder
        ):
            if isinstance(join, DescribedJoin) and policy.probing.takes(join.join, join.graph):
                fresh = ProbeMemory.of(join.join, join.graph, policy.probing)
                known = memory.probing.get(plan_hash(join.join), fresh)
                found.append(known.describe(join.join, [order.order for order in join.orders]))
            else:
                found.append(join)
        return found

    def merged(self) -> Description:
        """All queries merged: as they run, or as they would if the race were started now."""
        race = self._race
        if race.active and race.settings.merge_strategy != Strategy.NONE.value:
            assert race.runner is not None
            return race.runner.merging.look(
                lambda plan: describe(plan, race.statistics, race.apart)
            )
        plan = planned_together(merging(race.settings, lambda: race.statistics), race.sinks())
        return describe(plan, race.statistics, race.apart)

    def _compiled(self, sink: Sink) -> Physical:
        """The operators that a query would have, beside those that run already."""
        settings = self._race.settings
        return compile_queries(
            [LiveQuery(sink, None)],
            self._panes_with(sink),
            settings.window_closing,
            join_policy(settings),
            early_policy(settings),
        )

    def _panes_with(self, sink: Sink) -> PanePlan:
        """How panes are laid out if this query takes part, beside those that do already."""
        race = self._race
        current = PanePlan() if race.runner is None else race.runner.state.panes
        plans = [*race.sinks().values(), sink]
        return decide(plans, current, race.loads, layout_policy(race.settings))[0]
