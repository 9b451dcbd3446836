"""Aggregates over a join whose inputs each have a window of their own, up to the watermark.

At each watermark t the rows of an input's window, the last hour of it or all of it, are joined
with those of the others. The set of each window is updated as it moves. What comes out is read from
the set of the output, where that is kept up to date by what enters and leaves the windows; or the
sets are joined anew, which costs less while they are small.

Paper: Early Aggregation, Section 6.1.
"""

from __future__ import annotations

from sqlglot import exp

from headrace.definitions.definition import Definition, Sql, number, window_struct
from headrace.operators.base import EpochStep, Operator
from headrace.operators.epoch import Epoch
from headrace.operators.panes.partial_rows import finished
from headrace.operators.sets.output_set import OutputSet
from headrace.operators.sets.window_pairs import WindowPairs
from headrace.plan.nodes import WINDOW_COLUMN, Aggregate
from headrace.plan.windows import Current, Trailing
from headrace.planner.early_aggregation import EarlyChoice
from headrace.planner.output_upkeep import OutputChoice


class InputWindowsJoin(Operator):
    """Emits all groups whenever the watermark has moved."""

    def __init__(
        self,
        pairs: WindowPairs,
        output: OutputSet | None,
        streams: frozenset[str],
        starts_at: int | None,
        choice: EarlyChoice,
        upkeep: OutputChoice,
    ) -> None:
        self.node: Aggregate = pairs.node
        self._pairs = pairs
        self._output = output
        self._streams = streams
        self._starts_at = starts_at
        self.choice = choice
        self._upkeep = upkeep

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self._pairs.inputs

    def delta(self, epoch: Epoch) -> Definition | None:
        before, after = epoch.before(self._streams), epoch.after(self._streams)
        window = self.node.windows[0]
        assert isinstance(window, Trailing | Current)
        if after is None or before == after:
            return None
        begin = window.begin(after)
        if self._starts_at is not None and begin < self._starts_at:
            return None
        groups = self._groups(epoch)
        if groups is None:
            return None
        join = self._pairs.join
        span: dict[str, Sql] = {WINDOW_COLUMN: window_struct(number(begin), number(after))}
        return finished(
            self.node, join.keys, join.aggregates, groups, span, False, different=join.different
        )

    def _groups(self, epoch: Epoch) -> exp.Query | None:
        output = self._output
        if output is not None and self._upkeep.keeps(epoch) and output.is_current(epoch):
            return output.groups(epoch)
        return self._pairs.whole(epoch, self.choice.inputs(epoch))

    def steps(self) -> tuple[EpochStep, ...]:
        names = ", ".join(self._pairs.join.shape.names)
        return (EpochStep(f"join aggregation sets of {names}", (self.choice.text,)),)
