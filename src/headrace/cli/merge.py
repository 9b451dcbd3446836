"""``headrace merge``: what the queries of pipeline files would share, without running them.

All files are taken together, as if one engine ran them. Spark is started only where it must be
asked: for the columns of a stream or table whose schema the file does not give, and for the types
of functions that Headrace does not know itself.
"""

from __future__ import annotations

import json as json_text
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from headrace.cli.console import err
from headrace.errors import HeadraceError, Position
from headrace.names import folded, known_as, spelling
from headrace.pipeline import (
    Pipeline,
    PipelineError,
    QuerySpec,
    SinkSpec,
    StreamSpec,
    TableSpec,
    ViewSpec,
    load_pipeline,
)
from headrace.reading_order import in_reading_order
from headrace.redaction import redacted_json
from headrace.settings import Settings, read_settings

if TYPE_CHECKING:
    from headrace.merge import GlobalPlan
    from headrace.merge.describe import DescribedStore
    from headrace.plan.nodes import Node, Source, Table
    from headrace.plan.types import Schema
    from headrace.sql import View

_Spec = TypeVar("_Spec", StreamSpec, TableSpec, ViewSpec)

# Refusals that Spark may overrule: it has more functions, and columns that folders are named by.
_ONLY_SPARK_KNOWS = ("UNKNOWN_FUNCTION", "UNKNOWN_COLUMN")
# Types that mean the same whatever Spark's settings are.
_PLAIN_TYPES = frozenset(
    {
        *("tinyint", "smallint", "int", "bigint", "float", "double"),
        *("boolean", "string", "binary", "date", "timestamp"),
    }
)


class MergeMode(StrEnum):
    simple = "simple"
    json = "json"
    dot = "dot"


class StrategyName(StrEnum):
    """As ``headrace.merge.Strategy``, which takes a while to import."""

    none = "none"
    hb = "hb"
    hb_plus = "hb+"
    structural = "structural"
    sm = "sm"
    sm_plus = "sm+"
    sm_bu = "sm-bu"


class ScopeName(StrEnum):
    complete = "complete"
    partial = "partial"


class Arithmetic(StrEnum):
    exact = "exact"
    unbounded = "unbounded"


def merge(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Pipeline files, and .sql files of one query each.",
            metavar="FILE",
        ),
    ],
    strategy: Annotated[
        StrategyName | None, typer.Option(help="How equal parts are found.", show_default="setting")
    ] = None,
    scope: Annotated[
        ScopeName, typer.Option(help="Share whole queries only, or parts too.")
    ] = ScopeName.partial,
    arithmetic: Annotated[
        Arithmetic | None,
        typer.Option(help="Whether sums may overflow (exact).", show_default="setting"),
    ] = None,
    mode: Annotated[MergeMode, typer.Option(help="In which form to print it.")] = MergeMode.simple,
    json: Annotated[bool, typer.Option("--json", help="The same as --mode json.")] = False,
) -> None:
    """Print what queries share, wholly or in part; nothing runs.

    The queries of all FILEs are taken together, with the settings of the first.
    A FILE that ends in .sql holds one query over the streams of the others.
    """
    from headrace.merge.describe import describe
    from headrace.merge.printing import explain_merged, to_json

    mode = MergeMode.json if json else mode
    pipeline = _read(files)
    settings = read_settings(pipeline.settings)
    chosen = strategy or settings.merge_strategy
    arithmetic = arithmetic or Arithmetic(settings.merge_arithmetic)
    with err.status("planning"):
        began = time.perf_counter()
        plans = _plans(pipeline, settings, debug=bool(context.obj))
        planned = time.perf_counter()
        merged, stores = _merged(
            pipeline.queries, plans, chosen, scope, arithmetic, settings.merge_solver_steps
        )
        ended = time.perf_counter()
    described = describe(merged, stores=stores())
    if mode is MergeMode.json:
        seconds = {"planning": round(planned - began, 4), "merging": round(ended - planned, 4)}
        report = {"files": [str(file) for file in files], "arithmetic": arithmetic.value}
        report_json = redacted_json({**report, "seconds": seconds, **to_json(described)})
        print(json_text.dumps(report_json, indent=1))
        return
    if mode is MergeMode.simple:
        times = f"planned in {_duration(planned - began)}, merged in {_duration(ended - planned)}"
        print(f"{times}\n")
    print(explain_merged(described, mode.value).rstrip())


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{max(1, round(seconds * 1_000))} ms"


