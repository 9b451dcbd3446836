"""Joins of streams as the trees that they are, before any rule has run.

What goes row by row does not part a tree of joins. Rules take it out from between them; who asks
for event times earlier, when a query is read, sees the same trees through this.
"""

from __future__ import annotations

from headrace.plan.derived_tables import carried_above, reaches_into
from headrace.plan.expressions import Named
from headrace.plan.join_graph import belongs, has_table
from headrace.plan.nodes import Filter, Join, Node, Project
from headrace.plan.substitute import definitions, substituted
from headrace.plan.tables_between import without_table_between


def looked_through(node: Join) -> Project | None:
    """A tree of joins without what stands between its joins; None where nothing does."""
    inputs = tuple(_inner_looked_through(node, side) for side in node.inputs)
    current = node if inputs == node.inputs else node.with_inputs(inputs)
    columns: tuple[Named, ...] | None = None
    while isinstance(current, Join):
        above = carried_above(current, _is_between) or without_table_between(current)
        if above is None:
            break
        values = definitions(above.columns)
        columns = (
            above.columns
            if columns is None
            else tuple(Named(c.name, substituted(c.expr, values)) for c in columns)
        )
        current = above.input
    return None if columns is None else Project(current, columns)


def _is_between(node: Join, on_left: bool, project: Project) -> bool:
    return reaches_into(node, project)


def _inner_looked_through(node: Join, side: Node) -> Node:
    match side:
        case Filter() | Project():
            return side.with_inputs((_inner_looked_through(node, side.input),))
        case Join() if belongs(node, side) or has_table(side):
            return looked_through(side) or side
        case _:
            return side
