"""The bucket executor: runs definitions in DuckDB inside Spark tasks.

Spark schedules, distributes and retries; a task opens the files that it needs itself. All writes
that are asked for together and that can run here run in one Spark job. What cannot is left to the
Spark executor, with the reason.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from sqlglot import exp

from headrace.engine.arrangements import Split
from headrace.engine.buckets import kernel
from headrace.engine.buckets.meanings import Untranslatable, duckdb_type, same_kind
from headrace.engine.buckets.render import duckdb_expression, duckdb_query, identifier
from headrace.engine.buckets.splits import Cut, cuts
from headrace.engine.files import Files, is_local, plain_path
from headrace.engine.inputs import BatchInput, FilesInput, Input, Inputs
from headrace.engine.relations import Sql
from headrace.engine.spark_errors import one_line
from headrace.engine.writes import Write, Written, WrittenFile
from headrace.errors import HeadraceError, QueryError
from headrace.plan.types import Schema
from headrace.settings import Settings

#: Names the hash by which rows are told apart.
HASHING = f"duckdb-{duckdb.__version__}"

#: Rows that are read together where a file is shared by several parts, and by how many at most.
_BLOCK = 32_768
_MOST_READERS = 8

# The kernel travels with the job, so that executors need not have this package installed.
cloudpickle.register_pickle_by_value(kernel)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Outcome:
    """What came of offering a write to this executor; without ``written`` Spark must do it."""

    text: str
    written: Written | None = None


@dataclass(frozen=True)
class _Translated:
    """A write in DuckDB's terms."""

    write: Write
    sql: str
    watch: str
    kept: str
    inner: Mapping[str, str] | None
    inputs: Mapping[str, Input]
    cuts: list[Cut]
    rows: int | None


@dataclass
class _Piece:
    """One part of a write, to be done by one task."""

    index: int
    translated: _Translated
    cut: Cut | None
    part: int
    parts: int
    rows: float


@dataclass
class _Merging:
    """The answers of a write's pieces."""

    files: list[WrittenFile] = field(default_factory=list)
    seen: list[Sequence[Any]] = field(default_factory=list)
    inner: list[Sequence[Any]] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    error: str | None = None


