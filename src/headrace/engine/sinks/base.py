"""What a sink does for the engine."""

from __future__ import annotations

from abc import ABC, abstractmethod

from headrace.engine.epochs.running_epoch import RunningEpoch
from headrace.operators.output_rows import OutputRows
from headrace.operators.write import Writing
from headrace.plan.nodes import Sink


class QuerySink(ABC):
    """The output side of one query."""

    #: Whether ``write`` is sure to read every row it is given.
    reads_all = True
    #: Whether it writes to a place of its own, which may be broken though all else is whole. What
    #: such a sink does not take waits in the checkpoint (``engine/epochs/outbox.py``).
    is_outside = False
    #: The folder that must be this query's alone, and whether it is by now (``ownership``).
    folder: str | None = None
    owns_folder = False

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    @property
    def name(self) -> str:
        return self.sink.name

    @property
    def writes_files(self) -> bool:
        """Whether its rows become files: of the checkpoint, at least where the sink is broken."""
        return self.is_outside

    def open(self) -> None:  # noqa: B027 - most sinks have nothing to prepare
        """Check, before the query starts, that the sink can be written."""

    def begin(self) -> None:  # noqa: B027 - most sinks hold nothing
        """Forget what was taken of an epoch that never ended: the engine begins again."""

    @abstractmethod
    def write(self, epoch: RunningEpoch, rows: OutputRows) -> Writing[int]:
        """Take the rows of an epoch that is not committed yet; the number of rows."""

    def undo(self, epoch: int) -> None:  # noqa: B027 - files count only once a commit names them
        """Forget what was taken of an epoch: it is tried anew."""

    def publish(self, epoch: int) -> None:  # noqa: B027 - files are published by the checkpoint
        """Show what was taken up to now: the epoch is committed, and all before it."""
