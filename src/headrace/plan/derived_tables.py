"""Derived tables below joins: what goes row by row is carried to above the join.

A CTE, a view or a derived table between two joins renames columns, computes some and leaves others
out. None of that parts the two: carried above the upper join, with its columns replaced by what
they stand for, it leaves the joins next to each other, and so they are one tree, with the same
event times as if the query had been written without it.

``optimizer.rules.pull_projection_above_join`` makes plans of this form. Event times, which are
asked for before any rule has run, look through derived tables in the same way (``one_tree``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from headrace.names import folded
from headrace.plan.expressions import Call, Column, Expr, Named, conjunction, conjuncts
from headrace.plan.join_graph import belongs, has_table, is_graph, join_graph
from headrace.plan.nodes import (
    WINDOW_COLUMN,
    Filter,
    Join,
    JoinTime,
    Node,
    Order,
    Project,
    SameSession,
)
from headrace.plan.substitute import definitions, identity, substituted
from headrace.plan.types import BOOLEAN, Schema

#: The parts that an expression may have after columns are replaced.
MOST_PARTS = 500

#: Whether the projection on the left, or else on the right of a join may be carried above it.
MayMove = Callable[[Join, bool, Project], bool]


def carried_above(node: Join, may_move: MayMove) -> Project | None:
    """The join below what one of its inputs computes, if that may be; filters stay below."""
    return _pulled(node, True, may_move) or _pulled(node, False, may_move)


def _pulled(node: Join, on_left: bool, may_move: MayMove) -> Project | None:
    side = node.left if on_left else node.right
    project = below_filters(side)
    if not isinstance(project, Project) or not may_move(node, on_left, project):
        return None
    values = definitions(project.columns)
    below = _lowered(side, values)
    own_times = {_own_name(node, on_left, time) for time in _times(node, on_left)}
    computed = {name: values[name] for name in own_times if not isinstance(values[name], Column)}
    for name, expr in computed.items():
        if reaches_into(node, project):
            below, time = _with_column(below, name, expr)
        else:
            below, time = _with_times(below, name, expr)
        values[name] = time
    if computed and below == side:
        # Nothing but the time is computed, and that where it belongs.
        return None
    alias = node.left_alias if on_left else node.right_alias
    if _is_joined(below):
        alias = None
    renamed = _told_apart(node, on_left, below, alias)
    if renamed is None:
        return None
    below, alias, names = renamed
    outer = node.left_schema if on_left else node.right_schema
    moved = {
        field.name: substituted(values[column.name], names)
        for field, column in zip(outer, project.columns, strict=True)
    }
    return _above(node, on_left, below, alias, moved)


def reaches_into(node: Join, side: Node, past_tables: bool = True) -> bool:
    """Whether an input of a join is one of the same tree, maybe below what goes row by row."""
    return any(isinstance(n, Join) and belongs(node, n) for n in _row_by_row(side, past_tables))


def _row_by_row(node: Node, past_tables: bool = True) -> Iterator[Node]:
    """A relation down to the first that is no filter, no projection and no join with a table."""
    yield node
    if isinstance(node, Filter | Project):
        yield from _row_by_row(node.input, past_tables)
    elif past_tables and isinstance(node, Join) and has_table(node):
        yield from _row_by_row(node.left if node.left.streams() else node.right)


def below_filters(node: Node) -> Node:
    while isinstance(node, Filter):
        node = node.input
    return node


def _is_joined(node: Node) -> bool:
    """Whether columns carry the names of a join's inputs."""
    below = below_filters(node)
    if isinstance(below, Project):
        # Such as only adds a time.
        return set(below.input.schema.names) <= set(below.schema.names) and _is_joined(below.input)
    return isinstance(below, Join)


def _lowered(side: Node, values: Mapping[str, Expr]) -> Node:
    """The input of the projection, below the filters that stand above it."""
    if isinstance(side, Filter):
        return Filter(_lowered(side.input, values), substituted(side.predicate, values))
    assert isinstance(side, Project)
    return side.input


# Times that are computed


def _times(node: Join, on_left: bool) -> Iterator[str]:
    for time in node.times:
        yield (time.left if on_left else time.right).name


