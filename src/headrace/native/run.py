"""Run a plan as plain Structured Streaming to the end of its inputs, and say how long it took."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from headrace.errors import QueryError
from headrace.native.frames import stream_plan
from headrace.native.settings import native_session
from headrace.plan.nodes import Aggregate, Node, OutputMode
from headrace.plan.windows import Landmark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class NativeRun:
    """One run: its wall time, the milliseconds of each micro-batch with input, and its results.

    Micro-batches without input only move the watermark; their time is in ``seconds`` alone.
    ``rows`` is None for the ``noop`` sink.
    """

    seconds: float
    batches: list[int]
    rows: pa.Table | None


def run(
    plan: Node,
    spark: SparkSession,
    streams: Mapping[str, DataFrame],
    tables: Mapping[str, DataFrame] | None = None,
    *,
    checkpoint: str,
    out_dir: str | None = None,
    sink: str = "memory",
    output_mode: str = "append",
    read_back: bool = True,
    **trigger: Any,
) -> NativeRun:
    """Run to the end of what the sources hold (or with another trigger that ends by itself).

    With ``out_dir`` the results are Parquet files, which are not read where ``read_back`` says so;
    otherwise ``sink`` is ``memory`` or ``noop``.
    """
    session = native_session(spark)
    mode = _output_mode(plan, output_mode)
    frame = stream_plan(plan, streams, tables, mode, session)
    started = time.perf_counter()
    query = _start(frame, mode, checkpoint, out_dir, sink, trigger or {"availableNow": True})
    query.awaitTermination()
    seconds = time.perf_counter() - started
    failure = query.exception()
    if failure is not None:
        raise QueryError(f"the plain Spark query failed: {failure}")
    batches = [
        int(progress["durationMs"]["triggerExecution"])
        for progress in query.recentProgress
        if progress["numInputRows"] > 0
    ]
    rows = _results(session, frame, query, out_dir, sink) if read_back else None
    return NativeRun(seconds, batches, rows)


def _output_mode(plan: Node, wanted: str) -> OutputMode:
    """Append unless asked otherwise; totals over everything so far can only be updated."""
    endless = any(
        isinstance(n, Aggregate) and isinstance(n.windows[0], Landmark) for n in plan.walk()
    )
    return OutputMode.UPDATE if endless else OutputMode(wanted)


def _start(
    frame: DataFrame,
    mode: OutputMode,
    checkpoint: str,
    out_dir: str | None,
    sink: str,
    trigger: Mapping[str, Any],
) -> StreamingQuery:
    name = f"native_{uuid4().hex}"
    writer = frame.writeStream.queryName(name).outputMode(mode.value)
    writer = writer.option("checkpointLocation", checkpoint).trigger(**trigger)
    if out_dir is None:
        return writer.format(sink).start()
    if mode is OutputMode.APPEND:
        return writer.format("parquet").option("path", out_dir).start()

    def write(batch: DataFrame, number: int) -> None:
        # Spark's file sink knows append only; a folder per batch makes a replay harmless.
        batch.write.mode("overwrite").parquet(f"{out_dir}/batch={number}")

    return writer.foreachBatch(write).start()


def _results(
    session: SparkSession, frame: DataFrame, query: StreamingQuery, out_dir: str | None, sink: str
) -> pa.Table | None:
    if out_dir is not None:
        reader = session.read.schema(frame.schema).option("recursiveFileLookup", "true")
        return reader.parquet(out_dir).toArrow()
    return session.table(query.name).toArrow() if sink == "memory" else None
