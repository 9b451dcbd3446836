"""The shape of a join that runs as one operator: its graph, its conditions, and what it keeps.

A tree of inner joins is one operator with all of its inputs: results are then independent of the
order in which the user wrote them, and of the order in which they are computed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.definitions.definition import Sql, one_after_the_other, sql_of
from headrace.definitions.join_conditions import exact_condition
from headrace.errors import QueryError
from headrace.optimizer.safety import can_raise
from headrace.plan.expressions import Call, Expr
from headrace.plan.join_graph import JoinGraph, join_graph
from headrace.plan.nodes import Join, JoinKind
from headrace.plan.times import event_times, graph_lag
from headrace.plan.types import BOOLEAN


@dataclass(frozen=True)
class JoinConjunct:
    """Part of the join's predicate, with the columns it needs.

    One that ``raises`` for some rows is met by those alone that satisfy all that never do, whatever
    the order of the joins.
    """

    sql: Sql
    columns: frozenset[str]
    raises: bool = False


@dataclass(frozen=True)
class JoinShape:
    """Everything a delta join needs to know beside the rows.

    ``conditions`` are all but the equalities of keys, of which each step of an order needs as many
    as there are classes of equal keys.
    """

    graph: JoinGraph
    conditions: tuple[JoinConjunct, ...]
    outer: bool
    #: Whether what conditions on time imply for other pairs holds too; not where times are rounded.
    implies: bool = True

    @property
    def certain(self) -> list[Sql]:
        """The conditions that never raise."""
        return [condition.sql.copy() for condition in self.conditions if not condition.raises]

    @property
    def last(self) -> Sql | None:
        """The others as one condition, in the order in which they are written."""
        return one_after_the_other(c.sql.copy() for c in self.conditions if c.raises)

    def own_time(self, index: int) -> str:
        """The time column of an input, by its own name: the one that conditions use, else one by
        which its rows expire, else its event time."""
        leaf = self.graph.leaves[index]
        if leaf.time:
            return leaf.own_name(leaf.time)
        if leaf.lives:
            return leaf.own_name(next(name for name in leaf.schema.names if name in leaf.lives))
        own = [name for name in leaf.node.schema.names if name in event_times(leaf.node)]
        if not own:
            raise QueryError("an input of the join has no event time, so its state could never end")
        return own[0]

    @property
    def lag(self) -> int:
        """How far behind the watermark the inputs' rows still arrive."""
        return graph_lag(self.graph)

    def kept(self, index: int) -> int | None:
        """How far below the watermark rows of one input may still be needed; None is for ever.

        A row is needed while a partner may arrive, or a partner's partner. In an outer join it
        is also needed until every row that it might have matched has been told apart.
        """
        if not self.graph.timed:
            # A row is dead once any of its times is, so it suffices to look at this one.
            leaf = self.graph.leaves[index]
            own = self.own_time(index)
            return next((ttl for n, ttl in leaf.lives.items() if leaf.own_name(n) == own), None)
        longest = 0
        for reach in self.graph.reaches[index].values():
            if reach.after is None or (self.outer and reach.before is None):
                return None
            before = max(reach.before or 0, 0) if self.outer else 0
            longest = max(longest, max(reach.after, 0) + before)
        return longest + self.lag + len(self.graph.leaves)


def join_shape(node: Join) -> JoinShape:
    """Take a join apart, down to what is not part of the same operator."""
    if node.kind is not JoinKind.INNER and (node.time is None or node.emits_window):
        raise QueryError(
            "an outer join of streams needs a condition on time, and cannot select window",
            hint="add b.ts BETWEEN a.ts - INTERVAL '…' AND a.ts + INTERVAL '…'",
        )
    graph = join_graph(node)
    conditions: list[JoinConjunct] = []
    for edge in graph.times:
        columns = edge.time.left.columns() | edge.time.right.columns()
        conditions += [JoinConjunct(sql, columns) for sql in exact_condition(edge.time)]
    conditions += map(predicate_condition, graph.predicates)
    return JoinShape(graph, tuple(conditions), node.kind is not JoinKind.INNER)


def with_keys(shape: JoinShape, graph: JoinGraph) -> JoinShape:
    """The same with some equalities of keys as conditions, as the graph has them."""
    more = [part for part in graph.predicates if part not in shape.graph.predicates]
    conditions = (*shape.conditions, *map(predicate_condition, more))
    return replace(shape, graph=graph, conditions=conditions)


def predicate_condition(predicate: Expr) -> JoinConjunct:
    return JoinConjunct(sql_of(predicate), predicate.columns(), can_raise(predicate))


def key_condition(left: Expr, right: Expr) -> Sql:
    """Keys may be conditions themselves (``a.k IS NULL``), and are put into brackets then."""
    return sql_of(Call("=", (left, right), BOOLEAN))
