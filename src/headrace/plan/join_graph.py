"""Trees of inner joins as what they mean: inputs, and conditions between them.

An inner join is a predicate over its rows, so a tree of them is the conjunction of all their
predicates over all inputs, in whatever order it is computed. What a user writes

    a JOIN b ON a.k = b.k AND window(a.ts, …) = window(b.ts, …)
      JOIN c ON a.k = c.k AND window(a.ts, …) = window(c.ts, …)

has the inputs a, b and c, and conditions on the times of (a, b) and of (a, c): the second one says
that ``a.ts`` is the time that the first join hands on. Joins that make their own windows, session
joins (whose sessions depend on what is joined), outer joins and joins with tables stay what they
are, and are inputs.

Paper: Window Join Reordering, Section 5.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from headrace.errors import PlanError
from headrace.plan.expiry import Lives, lives
from headrace.plan.expressions import Call, Expr, conjuncts
from headrace.plan.nodes import Filter, Join, JoinKind, JoinTime, Node, Order, SameSession
from headrace.plan.reach import UNBOUNDED, Reach, reach_of
from headrace.plan.types import BOOLEAN, Schema


@dataclass(frozen=True)
class Leaf:
    """One input: its plan, its columns as the join names them, and its time by the join's name.

    ``time`` is the column that the conditions on time use; it is empty where there are none.
    """

    name: str
    node: Node
    schema: Schema
    time: str

    def own_name(self, column: str) -> str:
        """The input's own name for a column of the join."""
        return self.node.schema.names[self.schema.names.index(column)]

    @cached_property
    def lives(self) -> Lives:
        """The columns by which its rows expire in a join without a condition on time."""
        outer = dict(zip(self.node.schema.names, self.schema.names, strict=True))
        return {outer[name]: ttl for name, ttl in lives(self.node).items()}


@dataclass(frozen=True)
class TimeEdge:
    """A condition on the times of two inputs, by their positions."""

    left: int
    right: int
    time: JoinTime
    #: Whether it is about the times by which rows of both inputs are kept and found.
    bounds: bool = True

    def reach_from(self, index: int) -> Reach:
        if not self.bounds:
            return UNBOUNDED
        reach = reach_of(self.time)
        return reach if index == self.left else reach.swapped()

    def joins(self, one: frozenset[int], other: frozenset[int]) -> bool:
        """Whether it lies between two sets of inputs."""
        return (self.left in one and self.right in other) or (
            self.left in other and self.right in one
        )


@dataclass(frozen=True)
class KeyEdge:
    """Two expressions that are equal, each of one input."""

    left: int
    right: int
    left_key: Expr
    right_key: Expr


#: Keys that are all equal to each other, as (input, expression).
KeyClasses = tuple[tuple[tuple[int, Expr], ...], ...]


def _key_classes(keys: Iterable[KeyEdge]) -> KeyClasses:
    classes: list[set[tuple[int, Expr]]] = []
    for edge in keys:
        ends = {(edge.left, edge.left_key), (edge.right, edge.right_key)}
        touched = [c for c in classes if c & ends]
        classes = [c for c in classes if not c & ends]
        classes.append(ends.union(*touched))
    return tuple(tuple(sorted(c, key=lambda end: (end[0], str(end[1])))) for c in classes)


def _equal_within(keys: Iterable[KeyEdge]) -> Iterator[Expr]:
    """From a.x = b.k and a.y = b.k follows a.x = a.y, which no join of two inputs checks."""
    for members in _key_classes(keys):
        first: dict[int, Expr] = {}
        for index, key in members:
            if first.setdefault(index, key) != key:
                yield Call("=", (first[index], key), BOOLEAN)


