"""The coordinator: where the micro-batches of all streams meet.

Spark calls back once per micro-batch of each stream, each on a thread of its own, and the call
blocks until the batch has been processed. One thread admits what has arrived as an epoch, runs it,
and lets the calls return. Between epochs it takes queries in and lets them go.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from headrace.engine.checkpoint.checkpoint import Checkpoint
from headrace.engine.checkpoint.gate import Abandoned
from headrace.engine.epochs.blame import StreamsBroken
from headrace.engine.epochs.report import EpochReport
from headrace.engine.epochs.runner import EpochRunner
from headrace.engine.execution.spark_errors import one_line
from headrace.engine.ingest.admission import StreamState, admit, paused, waits_since
from headrace.engine.ingest.file_streams import FileStream, is_file_stream
from headrace.engine.ingest.ingest import Ingest, Trigger, Withdrawn
from headrace.engine.ingest.micro_batch import Batch
from headrace.engine.ingest.registered_stream import RegisteredStream
from headrace.errors import CheckpointError, HeadraceError, QueryError
from headrace.names import storage_name
from headrace.plan.nodes import Source
from headrace.settings import Settings
from headrace.state.committed import Intent

# How often the coordinator looks for streams that have ended. Batches wake it at once.
_LOOK = 0.05
# How long (seconds) an epoch that was abandoned may take to notice it, and Spark's queries to end
# after it, before they are left behind.
_GRACE = 5.0
_PATIENCE = 1.0


class _EpochFailed(Exception):
    """The epoch to which a batch belonged failed, and so ends the stream's query."""


@dataclass
class _Waiting:
    """A batch whose callback waits to return."""

    batch: Batch
    arrived: float
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


@dataclass(frozen=True)
class _Admission:
    """The streams whose batches make up an epoch, and those that are idle in it.

    A stream may be among both: it is idle then if its batch turns out to have no rows.
    """

    streams: tuple[str, ...]
    idle: frozenset[str]


