"""What a sink does for the engine."""

from __future__ import annotations

from abc import ABC, abstractmethod

from headrace.engine.epoch import Epoch
from headrace.engine.relations import Relation
from headrace.engine.writes import Steps
from headrace.plan.nodes import Sink


class QuerySink(ABC):
    """The output side of one query."""

    #: Whether ``write`` is sure to read every row it is given.
    reads_all = True

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    @property
    def name(self) -> str:
        return self.sink.name

    def open(self) -> None:  # noqa: B027 - most sinks have nothing to prepare
        """Check, before the query starts, that the sink can be written."""

    def begin(self) -> None:  # noqa: B027 - most sinks hold nothing
        """Forget what was taken of an epoch that never ended: the race begins again."""

    @abstractmethod
    def write(self, epoch: Epoch, rows: Relation) -> Steps[int]:
        """Take the rows of an epoch that is not committed yet; the number of rows."""

    def publish(self, epoch: int) -> None:  # noqa: B027 - files are published by the checkpoint
        """Show what was taken: the epoch is committed."""