@dataclass(frozen=True)
class JoinGraph:
    """The inputs of a tree of inner joins and the conditions between them.

    ``predicates`` are those that are no equality of keys of two inputs.
    """

    leaves: tuple[Leaf, ...]
    keys: tuple[KeyEdge, ...]
    times: tuple[TimeEdge, ...]
    predicates: tuple[Expr, ...]
    written: Order
    timed: bool

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(leaf.name for leaf in self.leaves)

    @property
    def everything(self) -> frozenset[int]:
        return frozenset(range(len(self.leaves)))

    def owner(self, column: str) -> int:
        """Which input has a column."""
        return next(i for i, leaf in enumerate(self.leaves) if column in leaf.schema)

    def owners(self, expr: Expr) -> frozenset[int]:
        return frozenset(self.owner(name) for name in expr.columns())

    @cached_property
    def key_classes(self) -> KeyClasses:
        """Keys that are all equal to each other, as (input, expression).

        From a.k = b.k and a.k = c.k follows b.k = c.k: NULL equals nothing in any of the three.
        Where an input has several keys of a class, that they are equal is one of ``predicates``.
        """
        return _key_classes(self.keys)

    def shares_key(self, one: frozenset[int], other: frozenset[int]) -> bool:
        """Whether an equality, written or implied, ties two sets of inputs."""
        for members in self.key_classes:
            inputs = {index for index, _ in members}
            if inputs & one and inputs & other:
                return True
        return False

    def reach(self, start: int) -> dict[int, Reach]:
        """How far rows of each input may lie from a row of this one, by all conditions on time.

        The tightest bounds that follow: from (a, b) within one bound and (a, c) within another
        follows a wider one for (b, c). Each condition bounds a difference of two times, so these
        are shortest paths.
        """
        reaches = dict.fromkeys(self.everything, UNBOUNDED)
        reaches[start] = Reach(0, 0)
        for _ in self.leaves:
            before = dict(reaches)
            for edge in self.times:
                for here, there in ((edge.left, edge.right), (edge.right, edge.left)):
                    through = reaches[here].then(edge.reach_from(here))
                    reaches[there] = reaches[there].narrowed(through)
            if reaches == before:
                break
        return reaches

    @cached_property
    def reaches(self) -> tuple[dict[int, Reach], ...]:
        """``reach`` from every input."""
        return tuple(self.reach(index) for index in range(len(self.leaves)))


def inputs_of(order: Order) -> tuple[int, ...]:
    """Positions of an order's inputs from left to right."""
    if isinstance(order, int):
        return (order,)
    return inputs_of(order[0]) + inputs_of(order[1])


def left_deep(positions: Sequence[int]) -> Order:
    """One input after the other.

    >>> left_deep([0, 2, 1])
    ((0, 2), 1)
    """
    order: Order = positions[0]
    for position in positions[1:]:
        order = (order, position)
    return order


def pairs_of(order: Order) -> Iterator[tuple[Order, Order]]:
    """The joins of an order, each after those that it needs."""
    if not isinstance(order, int):
        yield from pairs_of(order[0])
        yield from pairs_of(order[1])
        yield order


def order_text(order: Order, names: Sequence[str]) -> str:
    """An order for people.

    >>> order_text(((0, 2), 1), "abc"), order_text((0, (1, 2)), "abc")
    ('(a ⋈ c) ⋈ b', 'a ⋈ (b ⋈ c)')
    """

    def inner(part: Order) -> str:
        text = order_text(part, names)
        return text if isinstance(part, int) else f"({text})"

    if isinstance(order, int):
        return names[order]
    return f"{inner(order[0])} ⋈ {inner(order[1])}"


def with_order(plan: Node, join: Join, order: Order) -> Node:
    """The plan with a join's order forced."""
    if isinstance(order, int):
        return plan
    return plan.transform(lambda node: replace(node, order=order) if node == join else node)


def topmost_joins(plan: Node) -> Iterator[Join]:
    """The joins of a plan that are not part of a larger graph of joins."""
    seen: set[Node] = set()

    def visit(node: Node, inside: bool) -> Iterator[Join]:
        if node in seen:
            return
        seen.add(node)
        reordered = isinstance(node, Join) and is_graph(node)
        if reordered and not inside:
            assert isinstance(node, Join)
            yield node
        for child in node.inputs:
            if isinstance(node, Filter):
                yield from visit(child, inside)
            else:
                part = isinstance(node, Join) and reordered and belongs(node, child)
                yield from visit(child, part)

    yield from visit(plan, inside=False)


def is_graph(node: Join, tables: bool = False) -> bool:
    """Whether a join can be read as inputs and conditions at all.

    ``tables`` lets static tables be inputs too.
    """
    return (tables or not has_table(node)) and not isinstance(node.time, SameSession)


def has_table(node: Join) -> bool:
    return not (node.left.streams() and node.right.streams())


