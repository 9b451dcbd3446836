"""The initial order, whatever is observed: the baseline of Section 5.2 (fixedOrder)."""

from __future__ import annotations

from headrace.cost.probing import ProbeModel, ProbeTuning, StateKind
from headrace.optimizer.probing.graph import ProbeGraph, ProbeSequence
from headrace.optimizer.probing.strategy import one_after_another
from headrace.stats.probes import ProbeStatistics

NAME = "fixed_order"


def orders(
    graph: ProbeGraph,
    statistics: ProbeStatistics | None,
    tuning: ProbeTuning,
    kind: StateKind,
    model: ProbeModel,
    initial: tuple[int, ...],
) -> dict[int, ProbeSequence]:
    return initial_orders(graph, initial)


def initial_orders(graph: ProbeGraph, initial: tuple[int, ...]) -> dict[int, ProbeSequence]:
    """For each driver the others as given; one that shares no key with those before it waits."""
    return one_after_another(graph, initial, lambda pair: None)
