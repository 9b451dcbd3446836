"""A filter above a join moves to the inputs it speaks of, or into the join's condition.

    Filter a.x > 1 AND b.y = 2 AND a.z < b.z (Join inner a, b)
        →   Join inner a, b where a.z < b.z (Filter x > 1 a) (Filter y = 2 b)

Conditions, for each conjunct by itself:
- inner join: one side's conjunct goes to that side, one over both sides into the residual;
- outer join: only to the side whose rows are all kept, and only that side's own conjuncts; the
  other side's are also about the NULLs of rows without a partner, so they stay above;
- session join: only conjuncts on the key columns, since a row less could split a session for
  its partners; with all rows of a key goes all of its sessions;
- a conjunct that can raise stays: below it would meet rows that have no partner;
- one that reads ``window``, or no column at all, stays.

The watermark is the stream's, taken before any filter, so lateness is the same below and above.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.optimizer.rule import Rule
from headrace.optimizer.safety import is_movable
from headrace.plan.expressions import Column, Expr, conjunction, conjuncts
from headrace.plan.nodes import Filter, Join, JoinKind, Node, SameSession
from headrace.plan.substitute import by_position, substituted


def push_filter_into_join(node: Node) -> Node | None:
    if not (isinstance(node, Filter) and isinstance(node.input, Join)):
        return None
    join = node.input
    left: list[Expr] = []
    right: list[Expr] = []
    both: list[Expr] = []
    above: list[Expr] = []
    for part in conjuncts(node.predicate):
        {"left": left, "right": right, "both": both}.get(_place(part, join), above).append(part)
    if not (left or right or both):
        return None
    lowered = replace(
        join,
        left=_filtered(join.left, left, by_position(join.left_schema, join.left.schema)),
        right=_filtered(join.right, right, by_position(join.right_schema, join.right.schema)),
        residual=conjunction([*conjuncts(join.residual), *both]),
    )
    rest = conjunction(above)
    return Filter(lowered, rest) if rest is not None else lowered


def _place(part: Expr, join: Join) -> str:
    columns = part.columns()
    if not columns or not is_movable(part):
        return "above"
    if columns <= set(join.left_schema.names):
        allowed = not join.kind.keeps_right and _keeps_sessions_whole(columns, join, 0)
        return "left" if allowed else "above"
    if columns <= set(join.right_schema.names):
        allowed = not join.kind.keeps_left and _keeps_sessions_whole(columns, join, 1)
        return "right" if allowed else "above"
    of_rows = set(join.left_schema.names) | set(join.right_schema.names)
    return "both" if columns <= of_rows and join.kind is JoinKind.INNER else "above"


def _keeps_sessions_whole(columns: frozenset[str], join: Join, side: int) -> bool:
    if not isinstance(join.time, SameSession):
        return True
    keys = {key.name for key in (pair[side] for pair in join.keys) if isinstance(key, Column)}
    return columns <= keys


def _filtered(node: Node, parts: list[Expr], names: dict[str, Expr]) -> Node:
    condition = conjunction([substituted(part, names) for part in parts])
    return Filter(node, condition) if condition is not None else node


RULE = Rule("push_filter_into_join", push_filter_into_join)
