"""What the user asks of the planner: one value for all of its decisions.

A decision that is turned off by name (``optimizer.disabledRules``) is taken as if there were no
choice: nothing is merged, no panes are shared, joins run as written.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headrace.cost.early_aggregation import EarlyModel, Tuning
from headrace.cost.jobs import ROWS_PER_JOB
from headrace.cost.probing import ProbeModel, ProbeTuning
from headrace.merge import MergeStrategy
from headrace.merge.solver import SOLVER_STEPS
from headrace.optimizer import JOIN_RULES
from headrace.optimizer.probing import dp_pick, fixed_order
from headrace.optimizer.windows.layout import CostModel, Sharing
from headrace.plan.nodes import Aggregate
from headrace.planner.names import (
    FILTER_SHARING,
    INCREMENTAL_OUTPUT,
    JOIN_ORDER,
    MERGING,
    PANE_LAYOUT,
    PROBE_ORDER,
    SHARED_ROWS,
)

#: The share of its cost that a plan must be expected to save to replace one that runs.
LEAST_GAIN = 0.1
#: The part of that which is enough for an order of joins or probes.
ORDERS = 0.5


@dataclass(frozen=True)
class ProbeCycle:
    """How long statistics of probes are collected: in epochs, or in milliseconds."""

    epochs: int = 1
    milliseconds: int | None = None

    def is_over(self, epochs: int, milliseconds: float) -> bool:
        if self.milliseconds is not None:
            return milliseconds >= self.milliseconds
        return epochs >= self.epochs


@dataclass(frozen=True)
class PlannerPolicy:
    """How decisions are taken, as far as that is for the user to say.

    ``disabled`` are rules and decisions that are turned off. ``least_gain`` is the share of its
    cost that a plan must be expected to save before it replaces one that runs.
    """

    disabled: frozenset[str] = frozenset()
    least_gain: float = LEAST_GAIN

    merge_strategy: MergeStrategy = MergeStrategy.SM_PLUS
    merge_unbounded: bool = False
    merge_solver_steps: int = SOLVER_STEPS

    window_sharing: Sharing = Sharing.FACTORS
    window_cost_model: CostModel = CostModel.ENGINE
    #: How windows are computed from panes: straight, through other windows, or what costs less.
    window_closing: str = "auto"

    #: How new results of a join are found: all inputs in one pass, or the new rows of each input
    #: against the others.
    join_passes: str = "auto"
    reorder_joins: bool = True

    #: Which joins probe indexes: those without a condition on time, all, or none.
    probe_use: str = "auto"
    probe_strategy: str = dp_pick.NAME
    probe_smoothing: bool = True
    probe_cost_model: ProbeModel = ProbeModel.ENGINE
    probe_cycle: ProbeCycle = field(default_factory=ProbeCycle)
    probe_history: int = 60
    probe_tuning: ProbeTuning = field(default_factory=ProbeTuning)

    #: Rows of several readers are written once where reading them again costs more than this many.
    rows_per_job: int = ROWS_PER_JOB

    early_tuning: Tuning = field(default_factory=Tuning)
    early_cost_model: EarlyModel = EarlyModel.ENGINE

    def as_allowed(self) -> PlannerPolicy:
        """The same, without a choice where a decision is turned off."""
        policy = self
        if MERGING in self.disabled:
            policy = replace(policy, merge_strategy=MergeStrategy.NONE)
        if PANE_LAYOUT in self.disabled:
            policy = replace(policy, window_sharing=Sharing.NONE)
        if JOIN_ORDER in self.disabled:
            policy = replace(policy, reorder_joins=False)
        if PROBE_ORDER in self.disabled or not policy.reorder_joins:
            policy = policy.with_fixed_probes()
        return policy

    @property
    def least_gain_of_orders(self) -> float:
        """The same for orders: nothing has to be moved for another one, so less is enough.

        Who asks for all of the cost wants orders that stay.
        """
        return self.least_gain if self.least_gain >= 1 else self.least_gain * ORDERS

    @property
    def shares_filters(self) -> bool:
        """Whether aggregates that differ in their filters alone may share one store."""
        return FILTER_SHARING not in self.disabled

    @property
    def keeps_outputs(self) -> bool:
        """Whether outputs of windows that move may be kept up to date with them."""
        return INCREMENTAL_OUTPUT not in self.disabled

    @property
    def shares_rows(self) -> bool:
        return SHARED_ROWS not in self.disabled

    @property
    def disabled_join_rules(self) -> frozenset[str]:
        return self.disabled & frozenset(JOIN_RULES)

    def without_filter_sharing(self) -> PlannerPolicy:
        return replace(self, disabled=self.disabled | {FILTER_SHARING})

    def with_fixed_probes(self) -> PlannerPolicy:
        """The same, with probe orders that stay as they begin."""
        return replace(self, probe_strategy=fixed_order.NAME)

    def sharing_of(self, nodes: list[Aggregate]) -> Sharing:
        """How windows share: what a plan forces, or else what the policy says."""
        return Sharing(nodes[0].sharing) if nodes[0].sharing else self.window_sharing
