"""Whose a sink's folder is: that of one query of one checkpoint, and nobody else writes there."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.engine.checkpoint.checkpoint import Checkpoint
from headrace.engine.checkpoint.files import FileSystem, LocalFiles
from headrace.engine.sinks import ownership
from headrace.engine.sinks.ownership import MARKER, Owner, claim_folders, claim_now
from headrace.engine.sinks.parquet import ParquetSink
from headrace.errors import CheckpointError, SinkError
from headrace.plan.nodes import OutputMode, Sink
from headrace.state.committed import Committed, QueryRecord
from headrace.state.sealed import sealed, unsealed
from tests.sql.catalog import BIDS
from tests.support.script import (
    AddData,
    Advance,
    CheckAnswer,
    ExpectError,
    Restart,
    Run,
    Stage,
    StartQuery,
    Step,
    Stop,
    StopQuery,
    Stream,
    check_error,
    play,
    refused,
)


@contextmanager
def opened(root: Path, files: FileSystem | None = None) -> Iterator[tuple[Checkpoint, Committed]]:
    store = files or LocalFiles()
    owner = Checkpoint(lambda path: store, str(root), 20)
    state, _ = owner.open()
    try:
        yield owner, state
    finally:
        owner.close()


def sink(query: str, path: Path | str) -> ParquetSink:
    made = ParquetSink(Sink(BIDS, query, "parquet", OutputMode.APPEND), {"path": str(path)})
    made.open()
    return made


def claim(root: Path, **paths: Path | str) -> None:
    """What the start of an engine claims."""
    with opened(root) as (checkpoint, state):
        claim_folders([sink(query, path) for query, path in paths.items()], checkpoint, state)


def denied(root: Path, *words: str, condition: str = "SINK_PATH_IN_USE", **paths: Any) -> None:
    """That the start is refused, and nothing was written or deleted."""
    with opened(root) as (checkpoint, state):
        sinks = [sink(query, path) for query, path in paths.items()]
        before = all_files(root.parent)
        error = refused(lambda: claim_folders(sinks, checkpoint, state))
        assert all_files(root.parent) == before
    check_error(error, condition, *words)
    assert isinstance(error, SinkError)
    assert error.hint


def all_files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def commits(root: Path, epochs: int, **since: int) -> str:
    """A checkpoint that has come so far, with queries that joined in these epochs; its mark."""
    with opened(root) as (checkpoint, state):
        while state.epoch < epochs:
            state = state.copied()
            state.epoch += 1
            state.queries = {n: QueryRecord("", first, None, ()) for n, first in since.items()}
            checkpoint.commit(state)
        return checkpoint.mark


def publish(out: Path, query: str, epoch: int, mark: str) -> Path:
    """What a version that claimed nothing has left of an epoch."""
    return put(out / f"epoch={epoch}" / f"part-0-{query}-{epoch}-{mark}.zstd.parquet")


def put(path: Path, text: str = "rows") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def owner_of(out: Path) -> Owner:
    return Owner.from_text((out / MARKER).read_text())


# One folder, one query


def test_a_claim_says_who_where_and_since_when(tmp_path: Path) -> None:
    claim(tmp_path / "ck", hot=tmp_path / "out")
    owner = owner_of(tmp_path / "out")
    known = json.loads((tmp_path / "ck" / "headrace.json").read_text())["identity"]
    assert (owner.identity, owner.query, owner.checkpoint) == (known, "hot", str(tmp_path / "ck"))
    assert owner.since.endswith("+00:00")


def test_a_query_comes_back_to_its_folder(tmp_path: Path) -> None:
    claim(tmp_path / "ck", hot=tmp_path / "out")
    before = (tmp_path / "out" / MARKER).read_text()
    put(tmp_path / "out" / "notes.txt")
    # Names of queries are the same whatever their case.
    claim(tmp_path / "ck", HOT=tmp_path / "out")
    assert (tmp_path / "out" / MARKER).read_text() == before


def test_another_checkpoint_is_refused(tmp_path: Path) -> None:
    claim(tmp_path / "ck", hot=tmp_path / "out")
    denied(
        tmp_path / "new",
        f"query 'hot' of the checkpoint {tmp_path / 'ck'} writes there",
        "gone for good, move the folder away",
        hot=tmp_path / "out",
    )


def test_another_query_is_refused_also_when_the_first_has_left(tmp_path: Path) -> None:
    claim(tmp_path / "ck", hot=tmp_path / "out")
    denied(
        tmp_path / "ck",
        "query 'cold' cannot write to",
        "query 'hot' of this checkpoint writes there",
        cold=tmp_path / "out",
    )


def test_a_folder_that_was_moved_away_leaves_its_path_free(tmp_path: Path) -> None:
    claim(tmp_path / "ck", hot=tmp_path / "out")
    shutil.move(tmp_path / "out", tmp_path / "archive")
    claim(tmp_path / "new", hot=tmp_path / "out")
    assert owner_of(tmp_path / "out").identity != owner_of(tmp_path / "archive").identity


@pytest.mark.parametrize(
    "spelling", ["{0}/out", "{0}/out//", "file:{0}/out", "file://{0}/out/", "out", "{0}/x/../out"]
)
def test_two_queries_with_one_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = spelling.format(tmp_path)
    denied(
        tmp_path / "ck",
        "query 'two' cannot write to",
        "query 'one' of this checkpoint writes there",
        one=tmp_path / "out",
        two=path,
    )
    assert not (tmp_path / "out" / MARKER).exists()


def test_a_symbolic_link_is_the_folder_that_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to("out")
    denied(tmp_path / "ck", "'one'", one=tmp_path / "out", two=tmp_path / "link")
    denied(tmp_path / "ck", "it lies in", one=tmp_path / "out", two=tmp_path / "link" / "sub")
    claim(tmp_path / "ck", one=tmp_path / "out")
    denied(tmp_path / "other", "'one'", two=tmp_path / "link")


@pytest.mark.parametrize("order", [("out", "out/sub"), ("out/deep/sub", "out")])
def test_one_folder_inside_another(tmp_path: Path, order: tuple[str, str]) -> None:
    denied(
        tmp_path / "ck",
        f"it lies in {tmp_path / 'out'}, where query",
        one=tmp_path / order[0],
        two=tmp_path / order[1],
    )


def test_inside_the_folder_of_another_checkpoint(tmp_path: Path) -> None:
    claim(tmp_path / "ck", one=tmp_path / "out")
    denied(tmp_path / "new", f"it lies in {tmp_path / 'out'}", two=tmp_path / "out" / "sub" / "x")
    (tmp_path / "link").symlink_to(tmp_path / "out")
    denied(tmp_path / "new", "where query 'one'", two=tmp_path / "link" / "sub")


def test_around_the_folder_of_another_checkpoint(tmp_path: Path) -> None:
    claim(tmp_path / "ck", one=tmp_path / "out" / "sub")
    denied(tmp_path / "new", "it holds sub", two=tmp_path / "out")


def test_names_that_begin_alike_are_not_inside_each_other(tmp_path: Path) -> None:
    claim(tmp_path / "ck", one=tmp_path / "out", two=tmp_path / "out2", three=tmp_path / "o")
    assert owner_of(tmp_path / "out2").query == "two"


def test_no_sink_writes_into_a_checkpoint(tmp_path: Path) -> None:
    denied(tmp_path / "ck", "it lies in the checkpoint", hot=tmp_path / "ck" / "state" / "out")
    claim(tmp_path / "ck", hot=tmp_path / "out")
    denied(tmp_path / "new", "it lies in the checkpoint", hot=tmp_path / "ck")


def test_paths_of_other_file_systems() -> None:
    around = ownership._with_all_around("s3a://bucket/a//b/")
    assert around == ["s3a://bucket/a/b", "s3a://bucket/a", "s3a://bucket"]
    for spelling in ("s3a://bucket/a//b/", "S3A://bucket/a/./b", "s3a://bucket/c/../a/b"):
        assert ownership._identity(spelling) == "s3a://bucket/a/b"
    assert ownership._identity("s3a://bucket/a/B") != "s3a://bucket/a/b"


# What is there already


@pytest.mark.parametrize(
    "name",
    [
        "part-00000.parquet",
        "date=2024-05-01/part-0.parquet",
        "epoch=1/part-0-hot-1-0123abcd.zstd.parquet",
        "epoch=1/part-0.parquet",
        "epoch=1/more/part-0.parquet",
        "epoch=/x",
        "_spark_metadata/0",
    ],
)
def test_what_others_have_written_is_not_taken_over(tmp_path: Path, name: str) -> None:
    commits(tmp_path / "ck", 3)
    put(tmp_path / "out" / name)
    shown = name if name.startswith("epoch=1/p") else name.split("/")[0]
    denied(tmp_path / "ck", f"it holds {shown}", "move away what is there", hot=tmp_path / "out")


@pytest.mark.parametrize("name", ["_SUCCESS", ".part-0.crc", "_headrace/hot/0000000001-x/part-0"])
def test_what_readers_pass_over_does_not_count(tmp_path: Path, name: str) -> None:
    put(tmp_path / "out" / name)
    (tmp_path / "out" / "epoch=7").mkdir()
    claim(tmp_path / "ck", hot=tmp_path / "out")
    assert owner_of(tmp_path / "out").query == "hot"
    assert (tmp_path / "out" / name).read_text() == "rows"


def test_output_of_versions_that_claimed_nothing_is_taken_in(tmp_path: Path) -> None:
    mark = commits(tmp_path / "ck", 3)
    for epoch in (1, 3):
        publish(tmp_path / "out", "hot-1", epoch, mark)
        put(tmp_path / "out" / f"epoch={epoch}" / ".part-0.crc")
    claim(tmp_path / "ck", **{"Hot-1": tmp_path / "out"})
    assert owner_of(tmp_path / "out").query == "Hot-1"
    denied(tmp_path / "ck", "'Hot-1'", cold=tmp_path / "out")


def test_output_of_another_query_of_this_checkpoint_is_not_taken_in(tmp_path: Path) -> None:
    mark = commits(tmp_path / "ck", 3)
    publish(tmp_path / "out", "hot", 1, mark)
    publish(tmp_path / "out", "cold", 2, mark)
    for query in ("hot", "cold"):
        denied(tmp_path / "ck", "it holds epoch=", **{query: tmp_path / "out"})


@pytest.mark.parametrize(
    "name", ["part-0.parquet", "part-00001-6f9619ff-8b86-d011-b42d-00cf4fc964ff-c000.zstd.parquet"]
)
def test_output_of_format_1_is_taken_in_where_the_query_was_there(
    tmp_path: Path, name: str
) -> None:
    commits(tmp_path / "ck", 3, hot=2)
    put(tmp_path / "out" / "epoch=2" / name)
    denied(tmp_path / "ck", "it holds epoch=2/part-", cold=tmp_path / "out")
    early = put(tmp_path / "out" / "epoch=1" / name)
    denied(tmp_path / "ck", "it holds epoch=1/part-", hot=tmp_path / "out")
    early.unlink()
    claim(tmp_path / "ck", hot=tmp_path / "out")


# Checkpoints that move, are copied, or come back from an older day


def test_a_checkpoint_that_was_moved_keeps_its_folders(tmp_path: Path) -> None:
    claim(tmp_path / "ck", hot=tmp_path / "out")
    shutil.move(tmp_path / "ck", tmp_path / "moved")
    claim(tmp_path / "moved", hot=tmp_path / "out")
    assert owner_of(tmp_path / "out").checkpoint == str(tmp_path / "moved")


def test_a_copy_does_not_write_beside_its_original(tmp_path: Path) -> None:
    claim(tmp_path / "ck", hot=tmp_path / "out")
    shutil.copytree(tmp_path / "ck", tmp_path / "copy")
    denied(
        tmp_path / "copy", f"{tmp_path / 'ck'}, of which this one is a copy", hot=tmp_path / "out"
    )
    claim(tmp_path / "ck", hot=tmp_path / "out")
    # The original is gone, or something else lies there: the copy takes its place.
    shutil.rmtree(tmp_path / "ck")
    commits(tmp_path / "ck", 1)
    claim(tmp_path / "copy", hot=tmp_path / "out")
    assert owner_of(tmp_path / "out").checkpoint == str(tmp_path / "copy")


def test_a_checkpoint_reached_by_a_link_is_no_copy(tmp_path: Path) -> None:
    claim(tmp_path / "ck", hot=tmp_path / "out")
    (tmp_path / "link").symlink_to("ck")
    claim(tmp_path / "link", hot=tmp_path / "out")


@pytest.mark.parametrize("marked", [True, False])
def test_a_checkpoint_from_an_older_day(tmp_path: Path, marked: bool) -> None:
    mark = commits(tmp_path / "ck", 3)
    shutil.copytree(tmp_path / "ck", tmp_path / "older")
    commits(tmp_path / "ck", 5)
    for epoch in (3, 4, 5):
        publish(tmp_path / "out", "hot", epoch, mark)
    if marked:
        claim(tmp_path / "ck", hot=tmp_path / "out")
    shutil.rmtree(tmp_path / "ck")
    shutil.move(tmp_path / "older", tmp_path / "ck")
    denied(
        tmp_path / "ck",
        "it holds epoch=4, but the checkpoint",
        "ends at epoch 3",
        "delete epoch=4 and all later ones",
        condition="SINK_AHEAD",
        hot=tmp_path / "out",
    )
    for epoch in (4, 5):
        shutil.rmtree(tmp_path / "out" / f"epoch={epoch}")
    claim(tmp_path / "ck", hot=tmp_path / "out")


# Crashes, damage, others at the same time


def test_a_crash_after_the_claim(tmp_path: Path) -> None:
    """The checkpoint's identity is older than the claim, so whoever comes next is the same."""
    checkpoint = Checkpoint(lambda path: LocalFiles(), str(tmp_path / "ck"), 20)
    state, _ = checkpoint.open()
    claim_folders([sink("hot", tmp_path / "out")], checkpoint, state)
    checkpoint.close()
    assert state.epoch == 0
    claim(tmp_path / "ck", hot=tmp_path / "out")


