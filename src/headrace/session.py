"""``Headrace``: the session that users hold, a thin face over ``engine.engine.Engine``."""

from __future__ import annotations

import copy
from collections import ChainMap
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import TimestampType

from headrace.engine.engine import Engine
from headrace.engine.execution.executor import ddl
from headrace.engine.ingest.ingest import Trigger
from headrace.engine.ingest.registered_stream import RegisteredStream
from headrace.engine.introspection.agreed_shapes import AgreedShapes
from headrace.engine.introspection.check import ask_function, check_expressions
from headrace.errors import HeadraceError, QueryError, StreamError
from headrace.merge.printing import explain_merged
from headrace.names import first_twice, folded, known_as, relation_name_advice, spelling
from headrace.optimizer import Optimized
from headrace.plan.durations import parse_duration, positive_duration
from headrace.plan.nodes import PROCESSING_TIME_COLUMN, Node, Source, Table
from headrace.plan.types import TIMESTAMP, DataType, Field, Schema
from headrace.planner.decision import RankedPlan
from headrace.query import Query, QueryHandle, QueryWriter
from headrace.redaction import redacted_json
from headrace.registration import check_plan
from headrace.settings import Settings, read_settings
from headrace.sql import AskedFunction, View, plan_query, plan_view
from headrace.sql.functions_table import callable_names
from headrace.sql.places import NO_PLACES, Places
from headrace.stats.catalog import Statistics

if TYPE_CHECKING:
    from headrace.builder import QueryBuilder

__all__ = ["Headrace", "Query", "QueryHandle", "QueryWriter", "RankedPlan"]


