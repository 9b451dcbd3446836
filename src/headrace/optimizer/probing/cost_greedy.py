"""The cheapest probe next, as in MultiStream (Section 5.2, greedy_MSJ): no look at what follows."""

from __future__ import annotations

from headrace.cost.probing import ProbeModel, ProbeTuning, StateKind, probe_cost
from headrace.optimizer.probing.fixed_order import initial_orders
from headrace.optimizer.probing.graph import ProbeGraph, ProbeSequence
from headrace.optimizer.probing.strategy import one_after_another
from headrace.stats.probes import Edge, ProbeStatistics

NAME = "cost_greedy"


def orders(
    graph: ProbeGraph,
    statistics: ProbeStatistics | None,
    tuning: ProbeTuning,
    kind: StateKind,
    model: ProbeModel,
    initial: tuple[int, ...],
) -> dict[int, ProbeSequence]:
    if statistics is None:
        return initial_orders(graph, initial)

    def own_cost(pair: Edge) -> float | None:
        cost = probe_cost(statistics, pair, tuning, kind, model)
        return None if cost is None else cost.own

    return one_after_another(graph, initial, own_cost)