@pytest.mark.parametrize("text", ["", "{", "[]", "not whole", sealed({"format": 1}), "changed"])
def test_a_damaged_marker(tmp_path: Path, text: str) -> None:
    claim(tmp_path / "ck", hot=tmp_path / "out")
    marker = tmp_path / "out" / MARKER
    whole = marker.read_text()
    marker.write_text(
        {"not whole": whole[:-9], "changed": whole.replace("hot", "hat")}.get(text, text)
    )
    denied(tmp_path / "ck", "owner.json is damaged", "delete that file", hot=tmp_path / "out")
    marker.unlink()
    claim(tmp_path / "ck", hot=tmp_path / "out")


def test_a_marker_of_a_later_version(tmp_path: Path) -> None:
    claim(tmp_path / "ck", hot=tmp_path / "out")
    marker = tmp_path / "out" / MARKER
    marker.write_text(sealed({**unsealed(marker.read_text()), "format": 2}))
    denied(tmp_path / "ck", "another version has written it", hot=tmp_path / "out")


def contend(root: str, out: str, ready: Any, go: Any, answers: Any) -> None:
    with opened(Path(root)) as (checkpoint, state):
        contender = sink("hot", out)
        ready.release()
        go.wait()
        try:
            claim_folders([contender], checkpoint, state)
            answers.put((root, ""))
        except SinkError as error:
            answers.put((root, error.condition))


