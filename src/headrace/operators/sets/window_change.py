"""Window increments and decrements: which rows enter a window and which leave it.

Definition 2 of the paper on aggregation join queries, by watermarks: between two of them the window
W(t1) becomes W(t2), and of the rows that are stored some enter and some leave.

Paper: Early Aggregation, Section 3, Definition 2.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from headrace.definitions.definition import Sql, call, column, number, select
from headrace.operators.epoch import Epoch
from headrace.operators.old_and_new import old_and_new
from headrace.operators.rows.row_store import StoredRows
from headrace.plan.windows import InputWindowKind


@dataclass(frozen=True)
class RowSpan:
    """Rows with times in ``[first, last)``, in milliseconds; None is without bound."""

    first: int | None
    last: int

    @property
    def empty(self) -> bool:
        return self.first is not None and self.first >= self.last

    def of(self, rows: StoredRows, epoch: Epoch, old: bool, new: bool) -> exp.Query | None:
        """The rows of an input in this span, from earlier epochs and from this one."""
        if self.empty:
            return None
        stored = old_and_new(
            rows.old(epoch, self.first, self.last - 1) if old else None,
            rows.new(epoch) if new else None,
            mark=False,
        )
        if stored is None:
            return None
        time = column(rows.time)
        where: list[Sql] = [time < call("timestamp_millis", number(self.last))]
        if self.first is not None:
            where.append(time.copy() >= call("timestamp_millis", number(self.first)))
        return select(stored, None, where)


@dataclass(frozen=True)
class WindowChange:
    """The window of an input at two watermarks: what it was, and what it is."""

    window: InputWindowKind
    before: int | None
    after: int

    def _begin(self, end: int) -> int | None:
        return self.window.begin(end)

    @property
    def now(self) -> RowSpan:
        return RowSpan(self._begin(self.after), self.after)

    @property
    def was(self) -> RowSpan | None:
        """The window at the watermark before; None where there was none yet."""
        return None if self.before is None else RowSpan(self._begin(self.before), self.before)

    @property
    def entered(self) -> RowSpan:
        """Where rows of earlier epochs lie that the watermark passed."""
        begin = self._begin(self.after)
        bounds = [bound for bound in (begin, self.before) if bound is not None]
        return RowSpan(max(bounds, default=None), self.after)

    @property
    def left(self) -> RowSpan | None:
        """Where rows lie that were in the window and are no more."""
        begin = self._begin(self.after)
        if begin is None or self.before is None:
            return None
        return RowSpan(self._begin(self.before), min(self.before, begin))
