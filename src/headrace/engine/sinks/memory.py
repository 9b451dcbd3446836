"""A table in the driver's memory, for notebooks and tests: ``spark.table(queryName)``."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.engine.epochs.running_epoch import RunningEpoch
from headrace.engine.execution.executor import ddl
from headrace.engine.sinks.base import QuerySink
from headrace.names import quoted
from headrace.operators.output_rows import OutputRows
from headrace.operators.write import Write, Writing
from headrace.plan.nodes import Sink


class MemorySink(QuerySink):
    """Collects every row; the view is made anew whenever rows were added."""

    def __init__(self, sink: Sink, spark: SparkSession) -> None:
        super().__init__(sink)
        self._spark = spark
        self._tables: list[pa.Table] = []
        #: By epochs that are not committed yet.
        self._taken: dict[int, pa.Table] = {}

    def open(self) -> None:
        empty = self._spark.createDataFrame([], ddl(self.sink.schema))
        empty.createOrReplaceTempView(quoted(self.name))

    def begin(self) -> None:
        self._taken.clear()

    def write(self, epoch: RunningEpoch, rows: OutputRows) -> Writing[int]:
        written = yield Write(self.name, rows.definition.query, rows.schema, columns=rows.columns)
        assert written.table is not None
        self._taken[epoch.number] = written.table
        return written.rows

    def undo(self, epoch: int) -> None:
        self._taken.pop(epoch, None)

    def publish(self, epoch: int) -> None:
        taken = [
            table
            for _, table in sorted(self._taken.items(), key=lambda each: each[0])
            if table.num_rows
        ]
        self._taken.clear()
        if not taken:
            return
        # The executors name time zones differently.
        self._tables += [table.cast((self._tables or taken)[0].schema) for table in taken]
        frame = self._spark.createDataFrame(pa.concat_tables(self._tables), ddl(self.sink.schema))
        frame.createOrReplaceTempView(quoted(self.name))
