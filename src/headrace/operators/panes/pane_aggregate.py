"""Aggregates from panes that are their windows: given windows, and landmarks."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.definitions.definition import Definition, Sql, column, number, select, window_struct
from headrace.definitions.partials import Decomposed
from headrace.operators.base import EpochStep, Operator
from headrace.operators.epoch import Epoch
from headrace.operators.panes.pane_store import PANE, PANE_END, PaneStore
from headrace.operators.panes.partial_rows import finished, merge_groups, merges, read_panes
from headrace.plan.nodes import WINDOW_COLUMN, Aggregate, OutputMode
from headrace.plan.windows import Landmark


class PaneAggregate(Operator):
    """Emits windows that rows brought with them as they close (append) or change (update).

    A landmark is one pane that never closes: the groups that changed come out.
    """

    def __init__(
        self,
        node: Aggregate,
        store: PaneStore,
        aggregates: dict[str, Decomposed],
        streams: frozenset[str],
        lag: int,
        mode: OutputMode,
        starts_at: int | None,
        different: Mapping[str, Sql] | None = None,
    ) -> None:
        self.node: Aggregate = node
        self.store = store
        self._aggregates = aggregates
        self._streams = streams
        self._lag = lag
        self._mode = mode
        self._starts_at = starts_at
        #: Aggregates of different values, by which the store groups beside the keys.
        self._different = different

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self.store.inputs()

    @property
    def _is_landmark(self) -> bool:
        return isinstance(self.node.windows[0], Landmark)

    def delta(self, epoch: Epoch) -> Definition | None:
        if self._is_landmark:
            return self._changed_groups(epoch)
        before, after = epoch.before(self._streams), epoch.after(self._streams)
        where: list[Sql] = []
        if before is not None:
            where.append(column(PANE_END) > number(before - self._lag))
        if self._starts_at is not None:
            where.append(column(PANE) >= number(self._starts_at))
        only_changed = self._mode is OutputMode.UPDATE
        if only_changed:
            if not epoch.new_files(self.store.name):
                return None
        elif after is None or before == after:
            return None
        else:
            where.append(column(PANE_END) <= number(after - self._lag))
        panes = read_panes(epoch, self.store, self._starts_at, None, only_changed)
        if panes is None:
            return None
        merged = merge_groups(
            select(panes, None, where),
            [*self.store.key_names, PANE, PANE_END],
            merges(self._aggregates, only_changed),
        )
        extra = {WINDOW_COLUMN: window_struct(column(PANE), column(PANE_END))}
        return finished(
            self.node,
            self.store.key_names,
            self._aggregates,
            merged,
            extra,
            only_changed,
            different=self._different,
        )

    def _changed_groups(self, epoch: Epoch) -> Definition | None:
        if not epoch.new_files(self.store.name):
            return None
        panes = read_panes(epoch, self.store, None, None, mark_new=True)
        if panes is None:
            return None
        merged = merge_groups(panes, self.store.key_names, merges(self._aggregates, True))
        return finished(
            self.node,
            self.store.key_names,
            self._aggregates,
            merged,
            {},
            True,
            different=self._different,
        )

    def steps(self) -> tuple[EpochStep, ...]:
        changes = self._is_landmark or self._mode is OutputMode.UPDATE
        when = "groups that changed" if changes else "windows that closed"
        windows = f"windows: {self.node.windows[0].name}"  # type: ignore[attr-defined]
        return (EpochStep(f"emit {when} from {self.store.name}", (windows,)),)
