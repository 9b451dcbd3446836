"""Aggregates computed from rows: holistic functions, and trailing windows."""

from __future__ import annotations

from sqlglot import exp

from headrace.definitions.definition import (
    Definition,
    Sql,
    call,
    column,
    keep,
    millis,
    number,
    select,
    sql_of,
    window_struct,
)
from headrace.definitions.partials import of_rows
from headrace.definitions.windows import (
    WINDOW_INDEX,
    WINDOW_START,
    Ends,
    end_of,
    ends_of_interest,
    expand,
    name_of,
    numbered,
)
from headrace.operators.base import EpochStep, Operator
from headrace.operators.epoch import Epoch
from headrace.operators.old_and_new import NEW, old_and_new
from headrace.operators.rows.row_store import StoredRows
from headrace.plan.nodes import WINDOW_COLUMN, WINDOW_ID_COLUMN, Aggregate, OutputMode
from headrace.plan.windows import Hopping, InheritedWindow, Landmark, Trailing


class RowAggregate(Operator):
    """Groups the stored rows of the windows that close (or change) in this epoch."""

    def __init__(
        self,
        node: Aggregate,
        rows: StoredRows,
        source: Operator,
        streams: frozenset[str],
        lag: int,
        mode: OutputMode,
        starts_at: int | None,
    ) -> None:
        self.node: Aggregate = node
        self._rows = rows
        self._source = source
        self._streams = streams
        self._lag = lag
        self._mode = mode
        self._starts_at = starts_at

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self._source,)

    def delta(self, epoch: Epoch) -> Definition | None:
        first_window = self.node.windows[0]
        if isinstance(first_window, Landmark):
            return self._landmark(epoch)
        before, after = epoch.before(self._streams), epoch.after(self._streams)
        if isinstance(first_window, Trailing):
            if after is None or before == after:
                return None
            return self._trailing(epoch, first_window, after)
        changes = self._mode is OutputMode.UPDATE
        ends = ends_of_interest(before, after, self._lag, self._starts_at, changes)
        return None if ends is None else self._windows(epoch, ends, changes)

    def _windows(self, epoch: Epoch, ends: Ends, only_changed: bool) -> Definition | None:
        windows = tuple(w for w in self.node.windows if isinstance(w, Hopping))
        given = isinstance(self.node.windows[0], InheritedWindow)
        first = None if given else ends.least_time(windows)
        rows = self._read(epoch, first, ends.greatest_time(), only_changed)
        if rows is None:
            return None
        if given:
            placed = self._place_given(rows, ends)
            window = exp.Column(this=exp.to_identifier(self.node.time.name, quoted=True))
            return self._aggregate(placed, {WINDOW_COLUMN: window}, [window.copy()], only_changed)
        placed = expand(rows, millis(column(self.node.time.name)), numbered(windows), ends)
        extra: dict[str, Sql] = {
            WINDOW_COLUMN: window_struct(column(WINDOW_START), end_of(windows))
        }
        if len(windows) > 1:
            extra[WINDOW_ID_COLUMN] = name_of(windows)
        groups: list[Sql] = [column(WINDOW_INDEX), column(WINDOW_START)]
        return self._aggregate(placed, extra, groups, only_changed)

    def _place_given(self, rows: exp.Query, ends: Ends) -> exp.Query:
        window = column(self.node.time.name)
        end = millis(exp.Dot(this=window, expression=exp.to_identifier("end")))
        start = millis(exp.Dot(this=window.copy(), expression=exp.to_identifier("start")))
        where: list[Sql] = []
        if ends.above is not None:
            where.append(end > number(ends.above))
        if ends.up_to is not None:
            where.append(end.copy() <= number(ends.up_to))
        if ends.start_from is not None:
            where.append(start >= number(ends.start_from))
        return select(rows, None, where)

    def _landmark(self, epoch: Epoch) -> Definition | None:
        rows = self._read(epoch, None, None, mark_new=True)
        if rows is None:
            return None
        timed = column(self.node.time.name).is_(exp.Null()).not_()
        return self._aggregate(select(rows, None, [timed]), {}, [], only_changed=True)

    def _trailing(self, epoch: Epoch, window: Trailing, after: int) -> Definition | None:
        end = after - self._lag
        begin = end - window.length
        if self._starts_at is not None and begin < self._starts_at:
            return None
        rows = self._read(epoch, begin, end - 1, mark_new=False)
        if rows is None:
            return None
        time = column(self.node.time.name)
        inside: list[Sql] = [
            time >= call("timestamp_millis", number(begin)),
            time.copy() < call("timestamp_millis", number(end)),
        ]
        span = window_struct(number(begin), number(end))
        return self._aggregate(
            select(rows, None, inside), {WINDOW_COLUMN: span}, [], only_changed=False
        )

    def _read(
        self, epoch: Epoch, first: int | None, last: int | None, mark_new: bool
    ) -> exp.Query | None:
        new, old = self._rows.new(epoch), self._rows.old(epoch, first, last)
        return None if mark_new and new is None else old_and_new(old, new, mark_new)

    def _aggregate(
        self, rows: exp.Query, extra: dict[str, Sql], groups: list[Sql], only_changed: bool
    ) -> Definition:
        columns: dict[str, Sql] = {key.name: sql_of(key.expr) for key in self.node.keys}
        by = [*(sql_of(key.expr) for key in self.node.keys), *groups]
        columns |= extra
        columns |= {a.name: of_rows(a.expr) for a in self.node.aggregates}
        computed = {name: columns[name] for name in self.node.schema.names}
        # Without keys Spark makes one group even of no rows; only groups with rows count.
        computed["__rows"] = exp.Count(this=exp.Star())
        if only_changed:
            computed[NEW] = call("max", column(NEW))
        grouped = select(rows, computed, (), by)
        where: list[Sql] = [column("__rows") > exp.Literal.number(0)]
        if only_changed:
            where.append(column(NEW))
        return Definition(select(grouped, keep(self.node.schema.names), where), self.node.schema)

    def steps(self) -> tuple[EpochStep, ...]:
        windows = ", ".join(str(getattr(w, "name", w)) for w in self.node.windows)
        return (
            EpochStep(
                f"aggregate rows of {self._rows.store.name}",
                (f"windows: {windows}", "from rows: a function is holistic or the window trails"),
            ),
        )
