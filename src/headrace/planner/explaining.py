"""What all decisions tell of one query, and the plans that it could have had.

Both iterate ``DECISIONS``, and the alternatives the optimizer's rules besides; neither knows what
there is to decide.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.cost.rows import flow_cost
from headrace.optimizer import Optimized, optimize
from headrace.plan.nodes import Node
from headrace.planner import DECISIONS
from headrace.planner.decision import Alternative, Described, PlannedQuery, RankedPlan


@dataclass(frozen=True)
class Section:
    """What was decided of a query under one heading."""

    heading: str
    #: Its name in JSON.
    key: str
    parts: tuple[Described, ...]


def sections(query: PlannedQuery) -> tuple[Section, ...]:
    """What each decision tells, in their order; those of one heading together."""
    headings: dict[str, str] = {}
    parts: dict[str, list[Described]] = {}
    for decision in DECISIONS:
        headings.setdefault(decision.key, decision.heading)
        parts.setdefault(decision.key, []).extend(decision.describe(query))
    return tuple(Section(heading, key, tuple(parts[key])) for key, heading in headings.items())


def ranked_plans(
    logical: Node, optimized: Optimized, is_forced: bool, query: PlannedQuery
) -> list[RankedPlan]:
    """The valid plans of a query, cheapest first where costs are known.

    ``logical`` is the plan as it was written and ``optimized`` the one that runs, which the user
    may have forced. ``query`` is what the plan by all rules would be if it ran alone.
    """
    disabled, streams = query.policy.disabled, query.statistics.streams
    plans: dict[Node, RankedPlan] = {}

    def add(name: str, plan: Node, rule: str, reason: str) -> None:
        chosen = plan == optimized.plan
        info = Alternative(name, flow_cost(plan, streams), rule, chosen, reason)
        plans.setdefault(plan, RankedPlan(info, plan))

    why = "forced by the user" if is_forced else "all rules applied"
    add("chosen", optimized.plan, "using" if is_forced else "all", why)
    full = optimize(logical, disabled)
    add("optimized", full.plan, "all", "all rules applied")
    for rule in full.trace.fired:
        without = optimize(logical, disabled | {rule}).plan
        add(f"without {rule}", without, rule, "this rule left out")
    add("as written", logical, "none", "no rule applied")
    for decision in DECISIONS:
        for ranked in decision.alternatives(query):
            runs = ranked.info.chosen and optimized.plan == full.plan
            info = replace(ranked.info, chosen=runs or ranked.plan == optimized.plan)
            plans.setdefault(ranked.plan, RankedPlan(info, ranked.plan))
    return list(plans.values())
