"""A pipeline file: streams, tables, views, queries and sinks, read from YAML without Spark.

The dataclasses say what a file may hold, ``load_pipeline`` reads one. Every error names file, line
and column (``yaml_nodes`` has the walk that makes this possible). Values may come from the
environment (``environment``); where they are not names and the like they are not shown any more, in
this whole process, and neither are options that look secret (``redaction``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import yaml

from headrace.environment import Substituted
from headrace.errors import Position, SettingError
from headrace.names import folded, query_name_advice, relation_name_advice
from headrace.plan.durations import parse_duration, positive_duration
from headrace.redaction import conceal, conceal_options, redacted, shown_option
from headrace.settings import PREFIX, read_settings
from headrace.yaml_nodes import Context, Fields, PipelineError, compose, put_in_values

__all__ = [
    "Pipeline",
    "PipelineError",
    "QuerySpec",
    "SinkSpec",
    "StreamSpec",
    "TableSpec",
    "TriggerEntry",
    "ViewSpec",
    "load_pipeline",
    "parse_pipeline",
]

OUTPUT_MODES = ("append", "update")
SINK_FORMATS = ("parquet", "memory", "console", "results", "noop")

_KEYS = ("streams", "tables", "views", "queries", "checkpoint", "trigger", "settings")
_TABLE_KEYS = ("name", "format", "path", "schema", "options")
_STREAM_KEYS = (*_TABLE_KEYS, "time", "delay", "ttl", "idle")
_VIEW_KEYS = ("name", "sql")
_QUERY_KEYS = ("name", "sql", "outputMode", "sink")
_SINK_KEYS = ("format", "path", "options")


class _Shown:
    """Prints itself without what must not be shown."""

    def __repr__(self) -> str:
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.repr}  # type: ignore[arg-type]
        for name, value in values.items():
            if isinstance(value, Mapping):
                values[name] = {key: shown_option(key, text) for key, text in value.items()}
        shown = ", ".join(f"{name}={value!r}" for name, value in values.items())
        return redacted(f"{type(self).__name__}({shown})")


@dataclass(frozen=True, repr=False)
class StreamSpec(_Shown):
    """A stream to register: Spark's reader on one side, its time on the other."""

    name: str
    format: str
    path: str | None
    schema: str | None
    options: Mapping[str, str]
    time: str
    delay: str | None
    ttl: str | None
    idle: str | None
    at: Position = field(compare=False)


@dataclass(frozen=True, repr=False)
class TableSpec(_Shown):
    """A static relation to register."""

    name: str
    format: str
    path: str | None
    schema: str | None
    options: Mapping[str, str]
    at: Position = field(compare=False)


@dataclass(frozen=True, repr=False)
class SinkSpec(_Shown):
    """Where a query's results go."""

    format: str = "console"
    path: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


class _WithSql:
    """Has SQL of the file, whose places are places in the file."""

    sql_at: Position
    sql_is_block: bool
    sql_written: Substituted | None
    sql_in_line: bool

    def position_in_file(self, inside: Position) -> Position:
        """Turn a position inside the SQL into one in the file or statement that holds it."""
        if self.sql_in_line:
            line, column = self.sql_at.line + inside.line - 1, inside.column
            column += self.sql_at.column - 1 if inside.line == 1 else 0
            return Position(line, column, self.sql_at.file)
        if self.sql_is_block:
            if self.sql_written is not None:
                inside = self.sql_written.position_written(inside)
            line, indent = self.sql_at.line, self.sql_at.column - 1
            return Position(line + inside.line - 1, indent + inside.column, self.sql_at.file)
        # In a quoted or folded scalar the lines of the SQL are not the lines of the file.
        return self.sql_at


@dataclass(frozen=True, repr=False)
class ViewSpec(_WithSql, _Shown):
    """A query with a name, for other queries to read."""

    name: str
    sql: str
    at: Position = field(compare=False)
    # As for a query.
    sql_at: Position = field(compare=False)
    sql_is_block: bool = field(compare=False)
    sql_written: Substituted | None = field(default=None, compare=False, repr=False)
    sql_in_line: bool = field(default=False, compare=False, repr=False)


