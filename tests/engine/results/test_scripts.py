"""What comes out of streams, epoch by epoch, through the public API."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.script import (
    AddData,
    Advance,
    Check,
    CheckAnswer,
    CheckEpochs,
    CheckNewAnswer,
    CheckProgress,
    Restart,
    StartQuery,
    Stream,
    at,
    play,
    span,
)

BIDS = Stream("bids", "k string, v bigint, ts timestamp", delay="5 seconds")
LEFT = Stream("l", "k string, ts timestamp", ttl="15 seconds")
RIGHT = Stream("r", "k string, ts timestamp", ttl="15 seconds")

TUMBLING = (
    "SELECT k, window, COUNT(*) AS n, SUM(v) AS total FROM bids "
    "GROUP BY k, window(ts, '10 seconds')"
)
HOPPING = TUMBLING.replace("'10 seconds'", "'10 seconds', '5 seconds'")
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
