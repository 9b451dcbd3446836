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
from headrace.optimizer.probing.strategy import Strategy

__all__ = ["STRATEGIES", "sequence_text"]

STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        Strategy(dp_pick.NAME, dp_pick.orders),
        Strategy(fixed_order.NAME, fixed_order.orders),
        Strategy(selectivity_first.NAME, selectivity_first.orders),
        Strategy(cost_greedy.NAME, cost_greedy.orders),
        Strategy(ablations.QUERY_COST_ONLY, ablations.query_cost_orders),
        Strategy(ablations.MATCH_COST_ONLY, ablations.match_cost_orders),
    )
}
