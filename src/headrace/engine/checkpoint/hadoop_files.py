"""Files of any Hadoop file system, through the JVM.

Two kinds of stores hide behind one interface. In file systems (HDFS and the like) a file is seen
while it is written and a rename is one step, so a text is written aside and renamed. In object
stores a file appears whole when it is closed and a rename is a copy, so a text is written in place.
To create a file only if there is none is the rename itself in the first, which refuses to replace,
and a conditional request in the second.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import urlparse

from pyspark.sql import SparkSession

from headrace.engine.checkpoint.files import not_writable, temporary_name

#: Schemes of stores in which a file appears whole when it is closed, and a rename copies.
OBJECT_STORES = frozenset({"s3a", "s3", "s3n", "gs", "oss", "cosn", "obs", "wasb", "wasbs"})
#: What a store says that can create conditionally, and how it is asked to.
_CONDITIONAL = "fs.option.create.conditional.overwrite"
#: S3A's newer streams keep what they have read, and give it again though the file was overwritten:
#: a lease would never seem to be renewed.
_NO_MEMORY = {"fs.s3a.input.stream.type": "classic"}


class HadoopFiles:
    """One Hadoop file system. What is closed is as safe as the store makes it."""

    flushes = False

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._hadoop = jvm.org.apache.hadoop.fs
        self._path = self._hadoop.Path
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()
        self._appears_whole = urlparse(path).scheme in OBJECT_STORES
        if self._appears_whole:
            # One of our own: those that are shared may remember what a file held before.
            for key, value in _NO_MEMORY.items():
                self._conf.set(key, value)
            self._fs = self._hadoop.FileSystem.newInstance(self._path(path).toUri(), self._conf)
        else:
            self._fs = self._path(path).getFileSystem(self._conf)
        self._io = jvm.org.apache.commons.io.IOUtils
        self._charset = jvm.java.nio.charset.StandardCharsets.UTF_8
        self._private = self._hadoop.permission.FsPermission("700")

    def read(self, path: str) -> str:
        stream = self._fs.open(self._path(path))
        try:
            return str(self._io.toString(stream, self._charset))
        finally:
            stream.close()

    def write(self, path: str, text: str, lasting: bool = True) -> None:
        try:
            if self._appears_whole:
                self._write_out(self._fs.create(self._path(path), True), text)
                return
            temporary = self._path(temporary_name(path))
            self._write_out(self._fs.create(temporary, False), text)
            self._replace(temporary, self._path(path))
        except Exception as error:
            raise not_writable(path, error) from error

    def create(self, path: str, text: str) -> bool:
        target = self._path(path)
        try:
            if self._fs.hasPathCapability(target, _CONDITIONAL):
                builder = self._fs.createFile(target).recursive().must(_CONDITIONAL, "true")
                self._write_out(builder.build(), text)
                return True
            if self._appears_whole:
                self._write_out(self._fs.create(target, False), text)
                return True
            temporary = self._path(temporary_name(path))
            self._write_out(self._fs.create(temporary, False), text)
            if self._fs.rename(temporary, target):
                return True
            self._fs.delete(temporary, False)
        except Exception as error:
            there = False
            with suppress(Exception):
                there = self.exists(path)
            if not there:
                raise not_writable(path, error) from error
        # A request that was sent twice may have met itself.
        return self.read(path) == text

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
            if not self.exists(path):
                self._fs.mkdirs(self._path(path), self._private)
        except Exception as error:
            raise not_writable(path, error) from error

    def delete(self, path: str) -> None:
        self._fs.delete(self._path(path), True)

    def move(self, source: str, target: str) -> None:
        destination = self._path(target)
        try:
            self._fs.mkdirs(destination.getParent())
            self._replace(self._path(source), destination)
        except Exception as error:
            raise not_writable(target, error) from error

    def copy(self, source: str, target: str) -> None:
        place = self._path(source)
        try:
            self._copy(place, place.getFileSystem(self._conf), self._path(target))
        except Exception as error:
            raise not_writable(target, error) from error

    def size(self, path: str) -> int:
        return int(self._fs.getFileStatus(self._path(path)).getLen())

    def flush(self, paths: Iterable[str], folders: Iterable[str] = ()) -> None:
        """Closing has done it."""

    def protect(self, paths: Iterable[str]) -> None:
        """The folders above are this user's own."""

    def _write_out(self, stream: Any, text: str) -> None:
        try:
            stream.write(bytearray(text, "utf-8"))
        except BaseException:
            # To close it would make a part of the text appear; an abandoned one expires.
            with suppress(Exception):
                stream.abort()
            raise
        stream.close()

    def _replace(self, source: Any, target: Any) -> None:
        """Rename a file over what is there, without a moment in which neither is."""
        if not self._fs.exists(target) and self._fs.rename(source, target):
            return
        if self._appears_whole:
            self._copy(source, self._fs, target)
            self._fs.delete(source, False)
            return
        try:
            context = self._hadoop.FileContext.getFileContext(target.toUri(), self._conf)
        except Exception:
            # A file system that Hadoop knows by its older interface only.
            self._fs.delete(target, True)
            if not self._fs.rename(source, target):
                raise OSError(f"cannot rename {source} to {target}") from None
            return
        options = self._gateway.new_array(self._hadoop.Options.Rename, 1)
        options[0] = self._hadoop.Options.Rename.OVERWRITE
        context.rename(source, target, options)

    def _copy(self, source: Any, origin: Any, target: Any) -> None:
        self._hadoop.FileUtil.copy(origin, source, self._fs, target, False, True, self._conf)
