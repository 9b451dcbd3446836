"""Streams that fall silent: by the clock on the wall, through the public API.

When a stream is idle depends on the time of day, so which epochs there were is read from the
checkpoint; what they put out is then the oracle's, and what must come out in any case is checked by
hand.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.plan.nodes import OutputMode, Source
from headrace.plan.types import STRING, TIMESTAMP, Schema
from headrace.sql import plan_query
from tests.support.compare import assert_same_rows
from tests.support.engine import run_engine, tiny_executor
from tests.support.oracle import run_epochs
from tests.support.script import (
    AddData,
    Advance,
    Check,
    CheckNewAnswer,
    CheckProgress,
    Crash,
    ExpectError,
    Restart,
    Run,
    Stage,
    StartQuery,
    Stop,
    Stream,
    WaitUntil,
    at,
    play,
    read_epoch,
    span,
)

LEFT = Stream("l", "k string, ts timestamp")
RIGHT = Stream("r", "k string, ts timestamp", idle="1 second")

UNION = (
    "SELECT k, window, COUNT(*) AS n FROM (SELECT k, ts FROM l UNION ALL SELECT k, ts FROM r ) "
    "AS u GROUP BY k, window(ts, '10 seconds')"
)
OUTER = (
    "SELECT l.k, l.ts AS lt, r.ts AS rt FROM l LEFT JOIN r ON l.k = r.k "
    "AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 2 SECONDS"
)
#: Streams that bring a row now and then need not wait for each other.
IMPATIENT = {
    "spark.headrace.epoch.gatherTimeout": "50 milliseconds",
    "spark.headrace.epoch.absenceTimeout": "50 milliseconds",
}


def is_idle(stage: Stage) -> bool:
    return bool(stage.last_epoch() and "r" in stage.commit()["idle"])


def last_of(stage: Stage, query: str) -> dict[str, Any]:
    return stage.handles[query].recentProgress[-1]


def check_epochs(stage: Stage, files: dict[str, list[list[tuple[Any, ...]]]]) -> None:
    """Each epoch that there was put out what the oracle gives it."""
    intents = stage.intents()
    rows = [
        {s: [{"k": k, "ts": at(t)} for k, t in files[s][b]] for s, b in intent["batches"].items()}
        for intent in intents
    ]
    idle = [intent["idle"] for intent in intents]
    for name, query in stage.queries.items():
        expected = run_epochs(stage.hr.sql(query.sql).plan, rows, idle=idle)
        for number, wanted in enumerate(expected, 1):
            found = read_epoch(stage.output(name), number)
            assert_same_rows(found, wanted, f"{name}, epoch {number}: {intents}")


def test_a_silent_stream_holds_nobody_back(spark: SparkSession, tmp_path: Path) -> None:
    files: dict[str, list[list[tuple[Any, ...]]]] = {
        "l": [[("a", 1), ("b", 12)], [("c", 45)], [("d", 100)]],
        "r": [[("a", 2), ("b", 13), ("x", 44)]],
    }
    stage = play(
        spark,
        tmp_path,
        [LEFT, RIGHT],
        StartQuery("union", UNION),
        StartQuery("outer", OUTER),
        ExpectError(Run("2 seconds"), "INVALID_STREAM", "'r' would be idle after 1 second"),
        Run(),
        # r has never had a row. What waits for it comes out without another row of l.
        AddData("l", *files["l"][0]),
        WaitUntil("an epoch in which r is idle", is_idle),
        Advance(),
        CheckNewAnswer("union", ("a", span(0, 10), 1)),
        CheckNewAnswer("outer", ("a", at(1), None)),
        # It counts again. The operators stand at 12: its row before that is late.
        AddData("r", *files["r"][0]),
        WaitUntil("r to come", lambda stage: "r" in stage.processed()),
        Advance(),
        AddData("l", *files["l"][1]),
        WaitUntil("l to come", lambda stage: stage.processed().get("l") == 2),
        WaitUntil("r to be idle again", is_idle),
        Advance(),
        CheckNewAnswer("union", ("b", span(10, 20), 2)),
        CheckNewAnswer("outer", ("b", at(12), at(13))),
        CheckProgress("union", (("lateRows", 1),)),
        CheckProgress("outer", (("lateRows", 1),)),
        Stop(),
        # A run over what is there ends: time that passes in it says nothing about a stream.
        Restart(),
        AddData("l", *files["l"][2]),
        Advance(),
        Check("nobody is idle", lambda stage: last_of(stage, "union")["idleStreams"] == []),
        Check(
            "and the watermark has not gone back",
            lambda stage: last_of(stage, "union")["watermark"] == "2024-01-01T00:00:45.000Z",
        ),
        CheckNewAnswer("union"),
        settings=IMPATIENT,
    )
    check_epochs(stage, files)


def test_an_idle_epoch_is_repeated_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """The commit is lost, and the run that repeats the epoch would never find a stream idle."""
    files = {"l": [[("a", 1), ("c", 3), ("b", 12)], [("b", 23)]], "r": [[("a", 2)]]}

    def is_idle_epoch(intent: dict[str, Any]) -> bool:
        return (intent["epoch"], intent["batches"], intent["idle"]) == (2, {}, ["r"])

    stage = play(
        spark,
        tmp_path,
        [LEFT, RIGHT],
        StartQuery("union", UNION),
        StartQuery("outer", OUTER),
        AddData("l", *files["l"][0]),
        AddData("r", *files["r"][0]),
        Run(),
        WaitUntil("an epoch in which r is idle", is_idle),
        Stop(),
        Check("it has no rows", lambda stage: is_idle_epoch(stage.intents()[-1])),
        Crash("commit"),
        Check("it is undone", lambda stage: stage.last_epoch() == 1),
        AddData("l", *files["l"][1]),
        Advance(),
        Check("it is done again", lambda stage: is_idle_epoch(stage.intents()[1])),
        CheckNewAnswer("union", ("a", span(0, 10), 2), ("c", span(0, 10), 1)),
        CheckNewAnswer("outer", ("a", at(1), at(2)), ("c", at(3), None)),
    )
    # Before its first batch r may have been silent for long; its rows are what counts.
    assert [intent["idle"] for intent in stage.intents()[1:]] == [["r"], []]
    check_epochs(stage, files)


def test_open_sessions_of_idle_streams_hold_nobody_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = Schema.of([("k", STRING), ("ts", TIMESTAMP)])
    catalog = {name: Source(name, schema, "ts", 0) for name in "abc"}
    plan = plan_query(
        "SELECT window, COUNT(*) AS n FROM (SELECT a.ts AS ts FROM a JOIN b ON a.k = b.k "
        "AND session_window(a.ts, '5 seconds') = session_window(b.ts, '5 seconds') "
        "UNION ALL SELECT ts FROM c) AS u GROUP BY window(ts, '10 seconds')",
        catalog,
    ).plan
    given: list[dict[str, list[int]]] = [
        {"a": [1], "b": [2], "c": [5]},
        {"c": [40]},
        {"a": [50], "b": [50]},
        {"a": [70], "b": [70], "c": [70]},
    ]
    epochs = [{s: [{"k": "x", "ts": at(t)} for t in ts] for s, ts in e.items()} for e in given]
    idle = [set(), {"a", "b"}, set(), set()]
    expected = run_epochs(plan, epochs, idle=idle)
    # The session of 1 and 2 is open while its streams sleep, and late for the window when it ends.
    assert [sorted(rows) for rows in expected] == [
        [],
        [(span(0, 10), 1)],
        [],
        [(span(40, 50), 1), (span(50, 60), 1)],
    ]
    executor = tiny_executor(spark)
    queries = {"q": (plan, OutputMode.APPEND)}
    run = run_engine(executor, queries, catalog, epochs, {}, tmp_path, frozenset({1}), idle=idle)
    for number, (found, wanted) in enumerate(zip(run.rows["q"], expected, strict=True)):
        assert_same_rows(found, wanted, f"epoch {number}")


def test_state_that_is_full_pauses_who_runs_ahead(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = [AddData("l", *((k, 10 * i) for k in "abcde")) for i in range(6)]
    paused = {"l": "r"}

    def stays_paused(stage: Stage) -> bool:
        before = stage.processed()["l"]
        time.sleep(0.5)
        return stage.processed()["l"] == before < 6 and stage.handles["q"].isActive

    with caplog.at_level(logging.WARNING, "headrace"):
        play(
            spark,
            tmp_path,
            [LEFT, Stream("r", RIGHT.columns)],
            StartQuery("q", OUTER),
            StartQuery("other", "SELECT k, ts FROM r"),
            AddData("r", ("z", 1)),
            *files,
            Run(),
            WaitUntil("l to be paused", lambda s: s.handles["q"].status.get("paused") == paused),
            Check("nothing moves", stays_paused),
            Check("it says why", lambda s: "'r'" in s.handles["q"].status["warning"]),
            Check("not everybody", lambda s: "paused" not in s.handles["other"].status),
            AddData("r", ("z", 100)),
            Advance(),
            Check("it is over", lambda s: "paused" not in s.handles["q"].status),
            Stop(),
            # Where r has ended nothing can move any more, so the run does not wait for it.
            *(AddData("l", *((k, 200 + 10 * i) for k in "abcdefghijkl")) for i in range(6)),
            ExpectError(Advance(), "STATE_FULL", "rows of state wait for stream 'r'"),
            Restart(),
            AddData("r", ("z", 300)),
            Advance(),
            # Those of the last file may still meet a row of r.
            Check("all is there", lambda stage: len(stage.answer("q")) == 30 + 60),
            settings={
                **IMPATIENT,
                "spark.headrace.epoch.alignment": "1 second",
                "spark.headrace.state.maxRows": "10",
                "spark.headrace.watermark.warnAfter": "1 millisecond",
            },
        )
    text = [record.getMessage() for record in caplog.records]
    assert [t for t in text if "stream 'l' is paused until 'r' has moved on" in t]
    assert [t for t in text if "query 'q': its watermark has stood still" in t]
