"""A filter moves below a projection, its columns replaced by what they are computed from.

    Filter x > 5 (Project [p * 2 AS x] t)   →   Project [p * 2 AS x] (Filter p * 2 > 5 t)

A projection keeps every row, so the condition sees the same rows below it, even one that can
raise. Refused for columns that are not deterministic: the filter and the projection would see two
different values. If only some conjuncts can go, those that can raise stay: another one that stays
may guard them.
"""

from __future__ import annotations

from headrace.optimizer.rule import Rule
from headrace.optimizer.safety import is_deterministic, is_movable
from headrace.plan.expressions import conjunction, conjuncts
from headrace.plan.nodes import Filter, Node, Project
from headrace.plan.substitute import definitions, substituted


def push_filter_through_project(node: Node) -> Node | None:
    match node:
        case Filter(input=Project(input=below, columns=columns), predicate=predicate):
            values = definitions(columns)
            parts = [(part, substituted(part, values)) for part in conjuncts(predicate)]
            if not all(is_deterministic(lowered) for _, lowered in parts):
                pushed = [lowered for _, lowered in parts if is_movable(lowered)]
                above = [part for part, lowered in parts if not is_movable(lowered)]
            else:
                pushed, above = [lowered for _, lowered in parts], []
            condition = conjunction(pushed)
            if condition is None:
                return None
            lower = Project(Filter(below, condition), columns)
            rest = conjunction(above)
            return Filter(lower, rest) if rest is not None else lower
        case _:
            return None


RULE = Rule("push_filter_through_project", push_filter_through_project)
