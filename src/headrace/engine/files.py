"""The file operations that a checkpoint needs, on local paths and on any Hadoop path.

A local path is handled by Python itself: the two small files an epoch writes would otherwise cost
more time in the JVM's file system layer than in the disk. Every other scheme goes through Hadoop.
"""

from __future__ import annotations

import os
import shutil
from typing import Any, Protocol
from urllib.parse import urlparse

from pyspark.sql import SparkSession

from headrace.errors import CheckpointError


class FileSystem(Protocol):
    """What the engine asks of a place to store files."""

    def read(self, path: str) -> str: ...

    def write(self, path: str, text: str) -> None:
        """Put the whole text at the path at once, or leave the path as it was."""

    def names(self, path: str) -> list[str]:
        """Sorted names in a folder; none where there is no folder."""

    def exists(self, path: str) -> bool: ...

    def make_folder(self, path: str) -> None: ...

    def delete(self, path: str) -> None:
        """Delete a file or folder with all in it; nothing happens where there is none."""

    def move(self, source: str, target: str) -> None:
        """Rename a folder or file; the parent of the target is made."""

    def copy(self, source: str, target: str) -> None:
        """The same bytes, a file or a folder, under a second name of its own."""

    def size(self, path: str) -> int: ...


def file_system(spark: SparkSession, path: str) -> FileSystem:
    """The file system that a path belongs to."""
    return LocalFiles() if is_local(path) else HadoopFiles(spark, path)


class Files:
    """Every path by its own file system: a sink need not live where the checkpoint lives."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._known: dict[tuple[str, str], FileSystem] = {}

    def of(self, path: str) -> FileSystem:
        parsed = urlparse(path)
        place = (parsed.scheme, parsed.netloc)
        if place not in self._known:
            self._known[place] = file_system(self._spark, path)
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
    """The machine's own files. A text is durable (fsync) before it takes its name."""

    def read(self, path: str) -> str:
        with open(path, encoding="utf-8") as file:
            return file.read()

    def write(self, path: str, text: str) -> None:
        temporary = f"{path}.tmp"
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError as error:
            raise _not_writable(path, error) from error

    def names(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def make_folder(self, path: str) -> None:
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise _not_writable(path, error) from error

    def delete(self, path: str) -> None:
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        elif os.path.exists(path):
            os.remove(path)

    def move(self, source: str, target: str) -> None:
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.replace(source, target)
        except OSError as error:
            raise _not_writable(target, error) from error

    def copy(self, source: str, target: str) -> None:
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if os.path.isdir(source):
                shutil.copytree(source, target, copy_function=_link, dirs_exist_ok=True)
            else:
                _link(source, target)
        except OSError as error:
            raise _not_writable(target, error) from error

    def size(self, path: str) -> int:
        return os.path.getsize(path)


def _link(source: str, target: str) -> None:
    """A second name for a file, which is never changed; a copy where links are not possible."""
    try:
        os.link(source, target)
    except FileExistsError:
        os.remove(target)
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


class HadoopFiles:
    """Files of any Hadoop file system, through the JVM."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        conf = spark._jsparkSession.sessionState().newHadoopConf()
        self._fs = self._path(path).getFileSystem(conf)
        self._copy = jvm.org.apache.hadoop.fs.FileUtil.copy
        self._io = jvm.org.apache.commons.io.IOUtils
        self._charset = jvm.java.nio.charset.StandardCharsets.UTF_8

    def read(self, path: str) -> str:
        stream = self._fs.open(self._path(path))
        try:
            return str(self._io.toString(stream, self._charset))
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        temporary = self._path(f"{path}.tmp")
        try:
            stream = self._fs.create(temporary, True)
            try:
                stream.write(bytearray(text, "utf-8"))
            finally:
                stream.close()
            self._replace(temporary, self._path(path))
        except Exception as error:
            raise _not_writable(path, error) from error

    def names(self, path: str) -> list[str]:
        if not self.exists(path):
            return []
        return sorted(
            status.getPath().getName() for status in self._fs.listStatus(self._path(path))
        )

    def exists(self, path: str) -> bool:
        return bool(self._fs.exists(self._path(path)))

    def make_folder(self, path: str) -> None:
        try:
            self._fs.mkdirs(self._path(path))
        except Exception as error:
            raise _not_writable(path, error) from error

    def delete(self, path: str) -> None:
        self._fs.delete(self._path(path), True)

    def move(self, source: str, target: str) -> None:
        destination = self._path(target)
        try:
            self._fs.mkdirs(destination.getParent())
            self._replace(self._path(source), destination)
        except Exception as error:
            raise _not_writable(target, error) from error

    def copy(self, source: str, target: str) -> None:
        place = self._path(source)
        origin = place.getFileSystem(self._fs.getConf())
        try:
            self._copy(origin, place, self._fs, self._path(target), False, True, self._fs.getConf())
        except Exception as error:
            raise _not_writable(target, error) from error

    def size(self, path: str) -> int:
        return int(self._fs.getFileStatus(self._path(path)).getLen())

    def _replace(self, source: Any, target: Any) -> None:
        """Rename over what is there; Hadoop's rename answers false instead of raising."""
        if self._fs.rename(source, target):
            return
        self._fs.delete(target, True)
        if not self._fs.rename(source, target):
            raise OSError(f"cannot rename {source} to {target}")


def _not_writable(path: str, error: Exception) -> CheckpointError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return CheckpointError(
        f"cannot write {path}: {reason}",
        hint="check that the disk has room and that this user may write there",
        condition="STORAGE_NOT_WRITABLE",
    )