def belongs(node: Join, side: Node, tables: bool = False) -> bool:
    """Whether a join below is part of the same graph.

    A filter between two inner joins is a predicate like any other.
    """
    while isinstance(side, Filter):
        side = side.input
    return (
        isinstance(side, Join)
        and bool(side.streams())
        and node.kind is JoinKind.INNER
        and side.kind is JoinKind.INNER
        and is_graph(side, tables)
        and not side.emits_window
        and not node.emits_window
        # One rule of lateness for all inputs: bounded by time, or by the life of the rows.
        and ((node.time is None) == (side.time is None) or has_table(node) or has_table(side))
    )


def join_graph(node: Join, tables: bool = False) -> JoinGraph:
    """Take a join apart, down to what is not part of the same graph.

    With ``tables`` a static table is an input like the others, one without a time.
    """
    if not is_graph(node, tables):
        raise PlanError("a session join and a join with a table are no graph of inner joins")
    joins = _joins(node, tables)
    inputs = _leaves(node, tables)
    leaves = tuple(
        Leaf(_name(leaf, schema, inputs), leaf, schema, _time_of(joins, schema))
        for leaf, schema in inputs
    )

    def owner(name: str) -> int:
        return next(i for i, leaf in enumerate(leaves) if name in leaf.schema)

    keys: list[KeyEdge] = []
    predicates: list[Expr] = []
    times: list[TimeEdge] = []
    for join in joins:
        for left, right in join.keys:
            ends = [{owner(name) for name in side.columns()} for side in (left, right)]
            if len(ends[0]) == 1 and len(ends[1]) == 1:
                keys.append(KeyEdge(ends[0].pop(), ends[1].pop(), left, right))
            else:
                predicates.append(Call("=", (left, right), BOOLEAN))
        for time in join.times:
            ends_of_time = owner(time.left.name), owner(time.right.name)
            bounds = all(
                leaves[index].time == column.name
                for index, column in zip(ends_of_time, (time.left, time.right), strict=True)
            )
            times.append(TimeEdge(*ends_of_time, time, bounds))
        predicates += conjuncts(join.residual)
        predicates += [
            part
            for side in join.inputs
            if belongs(join, side, tables)
            for found_filter in _filters(side)
            for part in conjuncts(found_filter.predicate)
        ]
    return JoinGraph(
        leaves,
        tuple(keys),
        tuple(times),
        (*predicates, *_equal_within(keys)),
        _written(node, iter(range(len(leaves))), tables),
        any(join.time is not None for join in joins),
    )


def _joins(node: Join, tables: bool) -> list[Join]:
    """The joins of the graph, lowest first as they were written."""
    joins: list[Join] = []
    for side in (node.left, node.right):
        if belongs(node, side, tables):
            joins += _joins(_below_filters(side), tables)
    return [*joins, node]


def _filters(side: Node) -> Iterator[Filter]:
    while isinstance(side, Filter):
        yield side
        side = side.input


def _below_filters(side: Node) -> Join:
    while isinstance(side, Filter):
        side = side.input
    assert isinstance(side, Join)
    return side


def _leaves(node: Join, tables: bool) -> list[tuple[Node, Schema]]:
    leaves: list[tuple[Node, Schema]] = []
    for side, schema in ((node.left, node.left_schema), (node.right, node.right_schema)):
        if belongs(node, side, tables):
            leaves += _leaves(_below_filters(side), tables)
        else:
            leaves.append((side, schema))
    return leaves


def _written(node: Join, positions: Iterator[int], tables: bool) -> Order:
    sides: list[Order] = []
    for side in (node.left, node.right):
        if belongs(node, side, tables):
            sides.append(_written(_below_filters(side), positions, tables))
        else:
            sides.append(next(positions))
    return sides[0], sides[1]


def _name(leaf: Node, schema: Schema, leaves: list[tuple[Node, Schema]]) -> str:
    """What people call an input: its alias, or its streams where it has none."""
    prefixes = {name.split(".")[0] for name in schema.names if "." in name}
    if len(prefixes) == 1 and all("." in name for name in schema.names):
        return prefixes.pop()
    name = "+".join(sorted(leaf.streams()))
    alike = [s for n, s in leaves if "+".join(sorted(n.streams())) == name]
    if len(alike) == 1:
        return name
    return f"{name} {next(i for i, other in enumerate(alike, 1) if other is schema)}"


def _time_of(joins: list[Join], schema: Schema) -> str:
    """The time column of an input: the one that conditions use."""
    for join in joins:
        for time in join.times:
            for column in (time.left, time.right):
                if column.name in schema:
                    return column.name
    return ""
