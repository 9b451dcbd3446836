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
from typing import Any

from pyspark.sql import DataFrame

from headrace.engine.checkpoint.checkpoint import Checkpoint
from headrace.engine.checkpoint.gate import Abandoned
from headrace.engine.epochs.blame import StreamsBroken
from headrace.engine.epochs.report import EpochReport
from headrace.engine.epochs.runner import EpochRunner
from headrace.engine.execution.spark_errors import one_line
from headrace.engine.ingest.ingest import Trigger, Withdrawn
from headrace.engine.ingest.micro_batch import Batch
from headrace.engine.ingest.next_epoch import Admission, NextEpoch
from headrace.engine.ingest.open_streams import OpenStreams
from headrace.engine.ingest.registered_stream import RegisteredStream
from headrace.engine.ingest.waiting_batches import WaitingBatch, WaitingBatches
from headrace.errors import CheckpointError, HeadraceError, QueryError
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
        self.checkpoint = checkpoint
        self._settings = settings
        self._between_epochs = between_epochs
        self._on_report = on_report
        self._on_replay = on_replay
        self._waiting = WaitingBatches()
        self.streams = OpenStreams(streams, checkpoint, self._waiting, self._on_batch)
        self._next_epoch = NextEpoch(
            runner, self.streams, self._waiting, settings, unfinished, on_paused
        )
        self._stopping = False
        #: By which Spark knows the jobs of this one's thread.
        self._tag = f"headrace-{uuid.uuid4().hex}"
        self._no_more_epochs = False
        self._abandoning = threading.Lock()
        #: Whether an epoch was abandoned, and whether the thread that ran it still hangs.
        self.abandoned = False
        self.left_behind = False
        self._trigger = Trigger()
        self._thread: threading.Thread | None = None
        self._gap: CheckpointError | None = None
        self.error: HeadraceError | None = None

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
        self._stopping = True
        self._waiting.wake()
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
                self.checkpoint.abandon()
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
                for close in (self.streams.close, self.checkpoint.close):
                    closing = threading.Thread(target=close, name="headrace-close", daemon=True)
                    closing.start()
                    closing.join(_GRACE)

    def wake(self) -> None:
        """Look at once: a query wants to join or leave."""
        self._waiting.wake()

    @property
    def active(self) -> bool:
        return self._thread is not None and self._thread.is_alive() and not self.left_behind

    @property
    def hangs_in(self) -> list[str]:
        """What a thread that was left behind has begun to do to a file, and not ended."""
        return self.checkpoint.gate.inside

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
        return self.streams.progress_of(stream)

    # Spark's side

    def _on_batch(self, stream: str, frame: DataFrame, number: int) -> None:
        """Called by Spark for each micro-batch; returns when the batch counts as processed."""
        if not self._is_new(stream, number):
            return
        files = self.streams.files_of(stream, number)
        waiting = WaitingBatch(Batch(frame, number, files), time.monotonic())
        self._waiting.put(stream, waiting)
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
            self._gap = CheckpointError(
                f"stream {stream!r} goes on with batch {number}, but the state ends at {last}",
                hint="the checkpoint's state was deleted or replaced; start with a new one",
                condition="CHECKPOINT_GAP",
            )
            self._waiting.wake()
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
        if self.checkpoint.gate.closed:
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
        if self._gap is not None:
            raise self._gap
        if self._stopping:
            return False
        replayed = self._runner.replay()
        if replayed is not None:
            self._on_replay(*replayed)
            return self._runner.is_needed
        with self._waiting.changed:
            admission = self._next_epoch.due(self._trigger)
            if admission is None:
                self._waiting.changed.wait(_LOOK)
        if admission is not None:
            self._run_epoch(admission)
        else:
            self._runner.publish_again()
        self._notice_ended_streams()
        if self._between_epochs():
            self._align_streams()
        if not self._runner.is_needed:
            # What was decided of the last query is still to be made true.
            return self._runner.owes_commit
        if self.streams.any_left:
            return True
        return self._has_unfinished_business()

    def _has_unfinished_business(self) -> bool:
        """Whether the end of all streams must wait: for a commit, or for sinks to take rows."""
        if self._stopping or self.streams.errors.keys() >= self._runner.sources.keys():
            return False
        most = self._settings.sink_last_tries
        tried = [waiting.delivery for waiting in self._runner.waiting().values()]
        if self._runner.unpublished():
            tried.append(self._runner.deliveries.publishing)
        return self._runner.owes_commit or any(
            delivery is None or delivery.tries < most for delivery in tried
        )

    def _run_epoch(self, admission: Admission) -> None:
        taken = {stream: self._waiting[stream] for stream in admission.streams}
        started = time.monotonic()
        try:
            batches = {stream: waiting.batch for stream, waiting in taken.items()}
            report = self._runner.run(batches, admission.idle)
        except StreamsBroken as broken:
            self.streams.give_up(broken.errors)
            return
        except BaseException as error:
            for stream, waiting in taken.items():
                self._waiting.release(stream, waiting, error)
            raise
        report.seconds["total"] = time.monotonic() - started
        self.streams.give_up(report.broken)
        for stream, waiting in taken.items():
            if stream in report.broken:
                continue
            rows = report.rows_in.get(stream, 0)
            timed = rows - report.null_times.get(stream, 0)
            mark = report.watermarks.get(stream)
            self.streams.delivered(stream, waiting.batch.number, rows, timed, mark)
            self._waiting.release(stream, waiting, None)
        report.paused = dict(self._next_epoch.paused)
        self._on_report(report)
        if not report.is_committed:
            return
        # Spark writes its own logs meanwhile, so merging files costs the next batch little.
        self._runner.tidy(self._settings.compaction_files)
        self._next_epoch.free_at = time.monotonic()

    def _notice_ended_streams(self) -> None:
        if self._gap is None:
            self.streams.notice_ended()

    def _align_streams(self) -> None:
        self.streams.align(
            self._runner.sources, self._runner.state, self._trigger, self._check_wanted
        )

    def _check_wanted(self) -> None:
        if self.left_behind:
            raise Abandoned

    def _shut_down(self) -> None:
        self._stopping = True
        self.streams.close()
        self._runner.close()
        self.checkpoint.close()
