"""What runs inside a Spark task: DuckDB over files, one thread, a share of the rows.

This module goes to the executors by value and needs nothing there but DuckDB, pyarrow and numpy. A
task gets all its work in one dictionary and answers with one. It leaves nothing behind but files
that it names in its answer, and indexes that can be made again. Each file has a name of its own: a
task that runs twice harms nobody, as only the files of the answer that counts are looked at.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from headrace.engine.execution.duckdb.join_profile import (
    begin_counting,
    end_counting,
    joined_rows,
)
from headrace.engine.execution.duckdb.local_index import local_folder, worker_memory
from headrace.engine.execution.duckdb.probe_kernel import ProbeJoinKernel
from headrace.engine.execution.duckdb.probe_samples import statistics_of
from headrace.engine.execution.duckdb.remote_files import RemoteFiles, Unreachable

Spec = dict[str, Any]

#: What every connection needs before anything is asked of it. DuckDB 2.0 takes what it knows of an
#: expression's texts for the column it is made of, once a filter has moved into a scan: of
#: ``CASE WHEN p > 1 THEN 'a' END IN ('a')`` it leaves ``p IS NOT NULL``. Without propagated
#: statistics it does not, and takes no longer.
_AS_SPARK = ("SET TimeZone = 'UTC'", "SET disabled_optimizers = 'statistics_propagation'")

# The newer encodings (which Spark reads too) take half the space and two thirds of the time. A
# dictionary pays for columns of few values; looking for more than that in one is lost time.
_FORMAT = "FORMAT parquet, PARQUET_VERSION v2, DICTIONARY_SIZE_LIMIT 1000"


def run_task(spec: Spec) -> Spec:
    """Do all pieces of a task's work; how each of them ended."""
    try:
        import duckdb
    except ImportError:
        return {"missing": "duckdb"}
    if duckdb.__version__ != spec["version"]:
        return {"missing": f"duckdb {spec['version']} (there is {duckdb.__version__})"}
    connection = _database(spec["memory"], spec.get("folder") or local_folder()).cursor()
    files = RemoteFiles(spec.get("stores", {}))
    try:
        _prepare(connection)
        task = _Task(connection, spec, files)
        answers = [task.run(piece) for piece in spec["pieces"]]
    finally:
        connection.close()
        files.close()
    return {"answers": answers}


def _prepare(connection: Any) -> None:
    for setting in _AS_SPARK:
        connection.execute(setting)


def _database(memory: str, folder: str) -> Any:
    """The database of this worker: opening one takes 20 ms, and a connection to it less than one.

    What a task makes is temporary, and ends with the task's own connection.
    """
    import duckdb

    databases: dict[tuple[str, str], Any] = worker_memory().setdefault("databases", {})
    if (memory, folder) not in databases:
        databases[memory, folder] = duckdb.connect(
            config={
                "threads": 1,
                "memory_limit": memory,
                "temp_directory": tempfile.mkdtemp(prefix="headrace-", dir=folder),
                "preserve_insertion_order": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            }
        )
    return databases[memory, folder]


class _Unsuitable(Exception):
    """Files that are not what the stream's schema says, which only Spark knows how to read."""


