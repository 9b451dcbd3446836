"""Joined rows of inputs that each have a window of their own: all of them, or what changed.

Between two watermarks rows enter and leave the windows. With W for a window as it was, W' as it is,
and D for what entered less what left it, the joined rows have changed by

    D1 · W2 · … · Wm  +  W1' · D2 · W3 · … · Wm  +  …  +  W1' · … · Dm

which is steps 3 and 7 of the paper's algorithm for all rows of an epoch at once: what moved of one
input meets the windows, or the sets, of the others. A group that rows have left has a negative
count, and so have the joined rows that it stands for.

Paper: Early Aggregation, Section 6.1, Figure 5.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlglot import exp

from headrace.definitions.definition import Definition, column, select, union_all
from headrace.definitions.partials import Decomposed, Partial, decompose
from headrace.operators.base import EpochStep, Operator
from headrace.operators.epoch import Epoch
from headrace.operators.panes.partial_rows import merge_groups
from headrace.operators.sets.definition import SetJoin
from headrace.operators.sets.table_set import TableSet
from headrace.operators.sets.trailing_set import Near, TrailingSet
from headrace.plan.expressions import AggregateCall, Column, Expr
from headrace.plan.nodes import Aggregate
from headrace.plan.types import BIGINT, Field, Schema

#: The aggregate that counts joined rows: a group that has none is no group.
PAIRS = "__pairs"


class WindowPairs(Operator):
    """The groups of joined rows, for the set of the output that is made of them."""

    def __init__(
        self,
        join: SetJoin,
        sets: tuple[TrailingSet | TableSet, ...],
        sources: tuple[Operator, ...],
        stretch: int,
    ) -> None:
        self.node: Aggregate = join.shape.node
        self.join = join
        self._sets = sets
        self._sources = sources
        self._stretch = float(stretch)

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self._sources

    @property
    def has_tables(self) -> bool:
        return any(isinstance(store, TableSet) for store in self._sets)

    @property
    def partials(self) -> list[Partial]:
        by_name = {p.name: p for parts in self.join.aggregates.values() for p in parts.partials}
        return [by_name[name] for name in sorted(by_name)]

    @property
    def keys(self) -> tuple[Column, ...]:
        types = (key.expr.type for key in self.join.sets.keys)
        return tuple(Column(n, t) for n, t in zip(self.join.keys, types, strict=True))

    @property
    def schema(self) -> Schema:
        fields = [Field(key.name, key.type) for key in self.keys]
        return Schema((*fields, *(partial.field for partial in self.partials)))

    def whole(self, epoch: Epoch, early: frozenset[int] | None = None) -> exp.Select | None:
        """The groups of all rows that are in their windows now.

        ``early`` are the inputs of which the sets are read, and not the rows; those that have one
        in this epoch if nothing is said.
        """
        if early is None:
            everybody = range(len(self._sets))
            early = frozenset(index for index in everybody if self._is_set(epoch, index))
        inputs: dict[int, exp.Select] = {}
        for index, store in enumerate(self._sets):
            if isinstance(store, TableSet):
                rows = store.rows(epoch)
            else:
                rows = store.current(epoch) if index in early else store.row_by_row(epoch)
            if rows is None:
                return None
            inputs[index] = self.join.named(index, rows, None, None)
        counts = [self._rows(epoch, index, index in early) for index in range(len(self._sets))]
        joined = self.join.join(epoch, inputs, counts, self._stretch)
        return self.join.late(joined, {}, marked=False)

    def changed(self, epoch: Epoch) -> exp.Query | None:
        """By how much the groups have changed since the watermark before."""
        terms = [
            term
            for driver in self.join.shape.streams
            if (term := self._term(epoch, driver)) is not None
        ]
        if not terms:
            return None
        merged = {p.name: p.merge(column(p.name)) for p in self.partials}
        return merge_groups(union_all(terms), self.join.keys, merged)

    def _term(self, epoch: Epoch, driver: int) -> exp.Query | None:
        """What moved of one input, with the others: as they are before it, as they were after."""
        own = self._sets[driver]
        assert isinstance(own, TrailingSet)
        moved = own.moved(epoch, tuple(self.join.inputs[driver].measures.values()))
        if moved is None:
            return None
        inputs = {driver: self.join.named(driver, moved, None, None)}
        for index, store in enumerate(self._sets):
            if index == driver:
                continue
            near = self._near(driver, index, moved)
            if isinstance(store, TableSet):
                rows = store.rows(epoch)
            elif index > driver:
                rows = store.previous(epoch, near)
            elif store.is_wanted(epoch):
                rows = store.current(epoch, near)
            else:
                rows = store.row_by_row(epoch)
            if rows is None:
                return None
            inputs[index] = self.join.named(index, rows, None, None)
        counts = [self._rows(epoch, i, self._is_set(epoch, i)) for i in range(len(self._sets))]
        came = sum(file.rows for file in epoch.new_files(own.rows.store.name))
        counts[driver] = 2.0 * came
        joined = self.join.join(epoch, inputs, counts, self._stretch, watched=False)
        return self.join.late(joined, {}, marked=False)

    def _is_set(self, epoch: Epoch, index: int) -> bool:
        store = self._sets[index]
        return isinstance(store, TableSet) or store.is_wanted(epoch)

    def _rows(self, epoch: Epoch, index: int, early: bool) -> float:
        """How many rows of an input are in its window, or groups in its set, about."""
        store = self._sets[index]
        held = epoch.statistics.moving.get(store.name)
        if held is None:
            return float(epoch.stored_rows(store.name))
        return held.groups if early else held.rows

    def _near(self, driver: int, index: int, moved: exp.Query) -> Near | None:
        """Leaves out groups of an input that meet nothing of what moved of another."""
        common = [
            keys
            for members in self.join.shape.graph.key_classes
            if (keys := self._common_key(members, index, driver)) is not None
        ]
        if not common:
            return None
        names = {f"__near{at}": column(theirs) for at, (_, theirs) in enumerate(common)}
        positions = [exp.Literal.number(at + 1) for at in range(len(names))]
        keys_moved = select(moved.copy(), names, (), positions)
        on = exp.and_(
            *(column(ours).eq(column(f"__near{at}")) for at, (ours, _) in enumerate(common)),
            copy=False,
        )

        def near(entries: exp.Query) -> exp.Query:
            return (
                exp.Select(expressions=[exp.Star()])
                .from_(select(entries, None).subquery("l", copy=False), copy=False)
                .join(keys_moved.subquery("r", copy=False), on=on, join_type="inner", copy=False)
            )

        return near

    def _common_key(
        self, members: Iterable[tuple[int, Expr]], index: int, driver: int
    ) -> tuple[str, str] | None:
        """The stored columns of two inputs that are equal in all joined rows: as they are, since a
        cast may make values equal that are not, and none of that is stored."""
        equal_keys: list[Column] = []
        for owner in (index, driver):
            own = (key for at, key in members if at == owner and isinstance(key, Column))
            equal_keys += list(own)[:1]
        if len(equal_keys) < 2 or equal_keys[0].type != equal_keys[1].type:
            return None
        ours, theirs = (
            self.join.inputs[owner].stored_key(key.name)
            for owner, key in zip((index, driver), equal_keys, strict=True)
        )
        return None if ours is None or theirs is None else (ours, theirs)

    def delta(self, epoch: Epoch) -> Definition | None:
        raise AssertionError("joined rows of windows are read by the set that is made of them")

    def steps(self) -> tuple[EpochStep, ...]:
        return ()


def counted_join(join: SetJoin) -> tuple[SetJoin, dict[str, str]]:
    """The same join with what its groups are told by: the number of their rows, and of the values
    that sums are made of. A sum without values is NULL, and one that is 0 may be either.

    With it comes which partial is counted by which.
    """
    aggregates, owners = dict(join.aggregates), dict(join.owners)
    inputs = list(join.inputs)
    counted: dict[str, str] = {}
    for position, written in enumerate(join.shape.aggregates):
        assert isinstance(written.expr, AggregateCall)
        if written.expr.function != "sum":
            continue
        values = _count_of(written.expr)
        aggregates[f"__values{position}"] = values
        (count,) = values.partials
        parts = join.aggregates[written.name].partials
        owner = owners[count.name] = owners[parts[0].name]
        counted |= {part.name: count.name for part in parts}
        if owner is not None:
            source = inputs[owner]
            call = next(c for at, c in join.sets.inputs[owner].measures if at == position)
            (own,) = _count_of(call).partials
            inputs[owner] = replace(source, measures={**source.measures, count.name: own})
    pairs = decompose(AggregateCall("count", (), BIGINT))
    assert pairs is not None
    aggregates[PAIRS] = pairs
    owners[pairs.partials[0].name] = None
    everybody = tuple(replace(source, counts=True) for source in inputs)
    return replace(join, inputs=everybody, aggregates=aggregates, owners=owners), counted


def _count_of(call: AggregateCall) -> Decomposed:
    counted = decompose(replace(call, function="count", data_type=BIGINT))
    assert counted is not None
    return counted
