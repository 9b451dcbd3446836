"""The two ways to run standing queries over files: Headrace, and plain Structured Streaming.

Both read the same files in the same micro-batches and write Parquet, from which the results are
read back after the clock has stopped. A micro-batch is timed by Spark's own clock for both
(``triggerExecution``). What Headrace does after it has let Spark go on, merging files, is outside
of that figure; it is inside of the run's, which is therefore reported per micro-batch as well.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from headrace.errors import QueryError
from headrace.native.compare import ContestantRun

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headrace.native import NativeRun
    from headrace.session import Headrace, Query, QueryHandle

_LOOK_EVERY = 0.5


@dataclass(frozen=True)
class StreamFolder:
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
    """A query by name; results are appended, or updated where they are never final."""

    name: str
    sql: str


@dataclass(frozen=True)
class Started:
    """A query of an engine, and the handle that it runs under."""

    query: Query
    handle: QueryHandle


def run_headrace(
    spark: SparkSession,
    streams: Sequence[StreamFolder],
    queries: Sequence[StandingQuery],
    work: Path,
    on_epochs: Callable[[int], None] = lambda epochs: None,
    settings: Mapping[str, str] | None = None,
    read: bool = True,
) -> ContestantRun:
    """Run everything there is through Headrace, from an empty checkpoint.

    ``settings`` are those of ``spark.headrace.*`` that differ from the session's. Without ``read``
    the results stay where they were written.
    """
    place = empty_folder(work / "headrace")
    hr = open_session(spark, streams, place / "state", settings)
    started_queries = start_queries(hr, queries, place / "out")
    started = time.perf_counter()
    finish(hr, started_queries, on_epochs)
    seconds = time.perf_counter() - started
    return ContestantRun(
        seconds,
        read_results(spark, started_queries, place / "out") if read else {},
        [t for stream in streams for t in trigger_seconds(hr, stream.name)],
        [t for stream in streams for t in start_to_start(hr, stream.name)],
        [epoch["seconds"] for epoch in hr.recentProgress],
        phases=mean_phases(hr),
    )


def run_native(
    spark: SparkSession,
    streams: Sequence[StreamFolder],
    queries: Sequence[StandingQuery],
    work: Path,
) -> ContestantRun:
    """Run the same as plain Structured Streaming, one Spark query per standing query.

    Each reads its sources itself; they run at the same time, as they would in life.
    """
    from headrace import native

    place = empty_folder(work / "native")
    # An engine that is never started: it only reads the SQL.
    planner = open_session(spark, streams, None)
    plans = {query.name: planner.sql(query.sql).plan for query in queries}

    def run(name: str) -> NativeRun:
        return native.run(
            plans[name],
            spark,
            {stream.name: stream.read(spark) for stream in streams},
            checkpoint=str(place / "state" / name),
            out_dir=str(place / "out" / name),
        )

    started = time.perf_counter()
    with ThreadPoolExecutor(len(plans)) as threads:
        runs = dict(zip(plans, threads.map(run, plans), strict=True))
    # With one query its own clock is the better one: planning and reading back are not in it.
    alone = [one.seconds for one in runs.values()]
    seconds = alone[0] if len(alone) == 1 else time.perf_counter() - started
    return ContestantRun(
        seconds,
        {name: one.rows for name, one in runs.items() if one.rows is not None},
        [batch / 1_000 for one in runs.values() for batch in one.batches],
    )


def refused_by_native(planner: Headrace, queries: Sequence[StandingQuery]) -> dict[str, str]:
    """The queries that plain Structured Streaming cannot run, each with the reason."""
    from headrace import native

    refused = {}
    for query in queries:
        try:
            native.require_supported(planner.sql(query.sql).plan)
        except native.NativeUnsupported as error:
            refused[query.name] = error.message
    return refused


def open_session(
    spark: SparkSession,
    streams: Sequence[StreamFolder],
    checkpoint: Path | None,
    settings: Mapping[str, str] | None = None,
) -> Headrace:
    from headrace.session import Headrace
    from headrace.settings import PREFIX

    # Settings are read when an engine is made; the session has its own again afterwards.
    changed = {PREFIX + key: value for key, value in (settings or {}).items()}
    for key, value in changed.items():
        spark.conf.set(key, value)
    hr = Headrace(spark, checkpoint=None if checkpoint is None else str(checkpoint))
    for key in changed:
        spark.conf.unset(key)
    for stream in streams:
        hr.stream(stream.name, stream.read(spark), time=stream.time, delay=stream.delay)
    return hr


def start_queries(hr: Headrace, queries: Sequence[StandingQuery], out: Path) -> dict[str, Started]:
    """Give every query a Parquet sink; they begin when the engine starts."""
    started = {}
    for standing in queries:
        query = hr.sql(standing.sql)
        writer = query.writeStream.queryName(standing.name).format("parquet")
        started[standing.name] = Started(query, writer.start(str(out / standing.name)))
    return started


def finish(
    hr: Headrace,
    queries: Mapping[str, Started],
    on_epochs: Callable[[int], None] = lambda epochs: None,
) -> None:
    """Run an engine to the end of what its streams hold; say now and then after how many epochs."""
    last_told = 0
    hr.start(availableNow=True)
    while not hr.awaitTermination(timeout=_LOOK_EVERY):
        done = len(hr.recentProgress)
        on_epochs(done - last_told)
        last_told = done
    require_health(queries)


def require_health(queries: Mapping[str, Started]) -> None:
    for name, started in queries.items():
        error = started.handle.exception()
        if error is not None:
            raise QueryError(f"query {name} failed under Headrace: {error}")


def trigger_seconds(hr: Headrace, stream: str) -> list[float]:
    """How long each micro-batch with rows took by Spark's clock, as it is told of plain Spark."""
    return [
        progress["durationMs"]["triggerExecution"] / 1_000
        for progress in hr.streamProgress(stream)
        if progress["numInputRows"] > 0
    ]


def start_to_start(hr: Headrace, stream: str) -> list[float]:
    """Seconds from one micro-batch to the next: what it took and what was done after it."""
    starts = [
        datetime.fromisoformat(progress["timestamp"])
        for progress in hr.streamProgress(stream)
        if progress["numInputRows"] > 0
    ]
    return [(after - before).total_seconds() for before, after in pairwise(starts)]


def mean_phases(hr: Headrace) -> dict[str, float]:
    """Where the time of an epoch goes: mean seconds of each phase that Headrace reports."""
    epochs = hr.recentProgress
    names = dict.fromkeys(name for epoch in epochs for name in epoch["durationMs"])
    return {
        name: mean(epoch["durationMs"].get(name, 0) for epoch in epochs) / 1_000 for name in names
    }


def read_results(
    spark: SparkSession, queries: Mapping[str, Started], out: Path
) -> dict[str, pa.Table]:
    """Read the Parquet files of every query; the folders of epochs are not part of the rows."""
    from headrace.engine.execution.executor import ddl

    results = {}
    for name, started in queries.items():
        # With the schema, because a query that found nothing has left no file to infer it from.
        reader = spark.read.schema(ddl(started.query.schema))
        results[name] = (
            reader.option("recursiveFileLookup", "true").parquet(str(out / name)).toArrow()
        )
    return results


def empty_folder(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
