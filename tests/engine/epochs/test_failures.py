"""What breaks while an engine runs: sinks, expressions, sources, disks. Each ends in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from tests.support.compare import assert_same_rows
from tests.support.script import (
    AddData,
    Advance,
    Check,
    CheckAnswer,
    CheckEpochs,
    CheckProgress,
    ExpectError,
    Restart,
    Run,
    Stage,
    StartQuery,
    Stop,
    Stream,
    at,
    check_error,
    play,
    refused,
    span,
)
from tests.support.stage import read_epochs

BIDS = Stream("bids", "k string, v bigint, ts timestamp")
COUNT = "SELECT k, window, COUNT(*) AS n FROM bids GROUP BY k, window(ts, '10 seconds')"


def test_null_times_are_counted_and_dropped(spark: SparkSession, tmp_path: Path) -> None:
    play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("rows", "SELECT k, v FROM bids"),
        StartQuery("so_far", "SELECT COUNT(*) AS n FROM bids GROUP BY landmark(ts)"),
        AddData("bids", ("a", 1, None), ("b", 2, 3), ("c", 3, None)),
        AddData("bids", ("d", 4, None)),
        Advance(),
        CheckEpochs("rows", [("b", 2)], []),
        CheckEpochs("so_far", [(1,)], []),
        CheckProgress("rows", (("nullTimes", 3), ("lateRows", 0))),
        CheckProgress("so_far", (("nullTimes", 3), ("lateRows", 0))),
    )


def test_a_failing_expression_hurts_its_own_query_only(spark: SparkSession, tmp_path: Path) -> None:
    """All of them share the rows or the panes of one stream."""
    grouped = " FROM bids {} GROUP BY k, window(ts, '10 seconds')"
    good = {
        "sums": "SELECT k, window, SUM(v) AS n" + grouped.format(""),
        "distinct": "SELECT k, window, COUNT(DISTINCT v) AS n" + grouped.format(""),
    }
    bad = {
        "in_panes": "SELECT k, window, SUM(CAST(k AS BIGINT)) AS n" + grouped.format(""),
        "in_rows": "SELECT k, window, COUNT(DISTINCT v) AS n"
        + grouped.format("WHERE CAST(k AS BIGINT) > 0"),
        "in_output": "SELECT 10 DIV v AS n, ts FROM bids",
    }
    stage = play(
        spark,
        tmp_path,
        [BIDS],
        *(StartQuery(name, text) for name, text in {**good, **bad}.items()),
        AddData("bids", ("1", 5, 1), ("1", 5, 12)),
        AddData("bids", ("x", 0, 13), ("1", 7, 21)),
        AddData("bids", ("1", 7, 31)),
        ExpectError(Advance(), "QUERY_FAILED", "(failed, too: in_"),
        CheckEpochs(
            "sums",
            [("1", span(0, 10), 5)],
            [("1", span(10, 20), 5), ("x", span(10, 20), 0)],
            [("1", span(20, 30), 7)],
        ),
        CheckEpochs(
            "distinct",
            [("1", span(0, 10), 1)],
            [("1", span(10, 20), 1), ("x", span(10, 20), 1)],
            [("1", span(20, 30), 1)],
        ),
        CheckAnswer("in_panes", ("1", span(0, 10), 1)),
        CheckAnswer("in_rows", ("1", span(0, 10), 1)),
        CheckAnswer("in_output", (2, at(1)), (2, at(12))),
    )
    for name in good:
        assert stage.handles[name].exception() is None
    for name in bad:
        reason = "DIVIDE_BY_ZERO" if name == "in_output" else "CAST_INVALID_INPUT"
        check_error(stage.handles[name].exception(), "QUERY_FAILED", f"{name!r} failed", reason)
        assert not stage.handles[name].isActive
    assert sorted(stage.commit()["queries"]) == sorted(good)


def test_one_of_two_queries_fails_in_their_common_panes(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = "SELECT k, window, SUM({}) AS n FROM bids GROUP BY k, window(ts, '10 seconds')"
    stage = play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("good", text.format("v")),
        StartQuery("bad", text.format("CAST(k AS BIGINT)")),
        AddData("bids", ("1", 5, 1)),
        AddData("bids", ("x", 5, 2), ("1", 7, 11)),
        ExpectError(Advance(), "QUERY_FAILED", "query 'bad' failed"),
        CheckEpochs("good", [], [("1", span(0, 10), 5), ("x", span(0, 10), 5)]),
        CheckAnswer("bad"),
    )
    check_error(stage.handles["bad"].exception(), "QUERY_FAILED", "CAST_INVALID_INPUT")
    assert stage.handles["good"].exception() is None


def test_the_only_query_fails_and_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    """The epoch of the failure is not committed; once the data are mended it comes again."""
    bad = tmp_path / "in" / "bids" / "00001.parquet"

    def mend(stage: Stage) -> None:
        when = os.stat(bad).st_mtime
        parquet.write_table(BIDS.table([("b", 2, 2)]), bad)
        os.utime(bad, (when, when))

    play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("shares", "SELECT k, 10 DIV v AS n FROM bids"),
        AddData("bids", ("a", 1, 1)),
        AddData("bids", ("b", 0, 2)),
        AddData("bids", ("c", 5, 3)),
        ExpectError(Advance(), "QUERY_FAILED", "DIVIDE_BY_ZERO"),
        Check("it tells", lambda stage: stage.handles["shares"].status["message"] == "failed"),
        Check("one epoch counts", lambda stage: stage.last_epoch() == 1),
        Check("mended", mend),
        Restart(),
        Advance(),
        CheckEpochs("shares", [("a", 10)], [("b", 5)], [("c", 2)]),
    )


def test_a_source_that_disappears(spark: SparkSession, tmp_path: Path) -> None:
    """It takes its own queries with it; their state stays, and the others go on."""

    def connect(stage: Stage) -> None:
        stage.session.dataSource.register(vanishing_source())
        frame = stage.session.readStream.format("vanishing").load()
        stage.hr.stream("sensor", frame, time="ts")

    stage = play(
        spark,
        tmp_path,
        [BIDS],
        Check("connect", connect),
        StartQuery("counts", COUNT),
        StartQuery("heat", "SELECT v, ts FROM sensor"),
        StartQuery("hottest", "SELECT MAX(v) AS v FROM sensor GROUP BY landmark(ts)"),
        Run(),
        AddData("bids", ("a", 1, 1)),
        Check(
            "its queries fail",
            lambda stage: stage.wait_until(
                lambda: not any(stage.handles[n].isActive for n in ("heat", "hottest")),
                "the sensor to vanish",
            ),
        ),
        CheckAnswer("heat", (7, at(1))),
        AddData("bids", ("a", 1, 12)),
        Advance(),
        CheckAnswer("counts", ("a", span(0, 10), 1)),
        Stop(),
    )
    for name in ("heat", "hottest"):
        check_error(
            stage.handles[name].exception(),
            "STREAM_FAILED",
            "stream 'sensor' failed",
            "the sensor is gone",
            "start the engine again; it resumes where it was",
        )
    assert stage.handles["counts"].exception() is None
    assert sorted(stage.commit()["queries"]) == ["counts", "heat", "hottest"]


def vanishing_source() -> type[DataSource]:
    """A sensor that answers once. The classes are local, so that workers get them by value."""

    class Reader(SimpleDataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:
            return {"n": 0}

        def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
            if start["n"]:
                raise ConnectionError("the sensor is gone")
            return iter([(7, at(1))]), {"n": 1}

        def readBetweenOffsets(
            self, start: dict[str, int], end: dict[str, int]
        ) -> Iterator[tuple[Any, ...]]:
            return iter([(7, at(1))])

    class Vanishing(DataSource):
        @classmethod
        def name(cls) -> str:
            return "vanishing"

        def schema(self) -> str:
            return "v int, ts timestamp"

        def simpleStreamReader(self, schema: object) -> SimpleDataSourceStreamReader:
            return Reader()

    return Vanishing


def test_a_file_that_cannot_be_read(spark: SparkSession, tmp_path: Path) -> None:
    """Queries over other streams go on, and its own lose nothing: the batch comes again."""
    clicks = Stream("clicks", "page string, ts timestamp")
    file = tmp_path / "in" / "bids" / "00001.parquet"
    whole: list[bytes] = []

    def damage(_: Stage) -> None:
        whole.append(file.read_bytes())
        _rewrite(file, whole[0][: len(whole[0]) // 2])

    def mend(_: Stage) -> None:
        _rewrite(file, whole[0])

    def all_of_bids_have_failed(stage: Stage) -> None:
        for name in ("counts", "rows"):
            check_error(stage.handles[name].exception(), "STREAM_FAILED", "'bids'", "00001.parquet")
        assert stage.handles["pages"].exception() is None

    play(
        spark,
        tmp_path,
        [BIDS, clicks],
        StartQuery("counts", COUNT),
        StartQuery("rows", "SELECT k FROM bids"),
        StartQuery("pages", "SELECT page, ts FROM clicks"),
        AddData("bids", ("a", 1, 1)),
        AddData("clicks", ("home", 1)),
        Advance(),
        AddData("bids", ("a", 1, 12)),
        Check("the file is damaged", damage),
        AddData("clicks", ("help", 13)),
        AddData("clicks", ("home", 21)),
        ExpectError(Advance(), "STREAM_FAILED", "00001.parquet"),
        CheckAnswer("pages", ("home", at(1)), ("help", at(13)), ("home", at(21))),
        Check("they tell", all_of_bids_have_failed),
        Check("the file is mended", mend),
        Restart(),
        Advance(),
        CheckAnswer("pages", ("home", at(1)), ("help", at(13)), ("home", at(21))),
        CheckAnswer("rows", ("a",), ("a",)),
        CheckAnswer("counts", ("a", span(0, 10), 1)),
    )


def _rewrite(file: Path, content: bytes) -> None:
    when = os.stat(file).st_mtime
    file.write_bytes(content)
    os.utime(file, (when, when))


def test_a_folder_that_disappears_and_comes_back(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in" / "bids"

    def wait_for_a_look(stage: Stage) -> None:
        known = len(stage.hr.streamProgress("bids"))
        stage.wait_until(
            lambda: len(stage.hr.streamProgress("bids")) > known or not stage.hr.isActive,
            "Spark to look",
        )

    play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("rows", "SELECT k, v FROM bids"),
        Run(),
        AddData("bids", ("a", 1, 1)),
        Advance(),
        Check("the folder goes", lambda stage: shutil.rmtree(folder)),
        Check("Spark looks", wait_for_a_look),
        Check("and comes back", lambda stage: folder.mkdir()),
        AddData("bids", ("b", 2, 2)),
        Advance(),
        Stop(),
        CheckAnswer("rows", ("a", 1), ("b", 2)),
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mounting, capture_output=True).returncode:
        pytest.skip("this user may not mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(spark: SparkSession, tmp_path: Path, small_disk: Path) -> None:
    """The engine stops with one line; with room again it goes on, and nothing is lost."""
    stage = Stage(spark, tmp_path, {}, {"bids": BIDS})
    stage.checkpoint = small_disk / "checkpoint"
    stage.open()
    StartQuery(
        "totals", "SELECT k, SUM(v) AS n FROM bids GROUP BY k, landmark(ts)", format="results"
    ).play(stage)
    AddData("bids", *((f"{i:040d}", 1, 1) for i in range(20))).play(stage)
    Advance().play(stage)
    filler = small_disk / "filler"
    with open(filler, "wb") as file:
        status = os.statvfs(small_disk)
        file.write(b"x" * (status.f_bavail * status.f_frsize - 60_000))
    keys = [f"{os.urandom(20).hex()}" for i in range(5_000)]
    AddData("bids", *((key, 2, 2) for key in keys)).play(stage)
    error = refused(lambda: Advance().play(stage))
    check_error(error, "STORAGE_NOT_WRITABLE", "cannot write", "check that the disk has room")
    check_error(stage.handles["totals"].exception(), "STORAGE_NOT_WRITABLE", "cannot write")
    assert stage.last_epoch() == 1
    filler.unlink()
    Restart().play(stage)
    Advance().play(stage)
    expected = [(f"{i:040d}", 1) for i in range(20)] + [(key, 2) for key in keys]
    assert_same_rows(stage.answer("totals"), expected)


def test_a_disk_on_which_small_files_still_fit(
    spark: SparkSession, tmp_path: Path, small_disk: Path
) -> None:
    """What was not written can be computed, so it is the disk, and no query is blamed."""
    stage = Stage(spark, tmp_path, {}, {"bids": BIDS})
    stage.checkpoint = small_disk / "checkpoint"
    stage.open()
    by_key = "SELECT k, SUM(v) AS n FROM bids GROUP BY k, landmark(ts)"
    StartQuery("totals", by_key, format="results").play(stage)
    count = "SELECT COUNT(*) AS n FROM bids GROUP BY landmark(ts)"
    StartQuery("count", count, format="results").play(stage)
    AddData("bids", ("a", 1, 1)).play(stage)
    Advance().play(stage)
    filler = small_disk / "filler"
    with open(filler, "wb") as file:
        status = os.statvfs(small_disk)
        file.write(b"x" * (status.f_bavail * status.f_frsize - 200_000))
    keys = [f"{os.urandom(20).hex()}" for i in range(15_000)]
    AddData("bids", *((key, 2, 2) for key in keys)).play(stage)
    error = refused(lambda: Advance().play(stage))
    check_error(error, "STORAGE_NOT_WRITABLE", "/state/panes-", "No space left on device")
    assert stage.last_epoch() == 1
    filler.unlink()
    Restart().play(stage)
    Advance().play(stage)
    assert_same_rows(stage.answer("totals"), [("a", 1), *((key, 2) for key in keys)])
    assert_same_rows(stage.answer("count"), [(15_001,)])


def test_a_full_disk_under_a_sink(spark: SparkSession, tmp_path: Path, small_disk: Path) -> None:
    """The checkpoint has room: the rows wait there, and the queries go on."""
    stage = Stage(spark, tmp_path, {"spark.headrace.sink.lastTries": "1"}, {"bids": BIDS})
    stage.open()
    out = small_disk / "out"
    rows = "SELECT k, v FROM bids"
    StartQuery("healthy", rows, format="results").play(stage)
    StartQuery("full", rows, options=(("path", str(out)),)).play(stage)
    AddData("bids", ("a", 1, 1)).play(stage)
    Advance().play(stage)
    filler = small_disk / "filler"
    with open(filler, "wb") as file:
        status = os.statvfs(small_disk)
        file.write(b"x" * (status.f_bavail * status.f_frsize - 20_000))
    keys = [os.urandom(20).hex() for _ in range(5_000)]
    AddData("bids", *((key, 2, 2) for key in keys)).play(stage)
    error = refused(lambda: Advance().play(stage))
    check_error(error, "SINK_FAILED", "5000 rows of query 'full' wait for its sink")
    assert_same_rows(stage.answer("healthy"), [("a", 1), *((key, 2) for key in keys)])
    filler.unlink()
    Restart().play(stage)
    Advance().play(stage)
    assert_same_rows(read_epochs(str(out)), [("a", 1), *((key, 2) for key in keys)])
    stage.hr.stop()
