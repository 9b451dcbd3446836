"""The streams that are read: for each that live queries need, a running query of Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from headrace.engine.checkpoint.checkpoint import Checkpoint
from headrace.engine.ingest.admission import StreamState
from headrace.engine.ingest.file_streams import FileStream, is_file_stream
from headrace.engine.ingest.ingest import Ingest, OnBatch, Trigger
from headrace.engine.ingest.registered_stream import RegisteredStream
from headrace.engine.ingest.waiting_batches import WaitingBatches
from headrace.errors import CheckpointError, HeadraceError
from headrace.names import storage_name
from headrace.plan.nodes import Source
from headrace.state.committed import Committed


class OpenStreams:
    """Opens and closes streams, and knows how far each of them is.

    ``errors`` are those of streams that broke; they are not opened again.
    """

    def __init__(
        self,
        registered: Mapping[str, RegisteredStream],
        checkpoint: Checkpoint,
        waiting: WaitingBatches,
        on_batch: OnBatch,
    ) -> None:
        self.registered = dict(registered)
        self.errors: dict[str, HeadraceError] = {}
        self.states: dict[str, StreamState] = {}
        self._checkpoint = checkpoint
        self._waiting = waiting
        self._on_batch = on_batch
        self._ingests: dict[str, Ingest] = {}
        self._file_streams: dict[str, FileStream] = {}
        self._progress: dict[str, list[dict[str, Any]]] = {}

    @property
    def active(self) -> set[str]:
        """The streams that may still bring something: a query runs, or a batch waits."""
        return {s for s, i in self._ingests.items() if i.active or s in self._waiting}

    @property
    def any_left(self) -> bool:
        return bool(self._waiting) or any(i.active for i in self._ingests.values())

    def has_data(self, stream: str) -> bool:
        return self._ingests[stream].has_data

    def files_of(self, stream: str, batch: int) -> list[str] | None:
        """The files of a batch that tasks may read themselves; None where only Spark can."""
        files = self._file_streams.get(stream)
        return None if files is None else files.files_of(batch)

    def delivered(self, stream: str, batch: int, rows: int, timed: int, mark: int | None) -> None:
        """An epoch has taken a batch: its rows, those of them that have a time, the watermark."""
        self.states[stream].delivered(time.monotonic(), mark, timed)
        self._ingests[stream].took(batch, rows)

    def progress_of(self, stream: str) -> list[dict[str, Any]]:
        """Spark's progress reports of a stream's query, also when it has ended."""
        ingest = self._ingests.get(stream)
        return ingest.recent_progress() if ingest is not None else self._progress.get(stream, [])

    def align(
        self,
        needed: Mapping[str, Source],
        state: Committed,
        trigger: Trigger,
        check_wanted: Callable[[], None],
    ) -> None:
        """Read just the streams and columns that the live queries need.

        ``check_wanted`` raises if nobody wants them any more; a stream may take long to open.
        """
        for stream in [s for s in self._ingests if s not in needed]:
            self.withdraw(stream)
        for stream, source in needed.items():
            if stream in self.errors:
                continue
            running = self._ingests.get(stream)
            if running is not None and _covers(running.source, source):
                continue
            if running is not None:
                self.withdraw(stream)
            self._open(stream, source, state, trigger)
            try:
                check_wanted()
            except BaseException:
                self.withdraw(stream)
                raise

    def _open(self, stream: str, source: Source, state: Committed, trigger: Trigger) -> None:
        self._check_log(stream, state.batches.get(stream))
        log = self._checkpoint.path("ingest", storage_name(stream))
        registered = self.registered[stream]
        if not source.processing and is_file_stream(registered.frame):
            self._file_streams[stream] = FileStream(self._checkpoint.files, log)
        self._ingests[stream] = Ingest(registered.frame, source, log, trigger, self._on_batch)
        self.states[stream] = StreamState(
            time.monotonic(), state.clocks.watermarks.get(stream), registered.idle_after
        )

    def _check_log(self, stream: str, last: int | None) -> None:
        """Spark's log of a stream and our state must be of one life."""
        log = self._checkpoint.path("ingest", storage_name(stream), "metadata")
        if last is not None and not self._checkpoint.files.exists(log):
            raise CheckpointError(
                f"the state holds {last + 1} batches of stream {stream!r}, but Spark's log of it "
                "is gone",
                hint="restore the checkpoint's folder 'ingest', or start with a new checkpoint",
                condition="CHECKPOINT_GAP",
            )

    def give_up(self, errors: Mapping[str, HeadraceError]) -> None:
        """Read some streams no further: their batches come again at the next start."""
        for stream, error in errors.items():
            self.errors[stream] = error
            self.withdraw(stream)

    def withdraw(self, stream: str) -> None:
        """Stop a stream's query; a batch that waits goes back and comes again."""
        self._ingests.pop(stream).stop(partial(self._waiting.let_go, stream))

    def notice_ended(self) -> None:
        """Take in the errors of streams that have ended by themselves."""
        for stream, ingest in list(self._ingests.items()):
            if ingest.active or stream in self._waiting:
                continue
            error = ingest.error()
            if error is not None and stream not in self.errors:
                self.errors[stream] = error
                del self._ingests[stream]

    def close(self) -> None:
        for stream, ingest in list(self._ingests.items()):
            try:
                self._progress[stream] = ingest.recent_progress()
                ingest.stop(partial(self._waiting.let_go, stream))
            except Exception:
                # The engine is over; its own error, if any, is the one to tell.
                continue
            finally:
                self._waiting.let_go(stream)
        self._waiting.refuse_all()
        self._ingests.clear()


def _covers(running: Source, needed: Source) -> bool:
    """Whether a stream is read with all the columns that are needed."""
    return set(needed.columns.names) <= set(running.columns.names)
