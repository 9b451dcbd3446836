"""Ingest: one stateless Structured Streaming query per stream.

Each has a Spark checkpoint of its own, so streams come and go, and a source that breaks stops only
the queries that use it. The DataFrame is pruned to the columns that live queries need *before* it
is handed over, since nothing that is selected later reaches the source. Filters are not pushed
there: the watermark is that of all rows of the stream, not of the rows that some query wants.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, functions
from pyspark.sql.streaming.query import StreamingQuery

from headrace.engine.execution.spark_errors import one_line
from headrace.engine.ingest.file_streams import folders
from headrace.engine.ingest.spark_log import with_quick_log
from headrace.errors import StreamError
from headrace.failpoints import failpoint
from headrace.names import quoted
from headrace.plan.nodes import PROCESSING_TIME_COLUMN, Source

OnBatch = Callable[[str, DataFrame, int], None]

#: What Spark says where files that it has listed lie in a folder that is no more.
_NO_FOLDER = "Option 'basePath'"
# How often it is looked whether Spark has ended a query.
_LOOK = 0.01


class Withdrawn(Exception):
    """The stream's query is being stopped; its batch comes again when it is started anew.

    Spark takes a callback's exception for the end of a query that was stopped, about which there is
    nothing to log, if its text is that of a call into Java that was interrupted.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(
            "py4j.protocol.Py4JJavaError: An error occurred while calling the engine: "
            f"java.lang.InterruptedException: stream {stream!r} is withdrawn"
        )


def _is_news(record: logging.LogRecord) -> bool:
    """Py4J logs what callbacks raise, with a stack; that one was withdrawn is no news."""
    return record.exc_info is None or not isinstance(record.exc_info[1], Withdrawn)


@dataclass(frozen=True)
class Trigger:
    """When micro-batches run, as in PySpark's ``trigger``."""

    available_now: bool = False
    processing_time: str | None = None

    def arguments(self) -> dict[str, object]:
        if self.available_now:
            return {"availableNow": True}
        return {"processingTime": self.processing_time or "0 seconds"}


class Ingest:
    """The running Structured Streaming query of one stream."""

    def __init__(
        self,
        frame: DataFrame,
        source: Source,
        checkpoint: str,
        trigger: Trigger,
        on_batch: OnBatch,
    ) -> None:
        self.source = source
        self._frame = frame
        self._rows: dict[int, int] = {}
        stream = source.stream

        def hand_over(batch: DataFrame, number: int) -> None:
            on_batch(stream, batch, number)
            failpoint(f"returned.{stream}")

        logging.getLogger("py4j.clientserver").addFilter(_is_news)
        try:
            rows = pruned(with_quick_log(frame, checkpoint), source)
            writer = rows.writeStream.foreachBatch(hand_over)
            writer = writer.option("checkpointLocation", checkpoint)
            self._query: StreamingQuery = writer.trigger(**trigger.arguments()).start()  # type: ignore[call-overload]
        except Exception as error:
            raise StreamError(
                f"stream {source.shown!r} cannot start: {one_line(error)}",
                condition="STREAM_FAILED",
            ) from error

    @property
    def active(self) -> bool:
        return bool(self._query.isActive)

    @property
    def has_data(self) -> bool:
        """Whether Spark found new rows when it last looked, and has not processed them yet."""
        return bool(self._query.status["isDataAvailable"])

    def error(self) -> StreamError | None:
        """Why the stream ended, if it did not end well."""
        failure = self._query.exception()
        if failure is None:
            return None
        reason = _root(failure)
        if _NO_FOLDER in reason:
            gone = ", ".join(folders(self._frame)) or "it reads from"
            reason = f"the folder {gone} is gone"
        return StreamError(
            f"stream {self.source.shown!r} failed: {reason}",
            hint="mend the source and start the engine again; it resumes where it was",
            condition="STREAM_FAILED",
        )

    def stop(self, let_go: Callable[[], None]) -> None:
        """Stop Spark's query, and wait for its end.

        A batch that waits in the callback is to be let go, with ``Withdrawn``, once Spark knows
        that the query is being stopped: before that, it would be told as a failure.
        """
        failures: list[Exception] = []

        def stop() -> None:
            try:
                self._query.stop()
            except Exception as error:
                failures.append(error)

        stopping = threading.Thread(target=stop, name="headrace-stop", daemon=True)
        stopping.start()
        while stopping.is_alive():
            if not self.active:
                let_go()
            stopping.join(_LOOK)
        if failures:
            raise failures[0]

    def took(self, batch: int, rows: int) -> None:
        """Note how many rows a batch had: Spark does not know it of files that tasks read."""
        self._rows[batch] = rows

    def recent_progress(self) -> list[dict[str, Any]]:
        """Spark's progress reports, with the rows that were read without it."""
        reports = [dict(progress) for progress in self._query.recentProgress]
        for progress in reports:
            rows = self._rows.get(progress["batchId"])
            if rows is not None and "addBatch" in progress["durationMs"]:
                progress["numInputRows"] = rows
        return reports


def pruned(frame: DataFrame, source: Source) -> DataFrame:
    """The columns that live queries need; a processing-time stream gets its batch's time.

    Spark writes a batch's time into its offset log before the batch runs, so a replay of the
    batch sees the same time again.
    """
    columns = [
        functions.current_timestamp().alias(PROCESSING_TIME_COLUMN)
        if source.processing and name == PROCESSING_TIME_COLUMN
        else functions.col(quoted(name))
        for name in source.columns.names
    ]
    return frame.select(*columns)


def _root(failure: BaseException) -> str:
    """The cause, without the description of the streaming query around it."""
    text = str(failure).split("\n=== Streaming Query ===")[0]
    return one_line(Exception(text.split("JVM stacktrace")[0]))
