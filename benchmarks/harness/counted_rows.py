"""The rows that tasks in this process read, group, join and write, as DuckDB counts them itself.

DuckDB counts what every operator of a statement gives in any case; while ``counting_rows`` lasts it
is asked for that after each statement. The counts depend on the plan and the rows alone, so they
are the same on any machine, however busy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any
from unittest import mock

from headrace.engine.execution.duckdb import join_profile, kernel

_SETTINGS = (
    f"tracked_metrics = [{', '.join(repr(metric) for metric in join_profile.METRICS)}]",
    "profiling_coverage = 'ALL'",
    "enable_profiling = 'no_output'",
)


@dataclass
class RowCounts:
    """Rows of some statements.

    Those that files or tables gave, that were grouped by keys, that were counted or summed up
    without any, that went into joins and came out of them, and that were written.

    ``levels`` counts groupings above groupings, and ``statements`` those that write files.
    """

    scanned: int = 0
    grouped: int = 0
    watched: int = 0
    joining: int = 0
    joined: int = 0
    written: int = 0
    levels: int = 0
    statements: int = 0

    def add(self, other: RowCounts) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


@dataclass
class CountedRows:
    """Rows of pieces of work that store (they write files), and of those that compute results."""

    storing: RowCounts
    answering: RowCounts

    @classmethod
    def none(cls) -> CountedRows:
        return cls(RowCounts(), RowCounts())

    @property
    def total(self) -> int:
        """All that was read, grouped, joined or written."""
        both = RowCounts()
        both.add(self.storing)
        both.add(self.answering)
        return both.scanned + both.grouped + both.joining + both.joined + both.written


def rows_of_profile(profile: Any) -> RowCounts:
    """The rows of one statement."""
    counts = RowCounts()

    def visit(node: Any) -> tuple[int, int]:
        """The rows that an operator gives, and how many groupings are in it."""
        below = [visit(child) for child in node.get("children") or ()]
        given = int(node.get("intermediate_rows") or 0)
        taken = sum(rows for rows, _ in below)
        level = max((height for _, height in below), default=0)
        kind = str(node.get("type") or "")
        if kind.endswith("_SCAN") or kind in ("READ_PARQUET", "TABLE_FUNCTION"):
            counts.scanned += given
        elif kind.endswith("JOIN") or kind == "CROSS_PRODUCT":
            counts.joining += taken
            counts.joined += given
        elif kind.endswith("GROUP_BY"):
            counts.grouped += taken
            level += 1
        elif kind.endswith("_AGGREGATE"):
            counts.watched += taken
        elif kind == "COPY_TO_FILE":
            counts.written += taken
            counts.statements += 1
        return given, level

    for node in profile.get("operator") or ():
        _, level = visit(node)
        counts.levels += level
    return counts


@contextmanager
def counting_rows() -> Iterator[CountedRows]:
    """Count what tasks in this process do meanwhile."""
    counted = CountedRows.none()
    current = counted.answering

    def note(connection: Any) -> None:
        profile = connection.get_profiling_information()
        if profile:
            current.add(rows_of_profile(json.loads(profile)))

    opened, run = kernel._database, kernel._Task.run

    def run_piece(task: Any, piece: Any) -> Any:
        nonlocal current
        stores = any(output["folder"] is not None for output in piece["outputs"])
        current = counted.storing if stores else counted.answering
        return run(task, piece)

    def database(memory: str, folder: str) -> Any:
        return _Watched(opened(memory, folder), note)

    with (
        mock.patch.object(kernel, "_database", database),
        mock.patch.object(kernel._Task, "run", run_piece),
        # A profile is there for each statement anyway.
        mock.patch.object(kernel, "begin_counting"),
        mock.patch.object(kernel, "end_counting"),
    ):
        yield counted


class _Watched:
    """A connection that is asked after each statement what it did."""

    def __init__(self, connection: Any, note: Any) -> None:
        self._connection, self._note = connection, note

    def cursor(self) -> _Watched:
        cursor = self._connection.cursor()
        for setting in _SETTINGS:
            cursor.execute(f"SET {setting}")
        return _Watched(cursor, self._note)

    def execute(self, *statement: Any) -> Any:
        result = self._connection.execute(*statement)
        if statement[0].startswith("CREATE"):
            # Whose rows are not fetched.
            self._note(self._connection)
        return _Result(result, self._connection, self._note)

    def sql(self, query: str) -> Any:
        return _Result(self._connection.sql(query), self._connection, self._note)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class _Result:
    """What a statement gives; it has run once its rows are there."""

    def __init__(self, result: Any, connection: Any, note: Any) -> None:
        self._result, self._connection, self._note = result, connection, note

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._result, name)
        if name not in ("fetchall", "fetchnumpy", "to_arrow_table"):
            return method

        def fetched() -> Any:
            rows = method()
            self._note(self._connection)
            return rows

        return fetched
