"""What a query would do beside those that run, and what all of them do together.

Everything is answered by what runs itself: by the operators that would be compiled, and by what was
learnt while they ran.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.compiler.compile import compile_queries
from headrace.compiler.early_choices import describe_early
from headrace.compiler.physical_plan import PhysicalPlan
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
from headrace.planner.pane_layout import PanePlan, describe_windows, plan_pane_layouts
from headrace.planner.policy import early_policy, join_policy, layout_policy, merging
from headrace.planner.probe_order import ProbeMemory
from headrace.state.committed import Committed

if TYPE_CHECKING:
    from headrace.engine.engine import Engine


class Explaining:
    """Answers for one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def steps(self, sink: Sink) -> list[object]:
        """What happens for a query in an epoch."""
        return list(self._compiled(sink).steps(sink.name))

    def early(self, sink: Sink) -> list[DescribedEarly | LateAggregate]:
        """The aggregates over joins, and which of their inputs are aggregated before."""
        runner = self._engine.runner
        if runner is None:
            known = EarlyMemory(), JoinMemory(), Committed(epoch=0)
        else:
            known = runner.early, runner.joins, runner.state
        return describe_early(sink.input, self._compiled(sink), *known)

    def executors(self, sink: Sink) -> list[str]:
        """Who runs each step that writes something, and why."""
        engine = self._engine
        # One that takes part has a name and a place for its results.
        sink = next((known for known in engine.sinks().values() if known.input == sink.input), sink)
        physical = self._compiled(sink)
        folders = {
            name: folder_of(engine.streams[name].frame) if name in engine.streams else None
            for name in physical.sources
        }
        checkpoint = engine.checkpoint or ""
        folder = checkpoint if sink.format == "results" else dict(sink.options).get("path", "")
        places = Places(checkpoint, folder, folders)
        return executors_of(physical, engine.executor, engine.settings, places)

    def windows(self, sink: Sink) -> list[DescribedWindows]:
        """The windows of a query that share work, or would if it paid."""
        engine = self._engine
        return describe_windows(
            sink, self._panes_with(sink), engine.loads, layout_policy(engine.settings)
        )

    def joins(self, plan: Node) -> list[DescribedJoin | FixedJoin | DescribedProbes]:
        """The joins of a plan with their orders."""
        memory, policy = self._engine.join_memory, join_policy(self._engine.settings)
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
        """All queries merged: as they run, or as they would if the engine were started now."""
        engine = self._engine
        if engine.active and engine.settings.merge_strategy != Strategy.NONE.value:
            assert engine.runner is not None
            return engine.runner.merging.with_locked_plan(
                lambda plan: describe(plan, engine.statistics, engine.apart)
            )
        plan = planned_together(merging(engine.settings, lambda: engine.statistics), engine.sinks())
        return describe(plan, engine.statistics, engine.apart)

    def _compiled(self, sink: Sink) -> PhysicalPlan:
        """The operators that a query would have, beside those that run already."""
        settings = self._engine.settings
        return compile_queries(
            [LiveQuery(sink, None)],
            self._panes_with(sink),
            settings.window_closing,
            join_policy(settings),
            early_policy(settings),
        )

    def _panes_with(self, sink: Sink) -> PanePlan:
        """How panes are laid out if this query takes part, beside those that do already."""
        engine = self._engine
        current = PanePlan() if engine.runner is None else engine.runner.state.panes
        plans = [*engine.sinks().values(), sink]
        return plan_pane_layouts(plans, current, engine.loads, layout_policy(engine.settings))[0]
