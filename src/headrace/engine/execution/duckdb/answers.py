"""From the answers of tasks to what became of each write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from headrace.definitions import key_bits
from headrace.definitions.definition import Sql
from headrace.engine.execution.duckdb.pieces import TaskPiece
from headrace.engine.execution.duckdb.splits import Cut
from headrace.operators.write import Written, WrittenFile
from headrace.stats.key_bits import merged


@dataclass
class Answers:
    """The answers of all pieces of a write."""

    piece: TaskPiece
    files: list[WrittenFile] = field(default_factory=list)
    error: str | None = None
    #: Whether the error is that of a store, and not of the definition.
    unreachable: bool = False
    #: Rows that came out of the steps of joins, by the join and its inputs.
    joined: Counter[tuple[str, tuple[int, ...]]] = field(default_factory=Counter)
    _seen: list[Sequence[Any]] = field(default_factory=list)
    _inner: list[Sequence[Any]] = field(default_factory=list)
    _tables: list[pa.Table] = field(default_factory=list)

    def add(self, answer: Mapping[str, Any]) -> None:
        if "error" in answer:
            self.error, self.unreachable = answer["error"], "store" in answer
            return
        self._seen.append(answer["seen"])
        # Rows are told apart by what they are joined by: no two parts find the same.
        self.joined.update(answer["joined"])
        self._inner.append(answer.get("inner") or ())
        seen = dict(zip(self.piece.translated.write.watch, answer["seen"], strict=True))
        split = self.piece.split
        for path, rows, size, part in answer["files"]:
            own_split = None if part is None or split is None else replace(split, part=part)
            file = WrittenFile(path, rows, size, seen.get("first"), seen.get("last"), own_split)
            self.files.append(file)
        if "table" in answer:
            self._tables.append(pa.ipc.open_stream(answer["table"]).read_all())

    def written(self) -> Written:
        """All parts together."""
        write = self.piece.translated.write
        seen = _merged(write.watch, self._seen, self.piece.cut)
        if write.inner is not None:
            seen |= _merged(write.inner.watch, self._inner, self.piece.cut)
        table = pa.concat_tables(self._tables) if self._tables else None
        rows = sum(file.rows for file in self.files) if table is None else table.num_rows
        return Written(rows, tuple(self.files), seen, table)


def _merged(
    watch: Mapping[str, Sql], parts: list[Sequence[Any]], cut: Cut | None
) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for position, (name, value) in enumerate(watch.items()):
        values = [part[position] for part in parts if part[position] is not None]
        merged[name] = _merge_of(value, cut)(values) if values else None
    return merged


def _merge_of(value: Sql, cut: Cut | None) -> Callable[[list[Any]], Any]:
    """How a watched aggregate of parts becomes that of the whole, by the aggregate in it."""
    # The outermost call is the aggregate; at most a constant is added to it.
    node = next(value.find_all(exp.Count, exp.Anonymous))
    match "count" if isinstance(node, exp.Count) else node.name.lower():
        case "count" | "count_if" | "sum":
            return sum
        case "min":
            return min
        case "max":
            return max
        case "approx_count_distinct":
            # Exact enough: either no value is in two parts, or the largest part stands for all.
            counted = node.expressions[0].name
            by_it = cut is not None and any(column == counted for _, column in cut.columns)
            return sum if by_it else max
        case key_bits.NAME:
            return merged
        case name:
            raise AssertionError(f"{name} of parts cannot be merged")