class Coordinator:
    """Runs epochs until the streams end, somebody stops it, or it fails."""

    def __init__(
        self,
        runner: EpochRunner,
        checkpoint: Checkpoint,
        settings: Settings,
        streams: Mapping[str, RegisteredStream],
        unfinished: Intent | None,
        between_epochs: Callable[[], bool],
        on_report: Callable[[EpochReport], None],
        on_paused: Callable[[Mapping[str, str]], None],
        on_replay: Callable[[str, EpochReport], None],
    ) -> None:
        self._runner = runner
        self._checkpoint = checkpoint
        self._settings = settings
        self.streams = dict(streams)
        self._unfinished = unfinished
        self._between_epochs = between_epochs
        self._on_report = on_report
        self._on_paused = on_paused
        self._on_replay = on_replay
        self._changed = threading.Condition()
        self._waiting: dict[str, _Waiting] = {}
        self._ingests: dict[str, Ingest] = {}
        self._file_streams: dict[str, FileStream] = {}
        self._states: dict[str, StreamState] = {}
        self._paused: dict[str, str] = {}
        #: Rows that wait for several streams, after which epoch and by which plan.
        #: When the last epoch was over; before that no batch had anything to wait for.
        self._free_at = 0.0
        self._held: tuple[int, int, int] = (-1, -1, 0)
        #: Streams that were idle when it was last looked whom that helps, and by which plan.
        self._idle_seen: tuple[frozenset[str], int] = (frozenset(), -1)
        self._stopping = False
        #: By which Spark knows the jobs of this one's thread.
        self._tag = f"headrace-{uuid.uuid4().hex}"
        self._no_more_epochs = False
        self._abandoning = threading.Lock()
        #: Whether an epoch was abandoned, and whether the thread that ran it still hangs.
        self.abandoned = False
        self.left_behind = False
        self._over = False
        self._trigger = Trigger()
        self._thread: threading.Thread | None = None
        self._gap: CheckpointError | None = None
        self.error: HeadraceError | None = None
        self.stream_errors: dict[str, HeadraceError] = {}
        self._progress: dict[str, list[dict[str, Any]]] = {}

    # The user's side

    def start(self, trigger: Trigger) -> None:
        self._trigger = trigger
        try:
            self._align_streams()
        except BaseException:
            self._shut_down()
            raise
        self._thread = threading.Thread(target=self._run, name="headrace", daemon=True)
        self._thread.start()

    def stop(self, timeout: float | None = None) -> bool:
        """End after the epoch that runs, or abandon it after the timeout; whether it was done."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None and not self._is_own_thread() and not self.join(timeout):
            self._abandon(self._thread)
        return not self.abandoned

    def _is_own_thread(self) -> bool:
        """Whether a user's function asks, for which the epoch waits."""
        here = threading.current_thread()
        return getattr(here, "awaited_by", here) is self._thread

    def _abandon(self, thread: threading.Thread) -> None:
        """Give up the epoch that runs: it is not committed, and a restart does it again.

        The gate is closed first, so that a thread which hangs, and is left behind, does no harm.
        """
        with self._abandoning:
            if not self._no_more_epochs:
                self._checkpoint.abandon()
            until = time.monotonic() + _GRACE
            while thread.is_alive() and time.monotonic() < until:
                if not self._no_more_epochs:
                    # Again and again: what was cancelled may be tried in another way.
                    self._runner._executor.cancel(self._tag)
                thread.join(_LOOK)
            if thread.is_alive() and not self.left_behind:
                self.left_behind = True
                self.abandoned = self.abandoned or not self._no_more_epochs
                # What hangs there may make these hang, too.
                for close in (self._close_streams, self._checkpoint.close):
                    closing = threading.Thread(target=close, name="headrace-close", daemon=True)
                    closing.start()
                    closing.join(_GRACE)

    def wake(self) -> None:
        """Look at once: a query wants to join or leave."""
        with self._changed:
            self._changed.notify_all()

    @property
    def active(self) -> bool:
        return self._thread is not None and self._thread.is_alive() and not self.left_behind

    @property
    def hangs_in(self) -> list[str]:
        """What a thread that was left behind has begun to do to a file, and not ended."""
        return self._checkpoint.gate.inside

    def join(self, timeout: float | None) -> bool:
        until = None if timeout is None else time.monotonic() + timeout
        while self._thread is not None and self.active:
            rest = _PATIENCE if until is None else min(until - time.monotonic(), _PATIENCE)
            if rest <= 0:
                break
            # Only so long, since somebody else may leave it behind meanwhile.
            self._thread.join(rest)
        return not self.active

    def progress_of(self, stream: str) -> list[dict[str, Any]]:
        """Spark's progress reports of a stream's query, also when it has ended."""
        ingest = self._ingests.get(stream)
        return ingest.recent_progress() if ingest is not None else self._progress.get(stream, [])

    # Spark's side

    def _on_batch(self, stream: str, frame: DataFrame, number: int) -> None:
        """Called by Spark for each micro-batch; returns when the batch counts as processed."""
        if not self._is_new(stream, number):
            return
        files = (
            self._file_streams[stream].files_of(number) if stream in self._file_streams else None
        )
        waiting = _Waiting(Batch(frame, number, files), time.monotonic())
        with self._changed:
            if self._over:
                raise Withdrawn(stream)
            self._waiting[stream] = waiting
            self._changed.notify_all()
        waiting.done.wait()
        if isinstance(waiting.error, Withdrawn):
            raise waiting.error
        if waiting.error is not None:
            # Whole, with Java's stacks in it, it overflows the stack of the thread in which Spark
            # looks through it; what ended the engine is told by the engine.
            raise _EpochFailed(one_line(waiting.error))

    def _is_new(self, stream: str, number: int) -> bool:
        """Whether a batch is the next one; a committed batch that Spark repeats is skipped."""
        last = self._runner.state.batches.get(stream, -1)
        if number <= last:
            return False
        if number > last + 1:
            # Raised here it would come out as a failure of Spark's, with a stack of Java's.
            with self._changed:
                self._gap = CheckpointError(
                    f"stream {stream!r} goes on with batch {number}, but the state ends at {last}",
                    hint="the checkpoint's state was deleted or replaced; start with a new one",
                    condition="CHECKPOINT_GAP",
                )
                self._changed.notify_all()
            raise Withdrawn(stream)
        return True

    # The coordinator's own thread

    def _run(self) -> None:
        try:
            self._runner._executor.name_jobs(self._tag)
            while self._step():
                pass
            # One may have broken since it was last looked.
            self._notice_ended_streams()
        except Abandoned:
            self.abandoned = True
        except Exception as error:
            self._fail(error)
        finally:
            self._no_more_epochs = True
            self._shut_down()

    def _fail(self, error: Exception) -> None:
        if self._checkpoint.gate.closed:
            # Jobs that were cancelled.
            self.abandoned = True
        elif isinstance(error, HeadraceError):
            self.error = error
        else:
            self.error = QueryError(
                f"the engine stopped: {one_line(error)}", condition="ENGINE_FAILED"
            )
            self.error.__cause__ = error

    def _step(self) -> bool:
        """One look at the streams: run an epoch if one is due; False when all is over."""
        with self._changed:
            if self._gap is not None:
                raise self._gap
            if self._stopping:
                return False
        replayed = self._runner.replay()
        if replayed is not None:
            self._on_replay(*replayed)
            return self._runner.is_needed
        with self._changed:
            admission = self._admission()
            if admission is None:
                self._changed.wait(_LOOK)
        if admission is not None:
            self._run_epoch(admission)
        else:
            self._runner.publish_again()
        self._notice_ended_streams()
        if self._between_epochs():
            self._align_streams()
        if not self._runner.is_needed:
            return False
        if self._waiting or any(i.active for i in self._ingests.values()):
            return True
        return self._has_unfinished_business()

    def _has_unfinished_business(self) -> bool:
        """Whether the end of all streams must wait: for a commit, or for sinks to take rows."""
        if self._stopping or self.stream_errors.keys() >= self._runner.sources.keys():
            return False
        most = self._settings.sink_last_tries
        tried = [waiting.delivery for waiting in self._runner.waiting().values()]
        if self._runner.unpublished():
            tried.append(self._runner.deliveries.publishing)
        return self._runner.owes_commit or any(
            delivery is None or delivery.tries < most for delivery in tried
        )

    def _admission(self) -> _Admission | None:
        """What the next epoch is made of; None while there is nothing to do, or it pays to wait."""
        now = time.monotonic()
        active = {s for s, i in self._ingests.items() if i.active or s in self._waiting}
        if self._unfinished is not None:
            return self._unfinished_epoch(active)
        silent = self._silent(active, now)
        idle = frozenset(silent - self._waiting.keys())
        arrivals = {s: waits_since(w.arrived, self._free_at) for s, w in self._waiting.items()}
        for stream in self._without_room(active, idle):
            del arrivals[stream]
        states = {stream: self._states[stream] for stream in active}
        admitted = tuple(admit(states, arrivals, now, self._settings))
        if admitted:
            return _Admission(admitted, idle | (silent & set(admitted)))
        if self._frees_somebody(idle) or self._runner.owes_commit:
            return _Admission((), idle)
        return _Admission((), idle) if self._runner.is_delivery_due() else None

    def _unfinished_epoch(self, active: set[str]) -> _Admission | None:
        """An epoch that a crash cut off is done again with the same batches and the same streams
        idle, so that its output comes under the same number."""
        assert self._unfinished is not None
        batches, idle = self._unfinished.batches, self._unfinished.idle
        wanted = {
            s
            for s, number in batches.items()
            if s in active and self._runner.state.batches.get(s, -1) < number
        }
        if not wanted <= self._waiting.keys():
            return None
        self._unfinished = None
        if batches and not wanted:
            # Nobody reads these streams any more.
            return None
        return _Admission(tuple(sorted(wanted)), idle)

    def _silent(self, active: set[str], now: float) -> set[str]:
        """The streams that are idle unless a batch of theirs has rows.

        All that is there is processed and the engine ends: then time that passes says nothing about
        a stream.
        """
        if self._trigger.available_now:
            return set()
        silent = {stream for stream in active if self._states[stream].is_silent(now)}
        idle = self._runner.state.clocks.idle
        if silent <= idle and not self._waiting:
            return silent
        # Spark may be about to hand rows over; ahead of the others they would all be late.
        return {s for s in silent if s in self._waiting or not self._ingests[s].has_data}

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
            states = {s: t for s, t in self._states.items() if s not in self.stream_errors}
            waits_for = paused(states, self._waiting, idle, self._runner.groups, self._settings)
        if waits_for != self._paused:
            self._paused = waits_for
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

    def _run_epoch(self, admission: _Admission) -> None:
        taken = {stream: self._waiting[stream] for stream in admission.streams}
        started = time.monotonic()
        try:
            batches = {stream: waiting.batch for stream, waiting in taken.items()}
            report = self._runner.run(batches, admission.idle)
        except StreamsBroken as broken:
            self._give_up(broken.errors)
            return
        except BaseException as error:
            for stream, waiting in taken.items():
                self._release(stream, waiting, error)
            raise
        now = time.monotonic()
        self._give_up(report.broken)
        for stream, waiting in taken.items():
            if stream in report.broken:
                continue
            rows = report.rows_in.get(stream, 0) - report.null_times.get(stream, 0)
            self._states[stream].delivered(now, report.watermarks.get(stream), rows)
            self._ingests[stream].took(waiting.batch.number, report.rows_in.get(stream, 0))
            self._release(stream, waiting, None)
        report.seconds["total"] = now - started
        report.paused = dict(self._paused)
        self._on_report(report)
        if not report.is_committed:
            return
        # Spark writes its own logs meanwhile, so merging files costs the next batch little.
        self._runner.tidy(self._settings.compaction_files)
        self._free_at = time.monotonic()

    def _give_up(self, errors: Mapping[str, HeadraceError]) -> None:
        """Read some streams no further: their batches come again at the next start."""
        for stream, error in errors.items():
            self.stream_errors[stream] = error
            self._withdraw(stream)

    def _release(self, stream: str, waiting: _Waiting, error: BaseException | None) -> None:
        if isinstance(error, Abandoned):
            # It is let go when Spark's query ends.
            return
        waiting.error = error
        with self._changed:
            if self._waiting.get(stream) is waiting:
                del self._waiting[stream]
        waiting.done.set()

    def _notice_ended_streams(self) -> None:
        if self._gap is not None:
            return
        for stream, ingest in list(self._ingests.items()):
            if ingest.active or stream in self._waiting:
                continue
            error = ingest.error()
            if error is not None and stream not in self.stream_errors:
                self.stream_errors[stream] = error
                del self._ingests[stream]

    def _align_streams(self) -> None:
        """Read just the streams and columns that the live queries need."""
        needed = self._runner.sources
        for stream in [s for s in self._ingests if s not in needed]:
            self._withdraw(stream)
        for stream, source in needed.items():
            if stream in self.stream_errors:
                continue
            running = self._ingests.get(stream)
            if running is not None and _covers(running.source, source):
                continue
            if running is not None:
                self._withdraw(stream)
            self._check_spark_checkpoint(stream)
            log = self._checkpoint.path("ingest", storage_name(stream))
            registered = self.streams[stream]
            if not source.processing and is_file_stream(registered.frame):
                self._file_streams[stream] = FileStream(self._checkpoint.files, log)
            self._ingests[stream] = Ingest(
                registered.frame,
                source,
                log,
                self._trigger,
                self._on_batch,
            )
            if self.left_behind:
                self._withdraw(stream)
                raise Abandoned
            self._states[stream] = StreamState(
                time.monotonic(),
                self._runner.state.clocks.watermarks.get(stream),
                registered.idle_after,
            )

    def _withdraw(self, stream: str) -> None:
        """Stop a stream's query; a batch that waits goes back and comes again."""
        self._ingests.pop(stream).stop(partial(self._let_go, stream))

    def _let_go(self, stream: str) -> None:
        with self._changed:
            waiting = self._waiting.get(stream)
        if waiting is not None:
            self._release(stream, waiting, Withdrawn(stream))

    def _check_spark_checkpoint(self, stream: str) -> None:
        """Spark's log of a stream and our state must be of one life."""
        last = self._runner.state.batches.get(stream)
        log = self._checkpoint.path("ingest", storage_name(stream), "metadata")
        if last is not None and not self._checkpoint.files.exists(log):
            raise CheckpointError(
                f"the state holds {last + 1} batches of stream {stream!r}, but Spark's log of it "
                "is gone",
                hint="restore the checkpoint's folder 'ingest', or start with a new checkpoint",
                condition="CHECKPOINT_GAP",
            )

    def _shut_down(self) -> None:
        with self._changed:
            self._stopping = True
        self._close_streams()
        self._runner.close()
        self._checkpoint.close()

    def _close_streams(self) -> None:
        for stream, ingest in list(self._ingests.items()):
            try:
                self._progress[stream] = ingest.recent_progress()
                ingest.stop(partial(self._let_go, stream))
            except Exception:
                # The engine is over; its own error, if any, is the one to tell.
                continue
            finally:
                self._let_go(stream)
        with self._changed:
            self._over = True
        for stream in list(self._waiting):
            self._let_go(stream)
        self._ingests.clear()


def _covers(running: Source, needed: Source) -> bool:
    """Whether a stream is read with all the columns that are needed."""
    return set(needed.columns.names) <= set(running.columns.names)
