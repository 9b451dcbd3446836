"""Worked examples in the documents: fenced blocks that are read, run, and compared.

A block begins with ```` ```example ```` and holds streams and tables, a query, and epochs:

    stream s(k string, v int, ts), delay 5 seconds
    SELECT k, window, SUM(v) AS total FROM s GROUP BY k, window(ts, '10 seconds')

    epoch 1
      s          (a, 1, 0:01)  (a, 2, 0:09)
      watermark  s 0:04
      out        nothing

What comes in is written by hand, and so is which streams are idle (``idle``). What comes out
(``watermark``, ``late``, ``no time``, ``out``) is compared with the engine, and written anew by
``pytest --update-golden``. Times are minutes and seconds; ``ts`` needs no type.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace.plan.durations import parse_duration
from headrace.plan.nodes import Node, OutputMode, Source, Table
from headrace.plan.types import INT, STRING, TIMESTAMP, DataType, Schema
from headrace.sql import plan_query
from tests.conftest import REPOSITORY

ZERO = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
NOTHING = "nothing"
#: Lines of an epoch that say what comes out; all others name a stream, or those that are idle.
OUTPUT = ("watermark", "late", "no time", "out")

Row = dict[str, Any]

_BLOCK = re.compile(r"^```example\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_RELATION = re.compile(r"(stream|table) (\w+)\(([^)]*)\)(.*)")
_TIME = re.compile(r"(-?)(\d+):(\d\d)(?:\.(\d+))?")
_TYPES = {"int": INT, "string": STRING, "ts": TIMESTAMP}


@dataclass(frozen=True)
class Epoch:
    """Rows that come in by stream, and the lines that say what comes out."""

    rows: Mapping[str, Sequence[Row]]
    inputs: tuple[tuple[str, str], ...]
    said: Mapping[str, str]
    idle: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Example:
    """One block of a document."""

    line: int
    catalog: Mapping[str, Source | Table]
    tables: Mapping[str, list[Row]]
    sql: str
    mode: OutputMode
    epochs: tuple[Epoch, ...]
    head: str
    #: The first epoch (counted from one) in which the query takes part.
    joins_in: int = 1

    @property
    def plan(self) -> Node:
        return plan_query(self.sql, self.catalog).plan

    def batches(self) -> list[dict[str, list[Row]]]:
        return [{name: list(rows) for name, rows in e.rows.items()} for e in self.epochs]

    def idle(self) -> list[frozenset[str]]:
        """The streams that are idle in each epoch."""
        return [epoch.idle for epoch in self.epochs]

    def text(self, said: Sequence[Mapping[str, str]]) -> str:
        """The block with what comes out as given."""
        lines = [self.head, ""]
        for number, (epoch, outputs) in enumerate(zip(self.epochs, said, strict=True), 1):
            joins = ", the query joins" if number == self.joins_in > 1 else ""
            lines.append(f"epoch {number}{joins}")
            lines += [f"  {name:<9}  {text}" for name, text in (*epoch.inputs, *outputs.items())]
        return "\n".join(lines) + "\n"


@dataclass
class _Reader:
    catalog: dict[str, Source | Table] = field(default_factory=dict)
    tables: dict[str, list[Row]] = field(default_factory=dict)
    sql: list[str] = field(default_factory=list)
    mode: OutputMode = OutputMode.APPEND
    joins_in: int = 1


def read_examples(document: Path) -> list[Example]:
    """The examples of a document, each with the line at which it begins."""
    text = document.read_text(encoding="utf-8")
    return [
        read_example(found[1], text.count("\n", 0, found.start()) + 1)
        for found in _BLOCK.finditer(text)
    ]


def write_examples(document: Path, blocks: Sequence[str]) -> None:
    """Put other texts into the blocks of a document."""
    rest = iter(blocks)
    text = document.read_text(encoding="utf-8")
    document.write_text(_BLOCK.sub(lambda _: f"```example\n{next(rest)}```", text), "utf-8")


def read_example(block: str, line: int = 0) -> Example:
    head, *parts = re.split(r"^epoch \d+", block, flags=re.MULTILINE)
    reader = _Reader()
    for text in head.splitlines():
        relation = _RELATION.fullmatch(text)
        if relation is not None:
            _read_relation(reader, *relation.groups())
        elif text.startswith("mode "):
            reader.mode = OutputMode(text.removeprefix("mode "))
        elif text.strip():
            reader.sql.append(text)
    epochs = []
    for number, part in enumerate(parts, 1):
        first, *lines = part.splitlines()
        if "the query joins" in first:
            reader.joins_in = number
        epochs.append(_read_epoch(reader.catalog, lines))
    return Example(
        line,
        reader.catalog,
        reader.tables,
        "\n".join(reader.sql),
        reader.mode,
        tuple(epochs),
        head.rstrip("\n"),
        reader.joins_in,
    )


def _read_relation(reader: _Reader, kind: str, name: str, columns: str, rest: str) -> None:
    fields: list[tuple[str, DataType]] = []
    for column in columns.split(", "):
        title, _, type_name = column.partition(" ")
        fields.append((title, _TYPES[type_name or title]))
    schema = Schema.of(fields)
    if kind == "table":
        reader.catalog[name] = Table(name, schema)
        reader.tables[name] = _read_rows(rest.removeprefix(":"), schema)
        return
    source = Source(name, schema, "ts")
    for option in filter(None, rest.split(", ")):
        key, _, value = option.partition(" ")
        source = replace(source, **{key: parse_duration(value)})
    reader.catalog[name] = source


def _read_epoch(catalog: Mapping[str, Source | Table], lines: Sequence[str]) -> Epoch:
    rows: dict[str, list[Row]] = {}
    inputs: list[tuple[str, str]] = []
    said: dict[str, str] = {}
    idle: frozenset[str] = frozenset()
    for line in filter(str.strip, lines):
        name, text = re.split(r"\s{2,}", line.strip(), maxsplit=1)
        if name in OUTPUT:
            said[name] = text
        elif name == "idle":
            inputs.append((name, text))
            idle = frozenset(text.split(", "))
        else:
            inputs.append((name, text))
            rows[name] = [] if text == NOTHING else _read_rows(text, catalog[name].schema)
    return Epoch(rows, tuple(inputs), said, idle)


def _read_rows(text: str, schema: Schema) -> list[Row]:
    rows = []
    for body in re.findall(r"\(([^)]*)\)", text):
        values = [_read_value(value) for value in body.split(", ")]
        rows.append(dict(zip(schema.names, values, strict=True)))
    return rows


def _read_value(text: str) -> Any:
    moment = _TIME.fullmatch(text)
    if moment is not None:
        return ZERO + datetime.timedelta(microseconds=_microseconds(moment))
    if text == "null":
        return None
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _microseconds(moment: re.Match[str]) -> int:
    sign, minutes, seconds, fraction = moment.groups()
    whole = (int(minutes) * 60 + int(seconds)) * 1_000_000
    return (-1 if sign else 1) * (whole + int((fraction or "").ljust(6, "0")))


def rows_text(rows: Sequence[Sequence[Any]]) -> str:
    """Rows as a document shows them, in an order of their own."""
    return "  ".join(sorted(f"({', '.join(map(value_text, row))})" for row in rows)) or NOTHING


def value_text(value: Any) -> str:
    match value:
        case None:
            return "null"
        case datetime.datetime():
            return time_text(value)
        case (datetime.datetime() as start, datetime.datetime() as end):
            return f"[{time_text(start)}, {time_text(end)})"
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def time_text(moment: datetime.datetime) -> str:
    micros = (moment - ZERO) // datetime.timedelta(microseconds=1)
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    minutes, rest = divmod(micros, 60_000_000)
    seconds, fraction = divmod(rest, 1_000_000)
    text = f"{sign}{minutes}:{seconds:02d}"
    return text + f".{fraction:06d}".rstrip("0") if fraction else text


def watermark_text(milliseconds: int) -> str:
    zero = int(ZERO.timestamp()) * 1_000
    return time_text(ZERO + datetime.timedelta(milliseconds=milliseconds - zero))


def document(name: str) -> Path:
    return REPOSITORY / "docs" / name
