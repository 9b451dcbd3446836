"""A table in the driver's memory, for notebooks and tests: ``spark.table(queryName)``."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.engine.epoch import Epoch
from headrace.engine.executor import ddl
from headrace.engine.relations import Relation
from headrace.engine.sinks.base import QuerySink
from headrace.engine.writes import Steps, Write
from headrace.names import quoted
from headrace.plan.nodes import Sink


class MemorySink(QuerySink):
    """Collects every row; the view is made anew whenever rows were added."""

    def __init__(self, sink: Sink, spark: SparkSession) -> None:
        super().__init__(sink)
        self._spark = spark
        self._tables: list[pa.Table] = []
        self._taken: pa.Table | None = None

    def open(self) -> None:
        empty = self._spark.createDataFrame([], ddl(self.sink.schema))
        empty.createOrReplaceTempView(quoted(self.name))

    def begin(self) -> None:
        self._taken = None

    def write(self, epoch: Epoch, rows: Relation) -> Steps[int]:
        written = yield Write(self.name, rows.query, rows.schema)
        self._taken = written.table
        return written.rows

    def publish(self, epoch: int) -> None:
        taken, self._taken = self._taken, None
        if taken is None or not taken.num_rows:
            return
        if self._tables:
            # The executors name time zones differently.
            taken = taken.cast(self._tables[0].schema)
        self._tables.append(taken)
        frame = self._spark.createDataFrame(pa.concat_tables(self._tables), ddl(self.sink.schema))
        frame.createOrReplaceTempView(quoted(self.name))
