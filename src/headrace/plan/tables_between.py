"""Joins with tables between joins of streams: a table keeps no state, so it need not stand there.

    Join (TableJoin (Join a, b), t) c   →   TableJoin (Join (Join a, b) c), t
                                        or  Join (Join (TableJoin a, t) b) c

A join with a table goes row by row, and what it adds to a row depends on that row alone. So it may
be done after the join above it, if that does not read what it adds, or else before the joins below
it, at the one input whose columns it goes by. Either way the joins of streams are one tree. It
stays where it is, and parts the joins, if a join above reads its columns and it goes by several
inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headrace.plan.derived_tables import below_filters, forced_order, reaches_into
from headrace.plan.expressions import Column, Expr
from headrace.plan.join_graph import belongs, has_table
from headrace.plan.nodes import Filter, Join, Node, Project
from headrace.plan.substitute import identity


def without_table_between(node: Join) -> Project | None:
    """The join with a table between it and another of its tree moved out of the way."""
    return _moved(node, on_left=True) or _moved(node, on_left=False)


def _moved(node: Join, on_left: bool) -> Project | None:
    side, alias = (node.left, node.left_alias) if on_left else (node.right, node.right_alias)
    table_join = below_filters(side)
    if alias is not None or not isinstance(table_join, Join) or not has_table(table_join):
        return None
    on_stream = bool(table_join.left.streams())
    rows = table_join.left if on_stream else table_join.right
    if not rows.streams() or not isinstance(below_filters(rows), Join):
        return None
    if not reaches_into(node, rows) or isinstance(below_filters(rows), Project):
        return None
    added = table_join.right_schema if on_stream else table_join.left_schema
    if _read(node).isdisjoint(added.names):
        rebuilt = _above(node, on_left, side, table_join, on_stream)
    else:
        lowered = _below(node, rows, table_join, on_stream)
        if lowered is None:
            return None
        order, lowered = forced_order(node, on_left, lowered)
        inner = _with_rows(side, lowered)
        rebuilt = (
            replace(node, left=inner, order=order)
            if on_left
            else replace(node, right=inner, order=order)
        )
    return Project(rebuilt, identity(node.schema))


def _read(node: Join) -> frozenset[str]:
    """The columns that a join goes by."""
    exprs: list[Expr] = [key for pair in node.keys for key in pair]
    exprs += [column for time in node.times for column in (time.left, time.right)]
    exprs += [] if node.residual is None else [node.residual]
    return frozenset().union(*(expr.columns() for expr in exprs))


def _above(node: Join, on_left: bool, side: Node, table_join: Join, on_stream: bool) -> Node:
    """The join with the table above both, and above it what filters its rows."""
    rows = table_join.left if on_stream else table_join.right
    order, rows = forced_order(node, on_left, rows)
    lower = (
        replace(node, left=rows, order=order) if on_left else replace(node, right=rows, order=order)
    )
    upper: Node = replace(table_join, left=lower) if on_stream else replace(table_join, right=lower)
    for predicate in _predicates(side):
        upper = Filter(upper, predicate)
    return upper


def _predicates(side: Node) -> Iterator[Expr]:
    """Of the filters above a join, lowest first."""
    if isinstance(side, Filter):
        yield from _predicates(side.input)
        yield side.predicate


def _with_rows(side: Node, rows: Node) -> Node:
    return (
        Filter(_with_rows(side.input, rows), side.predicate) if isinstance(side, Filter) else rows
    )


def _below(node: Join, rows: Node, table_join: Join, on_stream: bool) -> Node | None:
    """The tree whose one input is joined with the table; None where it goes by several."""
    ours = [pair[0] if on_stream else pair[1] for pair in table_join.keys]
    plain = all(isinstance(key, Column) for key in ours)
    if not plain or table_join.residual is not None:
        # What is computed might raise for rows that meet nobody.
        return None
    match rows:
        case Filter():
            below = _below(node, rows.input, table_join, on_stream)
            return None if below is None else Filter(below, rows.predicate)
        case Join() if belongs(node, rows):
            return _at_input(node, rows, table_join, on_stream)
        case _:
            return None


def _at_input(node: Join, tree: Join, table_join: Join, on_stream: bool) -> Node | None:
    read = {n for p in table_join.keys for n in (p[0] if on_stream else p[1]).columns()}
    on_left = read <= set(tree.left_schema.names)
    if not on_left and not read <= set(tree.right_schema.names):
        return None
    side, alias = (tree.left, tree.left_alias) if on_left else (tree.right, tree.right_alias)
    if reaches_into(tree, side):
        lowered = _below(node, side, table_join, on_stream) if alias is None else None
    elif on_stream:
        lowered = replace(table_join, left=side, left_alias=alias)
    else:
        lowered = replace(table_join, right=side, right_alias=alias)
    if lowered is None:
        return None
    if on_left:
        return replace(tree, left=lowered, left_alias=None)
    return replace(tree, right=lowered, right_alias=None)
