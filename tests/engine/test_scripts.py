"""The life of streams and queries, step by step, through the public API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.plan.nodes import OutputMode
from tests.support.compare import assert_same_rows, spark_rows
from tests.support.oracle import run_epochs
from tests.support.script import (
    AddData,
    AddStream,
    Advance,
    Check,
    CheckAnswer,
    CheckEpochs,
    CheckNewAnswer,
    CheckProgress,
    Crash,
    Restart,
    Run,
    Stage,
    StartQuery,
    Step,
    Stop,
    StopQuery,
    Stream,
    at,
    play,
    read_epoch,
    span,
)

pytestmark = pytest.mark.spark

BIDS = Stream("bids", "k string, v bigint, ts timestamp", delay="5 seconds")
LEFT = Stream("l", "k string, ts timestamp", ttl="15 seconds")
RIGHT = Stream("r", "k string, ts timestamp", ttl="15 seconds")

TUMBLING = (
    "SELECT k, window, COUNT(*) AS n, SUM(v) AS total FROM bids "
    "GROUP BY k, window(ts, '10 seconds')"
)
HOPPING = TUMBLING.replace("'10 seconds'", "'10 seconds', '5 seconds'")
SIXTY = (range(30), range(30, 60))
COUNT = "SELECT k, window, COUNT(*) AS n FROM bids GROUP BY k, window(ts, '10 seconds')"


def test_windows_close_once_and_late_rows_count_where_they_can(
    spark: SparkSession, tmp_path: Path
) -> None:
    play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("tumbling", TUMBLING),
        StartQuery("hopping", HOPPING),
        AddData("bids", ("a", 1, 1), ("b", 2, 9)),  # watermark 4
        AddData("bids", ("a", 3, 12), ("a", 4, 3)),  # 7
        AddData("bids", ("a", 5, 16)),  # 11: closes [0, 10)
        AddData("bids", ("b", 6, 8), ("b", 7, 14), ("c", 1, 15)),  # 8 is late for [0, 10)
        AddData("bids", ("x", 9, None), ("a", 0, 25)),  # 20: closes [10, 20)
        Advance(),
        CheckEpochs(
            "tumbling",
            [],
            [],
            [("a", span(0, 10), 2, 5), ("b", span(0, 10), 1, 2)],
            [],
            [("a", span(10, 20), 2, 8), ("b", span(10, 20), 1, 7), ("c", span(10, 20), 1, 1)],
        ),
        CheckEpochs(
            "hopping",
            [],
            [("a", span(-5, 5), 2, 5)],
            [("a", span(0, 10), 2, 5), ("b", span(0, 10), 1, 2)],
            [],
            [
                ("a", span(5, 15), 1, 3),
                ("b", span(5, 15), 3, 15),
                ("a", span(10, 20), 2, 8),
                ("b", span(10, 20), 1, 7),
                ("c", span(10, 20), 1, 1),
            ],
        ),
        CheckProgress(
            "tumbling",
            (("lateRows", 1), ("nullTimes", 1), ("numInputRows", 10), ("numOutputRows", 5)),
        ),
        CheckProgress("hopping", (("lateRows", 1), ("nullTimes", 1), ("numOutputRows", 8))),
        Check(
            "each report tells the watermark",
            lambda stage: (
                [r["watermark"][17:19] for r in stage.handles["hopping"].recentProgress]
                == ["04", "07", "11", "11", "20"]
            ),
        ),
    )


def test_results_that_change(spark: SparkSession, tmp_path: Path) -> None:
    """Update mode, trailing and landmark windows, and result tables that keep the newest rows."""
    trailing = "SELECT k, window, COUNT(*) AS n FROM bids GROUP BY k, trailing(ts, '10 seconds')"
    landmark = "SELECT k, COUNT(*) AS n FROM bids GROUP BY k, landmark(ts)"
    play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("update", COUNT, mode="update"),
        StartQuery("table", COUNT, format="results", mode="update"),
        StartQuery("closed", COUNT, format="results"),
        StartQuery("trailing", trailing),
        StartQuery("last", trailing, format="results"),
        StartQuery("landmark", landmark),
        StartQuery("so_far", landmark, format="results"),
        AddData("bids", ("a", 1, 1), ("b", 1, 9)),  # watermark 4
        AddData("bids", ("a", 1, 3)),
        AddData("bids", ("a", 1, 16)),  # 11
        AddData("bids", ("a", 1, 12), ("c", 1, 8)),  # 8 is late
        AddData("bids", ("d", 1, 30)),  # 25
        Advance(),
        CheckEpochs(
            "update",
            [("a", span(0, 10), 1), ("b", span(0, 10), 1)],
            [("a", span(0, 10), 2)],
            [("a", span(10, 20), 1)],
            [("a", span(10, 20), 2)],
            [("d", span(30, 40), 1)],
        ),
        CheckAnswer(
            "table",
            ("a", span(0, 10), 2),
            ("b", span(0, 10), 1),
            ("a", span(10, 20), 2),
            ("d", span(30, 40), 1),
        ),
        CheckAnswer("closed", ("a", span(0, 10), 2), ("b", span(0, 10), 1), ("a", span(10, 20), 2)),
        CheckEpochs(
            "trailing",
            [("a", span(-6, 4), 1)],
            [],
            [("a", span(1, 11), 2), ("b", span(1, 11), 1)],
            [],
            [("a", span(15, 25), 1)],
        ),
        CheckAnswer("last", ("a", span(15, 25), 1)),
        CheckEpochs(
            "landmark",
            [("a", 1), ("b", 1)],
            [("a", 2)],
            [("a", 3)],
            [("a", 4), ("c", 1)],
            [("d", 1)],
        ),
        CheckAnswer("so_far", ("a", 4), ("b", 1), ("c", 1), ("d", 1)),
        Restart(),
        CheckAnswer("so_far", ("a", 4), ("b", 1), ("c", 1), ("d", 1)),
        AddData("bids", ("d", 1, 31), ("b", 1, 2)),
        Advance(),
        CheckNewAnswer("update", ("d", span(30, 40), 2)),
        CheckAnswer("so_far", ("a", 4), ("b", 2), ("c", 1), ("d", 2)),
    )


def test_sessions_across_epochs(spark: SparkSession, tmp_path: Path) -> None:
    play(
        spark,
        tmp_path,
        [Stream("bids", BIDS.columns, delay="10 seconds")],
        StartQuery(
            "visits",
            "SELECT k, session_window AS visit, COUNT(*) AS n, MAX(v) AS most FROM bids "
            "GROUP BY k, session_window(ts, '5 seconds')",
        ),
        AddData("bids", ("a", 1, 0), ("a", 2, 3)),  # watermark -7
        AddData("bids", ("a", 7, 8), ("b", 3, 9)),  # -1; 8 is exactly one gap after 3
        AddData("bids", ("a", 4, 20)),  # 10
        AddData("bids", ("b", 9, 4), ("b", 5, 6), ("a", 6, 24)),  # 14; 4 + 5 is late
        Advance(),
        CheckProgress("visits", (("lateRows", 1),)),
        Restart(),
        AddData("bids", ("a", 8, 40)),  # 30
        Advance(),
        CheckEpochs(
            "visits",
            [],
            [],
            [],
            [("a", span(0, 13), 3, 7), ("b", span(6, 14), 2, 5)],
            [("a", span(20, 29), 2, 6)],
        ),
    )


def test_joins_and_unions_of_streams_with_different_pace(
    spark: SparkSession, tmp_path: Path
) -> None:
    pair = "SELECT l.k AS lk, l.ts AS lt, r.k AS rk, r.ts AS rt FROM l {} JOIN r ON l.k = r.k"
    within = " AND r.ts BETWEEN l.ts - INTERVAL 5 SECONDS AND l.ts + INTERVAL 10 SECONDS"
    together = (
        "SELECT k, window, COUNT(*) AS n FROM (SELECT k, ts FROM l UNION ALL SELECT k, ts FROM r) "
        "AS u GROUP BY k, window(ts, '10 seconds')"
    )
    names = spark.createDataFrame([("a", "ash"), ("b", "birch")], "k string, name string")
    play(
        spark,
        tmp_path,
        [LEFT, RIGHT],
        StartQuery("inner", pair.format("INNER") + within),
        StartQuery("full", pair.format("FULL OUTER") + within),
        StartQuery("alive", pair.format("INNER")),
        StartQuery("union", together),
        StartQuery("named", "SELECT l.k, n.name, l.ts FROM l LEFT JOIN names n ON l.k = n.k"),
        AddData("l", ("a", 10), ("b", 12), ("x", 11)),
        AddData("r", ("a", 14), ("y", 15)),
        Advance(),  # watermark 12, that of l
        AddData("r", ("b", 5), ("b", 22), ("a", 13)),  # 5 is late
        Advance(),  # still 12
        AddData("l", ("b", 27)),
        Advance(),  # 22, that of r
        AddData("l", ("c", 40)),
        AddData("r", ("d", 41)),
        Advance(),  # 40
        AddData("l", ("e", 60), ("b", 61)),
        AddData("r", ("e", 62)),
        Advance(),  # 61
        CheckEpochs(
            "inner",
            [("a", at(10), "a", at(14))],
            [("b", at(12), "b", at(22)), ("a", at(10), "a", at(13))],
            [("b", at(27), "b", at(22))],
            [],
            [("e", at(60), "e", at(62))],
        ),
        CheckEpochs(
            "full",
            [("a", at(10), "a", at(14))],
            [("b", at(12), "b", at(22)), ("a", at(10), "a", at(13))],
            [
                ("b", at(27), "b", at(22)),
                ("x", at(11), None, None),
                (None, None, "y", at(15)),
            ],
            [],
            [
                ("e", at(60), "e", at(62)),
                ("c", at(40), None, None),
                (None, None, "d", at(41)),
            ],
        ),
        CheckEpochs(
            "alive",
            [("a", at(10), "a", at(14))],
            [
                ("b", at(12), "b", at(22)),
                ("b", at(12), "b", at(5)),
                ("a", at(10), "a", at(13)),
            ],
            [("b", at(27), "b", at(22)), ("b", at(27), "b", at(5))],
            [],
            [("e", at(60), "e", at(62))],
        ),
        CheckEpochs(
            "union",
            [],
            [],
            [
                ("a", span(10, 20), 3),
                ("b", span(10, 20), 1),
                ("x", span(10, 20), 1),
                ("y", span(10, 20), 1),
            ],
            [("b", span(20, 30), 2)],
            [("c", span(40, 50), 1), ("d", span(40, 50), 1)],
        ),
        CheckEpochs(
            "named",
            [("a", "ash", at(10)), ("b", "birch", at(12)), ("x", None, at(11))],
            [],
            [("b", "birch", at(27))],
            [("c", None, at(40))],
            [("e", None, at(60)), ("b", "birch", at(61))],
        ),
        CheckProgress("inner", (("lateRows", 1),)),
        CheckProgress("union", (("lateRows", 1),)),
        CheckProgress("alive", (("lateRows", 0),)),
        tables={"names": names},
    )


def test_streams_that_bring_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """A stream without files, and files without rows, hold results back and break nothing."""
    union = (
        "SELECT k, window, COUNT(*) AS n FROM (SELECT k, ts FROM l UNION ALL SELECT k, ts FROM r) "
        "AS u GROUP BY k, window(ts, '10 seconds')"
    )
    left_outer = (
        "SELECT l.k, l.ts, r.ts AS rt FROM l LEFT JOIN r ON l.k = r.k "
        "AND window(l.ts, '10 seconds') = window(r.ts, '10 seconds')"
    )
    play(
        spark,
        tmp_path,
        [LEFT, RIGHT],
        StartQuery("union", union),
        StartQuery("outer", left_outer),
        Advance(),
        Check("no epoch ran", lambda stage: stage.last_epoch() == 0),
        AddData("l", ("a", 1), ("b", 2)),
        Advance(),
        # A stream that has no watermark yet is behind all others: its batch goes first.
        AddData("l"),
        AddData("r"),
        Advance(),
        CheckEpochs("union", [], [], []),
        CheckEpochs("outer", [], [], []),
        AddData("l", ("a", 12)),
        AddData("r", ("b", 3), ("b", 15)),
        Advance(),
        CheckEpochs("union", [], [("a", span(0, 10), 1), ("b", span(0, 10), 2)]),
        CheckEpochs("outer", [("b", at(2), at(3))], [("a", at(1), None)]),
        AddData("l", (None, None)),
        Advance(),
        CheckEpochs("union", []),
        CheckProgress("union", (("nullTimes", 1), ("lateRows", 0))),
    )


def test_restarts_and_crashes_between_any_two_batches(spark: SparkSession, tmp_path: Path) -> None:
    """The same rows come out in the same epochs as without any interruption."""
    queries = {
        "closed": "SELECT k, window, COUNT(*) AS n FROM l "
        "GROUP BY k, window(ts, '10 seconds', '5 seconds')",
        "distinct": "SELECT window, COUNT(DISTINCT k) AS n, MAX(ts) AS newest FROM r "
        "GROUP BY window(ts, '10 seconds')",
        "visits": "SELECT k, session_window, COUNT(*) AS n FROM l "
        "GROUP BY k, session_window(ts, '4 seconds')",
        "pairs": "SELECT l.k, l.ts, r.ts AS rt FROM l JOIN r ON l.k = r.k "
        "AND window(l.ts, '10 seconds', '5 seconds') = window(r.ts, '10 seconds', '5 seconds')",
        "so_far": "SELECT k, COUNT(*) AS n FROM r GROUP BY k, landmark(ts)",
    }
    breaks: list[list[Step]] = [
        [Restart()],
        [Crash("returned")],
        [Crash("commit")],
        [Crash("returned", ("l",))],
        [Crash("commit"), Advance(), Crash("returned", ("r",))],
        [],
    ]
    numbers = range(len(breaks))
    left = [[("a", 6 * i), ("b", 6 * i + 3), ("a", 6 * i + 1)] for i in numbers]
    right = [[("a", 6 * i + 2), ("b", 6 * i - 2)] for i in numbers]
    steps: list[Step] = [StartQuery(name, text) for name, text in queries.items()]
    for i in numbers:
        steps += [AddData("l", *left[i]), AddData("r", *right[i]), Advance(), *breaks[i]]
    stage = play(spark, tmp_path, [LEFT, RIGHT], *steps)

    epochs = [
        {name: LEFT.table(rows).to_pylist() for name, rows in (("l", left[i]), ("r", right[i]))}
        for i in numbers
    ]
    for name, text in queries.items():
        mode = OutputMode.UPDATE if name == "so_far" else OutputMode.APPEND
        expected = run_epochs(stage.race.sql(text).plan, epochs, mode=mode)
        assert sum(map(bool, expected)) > 3, "there is something to lose"
        for number, rows in enumerate(expected, 1):
            found = read_epoch(stage.output(name), number)
            assert_same_rows(found, rows, f"epoch {number} of {name}")
    assert stage.last_epoch() == len(breaks)


def test_queries_join_and_leave_while_the_race_runs(spark: SparkSession, tmp_path: Path) -> None:
    clicks = Stream("clicks", "page string, ts timestamp")
    play(
        spark,
        tmp_path,
        [Stream("bids", BIDS.columns)],
        StartQuery("first", COUNT),
        Run(),
        AddData("bids", ("a", 1, 1), ("a", 2, 12)),
        Advance(),
        CheckNewAnswer("first", ("a", span(0, 10), 1)),
        # Needs a column that the stream was not read with up to now.
        StartQuery("second", TUMBLING),
        StartQuery("rows", "SELECT k, v, ts FROM bids WHERE v > 2"),
        AddData("bids", ("a", 3, 13), ("a", 4, 11), ("b", 5, 24)),
        Advance(),
        CheckNewAnswer("first", ("a", span(10, 20), 3)),
        # It sees every row later than 12, the greatest time when it joined: windows that began
        # before that would be incomplete, and do not come out.
        CheckNewAnswer("second"),
        Check(
            "status tells from when on",
            lambda stage: (
                stage.handles["second"].status["from"] == "2024-01-01T00:00:12.001Z"
                and "from" not in stage.handles["first"].status
            ),
        ),
        CheckNewAnswer("rows", ("a", 3, at(13)), ("a", 4, at(11)), ("b", 5, at(24))),
        AddStream(clicks),
        StartQuery("pages", "SELECT page, ts FROM clicks"),
        AddData("clicks", ("home", 25)),
        StopQuery("first"),
        AddData("bids", ("b", 6, 31)),
        Advance(),
        CheckNewAnswer("second", ("b", span(20, 30), 1, 5)),
        CheckNewAnswer("pages", ("home", at(25))),
        Stop(),
        Check(
            "the one that left is not in the checkpoint",
            lambda stage: sorted(stage.commit()["queries"]) == ["pages", "rows", "second"],
        ),
        Restart(),
        AddData("bids", ("b", 7, 45)),
        Advance(),
        CheckNewAnswer("second", ("b", span(30, 40), 1, 6)),
        Check(
            "what it has not seen is known after a restart too",
            lambda stage: stage.handles["second"].status["from"] == "2024-01-01T00:00:12.001Z",
        ),
        # Two streams that bring a row now and then need not wait for each other here.
        settings={
            "spark.headrace.epoch.gatherTimeout": "100 milliseconds",
            "spark.headrace.stream.idleTimeout": "1 second",
        },
    )


def test_processing_time_is_repeated_when_a_batch_is(spark: SparkSession, tmp_path: Path) -> None:
    seen: list[list[tuple[Any, ...]]] = []

    def remember(stage: Stage) -> None:
        seen.append(stage.answer("arrivals"))

    play(
        spark,
        tmp_path,
        [Stream("pings", "k string", time="processing")],
        StartQuery("arrivals", "SELECT k, processing_time FROM pings"),
        StartQuery(
            "counted",
            "SELECT k, window, COUNT(*) AS n FROM pings "
            "GROUP BY k, window(processing_time, '1 millisecond')",
        ),
        AddData("pings", ("a",), ("a",)),
        AddData("pings", ("b",)),
        Advance(),
        Check("remember", remember),
        Crash("commit"),
        Advance(),
        Check("remember", remember),
    )
    before, after = seen
    assert len({moment for _, moment in before}) == 2
    assert_same_rows(after, before)


def test_sinks_and_one_that_raises(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches: dict[int, list[tuple[Any, ...]]] = {}

    def keep(frame: DataFrame, epoch: int) -> None:
        batches[epoch] = spark_rows(frame)

    def refuse(frame: DataFrame, epoch: int) -> None:
        if epoch > 1:
            raise ValueError(f"no room for\nepoch {epoch}")

    rows = "SELECT k, v, ts FROM bids"
    first, second = [("a", 1, at(1)), ("b", 2, at(2))], [("c", 3, at(3))]
    stage = play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("in_files", rows),
        StartQuery("in_memory", rows, format="memory"),
        StartQuery("in_results", rows, format="results"),
        StartQuery("on_console", rows, format="console"),
        StartQuery("in_function", rows, format="foreachBatch", function=keep),
        StartQuery("refused", rows, format="foreachBatch", function=refuse),
        AddData("bids", ("a", 1, 1), ("b", 2, 2)),
        AddData("bids", ("c", 3, 3)),
        Advance(),
        CheckEpochs("in_files", first, second),
        CheckAnswer("in_memory", *first, *second),
        CheckAnswer("in_results", *first, *second),
        AddData("bids", ("d", 4, 4)),
        Advance(),
        CheckNewAnswer("in_files", ("d", 4, at(4))),
        CheckAnswer("in_memory", *first, *second, ("d", 4, at(4))),
    )
    assert batches == {1: first, 2: second, 3: [("d", 4, at(4))]}
    printed = capsys.readouterr().out
    assert "on_console, epoch 1" in printed
    assert "|  c|  3|2024-01-01 00:00:03|" in printed
    failed = stage.handles["refused"]
    assert failed.status == {"message": "failed", "isActive": False}
    assert str(failed.exception()) == (
        "QUERY_FAILED: query 'refused' failed: no room for epoch 2 - "
        "mend the cause and start it again; the other queries go on"
    )
    healthy = [name for name in stage.handles if name != "refused"]
    assert all(stage.handles[name].exception() is None for name in healthy)


def unknown_files(stage: Stage) -> set[str]:
    """Files that neither the state nor the list of what is to be deleted speaks of."""
    last = stage.commit()
    known = {file["path"] for a in last["arrangements"].values() for file in a["files"]}
    known |= {path for _, path in last["garbage"]}
    # Files are merged after a commit; until the next one only the race itself knows of them.
    newest = f"{last['epoch']:010d}-"
    root = stage.checkpoint
    found = [p for area in ("state", "results") for p in (root / area).rglob("*.parquet")]
    return {str(p) for p in found if str(p) not in known and not p.name.startswith(newest)}


def test_state_stays_small(spark: SparkSession, tmp_path: Path) -> None:
    """Sixty epochs: files are merged, what no query can need is deleted."""
    counts: list[int] = []

    def count(stage: Stage) -> None:
        counts.append(len(stage.state_files()))

    first, second = ([AddData("l", ("a", i), (f"k{i}", i)) for i in r] for r in SIXTY)
    stage = play(
        spark,
        tmp_path,
        [LEFT],
        StartQuery(
            "distinct",
            "SELECT window, COUNT(DISTINCT k) AS n FROM l GROUP BY window(ts, '5 seconds')",
            format="results",
        ),
        StartQuery(
            "so_far",
            "SELECT k, COUNT(*) AS n FROM l GROUP BY k, landmark(ts)",
            format="results",
        ),
        *first,
        Advance(),
        Check("count files", count),
        *second,
        Advance(),
        Check("count files", count),
        settings={
            "spark.headrace.compaction.files": "4",
            "spark.headrace.retainedCommits": "5",
        },
    )
    assert stage.last_epoch() == 60
    # Of each arrangement at most three files of each level (4, 16 and 64 epochs), and those that
    # were merged: of the state until the next commit, of result tables for five commits more.
    assert max(counts) <= 2 * (3 * 3 + 4)
    assert len(stage.state_files("results")) <= 2 * (3 * 3 + 4 + 5)
    assert not unknown_files(stage)
    assert len(list((stage.checkpoint / "epochs").iterdir())) <= 2 * 6
    rows = {
        name: sum(file["rows"] for file in arrangement["files"])
        for name, arrangement in stage.commit()["arrangements"].items()
    }
    assert rows["rows-l"] < 40, "rows of closed windows are forgotten"
    assert_same_rows(stage.answer("so_far"), [("a", 60), *((f"k{i}", 1) for i in range(60))])
    assert_same_rows(stage.answer("distinct"), [(span(5 * i, 5 * i + 5), 6) for i in range(11)])
