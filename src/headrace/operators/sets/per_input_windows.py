"""Aggregates over a join whose inputs each have a window of their own, up to the watermark.

At each watermark t the rows of an input's window, the last hour of it or all of it, are joined
with those of the others. The set of each window is updated as it moves; the sets are joined anew,
since they are small, and what was aggregated is not looked at again.

Paper: Early Aggregation, Section 6.1.
"""

from __future__ import annotations

from sqlglot import exp

from headrace.definitions.definition import Definition, Sql, number, window_struct
from headrace.operators.base import EpochStep, Operator
from headrace.operators.epoch import Epoch
from headrace.operators.panes.partial_rows import finished
from headrace.operators.sets.definition import SetJoin
from headrace.operators.sets.table_set import TableSet
from headrace.operators.sets.trailing_set import TrailingSet
from headrace.plan.nodes import WINDOW_COLUMN, Aggregate
from headrace.plan.windows import Trailing
from headrace.planner.early_aggregation import EarlyChoice


class InputWindowsJoin(Operator):
    """Emits all groups whenever the watermark has moved."""

    def __init__(
        self,
        join: SetJoin,
        sets: tuple[TrailingSet | TableSet, ...],
        sources: tuple[Operator, ...],
        streams: frozenset[str],
        starts_at: int | None,
        choice: EarlyChoice,
    ) -> None:
        self.node: Aggregate = join.shape.node
        self._join = join
        self._sets = sets
        self._sources = sources
        self._streams = streams
        self._starts_at = starts_at
        self.choice = choice

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self._sources

    def delta(self, epoch: Epoch) -> Definition | None:
        before, after = epoch.before(self._streams), epoch.after(self._streams)
        window = self.node.windows[0]
        assert isinstance(window, Trailing)
        if after is None or before == after:
            return None
        begin = after - window.length
        if self._starts_at is not None and begin < self._starts_at:
            return None
        early = self.choice.inputs(epoch)
        inputs: dict[int, exp.Select] = {}
        for index, store in enumerate(self._sets):
            if isinstance(store, TableSet):
                rows = store.rows(epoch)
            else:
                rows = store.current(epoch) if index in early else store.row_by_row(epoch)
            if rows is None:
                return None
            inputs[index] = self._join.named(index, rows, None, None)
        counts = [self._rows(epoch, i, i in early) for i in range(len(self._sets))]
        joined = self._join.join(epoch, inputs, counts, float(window.length))
        late = self._join.late(joined, {}, marked=False)
        span: dict[str, Sql] = {WINDOW_COLUMN: window_struct(number(begin), number(after))}
        return finished(self.node, self._join.keys, self._join.aggregates, late, span, False)

    def _rows(self, epoch: Epoch, index: int, early: bool) -> float:
        """How many rows of an input are joined, about."""
        store = self._sets[index]
        held = epoch.statistics.moving.get(store.name)
        if held is None:
            return float(epoch.stored_rows(store.name))
        return held.groups if early else held.rows

    def steps(self) -> tuple[EpochStep, ...]:
        names = ", ".join(self._join.shape.names)
        return (EpochStep(f"join aggregation sets of {names}", (self.choice.text,)),)