class BucketExecutor:
    """Runs the writes that it can."""

    def __init__(self, session: SparkSession, settings: Settings, inputs: Inputs) -> None:
        self._session = session
        self._settings = settings
        self._inputs = inputs
        self._files = Files(session)
        self._parallelism = session.sparkContext.defaultParallelism
        self._buckets = settings.task_buckets or self._parallelism
        self._whole_reason = _why_not_at_all(session, settings)
        self._failed: dict[str, str] = {}
        self.jobs = 0
        if self._whole_reason is None:
            _use_this_python(session)

    def begin_epoch(self) -> None:
        self.jobs = 0

    def write_all(self, writes: Sequence[Write]) -> dict[int, Outcome]:
        """Run what can run here, in one job; an outcome for each write, by position."""
        outcomes: dict[int, Outcome] = {}
        pieces: list[_Piece] = []
        for index, write in enumerate(writes):
            try:
                found = self._pieces(index, self._translated(write))
                self._make_folders(found)
                pieces += found
            except Untranslatable as reason:
                outcomes[index] = Outcome(f"Spark, because of {reason}")
            except (HeadraceError, OSError) as error:
                # A folder that cannot be made is one query's trouble; Spark will say what it is.
                outcomes[index] = Outcome(f"Spark, because of {one_line(error)}")
        if pieces:
            outcomes |= self._run(pieces)
        return outcomes

    # What can run here

    def verdict(self, write: Write) -> str:
        """Who would run a write, if there were many rows."""
        try:
            translated = self._translated(write)
        except Untranslatable as reason:
            return f"Spark, because of {reason}"
        cut = self._best_cut(translated, 2)
        if cut is None:
            return f"DuckDB in one task, up to {self._settings.whole_rows} rows; above, Spark"
        return f"DuckDB in tasks, {_cut_text(cut)}"

    def _translated(self, write: Write) -> _Translated:
        if self._whole_reason is not None:
            raise Untranslatable(self._whole_reason)
        if write.label in self._failed:
            raise Untranslatable(self._failed[write.label])
        queries = [write.query] if write.inner is None else [write.query, write.inner.query]
        inputs = self._inputs.of(*queries)
        for query in queries:
            for found in query.find_all(exp.Table):
                if found.name not in inputs and (
                    write.inner is None or found.name != write.inner.name
                ):
                    raise Untranslatable(f"the table {found.name.removeprefix('headrace_table_')}")
        for source in inputs.values():
            if isinstance(source, BatchInput) and source.batch.files is None:
                stream = source.batch.source.stream
                raise Untranslatable(f"the stream {stream}, whose rows come through Spark")
            _check_names(_schema(source))
        _check_names(write.schema)
        inner = write.inner
        ways = cuts(write.query, self._lookup(write, inputs), write.partial)
        return _Translated(
            write,
            _typed(duckdb_query(write.query), write.schema),
            _listed(write.watch),
            "true" if write.keep is None else duckdb_expression(write.keep.condition),
            None
            if inner is None
            else {
                "name": inner.name,
                "sql": duckdb_query(inner.query),
                "watch": _listed(inner.watch),
            },
            inputs,
            ways,
            self._rows(inputs, *queries),
        )

    def _rows(self, inputs: Mapping[str, Input], *queries: exp.Query) -> int | None:
        known = self._inputs.rows(*queries)
        if known is not None:
            return known
        # The first batch of a stream: so many bytes are a row, or less.
        files = [
            path
            for source in inputs.values()
            if isinstance(source, BatchInput)
            for path in source.batch.files or ()
        ]
        if all(is_local(path) for path in files):
            return sum(os.path.getsize(plain_path(path)) for path in files) // 16
        return None

    def _lookup(self, write: Write, inputs: Mapping[str, Input]) -> Any:
        def lookup(name: str) -> exp.Query | Schema:
            if write.inner is not None and name == write.inner.name:
                return write.inner.query
            return _schema(inputs[name])

        return lookup

    def _pieces(self, index: int, translated: _Translated) -> list[_Piece]:
        """Cut a write into as many parts as its rows are worth."""
        rows = translated.rows
        most = self._buckets
        if rows is not None:
            # Rows that come out are work as much as those that go in.
            work = max(rows, translated.write.expected_rows or 0)
            most = min(most, max(1, work // self._settings.task_rows))
        cut = self._best_cut(translated, most) if most > 1 else None
        if cut is None:
            too_many = rows is None or rows > self._settings.whole_rows
            if most > 1 and too_many and self._settings.executor == "auto":
                raise Untranslatable(f"{rows or 'unknown'} rows that no column tells apart")
            return [_Piece(index, translated, None, 0, 1, rows or 0)]
        if cut.anyhow:
            most = min(most, max(_handouts(s) for s in translated.inputs.values()))
        share = (rows or self._settings.task_rows * most) / most
        return [_Piece(index, translated, cut, part, most, share) for part in range(most)]

    def _best_cut(self, translated: _Translated, parts: int) -> Cut | None:
        """The cut under which the least is read: files may have been told apart already."""

        def reading(cut: Cut) -> float:
            total = 0.0
            for name, column in cut.columns:
                source = translated.inputs[name]
                for rows, split in _files_with_rows(source):
                    ready = split is not None and (split.column, split.parts) == (column, parts)
                    total += rows if column is None or ready else rows * parts
            return total

        # Files that are handed out whole must be enough for all parts.
        usable = [
            cut
            for cut in translated.cuts
            if not cut.anyhow or max(_handouts(translated.inputs[n]) for n, _ in cut.columns) > 1
        ]
        return min(usable, key=reading, default=None)

    # The job

    def _run(self, pieces: list[_Piece]) -> dict[int, Outcome]:
        specs = self._specs(pieces)
        try:
            self.jobs += 1
            context = self._session.sparkContext
            answers = context.parallelize(specs, len(specs)).map(kernel.run_task).collect()
        except Exception as error:
            reason = f"Spark, because the tasks failed: {one_line(error)}"
            return {piece.index: Outcome(reason) for piece in pieces}
        merged: dict[int, _Merging] = {piece.index: _Merging() for piece in pieces}
        for answer in answers:
            if "missing" in answer:
                raise QueryError(
                    f"the Spark executors lack the Python package {answer['missing']}",
                    hint="install it there, or set spark.headrace.executor=spark",
                    condition="MISSING_PACKAGE",
                )
            for given in answer["answers"]:
                self._take(merged[given["write"]], given, pieces)
        by_index = {piece.index: piece for piece in pieces}
        return {
            index: self._outcome(by_index[index], found, pieces) for index, found in merged.items()
        }

    def _specs(self, pieces: list[_Piece]) -> list[dict[str, Any]]:
        """Hand the pieces out to tasks, the largest first, each to the task with the least."""
        count = min(self._parallelism, len(pieces))
        loads = [0.0] * count
        specs: list[dict[str, Any]] = [
            {
                "version": duckdb.__version__,
                "memory": self._settings.task_memory,
                "inputs": {},
                "pieces": [],
            }
            for _ in range(count)
        ]
        for piece in sorted(pieces, key=lambda p: -p.rows):
            task = loads.index(min(loads))
            # A piece without rows is work too.
            loads[task] += piece.rows + 1_000
            self._add(specs[task], piece)
        return specs

    def _add(self, spec: dict[str, Any], piece: _Piece) -> None:
        translated, write = piece.translated, piece.translated.write
        columns = dict(piece.cut.columns) if piece.cut is not None else {}
        readings: dict[str, str] = {}
        for name, source in translated.inputs.items():
            column = columns.get(name)
            # All definitions of a task that read the same rows of a stream share them.
            origin = f"batch_{id(source.batch)}" if isinstance(source, BatchInput) else name
            readings[name] = f"{origin} {column} {piece.part}/{piece.parts}"
            spec["inputs"][readings[name]] = self._reading(source, column, piece)
        spec["pieces"].append(
            {
                "write": piece.index,
                "inputs": readings,
                "sql": translated.sql,
                "inner": translated.inner,
                "watch": translated.watch,
                "columns": ", ".join(map(identifier, _written_names(write))),
                "outputs": self._outputs(piece),
            }
        )

    def _reading(self, source: Input, column: str | None, piece: _Piece) -> dict[str, Any]:
        schema = _schema(source)
        files = _files(source)
        where, shared, block = "", [], ""
        if piece.parts > 1 and column is None:
            # Each part gets as many files, and what is left over is cut into blocks.
            whole = len(files)
            if _handouts(source) > 1 and isinstance(source, BatchInput):
                whole -= whole % piece.parts
                shared = [plain_path(path) for path in files[whole:]]
                block = f"file_row_number // {_BLOCK} % {piece.parts} = {piece.part}"
            files = files[:whole][piece.part :: piece.parts]
        elif piece.parts > 1 and column is not None:
            wanted = Split(column, piece.parts, piece.part, HASHING)
            kind = same_kind(schema[column].type)
            files, all_ready = _of_part(source, wanted)
            where = "" if all_ready else _hash_condition(column, kind, wanted)
        is_batch = isinstance(source, BatchInput)
        return {
            "files": [plain_path(path) for path in files],
            "columns": {f.name: duckdb_type(f.type) for f in schema},
            "where": where,
            "shared": shared,
            "block": block,
            "strict": is_batch,
        }

    def _outputs(self, piece: _Piece) -> list[dict[str, Any]]:
        write = piece.translated.write
        if write.only_seen:
            return []
        where = piece.translated.kept
        if write.path is None:
            return [{"folder": None, "where": where}]
        folder, name = os.path.split(plain_path(write.path))
        if write.folder:
            folder, name = f"{plain_path(write.path)}.attempts", "part"
        output = {"folder": folder, "name": f"{name}-{piece.part}", "where": where, "part": None}
        split = self._split_of(piece)
        if split is None:
            return [output]
        column, kind, parts = split
        if piece.cut is not None and column in piece.cut.shown and piece.parts == parts:
            return [{**output, "part": piece.part}]
        return [
            {
                **output,
                "where": f"({where}) AND "
                + _hash_condition(column, kind, Split(column, parts, part, HASHING)),
                "name": f"{output['name']}-{part}",
                "part": part,
            }
            for part in range(parts)
        ]

    def _split_of(self, piece: _Piece) -> tuple[str, str, int] | None:
        """By which column the files that are written are told apart, and into how many."""
        write = piece.translated.write
        rows = write.expected_rows if write.expected_rows is not None else piece.translated.rows
        parts = self._buckets
        if rows is not None:
            parts = min(parts, max(1, rows // self._settings.task_rows))
        for column in write.split_by if parts > 1 else ():
            kind = same_kind(write.schema[column].type)
            if kind not in ("FLOAT", "DOUBLE"):
                return column, kind, parts
        return None

    def _make_folders(self, pieces: list[_Piece]) -> None:
        folders = {
            output["folder"]
            for piece in pieces
            for output in self._outputs(piece)
            if output["folder"] is not None
        }
        for folder in folders:
            self._files.of(folder).make_folder(folder)

    # The answers

    def _take(self, merging: _Merging, given: dict[str, Any], pieces: list[_Piece]) -> None:
        if "error" in given:
            merging.error = given["error"]
            return
        merging.seen.append(given["seen"])
        merging.inner.append(given.get("inner") or ())
        piece = next(p for p in pieces if p.index == given["write"])
        split = self._split_of(piece)
        names = list(piece.translated.write.watch)
        seen = dict(zip(names, given["seen"], strict=False))
        for path, rows, size, part in given["files"]:
            told = None
            if part is not None and split is not None:
                told = Split(split[0], split[2], part, HASHING)
            merging.files.append(
                WrittenFile(path, rows, size, seen.get("first"), seen.get("last"), told)
            )
        if "table" in given:
            merging.tables.append(pa.ipc.open_stream(given["table"]).read_all())

    def _outcome(self, piece: _Piece, merging: _Merging, pieces: list[_Piece]) -> Outcome:
        write = piece.translated.write
        if merging.error is not None:
            for file in merging.files:
                self._files.of(file.path).delete(file.path)
            # Spark decides whether it is an error, and says so in its own words.
            self._failed[write.label] = merging.error
            return Outcome(f"Spark, because of {merging.error}")
        seen = _merged(write.watch, merging.seen, piece.cut)
        if write.inner is not None:
            seen |= _merged(write.inner.watch, merging.inner, piece.cut)
        files = tuple(merging.files)
        if write.folder:
            files = self._published(write, files)
        table = None
        if write.path is None and not write.only_seen:
            table = pa.concat_tables(merging.tables)
        rows = sum(file.rows for file in files) if table is None else table.num_rows
        how = f"DuckDB, {_cut_text(piece.cut)}" if piece.cut is not None else "DuckDB in one task"
        return Outcome(how, Written(rows, files, seen, table))

    def _published(self, write: Write, files: tuple[WrittenFile, ...]) -> tuple[WrittenFile, ...]:
        """Move what the tasks that count have written to where it belongs, and nothing else."""
        target = plain_path(write.path or "")
        system = self._files.of(target)
        moved = []
        for number, file in enumerate(files):
            path = f"{target}/part-{number}.parquet"
            system.move(file.path, path)
            moved.append(WrittenFile(path, file.rows, file.size))
        system.delete(f"{target}.attempts")
        return tuple(moved)


def _why_not_at_all(session: SparkSession, settings: Settings) -> str | None:
    if settings.executor == "spark":
        return "the setting spark.headrace.executor"
    if str(session.conf.get("spark.sql.ansi.enabled", "true")).lower() != "true":
        return "spark.sql.ansi.enabled=false: what overflows means something else in DuckDB"
    return None


def _use_this_python(session: SparkSession) -> None:
    """Have local workers run the interpreter of the driver, unless somebody chose another."""
    context = session.sparkContext
    chosen = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    if not chosen and str(context.master).startswith("local"):
        context.pythonExec = sys.executable


def _cut_text(cut: Cut) -> str:
    columns = sorted({column for _, column in cut.columns if column is not None})
    return f"in parts by {', '.join(columns)}" if columns else "in parts of any rows"


def _check_names(schema: Schema) -> None:
    folded = [name.casefold() for name in schema.names]
    if len(set(folded)) < len(folded):
        raise Untranslatable("columns whose names differ in case only")
    for column in schema:
        duckdb_type(column.type)


def _schema(source: Input) -> Schema:
    return source.batch.source.schema if isinstance(source, BatchInput) else source.schema


def _files(source: Input) -> list[str]:
    if isinstance(source, BatchInput):
        return list(source.batch.files or ())
    return [file.path for file in source.files]


def _handouts(source: Input) -> int:
    """Into how many parts the rows of an input can be cut, whatever is in them.

    Files are handed out whole. The few files of a batch are cut into blocks of rows: each part
    then opens all of them, which costs little next to what is done with the rows.
    """
    files = _files(source)
    cuttable = isinstance(source, BatchInput) and all(is_local(path) for path in files)
    return max(len(files), _MOST_READERS) if cuttable and files else len(files)


def _files_with_rows(source: Input) -> list[tuple[float, Split | None]]:
    if isinstance(source, FilesInput):
        return [(file.rows, file.split) for file in source.files]
    files = source.batch.files or ()
    return [((source.rows or 1) / max(len(files), 1), None) for _ in files]


def _of_part(source: Input, wanted: Split) -> tuple[list[str], bool]:
    """The files that may hold rows of a part, and whether they hold nothing else."""
    if isinstance(source, BatchInput):
        return _files(source), False
    told_apart = (wanted.column, wanted.parts, wanted.hashing)
    files, all_ready = [], True
    for file in source.files:
        split = file.split
        if split is not None and (split.column, split.parts, split.hashing) == told_apart:
            if split.part == wanted.part:
                files.append(file.path)
        else:
            files.append(file.path)
            all_ready = False
    return files, all_ready


def _hash_condition(column: str, kind: str, split: Split) -> str:
    return f"hash(CAST({identifier(column)} AS {kind})) % {split.parts} = {split.part}"


def _written_names(write: Write) -> Sequence[str]:
    return write.schema.names if write.keep is None else write.keep.columns


def _typed(sql: str, schema: Schema) -> str:
    """The definition with its columns in the types of the schema; others go along for watching."""
    typed = ", ".join(
        f"CAST({identifier(f.name)} AS {duckdb_type(f.type)}) AS {identifier(f.name)}"
        for f in schema
    )
    return f"SELECT * REPLACE ({typed}) FROM ({sql})"


def _listed(watch: Mapping[str, Sql]) -> str:
    return ", ".join(
        f"{duckdb_expression(value)} AS {identifier(name)}" for name, value in watch.items()
    )


def _merged(
    watch: Mapping[str, Sql], parts: list[Sequence[Any]], cut: Cut | None
) -> dict[str, Any]:
    """What was seen of all parts together."""
    merged: dict[str, Any] = {}
    for position, (name, value) in enumerate(watch.items()):
        found = [part[position] for part in parts if part[position] is not None]
        merged[name] = _merge(value, cut)(found) if found else None
    return merged


def _merge(value: Sql, cut: Cut | None) -> Any:
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
            counted = node.expressions[0].name
            by_it = cut is not None and any(column == counted for _, column in cut.columns)
            return sum if by_it else max
        case name:
            raise AssertionError(f"{name} of parts cannot be merged")
