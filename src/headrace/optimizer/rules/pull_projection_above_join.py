"""A projection below a join moves above it: what a CTE, a derived table or a view computes.

    Join d.k = c.k (Project [a.k AS k, upper(b.s) AS s] (Join a, b)) c
        →   Project [a.k AS d.k, upper(b.s) AS d.s, c.k] (Join a.k = c.k (Join a, b) c)

Joins then stand next to each other however the query is written, and are one tree: with one rule
of lateness, one choice of orders and one state. This decides which rows are late, so it is part of
what a query means (docs/semantics.md, "Trees of joins") and cannot be turned off.

Conditions:
- a projection between two joins of one tree always moves. What can raise there is then computed
  for the rows that come out of the tree, or where a condition of the tree needs it;
- any other moves if nothing in it can raise: below, it is computed for rows without a partner too;
- on the side of an outer join that is filled up with NULLs only plain columns move: NULL is what
  they are in a row without a partner, and an expression may be something else;
- of a session join the keys stay columns of their side, since they say what a session is;
- a computed time that the join goes by (``window_time``) is computed below, at the input it
  belongs to;
- refused where an expression would be written out so often that it grows without bound.

A filter above the projection goes below it with the columns replaced; a projection keeps every row,
so it sees the same ones. An order that a hint forces is carried over to the inputs of the tree.
"""

from __future__ import annotations

from headrace.optimizer.rule import Rule
from headrace.optimizer.safety import is_deterministic, is_movable
from headrace.plan.derived_tables import carried_above, reaches_into
from headrace.plan.expressions import Column
from headrace.plan.nodes import Join, Node, Project, SameSession


def pull_projection_above_join(node: Node) -> Node | None:
    return carried_above(node, _may_move) if isinstance(node, Join) else None


def _may_move(node: Join, on_left: bool, project: Project) -> bool:
    exprs = [column.expr for column in project.columns]
    filled_up = node.kind.keeps_right if on_left else node.kind.keeps_left
    if filled_up and not all(isinstance(expr, Column) for expr in exprs):
        return False
    if isinstance(node.time, SameSession) and not _keeps_keys(node, on_left, project):
        return False
    if not all(map(is_deterministic, exprs)):
        return False
    return reaches_into(node, project) or all(map(is_movable, exprs))


def _keeps_keys(node: Join, on_left: bool, project: Project) -> bool:
    plain = {c.name for c in project.columns if isinstance(c.expr, Column)}
    schema = node.left_schema if on_left else node.right_schema
    outer = dict(zip(schema.names, project.schema.names, strict=True))
    keys = [pair[0] if on_left else pair[1] for pair in node.keys]
    return all(outer[name] in plain for key in keys for name in key.columns())


RULE = Rule("pull_projection_above_join", pull_projection_above_join, always=True)
