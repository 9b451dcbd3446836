"""A user's function, called with each epoch's rows and the epoch's number.

The call comes before the commit: after a crash in between, the same rows come again under the same
number. A function that writes under that number is exactly-once.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from headrace.engine.epoch import Epoch
from headrace.engine.executor import ddl
from headrace.engine.failpoints import reach
from headrace.engine.relations import Relation
from headrace.engine.sinks.base import QuerySink
from headrace.engine.writes import Steps, Write
from headrace.plan.nodes import Sink


class ForeachBatchSink(QuerySink):
    """Hands a DataFrame of the user's own session to the function."""

    reads_all = False
    is_outside = True

    def __init__(
        self, sink: Sink, spark: SparkSession, function: Callable[[DataFrame, int], None]
    ) -> None:
        super().__init__(sink)
        self._spark = spark
        self._function = function
        self._recent_rows: int | None = None

    def write(self, epoch: Epoch, rows: Relation) -> Steps[int]:
        if epoch.executor.is_few(self._recent_rows):
            # Together with what other queries put out, and handed over as it is.
            written = yield Write(self.name, rows.query, rows.schema)
            frame = self._spark.createDataFrame(written.table, ddl(rows.schema))
            count = written.rows
        else:
            frame = in_session(self._spark, epoch.executor.frame(rows.query)).persist()
            epoch.executor.count_jobs(1)
            count = frame.count()
        self._recent_rows = count
        try:
            if count:
                self._function(frame, epoch.number)
                reach("sink.after")
            return count
        finally:
            frame.unpersist()


def in_session(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """The same rows as a DataFrame of another session, with that session's views and settings."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    plan = frame._jdf.queryExecution().analyzed()
    dataset = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan)
    return DataFrame(dataset, spark)