def _merged(
    queries: Sequence[QuerySpec],
    plans: Sequence[Node],
    strategy: str,
    scope: ScopeName,
    arithmetic: Arithmetic,
    solver_steps: int,
) -> tuple[GlobalPlan, Callable[[], tuple[DescribedStore, ...]]]:
    """As an engine does it, where parts are shared: whatever columns are called.

    With it comes what tells the state that the queries would keep, if an engine would run them so.
    """
    from headrace.compiler.planning import PlanState, plan_all
    from headrace.compiler.shared_state import described_stores
    from headrace.merge import GlobalPlan, MergeStrategy, Scope
    from headrace.merge.describe import planned_together
    from headrace.merge.rewriting import Merging
    from headrace.merge.strategies import make_matcher
    from headrace.plan.nodes import OutputMode, Sink
    from headrace.planner.live_query import LiveQuery

    merge_strategy, unbounded = MergeStrategy.named(strategy), arithmetic is Arithmetic.unbounded
    sinks = {
        query.name: Sink(plan, query.name, query.sink.format, OutputMode(query.output_mode))
        for query, plan in zip(queries, plans, strict=True)
    }
    if scope is ScopeName.partial:
        merging = Merging(merge_strategy, unbounded, solver_steps)
        together = planned_together(merging, sinks)
        live = [LiveQuery(sink, None) for sink in sinks.values()]
        return together, lambda: described_stores(plan_all(live, PlanState(merging=merging)))
    matcher = make_matcher(merge_strategy, unbounded, solver_steps, named=False)
    merged = GlobalPlan(merge_strategy, Scope.COMPLETE, matcher=matcher)
    merged.change(sinks.values())
    return merged, tuple


# --- the files -----------------------------------------------------------------------------------


def _read(files: Sequence[Path]) -> Pipeline:
    """All files as one pipeline; what they name alike must be alike."""
    pipelines = [(file, load_pipeline(file)) for file in files if file.suffix != ".sql"]
    if not pipelines:
        raise PipelineError(
            "no file says what the streams are", hint="give a pipeline file beside the .sql files"
        )
    queries: dict[str, QuerySpec] = {}
    for file, pipeline in pipelines:
        _add(queries, file, pipeline.queries)
    for file in files:
        if file.suffix == ".sql":
            _add(queries, file, [_sql_query(file)])
    streams = _united([(file, s) for file, pipeline in pipelines for s in pipeline.streams])
    tables = _united([(file, t) for file, pipeline in pipelines for t in pipeline.tables])
    views = _united([(file, v) for file, pipeline in pipelines for v in pipeline.views])
    inputs = {folded(s.name) for s in streams} | {folded(t.name) for t in tables}
    for view in views:
        if folded(view.name) in inputs:
            raise PipelineError(
                f"the view {view.name!r} is a stream or table of another file",
                hint="choose another name",
                position=view.at,
            )
    return replace(
        pipelines[0][1],
        streams=streams,
        tables=tables,
        views=views,
        queries=tuple(queries.values()),
    )


def _add(queries: dict[str, QuerySpec], file: Path, more: Iterable[QuerySpec]) -> None:
    """Queries of the same name in several files are told apart by the file's name."""
    for query in more:
        name = query.name if folded(query.name) not in queries else f"{file.stem}/{query.name}"
        if folded(name) in queries:
            raise PipelineError(f"a second query named {name!r}", position=query.at)
        queries[folded(name)] = replace(query, name=name)


def _united(specs: Sequence[tuple[Path, _Spec]]) -> tuple[_Spec, ...]:
    by_name: dict[str, tuple[Path, _Spec]] = {}
    for file, spec in specs:
        first, same = by_name.setdefault(folded(spec.name), (file, spec))
        if same != replace(spec, name=same.name):
            raise PipelineError(
                f"{spec.name!r} is not the {same.name!r} of {first}",
                hint="files that are merged must say the same of what both name",
                position=spec.at,
            )
    return tuple(spec for _, spec in by_name.values())


def _sql_query(file: Path) -> QuerySpec:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PipelineError(f"cannot read {file}: {reason}") from None
    start = Position(1, 1, str(file))
    return QuerySpec(file.stem, text, "append", SinkSpec("noop"), start, start, True)


# --- the plans -----------------------------------------------------------------------------------


