"""Streams that are folders of Parquet files, whose files tasks can read without Spark.

Spark's file source decides which files are new and remembers it in a log of its own, so that a
batch that is repeated after a crash has the same files again. That log is all that is read here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame

from headrace.engine.checkpoint.files import FileSystem

#: Options of Spark's file source that say which files are new, and nothing of what is in them.
_HARMLESS = frozenset(
    {
        "path",
        "maxfilespertrigger",
        "maxbytespertrigger",
        "latestfirst",
        "maxfileage",
        "filenameonly",
        "cleansource",
        "sourcearchivedir",
        "pathglobfilter",
        "recursivefilelookup",
        "maxcachedfiles",
        "discardcachedinputratio",
    }
)


@dataclass(frozen=True)
class FileStream:
    """A stream that is a folder of Parquet files; ``log`` is where Spark keeps its log of them."""

    files: FileSystem
    checkpoint: str

    def files_of(self, batch: int) -> list[str] | None:
        """The files of a batch; None where the log does not tell, or the files are not plain."""
        try:
            last = self._offset(batch)
            first = self._offset(batch - 1) + 1 if batch else 0
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            return None
        paths: list[str] = []
        for offset in range(first, last + 1):
            entries = self._entries(offset)
            if entries is None:
                return None
            paths += entries
        # What a folder's name says of the rows (`day=3`) is not in the files.
        return None if any("=" in path for path in paths) else paths

    def _offset(self, batch: int) -> int:
        """Up to which entry of the source's log a batch reads."""
        lines = self.files.read(f"{self.checkpoint}/offsets/{batch}").splitlines()
        return int(json.loads(lines[2])["logOffset"])

    def _entries(self, offset: int) -> list[str] | None:
        for name in (str(offset), f"{offset}.compact"):
            path = f"{self.checkpoint}/sources/0/{name}"
            if not self.files.exists(path):
                continue
            version, *lines = self.files.read(path).splitlines()
            if version != "v1":
                return None
            entries = [json.loads(line) for line in lines]
            return [_path(e["path"]) for e in entries if e["batchId"] == offset]
        return None


def _path(uri: str) -> str:
    """A path as Python has it; Spark writes encoded URIs."""
    if uri.startswith("file:"):
        return unquote(uri.removeprefix("file://").removeprefix("file:"))
    return unquote(uri)


def folders(frame: DataFrame) -> list[str]:
    """Where the files are that a streaming DataFrame reads."""
    leaves: Any = frame._jdf.queryExecution().analyzed().collectLeaves()
    paths = []
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.getClass().getSimpleName() == "StreamingRelation":
            path = leaf.dataSource().options().get("path")
            paths += [str(path.get())] if path.isDefined() else []
    return paths


def is_file_stream(frame: DataFrame) -> bool:
    """Whether a streaming DataFrame is the rows of Parquet files, as they are."""
    return folder_of(frame) is not None


def folder_of(frame: DataFrame) -> str | None:
    """The folder whose Parquet files are the rows of a streaming DataFrame, as they are, if any."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    if plan.getClass().getSimpleName() != "StreamingRelation":
        return None
    source = plan.dataSource()
    if str(source.className()).lower() != "parquet" or not source.partitionColumns().isEmpty():
        return None
    folder = ""
    options = source.options().iterator()
    while options.hasNext():
        option = options.next()
        name = str(option._1()).lower()
        if name not in _HARMLESS:
            return None
        if name == "path":
            folder = str(option._2())
    return folder
