"""The file operations that a checkpoint needs, on local paths and on any Hadoop path.

A local path is handled by Python itself: the two small files an epoch writes would otherwise cost
more time in the JVM's file system layer than in the disk. Every other scheme goes through Hadoop
(``hadoop_files``).
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol
from urllib.parse import urlparse

from pyspark.sql import SparkSession

from headrace.engine.execution.spark_errors import one_line
from headrace.errors import CheckpointError

#: Modes of what belongs to a checkpoint: the user's own, and nobody else's.
PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
#: Threads that wait for the disk: it writes what they ask for at once in one go.
_FLUSHERS = 8


class FileSystem(Protocol):
    """What the engine asks of a place to store files."""

    @property
    def flushes(self) -> bool:
        """Whether what was written and closed may still be lost, so that it must be flushed."""

    def read(self, path: str) -> str: ...

    def write(self, path: str, text: str, lasting: bool = True) -> None:
        """Put the whole text at the path at once, or leave the path as it was.

        What need not be ``lasting`` may be lost in a power cut.
        """

    def create(self, path: str, text: str) -> bool:
        """Put the whole text at the path at once if nothing is there; whether it is there now."""

    def names(self, path: str) -> list[str]:
        """Sorted names in a folder; none where there is no folder."""

    def exists(self, path: str) -> bool: ...

    def make_folder(self, path: str) -> None:
        """Make a folder that is this user's own; nothing happens where there is one."""

    def delete(self, path: str) -> None:
        """Delete a file or folder with all in it; nothing happens where there is none."""

    def move(self, source: str, target: str) -> None:
        """Rename a file over what is there; the parent of the target is made."""

    def copy(self, source: str, target: str) -> None:
        """The same bytes, a file or a folder, under a second name of its own."""

    def size(self, path: str) -> int: ...

    def flush(self, paths: Iterable[str], folders: Iterable[str] = ()) -> None:
        """Return when files would outlast a power cut, and folders with all that is in them.

        Of ``folders`` only the names in them are meant, not what these stand for.
        """

    def protect(self, paths: Iterable[str]) -> None:
        """Make files and folders with all in them this user's own."""


def file_system(spark: SparkSession, path: str, flush: bool = True) -> FileSystem:
    """The file system that a path belongs to."""
    if is_local(path):
        return LocalFiles(flush)
    from headrace.engine.checkpoint.hadoop_files import HadoopFiles

    return HadoopFiles(spark, path)


class Files:
    """Every path by its own file system: a sink need not live where the checkpoint lives."""

    def __init__(self, spark: SparkSession, flush: bool = True) -> None:
        self._spark = spark
        self._flush = flush
        self._known: dict[tuple[str, str], FileSystem] = {}

    def of(self, path: str) -> FileSystem:
        parsed = urlparse(path)
        place = (parsed.scheme, parsed.netloc)
        if place not in self._known:
            self._known[place] = file_system(self._spark, path, self._flush)
        return self._known[place]


def is_local(path: str) -> bool:
    return urlparse(path).scheme in ("", "file")


def plain_path(path: str) -> str:
    """A local path in full and without its ``file:`` scheme; others unchanged.

    In full, because Python and Java may stand in different working directories.
    """
    if not is_local(path):
        return path
    parsed = urlparse(path)
    return os.path.abspath(parsed.path if parsed.scheme == "file" else path)


