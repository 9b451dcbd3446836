"""A user's function, called with each epoch's rows and the epoch's number.

The call comes before the commit: after a crash in between, the same rows come again under the same
number. A function that writes under that number is exactly-once.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from headrace.engine.epoch import Epoch
from headrace.engine.failpoints import reach
from headrace.engine.relations import Relation
from headrace.engine.sinks.base import QuerySink
from headrace.engine.writes import Steps
from headrace.plan.nodes import Sink


class ForeachBatchSink(QuerySink):
    """Hands a DataFrame of the user's own session to the function."""

    reads_all = False

    def __init__(
        self, sink: Sink, spark: SparkSession, function: Callable[[DataFrame, int], None]
    ) -> None:
        super().__init__(sink)
        self._spark = spark
        self._function = function

    def write(self, epoch: Epoch, rows: Relation) -> Steps[int]:
        yield from ()
        frame = in_session(self._spark, epoch.executor.frame(rows.query)).persist()
        try:
            epoch.executor.count_jobs(1)
            count = frame.count()
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
