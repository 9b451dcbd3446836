"""dpPick with half of its model, to see what each half is worth (Section 5.3).

The third ablation, without smoothing, is one of the statistics: see ``ProbeHistory.forecast``.

Paper: Multi-Way Joins, Section 5.3.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.cost.probing import match_only, query_only
from headrace.optimizer.probing import dp_pick
from headrace.optimizer.probing.graph import ProbeSequence
from headrace.optimizer.probing.strategy import Choice

QUERY_COST_ONLY = "query_cost_only"
MATCH_COST_ONLY = "match_cost_only"


def query_cost_orders(choice: Choice) -> dict[int, ProbeSequence]:
    """As if rows that are found cost nothing."""
    return dp_pick.orders(replace(choice, tuning=query_only(choice.tuning)))


def match_cost_orders(choice: Choice) -> dict[int, ProbeSequence]:
    """As if looking for rows cost nothing."""
    return dp_pick.orders(replace(choice, tuning=match_only(choice.tuning)))
