"""From writes to tasks: into how many pieces each is cut, what a piece reads and what it writes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import duckdb

from headrace.definitions.join_tree import is_watched
from headrace.engine.checkpoint.files import is_local, plain_path
from headrace.engine.execution.duckdb.meanings import duckdb_type, same_kind
from headrace.engine.execution.duckdb.parts import files_of_part, row_condition
from headrace.engine.execution.duckdb.probe_specs import read_columns
from headrace.engine.execution.duckdb.render import identifier
from headrace.engine.execution.duckdb.splits import Cut
from headrace.engine.execution.duckdb.translation import Translated
from headrace.engine.execution.duckdb.untranslatable import Untranslatable
from headrace.operators.inputs import BatchInput, FilesInput, Input, ProbedInput
from headrace.settings import Settings
from headrace.state.arrangement import Split

#: Names the hash by which rows are told apart.
HASHING = f"duckdb-{duckdb.__version__}"
#: Rows that are read together where a file is shared by several parts, and by how many at most.
_BLOCK = 32_768
_MOST_READERS = 8


@dataclass(frozen=True)
class TaskPiece:
    """One part of a write, to be done by one task; ``index`` is the write's position."""

    index: int
    translated: Translated
    cut: Cut | None
    part: int
    parts: int
    rows: float
    #: By which column the files that it writes are told apart, if they are; any of the parts.
    split: Split | None