def test_one_of_many_processes_gets_a_folder(tmp_path: Path) -> None:
    start = multiprocessing.get_context("fork")
    ready, go, answers = start.Semaphore(0), start.Event(), start.Queue()
    arguments = [(str(tmp_path / f"ck{i}"), str(tmp_path / "out")) for i in range(6)]
    processes = [
        start.Process(target=contend, args=(*one, ready, go, answers)) for one in arguments
    ]
    for process in processes:
        process.start()
    for _ in processes:
        assert ready.acquire(timeout=60)
    go.set()
    found = dict(answers.get(timeout=60) for _ in processes)
    for process in processes:
        process.join(60)
    winners = [root for root, condition in found.items() if not condition]
    assert len(winners) == 1
    assert set(found.values()) == {"", "SINK_PATH_IN_USE"}
    assert owner_of(tmp_path / "out").checkpoint == winners[0]


class Beaten(LocalFiles):
    """Somebody else claims a folder just before this process does."""

    def __init__(self, marker: Path) -> None:
        super().__init__()
        self._marker = marker

    def create(self, path: str, text: str) -> bool:
        if path.endswith("owner.json"):
            put(self._marker, Owner("other", "fast", "/elsewhere", "").to_text())
        return super().create(path, text)


@pytest.mark.parametrize("place", ["data/out", "data"])
def test_somebody_was_quicker(tmp_path: Path, place: str) -> None:
    """Also where it is the folder around this one; a claim in vain leaves nothing."""
    slow = sink("slow", tmp_path / "data" / "out")
    marker = tmp_path / place / MARKER
    with opened(tmp_path / "ck", Beaten(marker)) as (checkpoint, state):
        error = refused(lambda: claim_folders([slow], checkpoint, state))
    check_error(error, "SINK_PATH_IN_USE", "query 'fast' of the checkpoint /elsewhere")
    assert list((tmp_path / "data").rglob("owner.json")) == [marker]
    assert owner_of(tmp_path / place).query == "fast"
    assert not slow.owns_folder


