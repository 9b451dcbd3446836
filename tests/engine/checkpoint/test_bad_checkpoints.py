"""Checkpoints that do not fit, are damaged, or cannot be written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.errors import HeadraceError
from headrace.state.sealed import sealed
from tests.support.script import (
    AddData,
    Advance,
    Check,
    CheckAnswer,
    Restart,
    Stage,
    StartQuery,
    Stream,
    at,
    check_error,
    play,
    refused,
    span,
)

BIDS = Stream("bids", "k string, v bigint, ts timestamp")
COUNT = "SELECT k, window, COUNT(*) AS n FROM bids GROUP BY k, window(ts, '10 seconds')"


@pytest.fixture(scope="module")
def finished(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """An engine that has run two epochs."""
    return play(
        spark,
        tmp_path_factory.mktemp("finished"),
        [BIDS],
        StartQuery("counts", COUNT, format="results"),
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
        stage.hr.sql(text).writeStream.queryName(name).format("results").start()
    return refused(lambda: stage.hr.start(availableNow=True))


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


@pytest.mark.parametrize("witnesses", [(), ("latest",)])
def test_checkpoint_without_its_last_commit(
    finished: Stage, copied: Path, witnesses: tuple[str, ...]
) -> None:
    """Without the note of the last commit, Spark's own logs know that there was one."""
    for name in ("0000000002.commit", *witnesses):
        (copied / "epochs" / name).unlink()
    error = resume(finished, copied, {"counts": COUNT})
    check_error(error, "CHECKPOINT_GAP", "ends at the commit of epoch 1", "restore")
    # Who only reads is told, too, instead of getting results of the past.
    error = refused(lambda: opened(finished, copied).hr.results("counts"))
    check_error(error, "CHECKPOINT_GAP", "ends at the commit of epoch 1")


def test_checkpoint_that_is_in_use(finished: Stage, copied: Path) -> None:
    running, second = opened(finished, copied), opened(finished, copied)
    running.hr.start(processingTime="1 hour")
    try:
        error = refused(lambda: second.hr.start(availableNow=True))
        check_error(error, "CHECKPOINT_IN_USE", "another engine of this process", "stop that one")
        # Reading needs no leave.
        assert second.answer("counts") == [("a", span(0, 10), 1)]
    finally:
        running.hr.stop()
    second.hr.start(availableNow=True)
    second.hr.awaitTermination()


def test_checkpoint_that_was_moved(finished: Stage, copied: Path) -> None:
    shutil.move(copied, copied.parent / "moved")
    stage = opened(finished, copied.parent / "moved")
    stage.hr.start(availableNow=True)
    stage.hr.awaitTermination()
    assert stage.answer("counts") == [("a", span(0, 10), 1)]


def opened(finished: Stage, checkpoint: Path) -> Stage:
    """The same query, with another checkpoint."""
    stage = Stage(finished.spark, finished.folder, {}, dict(finished.streams))
    stage.checkpoint = checkpoint
    stage.queries = dict(finished.queries)
    stage.open()
    return stage


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


def test_windows_that_an_earlier_version_held_back(spark: SparkSession, tmp_path: Path) -> None:
    """It closed these windows later: to go on would pass over those that were still to come."""
    clicks = Stream("clicks", "k string, ts timestamp")
    same = "window(a.ts, '10 seconds') = window(b.ts, '10 seconds')"
    text = (
        f"SELECT window, COUNT(*) AS n FROM bids AS a JOIN clicks AS b ON a.k = b.k AND {same} "
        "GROUP BY window(a.ts, '10 seconds')"
    )
    stage = play(
        spark,
        tmp_path,
        [BIDS, clicks],
        StartQuery("pairs", text, "results"),
        AddData("bids", ("a", 1, 1), ("a", 1, 9)),
        AddData("clicks", ("a", 2), ("a", 9)),
        Advance(),
        Restart(),
        # Closed at its very end, and not almost ten seconds later.
        AddData("bids", ("a", 1, 10)),
        AddData("clicks", ("a", 10)),
        Advance(),
        CheckAnswer("pairs", (span(0, 10), 4)),
    )
    file = stage.checkpoint / "epochs" / f"{stage.last_epoch():010d}.commit"
    commit = json.loads(file.read_text())
    stores = commit["queries"]["pairs"]["stores"]
    kept = [name for name in stores if not name.startswith("closing-")]
    assert len(kept) < len(stores)
    commit["queries"]["pairs"]["stores"] = kept
    commit.pop("checksum")
    file.write_text(sealed(commit))
    (stage.checkpoint / "epochs" / "latest").unlink(missing_ok=True)
    stage.open()
    error = refused(lambda: stage.hr.start(availableNow=True))
    check_error(error, "CHECKPOINT_QUERIES", "differently than the version that wrote it")