class LocalFiles:
    """The machine's own files. A text is durable before it takes its name, unless told not to."""

    def __init__(self, flush: bool = True) -> None:
        self._flush = flush

    @property
    def flushes(self) -> bool:
        return self._flush

    def read(self, path: str) -> str:
        with open(path, encoding="utf-8") as file:
            return file.read()

    def write(self, path: str, text: str, lasting: bool = True) -> None:
        temporary = temporary_name(path)
        try:
            self._write_out(temporary, text, lasting)
            os.replace(temporary, path)
            if lasting:
                self.flush([], [os.path.dirname(path)])
        except OSError as error:
            self.delete(temporary)
            raise not_writable(path, error) from error

    def create(self, path: str, text: str) -> bool:
        temporary = temporary_name(path)
        try:
            self._write_out(temporary, text, True)
            created = _link_anew(temporary, path)
            self.flush([], [os.path.dirname(path)])
        except OSError as error:
            raise not_writable(path, error) from error
        finally:
            self.delete(temporary)
        # A network file system may say that a link is there when it has just made it.
        return created or self.read(path) == text

    def names(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def make_folder(self, path: str) -> None:
        try:
            os.makedirs(path, PRIVATE_FOLDER, exist_ok=True)
        except OSError as error:
            raise not_writable(path, error) from error

    def delete(self, path: str) -> None:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
            return
        try:
            os.remove(path)
        except (FileNotFoundError, NotADirectoryError):
            return

    def move(self, source: str, target: str) -> None:
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.replace(source, target)
        except OSError as error:
            raise not_writable(target, error) from error

    def copy(self, source: str, target: str) -> None:
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if os.path.isdir(source):
                shutil.copytree(source, target, copy_function=_link, dirs_exist_ok=True)
            else:
                _link(source, target)
        except OSError as error:
            raise not_writable(target, error) from error

    def size(self, path: str) -> int:
        return os.path.getsize(path)

    def flush(self, paths: Iterable[str], folders: Iterable[str] = ()) -> None:
        if self._flush:
            _flush_all([*(entry for path in paths for entry in _with_all_in(path)), *folders])

    def protect(self, paths: Iterable[str]) -> None:
        for entry in (entry for path in paths for entry in _with_all_in(path)):
            mode = PRIVATE_FOLDER if os.path.isdir(entry) else PRIVATE_FILE
            # File systems without modes refuse, or do nothing.
            with suppress(PermissionError):
                os.chmod(entry, mode)

    def _write_out(self, path: str, text: str, lasting: bool) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            if self._flush and lasting:
                os.fsync(descriptor)


def temporary_name(path: str) -> str:
    """A hidden name beside the path, which nobody else uses."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.{uuid.uuid4().hex[:12]}.tmp"


def _link_anew(source: str, target: str) -> bool:
    """A second name for a file if nobody has that name; whether it was free."""
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        # Without links there is no such step; see "File systems" in the manual.
        if os.path.exists(target):
            return False
        os.replace(source, target)
    return True


def _link(source: str, target: str) -> None:
    """A second name for a file, which is never changed; a copy where links are not possible."""
    try:
        os.link(source, target)
    except FileExistsError:
        os.remove(target)
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _with_all_in(path: str) -> Iterator[str]:
    """A file, or the files and folders of a folder and then itself."""
    if os.path.isdir(path):
        for folder, _, names in os.walk(path, topdown=False):
            yield from (os.path.join(folder, name) for name in names)
            yield folder
    else:
        yield path


def _flush_all(paths: Iterable[str]) -> None:
    entries: dict[tuple[int, int], str] = {}
    for path in paths:
        try:
            status = os.stat(path)
        except OSError as error:
            raise not_writable(path, error) from error
        # Many names may be one file: rows that many queries put out.
        entries[status.st_dev, status.st_ino] = path
    if len(entries) <= 2:
        for path in entries.values():
            _flush_one(path)
        return
    with ThreadPoolExecutor(min(_FLUSHERS, len(entries))) as pool:
        list(pool.map(_flush_one, entries.values()))


def _flush_one(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError as error:
        if os.name == "nt":  # Folders cannot be opened there, and keep their names by themselves.
            return
        raise not_writable(path, error) from error
    except OSError as error:
        raise not_writable(path, error) from error
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems know no flushing of folders.
        if error.errno not in (errno.EINVAL, errno.EBADF):
            raise not_writable(path, error) from error
    finally:
        os.close(descriptor)


def not_writable(path: str, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"cannot write {path}: {one_line(error)}",
        hint="check that the disk has room and that this user may write there",
        condition="STORAGE_NOT_WRITABLE",
    )
