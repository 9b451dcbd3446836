"""A filter moves into every part of a union.

    Filter p (Union a b)   →   Union (Filter p a) (Filter p b)

Always right for a deterministic condition: a union keeps every row. Columns are matched by
position, so the condition is renamed for each part.
"""

from __future__ import annotations

from headrace.optimizer.rule import Rule
from headrace.optimizer.safety import is_deterministic
from headrace.plan.nodes import Filter, Node, Union
from headrace.plan.substitute import by_position, substituted


def push_filter_through_union(node: Node) -> Node | None:
    match node:
        case Filter(input=Union(parts=parts) as union, predicate=predicate) if is_deterministic(
            predicate
        ):
            return Union(
                tuple(
                    Filter(part, substituted(predicate, by_position(union.schema, part.schema)))
                    for part in parts
                )
            )
        case _:
            return None


RULE = Rule("push_filter_through_union", push_filter_through_union)
