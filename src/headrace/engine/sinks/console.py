"""Prints each epoch's rows, as Spark's console sink does."""

from __future__ import annotations

from headrace.engine.epochs.running_epoch import RunningEpoch
from headrace.engine.sinks.base import QuerySink
from headrace.errors import SinkError
from headrace.operators.output_rows import OutputRows
from headrace.operators.write import Writing
from headrace.plan.nodes import Sink


class ConsoleSink(QuerySink):
    """Shows the first rows of each epoch; options ``numRows`` and ``truncate``."""

    reads_all = False

    def __init__(self, sink: Sink, options: dict[str, str]) -> None:
        super().__init__(sink)
        try:
            self._rows = int(options.get("numRows", "20"))
        except ValueError:
            raise SinkError(f"numRows is {options['numRows']!r}", hint="a whole number") from None
        self._truncate = options.get("truncate", "true").lower() != "false"
        self._texts: dict[int, str] = {}

    def begin(self) -> None:
        self._texts.clear()

    def write(self, epoch: RunningEpoch, rows: OutputRows) -> Writing[int]:
        yield from ()
        frame = epoch.executor.frame(rows.query).persist()
        try:
            epoch.executor.count_jobs(2)
            count = frame.count()
            text = frame._show_string(self._rows, self._truncate) if count else ""  # type: ignore[operator]
            self._texts[epoch.number] = text
        finally:
            frame.unpersist()
        return count

    def undo(self, epoch: int) -> None:
        self._texts.pop(epoch, None)

    def publish(self, epoch: int) -> None:
        line = "-" * 43
        for number, text in sorted(self._texts.items()):
            if text:
                print(f"{line}\n{self.name}, epoch {number}\n{line}\n{text}")
        self._texts.clear()
