"""Rows of an outer join that found no partner.

The pairs of an outer join are those of the inner one. A row of a kept side comes out alone, once,
in the epoch in which the watermark passes the last instant at which a partner could still arrive.
"""

from __future__ import annotations

from sqlglot import exp

from headrace.definitions.definition import (
    Definition,
    Sql,
    all_of,
    column,
    floor_to,
    met,
    micros,
    millis,
    null_columns,
    number,
    qualify,
    select,
    union_all,
)
from headrace.definitions.join_conditions import buckets, with_bucket
from headrace.definitions.join_shape import JoinShape, key_condition
from headrace.operators.base import EpochStep, Operator
from headrace.operators.epoch import Epoch
from headrace.operators.rows.delta_join import DeltaJoin, JoinInput
from headrace.plan.nodes import Join, SameWindow
from headrace.plan.reach import Reach


class OuterJoin(Operator):
    """A left, right or full join of two streams under a bounded condition on time."""

    def __init__(
        self,
        node: Join,
        pairs: DeltaJoin,
        left: JoinInput,
        right: JoinInput,
        shape: JoinShape,
        streams: frozenset[str],
    ) -> None:
        self.node: Join = node
        self._pairs = pairs
        self._sides = (left, right)
        self._shape = shape
        self._edge = shape.graph.times[0]
        self._streams = streams
        self._lag = shape.lag

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self._pairs.inputs

    def delta(self, epoch: Epoch) -> Definition | None:
        parts: list[exp.Query] = []
        pairs = self._pairs.delta(epoch)
        if pairs is not None:
            parts.append(pairs.query)
        for index, is_kept in enumerate((self.node.kind.keeps_left, self.node.kind.keeps_right)):
            alone = self._alone(epoch, index) if is_kept else None
            if alone is not None:
                parts.append(alone)
        return Definition(union_all(parts), self.node.schema) if parts else None

    def _alone(self, epoch: Epoch, index: int) -> exp.Query | None:
        """Rows of one side whose time for a partner ran out in this epoch, and that had none."""
        after = epoch.after(self._streams)
        if after is None:
            return None
        side, other = self._sides[index], self._sides[1 - index]
        reach = self._edge.reach_from(index)
        rows = self._expiring(epoch, side, reach, after - self._lag)
        if rows is None:
            return None
        partners = self._partners(epoch, other)
        nulls = null_columns(other.schema)
        if partners is not None:
            rows = self._without_partner(rows, partners, side, other, reach)
        columns = {n: nulls.get(n, column(n)) for n in self.node.schema.names}
        return select(rows, columns)

    def _expiring(
        self, epoch: Epoch, side: JoinInput, reach: Reach, limit: int
    ) -> exp.Select | None:
        before = epoch.before(self._streams)
        parts: list[exp.Query] = []
        new = side.rows.new(epoch)
        if new is not None:
            # A row may be past its time when it arrives, if partners lie only before it.
            parts.append(
                select(qualify(new, side.schema), None, [self._expired(side, reach, limit)])
            )
        # With its first watermark a join looks at all rows of the epochs before.
        previous = None if before is None else before - self._lag
        if previous is None or previous < limit:
            old = side.rows.old(epoch, *self._expiring_span(reach, previous, limit))
            if old is not None:
                where = [self._expired(side, reach, limit)]
                if previous is not None:
                    where.append(exp.Not(this=self._expired(side, reach, previous)))
                parts.append(select(qualify(old, side.schema), None, where))
        return select(union_all(parts), None) if parts else None

    def _expired(self, side: JoinInput, reach: Reach, limit: int) -> Sql:
        """Whether no partner can come any more, for a watermark at the limit."""
        if isinstance(self._edge.time, SameWindow):
            window = self._edge.time.window
            start = floor_to(millis(column(side.time)), window.slide, window.offset)
            return exp.paren(exp.paren(start) + number(window.length) <= number(limit))
        assert reach.after is not None
        last_partner = micros(column(side.time)) + number(reach.after * 1_000)
        return exp.paren(last_partner < number(limit * 1_000))

    def _expiring_span(
        self, reach: Reach, previous: int | None, limit: int
    ) -> tuple[int | None, int]:
        """Times at which a row can have expired between two watermarks, generously."""
        after = abs(reach.after or 0) + 1
        if isinstance(self._edge.time, SameWindow):
            after = self._edge.time.window.length + self._edge.time.window.slide
        return None if previous is None else previous - after, limit + after

    def _partners(self, epoch: Epoch, other: JoinInput) -> exp.Select | None:
        sides = [other.rows.old(epoch), other.rows.new(epoch)]
        parts: list[exp.Query] = [qualify(rows, other.schema) for rows in sides if rows is not None]
        return select(union_all(parts), None) if parts else None

    def _without_partner(
        self,
        rows: exp.Select,
        partners: exp.Select,
        side: JoinInput,
        other: JoinInput,
        reach: Reach,
    ) -> exp.Select:
        on = [key_condition(edge.left_key, edge.right_key) for edge in self._shape.graph.keys]
        on += self._shape.certain
        # The partners are repeated in neighbour buckets, not the rows: for an anti join a row
        # must meet all of its partners at once, and a partner twice does no harm.
        bucketed = buckets(self._edge.time, other.time, side.time, reach.swapped())
        if bucketed is not None:
            partners = with_bucket(partners, bucketed.present, "__partner", bucketed.repeats)
            rows = with_bucket(rows, bucketed.added, "__row", False)
            on.insert(0, exp.EQ(this=column("__partner"), expression=column("__row")))
        last = self._shape.last
        if last is not None:
            rows, partners, last = met(rows, partners, last)
            on.append(last)
        return (
            exp.Select(expressions=[exp.Star()])
            .from_(rows.subquery("l", copy=False), copy=False)
            .join(
                partners.subquery("r", copy=False),
                on=all_of(on),
                join_type="left anti",
                copy=False,
            )
        )

    def steps(self) -> tuple[EpochStep, ...]:
        sides = [
            name
            for name, keeps in (
                ("left", self.node.kind.keeps_left),
                ("right", self.node.kind.keeps_right),
            )
            if keeps
        ]
        return (
            *self._pairs.steps(),
            EpochStep(f"emit rows without partner of the {' and '.join(sides)} side"),
        )
