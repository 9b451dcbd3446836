"""All strategies by name, and how to print what they choose."""

from __future__ import annotations

from headrace.optimizer.probing import (
    ablations,
    cost_greedy,
    dp_pick,
    fixed_order,
    selectivity_first,
)
from headrace.optimizer.probing.sequences import sequence_text
from headrace.optimizer.probing.strategy import ProbeStrategy

__all__ = ["STRATEGIES", "sequence_text"]

STRATEGIES: dict[str, ProbeStrategy] = {
    strategy.name: strategy
    for strategy in (
        ProbeStrategy(dp_pick.NAME, dp_pick.orders),
        ProbeStrategy(fixed_order.NAME, fixed_order.orders),
        ProbeStrategy(selectivity_first.NAME, selectivity_first.orders),
        ProbeStrategy(cost_greedy.NAME, cost_greedy.orders),
        ProbeStrategy(ablations.QUERY_COST_ONLY, ablations.query_cost_orders),
        ProbeStrategy(ablations.MATCH_COST_ONLY, ablations.match_cost_orders),
    )
}
