"""What operators ask executors for: definitions whose rows are to be written, or to come back.

Whoever needs something written is a generator: it yields a ``Write`` and is sent what became of
it. So the needs of many stores and many queries can be gathered first and served together, in one
Spark job where that is possible.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from sqlglot import exp

from headrace.definitions.definition import Sql
from headrace.operators.output_rows import relabelled
from headrace.plan.types import Schema
from headrace.state.arrangement import Split

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class RowFilter:
    """The part of a definition's rows that is written."""

    condition: Sql
    columns: Sequence[str]


@dataclass(frozen=True)
class Inner:
    """Rows in the middle of a definition that are watched: the definition reads them by name."""

    name: str
    query: exp.Query
    watch: Mapping[str, Sql]


@dataclass(frozen=True)
class Write:
    """A definition, where its rows go, and what is to be seen of them on the way.

    ``path`` is for a file, or for a folder where ``folder`` says so; without a path the rows come
    back, or with ``only_seen`` nothing but what was watched; ``computes_all`` says that all columns
    are computed all the same, and fail if they do. ``keep`` says what of the watched
    rows is written, if not all. ``partial`` says that groups may come out in parts: whoever reads
    them merges them anyway. ``split_by`` are columns of which one may tell the files apart.
    ``columns`` are those of the definition that are written, where the schema calls them otherwise.
    """

    label: str
    query: exp.Query
    schema: Schema
    path: str | None = None
    folder: bool = False
    watch: Mapping[str, Sql] = field(default_factory=dict)
    expected_rows: int | None = None
    keep: RowFilter | None = None
    inner: Inner | None = None
    only_seen: bool = False
    computes_all: bool = False
    partial: bool = False
    split_by: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None

    def with_own_names(self) -> Write:
        """The same write of a definition whose columns are called as the schema says."""
        if self.columns is None:
            return self
        return replace(self, query=relabelled(self.query, self.schema, self.columns), columns=None)


@dataclass(frozen=True)
class WrittenFile:
    """A file or folder, with the bounds of time in it where these were watched."""

    path: str
    rows: int
    size: int
    first: int | None = None
    last: int | None = None
    split: Split | None = None


@dataclass(frozen=True)
class Written:
    """What became of a write."""

    rows: int
    files: tuple[WrittenFile, ...]
    seen: dict[str, Any]
    table: pa.Table | None = None


#: Work that needs things written: it yields what, is sent what became of it, and ends with a T.
Writing = Generator[Write, Written, T]


class Writer(Protocol):
    """An executor, as far as writes go."""

    def write_all(self, writes: Sequence[Write]) -> list[Written | Exception]: ...


def run_together(writer: Writer, work: Mapping[K, Writing[T]]) -> dict[K, T | Exception]:
    """Do several pieces of work at once, and say how each of them ended.

    A piece that fails ends with its exception, and does the others no harm.
    """
    ended: dict[K, T | Exception] = {}
    requested: dict[K, Write] = {}

    def go_on(key: K, answer: Written | Exception | None) -> None:
        steps = work[key]
        try:
            requested[key] = (
                steps.throw(answer) if isinstance(answer, Exception) else steps.send(answer)  # type: ignore[arg-type]
            )
        except StopIteration as end:
            ended[key] = end.value
        except Exception as error:
            ended[key] = error

    for key in work:
        go_on(key, None)
    while requested:
        served, requested = requested, {}
        for key, answer in zip(served, writer.write_all(list(served.values())), strict=True):
            go_on(key, answer)
    return ended


def run_alone(writer: Writer, steps: Writing[T]) -> T:
    """Do one piece of work; raises what it fails with."""
    (ended,) = run_together(writer, {0: steps}).values()
    if isinstance(ended, Exception):
        raise ended
    return ended
