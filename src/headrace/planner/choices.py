"""What decisions have chosen last, so that a plan changes only where that promises enough.

Nothing of it is durable: state depends on none of these choices, and after a restart they are made
anew from the statistics.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.cost.window_joins import JoinLoad
from headrace.optimizer.joins.search import JoinOrder
from headrace.plan.nodes import Order
from headrace.stats.load import Load

if TYPE_CHECKING:
    from headrace.planner.early_aggregation import EarlyChoice, SetLoads
    from headrace.planner.probe_order import ProbeOrders


@dataclass(frozen=True)
class EarlyInputs:
    """The inputs that were aggregated early in an epoch, by whose choice and why: what was known of
    the sets then, if anything was."""

    epoch: int
    inputs: frozenset[int]
    choice: EarlyChoice | None = None
    loads: SetLoads | None = None


@dataclass
class Choices:
    """One for all queries that share a state; joins and aggregates by the hash of their plans."""

    #: The order in which a join ran last.
    join_orders: dict[str, Order] = field(default_factory=dict)
    #: What was planned last, for all rows or for the new rows of an input, and for which load.
    join_plans: dict[tuple[str, int | None, frozenset[str]], tuple[JoinLoad, JoinOrder]] = field(
        default_factory=dict
    )
    #: Joins that gave another share of rows than they used to, until keys are counted again.
    surprised: set[str] = field(default_factory=set)
    #: Multi-way joins with their probe orders.
    probes: dict[str, ProbeOrders] = field(default_factory=dict)
    #: The inputs that were aggregated early last.
    early: dict[str, EarlyInputs] = field(default_factory=dict)
    #: Whether the output of windows that move was kept up to date last, and in which epoch.
    outputs: dict[str, tuple[int, bool]] = field(default_factory=dict)
    #: The loads of groupings when their layouts of panes were looked at last.
    laid_out_for: dict[str, Load] = field(default_factory=dict)
    #: Changes of plan since they were last asked for, for people.
    changes: list[str] = field(default_factory=list)

    def take_changes(self) -> list[str]:
        changes, self.changes = self.changes, []
        return changes
