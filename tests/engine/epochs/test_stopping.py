"""Stopping within a bound: an epoch that does not end is abandoned, and does no harm afterwards."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace import Headrace
from headrace.engine.checkpoint.files import LocalFiles
from headrace.engine.ingest import coordinator
from headrace.errors import CheckpointError, SinkError
from tests.support.script import check_error, refused

START = datetime(2024, 1, 1, tzinfo=UTC)
ROWS = [[(f"k{i % 3}", f * 10 + i) for i in range(5)] for f in range(3)]
EVERYTHING = Counter(v for rows in ROWS for _, v in rows)
#: A join of many pairs, each of which takes Spark a while. It does end at last: a task that only
#: computes does not notice that it was cancelled, and keeps its core from the tests that follow.
TAKES_LONG = (
    "SELECT COUNT(*) AS n FROM bids AS a JOIN bids AS b ON a.ts BETWEEN b.ts - INTERVAL 1 DAY "
    "AND b.ts AND levenshtein(repeat(a.k, 400), repeat(concat(b.k, b.v), 200)) = 7 "
    "GROUP BY landmark(a.ts)"
)


@pytest.fixture
def bids(spark: SparkSession, tmp_path: Path) -> Path:
    folder = tmp_path / "bids"
    folder.mkdir()
    for number, rows in enumerate(ROWS):
        add_file(folder, number, rows)
    return folder


def add_file(folder: Path, number: int, rows: list[tuple[str, int]]) -> None:
    file = folder / f"{number}.json"
    texts = [
        json.dumps({"k": k, "v": v, "ts": (START + timedelta(seconds=v)).isoformat()})
        for k, v in rows
    ]
    file.write_text("\n".join(texts))
    os.utime(file, (1_700_000_000 + number,) * 2)


def engine_over(spark: SparkSession, bids: Path, **settings: str) -> Headrace:
    session = spark.newSession()
    # A sink that fails is not tried again, so that what is told is what it said first.
    session.conf.set("spark.headrace.sink.retryPause", "1 minute")
    session.conf.set("spark.headrace.sink.lastTries", "1")
    for key, value in settings.items():
        session.conf.set(f"spark.headrace.{key.replace('_', '.')}", value)
    hr = Headrace(session, checkpoint=str(bids.parent / "state"))
    reader = session.readStream.schema("k STRING, v BIGINT, ts TIMESTAMP")
    hr.stream("bids", reader.option("maxFilesPerTrigger", 1).json(str(bids)), time="ts")
    return hr


class Taker:
    """A foreachBatch function that takes rows, and hangs where it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, list[int]]] = []
        self.hang_in: set[int] = set()
        self.entered = threading.Event()
        self.free = threading.Event()

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        if epoch in self.hang_in:
            self.hang_in.discard(epoch)
            self.entered.set()
            self.free.wait(60)
        self.calls.append((epoch, sorted(row["v"] for row in frame.collect())))

    def values(self) -> Counter[int]:
        """By epoch, what came last: a function that writes under the number is exactly-once."""
        return Counter(v for values in dict(self.calls).values() for v in values)


@pytest.fixture
def taker() -> Iterator[Taker]:
    one = Taker()
    yield one
    one.free.set()


def start_rows(hr: Headrace, taker: Callable[[DataFrame, int], None]) -> Any:
    query = hr.sql("SELECT k, v FROM bids")
    return query.writeStream.queryName("rows").foreachBatch(taker).start()


def start_files(hr: Headrace, name: str, folder: Path) -> Any:
    query = hr.sql("SELECT k, v FROM bids")
    return query.writeStream.queryName(name).format("parquet").option("path", str(folder)).start()


def values_in(spark: SparkSession, folder: Path) -> Counter[int]:
    return Counter(row["v"] for row in spark.read.parquet(str(folder)).collect())


def commits(bids: Path) -> list[str]:
    return sorted(p.name for p in (bids.parent / "state" / "epochs").glob("*.commit"))


def lease(bids: Path) -> dict[str, Any]:
    file = max((bids.parent / "state" / "leases").glob("*.lease"))
    body: dict[str, Any] = json.loads(file.read_text())
    return body


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "_GRACE", 0.5)


def test_an_epoch_that_ends_in_time_is_finished(
    spark: SparkSession, bids: Path, taker: Taker
) -> None:
    hr = engine_over(spark, bids)
    start_rows(hr, taker)
    taker.hang_in = {2}
    hr.start()
    assert taker.entered.wait(60)
    threading.Timer(0.5, taker.free.set).start()
    assert hr.stop(timeout=60) is True
    assert not hr.isActive
    assert taker.calls[-1][0] == 2
    assert len(commits(bids)) == 2
    hr.start(availableNow=True)
    hr.awaitTermination()
    assert [epoch for epoch, _ in taker.calls] == [1, 2, 3]
    assert taker.values() == EVERYTHING


