"""Two filters in a row become one.

    Filter q (Filter p x)   →   Filter p AND q (x)

Right when q cannot raise. Refused otherwise: ``p AND q`` evaluates q also where p is NULL, rows
that the lower filter had taken away.
"""

from __future__ import annotations

from headrace.optimizer.rule import Rule
from headrace.optimizer.safety import is_deterministic, is_movable
from headrace.plan.expressions import conjunction, conjuncts
from headrace.plan.nodes import Filter, Node


def merge_filters(node: Node) -> Node | None:
    match node:
        case Filter(input=Filter(input=below, predicate=first), predicate=second) if is_movable(
            second
        ) and is_deterministic(first):
            both = conjunction([*conjuncts(first), *conjuncts(second)])
            assert both is not None
            return Filter(below, both)
        case _:
            return None


RULE = Rule("merge_filters", merge_filters)
