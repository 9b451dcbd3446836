"""A projection that hands on exactly its input goes away.

Project [a, b] (t with the columns a, b)   →   t
"""

from __future__ import annotations

from headrace.optimizer.rule import Rule
from headrace.plan.nodes import Node, Project
from headrace.plan.substitute import identity


def remove_trivial_projection(node: Node) -> Node | None:
    match node:
        case Project(input=below, columns=columns) if columns == identity(below.schema):
            return below
        case _:
            return None


RULE = Rule("remove_trivial_projection", remove_trivial_projection)
