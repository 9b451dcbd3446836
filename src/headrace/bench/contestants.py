"""The two ways to run standing queries over files: Headrace, and plain Structured Streaming.

Both read the same files in the same micro-batches and write Parquet, from which the results are
read back after the clock has stopped.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.bench import BenchError
from headrace.bench.harness import Outcome

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.session import Headrace, QueryHandle


@dataclass(frozen=True)
class FileStream:
    """A folder of files as a stream."""

    name: str
    folder: Path
    schema: str
    time: str = "ts"
    delay: str = "10 seconds"
    files_per_batch: int | None = None
    format: str = "parquet"

    def read(self, spark: SparkSession) -> DataFrame:
        reader = spark.readStream.format(self.format).schema(self.schema)
        if self.files_per_batch is not None:
            reader = reader.option("maxFilesPerTrigger", self.files_per_batch)
        return reader.load(str(self.folder))


@dataclass(frozen=True)
class StandingQuery:
    """A query by name; results are appended."""

    name: str
    sql: str


def run_headrace(
    spark: SparkSession, streams: Sequence[FileStream], queries: Sequence[StandingQuery], work: Path
) -> Outcome:
    """Run everything there is through Headrace, from an empty checkpoint."""
    place = _empty(work / "headrace")
    race = open_race(spark, streams, place / "state")
    handles = start_queries(race, queries, place / "out")
    started = time.perf_counter()
    race.start(availableNow=True)
    race.awaitTermination()
    seconds = time.perf_counter() - started
    for name, handle in handles.items():
        error = handle.exception()
        if error is not None:
            raise BenchError(f"query {name} failed under Headrace: {error}")
    return Outcome(seconds, read_results(spark, queries, place / "out"), batch_seconds(race))


def run_native(
    spark: SparkSession, streams: Sequence[FileStream], queries: Sequence[StandingQuery], work: Path
) -> Outcome:
    """Run the same as plain Structured Streaming, one Spark query per standing query."""
    place = _empty(work / "native")
    started = time.perf_counter()
    running = start_native(spark, streams, queries, place)
    for query in running.values():
        query.awaitTermination()
    seconds = time.perf_counter() - started
    # Batches without rows are Spark's own (they only move the watermark); those are not counted.
    batches = [
        progress["durationMs"]["triggerExecution"] / 1_000
        for query in running.values()
        for progress in query.recentProgress
        if progress["numInputRows"] > 0
    ]
    return Outcome(seconds, read_results(spark, queries, place / "out"), batches)


def open_race(spark: SparkSession, streams: Sequence[FileStream], checkpoint: Path) -> Headrace:
    from headrace.session import Headrace

    race = Headrace(spark, checkpoint=str(checkpoint))
    for stream in streams:
        race.stream(stream.name, stream.read(spark), time=stream.time, delay=stream.delay)
    return race


def start_queries(
    race: Headrace, queries: Sequence[StandingQuery], out: Path
) -> dict[str, QueryHandle]:
    return {
        query.name: race.sql(query.sql)
        .writeStream.queryName(query.name)
        .format("parquet")
        .option("path", str(out / query.name))
        .outputMode("append")
        .start()
        for query in queries
    }


def start_native(
    spark: SparkSession, streams: Sequence[FileStream], queries: Sequence[StandingQuery], work: Path
) -> dict[str, StreamingQuery]:
    """Start every query on its own, as Spark would have it; each reads its sources itself."""
    running = {}
    for query in queries:
        running[query.name] = (
            native_frame(spark, streams, query.sql)
            .writeStream.queryName(f"native_{query.name}")
            .format("parquet")
            .option("path", str(work / "out" / query.name))
            .option("checkpointLocation", str(work / "state" / query.name))
            .outputMode("append")
            .trigger(availableNow=True)
            .start()
        )
    return running


def native_frame(spark: SparkSession, streams: Sequence[FileStream], sql: str) -> DataFrame:
    """The query as a streaming DataFrame of plain Spark: the one place that calls ``native``."""
    from headrace import native
    from headrace.session import Headrace

    # A race of its own, which is never started: it only reads the SQL.
    race = Headrace(spark, checkpoint=None)
    for stream in streams:
        race.stream(stream.name, stream.read(spark), time=stream.time, delay=stream.delay)
    return native.dataframe(race.sql(sql).plan, {s.name: s.read(spark) for s in streams})


def batch_seconds(race: Headrace) -> list[float]:
    """How long each micro-batch took, in order: the one place that knows how a race tells it."""
    return [progress["seconds"] for progress in race.recentProgress]


def read_results(
    spark: SparkSession, queries: Sequence[StandingQuery], out: Path
) -> Mapping[str, pa.Table]:
    """Read all Parquet files below each query's folder, whatever folders the sink made there."""
    results = {}
    for query in queries:
        reader = spark.read.option("recursiveFileLookup", "true")
        results[query.name] = reader.parquet(str(out / query.name)).toArrow()
    return results


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
