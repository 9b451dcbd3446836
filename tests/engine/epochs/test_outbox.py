"""Sinks that do not take their rows: they wait in the checkpoint, in order, and nothing is lost."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.engine.checkpoint import checkpoint
from tests.support.compare import spark_rows
from tests.support.script import (
    AddData,
    Advance,
    Check,
    CheckAnswer,
    CheckEpochs,
    ExpectError,
    Restart,
    Run,
    Stage,
    StartQuery,
    Step,
    Stop,
    StopQuery,
    Stream,
    WaitUntil,
    check_error,
    play,
    read_epoch,
    span,
)

BIDS = Stream("bids", "k string, v bigint, ts timestamp")
ROWS = "SELECT k, v FROM bids"
COUNT = "SELECT k, window, COUNT(*) AS n FROM bids GROUP BY k, window(ts, '10 seconds')"
FEW_TRIES = {"spark.headrace.sink.lastTries": "2"}


class Printer:
    """A function that refuses whatever it is told to, and notes each call that it took."""

    def __init__(self, refuses: Callable[[int], bool]) -> None:
        self.refuses = refuses
        self.calls: list[tuple[int, list[tuple[Any, ...]]]] = []

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        rows = spark_rows(frame)
        if self.refuses(epoch):
            raise OSError("out of\npaper")
        self.calls.append((epoch, rows))

    def mended(self) -> Step:
        def mend(_: Stage) -> None:
            self.refuses = lambda epoch: False

        return Check("mended", mend)


def printed(printer: Printer, sql: str = ROWS) -> StartQuery:
    return StartQuery("printed", sql, format="foreachBatch", function=printer)


def waits(rows: int, since: int) -> Step:
    def check(stage: Stage) -> None:
        told = stage.handles["printed"].status["waitingForSink"]
        assert (told["rows"], told["sinceEpoch"]) == (rows, since), told
        assert "out of paper" in told["error"]

    return Check(f"{rows} rows wait since epoch {since}", check)


def is_through(stage: Stage) -> bool:
    return "waitingForSink" not in stage.handles["printed"].status


def test_rows_wait_in_order_and_survive_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    printer = Printer(lambda epoch: epoch >= 2)
    stage = play(
        spark,
        tmp_path,
        [BIDS],
        printed(printer),
        StartQuery("healthy", ROWS),
        AddData("bids", ("a", 1, 1)),
        AddData("bids", ("b", 2, 2)),
        AddData("bids", ("c", 3, 3)),
        ExpectError(
            Advance(), "SINK_FAILED", "2 rows of query 'printed' wait for its sink since epochs 2"
        ),
        waits(2, 2),
        CheckEpochs("healthy", [("a", 1)], [("b", 2)], [("c", 3)]),
        Restart(),
        AddData("bids", ("d", 4, 4)),
        ExpectError(Advance(), "SINK_FAILED", "3 rows"),
        waits(3, 2),
        printer.mended(),
        Restart(),
        AddData("bids", ("e", 5, 5)),
        Advance(),
        CheckAnswer("healthy", *zip("abcde", range(1, 6), strict=True)),
        settings=FEW_TRIES,
    )
    rows = [[pair] for pair in zip("abcde", range(1, 6), strict=True)]
    assert [taken for _, taken in printer.calls] == rows
    # The last one may have come in the epoch of the delivery, or in one of its own.
    assert [epoch for epoch, _ in printer.calls[:-1]] == [1, 2, 3, 4]
    assert printer.calls[-1][0] == stage.last_epoch()


def test_a_sink_that_fails_once_is_tried_again_in_the_same_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    broken = iter([True])
    printer = Printer(lambda epoch: epoch == 2 and next(broken, False))
    play(
        spark,
        tmp_path,
        [BIDS],
        printed(printer),
        AddData("bids", ("a", 1, 1)),
        AddData("bids", ("b", 2, 2)),
        Advance(),
        Check("it is through", is_through),
    )
    assert printer.calls == [(1, [("a", 1)]), (2, [("b", 2)])]


def test_what_waits_is_delivered_while_no_rows_come(spark: SparkSession, tmp_path: Path) -> None:
    printer = Printer(lambda epoch: True)
    play(
        spark,
        tmp_path,
        [BIDS],
        printed(printer),
        Run(),
        AddData("bids", ("a", 1, 1)),
        Advance(),
        AddData("bids", ("b", 2, 2)),
        Advance(),
        waits(2, 1),
        Check("it has not failed", lambda stage: stage.handles["printed"].exception() is None),
        # Tries in vain are no epochs.
        Check("two epochs", lambda stage: stage.last_epoch() == 2),
        printer.mended(),
        WaitUntil("it is through", is_through),
        Check("and one for the delivery", lambda stage: stage.last_epoch() == 3),
        Stop(),
    )
    assert printer.calls == [(1, [("a", 1)]), (2, [("b", 2)])]


def test_rows_that_wait_are_damaged(spark: SparkSession, tmp_path: Path) -> None:
    """That is not the sink's fault: the engine stops and names the file, as for other state."""
    printer = Printer(lambda epoch: True)
    whole: dict[Path, bytes] = {}

    def damage(stage: Stage) -> None:
        (name,) = (name for name in stage.state_files() if name.startswith("outbox-"))
        path = stage.checkpoint / "state" / name
        whole[path] = path.read_bytes()
        path.write_bytes(whole[path][:40])

    def restore(_: Stage) -> None:
        for path, content in whole.items():
            path.write_bytes(content)

    def it_came(_: Stage) -> None:
        assert printer.calls == [(1, [("a", 1)])]

    play(
        spark,
        tmp_path,
        [BIDS],
        printed(printer),
        AddData("bids", ("a", 1, 1)),
        ExpectError(Advance(), "SINK_FAILED", "out of paper"),
        Check("what waits is damaged", damage),
        printer.mended(),
        Restart(),
        ExpectError(Advance(), "INVALID_CHECKPOINT", "/outbox-printed/"),
        Check("it is restored", restore),
        Restart(),
        Advance(),
        Check("it came", it_came),
        settings={"spark.headrace.sink.lastTries": "1"},
    )