@dataclass(frozen=True, repr=False)
class QuerySpec(_WithSql, _Shown):
    """A standing query with its sink."""

    name: str
    sql: str
    # None is the mode that suits the query.
    output_mode: str | None
    sink: SinkSpec
    at: Position = field(compare=False)
    # Where the first line of the SQL stands, and whether its lines are lines of the file (a block
    # scalar written with |), so that a position in the SQL can be given as one in the file.
    sql_at: Position = field(compare=False)
    sql_is_block: bool = field(compare=False)
    # How it stands in the file, if values from the environment were put in.
    sql_written: Substituted | None = field(default=None, compare=False, repr=False)
    # Whether it is the rest of a statement, and begins in the middle of a line.
    sql_in_line: bool = field(default=False, compare=False, repr=False)


@dataclass(frozen=True)
class TriggerEntry:
    """When epochs run: once over all that is there, or every so often."""

    available_now: bool = True
    processing_time: str | None = None


@dataclass(frozen=True, repr=False)
class Pipeline(_Shown):
    """All that one file says."""

    streams: tuple[StreamSpec, ...]
    tables: tuple[TableSpec, ...]
    queries: tuple[QuerySpec, ...]
    checkpoint: str
    trigger: TriggerEntry
    settings: Mapping[str, str]
    views: tuple[ViewSpec, ...] = ()


