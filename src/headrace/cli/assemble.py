"""From a pipeline file to an engine: all that it names, with errors placed in the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.cli.views import in_reading_order
from headrace.errors import HeadraceError, Position
from headrace.pipeline import (
    Pipeline,
    PipelineError,
    QuerySpec,
    StreamSpec,
    TableSpec,
    ViewSpec,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.session import Headrace, Query

# Spark's streaming reader wants to be told the schema of these; a batch read can infer it.
_FILE_FORMATS = ("json", "csv", "parquet", "orc", "avro", "xml", "text")


def assemble(spark: SparkSession, pipeline: Pipeline) -> tuple[Headrace, dict[str, Query]]:
    """Register everything the file names; nothing runs yet. Queries come back by name."""
    from headrace.session import Headrace

    hr = Headrace(spark, checkpoint=pipeline.checkpoint)
    for stream in pipeline.streams:
        with _placed(stream.at):
            times = {"delay": stream.delay, "ttl": stream.ttl, "idle": stream.idle}
            given = {key: value for key, value in times.items() if value is not None}
            hr.stream(stream.name, read_stream(spark, stream), time=stream.time, **given)
    for table in pipeline.tables:
        with _placed(table.at):
            hr.table(table.name, read_table(spark, table))
    for view in in_reading_order(pipeline.views):
        with _placed(view.at, view):
            hr.view(view.name, view.sql)
    queries = {}
    for spec in pipeline.queries:
        with _placed(spec.at, spec):
            queries[spec.name] = hr.sql(spec.sql)
    return hr, queries


def read_stream(spark: SparkSession, spec: StreamSpec) -> DataFrame:
    """The streaming DataFrame of a stream, with the schema inferred if the file names none."""
    reader = spark.readStream.format(spec.format).options(**spec.options)
    if spec.schema is not None:
        reader = reader.schema(spec.schema)
    elif spec.format in _FILE_FORMATS:
        batch = spark.read.format(spec.format).options(**spec.options)
        reader = reader.schema(batch.load(spec.path).schema)
    return reader.load(spec.path)


def read_table(spark: SparkSession, spec: TableSpec) -> DataFrame:
    reader = spark.read.format(spec.format).options(**spec.options)
    if spec.schema is not None:
        reader = reader.schema(spec.schema)
    return reader.load(spec.path)


@contextmanager
def _placed(at: Position, query: QuerySpec | ViewSpec | None = None) -> Iterator[None]:
    """Give an error its place in the pipeline file: its own in the SQL, else that of the entry."""
    from pyspark.errors import PySparkException

    try:
        yield
    except HeadraceError as error:
        inside = error.position
        place = query.position_in_file(inside) if query is not None and inside is not None else at
        raise PipelineError(
            error.message, hint=error.hint, position=place, condition=error.condition
        ) from error
    except PySparkException as error:
        raise PipelineError(str(error).strip().splitlines()[0], position=at) from error
