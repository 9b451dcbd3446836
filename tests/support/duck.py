"""Plan expressions as DuckDB SQL, and rows in and out of DuckDB: the ground of the oracle.

Only what means the same in Spark and DuckDB, or is rendered here so that it does, is known; any
other function raises, so that an oracle never answers by guess. Timestamps are DuckDB's plain
``TIMESTAMP`` (UTC, microseconds), windows are structs of two of them, and time arithmetic is on
whole microseconds.

What is made equal by hand: integer division and ``%`` truncate towards zero in both; ``/`` is
division of doubles; casts of doubles to integers truncate (DuckDB alone would round); ``concat``
is NULL if one part is; sums of integers are BIGINT. Not to be used in compared queries, because
the two differ: zero divisors, averages of decimals, ``round`` of doubles, variances of NaN.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa

from headrace.plan.durations import parse_duration
from headrace.plan.expressions import AggregateCall, Call, Cast, Column, Expr, Literal
from headrace.plan.types import DataType, Schema

Rows: TypeAlias = Sequence[Mapping[str, Any]] | pa.Table
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

_TYPES = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "struct<start:timestamp,end:timestamp>": 'STRUCT("start" TIMESTAMP, "end" TIMESTAMP)',
}
_INFIX = {
    "+",
    "-",
    "*",
    "%",
    "=",
    "<",
    "<=",
    ">",
    ">=",
    "and",
    "or",
    "||",
    "&",
    "|",
    "like",
    "ilike",
}
_SAME_NAME = {
    "abs",
    "coalesce",
    "greatest",
    "least",
    "length",
    "lower",
    "ltrim",
    "nullif",
    "rtrim",
    "sqrt",
    "trim",
    "upper",
}
_FUNCTIONS: dict[str, Callable[..., str]] = {
    "/": lambda a, b: f"(CAST({a} AS DOUBLE) / CAST({b} AS DOUBLE))",
    "div": lambda a, b: f"({a} // {b})",
    "pmod": lambda a, b: f"((({a} % {b}) + {b}) % {b})",
    "negative": lambda a: f"(-{a})",
    "!=": lambda a, b: f"({a} <> {b})",
    "<=>": lambda a, b: f"({a} IS NOT DISTINCT FROM {b})",
    "^": lambda a, b: f"xor({a}, {b})",
    "~": lambda a: f"(~{a})",
    "not": lambda a: f"(NOT {a})",
    "isnull": lambda a: f"({a} IS NULL)",
    "isnotnull": lambda a: f"({a} IS NOT NULL)",
    "isnan": lambda a: f"coalesce(isnan({a}), false)",
    "ifnull": lambda a, b: f"coalesce({a}, {b})",
    "nvl": lambda a, b: f"coalesce({a}, {b})",
    "if": lambda a, b, c: f"(CASE WHEN {a} THEN {b} ELSE {c} END)",
    "concat": lambda *parts: "(" + " || ".join(parts) + ")",
    "substring": lambda text, start, length: f"substring({text}, {start}, {length})",
    "substr": lambda text, start, length: f"substring({text}, {start}, {length})",
    "initcap": lambda a: (
        f"array_to_string(list_transform(string_split({a}, ' '), "
        "lambda w: upper(w[1]) || lower(w[2:])), ' ')"
    ),
    "floor": lambda a: f"floor({a})",
    "ceil": lambda a: f"ceil({a})",
    "ceiling": lambda a: f"ceil({a})",
    "hour": lambda a: f"hour({a})",
    "minute": lambda a: f"minute({a})",
    "quarter": lambda a: f"quarter({a})",
    "second": lambda a: f"second({a})",
    "unix_micros": lambda a: f"epoch_us({a})",
    "timestamp_micros": lambda a: f"make_timestamp({a})",
    "window_time": lambda w: f'make_timestamp(epoch_us(({w})."end") - 1)',
}
_AGGREGATES = {
    "avg": "avg",
    "bool_and": "bool_and",
    "bool_or": "bool_or",
    "count": "count",
    "count_if": "count",
    "covar_pop": "covar_pop",
    "covar_samp": "covar_samp",
    "every": "bool_and",
    "max": "max",
    "mean": "avg",
    "median": "median",
    "min": "min",
    "percentile": "quantile_cont",
    "some": "bool_or",
    "std": "stddev_samp",
    "stddev": "stddev_samp",
    "stddev_pop": "stddev_pop",
    "stddev_samp": "stddev_samp",
    "sum": "sum",
    "var_pop": "var_pop",
    "var_samp": "var_samp",
    "variance": "var_samp",
}


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def duck_type(kind: DataType) -> str:
    if kind.is_decimal:
        return kind.name.upper()
    if kind.name not in _TYPES:
        raise NotImplementedError(f"the oracle has no type {kind.name}")
    return _TYPES[kind.name]


def duck_sql(expr: Expr) -> str:
    """DuckDB SQL of an expression over columns that carry the plan's names."""
    match expr:
        case Column(name=name):
            return quote(name)
        case Literal():
            return _literal(expr)
        case Cast():
            return _cast(expr)
        case AggregateCall():
            return _aggregate(expr)
        case Call():
            return _call(expr)
        case _:
            raise NotImplementedError(f"the oracle has no {type(expr).__name__}")