class _Task:
    """A task's pieces over one connection, and what they read."""

    def __init__(self, connection: Any, spec: Spec, files: RemoteFiles) -> None:
        self._connection = connection
        self._files = files
        self._inputs: dict[str, Spec] = spec["inputs"]
        self._opened: dict[str, Exception | None] = {}
        self._readers = Counter(r for piece in spec["pieces"] for r in piece["inputs"].values())
        self._probes: dict[str, ProbeJoinKernel] = {}
        self._checks: Any = None

    def run(self, piece: Spec) -> Spec:
        """One piece of work; an error is part of the answer, since others go on."""
        begun: list[str] = []
        try:
            for name, reading in piece["inputs"].items():
                self._open(reading)
                # Another part of the same definition may have used the name for other rows.
                self._connection.execute(
                    f'CREATE OR REPLACE TEMP VIEW "{name}" AS SELECT * FROM "{reading}"'
                )
            answer = self._write(piece, begun)
            answer["probes"] = self._probed(piece)
            return answer
        except Exception as error:
            for path in begun:
                self._delete(path)
            words = self._files.hidden(f"{type(error).__name__}: {error}").splitlines()[0]
            answer = {"write": piece["write"], "error": words}
            if isinstance(error, Unreachable):
                answer["store"] = error.store
            return answer

    def _open(self, reading: str) -> None:
        """Make rows of files known under a name, once.

        What several pieces read of a stream is read into memory.
        """
        if reading in self._opened:
            failed = self._opened[reading]
            if failed is not None:
                raise failed
            return
        try:
            source = self._inputs[reading]
            if "probe" in source:
                self._probe(reading, source)
                self._opened[reading] = None
                return
            rows = _reading(self._connection, self._local(source))
            kind = "TABLE" if self._readers[reading] > 1 and source["strict"] else "VIEW"
            self._connection.execute(f'CREATE TEMP {kind} "{reading}" AS {rows}')
            self._opened[reading] = None
        except Exception as error:
            self._opened[reading] = error
            raise

    def _probe(self, reading: str, source: Spec) -> None:
        """Make the results of a join known under a name: as they are found, or all of them if
        they are read more than once."""
        import pyarrow as pa

        spec = source["probe"]
        join = self._probes[reading] = ProbeJoinKernel(spec, self._stored_rows, self._met)
        probed = join.batches(list(spec["types"]))
        first = next(probed, None)
        connection = self._connection
        if first is None:
            columns = (f"CAST(NULL AS {t}) AS {_quoted(n)}" for n, t in spec["types"].items())
            rows = f"(SELECT {', '.join(columns)} WHERE false)"
        else:
            batches = itertools.chain([first], probed)
            rows = f'"results of {reading}"'
            connection.register(
                f"results of {reading}", pa.RecordBatchReader.from_batches(first.schema, batches)
            )
        condition = f" WHERE {spec['verified']}" if spec["verified"] else ""
        # What is only looked up by a hash is verified where all of its columns are there.
        kind = "VIEW" if source["once"] and self._readers[reading] == 1 else "TABLE"
        connection.execute(f'CREATE TEMP {kind} "{reading}" AS SELECT * FROM {rows}{condition}')

    def _stored_rows(self, one: Spec, paths: Sequence[str]) -> Any:
        """Rows of an input of a join from files, as its indexes hold them."""
        reading = {"files": list(paths), "shared": [], "where": one["where"], "strict": False}
        rows = _reading(self._connection, self._local({**reading, "columns": one["types"]}))
        self._connection.execute(f'CREATE OR REPLACE TEMP VIEW "{one["stored"]}" AS {rows}')
        return self._connection.sql(one["sql"]).to_arrow_table()

    def _met(self, columns: dict[str, Any], condition: str) -> Any:
        """The positions of rows for which a condition holds."""
        import numpy as np
        import pyarrow as pa

        if self._checks is None:
            # Not the connection that reads the results while they are found.
            self._checks = self._connection.cursor()
            _prepare(self._checks)
        rows = pa.table({**columns, "__position": np.arange(len(next(iter(columns.values()))))})
        self._checks.register("rows", rows)
        met = self._checks.execute(f"SELECT __position FROM rows WHERE {condition}")
        return met.fetchnumpy()["__position"]

    def _probed(self, piece: Spec) -> Spec:
        """What the joins that a piece was the first to read have learnt."""
        learnt = {}
        for name, reading in piece["inputs"].items():
            join = self._probes.pop(reading, None)
            if join is not None:
                learnt[name] = statistics_of(join)
        return learnt

    def _write(self, piece: Spec, begun: list[str]) -> Spec:
        answer: Spec = {"write": piece["write"], "files": [], "seen": [], "joined": {}}
        if not piece.get("joins"):
            self._write_all(piece, begun, answer)
            return answer
        begin_counting(self._connection)
        try:
            self._write_all(piece, begun, answer)
        finally:
            end_counting(self._connection)
        return answer

    def _write_all(self, piece: Spec, begun: list[str], answer: Spec) -> None:
        connection = self._connection
        inner = piece["inner"]
        if inner is not None:
            connection.execute(f'CREATE OR REPLACE TEMP TABLE "{inner["name"]}" AS {inner["sql"]}')
            self._count_joined(piece, answer)
            answer["inner"] = self._row(f'SELECT {inner["watch"]} FROM "{inner["name"]}"')
        rows = f"({piece['sql']})"
        whole = None
        if len(piece["outputs"]) + bool(piece["watch"]) > 1:
            whole = f"whole_{piece['write']}"
            connection.execute(f'CREATE OR REPLACE TEMP TABLE "{whole}" AS {piece["sql"]}')
            self._count_joined(piece, answer)
            rows = f'"{whole}"'
        if piece["computes_all"]:
            # DuckDB leaves out what nobody asks for, and with it what fails there.
            watch = f"{piece['watch']}, " if piece["watch"] else ""
            every = f"SELECT {watch}max(hash(every_row)) FROM {rows} AS every_row"
            answer["seen"] = self._row(every)[:-1]
            self._count_joined(piece, answer)
        elif piece["watch"]:
            answer["seen"] = self._row(f"SELECT {piece['watch']} FROM {rows}")
            self._count_joined(piece, answer)
        for output in piece["outputs"]:
            query = f"SELECT {piece['columns']} FROM {rows} WHERE {output['where']}"
            if output["folder"] is None:
                answer["table"] = _as_bytes(connection.sql(query).to_arrow_table())
                self._count_joined(piece, answer)
                continue
            path = f"{output['folder']}/{output['name']}-{uuid.uuid4().hex[:12]}.parquet"
            begun.append(path)
            local = path if _is_local(path) else self._files.new_file()
            count, size = _write_file(connection, query, local)
            self._count_joined(piece, answer)
            if not count:
                _remove(local)
                continue
            if local != path:
                self._files.store(local, path)
            answer["files"].append((path, count, size, output["part"]))
        if whole is not None:
            connection.execute(f'DROP TABLE "{whole}"')
        if inner is not None:
            connection.execute(f'DROP TABLE "{inner["name"]}"')

    def _count_joined(self, piece: Spec, answer: Spec) -> None:
        """Note the rows of the joins that the last statement ran, if it ran any."""
        if piece.get("joins"):
            answer["joined"] |= joined_rows(self._connection)

    def _local(self, source: Spec) -> Spec:
        """An input with its files where DuckDB can read them."""
        localised = dict(source)
        for kind in ("files", "shared"):
            local = [_pattern(path) for path in source[kind] if _is_local(path)]
            remote = [path for path in source[kind] if not _is_local(path)]
            localised[kind] = local + self._files.fetch(remote)
        return localised

    def _delete(self, path: str) -> None:
        if _is_local(path):
            _remove(path)
            return
        with suppress(Unreachable):
            self._files.delete(path)

    def _row(self, query: str) -> tuple[Any, ...]:
        """The one row of a query; all are fetched, because a result that is not holds things."""
        rows: list[tuple[Any, ...]] = self._connection.execute(query).fetchall()
        return rows[0]