def _plans(pipeline: Pipeline, settings: Settings, debug: bool) -> list[Node]:
    """The optimized plan of each query, with the help of Spark only if there is no other way."""
    catalog = _catalog(pipeline)
    if catalog is not None:
        try:
            for view in in_reading_order(pipeline.views):
                catalog[view.name] = _viewed(view, catalog, pipeline)
            return [_planned(query, catalog, pipeline, settings) for query in pipeline.queries]
        except PipelineError as error:
            if error.condition not in _ONLY_SPARK_KNOWS:
                raise
    from headrace.assembly import assemble
    from headrace.cli.spark import spark_session

    with spark_session("headrace merge", pipeline.settings, debug=debug) as spark:
        _, queries = assemble(spark, pipeline)
        return [query.optimized.plan for query in queries.values()]


def _viewed(
    view: ViewSpec, catalog: Mapping[str, Source | Table | View], pipeline: Pipeline
) -> View:
    from headrace.sql import plan_view

    zone = pipeline.settings.get("spark.sql.session.timeZone")
    with _placed(view):
        return plan_view(view.name, view.sql, catalog, time_zone=zone)[0]


def _planned(
    query: QuerySpec,
    catalog: Mapping[str, Source | Table | View],
    pipeline: Pipeline,
    settings: Settings,
) -> Node:
    from headrace.optimizer import optimize
    from headrace.optimizer.demands import check_demands
    from headrace.sql import plan_query

    zone = pipeline.settings.get("spark.sql.session.timeZone")
    with _placed(query):
        parsed = plan_query(query.sql, catalog, time_zone=zone)
        optimized = optimize(parsed.plan, settings.disabled_rules).plan
        check_demands(optimized, parsed.places, settings.disabled_rules)
        return optimized


@contextmanager
def _placed(spec: QuerySpec | ViewSpec) -> Iterator[None]:
    """Give an error of the SQL its place in the file."""
    try:
        yield
    except HeadraceError as error:
        place = spec.at if error.position is None else spec.position_in_file(error.position)
        raise PipelineError(
            error.message, hint=error.hint, position=place, condition=error.condition
        ) from error


def _catalog(pipeline: Pipeline) -> dict[str, Source | Table | View] | None:
    """Streams and tables from what the files say of them; None where that is not enough, or not
    right, about which Spark has the last word."""
    from headrace.plan.nodes import Table

    if "spark.sql.timestampType" in pipeline.settings:
        return None
    catalog: dict[str, Source | Table | View] = {}
    for stream in pipeline.streams:
        source = _source(stream)
        if source is None:
            return None
        catalog[stream.name] = source
    for table in pipeline.tables:
        schema = _schema(table.schema)
        if schema is None:
            return None
        catalog[table.name] = Table(folded(table.name), schema, spelling(table.name))
    return catalog


def _source(stream: StreamSpec) -> Source | None:
    from headrace.plan.durations import parse_duration
    from headrace.plan.nodes import PROCESSING_TIME_COLUMN, Source
    from headrace.plan.types import TIMESTAMP, Field, Schema

    schema = _schema(stream.schema)
    if schema is None:
        return None
    column = known_as(stream.time, schema.names) or stream.time
    processing = column == "processing" and column not in schema
    if processing:
        column = PROCESSING_TIME_COLUMN
        schema = Schema((*schema.fields, Field(column, TIMESTAMP)))
    delay = parse_duration(stream.delay or "0 seconds")
    if column not in schema or schema[column].type != TIMESTAMP or delay < 0:
        return None
    life = None if stream.ttl is None else parse_duration(stream.ttl)
    return Source(
        folded(stream.name), schema, column, delay, life, processing, spelling(stream.name)
    )


def _schema(text: str | None) -> Schema | None:
    """Columns as SQL declares them, if they are all of plain types."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    from headrace.plan.types import Schema
    from headrace.sql.type_names import data_type

    try:
        table = sqlglot.parse_one(f"CREATE TABLE t ({text or ''})", read="spark")
        columns = list(table.find_all(exp.ColumnDef))
        fields = [(column.name, data_type(column.args["kind"])) for column in columns]
        is_plain = all(kind.name in _PLAIN_TYPES or kind.is_decimal for _, kind in fields)
        return Schema.of(fields) if fields and is_plain else None
    except (SqlglotError, HeadraceError, KeyError):
        return None
