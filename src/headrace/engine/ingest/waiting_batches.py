"""The batches whose callbacks wait to return: one of each stream at most."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.engine.checkpoint.gate import Abandoned
from headrace.engine.ingest.ingest import Withdrawn
from headrace.engine.ingest.micro_batch import Batch


@dataclass
class WaitingBatch:
    """A batch whose callback waits to return, and since when."""

    batch: Batch
    arrived: float
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


class WaitingBatches:
    """By stream. ``changed`` wakes whoever waits for something to happen, and guards all of it."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._by_stream: dict[str, WaitingBatch] = {}
        self._refused = False

    def put(self, stream: str, waiting: WaitingBatch) -> None:
        with self.changed:
            if self._refused:
                raise Withdrawn(stream)
            self._by_stream[stream] = waiting
            self.changed.notify_all()

    def __getitem__(self, stream: str) -> WaitingBatch:
        return self._by_stream[stream]

    def __contains__(self, stream: object) -> bool:
        return stream in self._by_stream

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._by_stream))

    def __len__(self) -> int:
        return len(self._by_stream)

    def wake(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def release(self, stream: str, waiting: WaitingBatch, error: BaseException | None) -> None:
        """Let a callback return, or raise."""
        if isinstance(error, Abandoned):
            # It is let go when Spark's query ends.
            return
        waiting.error = error
        with self.changed:
            if self._by_stream.get(stream) is waiting:
                del self._by_stream[stream]
        waiting.done.set()

    def let_go(self, stream: str) -> None:
        """Hand a stream's batch back to Spark: it comes again at the next start."""
        with self.changed:
            waiting = self._by_stream.get(stream)
        if waiting is not None:
            self.release(stream, waiting, Withdrawn(stream))

    def refuse_all(self) -> None:
        """Take no more batches, and let go those that wait."""
        with self.changed:
            self._refused = True
        for stream in self:
            self.let_go(stream)