def _as_bytes(table: Any) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


# Files, all of them local by now


def _is_local(path: str) -> bool:
    return "://" not in path


def _reading(connection: Any, source: Spec) -> str:
    """The rows of an input's files as a query, with the types that the schema says.

    ``shared`` are files of which this part has only some blocks of rows.
    """
    parts = []
    if source["files"]:
        parts.append(_rows_of(connection, source, source["files"], source["where"], False))
    if source["shared"]:
        parts.append(_rows_of(connection, source, source["shared"], source["block"], True))
    if not parts:
        columns = (
            f"CAST(NULL AS {kind}) AS {_quoted(name)}" for name, kind in source["columns"].items()
        )
        return f"SELECT {', '.join(columns)} WHERE false"
    return " UNION ALL ".join(parts)


def _rows_of(connection: Any, source: Spec, paths: list[str], where: str, numbered: bool) -> str:
    listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
    options = "union_by_name = true, hive_partitioning = false"
    options += ", file_row_number = true" if numbered else ""
    origin = f"read_parquet([{listed}], {options})"
    described = connection.execute(f"DESCRIBE SELECT * FROM {origin}").fetchall()
    types = {row[0]: row[1] for row in described}
    columns = [
        _column(name, wanted, types, source["strict"]) for name, wanted in source["columns"].items()
    ]
    if "TIMESTAMP" in types.values() and source["strict"]:
        _check_int96(connection, paths)
    condition = f" WHERE {where}" if where else ""
    return f"SELECT {', '.join(columns)} FROM {origin}{condition}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _column(name: str, wanted: str, types: dict[str, str], strict: bool) -> str:
    quoted = _quoted(name)
    stored_type = types.get(name)
    if stored_type is None:
        return f"CAST(NULL AS {wanted}) AS {quoted}"
    if stored_type == wanted:
        return quoted
    if wanted == "TIMESTAMP WITH TIME ZONE" and stored_type in ("TIMESTAMP", "TIMESTAMP_NS"):
        return f"make_timestamptz(epoch_us({quoted})) AS {quoted}"
    if strict:
        raise _Unsuitable(f"column {name} is {stored_type} in the files and {wanted} in the stream")
    return f"CAST({quoted} AS {wanted}) AS {quoted}"


def _check_int96(connection: Any, paths: list[str]) -> None:
    """A timestamp without a zone is Spark's own old format, or means something else."""
    for path in paths:
        kinds = connection.execute(
            "SELECT DISTINCT type FROM parquet_schema(?) WHERE logical_type LIKE '%Timestamp%' "
            "AND logical_type LIKE '%isAdjustedToUTC=0%'",
            [path],
        ).fetchall()
        if kinds:
            raise _Unsuitable("timestamps without a time zone")


def _pattern(path: str) -> str:
    """A file, or all Parquet files of a folder that Spark wrote."""
    return path if path.endswith(".parquet") and not os.path.isdir(path) else f"{path}/*.parquet"


def _write_file(connection: Any, query: str, path: str) -> tuple[int, int]:
    """Write rows as one Parquet file; how many they were, and its size."""
    quoted = path.replace("'", "''")
    copied = connection.execute(f"COPY ({query}) TO '{quoted}' ({_FORMAT})").fetchall()
    return copied[0][0], os.path.getsize(path)


def _remove(path: str) -> None:
    with suppress(OSError):
        os.remove(path)
