"""The settings, as the planner wants to have them."""

from __future__ import annotations

from dataclasses import replace

from headrace.cost.early_aggregation import EarlyModel
from headrace.cost.probing import ProbeModel, ProbeTuning
from headrace.merge import MergeStrategy
from headrace.optimizer.windows.layout import CostModel, Sharing
from headrace.planner.calibration import calibrated, calibrated_probes
from headrace.planner.policy import PlannerPolicy
from headrace.settings import Settings


def planner_policy(settings: Settings) -> PlannerPolicy:
    """What the user asks of the planner, on this machine."""
    policy = PlannerPolicy(
        disabled=settings.disabled_rules,
        least_gain=settings.least_gain,
        merge_strategy=MergeStrategy.named(settings.merge_strategy),
        merge_unbounded=settings.merge_arithmetic == "unbounded",
        merge_solver_steps=settings.merge_solver_steps,
        window_sharing=Sharing(settings.window_sharing),
        window_cost_model=CostModel(settings.window_cost_model),
        window_closing=settings.window_closing,
        join_passes=settings.join_passes,
        reorder_joins=settings.reorder_joins,
        probe_use=settings.probe_use,
        probe_strategy=settings.probe_strategy,
        probe_smoothing=settings.probe_smoothing,
        probe_cost_model=ProbeModel(settings.probe_cost_model),
        probe_cycle=settings.probe_cycle,
        probe_history=settings.probe_history,
        probe_tuning=_probe_tuning(settings),
        rows_per_job=settings.shared_rows,
        early_tuning=calibrated(),
        early_cost_model=EarlyModel(settings.early_cost_model),
    )
    return policy.as_allowed()


def _probe_tuning(settings: Settings) -> ProbeTuning:
    measured = calibrated_probes()
    if settings.probe_costs is None:
        return measured
    query, match = settings.probe_costs
    return replace(measured, query=query, match=match)
