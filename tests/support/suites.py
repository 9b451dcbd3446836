"""Cases of other engines' test suites, as data: what goes in, and what their authors expect.

A file of ``tests/fixtures/suites`` is named after the suite, a case after the test:

    -- windowed left outer join
    # a remark
    stream l(v int, ts), delay 10 seconds
    stream r(v int, ts), delay 10 seconds
    SELECT … the query, in Headrace's form

    epoch
      l          1..5
      r          3..7
      out        (3, 6, 9)  (4, 8, 12)  (5, 10, 15)

- Rows are separated by two spaces; a line that begins with a row goes on with the one above. A bare
  number is a row that holds it in every column, ``3..7`` is five of them.
- Times are seconds from 1970-01-01 UTC, or from the day of the line ``zero``.
- ``out`` holds the rows that came out since the last ``out``, in any order.
- ``watermark`` is the least one of the case's streams, after the epoch.
- ``end`` is an epoch too: a row of NULLs in each stream, far ahead, closes what is open. It stands
  for the end of a bounded stream.
- ``== name`` begins streams and epochs that several cases read, each with the line ``over name``;
  their ``out`` is that of all epochs.

Where a rule of Headrace differs, the case says which and why, and both expectations:

    differs at-the-watermark: why
    …
      out        what Headrace gives
      suite      what the suite expects

A case that Headrace does not take says ``refused CONDITION``; where the suite expects a refusal and
Headrace gives rows, ``suite`` is ``refused``.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from headrace.plan.durations import parse_duration
from headrace.plan.nodes import Node, OutputMode, Source
from headrace.plan.types import TIMESTAMP, DataType, Schema
from headrace.sql import plan_query
from tests.conftest import REPOSITORY
from tests.support.streams import Row

FOLDER = REPOSITORY / "tests" / "fixtures" / "suites"
NOTHING = "nothing"
_1970 = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
#: Beyond every time of the cases.
_END = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)
_STREAM = re.compile(r"stream (\w+)\((.*?)\)((?:, \w+ [\w ]+)*)")
_NUMBERS = re.compile(r"(-?\d+)(?:\.\.(-?\d+))?")
#: Lines that say what comes out; all others of an epoch name a stream.
_SAID = re.compile(r"(out|suite|watermark|suite watermark)\s{2,}(.*)")


@dataclass(frozen=True)
class Input:
    """Streams by their names in SQL, and the rows of each epoch by the same names."""

    streams: Mapping[str, Source]
    zero: datetime.datetime
    epochs: tuple[Mapping[str, list[Row]], ...]

    @property
    def batches(self) -> list[dict[str, list[Row]]]:
        """The epochs by the streams' own names, which no other input has."""
        return [
            {self.streams[name].stream: rows for name, rows in epoch.items()}
            for epoch in self.epochs
        ]


@dataclass(frozen=True)
class Case:
    suite: str
    name: str
    sql: str
    mode: OutputMode
    input: Input
    #: What is said of each epoch.
    said: tuple[Mapping[str, str], ...]
    #: The rules by which the expectations differ, with the reasons.
    differs: Mapping[str, str]
    #: The condition of the error, if Headrace does not take the query.
    refused: str | None

    def __str__(self) -> str:
        return f"{self.suite}: {self.name}"

    @cached_property
    def plan(self) -> Node:
        return plan_query(self.sql, self.input.streams, time_zone="UTC").plan

    def expected(self, word: str = "out") -> list[str]:
        return [said[word] for said in self.said if word in said]

    def as_said(self, epochs: Sequence[Sequence[Sequence[Any]]]) -> list[str]:
        """Rows that came out in each epoch, in the form of ``expected()``."""
        texts: list[str] = []
        since: list[str] = []
        for said, rows in zip(self.said, epochs, strict=True):
            since += [_row_text(row, self.input.zero) for row in rows]
            if "out" in said:
                texts.append(_listed(since))
                since = []
        return texts + [_listed(since)] * bool(since)

    def watermarks_as_said(self, epochs: Sequence[Mapping[str, int | None]]) -> list[str]:
        """Watermarks (milliseconds) after each epoch, in the form of ``expected()``."""
        texts = []
        for said, marks in zip(self.said, epochs, strict=True):
            if "watermark" in said:
                known = [marks.get(source.stream) for source in self.input.streams.values()]
                least = min((mark for mark in known if mark is not None), default=None)
                missing = least is None or None in known
                texts.append("none" if missing else _seconds_text((least or 0) * 1_000))
        return texts


def read_suites() -> list[Case]:
    """The cases of all files."""
    return [case for file in sorted(FOLDER.glob("*.txt")) for case in read_suite(file)]


def read_suite(file: Path) -> list[Case]:
    shared: dict[str, Input] = {}
    cases = []
    name = re.sub(r"\W", "_", file.stem).lower()
    for number, (mark, title, lines) in enumerate(_sections(file.read_text(encoding="utf-8"))):
        reader = _Reader(f"{name}_{number}_", shared)
        for line in lines:
            reader.read(line)
        if mark == "==":
            shared[title] = reader.input()
        else:
            cases.append(reader.case(file.stem, title))
    return cases


