"""The Spark executor: runs relational definitions as Spark SQL over DataFrames.

It works in a session of its own, so that the user's settings and temporary views are never
touched, and it runs whatever a definition may hold, shuffles included.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as parquet
from pyspark.sql import Column, DataFrame, Observation, SparkSession, functions
from sqlglot import exp

from headrace.definitions.definition import Sql, call
from headrace.definitions.join_tree import is_watched as has_watched_join
from headrace.definitions.key_bits import for_spark
from headrace.engine.checkpoint.files import is_local, plain_path
from headrace.engine.execution.spark_joins import SparkJoins
from headrace.engine.ingest.micro_batch import StreamBatch
from headrace.names import quoted
from headrace.operators.inputs import BatchInput, FilesInput, Inputs, ProbedInput
from headrace.operators.write import Inner, Write, Written, WrittenFile
from headrace.plan.types import Schema
from headrace.settings import Settings

# Settings of the engine's session that its operators rely on. Listing state files is the
# driver's work however many there are, and times are stored as Parquet's own timestamps, which
# filters can be pushed down to.
_SESSION = {
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.mergeSchema": "false",
    "spark.sql.parquet.filterPushdown": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.sql.caseSensitive": "true",
    # Where one side of a join is much smaller, hashing it beats sorting both.
    "spark.sql.join.preferSortMergeJoin": "false",
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


@dataclass(frozen=True)
class ExecutionMode:
    """How Spark runs a definition."""

    interpreted: bool
    adaptive: bool


class SparkExecutor:
    """Runs definitions in a Spark session of the engine's own."""

    def __init__(self, spark: SparkSession, settings: Settings, inputs: Inputs) -> None:
        self._settings = settings
        self._inputs = inputs
        self.session = spark.newSession()
        for key, value in _inherited(spark).items():
            self.session.conf.set(key, value)
        for key, value in _SESSION.items():
            self.session.conf.set(key, value)
        self._partitions = settings.shuffle_partitions or spark.sparkContext.defaultParallelism
        self._mode: ExecutionMode | None = None
        self._bound: set[str] = set()
        self._joins = SparkJoins(self.session)
        self.jobs = 0

    def begin_epoch(self) -> None:
        """Names of inputs are used again; counting starts anew."""
        self._bound.clear()
        self.jobs = 0

    def frame(self, query: exp.Query, inner: Inner | None = None) -> DataFrame:
        """The definition as a DataFrame.

        ``select("*")`` hands Spark the *analyzed* plan: an observation that stands inside a view
        is otherwise not found when the action ends, and reading it would wait for ever.
        """
        queries = [query] if inner is None else [query, inner.query]
        self._bind(*queries)
        self._adapt(self._inputs.rows(*queries))
        return self.read(query).select("*")

    def read(self, query: exp.Query) -> DataFrame:
        """The definition as a DataFrame for who is not part of an epoch, on any thread."""
        return self.session.sql(_text(query))

    def _bind(self, *queries: exp.Query) -> None:
        """Make views of the inputs that definitions read."""
        for name, source in self._inputs.of(*queries).items():
            if name in self._bound:
                continue
            self._bound.add(name)
            match source:
                case BatchInput(batch=batch):
                    assert isinstance(batch, StreamBatch)
                    frame = batch.frame()
                case FilesInput(files=files, schema=schema):
                    paths = [file.path for file in files]
                    frame = self.session.read.schema(ddl(schema)).parquet(*paths)
                case ProbedInput(definition=definition):
                    query = definition()
                    self._bind(query)
                    frame = self.read(query)
            frame.createOrReplaceTempView(name)

    def _adapt(self, rows: int | None) -> None:
        """Set Spark up for a definition that reads this many rows.

        Few rows are interpreted in one partition: a definition carries the epoch's watermark, so
        Spark's cache of compiled code never holds it, and compiling takes longer than running.
        Very many rows get adaptive execution, each of whose stages is a job more.
        """
        mode = ExecutionMode(
            interpreted=rows is not None and rows <= self._settings.interpreted_rows,
            adaptive=rows is not None and rows >= self._settings.adaptive_rows,
        )
        if mode == self._mode:
            return
        self._mode = mode
        compiled = not mode.interpreted
        settings = {
            "spark.sql.adaptive.enabled": mode.adaptive,
            "spark.sql.codegen.wholeStage": compiled,
            "spark.sql.codegen.factoryMode": "FALLBACK" if compiled else "NO_CODEGEN",
            "spark.sql.shuffle.partitions": str(self._partitions if compiled else 1),
        }
        for key, value in settings.items():
            self.session.conf.set(
                key, str(value).lower() if isinstance(value, bool) else str(value)
            )

    def write(self, write: Write) -> Written:
        """Run a write: as one file from the driver if the rows are few.

        A distributed write costs 60 to 90 ms more than a collect (a commit protocol of several
        renames), which is what a small micro-batch takes altogether.
        """
        observations = []
        if write.inner is not None:
            observations.append(self._watch_inner(write.inner))
        observation = Observation()
        observations.append(observation)
        keep = write.keep
        written_rows = (
            exp.Count(this=exp.Star()) if keep is None else call("count_if", keep.condition)
        )
        frame = self.frame(write.query, write.inner)
        frame = frame.observe(observation, *_columns({"__written": written_rows, **write.watch}))
        if keep is not None:
            frame = frame.where(_text(keep.condition)).select(*map(quoted, keep.columns))
        self.jobs += 1
        is_watched = self._inputs.watches_joins and has_watched_join(_text(write.query))
        before = self._joins.last() if is_watched else -1
        table, files = None, []
        if write.only_seen:
            frame.write.format("noop").mode("overwrite").save()
        elif write.path is None:
            table = frame.toArrow()
        else:
            files.append(self._write_files(write, frame))
        if is_watched:
            self._inputs.note_joined(self._joins.rows_since(before))
        seen = {name: value for o in observations for name, value in o.get.items()}
        rows = int(seen.pop("__written"))
        first, last = seen.get("first"), seen.get("last")
        written = tuple(WrittenFile(path, rows, size, first, last) for path, size in files)
        return Written(rows, written, seen, table)

    def _watch_inner(self, inner: Inner) -> Observation:
        """Name the rows of an inner definition, and watch them as the outer one reads them."""
        self._bind(inner.query)
        observation = Observation()
        frame = self.read(inner.query).observe(observation, *_columns(inner.watch))
        frame.createOrReplaceTempView(inner.name)
        return observation

    def _write_files(self, write: Write, frame: DataFrame) -> tuple[str, int]:
        path = write.path
        assert path is not None
        few = write.expected_rows is not None and write.expected_rows <= self._settings.driver_rows
        rows = _collect(frame) if few and is_local(path) else None
        if rows is None:
            frame.write.mode("overwrite").parquet(path)
            return path, folder_size(path)
        file = f"{path}/part-0.parquet" if write.folder else f"{path}.parquet"
        size = write_parquet(rows, plain_path(file))
        return path if write.folder else file, size


