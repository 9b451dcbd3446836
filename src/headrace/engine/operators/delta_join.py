"""Joins of streams as delta joins: new rows of each input against everything of the others.

For inputs 1 … n the new pairs of an epoch are the disjoint union, over i, of
    new(i) ⋈ old(j) for j < i ⋈ (old(j) ∪ new(j)) for j > i,
so each result comes out once, in the epoch of its last contributor, and no intermediate result
is kept. The order in which term i visits the other inputs is free; here it follows the join graph.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from headrace.engine.epoch import Epoch
from headrace.engine.operators.base import Operator, Step
from headrace.engine.operators.expansion import WINDOW_START, Ends, expand
from headrace.engine.operators.join_conditions import (
    UNBOUNDED,
    Reach,
    buckets,
    exact_condition,
    reach_of,
    with_bucket,
)
from headrace.engine.operators.row_store import Arranged
from headrace.engine.relations import (
    Relation,
    Sql,
    all_of,
    call,
    column,
    keep,
    millis,
    named,
    number,
    qualify,
    select,
    sql_of,
    union_all,
    window_struct,
)
from headrace.plan.expressions import Expr
from headrace.plan.nodes import WINDOW_COLUMN, Join, JoinTime, SameWindow
from headrace.plan.types import Schema
from headrace.plan.windows import Hopping


@dataclass(frozen=True)
class JoinInput:
    """One input: how it is read, its columns as the join names them, and its time column.

    ``ttl`` bounds the life of its rows in a join without a condition on time.
    """

    rows: Arranged
    schema: Schema
    time: str
    ttl: int | None = None


@dataclass(frozen=True)
class Condition:
    """Part of the join's predicate, with the columns it needs."""

    sql: Sql
    columns: frozenset[str]


@dataclass(frozen=True)
class TimeEdge:
    """A condition on the times of two inputs, by their index."""

    left: int
    right: int
    time: JoinTime

    def reach_from(self, index: int) -> Reach:
        reach = reach_of(self.time)
        return reach if index == self.left else reach.swapped()


