"""Windowed aggregates computed from panes: tumbling, hopping, given windows and landmarks."""

from __future__ import annotations

from sqlglot import exp

from headrace.engine.epoch import Epoch
from headrace.engine.operators.base import Operator, Step
from headrace.engine.operators.expansion import (
    WINDOW_INDEX,
    WINDOW_START,
    Ends,
    end_of,
    expand,
    name_of,
)
from headrace.engine.operators.pane_store import PANE, PANE_END, PaneStore
from headrace.engine.partials import Decomposed
from headrace.engine.relations import (
    Relation,
    Sql,
    call,
    column,
    keep,
    named,
    number,
    select,
    union_all,
    window_struct,
)
from headrace.plan.nodes import WINDOW_COLUMN, WINDOW_ID_COLUMN, Aggregate, OutputMode
from headrace.plan.windows import Given, Hopping, Landmark

NEW = "__new"


class PaneAggregate(Operator):
    """Emits windows as they close (append) or as they change (update)."""

    def __init__(
        self,
        node: Aggregate,
        store: PaneStore,
        aggregates: dict[str, Decomposed],
        streams: frozenset[str],
        lag: int,
        mode: OutputMode,
        visible_from: int | None,
    ) -> None:
        self.node: Aggregate = node
        self.store = store
        self._aggregates = aggregates
        self._streams = streams
        self._lag = lag
        self._mode = mode
        self._visible_from = visible_from

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self.store.inputs()

    def delta(self, epoch: Epoch) -> Relation | None:
        if isinstance(self.node.windows[0], Landmark):
            return self._changed_groups(epoch)
        before, after = epoch.before(self._streams), epoch.after(self._streams)
        above = None if before is None else before - self._lag
        if self._mode is OutputMode.UPDATE:
            return self._windows(epoch, Ends(above, None, self._visible_from), only_changed=True)
        if after is None or before == after:
            return None
        ends = Ends(above, after - self._lag, self._visible_from)
        return self._windows(epoch, ends, only_changed=False)

    def _windows(self, epoch: Epoch, ends: Ends, only_changed: bool) -> Relation | None:
        if isinstance(self.node.windows[0], Given):
            return self._given_windows(epoch, ends, only_changed)
        windows = tuple(w for w in self.node.windows if isinstance(w, Hopping))
        if not only_changed and not _any_closes(windows, ends):
            return None
        panes = self._read(epoch, ends.least_time(windows), ends.greatest_time(), only_changed)
        if panes is None:
            return None
        placed = expand(panes, column(PANE), windows, ends)
        groups = [*self.store.key_names, WINDOW_INDEX, WINDOW_START]
        merged = self._merge(placed, groups, only_changed)
        extra: dict[str, Sql] = {
            WINDOW_COLUMN: window_struct(column(WINDOW_START), end_of(windows))
        }
        if len(windows) > 1:
            extra[WINDOW_ID_COLUMN] = name_of(windows)
        return self._finish(merged, extra, only_changed)

    def _given_windows(self, epoch: Epoch, ends: Ends, only_changed: bool) -> Relation | None:
        panes = self._read(epoch, ends.start_from, None, only_changed)
        if panes is None:
            return None
        where: list[Sql] = []
        if ends.above is not None:
            where.append(column(PANE_END) > number(ends.above))
        if ends.up_to is not None:
            where.append(column(PANE_END) <= number(ends.up_to))
        if ends.start_from is not None:
            where.append(column(PANE) >= number(ends.start_from))
        groups = [*self.store.key_names, PANE, PANE_END]
        merged = self._merge(select(panes, None, where), groups, only_changed)
        window = window_struct(column(PANE), column(PANE_END))
        return self._finish(merged, {WINDOW_COLUMN: window}, only_changed)

    def _changed_groups(self, epoch: Epoch) -> Relation | None:
        if not epoch.new_files(self.store.name):
            return None
        panes = self._read(epoch, None, None, mark_new=True)
        if panes is None:
            return None
        return self._finish(self._merge(panes, self.store.key_names, True), {}, True)

    def _read(
        self, epoch: Epoch, first: int | None, last: int | None, mark_new: bool
    ) -> exp.Query | None:
        """The stored partials of a span of time, this epoch's own included."""
        new = epoch.new(self.store.name, self.store.schema)
        old = epoch.old(self.store.name, self.store.schema, first, last)
        if mark_new and new is None:
            return None
        parts = [(rows, flag) for rows, flag in ((old, False), (new, True)) if rows is not None]
        if not parts:
            return None
        if not mark_new:
            return union_all([rows.query for rows, _ in parts])
        return union_all(
            [
                select(rows.query, None).select(named(exp.convert(flag), NEW), copy=False)
                for rows, flag in parts
            ]
        )

    def _merge(self, panes: exp.Query, groups: list[str], only_changed: bool) -> exp.Query:
        needed = {p.name: p for parts in self._aggregates.values() for p in parts.partials}
        merged: dict[str, Sql] = {p.name: p.merge(column(p.name)) for p in needed.values()}
        if only_changed:
            merged[NEW] = call("max", column(NEW))
        return select(panes, {**keep(groups), **merged}, (), [column(name) for name in groups])

    def _finish(self, merged: exp.Query, extra: dict[str, Sql], only_changed: bool) -> Relation:
        columns: dict[str, Sql] = {
            key.name: column(stored)
            for key, stored in zip(self.node.keys, self.store.key_names, strict=True)
        }
        columns |= extra
        columns |= {name: parts.finish for name, parts in self._aggregates.items()}
        ordered = {name: columns[name] for name in self.node.schema.names}
        where = [column(NEW)] if only_changed else []
        return Relation(select(merged, ordered, where), self.node.schema)

    def steps(self) -> tuple[Step, ...]:
        windows = ", ".join(str(getattr(w, "name", w)) for w in self.node.windows)
        when = "groups that changed" if self._mode is OutputMode.UPDATE else "windows that closed"
        if isinstance(self.node.windows[0], Landmark):
            when = "groups that changed"
        return (Step(f"emit {when} from {self.store.name}", (f"windows: {windows}",)),)


def _any_closes(windows: tuple[Hopping, ...], ends: Ends) -> bool:
    """Whether the watermark passed the end of at least one window."""
    if ends.above is None or ends.up_to is None:
        return True
    return any(w.last_closed_start(ends.up_to) != w.last_closed_start(ends.above) for w in windows)
