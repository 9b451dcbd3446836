"""The Spark executor: runs relational definitions as Spark SQL over DataFrames.

It works in a session of its own, so that the user's settings and temporary views are never
touched. Definitions name their inputs; an input is a DataFrame (this epoch's rows of a stream, a
static table) or a list of Parquet files of an arrangement.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation, SparkSession, functions
from sqlglot import exp

from headrace.engine.arrangements import StateFile
from headrace.engine.files import is_local, plain_path
from headrace.engine.relations import Sql, call
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
class Mode:
    """How Spark runs a definition."""

    interpreted: bool
    adaptive: bool


@dataclass(frozen=True)
class Written:
    """Where rows went and what was seen of them on the way."""

    path: str
    rows: int
    size: int
    seen: dict[str, Any]


@dataclass(frozen=True)
class WatchedRows:
    """Rows in the middle of a definition, with what is seen of them."""

    query: exp.Select
    observation: Observation


@dataclass(frozen=True)
class Kept:
    """The part of a definition's rows that is written."""

    condition: Sql
    columns: Sequence[str]


class SparkExecutor:
    """Runs definitions in a Spark session of the engine's own."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._settings = settings
        self.session = spark.newSession()
        for key, value in _inherited(spark).items():
            self.session.conf.set(key, value)
        for key, value in _SESSION.items():
            self.session.conf.set(key, value)
        self._partitions = settings.shuffle_partitions or spark.sparkContext.defaultParallelism
        self._mode: Mode | None = None
        self._views = 0
        self._rows_bound: int | None = 0
        self.jobs = 0

    def begin_epoch(self) -> None:
        """Names of inputs may be used again; counting starts anew."""
        self._views = 0
        self.jobs = 0

    def bind(self, frame: DataFrame, rows: int | None) -> exp.Select:
        """Give a DataFrame of this session a name that definitions can use.

        ``rows`` is how many rows to expect, if that is known.
        """
        name = f"headrace_input_{self._views}"
        self._views += 1
        known = rows is not None and self._rows_bound is not None
        self._rows_bound = self._rows_bound + rows if known else None  # type: ignore[operator]
        frame.createOrReplaceTempView(name)
        return exp.Select(expressions=[exp.Star()]).from_(exp.to_table(name), copy=False)

    def expect_more(self, rows: int) -> None:
        """The next definition makes this many rows of those that it reads."""
        if self._rows_bound is not None:
            self._rows_bound += rows

    def bind_files(self, files: Sequence[StateFile], schema: Schema) -> exp.Select:
        """Name the rows of some Parquet files. Columns that a file lacks are NULL."""
        frame = self.session.read.schema(ddl(schema)).parquet(*(file.path for file in files))
        return self.bind(frame, sum(file.rows for file in files))

    def _adapt(self) -> None:
        """Set Spark up for the rows that the next definition reads.

        Few rows are interpreted in one partition: a definition carries the epoch's watermark, so
        Spark's cache of compiled code never holds it, and compiling takes longer than running.
        Very many rows get adaptive execution, each of whose stages is a job more.
        """
        rows, self._rows_bound = self._rows_bound, 0
        mode = Mode(
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

    def bind_foreign(
        self, frame: DataFrame, key: str, watch: Mapping[str, str], expected_rows: int | None
    ) -> WatchedInput:
        """Name a DataFrame of another session, and watch its rows as they pass.

        A micro-batch lives in the session that Spark cloned for its query; only a global
        temporary view is seen from here.
        """
        view = f"headrace_{key}"
        frame.createOrReplaceGlobalTempView(view)
        return WatchedInput(view, watch, self, expected_rows)

    def frame(self, query: exp.Query) -> DataFrame:
        """The definition as a DataFrame.

        ``select("*")`` hands Spark the *analyzed* plan: an observation that stands inside a view
        is otherwise not found when the action ends, and reading it would wait for ever.
        """
        self._adapt()
        return self.read(query).select("*")

    def read(self, query: exp.Query) -> DataFrame:
        """The definition as a DataFrame for who is not part of an epoch, on any thread."""
        return self.session.sql(_text(query))

    def figure(self, query: exp.Query) -> int | None:
        """The one number that a definition comes to."""
        self.jobs += 1
        row = self.frame(query).first()
        return None if row is None else row[0]

    def bind_watched(self, query: exp.Query, watch: Mapping[str, Sql]) -> WatchedRows:
        """Name a definition's rows, and watch them as the definition above reads them."""
        observation = Observation()
        columns = [functions.expr(_text(value)).alias(name) for name, value in watch.items()]
        expected = self._rows_bound
        frame = self.session.sql(_text(query)).observe(observation, *columns)
        # The inputs were counted when they were bound; this is no further one.
        bound = self.bind(frame, 0)
        self._rows_bound = expected
        return WatchedRows(bound, observation)

    def write(
        self,
        query: exp.Query,
        path: str,
        watch: Mapping[str, Sql],
        expected_rows: int | None,
        folder: bool = False,
        keep: Kept | None = None,
    ) -> Written:
        """Write the rows as Parquet at the path: one file from the driver if they are few.

        The path of what was written is in the answer: a file or a folder, always a folder where
        the caller asks for one. ``keep`` says what of the watched rows is written, if not all.

        A distributed write costs 60 to 90 ms more than a collect (a commit protocol of several
        renames), which is what a small micro-batch takes altogether.
        """
        observation = Observation()
        written_rows = (
            exp.Count(this=exp.Star()) if keep is None else call("count_if", keep.condition)
        )
        columns = [
            functions.expr(_text(value)).alias(name)
            for name, value in {"rows": written_rows, **watch}.items()
        ]
        frame = self.frame(query).observe(observation, *columns)
        if keep is not None:
            frame = frame.where(_text(keep.condition)).select(*(f"`{n}`" for n in keep.columns))
        self.jobs += 1
        rows = self._collect(frame) if self._few(expected_rows) and is_local(path) else None
        if rows is not None:
            file = f"{path}/part-0.parquet" if folder else f"{path}.parquet"
            size = _write_file(rows, plain_path(file))
            path = path if folder else file
        else:
            frame.write.mode("overwrite").parquet(path)
            size = folder_size(path)
        seen = observation.get
        return Written(path, int(seen.pop("rows")), size, seen)

    def _few(self, expected_rows: int | None) -> bool:
        return expected_rows is not None and expected_rows <= self._settings.driver_rows

    def _collect(self, frame: DataFrame) -> pa.Table | None:
        """The rows, or None where they are more than Spark lets the driver have."""
        try:
            return frame.toArrow()
        except Exception as error:
            if "spark.driver.maxResultSize" in str(error):
                return None
            raise


