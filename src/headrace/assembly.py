"""From what files and statements describe to what a session holds, with errors at their places."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError, Position
from headrace.pipeline import (
    Pipeline,
    PipelineError,
    QuerySpec,
    StreamSpec,
    TableSpec,
    ViewSpec,
)
from headrace.reading_order import in_reading_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.session import Headrace, Query, QueryHandle

# Spark's streaming reader wants to be told the schema of these; a batch read can infer it.
_FILE_FORMATS = ("json", "csv", "parquet", "orc", "avro", "xml", "text")


def assemble(spark: SparkSession, pipeline: Pipeline) -> tuple[Headrace, dict[str, Query]]:
    """Register everything the file names; nothing runs yet. Queries come back by name."""
    from headrace.session import Headrace

    hr = Headrace(spark, checkpoint=pipeline.checkpoint)
    views = in_reading_order(pipeline.views)
    relations: list[StreamSpec | TableSpec | ViewSpec] = [*pipeline.streams, *pipeline.tables]
    for spec in (*relations, *views):
        register(hr, spark, spec)
    return hr, {spec.name: query_of(hr, spec) for spec in pipeline.queries}


def register(
    hr: Headrace,
    spark: SparkSession,
    spec: StreamSpec | TableSpec | ViewSpec,
    error: type[HeadraceError] = PipelineError,
) -> None:
    """Register a stream, table or view; what is wrong with it is raised as an ``error``."""
    match spec:
        case StreamSpec():
            with _placed(spec.at, error):
                times = {"delay": spec.delay, "ttl": spec.ttl, "idle": spec.idle}
                given = {key: value for key, value in times.items() if value is not None}
                hr.stream(spec.name, _read_stream(spark, spec), time=spec.time, **given)
        case TableSpec():
            with _placed(spec.at, error):
                hr.table(spec.name, _read_table(spark, spec))
        case ViewSpec():
            with _placed(spec.at, error, spec):
                hr.view(spec.name, spec.sql)


def query_of(hr: Headrace, spec: QuerySpec, error: type[HeadraceError] = PipelineError) -> Query:
    """The query that its text means."""
    with _placed(spec.at, error, spec):
        return hr.sql(spec.sql)


def start_sinks(pipeline: Pipeline, queries: dict[str, Query]) -> dict[str, QueryHandle]:
    """Give every query its sink; they begin when the engine starts."""
    return {spec.name: start_sink(queries[spec.name], spec) for spec in pipeline.queries}


def start_sink(query: Query, spec: QuerySpec, name: str | None = None) -> QueryHandle:
    """Let a query join with its sink; ``name`` is what the engine calls it, if not as people do."""
    writer = query.writeStream.queryName(spec.name).format(spec.sink.format)
    for key, value in spec.sink.options.items():
        writer = writer.option(key, value)
    if spec.sink.path is not None:
        writer = writer.option("path", spec.sink.path)
    if spec.output_mode is not None:
        writer = writer.outputMode(spec.output_mode)
    return writer.start() if name is None else writer.called_inside(name).start()


def _read_stream(spark: SparkSession, spec: StreamSpec) -> DataFrame:
    """The streaming DataFrame of a stream, with the schema inferred if nobody names one."""
    reader = spark.readStream.format(spec.format).options(**spec.options)
    if spec.schema is not None:
        reader = reader.schema(spec.schema)
    elif spec.format in _FILE_FORMATS:
        batch = spark.read.format(spec.format).options(**spec.options)
        reader = reader.schema(batch.load(spec.path).schema)
    return reader.load(spec.path)


def _read_table(spark: SparkSession, spec: TableSpec) -> DataFrame:
    reader = spark.read.format(spec.format).options(**spec.options)
    if spec.schema is not None:
        reader = reader.schema(spec.schema)
    return reader.load(spec.path)


@contextmanager
def _placed(
    at: Position, kind: type[HeadraceError], query: QuerySpec | ViewSpec | None = None
) -> Iterator[None]:
    """Give an error its place in what was written: its own in the SQL, else that of the name."""
    from pyspark.errors import PySparkException

    try:
        yield
    except HeadraceError as error:
        inside = error.position
        place = query.position_in_file(inside) if query is not None and inside is not None else at
        raise kind(
            error.message, hint=error.hint, position=place, condition=error.condition
        ) from error
    except PySparkException as error:
        raise kind(str(error).strip().splitlines()[0], position=at) from error