def _own_name(node: Join, on_left: bool, name: str) -> str:
    """An input's own name for a column of the join."""
    side, schema = (node.left, node.left_schema) if on_left else (node.right, node.right_schema)
    return side.schema.names[schema.names.index(name)]


def _with_times(node: Node, name: str, expr: Expr) -> tuple[Node, Column]:
    """The relation with all of its columns and a computed one."""
    if isinstance(node, Project):
        for column in node.columns:
            if column.expr == substituted(expr, definitions(node.columns)):
                return node, Column(column.name, expr.type)
    taken = {folded(other) for other in node.schema.names}
    prefix = next((n.rpartition(".")[0] for n in sorted(expr.columns()) if "." in n), "")
    last = name.rpartition(".")[2]
    fresh = _unused(f"{prefix}.{last}" if prefix else last, taken)
    return Project(node, (*identity(node.schema), Named(fresh, expr))), Column(fresh, expr.type)


def _with_column(node: Node, name: str, expr: Expr) -> tuple[Node, Column]:
    """The same, computed at the input of a tree of joins whose columns it reads."""
    if isinstance(node, Filter):
        below, column = _with_column(node.input, name, expr)
        return Filter(below, node.predicate), column
    if isinstance(node, Project) and any(isinstance(n, Join) for n in _row_by_row(node)):
        below, inner = _with_column(node.input, name, substituted(expr, definitions(node.columns)))
        taken = {folded(other) for other in node.schema.names}
        fresh = _unused(name.rpartition(".")[2], taken)
        return Project(below, (*node.columns, Named(fresh, inner))), Column(fresh, expr.type)
    if not isinstance(node, Join):
        return _with_times(node, name, expr)
    on_left = expr.columns() <= set(node.left_schema.names)
    side, schema = (node.left, node.left_schema) if on_left else (node.right, node.right_schema)
    own: dict[str, Expr] = {
        outer.name: Column(inner, outer.type)
        for outer, inner in zip(schema, side.schema.names, strict=True)
    }
    below, column = _with_column(side, name, substituted(expr, own))
    changed = replace(node, left=below) if on_left else replace(node, right=below)
    schema = changed.left_schema if on_left else changed.right_schema
    return changed, Column(schema.names[below.schema.names.index(column.name)], expr.type)


# Names


def _told_apart(
    node: Join, on_left: bool, below: Node, alias: str | None
) -> tuple[Node, str | None, dict[str, Expr]] | None:
    """The new input under names that the other one does not have, and its columns by these names.

    None where that cannot be.
    """
    other = node.right_schema if on_left else node.left_schema
    taken = {folded(name) for name in other.names}
    if node.emits_window:
        taken.add(folded(WINDOW_COLUMN))
    before = below.schema
    if alias is None:
        aliases = {name.rpartition(".")[0] for name in before.names if folded(name) in taken}
        if "" in aliases:
            return None
        everywhere = {folded(n.rpartition(".")[0]) for n in (*before.names, *other.names)}
        own = node.left_alias if on_left else node.right_alias
        for clashing in sorted(aliases):
            fresh = _unused(f"{own}_{clashing}" if own else clashing, everywhere)
            below = _with_alias(below, clashing, fresh)
            everywhere.add(folded(fresh))
    prefix = "" if alias is None else f"{alias}."
    names: dict[str, Expr] = {
        old.name: Column(prefix + new.name, new.type)
        for old, new in zip(before, below.schema, strict=True)
    }
    clash = any(folded(prefix + name) in taken for name in below.schema.names)
    return None if clash else (below, alias, names)


def _unused(name: str, taken: set[str]) -> str:
    if folded(name) not in taken:
        return name
    number = 2
    while folded(f"{name}_{number}") in taken:
        number += 1
    return f"{name}_{number}"