def _sections(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """The mark, the title and the lines of each section, without remarks."""
    for section in re.split(r"^(?=(?:--|==) )", text, flags=re.MULTILINE)[1:]:
        title, *lines = section.splitlines()
        mark, _, title = title.partition(" ")
        yield mark, title, [line for line in lines if line.strip() and line[0] != "#"]


@dataclass
class _Reader:
    """What one section has said so far."""

    prefix: str
    shared: Mapping[str, Input]
    over: Input | None = None
    zero: datetime.datetime = _1970
    streams: dict[str, Source] = field(default_factory=dict)
    sql: list[str] = field(default_factory=list)
    mode: OutputMode = OutputMode.APPEND
    differs: dict[str, str] = field(default_factory=dict)
    refused: str | None = None
    epochs: list[dict[str, list[Row]]] = field(default_factory=list)
    said: list[dict[str, str]] = field(default_factory=list)
    #: What the last line was about.
    name: str | None = None

    def read(self, line: str) -> None:
        said = _SAID.fullmatch(line.strip())
        if self.name is not None and line.strip().startswith("("):
            self._add(self.name, line.strip())
        elif said is not None:
            self._add(*said.groups())
        elif line.startswith("  ") and self.epochs:
            self._add(*re.split(r"\s{2,}", line.strip(), maxsplit=1))
        elif line in ("epoch", "end"):
            self.epochs.append(self._far_ahead() if line == "end" else {})
            self.said.append({})
        else:
            self._head(line)

    def _head(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        match word:
            case "stream":
                self._stream(line)
            case "zero":
                self.zero = datetime.datetime.fromisoformat(rest).replace(tzinfo=datetime.UTC)
            case "over":
                self.over = self.shared[rest]
                self.said = [{} for _ in self.over.epochs]
            case "mode":
                self.mode = OutputMode(rest)
            case "differs":
                rule, _, reason = rest.partition(": ")
                self.differs[rule] = reason
            case "refused":
                self.refused = rest
            case _:
                self.sql.append(line)

    def _stream(self, line: str) -> None:
        found = _STREAM.fullmatch(line)
        assert found is not None, line
        name, columns, options = found.groups()
        fields = [column.partition(" ") for column in columns.split(", ")]
        types = [(title, DataType(kind) if kind else TIMESTAMP) for title, _, kind in fields]
        source = Source(self.prefix + name, Schema.of(types), "ts")
        for option in filter(None, options.split(", ")):
            key, _, value = option.partition(" ")
            source = replace(source, **{key: parse_duration(value)})
        self.streams[name] = source

    def _add(self, name: str, text: str) -> None:
        """Rows of a stream, or something said, to the epoch that was begun last."""
        self.name = name
        if name in self.streams:
            rows = self._rows(text, self.streams[name].schema)
            self.epochs[-1].setdefault(name, []).extend(rows)
        elif name.endswith("watermark"):
            self.said[-1][name] = text
        else:
            self.said[-1][name] = _listed(_split(self.said[-1].get(name, NOTHING)) + _split(text))

    def _rows(self, text: str, schema: Schema) -> list[Row]:
        rows = []
        for row in _split(text):
            numbers = _NUMBERS.fullmatch(row)
            if numbers is not None:
                first, last = int(numbers[1]), int(numbers[2] or numbers[1])
                several = [[str(number)] * len(schema) for number in range(first, last + 1)]
            else:
                several = [row.removeprefix("(").removesuffix(")").split(", ")]
            for values in several:
                typed = zip(schema, values, strict=True)
                rows.append({f.name: self._value(value, f.type) for f, value in typed})
        return rows

    def _value(self, text: str, kind: DataType) -> Any:
        if text == "null":
            return None
        if kind == TIMESTAMP:
            microseconds = int(decimal.Decimal(text) * 1_000_000)
            return self.zero + datetime.timedelta(microseconds=microseconds)
        if kind.is_integer:
            return int(text)
        if kind.is_decimal:
            return decimal.Decimal(text)
        return float(text) if kind.is_fractional else text

    def _far_ahead(self) -> dict[str, list[Row]]:
        """A row of each stream; no two at the same time, so that they match nothing."""
        return {
            name: [{**dict.fromkeys(source.schema.names), source.time: moment}]
            for number, (name, source) in enumerate(self.streams.items())
            for moment in [_END + datetime.timedelta(days=number)]
        }

    def input(self) -> Input:
        return self.over or Input(self.streams, self.zero, tuple(self.epochs))

    def case(self, suite: str, name: str) -> Case:
        sql, said = "\n".join(self.sql), tuple(self.said)
        return Case(suite, name, sql, self.mode, self.input(), said, self.differs, self.refused)


def _split(text: str) -> list[str]:
    return [] if text == NOTHING else re.split(r"\s{2,}", text)


def _listed(rows: Sequence[str]) -> str:
    return "  ".join(sorted(rows)) or NOTHING


def _row_text(row: Sequence[Any], zero: datetime.datetime) -> str:
    return f"({', '.join(_value_text(value, zero) for value in row)})"


def _value_text(value: Any, zero: datetime.datetime) -> str:
    match value:
        case None:
            return "null"
        case datetime.datetime():
            return _seconds_text((value - zero) // datetime.timedelta(microseconds=1))
        case (start, end):
            return f"[{_value_text(start, zero)}, {_value_text(end, zero)})"
        case decimal.Decimal():
            return _plain(value)
        case float():
            return f"{value:.10g}"
        case _:
            return str(value)


def _seconds_text(microseconds: int) -> str:
    return _plain(decimal.Decimal(microseconds) / 1_000_000)


def _plain(number: decimal.Decimal) -> str:
    return f"{number.normalize():f}"