class Cutter:
    """Cuts writes into pieces, as many as their rows are worth."""

    def __init__(self, settings: Settings, parallelism: int) -> None:
        self._settings = settings
        self._most = settings.task_buckets or parallelism

    def pieces(self, index: int, translated: Translated) -> list[TaskPiece]:
        rows, write = translated.rows, translated.write
        # Rows that come out are work as much as those that go in.
        work = None if rows is None else max(rows, write.expected_rows or 0)
        probed = [plan.join.parts for plan in translated.probed.values()]
        # The indexes of a join are cut once and for all.
        parts = max(probed) if probed else self._worth(work)
        cut = best_cut(translated, parts) if parts > 1 else None
        split = self._split(translated)
        if cut is None:
            too_many = not probed and (rows is None or rows > self._settings.whole_rows)
            if parts > 1 and too_many and self._settings.executor == "auto":
                raise Untranslatable(f"{rows or 'unknown'} rows that no column tells apart")
            return [TaskPiece(index, translated, None, 0, 1, rows or 0, split)]
        if cut.anyhow:
            parts = min(parts, max(_handouts(s) for s in translated.inputs.values()))
        share = (rows or self._settings.task_rows * parts) / parts
        return [
            TaskPiece(index, translated, cut, part, parts, share, split) for part in range(parts)
        ]

    def parts_of_indexes(self, rows: int) -> int:
        """Twice as many whenever there is enough for each: they are cut anew each time."""
        parts = 1
        while parts * 2 <= self._most and rows >= parts * 2 * self._settings.task_rows:
            parts *= 2
        return parts

    def _worth(self, rows: int | None) -> int:
        if rows is None:
            return self._most
        return min(self._most, max(1, rows // self._settings.task_rows))

    def _split(self, translated: Translated) -> Split | None:
        write = translated.write
        rows = write.expected_rows if write.expected_rows is not None else translated.rows
        parts = self._worth(rows)
        for column in write.split_by if parts > 1 else ():
            if same_kind(write.schema[column].type) not in ("FLOAT", "DOUBLE"):
                return Split(column, parts, 0, HASHING)
        return None


def best_cut(translated: Translated, parts: int) -> Cut | None:
    """The cut under which the least is read: files may have been told apart already."""

    def reading(cut: Cut) -> float:
        total = 0.0
        for name, column in cut.columns:
            for rows, split in _files_with_rows(translated.inputs[name]):
                ready = split is not None and (split.column, split.parts) == (column, parts)
                total += rows if column is None or ready else rows * parts
        return total

    # What is handed out by files must have some.
    usable = [
        cut
        for cut in translated.cuts
        if not cut.anyhow or max(_handouts(translated.inputs[n]) for n, _ in cut.columns) > 1
    ]
    return min(usable, key=reading, default=None)


def task_specs(pieces: list[TaskPiece], tasks: int, memory: str) -> list[dict[str, Any]]:
    """Hand the pieces out to tasks, the largest first, each to the task with the least."""
    count = min(tasks, len(pieces))
    loads = [0.0] * count
    specs: list[dict[str, Any]] = [
        {"version": duckdb.__version__, "memory": memory, "inputs": {}, "pieces": []}
        for _ in range(count)
    ]
    for piece in sorted(pieces, key=lambda p: -p.rows):
        # Who probes the same part of a join shares what it found.
        task = piece.part % count if piece.translated.probed else loads.index(min(loads))
        # A piece without rows is work too.
        loads[task] += piece.rows + 1_000
        _add(specs[task], piece)
    return specs


def _add(spec: dict[str, Any], piece: TaskPiece) -> None:
    translated, write = piece.translated, piece.translated.write
    columns = dict(piece.cut.columns) if piece.cut is not None else {}
    readings: dict[str, str] = {}
    for name, source in translated.inputs.items():
        if name in translated.probed:
            readings[name] = f"{name} {piece.part}/{piece.parts}"
            spec["inputs"][readings[name]] = _probing(translated, name, piece, spec)
            continue
        column = columns.get(name)
        # All definitions of a task that read the same rows of a stream share them.
        origin = f"batch_{id(source.batch)}" if isinstance(source, BatchInput) else name
        readings[name] = f"{origin} {column} {piece.part}/{piece.parts}"
        spec["inputs"][readings[name]] = _reading(source, column, piece)
    names = write.schema.names if write.keep is None else write.keep.columns
    texts = [translated.sql, *(translated.inner or {}).values()]
    spec["pieces"].append(
        {
            "write": piece.index,
            "inputs": readings,
            "sql": translated.sql,
            "inner": translated.inner,
            "watch": translated.watch,
            "computes_all": write.computes_all,
            "joins": any(is_watched(text) for text in texts),
            "columns": ", ".join(map(identifier, names)),
            "outputs": outputs(piece),
        }
    )


# What a piece reads


def _probing(
    translated: Translated, name: str, piece: TaskPiece, spec: dict[str, Any]
) -> dict[str, Any]:
    """A part of a join, with the columns that all definitions of the task read of it."""
    plan = translated.probed[name]
    write = translated.write
    queries = [write.query] if write.inner is None else [write.query, write.inner.query]
    columns = {column for query in queries for column in read_columns(query, plan.join.schema)}
    probing = spec["inputs"].get(f"{name} {piece.part}/{piece.parts}")
    if probing is not None:
        columns |= probing["probe"]["types"].keys()
    texts = [translated.sql, *(translated.inner or {}).values()]
    uses = sum(text.count(identifier(name)) for text in texts)
    return {
        "probe": plan.part(piece.part, piece.parts, columns, HASHING),
        "name": name,
        # Results that are read once are never held all at once.
        "once": probing is None and uses <= 1,
    }


def _reading(source: Input, column: str | None, piece: TaskPiece) -> dict[str, Any]:
    paths, where = source.paths, ""
    shared: list[str] = []
    if piece.parts > 1 and column is None:
        # Each part gets as many files, and what is left over of a batch is cut into blocks.
        whole = len(paths) - (len(paths) % piece.parts if _is_cuttable(source) else 0)
        shared = paths[whole:]
        paths = paths[:whole][piece.part :: piece.parts]
    elif piece.parts > 1 and column is not None:
        wanted = Split(column, piece.parts, piece.part, HASHING)
        paths, all_ready = _of_part(source, wanted)
        kind = same_kind(source.schema[column].type)
        where = "" if all_ready else row_condition(wanted, kind)
    return {
        "files": [plain_path(path) for path in paths],
        "where": where,
        "shared": [plain_path(path) for path in shared],
        "block": f"file_row_number // {_BLOCK} % {piece.parts} = {piece.part}",
        "columns": {f.name: duckdb_type(f.type) for f in source.schema},
        "strict": isinstance(source, BatchInput),
    }


def _of_part(source: Input, wanted: Split) -> tuple[list[str], bool]:
    """The files that may hold rows of a part, and whether they hold nothing else."""
    if not isinstance(source, FilesInput):
        return source.paths, False
    files, all_ready = files_of_part(source.files, wanted)
    return [file.path for file in files], all_ready


def _is_cuttable(source: Input) -> bool:
    """Whether a file can be shared by several parts, each of which opens it.

    That costs little for a batch, whose rows are only just being looked at.
    """
    return isinstance(source, BatchInput) and all(is_local(path) for path in source.paths)


def _handouts(source: Input) -> int:
    """Into how many parts the rows of an input can be cut, whatever is in them."""
    if isinstance(source, ProbedInput):
        return source.parts
    files = len(source.paths)
    return max(files, _MOST_READERS) if files and _is_cuttable(source) else files


def _files_with_rows(source: Input) -> list[tuple[float, Split | None]]:
    if isinstance(source, FilesInput):
        return [(file.rows, file.split) for file in source.files]
    if isinstance(source, ProbedInput):
        return []
    paths = source.paths
    return [((source.rows or 1) / len(paths), None) for _ in paths]


# What a piece writes


def outputs(piece: TaskPiece) -> list[dict[str, Any]]:
    """The files that a piece writes: each with the rows that go there, and its part if told apart.

    Results go to a folder beside the one that readers will see, until it is known which of them
    count.
    """
    write = piece.translated.write
    if write.only_seen:
        return []
    where = piece.translated.kept
    if write.path is None:
        return [{"folder": None, "where": where}]
    path = plain_path(write.path)
    folder, name = (attempts(path), "part") if write.folder else os.path.split(path)
    output = {"folder": folder, "name": f"{name}-{piece.part}", "where": where, "part": None}
    split = piece.split
    if split is None:
        return [output]
    kind = same_kind(write.schema[split.column].type)
    cut = piece.cut
    if (
        cut is not None
        and split.column in cut.shown
        and (cut.kind, piece.parts) == (kind, split.parts)
    ):
        return [{**output, "part": piece.part}]
    listed = []
    for part in range(split.parts):
        condition = row_condition(Split(split.column, split.parts, part, HASHING), kind)
        wanted = {"where": f"({where}) AND {condition}", "name": f"{output['name']}-{part}"}
        listed.append({**output, **wanted, "part": part})
    return listed


def attempts(path: str) -> str:
    """Where tasks write what may become a folder of results."""
    return f"{path}.attempts"