def _with_alias(node: Node, old: str, new: str) -> Node:
    """A join, or what filters it, with one of its inputs under another alias."""
    values = _renaming(node.schema, old, new)
    match node:
        case Filter():
            return Filter(_with_alias(node.input, old, new), substituted(node.predicate, values))
        case Project():
            columns = tuple(
                Named(_renamed_name(c.name, values), substituted(c.expr, values))
                for c in node.columns
            )
            return Project(_with_alias(node.input, old, new), columns)
        case Join():
            return replace(
                node,
                left=_with_alias(node.left, old, new) if node.left_alias is None else node.left,
                right=_with_alias(node.right, old, new) if node.right_alias is None else node.right,
                left_alias=new if node.left_alias == old else node.left_alias,
                right_alias=new if node.right_alias == old else node.right_alias,
                keys=tuple(
                    (substituted(left, values), substituted(right, values))
                    for left, right in node.keys
                ),
                time=None if node.time is None else _time(node.time, values),
                also=tuple(_time(time, values) for time in node.also),
                residual=None if node.residual is None else substituted(node.residual, values),
            )
        case _:
            return node


def _renaming(schema: Schema, old: str, new: str) -> dict[str, Expr]:
    prefix = f"{old}."
    return {
        f.name: Column(f"{new}.{f.name.removeprefix(prefix)}", f.type)
        for f in schema
        if f.name.startswith(prefix)
    }


def _renamed_name(name: str, values: Mapping[str, Expr]) -> str:
    value = values.get(name)
    return value.name if isinstance(value, Column) else name


def _time(time: JoinTime, values: Mapping[str, Expr]) -> JoinTime:
    left, right = substituted(time.left, values), substituted(time.right, values)
    assert isinstance(left, Column)
    assert isinstance(right, Column)
    return replace(time, left=left, right=right)


# The join below, and the projection above it


def _above(
    node: Join, on_left: bool, below: Node, alias: str | None, moved: Mapping[str, Expr]
) -> Project | None:
    columns = tuple(
        Named(field.name, moved.get(field.name, Column(field.name, field.type)))
        for field in node.schema
    )
    keys = [(substituted(left, moved), substituted(right, moved)) for left, right in node.keys]
    ties = [pair for pair in keys if all(key.columns() for key in pair)]
    if len(ties) < len(keys) and isinstance(node.time, SameSession):
        return None
    # A constant compared with a column ties nothing, as in an ON.
    plain = [Call("=", pair, BOOLEAN) for pair in keys if pair not in ties]
    parts = [substituted(part, moved) for part in conjuncts(node.residual)]
    written = [*(c.expr for c in columns), *parts, *(key for pair in keys for key in pair)]
    if any(is_large(expr) for expr in written):
        return None
    order, below = forced_order(node, on_left, below)
    lower = replace(
        node,
        left=below if on_left else node.left,
        right=node.right if on_left else below,
        left_alias=alias if on_left else node.left_alias,
        right_alias=node.right_alias if on_left else alias,
        keys=tuple(ties),
        time=None if node.time is None else _time(node.time, moved),
        also=tuple(_time(time, moved) for time in node.also),
        residual=conjunction([*plain, *parts]),
        order=order,
    )
    return Project(lower, columns)


def is_large(expr: Expr) -> bool:
    return sum(1 for _ in islice(expr.walk(), MOST_PARTS + 1)) > MOST_PARTS


def forced_order(node: Join, on_left: bool, below: Node) -> tuple[tuple[Order, Order] | None, Node]:
    """The order that is forced, over the inputs of the tree as it is now."""
    inner = below_filters(below)
    if not isinstance(inner, Join) or not is_graph(node) or not belongs(node, inner):
        return node.order, below
    if node.order is None and inner.order is None:
        return None, below
    before, graph = join_graph(node), join_graph(inner)
    place = 0 if on_left else len(before.leaves) - 1
    more = len(graph.leaves) - 1

    def placed(order: Order) -> Order:
        if not isinstance(order, int):
            return placed(order[0]), placed(order[1])
        if order == place:
            return _shifted(inner.order or graph.written, place)
        return order + more if order > place else order

    order = placed(node.order or before.written)
    assert not isinstance(order, int)
    return order, _without_order(below)


def _shifted(order: Order, by: int) -> Order:
    if isinstance(order, int):
        return order + by
    return _shifted(order[0], by), _shifted(order[1], by)


def _without_order(node: Node) -> Node:
    if isinstance(node, Filter):
        return Filter(_without_order(node.input), node.predicate)
    assert isinstance(node, Join)
    return replace(node, order=None)
