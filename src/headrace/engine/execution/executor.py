"""Executors: who runs relational definitions.

Every definition can run on Spark's own operators. Where its inputs are files that a task can open,
and everything in it means the same in DuckDB, the bucket executor runs it inside Spark tasks; one
job then serves all definitions that are asked for together.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

from headrace.engine.checkpoint.gate import Gate
from headrace.engine.execution.duckdb.executor import BucketExecutor, Learnt
from headrace.engine.execution.duckdb.stores import Stores
from headrace.engine.execution.spark_executor import SparkExecutor, ddl
from headrace.engine.execution.spark_jobs import cancel_jobs, tag_jobs
from headrace.engine.ingest.micro_batch import Batch, StreamBatch
from headrace.operators.inputs import Inputs
from headrace.operators.write import Write, Written
from headrace.plan.nodes import Source
from headrace.settings import Settings

__all__ = ["Executor", "ddl"]


class Executor:
    """Runs definitions on whichever executor suits them."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self.inputs = Inputs()
        self._settings = settings
        self._spark = SparkExecutor(spark, settings, self.inputs)
        #: Which stores tasks reach, and what failed in them.
        self.learnt = Learnt(Stores(self._spark.session))
        self._buckets = BucketExecutor(self._spark.session, settings, self.inputs, self.learnt)
        #: Closed when the epochs for which this one works are abandoned.
        self.gate = Gate()
        #: What ran where of late and why, by label.
        self.chosen: dict[str, str] = {}

    @property
    def session(self) -> SparkSession:
        """The engine's own Spark session."""
        return self._spark.session

    @property
    def jobs(self) -> int:
        """Spark jobs of this epoch."""
        return self._spark.jobs + self._buckets.jobs

    def begin_epoch(self) -> None:
        """Names of inputs may be used again; counting starts anew."""
        self.gate.check()
        self.inputs.clear()
        self._spark.begin_epoch()
        self._buckets.begin_epoch()

    def take_in(
        self, batch: Batch, source: Source, key: str, expected_rows: int | None
    ) -> StreamBatch:
        """Make a micro-batch, which lives in another session, one of this epoch."""
        return StreamBatch(batch, source, key, self.session, expected_rows)

    def parts_of_indexes(self, rows: int) -> int:
        """Into how many parts indexes of so many rows are cut."""
        return self._buckets.parts_of_indexes(rows)

    def forget_indexes(self, run: str) -> None:
        """Delete the indexes that a run left on the executors."""
        self._buckets.forget_indexes(run)

    # Runs

    def write_all(self, requested: Sequence[Write]) -> list[Written | Exception]:
        """Run all writes, in one job those that tasks can do; how each of them ended."""
        self.gate.check()
        writes = [write.with_own_names() for write in requested]
        answers: dict[int, Written | Exception] = {}
        for index, outcome in self._buckets.write_all(writes).items():
            self.chosen[writes[index].label] = outcome.text
            if outcome.written is not None:
                answers[index] = outcome.written
        rest = [index for index in range(len(writes)) if index not in answers]
        for index in rest:
            self.gate.check()
            try:
                answers[index] = self._spark.write(writes[index])
            except Exception as error:
                answers[index] = error
        # What was cancelled is nobody's fault.
        self.gate.check()
        return [answers[index] for index in range(len(writes))]

    def take_news(self) -> list[str]:
        """What was found out about stores since this was last asked."""
        return self.learnt.stores.take_news()

    def is_few(self, rows: int | None) -> bool:
        """Whether so many rows may come to the driver."""
        return rows is not None and rows <= self._settings.driver_rows

    def frame(self, query: exp.Query) -> DataFrame:
        """The definition as a DataFrame, for whoever does with it what we cannot know."""
        self.gate.check()
        return self._spark.frame(query)

    def read(self, query: exp.Query) -> DataFrame:
        """The definition as a DataFrame for who is not part of an epoch, on any thread."""
        return self._spark.read(query)

    def read_through(self, query: exp.Query) -> None:
        """Read all rows of a definition for nothing but whether that is possible."""
        self.count_jobs(1)
        try:
            self.frame(query).write.format("noop").mode("overwrite").save()
        finally:
            # What was cancelled is nobody's fault.
            self.gate.check()

    def name_jobs(self, tag: str) -> None:
        """Name the Spark jobs of this thread, so that they can be cancelled."""
        tag_jobs(self.session, tag)

    def cancel(self, tag: str) -> None:
        """Cancel the Spark jobs of that name."""
        cancel_jobs(self.session, tag)

    def count_jobs(self, jobs: int) -> None:
        """Jobs that others ran for this epoch."""
        self._spark.jobs += jobs
