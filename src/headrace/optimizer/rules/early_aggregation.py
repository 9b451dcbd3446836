"""Marks aggregates over joins that are computed from sets aggregated before the join.

    Aggregate [count(*)] by a.g, over window(a.ts, '1 hour') (Join a, b on …)
        →   the same, aggregated early: auto

Conditions: those of ``shape.aggregation_join``. The plan keeps its nodes, since which inputs are
aggregated early may change between two epochs; what the mark decides is what is kept as state, so
it belongs to the plan that a checkpoint knows a query by. Refused where an input would have to keep
every row for ever, which a late aggregate does not.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.optimizer.early.shape import AggregationJoin, aggregation_join
from headrace.optimizer.rule import Rule
from headrace.plan.nodes import Aggregate, Node


def early_aggregation(node: Node) -> Node | None:
    if not isinstance(node, Aggregate) or node.early:
        return None
    shape = aggregation_join(node)
    return replace(node, early="auto") if isinstance(shape, AggregationJoin) else None


RULE = Rule("early_aggregation", early_aggregation)