def _columns(watch: Mapping[str, Sql]) -> list[Column]:
    return [functions.expr(_text(for_spark(value))).alias(name) for name, value in watch.items()]


def _text(sql: Sql) -> str:
    return sql.sql(dialect="spark", normalize_functions=False)


def _collect(frame: DataFrame) -> pa.Table | None:
    """The rows, or None where they are more than Spark lets the driver have."""
    try:
        return frame.toArrow()
    except Exception as error:
        if "spark.driver.maxResultSize" in str(error):
            return None
        raise


def write_parquet(rows: pa.Table, path: str) -> int:
    """Write one Parquet file, which appears whole or not at all; its size."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.tmp"
    try:
        parquet.write_table(rows, temporary, compression="zstd")
    except OSError as error:
        # Arrow does not say which file it is.
        raise OSError(error.errno, os.strerror(error.errno or 0), path) from error
    os.replace(temporary, path)
    return os.path.getsize(path)


def ddl(schema: Schema) -> str:
    """A schema as Spark reads it."""
    return ", ".join(f"{quoted(f.name)} {f.type.name}" for f in schema)


def folder_size(path: str) -> int:
    """Bytes in a local folder; 0 for other file systems, where asking costs more than it tells."""
    if not is_local(path):
        return 0
    folder = plain_path(path)
    return sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))


def _inherited(spark: SparkSession) -> dict[str, str]:
    """What the user set that gives expressions their meaning (time zone, ANSI mode and the like),
    and how file systems are reached."""
    keys = (
        "spark.sql.session.timeZone",
        "spark.sql.ansi.enabled",
        "spark.sql.timestampType",
        "spark.sql.decimalOperations.allowPrecisionLoss",
        "spark.sql.legacy.timeParserPolicy",
    )
    inherited = {key: spark.conf.get(key, None) for key in keys}
    inherited |= {key: value for key, value in spark.conf.getAll.items() if key.startswith("fs.")}
    return {key: value for key, value in inherited.items() if value is not None}