# Storage that cannot be reached


class Broken(LocalFiles):
    """A store that is out of reach."""

    broken = True

    def exists(self, path: str) -> bool:
        if self.broken and "/out" in path:
            raise CheckpointError("no answer", condition="STORAGE_NOT_WRITABLE")
        return super().exists(path)


def test_a_store_that_cannot_be_reached_keeps_no_other_query_from_starting(tmp_path: Path) -> None:
    files = Broken()
    kept, lost = sink("kept", tmp_path / "kept"), sink("lost", tmp_path / "out")
    with opened(tmp_path / "ck", files) as (checkpoint, state):
        claim_folders([lost, kept], checkpoint, state)
        assert (kept.owns_folder, lost.owns_folder) == (True, False)
        # It is claimed before the first write, or not written to.
        error = refused(lambda: claim_now(lost, checkpoint, state))
        check_error(error, "SINK_FAILED", "'lost' cannot write to", "no answer")
        files.broken = False
        claim_now(lost, checkpoint, state)
        assert lost.owns_folder
    assert owner_of(tmp_path / "out").query == "lost"


# In an engine

EVENTS = Stream("bids", "k string, v bigint, ts timestamp")
TEXT = "SELECT k, v FROM bids"


def to(path: Path) -> tuple[tuple[str, object], ...]:
    return (("path", str(path)),)