def _call(call: Call) -> str:
    name = call.function
    if name == "field":
        field = call.arguments[1]
        assert isinstance(field, Literal)
        return f"({duck_sql(call.arguments[0])}).{quote(str(field.value))}"
    parts = [duck_sql(argument) for argument in call.arguments]
    if name == "in":
        return f"({parts[0]} IN ({', '.join(parts[1:])}))"
    if name == "case":
        branches = zip(parts[::2], parts[1::2], strict=False)
        text = " ".join(f"WHEN {condition} THEN {value}" for condition, value in branches)
        default = f" ELSE {parts[-1]}" if len(parts) % 2 else ""
        text = f"(CASE {text}{default} END)"
    elif name in _INFIX:
        text = "(" + f" {name.upper()} ".join(parts) + ")"
    elif name in _FUNCTIONS:
        text = _FUNCTIONS[name](*parts)
    elif name in _SAME_NAME:
        text = f"{name}({', '.join(parts)})"
    else:
        raise NotImplementedError(f"the oracle has no function {name}")
    # Types of results differ in width (DuckDB's floor is a double); the plan's type decides.
    if call.type.is_numeric:
        return f"CAST({text} AS {duck_type(call.type)})"
    return text


def _cast(cast: Cast) -> str:
    source, target = cast.argument.type, cast.type
    text = duck_sql(cast.argument)
    if target.is_integer and (source.is_fractional or source.is_decimal):
        text = f"trunc({text})"
    if target.name == "string" and not (source.is_integer or source.name in ("string", "void")):
        raise NotImplementedError(f"{source} is spelled differently as text in Spark and DuckDB")
    return f"{'TRY_' if cast.safe else ''}CAST({text} AS {duck_type(target)})"


def _aggregate(call: AggregateCall) -> str:
    if call.function not in _AGGREGATES:
        raise NotImplementedError(f"the oracle has no aggregate {call.function}")
    if call.function in ("avg", "mean") and call.type.is_decimal:
        raise NotImplementedError("averages of decimals are rounded differently")
    parts = ", ".join(duck_sql(argument) for argument in call.arguments) or "*"
    distinct = "DISTINCT " if call.distinct else ""
    if call.function == "count_if":
        # DuckDB's own gives NULL, not zero, where the filter leaves no row.
        parts = f"CASE WHEN {parts} THEN 1 END"
    text = f"{_AGGREGATES[call.function]}({distinct}{parts})"
    if call.filter is not None:
        text += f" FILTER (WHERE {duck_sql(call.filter)})"
    return f"CAST({text} AS {duck_type(call.type)})"