class DeltaJoin(Operator):
    """An inner join of two or more streams."""

    def __init__(
        self,
        node: Join,
        inputs: tuple[JoinInput, ...],
        sources: tuple[Operator, ...],
        conditions: tuple[Condition, ...],
        edges: tuple[TimeEdge, ...],
        streams: frozenset[str],
    ) -> None:
        if node.emits_window and len(inputs) != 2:
            raise AssertionError("a join that emits its windows has two inputs")
        self.node: Join = node
        self._inputs = inputs
        self._sources = sources
        self._conditions = conditions
        self._edges = edges
        self._streams = streams

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self._sources

    def delta(self, epoch: Epoch) -> Relation | None:
        terms = [self._term(epoch, index) for index in range(len(self._inputs))]
        found = [term for term in terms if term is not None]
        return Relation(union_all(found), self.node.schema) if found else None

    def _term(self, epoch: Epoch, driver: int) -> exp.Query | None:
        """New rows of one input against the others."""
        first = self._inputs[driver]
        new, span = first.rows.new(epoch), first.rows.new_span(epoch)
        if new is None or span is None:
            return None
        joined = self._alive(qualify(new, first.schema), driver, epoch)
        present = set(first.schema.names)
        used: set[int] = set()
        for index, reach in self._visits(driver):
            begin, end = reach.span(*span)
            rows = self._rows_of(epoch, index, index > driver, begin, end)
            if rows is None:
                return None
            joined = self._join(joined, present, rows, index, used)
            present |= set(self._inputs[index].schema.names)
        return select(joined, keep(self.node.schema.names))

    def _visits(self, driver: int) -> list[tuple[int, Reach]]:
        """The other inputs in an order along the join graph, with their reach from the driver."""
        order: list[tuple[int, Reach]] = []
        reached: dict[int, Reach] = {driver: Reach(0, 0)}
        while len(reached) < len(self._inputs):
            step = self._next(reached)
            if step is None:
                # Not tied by time: along equal keys, in any order.
                remaining = [i for i in range(len(self._inputs)) if i not in reached]
                tied = [i for i in remaining if self._tied(i, set(reached))]
                step = (tied or remaining)[0], UNBOUNDED
            reached[step[0]] = step[1]
            order.append(step)
        return order

    def _next(self, reached: dict[int, Reach]) -> tuple[int, Reach] | None:
        for edge in self._edges:
            for here, there in ((edge.left, edge.right), (edge.right, edge.left)):
                if here in reached and there not in reached:
                    return there, reached[here].then(edge.reach_from(here))
        return None

    def _tied(self, index: int, present: set[int]) -> bool:
        own = set(self._inputs[index].schema.names)
        others = {name for i in present for name in self._inputs[i].schema.names}
        return any(
            c.columns & own and c.columns & others and c.columns <= own | others
            for c in self._conditions
        )

    def _rows_of(
        self, epoch: Epoch, index: int, with_new: bool, begin: int | None, end: int | None
    ) -> exp.Select | None:
        source = self._inputs[index]
        parts = [source.rows.old(epoch, begin, end)]
        if with_new:
            parts.append(source.rows.new(epoch))
        found = [qualify(rows, source.schema) for rows in parts if rows is not None]
        if not found:
            return None
        return self._alive(select(union_all(list(found)), None), index, epoch)

    def _alive(self, rows: exp.Select, index: int, epoch: Epoch) -> exp.Select:
        source = self._inputs[index]
        watermark = epoch.before(self._streams)
        if source.ttl is None or watermark is None:
            return rows
        oldest = call("timestamp_millis", number(watermark - source.ttl))
        return select(rows, None, [column(source.time) >= oldest])

    def _join(
        self, joined: exp.Select, present: set[str], rows: exp.Select, index: int, used: set[int]
    ) -> exp.Select:
        """Add one input, with every condition that can be decided now."""
        available = present | set(self._inputs[index].schema.names)
        on: list[Sql] = []
        for number_, condition in enumerate(self._conditions):
            if number_ not in used and condition.columns <= available:
                used.add(number_)
                on.append(condition.sql.copy())
        if isinstance(self.node.time, SameWindow) and self.node.emits_window:
            return self._join_per_window(joined, present, rows, index, self.node.time.window, on)
        joined, rows, bucket = self._bucketed(joined, present, rows, index)
        if bucket is not None:
            on.insert(0, bucket)
        return (
            exp.Select(expressions=[exp.Star()])
            .from_(joined.subquery("l", copy=False), copy=False)
            .join(
                rows.subquery("r", copy=False),
                on=all_of(on),
                join_type="inner" if on else "cross",
                copy=False,
            )
        )

    def _join_per_window(
        self,
        joined: exp.Select,
        present: set[str],
        rows: exp.Select,
        index: int,
        window: Hopping,
        on: list[Sql],
    ) -> exp.Select:
        """Once per common window: both sides are placed in all of their windows."""
        driver = self._inputs[1 - index]
        sides = []
        for query, source, name in (
            (joined, driver, "__present"),
            (rows, self._inputs[index], "__added"),
        ):
            placed = expand(query, millis(column(source.time)), {0: window}, Ends(None, None))
            sides.append(select(placed, {**keep(source.schema.names), name: column(WINDOW_START)}))
        on.insert(0, exp.EQ(this=column("__present"), expression=column("__added")))
        pairs = (
            exp.Select(expressions=[exp.Star()])
            .from_(sides[0].subquery("l", copy=False), copy=False)
            .join(sides[1].subquery("r", copy=False), on=all_of(on), join_type="inner", copy=False)
        )
        span = window_struct(column("__present"), column("__present") + number(window.length))
        return select(pairs, None).select(named(span, WINDOW_COLUMN), copy=False)

    def _bucketed(
        self, joined: exp.Select, present: set[str], rows: exp.Select, index: int
    ) -> tuple[exp.Select, exp.Select, Sql | None]:
        """Give both sides a bucket of time, by the first condition on time that bounds them."""
        for edge in self._edges:
            for here, there in ((edge.left, edge.right), (edge.right, edge.left)):
                if there != index or self._inputs[here].time not in present:
                    continue
                found = buckets(
                    edge.time,
                    self._inputs[here].time,
                    self._inputs[there].time,
                    edge.reach_from(here),
                )
                if found is None:
                    continue
                ours, theirs = f"__present{index}", f"__added{index}"
                return (
                    with_bucket(select(joined, None), found.present, ours, found.repeats),
                    with_bucket(select(rows, None), found.added, theirs, False),
                    exp.EQ(this=column(ours), expression=column(theirs)),
                )
        return joined, rows, None

    def steps(self) -> tuple[Step, ...]:
        lines = []
        for driver in range(len(self._inputs)):
            visits = [self._inputs[driver], *(self._inputs[i] for i, _ in self._visits(driver))]
            lines.append(
                "new " + " ⋈ ".join(v.rows.store.name.removeprefix("rows-") for v in visits)
            )
        return (Step("delta join", tuple(lines)),)


def key_condition(left: Expr, right: Expr) -> Condition:
    return Condition(
        exp.EQ(this=sql_of(left), expression=sql_of(right)), left.columns() | right.columns()
    )


def time_conditions(time: JoinTime) -> list[Condition]:
    columns = time.left.columns() | time.right.columns()
    return [Condition(sql, columns) for sql in exact_condition(time)]
