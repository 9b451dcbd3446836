"""The shape of a join that runs as one operator: its inputs, conditions and bounds on time.

A tree of inner joins is one operator with all of its inputs: results are then independent of the
order in which the user wrote them. Joins that make their own windows, outer joins and joins with
tables stay what they are, and are inputs of the operator above.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.engine.operators.delta_join import (
    Condition,
    TimeEdge,
    key_condition,
    time_conditions,
)
from headrace.engine.operators.join_conditions import Reach
from headrace.engine.relations import is_table_join, sql_of
from headrace.errors import QueryError
from headrace.plan.expressions import conjuncts
from headrace.plan.nodes import Join, JoinKind, Node, SameSession, Source
from headrace.plan.times import event_times
from headrace.plan.types import Schema


@dataclass(frozen=True)
class Leaf:
    """One input: its plan, its columns as the join names them, and its time by both names."""

    node: Node
    schema: Schema
    time: str

    @property
    def own_time(self) -> str:
        return self.node.schema.names[self.schema.names.index(self.time)]

    @property
    def lag(self) -> int:
        return event_times(self.node).get(self.own_time, 0)

    @property
    def ttl(self) -> int | None:
        """How long its rows live in a join without a condition on time; None is for ever."""
        lives = [n.ttl for n in self.node.walk() if isinstance(n, Source)]
        return None if None in lives else max(ttl for ttl in lives if ttl is not None)


@dataclass(frozen=True)
class JoinShape:
    """Everything a delta join needs to know beside the rows."""

    leaves: tuple[Leaf, ...]
    conditions: tuple[Condition, ...]
    edges: tuple[TimeEdge, ...]
    outer: bool

    @property
    def lag(self) -> int:
        """How far behind the watermark the inputs' rows still arrive."""
        return max(leaf.lag for leaf in self.leaves)

    def kept(self, index: int) -> int | None:
        """How far below the watermark rows of one input may still be needed; None is for ever.

        A row is needed while a partner may arrive, or a partner's partner. In an outer join it
        is also needed until every row that it might have matched has been told apart.
        """
        if not self.edges:
            return self.leaves[index].ttl
        reached = {index: Reach(0, 0)}
        pending = [index]
        while pending:
            here = pending.pop()
            for edge in self.edges:
                for start, end in ((edge.left, edge.right), (edge.right, edge.left)):
                    if start == here and end not in reached:
                        reached[end] = reached[here].then(edge.reach_from(start))
                        pending.append(end)
        if len(reached) < len(self.leaves):
            return None
        kept = 0
        for reach in reached.values():
            if reach.after is None or (self.outer and reach.before is None):
                return None
            before = max(reach.before or 0, 0) if self.outer else 0
            kept = max(kept, max(reach.after, 0) + before)
        return kept + self.lag + 1


def join_shape(node: Join) -> JoinShape:
    """Take a join apart, down to what is not part of the same operator."""
    joins = _joins(node)
    if node.kind is not JoinKind.INNER and (node.time is None or node.emits_window):
        raise QueryError(
            "an outer join of streams needs a condition on time, and cannot select window",
            hint="add b.ts BETWEEN a.ts - INTERVAL '…' AND a.ts + INTERVAL '…'",
        )
    leaves = tuple(
        Leaf(leaf, schema, _time_of(joins, leaf, schema)) for leaf, schema in _leaves(node)
    )
    conditions: list[Condition] = []
    for join in joins:
        conditions += [key_condition(a, b) for a, b in join.keys]
        if join.time is not None:
            conditions += time_conditions(join.time)
        conditions += [Condition(sql_of(p), p.columns()) for p in conjuncts(join.residual)]
    return JoinShape(
        leaves, tuple(conditions), _edges(joins, leaves), node.kind is not JoinKind.INNER
    )


def _joins(node: Join) -> list[Join]:
    """The joins of the tree that run as one operator, topmost first."""
    found = [node]
    for side in (node.left, node.right):
        if _belongs(node, side):
            assert isinstance(side, Join)
            found += _joins(side)
    return found


def _leaves(node: Join) -> list[tuple[Node, Schema]]:
    leaves: list[tuple[Node, Schema]] = []
    for side, schema in ((node.left, node.left_schema), (node.right, node.right_schema)):
        if _belongs(node, side):
            assert isinstance(side, Join)
            leaves += _leaves(side)
        else:
            leaves.append((side, schema))
    return leaves


def _belongs(node: Join, side: Node) -> bool:
    """Whether a join below is part of the same operator."""
    return (
        isinstance(side, Join)
        and node.kind is JoinKind.INNER
        and side.kind is JoinKind.INNER
        and not is_table_join(side)
        and not side.emits_window
        and not node.emits_window
        and not isinstance(side.time, SameSession)
        # One rule of lateness for all inputs: bounded by time, or by the life of the rows.
        and (node.time is None) == (side.time is None)
    )


def _time_of(joins: list[Join], leaf: Node, schema: Schema) -> str:
    """The time column of an input: the one that conditions use, else its event time."""
    for join in joins:
        if join.time is not None:
            for column in (join.time.left, join.time.right):
                if column.name in schema:
                    return column.name
    own = [name for name in leaf.schema.names if name in event_times(leaf)]
    if not own:
        raise QueryError("an input of the join has no event time, so its state could never end")
    return schema.names[leaf.schema.names.index(own[0])]


def _edges(joins: list[Join], leaves: tuple[Leaf, ...]) -> tuple[TimeEdge, ...]:
    def owner(name: str) -> int:
        return next(i for i, leaf in enumerate(leaves) if name in leaf.schema)

    return tuple(
        TimeEdge(owner(join.time.left.name), owner(join.time.right.name), join.time)
        for join in joins
        if join.time is not None
    )
