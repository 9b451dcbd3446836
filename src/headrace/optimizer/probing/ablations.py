"""dpPick with half of its model, to see what each half is worth (Section 5.3).

The third ablation, without smoothing, is one of the statistics: see ``ProbeHistory.forecast``.
"""

from __future__ import annotations

from headrace.cost.probing import ProbeModel, ProbeTuning, StateKind, match_only, query_only
from headrace.optimizer.probing import dp_pick
from headrace.optimizer.probing.graph import ProbeGraph, ProbeSequence
from headrace.stats.probes import ProbeStatistics

QUERY_COST_ONLY = "query_cost_only"
MATCH_COST_ONLY = "match_cost_only"


def query_cost_orders(
    graph: ProbeGraph,
    statistics: ProbeStatistics | None,
    tuning: ProbeTuning,
    kind: StateKind,
    model: ProbeModel,
    initial: tuple[int, ...],
) -> dict[int, ProbeSequence]:
    """As if rows that are found cost nothing."""
    return dp_pick.orders(graph, statistics, query_only(tuning), kind, model, initial)


def match_cost_orders(
    graph: ProbeGraph,
    statistics: ProbeStatistics | None,
    tuning: ProbeTuning,
    kind: StateKind,
    model: ProbeModel,
    initial: tuple[int, ...],
) -> dict[int, ProbeSequence]:
    """As if looking for rows cost nothing."""
    return dp_pick.orders(graph, statistics, match_only(tuning), kind, model, initial)
