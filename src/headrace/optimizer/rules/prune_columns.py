"""Columns that nobody reads are not read, computed or kept.

    Project [auction] (Filter price > 5 (Source bids [auction, bidder, price, ts]))
        →   Project [auction] (Filter price > 5 (Source bids [auction, price, ts]))

Sources and tables are narrowed, projections and aggregates lose the columns nobody asks for, and
the input of a join drops what only its own filter reads, since a join keeps its rows.

Conditions:
- the root keeps its columns;
- a source keeps its time, an input of a join its event times: a join needs them to forget rows;
- group keys stay, they make the groups; so does ``window`` of a join, which makes its rows;
- nothing is put between two joins: rules that order joins look for neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headrace.errors import PlanError
from headrace.optimizer.rule import Rule
from headrace.plan.expressions import Expr
from headrace.plan.nodes import (
    Aggregate,
    Filter,
    Join,
    Node,
    Project,
    Sink,
    Source,
    Table,
    Union,
)
from headrace.plan.substitute import identity
from headrace.plan.times import event_times
from headrace.plan.types import Schema


def prune_columns(root: Node) -> Node | None:
    return _narrowed(root, frozenset(root.schema.names))


def _narrowed(node: Node, needed: frozenset[str]) -> Node:
    """The node with at least the needed columns, in their old order, and few others."""
    match node:
        case Source():
            return replace(node, columns=node.columns.select(needed | {node.time}))
        case Table():
            return replace(node, columns=_at_least_one(node.columns, needed))
        case Filter():
            return Filter(_narrowed(node.input, needed | node.predicate.columns()), node.predicate)
        case Sink():
            return replace(node, input=_narrowed(node.input, frozenset(node.schema.names)))
        case Project():
            names = _at_least_one(node.schema, needed)
            columns = tuple(c for c in node.columns if c.name in names)
            return Project(_narrowed(node.input, _read(c.expr for c in columns)), columns)
        case Aggregate():
            aggregates = tuple(a for a in node.aggregates if a.name in needed)
            if not aggregates and not node.keys and not node.has_window_column:
                # Something must be left of a landmark over all rows, or it would have no columns.
                aggregates = node.aggregates[:1]
            read = _read(named.expr for named in node.keys + aggregates) | {node.time.name}
            read |= {part.time.name for part in node.also}
            return replace(node, input=_narrowed(node.input, read), aggregates=aggregates)
        case Join():
            return _narrowed_join(node, needed)
        case Union():
            return _narrowed_union(node, needed)
        case _:
            raise PlanError(f"no columns can be pruned from a {type(node).__name__}")


def _narrowed_join(node: Join, needed: frozenset[str]) -> Node:
    read = needed | _read(expr for pair in node.keys for expr in pair)
    for time in node.times:
        read |= {time.left.name, time.right.name}
    if node.residual is not None:
        read |= node.residual.columns()
    return replace(
        node,
        left=_join_input(node.left, node.left_schema, read),
        right=_join_input(node.right, node.right_schema, read),
    )


def _join_input(node: Node, outer: Schema, read: frozenset[str]) -> Node:
    wanted = {own.name for own, name in zip(node.schema, outer.names, strict=True) if name in read}
    wanted |= set(event_times(node))
    exact = _at_least_one(node.schema, frozenset(wanted))
    narrow = _narrowed(node, frozenset(exact.names))
    below = narrow
    while isinstance(below, Filter):
        below = below.input
    if below is narrow or isinstance(below, Join) or narrow.schema == exact:
        return narrow
    return Project(narrow, identity(exact))


def _narrowed_union(node: Union, needed: frozenset[str]) -> Node:
    wanted = _at_least_one(node.schema, needed)
    if wanted == node.schema:
        places = list(range(len(wanted)))
    else:
        places = [i for i, name in enumerate(node.schema.names) if name in wanted]
    parts = []
    for part in node.parts:
        exact = Schema(tuple(part.schema.fields[place] for place in places))
        narrow = _narrowed(part, frozenset(exact.names))
        parts.append(narrow if narrow.schema == exact else Project(narrow, identity(exact)))
    return Union(tuple(parts))


def _read(exprs: Iterable[Expr]) -> frozenset[str]:
    return frozenset().union(*(expr.columns() for expr in exprs))


def _at_least_one(schema: Schema, needed: frozenset[str]) -> Schema:
    """Rows without columns cannot be told apart from no rows, so one column always stays."""
    return (
        schema.select(needed)
        if any(n in needed for n in schema.names)
        else Schema(schema.fields[:1])
    )


RULE = Rule("prune_columns", prune_columns, on_whole_plan=True)
