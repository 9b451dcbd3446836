"""Rows of result tables, read beside the engine: no Spark, no lock, nothing that it waits for.

A result table is a list of files that the last commit names. They never change, and those that
leave the table stay for as many commits as the checkpoint keeps; a reader that is slower begins
anew. On a local disk DuckDB reads them in this process. Elsewhere Spark does.
"""

from __future__ import annotations

import base64
import datetime
import glob
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
from sqlglot import exp

from headrace.definitions.definition import table
from headrace.engine.checkpoint.files import is_local
from headrace.engine.sinks.results import EPOCH, newest
from headrace.errors import HeadraceError
from headrace.names import known_as
from headrace.plan.nodes import Sink
from headrace.sql.refusals import did_you_mean
from headrace.state.branches import results_of

if TYPE_CHECKING:
    from headrace.engine.engine import Engine

_SIGNS = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_TRIES = 5
_ROWS = "rows"


class BadFilter(HeadraceError):
    """A filter or a page that makes no sense."""

    condition = "INVALID_FILTER"


@dataclass(frozen=True)
class Filter:
    """A column compared with a value, which is data and never SQL."""

    column: str
    sign: str
    value: str

    @classmethod
    def parse(cls, text: str, columns: Sequence[str]) -> Filter:
        """Of ``column:sign:value``.

        >>> Filter.parse("price:ge:10", ["price"])
        Filter(column='price', sign='>=', value='10')
        """
        parts = text.split(":", 2)
        if len(parts) != 3 or parts[1] not in _SIGNS:
            raise BadFilter(
                f"{text!r} is no filter",
                hint=f"write column:sign:value with one of {', '.join(_SIGNS)}",
            )
        column = known_as(parts[0], columns)
        if column is None:
            hint = did_you_mean(parts[0], list(columns), f"the columns are {', '.join(columns)}")
            raise BadFilter(f"the results have no column {parts[0]!r}", hint=hint)
        return cls(column, _SIGNS[parts[1]], parts[2])


@dataclass(frozen=True)
class Range:
    """Which rows are wanted: of the epochs after ``since``, up to ``until``."""

    since: int = 0
    until: int | None = None
    offset: int = 0
    limit: int = 1_000
    newest_first: bool = False


@dataclass(frozen=True)
class Page:
    """Some rows of the table as it was after the epoch ``until``."""

    rows: pa.Table
    until: int
    has_more: bool


@dataclass(frozen=True)
class ResultTable:
    """The table of one query. What it gives is in the order of epochs."""

    engine: Engine
    sink: Sink

    @property
    def columns(self) -> tuple[str, ...]:
        return self.sink.schema.names

    @property
    def last_epoch(self) -> int:
        """The last epoch of which there are rows."""
        return max((epoch for _, epoch in self._files()), default=0)

    def page(self, wanted: Range, filters: Sequence[Filter] = ()) -> Page:
        """Some rows, in the order of epochs."""
        for left in reversed(range(_TRIES)):
            files = [(path, epoch) for path, epoch in self._files() if epoch > wanted.since]
            end = max((epoch for _, epoch in files), default=wanted.since)
            end = end if wanted.until is None else min(end, wanted.until)
            try:
                rows = self._read([path for path, _ in files], replace(wanted, until=end), filters)
            except (OSError, duckdb.IOException):
                # The file was merged with others, and is gone.
                if not left:
                    raise
                continue
            except duckdb.ConversionException as error:
                raise BadFilter(f"a value does not fit: {str(error).splitlines()[0]}") from None
            return Page(rows.slice(0, wanted.limit), end, rows.num_rows > wanted.limit)
        raise AssertionError

    def newest(self, limit: int) -> list[dict[str, Any]]:
        """The newest rows, oldest first, as JSON has them."""
        return list(reversed(json_rows(self.page(Range(limit=limit, newest_first=True)).rows)))

    def _files(self) -> list[tuple[str, int]]:
        for _ in range(_TRIES):
            try:
                arrangement = results_of(self.engine.state(), self.sink.name)
                files = [] if arrangement is None else list(arrangement.files)
                return [(file.path, file.epoch) for file in files if file.rows]
            except RuntimeError:
                # The engine has changed the state in this moment.
                continue
        raise HeadraceError("the state changes all the time", condition="TRY_AGAIN")

    def _read(self, paths: list[str], wanted: Range, filters: Sequence[Filter]) -> pa.Table:
        with duckdb.connect(":memory:", config={"threads": "1"}) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            self._open(connection, paths)
            columns = [_quoted(name) for name in self.columns]
            counted = newest(self.sink, table(_ROWS)).sql(dialect="duckdb")
            conditions = [f"{_quoted(EPOCH)} > ?", f"{_quoted(EPOCH)} <= ?"]
            values: list[Any] = [wanted.since, wanted.until]
            for filter_ in filters:
                kind = self._type_in(connection, filter_.column)
                conditions.append(f"{_quoted(filter_.column)} {filter_.sign} CAST(? AS {kind})")
                values.append(filter_.value)
            down = " DESC" if wanted.newest_first else ""
            order = ", ".join(f"{name}{down}" for name in (_quoted(EPOCH), *columns))
            query = (
                f"SELECT {', '.join(columns)} FROM ({counted}) WHERE {' AND '.join(conditions)} "
                f"ORDER BY {order} LIMIT ? OFFSET ?"
            )
            found = connection.sql(query, params=[*values, wanted.limit + 1, wanted.offset])
            rows: pa.Table = found.to_arrow_table()
            return rows

    def _open(self, connection: Any, paths: list[str]) -> None:
        """Let the rows be seen under one name."""
        if not paths:
            names = ", ".join(f"NULL AS {_quoted(name)}" for name in (*self.columns, EPOCH))
            connection.execute(f"CREATE VIEW {_ROWS} AS SELECT {names} WHERE false")
        elif all(map(is_local, paths)):
            quoted = ", ".join("'" + _pattern(path).replace("'", "''") + "'" for path in paths)
            connection.execute(
                f"CREATE VIEW {_ROWS} AS SELECT * FROM "
                f"read_parquet([{quoted}], union_by_name = true)"
            )
        else:
            frame = self.engine.spark.read.parquet(*paths)
            connection.register(_ROWS, frame.toArrow())

    @staticmethod
    def _type_in(connection: Any, column: str) -> str:
        described = connection.execute(f"DESCRIBE {_ROWS}").fetchall()
        return next(str(row[1]) for row in described if row[0] == column)


def json_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as JSON has them: times as text in UTC, numbers that JSON lacks as text."""
    return [{key: _json_value(value) for key, value in row.items()} for row in rows.to_pylist()]


def _json_value(value: Any) -> Any:
    match value:
        case datetime.datetime():
            if value.tzinfo is None:
                return value.isoformat()
            text = value.astimezone(datetime.UTC).isoformat()
            return text.replace("+00:00", "Z")
        case datetime.date() | datetime.time():
            return value.isoformat()
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case Mapping():
            return {key: _json_value(below) for key, below in value.items()}
        case list() | tuple():
            return [_json_value(below) for below in value]
        case _:
            return value


def _quoted(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql(dialect="duckdb")


def _pattern(path: str) -> str:
    """A file, or the files that Spark has written into a folder."""
    plain = path.removeprefix("file://").removeprefix("file:")
    literal = glob.escape(plain)
    return f"{literal}/*.parquet" if os.path.isdir(plain) else literal