class WatchedInput:
    """A stream's rows of this epoch. Reading them again reads the source again, unless kept."""

    def __init__(
        self,
        view: str,
        watch: Mapping[str, str],
        executor: SparkExecutor,
        expected_rows: int | None,
    ) -> None:
        self._view = view
        self._expected_rows = expected_rows
        self._executor = executor
        self._watch = [functions.expr(text).alias(name) for name, text in watch.items()]
        self._observation = Observation()
        self._frame = executor.session.table(f"global_temp.{view}")
        self._observed = self._frame.observe(self._observation, *self._watch)
        self._rows = self._frame
        self._kept = False

    def watch(self) -> None:
        """Watch the rows as the next action reads them.

        This costs about as much as a simple aggregation of them, so it is left out where a
        definition that reads all rows can tell the same by itself.
        """
        self._rows = self._observed

    def keep(self) -> None:
        """Hold the rows in memory (or on local disk): more than one definition reads them."""
        self._rows.persist(StorageLevel.MEMORY_AND_DISK)
        self._kept = True

    def bind(self) -> exp.Select:
        return self._executor.bind(self._rows, self._expected_rows)

    def seen(self) -> dict[str, Any]:
        """What was watched while an action read the rows."""
        try:
            return dict(self._observation.get)
        except Exception:
            # Spark found out that no row could pass, and did not read the input at all.
            return self.measure()

    def measure(self) -> dict[str, Any]:
        """Read the rows for the sake of watching, when nothing else is sure to read them."""
        self._executor.jobs += 1
        row = (self._rows if self._kept else self._frame).agg(*self._watch).first()
        assert row is not None
        return row.asDict()

    def release(self) -> None:
        if self._kept:
            self._rows.unpersist()
        self._executor.session.catalog.dropGlobalTempView(self._view)


def _text(sql: Sql) -> str:
    return sql.sql(dialect="spark", normalize_functions=False)


def _write_file(rows: pa.Table, path: str) -> int:
    """Write one Parquet file, which appears whole or not at all; its size."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.tmp"
    parquet.write_table(rows, temporary, compression="zstd")
    os.replace(temporary, path)
    return os.path.getsize(path)


def ddl(schema: Schema) -> str:
    """A schema as Spark reads it."""
    return ", ".join(f"`{f.name}` {f.type.name}" for f in schema)


def folder_size(path: str) -> int:
    """Bytes in a local folder; 0 for other file systems, where asking costs more than it tells."""
    if not is_local(path):
        return 0
    folder = plain_path(path)
    return sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))


def _inherited(spark: SparkSession) -> dict[str, str]:
    """What the user set that gives expressions their meaning: time zone, ANSI mode and the like."""
    keys = (
        "spark.sql.session.timeZone",
        "spark.sql.ansi.enabled",
        "spark.sql.timestampType",
        "spark.sql.decimalOperations.allowPrecisionLoss",
        "spark.sql.legacy.timeParserPolicy",
        "spark.sql.warehouse.dir",
    )
    found = {key: spark.conf.get(key, None) for key in keys[:-1]}
    return {key: value for key, value in found.items() if value is not None}
