"""The settings, as those who plan want to have them."""

from __future__ import annotations

from collections.abc import Callable

from headrace.cost.early_aggregation import EarlyModel
from headrace.cost.probing import ProbeModel
from headrace.cost.rows import flow_cost
from headrace.merge import Strategy
from headrace.merge.rewriting import Merging
from headrace.optimizer import JOIN_RULES
from headrace.optimizer.windows.layout import CostModel, Sharing
from headrace.planner.calibration import calibrated, calibrated_probes
from headrace.planner.early_aggregation import EarlyPolicy
from headrace.planner.join_order import JoinPolicy
from headrace.planner.pane_layout import LayoutPolicy
from headrace.planner.probe_order import ProbePolicy
from headrace.settings import Settings
from headrace.stats.catalog import Statistics


def layout_policy(settings: Settings) -> LayoutPolicy:
    return LayoutPolicy(
        Sharing(settings.window_sharing),
        CostModel(settings.window_cost_model),
        settings.least_gain,
    )


def join_policy(settings: Settings) -> JoinPolicy:
    return JoinPolicy(
        settings.disabled_rules & frozenset(JOIN_RULES),
        settings.join_passes,
        settings.reorder_joins,
        settings.least_gain,
        probe_policy(settings),
    )


def probe_policy(settings: Settings) -> ProbePolicy:
    policy = ProbePolicy(
        settings.probe_use,
        settings.probe_strategy,
        settings.probe_smoothing,
        ProbeModel(settings.probe_cost_model),
        settings.probe_cycle,
        settings.probe_history,
        settings.probe_least_gain,
        calibrated_probes(),
    )
    return policy if settings.reorder_joins else policy.fixed()


def early_policy(settings: Settings) -> EarlyPolicy:
    model = EarlyModel(settings.early_cost_model)
    return EarlyPolicy(calibrated(), settings.least_gain, model)


def merging(settings: Settings, statistics: Callable[[], Statistics]) -> Merging:
    """Nothing merged yet; ``statistics`` tells what is known of the streams at the time."""
    return Merging(
        Strategy.named(settings.merge_strategy),
        settings.merge_arithmetic == "unbounded",
        settings.merge_solver_ms,
        lambda plan: flow_cost(plan, statistics()).figure.number,
    )
