"""Plans as streaming DataFrames, written as a good Spark engineer would write them.

The traps and how they are met:

- A stateful operator may see one event-time column only: :func:`with_event_time` strips Spark's
  mark from all others right before each of them, and puts it on times computed from windows.
- Several windows over one stream are a union of one aggregate each; exchange reuse must be off
  (see ``settings``), or branches lose rows.
- Spark moves filters below the watermark, so a selective WHERE holds it back, and a union or join
  has one watermark for the whole query.
- Spark takes a row *at* the watermark for late where Headrace takes only those below it, and its
  results come one micro-batch later; complete results are the same where nothing is late.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, functions

from headrace.errors import PlanError
from headrace.native.joins import join_condition, per_common_window
from headrace.native.settings import native_session
from headrace.native.unsupported import require_supported
from headrace.plan.expressions import Call, Expr, Named
from headrace.plan.nodes import (
    PROCESSING_TIME_COLUMN,
    WINDOW_COLUMN,
    WINDOW_ID_COLUMN,
    Aggregate,
    Filter,
    Join,
    Node,
    OutputMode,
    Project,
    SameWindow,
    Sink,
    Source,
    Table,
    Union,
)
from headrace.plan.windows import Hopping, InheritedWindow, Landmark, Session, Window
from headrace.spark_sessions import in_session
from headrace.sql.render import spark_sql

#: Spark's mark of an event-time column; the figure in it is not read by the operators.
EVENT_TIME_MARK = "spark.watermarkDelayMs"


def stream_plan(
    plan: Node,
    streams: Mapping[str, DataFrame],
    tables: Mapping[str, DataFrame] | None = None,
    mode: OutputMode = OutputMode.APPEND,
    session: SparkSession | None = None,
) -> DataFrame:
    """The plan as one streaming DataFrame, in a session of its own unless one is given.

    A query started from it has the settings of ``native.SETTINGS``; the session that the streams
    were made in keeps its own.
    """
    require_supported(plan, mode)
    if session is None:
        session = native_session(next(iter(streams.values())).sparkSession)
    return _Frames(session, streams, tables or {}).of(plan)


class _Frames:
    """Builds DataFrames from nodes; one per plan."""

    def __init__(
        self,
        session: SparkSession,
        streams: Mapping[str, DataFrame],
        tables: Mapping[str, DataFrame],
    ) -> None:
        self.session = session
        self.streams = streams
        self.tables = tables

    def of(self, node: Node) -> DataFrame:
        match node:
            case Source():
                return self._source(node)
            case Table():
                table = in_session(self.session, self.tables[node.table])
                return table.select(*map(_column, node.schema.names))
            case Sink():
                return self.of(node.input)
            case Filter():
                return self.of(node.input).where(functions.expr(spark_sql(node.predicate)))
            case Project():
                return self.of(node.input).select(*map(_named, node.columns))
            case Union():
                first, *rest = (self.of(part) for part in node.parts)
                for part in rest:
                    first = first.union(part)
                return first
            case Aggregate():
                return self._aggregate(node)
            case Join():
                return self._join(node)
            case _:
                raise PlanError(f"{type(node).__name__} has no form in plain Spark")

    def _source(self, node: Source) -> DataFrame:
        frame = in_session(self.session, self.streams[node.stream])
        if node.processing:
            frame = frame.withColumn(PROCESSING_TIME_COLUMN, functions.current_timestamp())
        frame = frame.select(*map(_column, node.schema.names))
        # Rows without a time are dropped whatever the query, as in Headrace.
        frame = frame.where(_column(node.time).isNotNull())
        return frame.withWatermark(node.time, f"{node.delay} milliseconds")

    def _aggregate(self, node: Aggregate) -> DataFrame:
        parts = [self._one_window(node, window) for window in node.windows]
        first, *rest = parts
        for part in rest:
            first = first.union(part)
        return first

    def _one_window(self, node: Aggregate, window: Window) -> DataFrame:
        below = self.of(node.input)
        keys = [_named(key) for key in node.keys]
        calls = [_named(call) for call in node.aggregates]
        if isinstance(window, Landmark):
            # Without event time nothing is late and nothing is ever dropped from the state.
            return with_event_time(below, None).groupBy(*keys).agg(*calls)
        rows = with_event_time(below, node.time.name)
        grouped = rows.groupBy(*keys, _window(node, window)).agg(*calls)
        if len(node.windows) == 1:
            return grouped
        assert isinstance(window, Hopping)
        names = [_column(name) for name in grouped.columns]
        place = len(keys) + 1
        named = functions.lit(window.name).alias(WINDOW_ID_COLUMN)
        return grouped.select(*names[:place], named, *names[place:])

    def _join(self, node: Join) -> DataFrame:
        left = _renamed(self.of(node.left), node.left_schema.names)
        right = _renamed(self.of(node.right), node.right_schema.names)
        if node.left.streams() and node.right.streams():
            # Without a time bound no row may be late, so no column may be an event time.
            left = with_event_time(left, None if node.time is None else node.time.left.name)
            right = with_event_time(right, None if node.time is None else node.time.right.name)
        joined = left.join(
            right, functions.expr(join_condition(node)), _JOIN_TYPES[node.kind.value]
        )
        if node.emits_window:
            assert isinstance(node.time, SameWindow)
            joined = per_common_window(joined, node.time)
        return joined


_JOIN_TYPES = {"inner": "inner", "left": "left_outer", "right": "right_outer", "full": "full_outer"}


def with_event_time(frame: DataFrame, time: str | None) -> DataFrame:
    """The frame with Spark's event-time mark on this column (or window) and on no other."""
    columns = []
    for field in frame.schema.fields:
        marked = EVENT_TIME_MARK in field.metadata
        if marked == (field.name == time):
            columns.append(_column(field.name))
            continue
        metadata = {k: v for k, v in field.metadata.items() if k != EVENT_TIME_MARK}
        if field.name == time:
            metadata[EVENT_TIME_MARK] = 0
        columns.append(_column(field.name).alias(field.name, metadata=metadata))
    return frame.select(*columns)


def _window(node: Aggregate, window: Window) -> SparkColumn:
    time = _column(node.time.name)
    match window:
        case Hopping():
            length, slide, offset = (
                f"{figure} milliseconds" for figure in (window.length, window.slide, window.offset)
            )
            return functions.window(time, length, slide, offset).alias(WINDOW_COLUMN)
        case Session():
            return functions.session_window(time, f"{window.gap} milliseconds").alias(WINDOW_COLUMN)
        case InheritedWindow():
            return time.alias(WINDOW_COLUMN)
        case _:
            raise PlanError(f"no form of {window} in plain Spark")


def _column(name: str) -> SparkColumn:
    return functions.col("`" + name.replace("`", "``") + "`")


def _named(named: Named) -> SparkColumn:
    if _is_window_time(named.expr):
        # A time computed from a window is the event time of what follows.
        metadata = {EVENT_TIME_MARK: 0}
        return functions.expr(spark_sql(named.expr)).alias(named.name, metadata=metadata)
    return functions.expr(spark_sql(named.expr)).alias(named.name)


def _is_window_time(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.function == "window_time"


def _renamed(frame: DataFrame, names: tuple[str, ...]) -> DataFrame:
    return frame.select(
        *(_column(old).alias(new) for old, new in zip(frame.columns, names, strict=True))
    )
