"""Files that are on no local disk, inside a task: fetched before DuckDB reads them, stored after.

DuckDB itself sees local files only, so that rows mean the same wherever they come from. What moves
the bytes is a file system of pyarrow's, with the settings of the Spark session that sent the task.

This module goes to the executors by value and needs nothing there but DuckDB, pyarrow and numpy.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from headrace.engine.execution.duckdb.local_index import local_folder, worker_memory

#: Requests that wait for a store at the same time, and bytes that are moved by one of them.
_AT_ONCE = 8
_CHUNK = 16 << 20


class Unreachable(Exception):
    """A store did not do what a task asked of it."""

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(reason)
        self.store = store


class Access:
    """How tasks reach a store: the kind of its file system, and what that is made with.

    Some of it is secret, so none of it is ever shown.
    """

    def __init__(
        self, kind: str, arguments: Mapping[str, Any], secrets: Sequence[str] = ()
    ) -> None:
        self.kind = kind
        self.arguments = dict(arguments)
        self._secrets = tuple(secret for secret in secrets if secret)

    def __repr__(self) -> str:
        return f"Access({self.kind!r})"

    def hidden(self, text: str) -> str:
        """A text without the secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def system(self) -> Any:
        """The file system; a worker makes it once."""
        systems = worker_memory().setdefault("file systems", {})
        key = hashlib.sha256(pickle.dumps((self.kind, sorted(self.arguments.items())))).digest()
        if key not in systems:
            systems[key] = _made(self.kind, self.arguments)
        return systems[key]


def _made(kind: str, arguments: Mapping[str, Any]) -> Any:
    import pyarrow.fs

    if kind == "s3":
        given = dict(arguments)
        bucket = given.pop("bucket")
        if given.get("region") is None and "endpoint_override" not in given:
            given["region"] = pyarrow.fs.resolve_s3_region(bucket)
        # A small file is one request then, not the three of an upload in parts.
        return pyarrow.fs.S3FileSystem(**given, allow_delayed_open=True)
    if kind == "hdfs":
        if not any(os.environ.get(name) for name in ("ARROW_LIBHDFS_DIR", "HADOOP_HOME")):
            raise OSError("there is no libhdfs: neither ARROW_LIBHDFS_DIR nor HADOOP_HOME is set")
        return pyarrow.fs.HadoopFileSystem(**arguments)
    return pyarrow.fs.LocalFileSystem()


def store_of(path: str) -> str | None:
    """The store that a path belongs to; None for the local disk.

    >>> store_of("s3a://bucket/state/1.parquet")
    's3a://bucket'
    """
    scheme, mark, rest = path.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if mark else None


class RemoteFiles:
    """What one task fetches and stores; its local copies end with it."""

    def __init__(self, stores: Mapping[str, Access]) -> None:
        self._stores = stores
        self._fetched: dict[str, list[str]] = {}
        self._folder: str | None = None

    def close(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def fetch(self, paths: Sequence[str]) -> list[str]:
        """Local files with the bytes of these; of a folder, all its Parquet files."""
        missing = [path for path in dict.fromkeys(paths) if path not in self._fetched]
        if len(missing) == 1:
            self._fetched[missing[0]] = self._copies(missing[0])
        elif missing:
            with ThreadPoolExecutor(min(_AT_ONCE, len(missing))) as pool:
                copies = pool.map(self._copies, missing)
                self._fetched |= dict(zip(missing, copies, strict=True))
        return [copy for path in paths for copy in self._fetched[path]]

    def touch(self, path: str) -> None:
        """Read the first bytes of a file."""
        system, inside = self._reached(path)
        try:
            with system.open_input_stream(inside) as source:
                source.read(4)
        except Exception as error:
            raise self._unreachable(path, error) from error

    def new_file(self) -> str:
        """A local name for rows on their way to a store."""
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="headrace-files-", dir=local_folder())
        return os.path.join(self._folder, f"{uuid.uuid4().hex}.parquet")

    def store(self, local: str, path: str) -> None:
        """Put a local file's bytes where all can see them; the local file is gone then."""
        system, inside = self._reached(path)
        try:
            with open(local, "rb") as source, system.open_output_stream(inside) as target:
                while chunk := source.read(_CHUNK):
                    target.write(chunk)
        except Exception as error:
            raise self._unreachable(path, error) from error
        finally:
            os.remove(local)

    def delete(self, path: str) -> None:
        system, inside = self._reached(path)
        try:
            system.delete_file(inside)
        except Exception as error:
            raise self._unreachable(path, error) from error

    def hidden(self, text: str) -> str:
        for access in self._stores.values():
            text = access.hidden(text)
        return text

    def _copies(self, path: str) -> list[str]:
        import pyarrow.fs

        system, inside = self._reached(path)
        try:
            if path.endswith(".parquet") or system.get_file_info(inside).is_file:
                return [self._copy(system, inside)]
            listed = system.get_file_info(pyarrow.fs.FileSelector(inside))
            names = sorted(entry.path for entry in listed if entry.path.endswith(".parquet"))
            if not names:
                raise FileNotFoundError(f"no Parquet files in {path}")
            return [self._copy(system, name) for name in names]
        except Exception as error:
            raise self._unreachable(path, error) from error

    def _copy(self, system: Any, inside: str) -> str:
        local = self.new_file()
        with system.open_input_stream(inside) as source, open(local, "wb") as target:
            while chunk := source.read(_CHUNK):
                target.write(chunk)
        return local

    def _reached(self, path: str) -> tuple[Any, str]:
        """The file system of a path, and its name there."""
        store = store_of(path) or ""
        access = self._stores.get(store)
        if access is None:
            raise Unreachable(store, f"the task was not told how to reach {store}")
        rest = path[len(store) :]
        try:
            system = access.system()
        except Exception as error:
            raise self._unreachable(path, error) from error
        return system, f"{access.arguments['bucket']}{rest}" if access.kind == "s3" else rest

    def _unreachable(self, path: str, error: Exception) -> Unreachable:
        if isinstance(error, Unreachable):
            return error
        words = (str(error) or type(error).__name__).splitlines()[0]
        return Unreachable(store_of(path) or "", self.hidden(words))


def try_store(spec: Mapping[str, Any]) -> str | None:
    """Whether a task can do with a store what it will have to; why not, if it cannot.

    ``folder`` is where it writes, reads and deletes a small Parquet file; ``file`` is one that it
    only reads.
    """
    import pyarrow as pa
    import pyarrow.parquet

    files = RemoteFiles(spec["stores"])
    try:
        if spec["file"] is not None:
            files.touch(spec["file"])
        if spec["folder"] is not None:
            path = f"{spec['folder']}/.probe-{uuid.uuid4().hex[:12]}.parquet"
            rows = pa.table({"number": [1, 2, 3]})
            local = files.new_file()
            pa.parquet.write_table(rows, local)
            files.store(local, path)
            try:
                read_back = [pa.parquet.ParquetFile(copy).read() for copy in files.fetch([path])]
            finally:
                files.delete(path)
            if read_back != [rows]:
                return "it does not give back what was written"
    except Exception as error:
        words = files.hidden((str(error) or type(error).__name__).splitlines()[0])
        # What comes before it names a file that nobody has heard of.
        return words[max(0, words.find("AWS Error")) :]
    finally:
        files.close()
    return None
