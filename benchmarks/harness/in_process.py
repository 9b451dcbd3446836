"""Sessions whose tasks run in this process, one after the other.

That takes milliseconds where a Spark job takes tenths of a second; the kernels, the definitions and
the state that they write are the real ones. ``in_process_session()`` has no JVM at all: whatever
only Spark can run raises ``NeedsSpark``. ``tasks_in_process(spark)`` leaves that to Spark.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any, cast

from pyspark.sql import SparkSession


class NeedsSpark(BaseException):
    """Something was asked of the session that tasks in this process cannot do.

    No engine may take it for the failure of a query, and go on without.
    """


def in_process_session(tasks: int = 2) -> SparkSession:
    """A session whose tasks run in this process; jobs are cut as if so many ran at once."""
    return cast(SparkSession, _Session(tasks))


def tasks_in_process(spark: SparkSession, tasks: int = 2) -> SparkSession:
    """This session, but for the tasks of the bucket executor, which run in this process."""
    return cast(SparkSession, _Beside(spark, tasks, {}))


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
        return _sent(rows)


def _sent(rows: Sequence[Any]) -> _Rows:
    """What tasks are given is a copy, as on its way to another process."""
    return _Rows(pickle.loads(pickle.dumps(list(rows))))


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


# --- beside a real one ---------------------------------------------------------------------------


class _BesideContext:
    def __init__(self, context: Any, tasks: int) -> None:
        self._context = context
        self.defaultParallelism = tasks

    def parallelize(self, rows: Sequence[Any], parts: int) -> _Rows:
        return _sent(rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class _LateFrame:
    """Rows that become a DataFrame when something is asked of it that tasks cannot do."""

    def __init__(self, spark: SparkSession, rows: Any, schema: str, views: dict[str, Any]) -> None:
        self._spark, self._given, self._views = spark, (rows, schema), views

    @cached_property
    def _frame(self) -> Any:
        return self._spark.createDataFrame(*self._given)

    def createOrReplaceGlobalTempView(self, name: str) -> None:
        self._views[f"global_temp.{name}"] = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._frame, name)


class _Beside:
    """A session of Spark, and tasks that are not Spark's."""

    def __init__(self, spark: SparkSession, tasks: int, views: dict[str, Any]) -> None:
        self._spark, self._tasks = spark, tasks
        #: Global views of rows that Spark does not know yet.
        self._views = views
        self.sparkContext = _BesideContext(spark.sparkContext, tasks)
        self.catalog = SimpleNamespace(dropGlobalTempView=self._drop)

    def newSession(self) -> _Beside:
        return _Beside(self._spark.newSession(), self._tasks, self._views)

    def createDataFrame(self, rows: Any, schema: str) -> _LateFrame:
        return _LateFrame(self._spark, rows, schema, self._views)

    def table(self, name: str) -> Any:
        return self._views.get(name) or self._spark.table(name)

    def _drop(self, name: str) -> bool:
        mine = self._views.pop(f"global_temp.{name}", None)
        return mine is not None or self._spark.catalog.dropGlobalTempView(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)