class Headrace:
    """Standing queries over streams, planned and run together.

    ``spark=None`` takes the active session. Its settings are read, never changed, and it is never
    stopped. ``checkpoint`` is a folder on any file system that Spark can write to; an engine
    without one can plan and explain, but not run.
    """

    def __init__(self, spark: SparkSession | None = None, checkpoint: str | None = None) -> None:
        session = spark or SparkSession.getActiveSession()
        if session is None:
            raise HeadraceError(
                "there is no active Spark session",
                hint="make one with SparkSession.builder.getOrCreate()",
                condition="NO_SPARK_SESSION",
            )
        if not hasattr(session, "_jsparkSession"):
            raise HeadraceError(
                "Headrace needs a classic Spark session, not Spark Connect",
                hint="its driver program must run beside Spark's driver",
                condition="NO_SPARK_SESSION",
            )
        self._spark = session
        self._engine = Engine(session, checkpoint, self._settings())
        self._engine.ask_failed_queries = lambda: self._settings().failed_queries
        self._catalog: MutableMapping[str, Source | Table | View] = {}
        self._asked = self._engine.executor.session, AgreedShapes(callable_names())
        #: Those that read what this one has, and have views of their own.
        self._guests: list[Headrace] = []

    @property
    def engine(self) -> Engine:
        return self._engine

    def guest(self) -> Headrace:
        """A session on the same engine that has all of this one's streams, tables and views, and
        beside them views of its own, which nobody else sees."""
        guest = copy.copy(self)
        guest._catalog, guest._guests = ChainMap({}, self._catalog), []
        self._guests.append(guest)
        return guest

    def _settings(self) -> Settings:
        return read_settings(dict(self._spark.conf.getAll))

    # Streams, tables and views

    def stream(
        self,
        name: str,
        df: DataFrame,
        time: str,
        delay: str = "0 seconds",
        ttl: str | None = None,
        idle: str | None = None,
    ) -> None:
        """Register a streaming DataFrame.

        ``time`` is its event-time column, or "processing" for the time at which rows arrive, which
        queries then read as ``processing_time``. Rows may be ``delay`` out of order. ``ttl`` is how
        long a row lives in joins that have no condition on time. After ``idle`` without rows, by
        the clock on the wall, the stream holds no watermark back until it brings rows again.
        """
        self._check_name(name)
        if not df.isStreaming:
            raise StreamError(
                f"{name!r} is not a streaming DataFrame",
                hint="make it with spark.readStream, or register it with hr.table(...)",
            )
        columns = _columns(df)
        processing = time == "processing" and known_as(time, df.columns) is None
        if processing:
            columns += (Field(PROCESSING_TIME_COLUMN, TIMESTAMP),)
            time = PROCESSING_TIME_COLUMN
        schema = _schema(name, columns)
        time = known_as(time, schema.names) or time
        _check_time(name, df, schema, time, processing)
        wait = parse_duration(delay)
        if wait < 0:
            raise StreamError(f"the delay of {name!r} is negative: {delay!r}")
        life = None if ttl is None else positive_duration(ttl, f"the ttl of {name!r}")
        silence = None if idle is None else positive_duration(idle, f"the idle time of {name!r}")
        source = Source(folded(name), schema, time, wait, life, processing, spelling(name))
        self._engine.add_stream(RegisteredStream(df, source, silence))
        self._catalog[name] = source

    def table(self, name: str, df: DataFrame) -> None:
        """Register a static DataFrame, for joins with streams."""
        self._check_name(name)
        table = Table(folded(name), _schema(name, _columns(df)), spelling(name))
        self._engine.add_table(table, df)
        self._catalog[name] = table

    def view(self, name: str, text: str) -> None:
        """Name a query, for other queries to read as they read a stream.

        The text is planned and checked now, and runs only as part of queries that read the view.
        It may read other views.
        """
        self._check_name(name)
        view, places = plan_view(name, text, self._catalog, self._function_type, self._time_zone)
        self._check_plan(view.plan, places)
        self._catalog[name] = view

    def drop(self, name: str) -> None:
        """Forget a stream that no running query reads, or a view; no view may read it.

        Queries that read the view stay what they are, whether they run or not.
        """
        own_name = known_as(name, self._catalog) or name
        entry = self._catalog.get(own_name)
        views = [view for each in (self, *self._guests) for view in each._views()]
        readers = list(dict.fromkeys(view.name for view in views if _reads(view, entry)))
        if readers:
            what = "view" if isinstance(entry, View) else "stream"
            raise StreamError(
                f"{what} {own_name!r} is read by the view {' and the view '.join(readers)}",
                hint="drop what reads it first",
            )
        if not isinstance(entry, View):
            self._engine.remove_stream(name)
        del self._catalog[own_name]

    def schema_of(self, name: str) -> Schema:
        """The columns of a stream, table or view."""
        known = known_as(name, self._catalog)
        if known is None:
            raise StreamError(f"no stream, table or view {name!r}")
        relation = self._catalog[known]
        return relation.plan.schema if isinstance(relation, View) else relation.schema

    def columns_read(self, name: str) -> str:
        """The columns that Spark reads of a stream or table, as its readers take them."""
        columns = self.schema_of(name).fields
        return ddl(Schema(tuple(c for c in columns if c.name != PROCESSING_TIME_COLUMN)))

    def _views(self) -> list[View]:
        return [relation for relation in self._catalog.values() if isinstance(relation, View)]

    def _check_name(self, name: str) -> None:
        advice = relation_name_advice(name)
        if advice is not None:
            raise StreamError(f"{name!r} is no name for a stream, table or view", hint=advice)
        present = known_as(name, self._catalog)
        if present is not None:
            but = "" if present == name else "; case makes no difference"
            raise StreamError(
                f"there is a {_kind(self._catalog[present])} named {present!r} already{but}",
                hint="choose another name",
            )

    # Queries

    def sql(self, text: str) -> Query:
        """A query from SQL text."""
        parsed = plan_query(text, self._catalog, self._function_type, self._time_zone)
        return self._query(parsed.plan, parsed.views, parsed.places)

    def read(self, name: str) -> QueryBuilder:
        """A stream, table or view to build a query from, with PySpark's names."""
        from headrace.builder import QueryBuilder

        return QueryBuilder.read(
            name,
            self._catalog,
            self._query,
            self._function_type,
            self._time_zone,
        )

    def _query(self, plan: Node, views: tuple[View, ...], places: Places = NO_PLACES) -> Query:
        """A query that can run, or the reason why it cannot."""
        optimized = self._check_plan(plan, places)
        return Query(self._engine, self.statistics, plan, views=views, checked=optimized)

    def _check_plan(self, plan: Node, places: Places) -> Optimized | None:
        """Raise the reason why a plan cannot run; a view of tables runs as part of others only."""
        optimized = None
        if plan.streams():
            optimized = check_plan(plan, places, self._engine.settings.disabled_rules)
        check_expressions(self._engine.executor.session, plan, places.of, self._agreed_shapes())
        return optimized

    def _agreed_shapes(self) -> AgreedShapes:
        """What the engine's session has agreed with; a new one is asked anew."""
        session = self._engine.executor.session
        if session is not self._asked[0]:
            self._asked = session, AgreedShapes(callable_names())
        return self._asked[1]

    def _time_zone(self) -> str | None:
        return self._spark.conf.get("spark.sql.session.timeZone", None)

    def _function_type(self, name: str, arguments: tuple[DataType, ...]) -> AskedFunction | None:
        return ask_function(self._engine.executor.session, name, arguments)

    # Running

    def start(self, availableNow: bool = False, processingTime: str | None = None) -> None:
        """Run all queries that were started: on what there is now, or on and on."""
        if availableNow and processingTime is not None:
            raise QueryError("give availableNow or processingTime, not both")
        if processingTime is not None:
            positive_duration(processingTime, "processingTime")
        self._engine.start(Trigger(availableNow, processingTime))

    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Wait until the engine ends; False if it goes on after the timeout (seconds)."""
        return self._engine.join(timeout)

    def stop(self, timeout: float | None = None) -> bool:
        """Stop after the current epoch. Started again, it goes on where it was.

        After ``timeout`` seconds the epoch is abandoned instead: its Spark jobs are cancelled, and
        when the engine is started again it does the epoch again, with the same rows. True if the
        epoch was finished, False if it was abandoned. Called from a ``foreachBatch`` function, it
        asks for the end and returns at once.
        """
        return self._engine.stop(timeout)

    @property
    def isActive(self) -> bool:
        return self._engine.active

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        """What the last epochs did, over all queries."""
        return list(self._engine.epochs)

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        return self._engine.epochs[-1] if self._engine.epochs else None

    def streamProgress(self, name: str) -> list[dict[str, Any]]:
        """Spark's own progress reports of a stream's ingest query."""
        return [redacted_json(report) for report in self._engine.stream_progress(name)]

    def results(self, name: str) -> DataFrame:
        """The rows that a query with ``format("results")`` has produced up to now."""
        return self._engine.results(name)

    def statistics(self) -> Statistics:
        """What is known about the streams."""
        return self._engine.statistics.streams

    def explain(self, mode: str = "simple") -> None:
        """Print the plan of all queries that were started, with what they share named once.

        Modes: simple, json, dot. Of an engine that runs it is the plan that runs.
        """
        print(self.explanation(mode))

    def explanation(self, mode: str = "simple") -> str:
        """What :meth:`explain` prints."""
        return explain_merged(self._engine.explaining.merged(), mode)


def _kind(relation: Source | Table | View) -> str:
    """What a person would call it."""
    return type(relation).__name__.lower() if not isinstance(relation, Source) else "stream"


def _reads(view: View, other: Source | Table | View | None) -> bool:
    """Whether a view reads another, or a stream itself or through others."""
    if isinstance(other, View):
        return other in view.reads
    return isinstance(other, Source) and other.stream in view.plan.streams()


def _columns(df: DataFrame) -> tuple[Field, ...]:
    return tuple(Field(f.name, DataType(f.dataType.simpleString())) for f in df.schema.fields)


def _schema(name: str, columns: tuple[Field, ...]) -> Schema:
    """The columns of a stream or table, refused where SQL could not tell them apart."""
    twice = first_twice(column.name for column in columns)
    if twice is not None:
        raise StreamError(
            f"two columns of {name!r} have the same name: {twice[0]!r} and {twice[1]!r}",
            hint="case makes no difference; rename one of them with withColumnRenamed",
            condition="DUPLICATE_COLUMN",
        )
    return Schema(columns)


def _check_time(name: str, df: DataFrame, schema: Schema, time: str, processing: bool) -> None:
    if time not in schema:
        raise StreamError(
            f"stream {name!r} has no column {time!r} for its time",
            hint=f"its columns are {', '.join(schema.names)}; for arrival time say "
            "time='processing'",
            condition="MISSING_TIME_COLUMN",
        )
    if not processing and not isinstance(df.schema[time].dataType, TimestampType):
        raise StreamError(
            f"the time column {time!r} of stream {name!r} is {schema[time].type}, not timestamp",
            hint=f"convert it, for example with to_timestamp({time})",
            condition="WRONG_TIME_COLUMN",
        )
