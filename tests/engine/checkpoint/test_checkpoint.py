"""The checkpoint alone, without Spark: damage, what is missing, paths, privacy, old formats."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from headrace.engine.checkpoint import checkpoint as checkpoint_module
from headrace.engine.checkpoint.checkpoint import Checkpoint
from headrace.engine.checkpoint.files import LocalFiles
from headrace.errors import CheckpointError
from headrace.state.arrangement import StateFile
from headrace.state.committed import Committed, Intent
from headrace.state.publication import Publication
from headrace.state.sealed import digest, sealed, unsealed

FILES = LocalFiles()


def checkpoint(root: Path, retained: int = 20) -> Checkpoint:
    return Checkpoint(lambda path: FILES, str(root), retained)


def put(path: Path, text: str = "x") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def with_file(state: Committed, root: Path, epoch: int) -> Committed:
    """The next state: an epoch that has written one file."""
    after = state.copied()
    after.epoch = epoch
    after.publications = []
    path = put(root / "state" / "rows" / f"{epoch:010d}.parquet")
    after.arrangement("rows").append([StateFile(path, epoch, 1, 1, None, None)])
    after.batches = {"bids": epoch - 1}
    return after


def committed(root: Path, epochs: int) -> Committed:
    """A checkpoint that has seen so many epochs, and is closed."""
    owner = checkpoint(root)
    state, _ = owner.open()
    for epoch in range(1, epochs + 1):
        owner.begin(Intent(epoch, {"bids": epoch - 1}))
        state = with_file(state, root, epoch)
        owner.commit(state)
    owner.close()
    return state


def commit_file(root: Path, epoch: int, suffix: str = "commit") -> Path:
    return root / "epochs" / f"{epoch:010d}.{suffix}"


def refused(root: Path) -> CheckpointError:
    """The error of opening it, which is that of reading it too, where it is about the log."""
    with pytest.raises(CheckpointError) as caught:
        checkpoint(root).open()
    return caught.value


def reseal(path: Path, **changes: object) -> None:
    """Change a sealed file as somebody would who knows how it is made."""
    path.write_text(sealed({**unsealed(path.read_text()), **changes}))


def reopened(root: Path) -> tuple[Committed, Intent | None]:
    owner = checkpoint(root)
    try:
        return owner.open()
    finally:
        owner.close()


# Damage


@pytest.mark.parametrize("suffix", ["intent", "commit"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_file_that_was_cut_off(tmp_path: Path, suffix: str, share: float) -> None:
    committed(tmp_path, 3)
    if suffix == "intent":
        checkpoint_begun(tmp_path, 4)
    path = commit_file(tmp_path, 3 if suffix == "commit" else 4, suffix)
    whole = path.read_text()
    path.write_text(whole[: int(len(whole) * share)])
    error = refused(tmp_path)
    assert error.condition == "INVALID_CHECKPOINT"
    assert str(path) in error.message
    assert "is damaged" in error.message
    assert error.hint


def checkpoint_begun(root: Path, epoch: int) -> None:
    owner = checkpoint(root)
    owner.open()
    owner.begin(Intent(epoch, {"bids": epoch - 1}))
    owner.close()


@pytest.mark.parametrize("suffix", ["intent", "commit"])
def test_every_changed_byte_is_noticed(tmp_path: Path, suffix: str) -> None:
    committed(tmp_path, 1)
    checkpoint_begun(tmp_path, 2)
    path = commit_file(tmp_path, 1 if suffix == "commit" else 2, suffix)
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert refused(tmp_path).condition in ("INVALID_CHECKPOINT", "CHECKPOINT_VERSION")
    path.write_bytes(whole)
    state, intent = reopened(tmp_path)
    assert (state.epoch, intent) == (1, Intent(2, {"bids": 1}))


def test_an_intent_without_its_members(tmp_path: Path) -> None:
    committed(tmp_path, 1)
    for text in ("{}", "[]", "7", sealed({"format": 2}), sealed({"format": 2, "epoch": 2})):
        commit_file(tmp_path, 2, "intent").write_text(text)
        assert "is damaged" in refused(tmp_path).message


def test_a_damaged_checkpoint_is_left_as_it_is(tmp_path: Path) -> None:
    committed(tmp_path, 2)
    commit_file(tmp_path, 2).write_text("")
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    refused(tmp_path)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == before


def test_a_commit_of_another_checkpoint(tmp_path: Path) -> None:
    committed(tmp_path / "one", 2)
    committed(tmp_path / "other", 2)
    shutil.copy(commit_file(tmp_path / "other", 2), commit_file(tmp_path / "one", 2))
    assert "another checkpoint" in refused(tmp_path / "one").message


def test_a_commit_under_another_number(tmp_path: Path) -> None:
    committed(tmp_path, 3)
    shutil.copy(commit_file(tmp_path, 2), commit_file(tmp_path, 3))
    assert "it is the commit of epoch 2" in refused(tmp_path).message


def test_a_commit_that_does_not_follow_the_one_before(tmp_path: Path) -> None:
    committed(tmp_path, 3)
    reseal(commit_file(tmp_path, 2), plan_version=99)
    assert "does not follow" in refused(tmp_path).message


# What is missing


def test_the_last_commit_is_missing(tmp_path: Path) -> None:
    committed(tmp_path, 3)
    commit_file(tmp_path, 3).unlink()
    error = refused(tmp_path)
    assert error.condition == "CHECKPOINT_GAP"
    assert "ends at the commit of epoch 2, but epoch 3 was committed" in error.message
    with pytest.raises(CheckpointError, match="epoch 3 was committed"):
        checkpoint(tmp_path).read()


def test_the_last_commit_is_missing_with_its_note(tmp_path: Path) -> None:
    committed(tmp_path, 3)
    commit_file(tmp_path, 3).unlink()
    (tmp_path / "epochs" / "latest").unlink()
    # A crash within epoch 3 looks the same, but for Spark, which notes a batch after its commit.
    state, intent = reopened(tmp_path)
    assert (state.epoch, intent) == (2, Intent(3, {"bids": 2}))
    for batch in range(3):
        put(tmp_path / "ingest" / "bids" / "offsets" / str(batch))
        put(tmp_path / "ingest" / "bids" / "commits" / str(batch))
    error = refused(tmp_path)
    assert error.condition == "CHECKPOINT_GAP"
    assert "holds 2 batches of stream 'bids', but Spark has finished 3" in error.message


def test_commits_before_a_later_intent_are_missing(tmp_path: Path) -> None:
    committed(tmp_path, 4)
    (tmp_path / "epochs" / "latest").unlink()
    commit_file(tmp_path, 3).unlink()
    commit_file(tmp_path, 4).unlink()
    assert "but epoch 4 was begun" in refused(tmp_path).message


def test_all_commits_are_missing(tmp_path: Path) -> None:
    committed(tmp_path, 2)
    for file in tmp_path.glob("epochs/*.commit"):
        file.unlink()
    assert refused(tmp_path).condition == "CHECKPOINT_GAP"


def test_spark_has_forgotten_a_batch(tmp_path: Path) -> None:
    committed(tmp_path, 3)
    for batch in range(2):
        put(tmp_path / "ingest" / "bids" / "offsets" / str(batch))
    error = refused(tmp_path)
    assert error.condition == "CHECKPOINT_GAP"
    assert "holds batch 2 of stream 'bids', but Spark's log of it ends at 1" in error.message


def test_a_state_file_is_missing(tmp_path: Path) -> None:
    committed(tmp_path, 3)
    gone = tmp_path / "state" / "rows" / "0000000002.parquet"
    gone.unlink()
    error = refused(tmp_path)
    assert (error.condition, str(gone) in error.message) == ("CHECKPOINT_GAP", True)


def test_a_crash_between_a_commit_and_its_note_loses_nothing(tmp_path: Path) -> None:
    committed(tmp_path, 3)
    latest = tmp_path / "epochs" / "latest"
    for text in (sealed({"epoch": 2, "commit": digest(commit_file(tmp_path, 2).read_text())}), ""):
        latest.write_text(text)
        assert reopened(tmp_path)[0].epoch == 3


# Recovery


def test_an_epoch_without_a_commit_is_rolled_back_by_the_next_commit(tmp_path: Path) -> None:
    state = committed(tmp_path, 2)
    stray = tmp_path / "state" / "rows" / "0000000003.parquet"
    put(stray)
    put(tmp_path / "results" / "q" / "0000000003" / "part-0.parquet")
    owner = checkpoint(tmp_path)
    owner.open()
    # Its writer may not be dead, and may still commit it: until the epoch is somebody else's.
    assert stray.exists()
    after = state.copied()
    after.epoch = 3
    owner.commit(after)
    owner.close()
    assert not stray.exists()
    assert not list((tmp_path / "results").rglob("*.parquet"))
    assert sorted(after.files()) == sorted(map(str, tmp_path.glob("state/rows/*")))


def test_few_retained_commits_are_enough_to_go_on(tmp_path: Path) -> None:
    owner = checkpoint(tmp_path, retained=0)
    state, _ = owner.open()
    for epoch in range(1, 6):
        state = with_file(state, tmp_path, epoch)
        owner.commit(state)
    owner.close()
    assert reopened(tmp_path)[0].epoch == 5
    assert len(list(tmp_path.glob("epochs/*.commit"))) == 2


def test_reading_changes_nothing(tmp_path: Path) -> None:
    assert checkpoint(tmp_path / "new").read() == Committed()
    assert not (tmp_path / "new").exists()
    state = committed(tmp_path / "old", 2)
    put(tmp_path / "old" / "state" / "rows" / "0000000003.parquet")
    owner = checkpoint(tmp_path / "old")
    owner.open()
    before = sorted((tmp_path / "old").rglob("*"))
    assert checkpoint(tmp_path / "old").read().to_json(str(tmp_path / "old")) == state.to_json(
        str(tmp_path / "old")
    )
    assert sorted((tmp_path / "old").rglob("*")) == before
    owner.close()


# Paths


def test_a_checkpoint_can_be_moved(tmp_path: Path) -> None:
    committed(tmp_path / "here", 2)
    assert str(tmp_path) not in commit_file(tmp_path / "here", 2).read_text()
    shutil.move(tmp_path / "here", tmp_path / "there")
    state, _ = reopened(tmp_path / "there")
    assert list(state.files()) == [
        f"{tmp_path}/there/state/rows/{epoch:010d}.parquet" for epoch in (1, 2)
    ]


@pytest.mark.parametrize(
    "path",
    ["../victim", "/victim", "state/../../victim", "epochs/0000000001.commit", "headrace.json", ""],
)
def test_a_commit_cannot_name_what_is_not_state(tmp_path: Path, path: str) -> None:
    root = tmp_path / "checkpoint"
    committed(root, 2)
    victim = tmp_path / "victim"
    put(victim)
    (root / "epochs" / "latest").unlink()
    full = str(victim) if path == "/victim" else path
    reseal(commit_file(root, 2), garbage=[[0, full]])
    assert "is damaged" in refused(root).message
    file = {"path": full, "epoch": 1, "rows": 1, "size": 1, "first": None, "last": None}
    reseal(
        commit_file(root, 2),
        garbage=[],
        arrangements={"rows": {"files": [file], "recent_rows": 1}},
    )
    assert "is damaged" in refused(root).message
    assert victim.exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"staged": "../../victims"},
        {"staged": "epoch=1"},
        {"staged": "_headrace/../../victims"},
        {"final": "../epoch=1"},
        {"final": "/epoch=1"},
        {"files": [["../../victims/a", "part-0"]]},
        {"files": [["part-0", "../part-0"]]},
    ],
)
def test_a_commit_cannot_publish_what_is_not_staged(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    root, out = tmp_path / "checkpoint", tmp_path / "out"
    put(tmp_path / "victims" / "a")
    put(out / "_headrace" / "q" / "0000000001" / "part-0.parquet")
    owner = checkpoint(root)
    owner.open()
    staged = f"{out}/_headrace/q/0000000001"
    owner.commit(Committed(epoch=1, publications=[Publication(staged, f"{out}/epoch=1")]))
    owner.close()
    (root / "epochs" / "latest").unlink()
    (published,) = unsealed(commit_file(root, 1).read_text())["publications"]
    reseal(commit_file(root, 1), publications=[{**published, **changes}])
    assert "is damaged" in refused(root).message
    assert (tmp_path / "victims" / "a").exists()


def test_a_file_out_of_place_is_not_committed(tmp_path: Path) -> None:
    owner = checkpoint(tmp_path / "checkpoint")
    state, _ = owner.open()
    state.epoch = 1
    path = put(tmp_path / "elsewhere.parquet")
    state.arrangement("rows").append([StateFile(path, 1, 1, 1, None, None)])
    with pytest.raises(ValueError, match="is not in"):
        owner.commit(state)


# Privacy


def test_a_checkpoint_is_private(tmp_path: Path) -> None:
    root = tmp_path / "checkpoint"
    before = os.umask(0o022)
    try:
        committed(root, 2)
        folder = root / "results" / "q" / "0000000003"
        put(folder / "part-0.parquet")
        owner = checkpoint(root)
        state, _ = owner.open()
        state.epoch = 3
        state.arrangement("results-q").append([StateFile(str(folder), 3, 1, 1, None, None)])
        owner.commit(state)
        owner.close()
    finally:
        os.umask(before)
    # What tasks and Spark write gets its mode with the commit; the folder in between is made by
    # whoever writes first.
    for path in (root, *root.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        above = path.parent.name in ("state", "results")
        assert mode == (0o755 if above else 0o700 if path.is_dir() else 0o600), path


# Format 1


def test_a_checkpoint_of_format_1_goes_on(tmp_path: Path) -> None:
    root, out = tmp_path / "checkpoint", tmp_path / "out"
    write_format_1(root, out)
    assert checkpoint(root).read().epoch == 7
    state, intent = reopened(root)
    assert (state.epoch, state.batches, intent) == (7, {"bids": 6}, Intent(8, {"bids": 7}))
    assert list(state.files()) == [f"{root}/state/rows/0000000007.parquet"]
    # What it had staged is published, under a name of its own.
    (published,) = (out / "epoch=7").iterdir()
    assert published.read_text() == "rows"
    # Older versions see that it is no longer theirs.
    assert json.loads((root / "headrace.json").read_text())["format"] == 2
    owner = checkpoint(root)
    state, _ = owner.open()
    owner.commit(with_file(state, root, 8))
    owner.close()
    shutil.move(root, tmp_path / "moved")
    assert reopened(tmp_path / "moved")[0].epoch == 8


def test_a_checkpoint_of_format_1_cannot_be_moved(tmp_path: Path) -> None:
    write_format_1(tmp_path / "checkpoint", tmp_path / "out")
    shutil.move(tmp_path / "checkpoint", tmp_path / "moved")
    assert "cannot be moved" in refused(tmp_path / "moved").message


def write_format_1(root: Path, out: Path) -> None:
    """What a version before leases and checksums has left, written out by hand."""
    put(root / "headrace.json", json.dumps({"format": 1, "race": "0123456789abcdef"}))
    file = {
        "path": put(root / "state" / "rows" / "0000000007.parquet"),
        "epoch": 7,
        "rows": 1,
        "size": 1,
        "first": None,
        "last": None,
        "level": 0,
        "split": None,
        "since": None,
    }
    put(out / "_headrace" / "q" / "0000000007" / "part-0.parquet", "rows")
    commit = {
        "format": 1,
        "epoch": 7,
        "batches": {"bids": 6},
        "greatest": {},
        "watermarks": {},
        "plan_version": 1,
        "panes": {"generations": {}, "hosts": {}},
        "queries": {},
        "arrangements": {"rows": {"files": [file], "recent_rows": 1}},
        "publications": [
            {"staged": f"{out}/_headrace/q/0000000007", "final": f"{out}/epoch=7"},
        ],
        "garbage": [[6, f"{root}/state/rows/0000000006.parquet"]],
    }
    put(commit_file(root, 7), json.dumps(commit))
    put(
        commit_file(root, 8, "intent"),
        json.dumps({"format": 1, "epoch": 8, "batches": {"bids": 7}}),
    )


# Output that was published, and moved on


def with_output(root: Path, out: Path) -> Checkpoint:
    """An owner of a checkpoint whose first epoch puts something out, and is committed."""
    owner = checkpoint(root)
    state, _ = owner.open()
    state.epoch = 1
    staged = out / "_headrace" / "q" / owner.staging_name(1)
    put(staged / "part-0.parquet")
    state.publications = [Publication(str(staged), f"{out}/epoch=1")]
    owner.commit(state)
    return owner


def test_a_folder_may_be_moved_away_once_its_output_is_published(tmp_path: Path) -> None:
    root, out = tmp_path / "checkpoint", tmp_path / "out"
    with_output(root, out).close()
    out.rename(tmp_path / "archive")
    owner = checkpoint(root)
    state, _ = owner.open()
    assert not owner.unpublished
    state.epoch, state.publications = 2, []
    owner.commit(state)
    assert not owner.unpublished
    owner.close()


@pytest.fixture
def lost_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, Path]:
    """A checkpoint, a folder that went before its output was published, and where it is now."""
    root, out, away = tmp_path / "checkpoint", tmp_path / "out", tmp_path / "away"

    def lose_folder(place: str) -> None:
        if place == "commit.after":
            out.rename(away)

    monkeypatch.setattr(checkpoint_module, "failpoint", lose_folder)
    with_output(root, out).close()
    return root, out, away


def test_a_folder_that_goes_before_its_output_is_published_is_missed(
    lost_output: tuple[Path, Path, Path],
) -> None:
    root, out, away = lost_output
    owner = checkpoint(root)
    owner.open()
    assert [publication.sink for publication in owner.unpublished] == [str(out)]
    away.rename(out)
    owner.publish_again()
    owner.close()
    assert len(list((out / "epoch=1").iterdir())) == 1
    # From now on it is known to be there.
    out.rename(away)
    owner = checkpoint(root)
    owner.open()
    assert not owner.unpublished
    owner.close()


def test_a_folder_that_does_not_come_back_can_be_given_up(
    lost_output: tuple[Path, Path, Path],
) -> None:
    root, out, _ = lost_output
    (out / "_headrace").mkdir(parents=True)
    owner = checkpoint(root)
    owner.open()
    assert not owner.unpublished
    owner.close()
