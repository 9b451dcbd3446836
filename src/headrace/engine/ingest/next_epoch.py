"""What the next epoch is made of: which batches that wait, and which streams are idle in it.

``admission`` says it of streams that are all well; here is what else must be heeded: an epoch that
a crash cut off, streams that are silent, state that is full, and epochs that are due without rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.engine.epochs.runner import EpochRunner
from headrace.engine.ingest.admission import admit, paused, waits_since
from headrace.engine.ingest.ingest import Trigger
from headrace.engine.ingest.open_streams import OpenStreams
from headrace.engine.ingest.waiting_batches import WaitingBatches
from headrace.errors import HeadraceError, QueryError
from headrace.settings import Settings
from headrace.state.committed import Intent


@dataclass(frozen=True)
class Admission:
    """The streams whose batches make up an epoch, and those that are idle in it.

    A stream may be among both: it is idle then if its batch turns out to have no rows.
    """

    streams: tuple[str, ...]
    idle: frozenset[str]


class NextEpoch:
    """Looks at the streams, again and again, until an epoch is due."""

    def __init__(
        self,
        runner: EpochRunner,
        streams: OpenStreams,
        waiting: WaitingBatches,
        settings: Settings,
        unfinished: Intent | None,
        on_paused: Callable[[Mapping[str, str]], None],
    ) -> None:
        self._runner = runner
        self._streams = streams
        self._waiting = waiting
        self._settings = settings
        self._unfinished = unfinished
        self._on_paused = on_paused
        #: When the last epoch was over; before that no batch had anything to wait for.
        self.free_at = 0.0
        #: Streams whose batches wait because state is full, with those that they wait for.
        self.paused: dict[str, str] = {}
        #: Rows that wait for several streams, after which epoch and by which plan.
        self._held: tuple[int, int, int] = (-1, -1, 0)
        #: Streams that were idle when it was last looked whom that helps, and by which plan.
        self._idle_seen: tuple[frozenset[str], int] = (frozenset(), -1)

    def due(self, trigger: Trigger) -> Admission | None:
        """What the next epoch is made of; None while there is nothing to do, or it pays to wait."""
        now = time.monotonic()
        active = self._streams.active
        if self._unfinished is not None:
            return self._unfinished_epoch(self._unfinished, active)
        # All that is there is processed and the engine ends: then time that passes says nothing
        # about a stream.
        silent = set() if trigger.available_now else self._silent(active, now)
        idle = frozenset(silent.difference(self._waiting))
        arrivals = {s: waits_since(self._waiting[s].arrived, self.free_at) for s in self._waiting}
        for stream in self._without_room(active, idle):
            del arrivals[stream]
        states = {stream: self._streams.states[stream] for stream in active}
        admitted = tuple(admit(states, arrivals, now, self._settings))
        if admitted:
            return Admission(admitted, idle | (silent & set(admitted)))
        if self._frees_somebody(idle) or self._runner.owes_commit:
            return Admission((), idle)
        return Admission((), idle) if self._runner.is_delivery_due() else None

    def _unfinished_epoch(self, intent: Intent, active: set[str]) -> Admission | None:
        """An epoch that a crash cut off is done again with the same batches and the same streams
        idle, so that its output comes under the same number."""
        wanted = {
            stream
            for stream, number in intent.batches.items()
            if stream in active and self._runner.state.batches.get(stream, -1) < number
        }
        if not wanted.issubset(self._waiting):
            return None
        self._unfinished = None
        if intent.batches and not wanted:
            # Nobody reads these streams any more.
            return None
        return Admission(tuple(sorted(wanted)), intent.idle)

    def _silent(self, active: set[str], now: float) -> set[str]:
        """The streams that are idle unless a batch of theirs has rows."""
        silent = {stream for stream in active if self._streams.states[stream].is_silent(now)}
        idle = self._runner.state.clocks.idle
        if silent <= idle and not self._waiting:
            return silent
        # Spark may be about to hand rows over; ahead of the others they would all be late.
        return {s for s in silent if s in self._waiting or not self._streams.has_data(s)}

    def _frees_somebody(self, idle: frozenset[str]) -> bool:
        """Whether an epoch without rows is due: one more stream is idle, and holds nobody back."""
        seen = idle, self._runner.state.plan_version
        if seen == self._idle_seen:
            return False
        self._idle_seen = seen
        newly = idle - self._runner.state.clocks.idle
        return any(newly & group and group - idle for group in self._runner.groups)

    def _without_room(self, active: set[str], idle: frozenset[str]) -> dict[str, str]:
        """The streams whose batches wait because state is full, with those they wait for."""
        limit = self._settings.state_max_rows
        waits_for: dict[str, str] = {}
        if limit and self._waiting and self._rows_held() > limit:
            # Streams that have ended are still behind; what waits for a broken one has failed.
            states = {
                s: state
                for s, state in self._streams.states.items()
                if s not in self._streams.errors
            }
            waits_for = paused(
                states, list(self._waiting), idle, self._runner.groups, self._settings
            )
        if waits_for != self.paused:
            self.paused = waits_for
            self._on_paused(waits_for)
        if waits_for and active <= waits_for.keys():
            raise self._no_room(set(waits_for.values()) - active)
        return waits_for

    def _rows_held(self) -> int:
        state = self._runner.state
        if self._held[:2] != (state.epoch, state.plan_version):
            self._held = state.epoch, state.plan_version, self._runner.rows_held()
        return self._held[2]

    def _no_room(self, ended: set[str]) -> HeadraceError:
        """Streams that wait for one which is through would wait for ever."""
        behind = ", ".join(repr(stream) for stream in sorted(ended))
        return QueryError(
            f"{self._held[2]} rows of state wait for stream {behind}, which has no more rows, and "
            f"spark.headrace.state.maxRows is {self._settings.state_max_rows}",
            hint="start again when it has rows, raise the setting, or run on and on with an idle "
            "time for it; nothing is lost",
            condition="STATE_FULL",
        )