def test_a_engine_with_two_queries_of_one_path_does_not_start(
    spark: SparkSession, tmp_path: Path
) -> None:
    play(
        spark,
        tmp_path,
        [EVENTS],
        StartQuery("x", TEXT),
        StartQuery("y", TEXT, options=to(tmp_path / "out" / "x")),
        AddData("bids", ("a", 1, 1)),
        ExpectError(Advance(), "SINK_PATH_IN_USE", "query 'y' cannot write to"),
        StopQuery("y"),
        Advance(),
        CheckAnswer("x", ("a", 1)),
    )


def test_a_query_that_joins_a_running_engine(spark: SparkSession, tmp_path: Path) -> None:
    taken = StartQuery("y", TEXT, options=to(tmp_path / "out" / "x"))
    inside = StartQuery("z", TEXT, options=to(tmp_path / "out" / "x" / "z"))
    stage = play(
        spark,
        tmp_path,
        [EVENTS],
        StartQuery("x", TEXT),
        AddData("bids", ("a", 1, 1)),
        Run(),
        Advance(),
        Refused(taken, "query 'x' of this checkpoint writes there"),
        Refused(inside, "it lies in"),
        # What has left keeps its folder; under its own name it comes back to it.
        StartQuery("w", TEXT),
        AddData("bids", ("b", 2, 2)),
        Advance(),
        StopQuery("x"),
        Refused(taken, "query 'x' of this checkpoint writes there"),
        StartQuery("x", TEXT),
        AddData("bids", ("c", 3, 3)),
        Advance(),
        CheckAnswer("x", ("a", 1), ("b", 2), ("c", 3)),
        CheckAnswer("w", ("b", 2), ("c", 3)),
        Stop(),
        Restart(),
        AddData("bids", ("d", 4, 4)),
        Advance(),
        CheckAnswer("w", ("b", 2), ("c", 3), ("d", 4)),
    )
    assert owner_of(tmp_path / "out" / "x").query == "x"
    assert stage.handles["x"].exception() is None


class Refused(Step):
    """A query that may not start; nothing is left of the attempt."""

    def __init__(self, query: StartQuery, words: str) -> None:
        self.query, self.words = query, words

    def play(self, stage: Stage) -> None:
        ExpectError(self.query, "SINK_PATH_IN_USE", self.words).play(stage)
        del stage.queries[self.query.name]


def test_a_new_checkpoint_on_an_old_path(spark: SparkSession, tmp_path: Path) -> None:
    first = play(
        spark,
        tmp_path,
        [EVENTS],
        StartQuery("x", TEXT),
        AddData("bids", ("a", 1, 1)),
        Advance(),
    )
    before = all_files(tmp_path / "out")
    shutil.rmtree(first.checkpoint)
    second = play(
        spark,
        tmp_path,
        [EVENTS],
        StartQuery("x", TEXT),
        ExpectError(Advance(), "SINK_PATH_IN_USE", "move the folder away"),
    )
    assert all_files(tmp_path / "out") == before
    assert second.last_epoch() == 0
