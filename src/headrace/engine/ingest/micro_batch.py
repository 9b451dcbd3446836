"""The new rows of a stream in an epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation, SparkSession, functions

from headrace.names import quoted
from headrace.plan.nodes import Source


@dataclass(frozen=True)
class Batch:
    """A micro-batch of a stream, as Spark handed it over.

    ``files`` are the Parquet files that hold its rows and nothing else, where that is known: then
    tasks can read them without Spark.
    """

    frame: DataFrame
    number: int
    files: Sequence[str] | None = None


class StreamBatch:
    """A micro-batch in an epoch.

    A micro-batch lives in the session that Spark cloned for its query; only a global temporary
    view is seen from the engine's.
    """

    def __init__(
        self,
        batch: Batch,
        source: Source,
        key: str,
        session: SparkSession,
        expected_rows: int | None,
    ) -> None:
        self.source = source
        self.files = batch.files
        #: How many definitions read it.
        self.readers = 1
        self.expected_rows = expected_rows
        self._view = f"headrace_{key}"
        batch.frame.createOrReplaceGlobalTempView(self._view)
        self._session = session
        self._frame = session.table(f"global_temp.{self._view}")
        self._observation: Observation | None = None
        self._rows = self._frame
        self._kept = False

    def watch(self) -> None:
        """Watch the rows as Spark reads them next.

        This costs about as much as a simple aggregation of them, so it is left out where a
        definition that reads all rows can tell the same by itself.
        """
        self._observation = Observation()
        self._rows = self._frame.observe(self._observation, *_columns(self.source))

    def frame(self) -> DataFrame:
        """The rows for Spark, held in memory (or on local disk) if they are read again."""
        if self.readers > 1 and not self._kept:
            self._rows.persist(StorageLevel.MEMORY_AND_DISK)
            self._kept = True
        return self._rows

    def seen(self) -> dict[str, Any]:
        """What was watched while an action read the rows."""
        try:
            assert self._observation is not None
            return dict(self._observation.get)
        except Exception:
            # Spark found out that no row could pass, and did not read the input at all.
            return self.measure()

    def measure(self) -> dict[str, Any]:
        """Read the rows for the sake of watching, when nothing else is sure to read them."""
        row = (self._rows if self._kept else self._frame).agg(*_columns(self.source)).first()
        assert row is not None
        return row.asDict()

    def release(self) -> None:
        if self._kept:
            self._rows.unpersist()
        self._session.catalog.dropGlobalTempView(self._view)


def watch_of(source: Source) -> Mapping[str, str]:
    """What is counted of a stream's rows as they pass, in Spark SQL."""
    return {
        "rows": "count(*)",
        "null_times": f"count_if({quoted(source.time)} IS NULL)",
        "greatest": f"max(unix_millis({quoted(source.time)}))",
    }


def _columns(source: Source) -> list[Any]:
    return [functions.expr(text).alias(name) for name, text in watch_of(source).items()]