def test_a_folder_becomes_a_file_and_a_folder_again(spark: SparkSession, tmp_path: Path) -> None:
    """Output comes under the number of its own epoch, exactly once."""

    def break_folder(stage: Stage) -> None:
        shutil.rmtree(stage.output("lost"))
        Path(stage.output("lost")).touch()

    def mend_folder(stage: Stage) -> None:
        Path(stage.output("lost")).unlink()

    play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("kept", ROWS),
        StartQuery("lost", COUNT),
        AddData("bids", ("a", 1, 1), ("a", 1, 11)),
        Advance(),
        Check("a file in the way", break_folder),
        AddData("bids", ("b", 2, 12), ("b", 2, 21)),
        ExpectError(Advance(), "SINK_FAILED", "'lost'"),
        CheckAnswer("kept", ("a", 1), ("a", 1), ("b", 2), ("b", 2)),
        Check("mended", mend_folder),
        Restart(),
        AddData("bids", ("c", 3, 31)),
        Advance(),
        CheckAnswer(
            "lost",
            ("a", span(10, 20), 1),
            ("b", span(10, 20), 1),
            ("b", span(20, 30), 1),
        ),
        Check("its own number", lambda stage: len(read_epoch(stage.output("lost"), 2)) == 2),
        settings=FEW_TRIES,
    )


