"""Headrace and plain Spark over the same files."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.harness.data import EVENTS_SCHEMA, EventFiles
from headrace.contestants import (
    StandingQuery,
    StreamFolder,
    open_session,
    refused_by_native,
    run_headrace,
    run_native,
)
from headrace.errors import QueryError
from headrace.native.compare import difference_between

pytestmark = pytest.mark.spark


def test_one_run_of_each_contestant(spark: SparkSession, tmp_path: Path) -> None:
    events = EventFiles(rows=2_000, files=2, keys=5, step=60).write(tmp_path / "events")
    stream = StreamFolder("events", events, EVENTS_SCHEMA, files_per_batch=1)
    queries = [
        StandingQuery("windows", "SELECT k, window, SUM(v) s FROM events GROUP BY k, "
                      "window(ts, '1 minute')"),
        # Not to be decided from the files' statistics, or plain Spark would not read any row.
        StandingQuery("nothing", "SELECT k, v FROM events WHERE v % 2 = 2"),
    ]  # fmt: skip
    epochs: list[int] = []
    headrace = run_headrace(spark, [stream], queries, tmp_path, epochs.append)
    native = run_native(spark, [stream], queries, tmp_path)
    # Two minutes of events with ten seconds of delay close the first minute of each key.
    assert headrace.results["windows"].num_rows == 5
    assert headrace.results["nothing"].num_rows == 0
    assert difference_between(native.results, headrace.results) is None
    # One ingest for both queries; plain Spark reads the stream once for each.
    assert (len(headrace.batch_seconds), len(native.batch_seconds)) == (2, 4)
    assert len(headrace.start_to_start) == 1
    assert len(headrace.epoch_seconds) == 2
    assert 0 < sum(headrace.batch_seconds) <= headrace.seconds
    assert {"ingest", "emit", "commit", "total"} <= set(headrace.phases)


def test_a_query_that_fails_is_told_of(spark: SparkSession, tmp_path: Path) -> None:
    events = EventFiles(rows=10, files=1).write(tmp_path / "events")
    stream = StreamFolder("events", events, EVENTS_SCHEMA)
    broken = StandingQuery("broken", "SELECT k DIV (k - k) AS x FROM events")
    with pytest.raises(QueryError, match="broken"):
        run_headrace(spark, [stream], [broken], tmp_path)


def test_what_plain_spark_cannot_do_is_told(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    stream = StreamFolder("events", tmp_path / "events", EVENTS_SCHEMA)
    queries = [
        StandingQuery("can", "SELECT k FROM events"),
        StandingQuery("cannot", "SELECT k, COUNT(*) n FROM events GROUP BY k, trailing(ts, '1 s')"),
    ]
    refused = refused_by_native(open_session(spark, [stream], None), queries)
    assert list(refused) == ["cannot"]
    assert "Spark has no window" in refused["cannot"]