def load_pipeline(path: str | Path, environment: Mapping[str, str] | None = None) -> Pipeline:
    """Read a pipeline file; relative paths in it are relative to the file's own directory."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PipelineError(f"cannot read {file}: {reason}") from None
    return parse_pipeline(text, file=str(path), base=file.parent, environment=environment)


def parse_pipeline(
    text: str,
    *,
    file: str = "<text>",
    base: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Pipeline:
    """Read a pipeline from its text; ``base`` is what relative paths are relative to.

    The environment is that of the process, unless another is given.
    """
    root = compose(text, file)
    put_in = put_in_values(root, text, file, os.environ if environment is None else environment)
    context = Context(file, text, base, put_in)
    try:
        pipeline = _pipeline(root, context)
    except PipelineError as error:
        # What a value was meant for is not known before it has been read.
        secret = [value for written in put_in.values() for value in written.values]
        hint = None if error.hint is None else redacted(error.hint, secret)
        raise PipelineError(
            redacted(error.message, secret), hint=hint, position=error.position
        ) from None
    conceal(
        value
        for node, written in put_in.items()
        for value in written.values
        if node not in context.public
    )
    for options in (
        pipeline.settings,
        *(stream.options for stream in pipeline.streams),
        *(table.options for table in pipeline.tables),
        *(query.sink.options for query in pipeline.queries),
    ):
        conceal_options(options)
    return pipeline


def _pipeline(root: yaml.Node, context: Context) -> Pipeline:
    top = Fields(root, context, "a pipeline", _KEYS)
    streams = top.each("streams", _stream)
    tables = top.each("tables", _table)
    views = top.each("views", _view)
    queries = top.each("queries", _query)
    pipeline = Pipeline(
        streams=streams,
        tables=tables,
        queries=queries,
        checkpoint=top.path("checkpoint", required=True) or "",
        trigger=top.one("trigger", _trigger) or TriggerEntry(),
        settings=_settings(top),
        views=views,
    )
    if not streams:
        raise PipelineError("a pipeline needs at least one stream", position=top.here("streams"))
    if not queries:
        raise PipelineError("a pipeline needs at least one query", position=top.here("queries"))
    relations: list[StreamSpec | TableSpec | ViewSpec] = [*streams, *tables, *views]
    _refuse_duplicates("stream, table or view", relations)
    _refuse_duplicates("query", queries)
    return pipeline


def _stream(node: yaml.Node, context: Context) -> StreamSpec:
    fields = Fields(node, context, "a stream", _STREAM_KEYS)
    return StreamSpec(
        name=fields.name("name", relation_name_advice),
        format=fields.public_text("format"),
        path=fields.path("path"),
        schema=fields.optional_text("schema"),
        options=_plain(fields.options("options")),
        time=fields.public_text("time"),
        delay=fields.duration("delay", parse_duration),
        ttl=fields.duration("ttl", lambda text: positive_duration(text, "ttl")),
        idle=fields.duration("idle", lambda text: positive_duration(text, "idle")),
        at=fields.here("name"),
    )


def _table(node: yaml.Node, context: Context) -> TableSpec:
    fields = Fields(node, context, "a table", _TABLE_KEYS)
    return TableSpec(
        name=fields.name("name", relation_name_advice),
        format=fields.public_text("format"),
        path=fields.path("path"),
        schema=fields.optional_text("schema"),
        options=_plain(fields.options("options")),
        at=fields.here("name"),
    )


def _view(node: yaml.Node, context: Context) -> ViewSpec:
    fields = Fields(node, context, "a view", _VIEW_KEYS)
    return ViewSpec(
        name=fields.name("name", relation_name_advice),
        sql=fields.text("sql", required=True),
        at=fields.here("name"),
        sql_at=fields.text_start("sql"),
        sql_is_block=fields.is_block("sql"),
        sql_written=fields.written("sql"),
    )


def _query(node: yaml.Node, context: Context) -> QuerySpec:
    fields = Fields(node, context, "a query", _QUERY_KEYS)
    return QuerySpec(
        name=fields.name("name", query_name_advice),
        sql=fields.text("sql", required=True),
        output_mode=fields.choice("outputMode", OUTPUT_MODES, "append"),
        sink=fields.one("sink", _sink) or SinkSpec(),
        at=fields.here("name"),
        sql_at=fields.text_start("sql"),
        sql_is_block=fields.is_block("sql"),
        sql_written=fields.written("sql"),
    )


def _sink(node: yaml.Node, context: Context) -> SinkSpec:
    fields = Fields(node, context, "a sink", _SINK_KEYS)
    sink = SinkSpec(
        format=fields.choice("format", SINK_FORMATS, "console"),
        path=fields.path("path"),
        options=_plain(fields.options("options")),
    )
    if sink.format == "parquet" and sink.path is None:
        raise PipelineError("a parquet sink needs a path", position=context.position(node))
    return sink


def _trigger(node: yaml.Node, context: Context) -> TriggerEntry:
    advice = "write 'trigger: availableNow' or 'trigger: {processingTime: 2 seconds}'"
    if isinstance(node, yaml.ScalarNode):
        context.public.add(node)
        if node.value == "availableNow":
            return TriggerEntry()
        raise PipelineError(
            f"no trigger {node.value!r}", hint=advice, position=context.position(node)
        )
    fields = Fields(node, context, "a trigger", ("processingTime",))
    every = fields.duration("processingTime", lambda text: positive_duration(text, "the trigger"))
    if every is None:
        raise PipelineError("a trigger is empty", hint=advice, position=context.position(node))
    return TriggerEntry(available_now=False, processing_time=every)


def _settings(top: Fields) -> dict[str, str]:
    given = top.options("settings")
    for name, (value, position) in given.items():
        if not name.startswith("spark."):
            raise PipelineError(
                f"no setting {name!r}",
                hint=f"settings begin with spark., those of Headrace with {PREFIX}",
                position=position,
            )
        try:
            read_settings({name: value})
        except SettingError as error:
            raise PipelineError(error.message, hint=error.hint, position=position) from None
    return _plain(given)


def _plain(options: Mapping[str, tuple[str, Position]]) -> dict[str, str]:
    return {name: value for name, (value, _) in options.items()}


def _refuse_duplicates(
    what: str, specs: Sequence[StreamSpec | TableSpec | ViewSpec] | Sequence[QuerySpec]
) -> None:
    seen: dict[str, Position] = {}
    for spec in specs:
        first = seen.setdefault(folded(spec.name), spec.at)
        if first is not spec.at:
            raise PipelineError(
                f"a second {what} named {spec.name!r}",
                hint=f"the first is at line {first.line}",
                position=spec.at,
            )