def test_a_folder_goes_away_between_commit_and_publication(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was staged in it is published when it is back, also after commits and restarts."""
    output, away = tmp_path / "out" / "lost", tmp_path / "away"
    commits = itertools.count(1)

    def lose_folder(place: str) -> None:
        if place == "commit.after" and next(commits) == 2:
            output.rename(away)
            output.touch()

    def mend_folder(_: Stage) -> None:
        output.unlink()
        away.rename(output)

    monkeypatch.setattr(checkpoint, "failpoint", lose_folder)
    play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("lost", ROWS),
        StartQuery("healthy", ROWS),
        AddData("bids", ("a", 1, 1)),
        AddData("bids", ("b", 2, 2)),
        AddData("bids", ("c", 3, 3)),
        ExpectError(Advance(), "SINK_FAILED", "'lost'"),
        AddData("bids", ("d", 4, 4)),
        ExpectError(Advance(), "SINK_FAILED", "'lost'"),
        CheckAnswer("healthy", *zip("abcd", range(1, 5), strict=True)),
        Check("mended", mend_folder),
        Restart(),
        AddData("bids", ("e", 5, 5)),
        Advance(),
        CheckAnswer("lost", *zip("abcde", range(1, 6), strict=True)),
        Check("its number", lambda stage: read_epoch(stage.output("lost"), 2) == [("b", 2)]),
        settings=FEW_TRIES,
    )


def test_output_is_published_in_the_same_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is away for the moment of publication, and comes back."""
    output, away = tmp_path / "out" / "lost", tmp_path / "away"
    commits = itertools.count(1)

    def lose_folder(place: str) -> None:
        if place == "commit.after" and next(commits) == 2:
            output.rename(away)
            output.touch()
        if place == "publish.after" and away.exists():
            output.unlink()
            away.rename(output)

    monkeypatch.setattr(checkpoint, "failpoint", lose_folder)
    play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("lost", ROWS),
        AddData("bids", ("a", 1, 1)),
        AddData("bids", ("b", 2, 2)),
        Advance(),
        CheckAnswer("lost", ("a", 1), ("b", 2)),
    )


def test_too_much_waits_and_the_query_goes_on_from_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The query is set aside, beside healthy ones; nothing of it is lost."""
    printer = Printer(lambda epoch: epoch >= 2)
    play(
        spark,
        tmp_path,
        [BIDS],
        printed(printer, COUNT),
        StartQuery("healthy", ROWS),
        AddData("bids", ("a", 1, 1), ("b", 1, 11)),
        AddData("bids", ("a", 1, 12), ("b", 1, 21)),
        AddData("bids", ("a", 1, 22), ("b", 1, 31)),
        AddData("bids", ("a", 1, 32), ("b", 1, 41)),
        ExpectError(Advance(), "SINK_FAILED", "spark.headrace.sink.outboxRows is 3"),
        Check("it failed", lambda stage: not stage.handles["printed"].isActive),
        Restart(),
        ExpectError(Advance(), "QUERY_FAILED_BEFORE", "printed=retry"),
        printer.mended(),
        Restart((("spark.headrace.failedQueries", "printed=retry"),)),
        AddData("bids", ("z", 1, 51)),
        Advance(),
        CheckAnswer(
            "healthy",
            *[("a", 1), ("b", 1)] * 4,
            ("z", 1),
        ),
        settings={**FEW_TRIES, "spark.headrace.sink.outboxRows": "3"},
    )
    assert [epoch for epoch, _ in printer.calls] == [1, 2, 3, 4, 5]
    assert sorted(row for _, rows in printer.calls for row in rows) == sorted(
        [("a", span(0, 10), 1)]
        + [(k, span(t, t + 10), 1) for t in (10, 20, 30) for k in ("a", "b")]
        + [("b", span(40, 50), 1)]
    )


def test_a_query_leaves_when_its_sink_has_taken_its_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    printer = Printer(lambda epoch: True)
    play(
        spark,
        tmp_path,
        [BIDS],
        printed(printer),
        StartQuery("healthy", ROWS),
        Run(),
        AddData("bids", ("a", 1, 1)),
        Advance(),
        waits(1, 1),
        printer.mended(),
        StopQuery("printed"),
        Stop(),
    )
    assert printer.calls == [(1, [("a", 1)])]


def test_it_leaves_without_when_it_was_tried_enough(spark: SparkSession, tmp_path: Path) -> None:
    printer = Printer(lambda epoch: True)
    stage = play(
        spark,
        tmp_path,
        [BIDS],
        printed(printer),
        StartQuery("healthy", ROWS),
        Run(),
        AddData("bids", ("a", 1, 1)),
        Advance(),
        StopQuery("printed"),
        AddData("bids", ("b", 2, 2)),
        Advance(),
        Stop(),
        settings=FEW_TRIES,
    )
    check_error(stage.handles["printed"].exception(), "SINK_FAILED", "1 rows", "out of paper")
    assert not any("outbox" in name for name in stage.commit()["arrangements"])
