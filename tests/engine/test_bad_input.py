"""What users get wrong, and what breaks around them: each ends in one line that says what to do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from headrace import Headrace
from headrace.errors import HeadraceError
from tests.support.compare import assert_same_rows, spark_rows
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
    span,
)

pytestmark = pytest.mark.spark

BIDS = Stream("bids", "k string, v bigint, ts timestamp")
COLUMNS = "k string, v bigint, d date, other timestamp, local timestamp_ntz, ts timestamp"
WINDOW = "SELECT window, COUNT(*) AS n FROM bids GROUP BY window(ts, {})"
COUNT = "SELECT k, window, COUNT(*) AS n FROM bids GROUP BY k, window(ts, '10 seconds')"


def refused(action: Callable[[], object]) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        action()
    return caught.value


# What is refused before anything runs


@pytest.fixture(scope="module")
def frame(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    path = tmp_path_factory.mktemp("empty")
    return spark.readStream.schema(COLUMNS).parquet(str(path))


@pytest.fixture(scope="module")
def race(spark: SparkSession, frame: DataFrame) -> Headrace:
    """Two streams and no checkpoint: nothing here gets as far as to run."""
    race = Headrace(spark)
    race.stream("bids", frame, time="ts")
    race.stream("clicks", frame, time="ts")
    return race


@pytest.mark.parametrize(
    ("text", "condition", "words"),
    [
        ("SELECT k FROM bidz", "UNKNOWN_RELATION", "'bidz' (line 1, column 15) - did you mean"),
        ("SELECT kk FROM bids", "UNKNOWN_COLUMN", "no column 'kk' (line 1, column 8)"),
        ("SELECT k FROM bids WHERE v = true", "TYPE_MISMATCH", "bigint and boolean"),
        ("SELECT k FROM bids WHERE v", "NOT_A_CONDITION", "this is bigint"),
        (
            "SELECT b.k FROM bids b JOIN clicks c ON b.v = c.ts "
            "AND window(b.ts, '1 hour') = window(c.ts, '1 hour')",
            "TYPE_MISMATCH",
            "bigint and timestamp cannot be compared",
        ),
        (WINDOW.replace("ts", "other").format("'1 hour'"), "NOT_EVENT_TIME", "use ts"),
        (WINDOW.replace("ts", "v").format("'1 hour'"), "NOT_A_TIME", "v is bigint"),
        (WINDOW.format("'10 minuts'"), "INVALID_DURATION", "unknown unit 'minuts'"),
        (WINDOW.format("'soon'"), "INVALID_DURATION", "cannot read the duration 'soon'"),
        (WINDOW.format("'1 month'"), "INVALID_DURATION", "depends on the calendar"),
        (WINDOW.format("'0 seconds'"), "INVALID_DURATION", "length must be positive"),
        (WINDOW.format("'-5 seconds'"), "INVALID_DURATION", "length must be positive"),
        (WINDOW.format("'5 seconds', '0 seconds'"), "INVALID_DURATION", "slide must be positive"),
        (
            "SELECT session_window, COUNT(*) AS n FROM bids GROUP BY session_window(ts, '-1 hour')",
            "INVALID_DURATION",
            "gap must be positive",
        ),
        ("SELECT DISTINCT k FROM bids", "DISTINCT", "GROUP BY k, window(ts, '1 hour')"),
        ("SELECT k FROM bids ORDER BY k", "ORDER_BY", "sort the results where they are read"),
        (
            "SELECT k, COUNT(*) AS n FROM bids GROUP BY k",
            "GROUP_BY_WITHOUT_WINDOW",
            "add window(ts, '10 minutes')",
        ),
        (
            "SELECT b.k FROM bids b JOIN clicks c ON b.v < c.v",
            "JOIN_WITHOUT_KEY",
            "or b.ts BETWEEN a.ts - INTERVAL",
        ),
        ("SELEC k FROM bids", "SYNTAX_ERROR", "cannot be read near"),
        ("SELECT nonsense(k) AS x FROM bids", "UNKNOWN_FUNCTION", "no function nonsense()"),
    ],
)
def test_sql_that_cannot_be_a_query(race: Headrace, text: str, condition: str, words: str) -> None:
    check_error(refused(lambda: race.sql(text)), condition, words)


@pytest.mark.parametrize(
    ("arguments", "condition", "words"),
    [
        ({"time": "tss"}, "MISSING_TIME_COLUMN", "its columns are k, v, d, other, local, ts"),
        ({"time": "v"}, "WRONG_TIME_COLUMN", "is bigint, not timestamp"),
        ({"time": "d"}, "WRONG_TIME_COLUMN", "to_timestamp(d)"),
        ({"time": "local"}, "WRONG_TIME_COLUMN", "is timestamp_ntz, not timestamp"),
        ({"time": "ts", "delay": "soon"}, "INVALID_DURATION", "cannot read the duration 'soon'"),
        ({"time": "ts", "delay": "-1 second"}, "INVALID_STREAM", "is negative"),
        ({"time": "ts", "ttl": "0 seconds"}, "INVALID_DURATION", "must be positive"),
        ({"time": "ts", "name": "bids"}, "INVALID_STREAM", "there is a stream or table named"),
        ({"time": "ts", "name": "two words"}, "INVALID_STREAM", "use letters, digits and '_'"),
    ],
)
def test_streams_that_cannot_be_registered(
    race: Headrace, frame: DataFrame, arguments: dict[str, str], condition: str, words: str
) -> None:
    name = arguments.get("name", "other")
    options = {key: value for key, value in arguments.items() if key != "name"}
    check_error(refused(lambda: race.stream(name, frame, **options)), condition, words)


def test_frames_of_the_wrong_kind(race: Headrace, frame: DataFrame, spark: SparkSession) -> None:
    static = spark.createDataFrame([], COLUMNS)
    error = refused(lambda: race.stream("other", static, time="ts"))
    check_error(error, "INVALID_STREAM", "not a streaming DataFrame", "race.table")
    check_error(refused(lambda: race.table("other", frame)), "INVALID_STREAM", "race.stream")


def test_queries_that_cannot_start(race: Headrace, tmp_path: Path) -> None:
    query = race.sql("SELECT k, ts FROM bids")
    obstacle = tmp_path / "file"
    obstacle.touch()

    def start(kind: str, name: str = "q", **options: object) -> Callable[[], object]:
        return query.writeStream.queryName(name).format(kind).options(**options).start

    check_error(refused(start("parket")), "UNKNOWN_SINK", "did you mean 'parquet'?")
    check_error(refused(start("parquet")), "SINK_FAILED", "no path to write to")
    blocked = start("parquet", path=f"{obstacle}/out")
    check_error(refused(blocked), "SINK_FAILED", "cannot write to", "choose a folder")
    check_error(refused(lambda: query.writeStream.queryName("a/b")), "INVALID_QUERY", "'a/b'")
    mode = refused(lambda: query.writeStream.outputMode("complete"))
    check_error(mode, "INVALID_QUERY", "use 'append' or 'update'")
    handle = query.writeStream.queryName("twice").format("results").start()
    check_error(refused(start("results", "twice")), "DUPLICATE_QUERY", "named 'twice' already")
    used = refused(lambda: race.drop("bids"))
    check_error(used, "INVALID_STREAM", "read by twice", "stop these queries first")
    check_error(refused(lambda: race.results("other")), "INVALID_QUERY", "these do: twice")
    no_checkpoint = refused(lambda: race.start(availableNow=True))
    check_error(no_checkpoint, "INVALID_CHECKPOINT", "Headrace(spark, checkpoint='state/')")
    handle.stop()
    check_error(refused(lambda: race.start(availableNow=True)), "INVALID_QUERY", "no query to run")
    both = refused(lambda: race.start(availableNow=True, processingTime="1 second"))
    check_error(both, "INVALID_QUERY", "not both")
    check_error(refused(lambda: race.start(processingTime="soon")), "INVALID_DURATION", "'soon'")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("epoch.gatherTimeot", "1 second", "did you mean spark.headrace.epoch.gatherTimeout?"),
        ("driverRows", "many", "expected a whole number, zero or more"),
        ("epoch.alignment", "soon", "expected a duration"),
        ("allowQueryChange", "perhaps", "expected true or false"),
        ("optimizer.disabledRules", "all_of_them", "expected names of rules"),
    ],
)
def test_settings_that_make_no_sense(spark: SparkSession, key: str, value: str, words: str) -> None:
    session = spark.newSession()
    session.conf.set(f"spark.headrace.{key}", value)
    check_error(refused(lambda: Headrace(session)), "INVALID_SETTING", words)


# Checkpoints that do not fit


@pytest.fixture(scope="module")
def finished(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """A race that has run two epochs."""
    return play(
        spark,
        tmp_path_factory.mktemp("finished"),
        [BIDS],
        StartQuery("counts", COUNT),
        AddData("bids", ("a", 1, 1)),
        AddData("bids", ("a", 1, 12)),
        Advance(),
        CheckAnswer("counts", ("a", span(0, 10), 1)),
    )


def resume(
    finished: Stage, checkpoint: Path, queries: dict[str, str], **settings: str
) -> HeadraceError:
    """Start other queries, or other files, with a copy of the checkpoint."""
    stage = Stage(finished.spark, finished.folder, settings, dict(finished.streams))
    stage.checkpoint = checkpoint
    stage.open()
    for name, text in queries.items():
        stage.race.sql(text).writeStream.queryName(name).format("results").start()
    return refused(lambda: stage.race.start(availableNow=True))


@pytest.fixture
def copied(finished: Stage, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished.checkpoint, tmp_path / "copied"))


def test_checkpoint_of_another_query_set(finished: Stage, copied: Path) -> None:
    error = resume(finished, copied, {"other": COUNT})
    check_error(error, "CHECKPOINT_QUERIES", "holds query 'counts', which was not started")


def test_checkpoint_of_another_query_with_this_name(finished: Stage, copied: Path) -> None:
    error = resume(finished, copied, {"counts": COUNT.replace("10 seconds", "20 seconds")})
    check_error(
        error, "CHECKPOINT_QUERIES", "holds another query named 'counts'", "allowQueryChange"
    )


def test_checkpoint_of_another_version(finished: Stage, copied: Path) -> None:
    mark = copied / "headrace.json"
    mark.write_text(json.dumps({**json.loads(mark.read_text()), "format": 99}))
    error = resume(finished, copied, {"counts": COUNT})
    check_error(error, "CHECKPOINT_VERSION", "written in format 99")


def test_checkpoint_that_is_something_else(finished: Stage, tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").touch()
    error = resume(finished, tmp_path, {"counts": COUNT})
    check_error(error, "INVALID_CHECKPOINT", "is not a Headrace checkpoint", "'holiday.jpg'")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("headrace.json", text) for text in ("", "{", "[]")),
        *(("epochs/0000000002.commit", text) for text in ("", "{", "[]", '{"format": 1}')),
    ],
)
def test_damaged_checkpoint(finished: Stage, copied: Path, name: str, text: str) -> None:
    (copied / name).write_text(text)
    error = resume(finished, copied, {"counts": COUNT})
    check_error(error, "INVALID_CHECKPOINT", name, "is damaged")


def test_checkpoint_without_the_log_of_a_stream(finished: Stage, copied: Path) -> None:
    shutil.rmtree(copied / "ingest" / "bids")
    error = resume(finished, copied, {"counts": COUNT})
    check_error(error, "CHECKPOINT_GAP", "Spark's log of it is gone", "restore")


@pytest.mark.parametrize("below", ["", "/checkpoint"])
def test_checkpoint_that_cannot_be_written(finished: Stage, tmp_path: Path, below: str) -> None:
    obstacle = tmp_path / "file"
    obstacle.touch()
    error = resume(finished, Path(f"{obstacle}{below}"), {"counts": COUNT})
    check_error(error, "STORAGE_NOT_WRITABLE", "cannot write", "check that the disk has room")


def test_checkpoint_resumed_with_other_queries_on_purpose(
    spark: SparkSession, tmp_path: Path
) -> None:
    play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("counts", COUNT),
        AddData("bids", ("a", 1, 1)),
        Advance(),
        Check("another query", lambda stage: stage.queries.clear()),
        Restart((("spark.headrace.allowQueryChange", "true"),)),
        StartQuery("rows", "SELECT k, v, ts FROM bids"),
        AddData("bids", ("a", 2, 12)),
        Advance(),
        CheckAnswer("rows", ("a", 2, at(12))),
        Check(
            "the first is forgotten, with its state",
            lambda stage: (
                list(stage.commit()["queries"]) == ["rows"] and not stage.commit()["arrangements"]
            ),
        ),
    )


# What breaks while a race runs


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
        Advance(),
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
        Advance(),
        CheckEpochs("good", [], [("1", span(0, 10), 5), ("x", span(0, 10), 5)]),
        CheckAnswer("bad"),
    )
    check_error(stage.handles["bad"].exception(), "QUERY_FAILED", "CAST_INVALID_INPUT")
    assert stage.handles["good"].exception() is None


def test_the_only_query_fails_and_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    """The epoch of the failure is not committed; once the sink is mended its rows come again."""
    broken = True
    taken: dict[int, list[tuple[Any, ...]]] = {}

    def write(frame: DataFrame, epoch: int) -> None:
        if broken and epoch == 2:
            raise OSError("the printer\nis on fire")
        taken[epoch] = spark_rows(frame)

    def mend(_: Stage) -> None:
        nonlocal broken
        broken = False

    query = StartQuery("printed", "SELECT k, v FROM bids", format="foreachBatch", function=write)
    play(
        spark,
        tmp_path,
        [BIDS],
        query,
        AddData("bids", ("a", 1, 1)),
        AddData("bids", ("b", 2, 2)),
        AddData("bids", ("c", 3, 3)),
        ExpectError(Advance(), "QUERY_FAILED", "'printed' failed: the printer is on fire"),
        Check("it tells", lambda stage: stage.handles["printed"].status["message"] == "failed"),
        Check("one epoch counts", lambda stage: stage.last_epoch() == 1),
        Check("mended", mend),
        Restart(),
        Advance(),
    )
    assert taken == {1: [("a", 1)], 2: [("b", 2)], 3: [("c", 3)]}


def test_a_sink_whose_folder_becomes_a_file(spark: SparkSession, tmp_path: Path) -> None:
    def replace_folder(stage: Stage) -> None:
        shutil.rmtree(stage.output("lost"))
        Path(stage.output("lost")).touch()

    stage = play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("kept", "SELECT k, v FROM bids"),
        StartQuery("lost", "SELECT k, v FROM bids"),
        AddData("bids", ("a", 1, 1)),
        Advance(),
        Check("a file in the way", replace_folder),
        AddData("bids", ("b", 2, 2)),
        Advance(),
        CheckAnswer("kept", ("a", 1), ("b", 2)),
    )
    error = stage.handles["lost"].exception()
    assert isinstance(error, HeadraceError)
    check_error(error, error.condition, "lost")
    assert error.condition in ("QUERY_FAILED", "SINK_FAILED")


def test_a_source_that_disappears(spark: SparkSession, tmp_path: Path) -> None:
    """It takes its own queries with it; their state stays, and the others go on."""

    def connect(stage: Stage) -> None:
        stage.session.dataSource.register(vanishing_source())
        frame = stage.session.readStream.format("vanishing").load()
        stage.race.stream("sensor", frame, time="ts")

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
            "start the race again; it resumes where it was",
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
    clicks = Stream("clicks", "page string, ts timestamp")
    stage = play(
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
        Check(
            "the file is damaged",
            lambda stage: (tmp_path / "in" / "bids" / "00001.parquet").write_text("PAR"),
        ),
        AddData("clicks", ("help", 13)),
        AddData("clicks", ("home", 21)),
        Advance(),
        CheckAnswer("pages", ("home", at(1)), ("help", at(13)), ("home", at(21))),
    )
    for name in ("counts", "rows"):
        error = stage.handles[name].exception()
        assert isinstance(error, HeadraceError)
        check_error(error, error.condition, "00001.parquet")
        assert error.condition in ("QUERY_FAILED", "STREAM_FAILED")


def test_a_folder_that_disappears_and_comes_back(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in" / "bids"

    def wait_for_a_look(stage: Stage) -> None:
        known = len(stage.race.streamProgress("bids"))
        stage.wait_until(
            lambda: len(stage.race.streamProgress("bids")) > known or not stage.race.isActive,
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
    """The race stops with one line; with room again it goes on, and nothing is lost."""
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
