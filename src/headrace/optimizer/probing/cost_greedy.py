"""The cheapest probe next, as in MultiStream (Section 5.2, greedy_MSJ): no look at what follows.

Paper: Multi-Way Joins, Section 5.2.
"""

from __future__ import annotations

from headrace.cost.probing import probe_cost
from headrace.optimizer.probing.fixed_order import initial_orders
from headrace.optimizer.probing.graph import ProbeSequence
from headrace.optimizer.probing.strategy import Choice, one_after_another
from headrace.stats.probes import Edge

NAME = "cost_greedy"


def orders(choice: Choice) -> dict[int, ProbeSequence]:
    statistics = choice.statistics
    if statistics is None:
        return initial_orders(choice.graph, choice.initial)

    def own_cost(driver: int, met: int, pair: Edge) -> float | None:
        cost = probe_cost(statistics, pair, choice.tuning, choice.model, (driver, met))
        return None if cost is None else cost.own

    return one_after_another(choice.graph, choice.initial, own_cost)
