"""How engines, queries and sinks live on: restarts, crashes, comings and goings, old age."""

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
    Crash,
    ExpectError,
    Restart,
    Run,
    Stage,
    StartQuery,
    Step,
    Stop,
    StopQuery,
    Stream,
    at,
    check_error,
    play,
    read_epoch,
    span,
)

BIDS = Stream("bids", "k string, v bigint, ts timestamp", delay="5 seconds")
LEFT = Stream("l", "k string, ts timestamp", ttl="15 seconds")
RIGHT = Stream("r", "k string, ts timestamp", ttl="15 seconds")

TUMBLING = (
    "SELECT k, window, COUNT(*) AS n, SUM(v) AS total FROM bids "
    "GROUP BY k, window(ts, '10 seconds')"
)
FORTY = (range(24), range(24, 40))
COUNT = "SELECT k, window, COUNT(*) AS n FROM bids GROUP BY k, window(ts, '10 seconds')"


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
        expected = run_epochs(stage.hr.sql(text).plan, epochs, mode=mode)
        assert sum(map(bool, expected)) > 3, "there is something to lose"
        for number, rows in enumerate(expected, 1):
            found = read_epoch(stage.output(name), number)
            assert_same_rows(found, rows, f"epoch {number} of {name}")
    assert stage.last_epoch() == len(breaks)


def test_queries_join_and_leave_while_the_engine_runs(spark: SparkSession, tmp_path: Path) -> None:
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
            "spark.headrace.epoch.absenceTimeout": "1 second",
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
        ExpectError(Advance(), "SINK_FAILED", "1 rows of query 'refused' wait"),
        CheckEpochs("in_files", first, second),
        CheckAnswer("in_memory", *first, *second),
        CheckAnswer("in_results", *first, *second),
        AddData("bids", ("d", 4, 4)),
        ExpectError(Advance(), "SINK_FAILED", "2 rows of query 'refused' wait"),
        CheckNewAnswer("in_files", ("d", 4, at(4))),
        CheckAnswer("in_memory", *first, *second, ("d", 4, at(4))),
    )
    assert batches == {1: first, 2: second, 3: [("d", 4, at(4))]}
    printed = capsys.readouterr().out
    assert "on_console, epoch 1" in printed
    assert "|  c|  3|2024-01-01 00:00:03|" in printed
    failed = stage.handles["refused"]
    waiting = failed.status["waitingForSink"]
    assert (waiting["rows"], waiting["sinceEpoch"]) == (2, 2)
    check_error(failed.exception(), "SINK_FAILED", "since epochs 2 to 3", "no room for epoch 2")
    healthy = [name for name in stage.handles if name != "refused"]
    assert all(stage.handles[name].exception() is None for name in healthy)


def unknown_files(stage: Stage) -> set[str]:
    """Files that neither the state nor the list of what is to be deleted speaks of."""
    last = stage.commit()
    known = {file["path"] for a in last["arrangements"].values() for file in a["files"]}
    known |= {path for _, path in last["garbage"]}
    # Files are merged after a commit; until the next one only the engine itself knows of them.
    newest = f"{last['epoch']:010d}-"
    root = stage.checkpoint
    found = [p for area in ("state", "results") for p in (root / area).rglob("*.parquet")]
    named = {str(p): str(p.relative_to(root)) in known for p in found}
    return {path for path, is_known in named.items() if not is_known and newest not in path}


def test_state_stays_small(spark: SparkSession, tmp_path: Path) -> None:
    """Forty epochs: files are merged, what no query can need is deleted."""
    counts: list[int] = []

    def count(stage: Stage) -> None:
        counts.append(len(stage.state_files()))

    first, second = ([AddData("l", ("a", i), (f"k{i}", i)) for i in r] for r in FORTY)
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
    assert stage.last_epoch() == 40
    # Of each arrangement at most three files of each level (1, 4 and 16 epochs), and those that
    # were merged: of the state until the next commit, of result tables for five commits more.
    assert max(counts) <= 2 * (3 * 3 + 4)
    assert len(stage.state_files("results")) <= 2 * (3 * 3 + 4 + 5)
    assert not unknown_files(stage)
    assert (
        len(list((stage.checkpoint / "epochs").iterdir())) <= 2 * 6 + 1
    )  # and the note of the newest
    rows = {
        name: sum(file["rows"] for file in arrangement["files"])
        for name, arrangement in stage.commit()["arrangements"].items()
    }
    assert rows["rows-l"] < 40, "rows of closed windows are forgotten"
    assert_same_rows(stage.answer("so_far"), [("a", 40), *((f"k{i}", 1) for i in range(40))])
    assert_same_rows(stage.answer("distinct"), [(span(5 * i, 5 * i + 5), 6) for i in range(7)])


@pytest.mark.parametrize("value", ["COUNT(*)", "COUNT(DISTINCT t)"])
def test_a_row_without_a_time_counts_in_no_landmark(
    spark: SparkSession, tmp_path: Path, value: str
) -> None:
    """A row alone out of an outer join has no time of the other side."""
    joined = (
        "SELECT l.k, l.ts AS t, r.ts AS met FROM l LEFT JOIN r "
        "ON l.k = r.k AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 5 SECONDS"
    )
    play(
        spark,
        tmp_path,
        [LEFT, Stream("r", "k string, ts timestamp")],
        StartQuery(
            "so_far", f"SELECT k, {value} AS n FROM ({joined}) GROUP BY k, landmark(met)", "results"
        ),
        AddData("l", ("met", 1), ("alone", 2)),
        AddData("r", ("met", 3)),
        AddData("l", ("late", 60)),
        AddData("r", ("late", 61)),
        Advance(),
        CheckAnswer("so_far", ("met", 1), ("late", 1)),
    )
