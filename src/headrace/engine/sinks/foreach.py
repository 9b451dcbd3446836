"""A user's function, called with each epoch's rows and the epoch's number.

The call comes before the commit: after a crash in between, the same rows come again under the same
number. A function that writes under that number is exactly-once.

A function may hang. With a bound on its time (``spark.headrace.sink.timeout``) it runs on a thread
of its own, which is left alone when the time is over: Python cannot end it. Until it returns, the
function is not called again, so that no two calls ever overlap.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable

from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession

from headrace.engine.checkpoint.gate import Gate
from headrace.engine.epochs.running_epoch import RunningEpoch
from headrace.engine.execution.executor import ddl
from headrace.engine.execution.spark_errors import one_line
from headrace.engine.execution.spark_jobs import cancel_jobs, tag_jobs
from headrace.engine.sinks.base import QuerySink
from headrace.errors import SinkError
from headrace.failpoints import failpoint
from headrace.names import folded
from headrace.operators.output_rows import OutputRows
from headrace.operators.write import Write, Writing
from headrace.plan.nodes import Sink
from headrace.spark_sessions import in_session

# How often (seconds) it is looked whether an epoch that waits for a function was abandoned.
_LOOK = 0.05
# How long (seconds) a function may take to notice that its Spark jobs were cancelled.
_GRACE = 1.0
#: The last call for each query of each checkpoint: one that hangs outlives its engine.
_LAST_CALLS: dict[tuple[str, str], _Call] = {}


class _Call:
    """One call of a function: whether it has returned, and what it raised."""

    def __init__(self, epoch: int, function: Callable[[DataFrame, int], None]) -> None:
        self.epoch = epoch
        self._function = function
        self._tag = f"headrace-sink-{uuid.uuid4().hex}"
        self._returned = threading.Event()
        self.error: BaseException | None = None

    @property
    def hangs(self) -> bool:
        return not self._returned.is_set()

    def run(self, frame: DataFrame) -> None:
        """Call it, on this thread."""
        try:
            self._function(frame, self.epoch)
        except BaseException as error:
            self.error = error
        finally:
            self._returned.set()

    def begin(self, spark: SparkSession, frame: DataFrame) -> None:
        """Call it on a thread of its own, whose Spark jobs can be told from others."""

        def run() -> None:
            tag_jobs(spark, self._tag)
            self.run(frame)

        thread = InheritableThread(target=run, name=f"headrace-sink-{self.epoch}", daemon=True)
        thread.awaited_by = threading.current_thread()  # type: ignore[attr-defined]
        thread.start()

    def ends_within(self, seconds: float, gate: Gate) -> bool:
        """Wait for it, unless the epoch is abandoned meanwhile."""
        until = time.monotonic() + seconds
        while not self._returned.wait(max(0, min(until - time.monotonic(), _LOOK))):
            gate.check()
            if time.monotonic() >= until:
                return False
        return True

    def cancel(self, spark: SparkSession) -> None:
        cancel_jobs(spark, self._tag)


class ForeachBatchSink(QuerySink):
    """Hands a DataFrame of the user's own session to the function."""

    reads_all = False
    is_outside = True

    def __init__(
        self,
        sink: Sink,
        spark: SparkSession,
        function: Callable[[DataFrame, int], None],
        timeout: int = 0,
    ) -> None:
        super().__init__(sink)
        self._spark = spark
        self._function = function
        self._timeout = timeout / 1_000
        self._recent_rows: int | None = None

    def write(self, epoch: RunningEpoch, rows: OutputRows) -> Writing[int]:
        count = None
        if epoch.executor.is_few(self._recent_rows):
            # Together with what other queries put out, and handed over as it is.
            written = yield Write(
                self.name, rows.definition.query, rows.schema, columns=rows.columns
            )
            frame = self._spark.createDataFrame(written.table, ddl(rows.schema))
            count = written.rows
        else:
            frame = in_session(self._spark, epoch.executor.frame(rows.query)).persist()
            epoch.executor.count_jobs(1)
        try:
            # Within: rows that cannot be read must not stay in Spark's cache as what they were.
            count = self._recent_rows = frame.count() if count is None else count
            if count:
                key = epoch.checkpoint.root, folded(self.name)
                self._hand_over(key, frame, epoch.number, epoch.executor.gate)
                failpoint("sink.after")
            return count
        finally:
            frame.unpersist()

    def _hand_over(self, key: tuple[str, str], frame: DataFrame, epoch: int, gate: Gate) -> None:
        """Call the function and wait for it; whatever it raises is the sink's failure."""
        before = _LAST_CALLS.get(key)
        if before is not None and before.hangs:
            before.cancel(self._spark)
            raise SinkError(
                f"the function of query {self.name!r} has not returned from epoch {before.epoch}, "
                f"so it is not called for epoch {epoch}",
                hint="find out what it waits for; it is called again when it has returned",
            )
        call = _LAST_CALLS[key] = _Call(epoch, self._function)
        try:
            if self._timeout:
                self._wait(call, frame, gate)
            else:
                call.run(frame)
        finally:
            # When one that was left behind returns at last, another may have taken its place.
            if not call.hangs and _LAST_CALLS.get(key) is call:
                _LAST_CALLS.pop(key, None)
        gate.check()
        if call.error is not None:
            raise SinkError(
                f"the function of query {self.name!r} failed in epoch {epoch}: "
                f"{one_line(call.error)}"
            ) from call.error

    def _wait(self, call: _Call, frame: DataFrame, gate: Gate) -> None:
        """Call the function, for as long as it may take."""
        call.begin(self._spark, frame)
        if call.ends_within(self._timeout, gate):
            return
        call.cancel(self._spark)
        call.ends_within(_GRACE, gate)
        raise SinkError(
            f"the function of query {self.name!r} took longer than {self._timeout:g} s in epoch "
            f"{call.epoch}, the limit of spark.headrace.sink.timeout",
            hint="find out what it waits for, or raise the setting",
        ) from call.error
