"""A Spark session without a JVM: what the bucket executor asks of one, and no more.

Tasks run one after the other in this process, which takes milliseconds where a Spark job takes
tenths of a second; the kernels, the definitions and the state that they write are the real ones.
Whatever only Spark can run raises ``NeedsSpark``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from pyspark.sql import SparkSession


class NeedsSpark(Exception):
    """Something was asked of the session that tasks in this process cannot do."""


def in_process_session(tasks: int = 2) -> SparkSession:
    """A session whose tasks run in this process; jobs are cut as if so many ran at once."""
    return cast(SparkSession, _Session(tasks))


class _Settings(dict[str, str]):
    """The settings of a session, with PySpark's names."""

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def unset(self, key: str) -> None:
        self.pop(key, None)

    @property
    def getAll(self) -> dict[str, str]:
        return dict(self)


class _Rows:
    """A distributed collection of one process."""

    def __init__(self, rows: Iterable[Any]) -> None:
        self._rows = list(rows)

    def map(self, function: Callable[[Any], Any]) -> _Rows:
        return _Rows(map(function, self._rows))

    def foreach(self, function: Callable[[Any], Any]) -> None:
        for row in self._rows:
            function(row)

    def collect(self) -> list[Any]:
        return self._rows


class _Context:
    def __init__(self, tasks: int) -> None:
        self.defaultParallelism = tasks
        self.master = f"local[{tasks}]"
        self.pythonExec = sys.executable

    def getConf(self) -> _Settings:
        return _Settings()

    def parallelize(self, rows: Sequence[Any], parts: int) -> _Rows:
        return _Rows(rows)


class _Frame:
    """A DataFrame that nobody reads: its rows are in files that tasks open."""

    def createOrReplaceGlobalTempView(self, name: str) -> None: ...

    def createOrReplaceTempView(self, name: str) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise NeedsSpark(f"DataFrame.{name}")


class _Session:
    def __init__(self, tasks: int) -> None:
        self.conf = _Settings(
            {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}
        )
        self.sparkContext = _Context(tasks)
        self.catalog = SimpleNamespace(dropGlobalTempView=lambda name: True)

    def newSession(self) -> _Session:
        return self

    def createDataFrame(self, rows: Any, schema: str) -> _Frame:
        return _Frame()

    def table(self, name: str) -> _Frame:
        return _Frame()

    def __getattr__(self, name: str) -> Any:
        raise NeedsSpark(f"SparkSession.{name}")