def test_a_function_that_hangs_is_left_behind_and_does_no_harm(
    spark: SparkSession, bids: Path, taker: Taker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    quick(monkeypatch)
    hr = engine_over(spark, bids)
    taker.hang_in = {2}
    start_rows(hr, taker)
    for name in ("a", "z"):
        start_files(hr, name, tmp_path / name)
    query = hr.sql("SELECT k, v FROM bids")
    query.writeStream.queryName("kept").format("memory").start()
    hr.start()
    assert taker.entered.wait(60)
    began = time.monotonic()
    assert hr.stop(timeout=0.2) is False
    assert time.monotonic() - began < 10
    assert not hr.isActive
    assert len(commits(bids)) == 1
    assert lease(bids)["released"]

    # The function still hangs: no second call of it meets the first. The others go on.
    hr.start(availableNow=True)
    check_error(
        refused(hr.awaitTermination), "SINK_FAILED", "'rows'", "has not returned from epoch 2"
    )
    assert [epoch for epoch, _ in taker.calls] == [1]
    before = commits(bids)
    # Now it wakes up: its own rows come late, and once more under their number.
    taker.free.set()
    time.sleep(1)
    assert commits(bids) == before
    hr.start(availableNow=True)
    hr.awaitTermination()
    assert [epoch for epoch, _ in taker.calls] == [1, 2, 2, 3]
    assert taker.values() == EVERYTHING
    for name in ("a", "z"):
        assert values_in(spark, tmp_path / name) == EVERYTHING
    assert Counter(r["v"] for r in hr._spark.table("kept").collect()) == EVERYTHING


def test_what_woke_up_and_what_runs_then(
    spark: SparkSession, bids: Path, taker: Taker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that was left behind wakes up while the engine runs again."""
    quick(monkeypatch)
    hr = engine_over(spark, bids)
    taker.hang_in = {1}
    start_rows(hr, taker)
    hr.start()
    assert taker.entered.wait(60)
    left = hr._engine._coordinator
    assert hr.stop(timeout=0) is False
    assert left.left_behind
    taker.free.set()
    while left._thread.is_alive():
        time.sleep(0.05)
    assert not commits(bids)
    hr.start(availableNow=True)
    hr.awaitTermination()
    assert [epoch for epoch, _ in taker.calls] == [1, 1, 2, 3]
    assert taker.values() == EVERYTHING


def test_a_query_that_does_not_end_is_cancelled(
    spark: SparkSession, bids: Path, tmp_path: Path
) -> None:
    many = [("k", 100 + i) for i in range(300)]
    add_file(bids, 0, many)
    hr = engine_over(spark, bids)
    hr.sql(TAKES_LONG).writeStream.queryName("heavy").format("noop").outputMode("update").start()
    start_files(hr, "rows", tmp_path / "out")
    hr.start()
    wait_for_jobs(spark)
    began = time.monotonic()
    assert hr.stop(timeout=0.5) is False
    assert not hr._engine._coordinator.left_behind, "the thread ends when its jobs are cancelled"
    assert time.monotonic() - began < 10
    assert lease(bids)["released"]
    assert commits(bids) == []
    assert hr.lastProgress is None

    # Without the query that never ends, the same checkpoint goes on with the same batches.
    other = engine_over(spark, bids, allowQueryChange="true")
    start_files(other, "rows", tmp_path / "out")
    other.start(availableNow=True)
    other.awaitTermination()
    rest = [v for rows in ROWS[1:] for _, v in rows]
    assert values_in(spark, tmp_path / "out") == Counter([v for _, v in many] + rest)


def wait_for_jobs(spark: SparkSession) -> None:
    """Until a job has run for a second: the epoch is in the midst of it."""
    tracker = spark.sparkContext.statusTracker()
    since: dict[int, float] = {}
    until = time.monotonic() + 60
    while time.monotonic() < until:
        active = tracker.getActiveJobsIds()
        since = {job: since.get(job, time.monotonic()) for job in active}
        if any(time.monotonic() - began > 1 for began in since.values()):
            return
        time.sleep(0.1)
    raise AssertionError("no job runs")


class HangingFiles:
    """Local files that hang in one operation on a path, once."""

    def __init__(self, operation: str, part: str) -> None:
        self.operation, self.part = operation, part
        self.entered, self.free = threading.Event(), threading.Event()
        self._real = {n: getattr(LocalFiles, n) for n in (operation,)}

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = self._real[self.operation]

        def hang(files: LocalFiles, path: str, *rest: Any) -> Any:
            if self.part in path and not self.entered.is_set():
                self.entered.set()
                self.free.wait(60)
            return real(files, path, *rest)

        monkeypatch.setattr(LocalFiles, self.operation, hang)


@pytest.mark.parametrize(
    ("operation", "part", "committed"),
    [("create", "0000000002.commit", True), ("write", "0000000002.intent", False)],
)
def test_storage_that_hangs_keeps_the_checkpoint_until_it_answers(
    spark: SparkSession,
    bids: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
    part: str,
    committed: bool,
) -> None:
    quick(monkeypatch)
    hanging = HangingFiles(operation, part)
    hanging.install(monkeypatch)
    hr = engine_over(spark, bids)
    start_files(hr, "rows", tmp_path / "out")
    hr.start()
    assert hanging.entered.wait(60)
    assert hr.stop(timeout=0) is False
    assert not lease(bids)["released"], "what hangs may still be done"
    error = refused(lambda: hr.start(availableNow=True))
    assert isinstance(error, CheckpointError)
    check_error(error, "CHECKPOINT_IN_USE", "still hangs", part)
    check_error(
        refused(lambda: other_engine(spark, bids, tmp_path).start(availableNow=True)),
        "CHECKPOINT_IN_USE",
        "another engine of this process",
    )
    hanging.free.set()
    until = time.monotonic() + 20
    while not lease(bids)["released"]:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert len(commits(bids)) == (2 if committed else 1)
    hr.start(availableNow=True)
    hr.awaitTermination()
    assert values_in(spark, tmp_path / "out") == EVERYTHING
    assert len(commits(bids)) == 3


def other_engine(spark: SparkSession, bids: Path, tmp_path: Path) -> Headrace:
    hr = engine_over(spark, bids)
    start_files(hr, "rows", tmp_path / "out")
    return hr


def test_two_that_stop_at_once(
    spark: SparkSession, bids: Path, taker: Taker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for the epoch returns when another gives it up."""
    quick(monkeypatch)
    hr = engine_over(spark, bids)
    taker.hang_in = {1}
    start_rows(hr, taker)
    hr.start()
    assert taker.entered.wait(60)
    answers: list[bool] = []
    patient = threading.Thread(target=lambda: answers.append(hr.stop()))
    patient.start()
    time.sleep(0.2)
    assert hr.stop(timeout=0) is False
    patient.join(10)
    assert answers == [False]
    assert hr.awaitTermination(timeout=0) is True


# A bound on the time of a function


def test_a_function_that_takes_too_long_has_failed(
    spark: SparkSession, bids: Path, taker: Taker, tmp_path: Path
) -> None:
    hr = engine_over(spark, bids, sink_timeout="1 second")
    taker.hang_in = {2}
    handle = start_rows(hr, taker)
    start_files(hr, "others", tmp_path / "out")
    hr.start(availableNow=True)
    refused(hr.awaitTermination)
    error = handle.exception()
    assert isinstance(error, SinkError)
    check_error(error, "SINK_FAILED", "'rows'", "longer than 1 s", "epoch 2", "sink.timeout")
    assert values_in(spark, tmp_path / "out") == EVERYTHING


def test_the_spark_jobs_of_such_a_function_are_cancelled(spark: SparkSession, bids: Path) -> None:
    hr = engine_over(spark, bids, sink_timeout="2 seconds")
    ended: list[str] = []

    def sleep(frame: DataFrame, epoch: int) -> None:
        try:
            # A task that only computes may never look whether it is still wanted.
            asleep = "reflect('java.lang.Thread', 'sleep', 600000L) AS x"
            frame.sparkSession.range(2).selectExpr(asleep).collect()
        except Exception as error:
            ended.append(str(error))
            raise

    handle = start_rows(hr, sleep)
    hr.start(availableNow=True)
    check_error(refused(hr.awaitTermination), "SINK_FAILED", "longer than 2 s")
    assert handle.exception() is not None
    assert ended
    assert all("SPARK_JOB_CANCELLED" in text for text in ended)


def test_a_function_may_stop_the_engine(spark: SparkSession, bids: Path) -> None:
    """On whatever thread it is called, it does not wait for itself."""
    hr = engine_over(spark, bids, sink_timeout="30 seconds")
    start_rows(hr, lambda frame, epoch: hr.stop() and None)
    hr.start()
    assert hr.awaitTermination(timeout=30)
    assert len(commits(bids)) == 1


@pytest.mark.parametrize("timeout", ["0 seconds", "30 seconds"])
def test_what_a_function_raises_is_told_with_its_query_and_epoch(
    spark: SparkSession, bids: Path, timeout: str
) -> None:
    hr = engine_over(spark, bids, sink_timeout=timeout)
    reason = KeyError("no such account")

    def fail(frame: DataFrame, epoch: int) -> None:
        if epoch == 2:
            raise reason

    handle = start_rows(hr, fail)
    hr.start(availableNow=True)
    refused(hr.awaitTermination)
    error = handle.exception()
    assert isinstance(error, SinkError)
    assert "the function of query 'rows' failed in epoch 2: 'no such account'" in error.message
    assert error.__cause__ is not None
    assert error.__cause__.__cause__ is reason


def test_a_function_that_exits_is_a_failure_like_another(spark: SparkSession, bids: Path) -> None:
    hr = engine_over(spark, bids)

    def leave(frame: DataFrame, epoch: int) -> None:
        raise SystemExit(3)

    start_rows(hr, leave)
    hr.start(availableNow=True)
    check_error(refused(hr.awaitTermination), "SINK_FAILED", "epoch 1: SystemExit(3)")
