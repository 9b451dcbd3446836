"""Joins in processing time that hand on the ends of their windows become one tree of joins.

    Project [p.k, o.x] (Join 30 s on p.seen, o.arrival
            (Project [c.k, window_time(window) AS seen] (Join 10 s c, v, a row per window)) o)
        →   Project [c.k, o.x] (Join 30 s on c.arrival, o.arrival (Join 10 s c, v) o)

Cases A2 and A4 of the paper on window join reordering, by *largest window only* (Section 5.2). If
windows do not overlap and each is nested in, or disjoint from, those of the other joins, then the
last instant of a window lies in a larger window just if all of its rows do: the larger window is a
condition on the rows' own times. In a smaller one it lies if that one ends together with the larger
window, so there the larger window is the condition, and of the rows that come in those are left
that lie in the last small window of it. What is left are conditions on pairs of streams' times,
which may be joined in any order.

Conditions:
- every input goes by the arrival times of a stream in processing time. Rows that arrive are never
  below a watermark, so it makes no difference that one operator goes by the least watermark of all
  streams where there were two. In event time it would: other rows would be late;
- nothing above reads the ends that are handed on, and all windows above close when they did;
- what stands between the joins cannot fail, since it is computed for fewer rows.

Paper: Window Join Reordering, Section 5.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.optimizer.joins.largest_window import ONLY, largest, only_window, shared_ends
from headrace.optimizer.rule import Rule
from headrace.optimizer.safety import can_raise, is_movable
from headrace.plan.expressions import Call, Column, Expr, Literal, Named, conjunction, conjuncts
from headrace.plan.join_graph import has_table
from headrace.plan.nodes import (
    WINDOW_COLUMN,
    Aggregate,
    Filter,
    Join,
    JoinKind,
    Node,
    Project,
    SameWindow,
    Source,
    Union,
    qualified,
)
from headrace.plan.substitute import by_position, identity, substituted
from headrace.plan.times import aggregate_lag, event_times, join_lag
from headrace.plan.types import BIGINT, BOOLEAN
from headrace.plan.windows import Hopping

MICROSECONDS = 1_000


@dataclass(frozen=True)
class _Instant:
    """An instant of a row: the arrival time of an input, or the end of the window that holds it.

    ``others`` are the times of the inputs whose rows lie in that same window.
    """

    time: Column
    window: Hopping | None = None
    others: tuple[Column, ...] = ()


@dataclass(frozen=True)
class _Tree:
    """A plan whose joins hand on no ends, and what the columns of the one it stands for are.

    ``values`` are columns that it still computes; ``instants`` are arrival times, and windows and
    their ends, which it does not have. ``joined`` says that a join went by one of these.
    """

    node: Node
    values: Mapping[str, Expr]
    instants: Mapping[str, _Instant]
    joined: bool = False


def largest_window_only(root: Node) -> Node | None:
    for parent in dict.fromkeys(root.walk()):
        # Conditions between all inputs bound their times as tightly as the ends did. They are left
        # out where nobody asks how late a time may come.
        for every_pair in (False, True):
            lowered = _lowered(parent, every_pair)
            if lowered is None:
                break
            after = _with(root, parent, lowered)
            if _closes_alike((root, parent), (after, lowered)):
                return after
    return None


def _with(root: Node, old: Node, new: Node) -> Node:
    return root.transform(lambda node: new if node == old else node)


def _lowered(parent: Node, every_pair: bool) -> Node | None:
    """A node that reads joins, over one tree of them."""
    if not isinstance(parent, Project | Aggregate):
        return None
    tree = _tree(parent.input, every_pair)
    if tree is None or not tree.joined:
        return None
    read = _columns_read(parent)
    if not read <= tree.values.keys():
        return None
    names = [name for name in parent.input.schema.names if name in read]
    # A count of rows reads no column; any will do.
    names = names or [name for name in parent.input.schema.names if name in tree.values][:1]
    below = Project(tree.node, tuple(Named(name, tree.values[name]) for name in names))
    if not event_times(parent.input).keys() & set(names) <= event_times(below).keys():
        return None
    return parent.with_inputs((below,))


def _columns_read(parent: Project | Aggregate) -> frozenset[str]:
    if isinstance(parent, Project):
        return frozenset().union(*(column.expr.columns() for column in parent.columns))
    named = (*parent.keys, *parent.aggregates)
    read = frozenset().union(*(one.expr.columns() for one in named))
    return read | {parent.time.name} | {part.time.name for part in parent.also}


def _closes_alike(before: tuple[Node, Node], after: tuple[Node, Node]) -> bool:
    """Whether all that reads times above a node does so when it did."""

    def lags(plan: Node, place: Node) -> list[int]:
        above = [node for node in plan.walk() if place in node.walk()]
        return [
            *(aggregate_lag(n) for n in above if isinstance(n, Aggregate) and n.has_window_column),
            *(join_lag(n) for n in above if isinstance(n, Join) and not has_table(n)),
        ]

    handed_on = event_times(before[0])
    later = event_times(after[0])
    return lags(*before) == lags(*after) and all(
        later[name] <= lag for name, lag in handed_on.items()
    )


def _tree(node: Node, every_pair: bool) -> _Tree | None:
    """A subplan as one tree of joins; None where it cannot be one.

    ``every_pair`` writes down what follows for the times of all pairs of inputs.
    """
    if not _over_a_join(node):
        return _leaf(node)
    match node:
        case Filter(predicate=predicate):
            tree = _tree(node.input, every_pair)
            if tree is None or not _computes(tree, predicate):
                return None
            return replace(tree, node=Filter(tree.node, substituted(predicate, tree.values)))
        case Project():
            return _renamed(node, _tree(node.input, every_pair))
        case Join(time=SameWindow()):
            return _joined(node, every_pair)
        case _:
            return None


def _over_a_join(node: Node) -> bool:
    """Whether there is a join of streams below filters and projections."""
    while isinstance(node, Filter | Project):
        node = node.input
    return isinstance(node, Join) and not has_table(node)


def _computes(tree: _Tree, expr: Expr) -> bool:
    return expr.columns() <= tree.values.keys() and is_movable(expr)


def _leaf(node: Node) -> _Tree:
    values = {named.name: named.expr for named in identity(node.schema)}
    arrivals = {
        field.name: _Instant(Column(field.name, field.type))
        for field in node.schema
        if is_arrival_time(node, field.name)
    }
    return _Tree(node, values, arrivals)


def is_arrival_time(node: Node, column: str) -> bool:
    """Whether a column is the time at which a stream's rows arrived, in the epoch in which they
    do."""
    match node:
        case Source():
            return node.processing and node.time == column
        case Filter():
            return is_arrival_time(node.input, column)
        case Project():
            expr = next(c.expr for c in node.columns if c.name == column)
            return isinstance(expr, Column) and is_arrival_time(node.input, expr.name)
        case Union():
            place = node.schema.names.index(column)
            return all(is_arrival_time(part, part.schema.names[place]) for part in node.parts)
        case Join() if has_table(node):
            side, schema = (
                (node.left, node.left_schema)
                if node.left.streams()
                else (node.right, node.right_schema)
            )
            if column not in schema:
                return False
            return is_arrival_time(side, side.schema.names[schema.names.index(column)])
        case _:
            return False


def _renamed(node: Project, tree: _Tree | None) -> _Tree | None:
    if tree is None:
        return None
    values: dict[str, Expr] = {}
    instants: dict[str, _Instant] = {}
    for column in node.columns:
        expr = column.expr
        read = expr.columns()
        if isinstance(expr, Column) and expr.name in tree.instants:
            instants[column.name] = tree.instants[expr.name]
        if isinstance(expr, Call) and expr.function == "window_time" and len(read) == 1:
            instant = tree.instants.get(next(iter(read)))
            if instant is not None and instant.window is not None:
                instants[column.name] = instant
        if _computes(tree, expr):
            values[column.name] = substituted(expr, tree.values)
        elif can_raise(expr):
            return None
    return replace(tree, values=values, instants=instants)


# --- One join ------------------------------------------------------------------------------------


def _joined(node: Join, every_pair: bool) -> _Tree | None:
    if node.kind is not JoinKind.INNER or node.also or node.order is not None:
        return None
    left, right = _tree(node.left, every_pair), _tree(node.right, every_pair)
    if left is None or right is None or not isinstance(node.time, SameWindow):
        return None
    placed = _placed(node, left, right)
    if placed is None:
        return None
    left, right, aliases = placed
    values = {**left.values, **right.values}
    instants = {**left.instants, **right.instants}
    one, other = (instants.get(time.name) for time in (node.time.left, node.time.right))
    if one is None or other is None:
        return None
    condition = _condition(one, other, node.time.window)
    exprs = [key for pair in node.keys for key in pair] + list(conjuncts(node.residual))
    both = _Tree(node, values, instants)
    if condition is None or not all(_computes(both, expr) for expr in exprs):
        return None
    time, within = condition
    tied = [one.time, *one.others], [other.time, *other.others]
    pairs = [SameWindow(a, b, time.window) for a in tied[0] for b in tied[1]]
    join = Join(
        left.node,
        right.node,
        JoinKind.INNER,
        *aliases,
        tuple((substituted(a, values), substituted(b, values)) for a, b in node.keys),
        time,
        conjunction([substituted(part, values) for part in conjuncts(node.residual)]),
        also=tuple(pairs[1:]) if every_pair else (),
    )
    ends = any(instant.window is not None for instant in (one, other))
    if node.emits_window:
        others = (*one.others, other.time, *other.others)
        instants[WINDOW_COLUMN] = _Instant(one.time, time.window, others)
    return _Tree(
        join if within is None else Filter(join, within),
        values,
        instants,
        left.joined or right.joined or ends,
    )


def _placed(
    node: Join, left: _Tree, right: _Tree
) -> tuple[_Tree, _Tree, tuple[str | None, str | None]] | None:
    """Both sides as the columns of the new join: leaves get the aliases that they had, or others
    where a join below has given those away."""
    taken: set[str] = set()
    placed: list[_Tree] = []
    aliases: list[str | None] = []
    for tree, alias, schema in (
        (left, node.left_alias, node.left_schema),
        (right, node.right_alias, node.right_schema),
    ):
        side = node.left if tree is left else node.right
        inner = _inner_alias(tree, alias, taken)
        names = qualified(tree.node.schema, inner).names
        if taken & set(names):
            return None
        taken |= set(names)
        aliases.append(inner)
        placed.append(_named(tree, inner, dict(zip(side.schema.names, schema.names, strict=True))))
    return placed[0], placed[1], (aliases[0], aliases[1])


def _inner_alias(tree: _Tree, alias: str | None, taken: set[str]) -> str | None:
    """The alias of a side in the new tree; what was joined below has its aliases already."""
    if alias is None or _over_a_join(tree.node):
        return None
    names, number = tree.node.schema, 1
    candidate = alias
    while taken & set(qualified(names, candidate).names):
        number += 1
        candidate = f"{alias}{number}"
    return candidate


def _named(tree: _Tree, alias: str | None, outer: Mapping[str, str]) -> _Tree:
    """The tree with its columns as the join above names them, outside and inside."""
    own, given = tree.node.schema, qualified(tree.node.schema, alias)
    inside_names = dict(zip(own.names, given.names, strict=True))
    inside = by_position(own, given)

    def moved(column: Column) -> Column:
        return replace(column, name=inside_names[column.name])

    instants = {
        outer[name]: _Instant(moved(i.time), i.window, tuple(map(moved, i.others)))
        for name, i in tree.instants.items()
    }
    values = {outer[name]: substituted(expr, inside) for name, expr in tree.values.items()}
    return replace(tree, values=values, instants=instants)


def _condition(
    one: _Instant, other: _Instant, window: Hopping
) -> tuple[SameWindow, Expr | None] | None:
    """That two instants share a window, as a shared window of the rows' own times and a condition
    on the time of one of them; None where there is no such thing."""
    windows = [w for w in (one.window, other.window, window) if w is not None]
    if only_window(windows) is None:
        return None
    top = largest(windows)
    same = SameWindow(one.time, other.time, top)
    if top == window:
        return same, None
    # The window ends where the largest does. So does the window of the other side, if it is the
    # longer one; if it is nested in the window, so is its end.
    beside = other if one.window == top else one
    longer = [w for w in (beside.window,) if w is not None and w.length > window.length]
    ends = shared_ends([top, window, *longer])
    if ends is None:
        return None
    return same, _before(beside.time, ends, max(w.length for w in (window, *longer)))


def _before(time: Column, ends: Hopping, length: int) -> Expr | None:
    """That a time lies in the stretch of this length before one of the ends; None if it must."""
    if length >= ends.slide:
        return None

    def bound(instant: int) -> Literal:
        return Literal(instant % ends.slide * MICROSECONDS, BIGINT)

    modulus = Literal(ends.slide * MICROSECONDS, BIGINT)
    place = Call("pmod", (Call("unix_micros", (time,), BIGINT), modulus), BIGINT)
    begin, end = bound(ends.offset - length), bound(ends.offset)
    after, before = Call(">=", (place, begin), BOOLEAN), Call("<", (place, end), BOOLEAN)
    if ends.offset == 0:
        return after
    # Around the beginning of a cycle the stretch is in two parts.
    return Call("or" if ends.offset < length else "and", (after, before), BOOLEAN)


RULE = Rule(ONLY, largest_window_only, on_whole_plan=True)
