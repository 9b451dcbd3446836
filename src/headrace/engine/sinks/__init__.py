"""Sinks: where the rows of a query go, each in its own file.

A sink writes within an epoch (staged, or in memory) and publishes after the commit, so nobody ever
sees rows of an epoch that is done again. A folder that a sink writes to is that of one query of one
checkpoint (``ownership``). ``base`` is what the engine asks of a sink; there are ``parquet``,
``results`` (a table that the engine keeps), ``foreach`` (a function), ``memory``, ``console`` and
``noop``.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from pyspark.sql import DataFrame, SparkSession

from headrace.engine.sinks.base import QuerySink
from headrace.engine.sinks.console import ConsoleSink
from headrace.engine.sinks.foreach import ForeachBatchSink
from headrace.engine.sinks.memory import MemorySink
from headrace.engine.sinks.noop import NoopSink
from headrace.engine.sinks.ownership import claim_folders
from headrace.engine.sinks.parquet import ParquetSink
from headrace.engine.sinks.results import ResultsSink
from headrace.errors import SinkError
from headrace.plan.nodes import Sink

BatchFunction = Callable[[DataFrame, int], None]
FORMATS = ("parquet", "memory", "console", "foreachBatch", "results", "noop")

__all__ = ["FORMATS", "BatchFunction", "QuerySink", "claim_folders", "make_sink"]


def make_sink(
    sink: Sink, spark: SparkSession, function: BatchFunction | None, timeout: int = 0
) -> QuerySink:
    """The sink that a query's plan names; functions of users may take so many ms, 0 is for ever."""
    options = dict(sink.options)
    match sink.format:
        case "parquet":
            return ParquetSink(sink, options)
        case "memory":
            return MemorySink(sink, spark)
        case "console":
            return ConsoleSink(sink, options)
        case "foreachBatch":
            if function is None:
                raise SinkError("foreachBatch needs a function", hint="call .foreachBatch(f)")
            return ForeachBatchSink(sink, spark, function, timeout)
        case "results":
            return ResultsSink(sink)
        case "noop":
            return NoopSink(sink)
        case other:
            near = get_close_matches(other, FORMATS, 1)
            raise SinkError(
                f"no sink format {other!r}",
                hint=f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(FORMATS)}",
                condition="UNKNOWN_SINK",
            )
