"""The bodies of requests."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from headrace.errors import HeadraceError, Position
from headrace.names import query_name_advice, relation_name_advice
from headrace.pipeline import QuerySpec, SinkSpec, StreamSpec, TableSpec, ViewSpec
from headrace.plan.durations import parse_duration, positive_duration
from headrace.redaction import conceal_options
from headrace.statements import Create, ExplainMode, StatementError

#: Where the text of a request begins.
_BEGIN = Position(1, 1)

Name = Annotated[str, Field(min_length=1, max_length=255)]
Text = Annotated[str, Field(max_length=1_000_000)]
Options = Annotated[dict[str, str], Field(max_length=200)]


class Body(BaseModel):
    """What is not known is a mistake, and not passed over."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class SinkBody(Body):
    format: Literal["results", "parquet", "noop", "memory", "console"] = "results"
    path: Text | None = None
    options: Options = Field(default_factory=dict)


class QueryBody(Body):
    """A query to be created; without a sink the engine keeps its results."""

    name: Name
    sql: Text
    sink: SinkBody = Field(default_factory=SinkBody)
    output_mode: Literal["append", "update"] | None = Field(default=None, alias="outputMode")
    tags: list[Annotated[str, Field(max_length=100)]] = Field(default_factory=list, max_length=50)

    def statement(self) -> Create:
        _check_name(self.name, query_name_advice(self.name))
        if self.sink.format == "parquet" and self.sink.path is None:
            raise StatementError("a parquet sink needs a path")
        conceal_options(self.sink.options)
        sink = SinkSpec(self.sink.format, self.sink.path, self.sink.options)
        spec = QuerySpec(
            self.name, self.sql, self.output_mode, sink, _BEGIN, _BEGIN, False, sql_in_line=True
        )
        return Create(spec, tags=tuple(self.tags))


class TableBody(Body):
    name: Name
    format: Annotated[str, Field(min_length=1, max_length=200)]
    path: Text | None = None
    columns: Text | None = None
    options: Options = Field(default_factory=dict)

    def statement(self) -> Create:
        _check_name(self.name, relation_name_advice(self.name))
        conceal_options(self.options)
        spec = TableSpec(
            self.name, self.format.lower(), self.path, self.columns, self.options, _BEGIN
        )
        return Create(spec)


class StreamBody(TableBody):
    time: Name
    delay: Annotated[str, Field(max_length=100)] | None = None
    ttl: Annotated[str, Field(max_length=100)] | None = None
    idle: Annotated[str, Field(max_length=100)] | None = None

    def statement(self) -> Create:
        _check_name(self.name, relation_name_advice(self.name))
        conceal_options(self.options)
        if self.delay is not None:
            parse_duration(self.delay)
        for what, text in (("ttl", self.ttl), ("idle", self.idle)):
            if text is not None:
                positive_duration(text, what)
        spec = StreamSpec(
            self.name,
            self.format.lower(),
            self.path,
            self.columns,
            self.options,
            self.time,
            self.delay,
            self.ttl,
            self.idle,
            _BEGIN,
        )
        return Create(spec)


class ViewBody(Body):
    name: Name
    sql: Text

    def statement(self) -> Create:
        _check_name(self.name, relation_name_advice(self.name))
        return Create(ViewSpec(self.name, self.sql, _BEGIN, _BEGIN, False, sql_in_line=True))


class ResumeBody(Body):
    """How a query goes on: from where it was, or from now."""

    from_: Literal["here", "now"] = Field(default="here", alias="from")


class ExplainBody(Body):
    sql: Text
    mode: ExplainMode = ExplainMode.SIMPLE


class ValidateBody(Body):
    """Texts to be checked, and nothing else done with them."""

    queries: list[Text]


class StatementBody(Body):
    """A statement, as the shell takes it."""

    text: Text


def _check_name(name: str, advice: str | None) -> None:
    if advice is not None:
        raise HeadraceError(
            f"{name!r} cannot be a name", hint=advice, condition="INVALID_STATEMENT"
        )