def _literal(literal: Literal) -> str:
    value, kind = literal.value, literal.type
    match value:
        case None if kind.name == "void":
            return "NULL"
        case None:
            return f"CAST(NULL AS {duck_type(kind)})"
        case bool():
            return str(value)
        case str() if kind.is_interval:
            return f"to_microseconds({parse_duration(value) * 1000})"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime.datetime():
            return f"make_timestamp({micros_of(value)})"
        case datetime.date():
            return f"DATE '{value.isoformat()}'"
        case decimal.Decimal():
            return f"CAST('{value:f}' AS {duck_type(kind)})"
        case int() | float():
            return f"CAST('{value}' AS {duck_type(kind)})"
        case _:
            raise NotImplementedError(f"the oracle has no literal {value!r}")


def micros_of(time: datetime.datetime) -> int:
    """Microseconds since 1970; a time without a zone is in UTC."""
    instant = time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
    return (instant - EPOCH) // datetime.timedelta(microseconds=1)


def arrow_type(kind: DataType) -> pa.DataType:
    simple = {
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    if kind.name in simple:
        return simple[kind.name]
    if match := re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", kind.name):
        return pa.decimal128(int(match[1]), int(match[2]))
    if kind.is_struct:
        return pa.struct([pa.field(f.name, arrow_type(f.type)) for f in kind.fields()])
    raise NotImplementedError(f"no arrow type for {kind.name}")


def arrow_table(rows: Rows, schema: Schema) -> pa.Table:
    """Rows as a table of exactly this schema; times without a zone are in UTC."""
    kinds = pa.schema([pa.field(f.name, arrow_type(f.type)) for f in schema])
    if isinstance(rows, pa.Table):
        return rows.select(list(schema.names)).cast(kinds)
    columns = [pa.array([_with_zone(row.get(f.name)) for row in rows], type=f.type) for f in kinds]
    return pa.Table.from_arrays(columns, schema=kinds)


def _with_zone(value: Any) -> Any:
    if isinstance(value, datetime.datetime) and value.tzinfo is None:
        return value.replace(tzinfo=datetime.UTC)
    return value


def load(database: duckdb.DuckDBPyConnection, name: str, rows: Rows, schema: Schema) -> None:
    """Make a DuckDB table of the rows, with plain UTC timestamps."""
    arrow = arrow_table(rows, schema)
    columns = ", ".join(
        f"CAST({quote(f.name)} AS {duck_type(f.type)}) AS {quote(f.name)}" for f in schema
    )
    database.register("__arrow", arrow)
    database.execute(f"CREATE OR REPLACE TABLE {quote(name)} AS SELECT {columns} FROM __arrow")
    database.unregister("__arrow")


def connect() -> duckdb.DuckDBPyConnection:
    """A database in memory with one thread, so that sums of doubles are repeatable."""
    database = duckdb.connect()
    database.execute("SET threads = 1")
    database.execute("SET TimeZone = 'UTC'")
    # What DuckDB 2.0 derives of texts in a filter makes it keep rows that are none.
    database.execute("SET disabled_optimizers = 'statistics_propagation'")
    return database


@contextmanager
def fresh() -> Iterator[duckdb.DuckDBPyConnection]:
    """Such a database for a while.

    To make one costs more than most of what is asked of it, so it is a part of one that stays.
    """
    name = f"part{next(_numbers)}"
    with _lasting().cursor() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.execute("SET disabled_optimizers = 'statistics_propagation'")
        database.execute(f"ATTACH ':memory:' AS {name}")
        database.execute(f"USE {name}")
        try:
            yield database
        finally:
            database.execute("USE memory")
            database.execute(f"DETACH {name}")


@lru_cache(1)
def _lasting() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


_numbers = count()


def fetch(database: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in database.execute(query).fetchall()]


def comma(parts: Iterable[str]) -> str:
    return ", ".join(parts)
