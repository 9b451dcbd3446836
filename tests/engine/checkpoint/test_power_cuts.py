"""A power cut loses what was not flushed: all that a commit names must be, before it has its name.

The disk is asked which files and folders were flushed, and when, in the order of the calls.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.checkpoint.checkpoint import Checkpoint
from headrace.engine.checkpoint.files import LocalFiles
from headrace.state.arrangement import StateFile
from headrace.state.committed import Committed
from headrace.state.publication import Publication
from tests.engine.checkpoint.test_checkpoint import put


@dataclass
class Disk:
    """What was flushed when which file got its name, and since."""

    flushed: dict[tuple[int, int], int] = field(default_factory=dict)
    named: dict[str, int] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)
    calls: int = 0

    def flushed_at(self, path: Path | str) -> int | None:
        status = os.stat(path)
        return self.flushed.get((status.st_dev, status.st_ino))

    def now(self) -> int:
        self.calls += 1
        return self.calls


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    seen = Disk()
    link, replace = os.link, os.replace

    def watched_fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        # The last flush before a commit is what counts; a file must not change after it.
        seen.flushed[status.st_dev, status.st_ino] = seen.now()

    def watched_link(source: str, target: str) -> None:
        link(source, target)
        seen.named[target] = seen.now()

    def watched_replace(source: str, target: str) -> None:
        replace(source, target)
        seen.moved[target] = seen.now()

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "link", watched_link)
    monkeypatch.setattr(os, "replace", watched_replace)
    return seen


def an_epoch(root: Path, out: Path, flush: bool = True) -> tuple[list[Path], list[Path]]:
    """One epoch of all kinds of files; those that its commit names, and what it publishes."""
    files = LocalFiles(flush)
    owner = Checkpoint(lambda path: files, str(root), 20)
    owner.open()
    spark_written = root / "state" / "b" / "0000000001"
    put(spark_written / "part-0.parquet")
    put(spark_written / "part-1.parquet")
    state_file = root / "state" / "a" / "0000000001.parquet"
    put(state_file)
    for name in ("metadata", "offsets/0", "sources/0/0"):
        put(root / "ingest" / "bids" / name)
    staged = out / "_headrace" / "q" / owner.staging_name(1)
    put(staged / "part-0.parquet")
    # Its folder is called otherwise than the stream.
    state = Committed(epoch=1, batches={"Bids": 0})
    for name, path in (("a", state_file), ("b", spark_written)):
        state.arrangement(name).append([StateFile(str(path), 1, 1, 1, None, None)])
    state.publications = [Publication(str(staged), f"{out}/epoch=1")]
    owner.commit(state)
    owner.close()
    needed = [
        *(state_file, state_file.parent),
        *(spark_written / "part-0.parquet", spark_written / "part-1.parquet"),
        *(spark_written, spark_written.parent, root / "state", root),
        *(root / "ingest" / "bids" / name for name in ("metadata", "offsets/0", "sources/0/0")),
        *(root / "ingest" / "bids" / name for name in ("", "offsets", "sources", "sources/0")),
        *(root / "ingest", out / "_headrace" / "q", out / "_headrace"),
    ]
    return needed, [*(out / "epoch=1").iterdir()]


def test_all_that_a_commit_names_is_flushed_before_it(tmp_path: Path, disk: Disk) -> None:
    root, out = tmp_path / "checkpoint", tmp_path / "out"
    needed, published = an_epoch(root, out)
    commit = str(root / "epochs" / "0000000001.commit")
    for path in (*needed, *published):
        when = disk.flushed_at(path)
        assert when is not None, path
        assert when < disk.named[commit], path
    # The commit itself was flushed before it had its name, and its name after.
    assert (disk.flushed_at(commit) or disk.calls) < disk.named[commit]
    assert (disk.flushed_at(root / "epochs") or 0) > disk.named[commit]
    # So were the names under which output appears, once it had them.
    (file,) = published
    assert (disk.flushed_at(out / "epoch=1") or 0) > disk.moved[str(file)]
    assert (disk.flushed_at(out) or 0) > disk.moved[str(file)]


def test_nothing_is_flushed_by_who_does_not_want_it(tmp_path: Path, disk: Disk) -> None:
    an_epoch(tmp_path / "checkpoint", tmp_path / "out", flush=False)
    assert not disk.flushed


def test_an_epoch_flushes_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[Any] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(os.fstat(descriptor)))
    owner = Checkpoint(lambda path: LocalFiles(), str(tmp_path), 20)
    state, _ = owner.open()
    for epoch in range(1, 4):
        state = state.copied()
        state.epoch = epoch
        path = put(tmp_path / "state" / "rows" / f"{epoch:010d}.parquet")
        state.arrangement("rows").append([StateFile(path, epoch, 1, 1, None, None)])
        flushed.clear()
        owner.commit(state)
    folders = [stat.S_ISDIR(status.st_mode) for status in flushed]
    owner.close()
    # The new file and the commit, and the folders that they are in.
    assert sorted(folders) == [False, False, True, True]


def test_a_file_that_cannot_be_flushed_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = Checkpoint(lambda path: LocalFiles(), str(tmp_path), 20)
    state, _ = owner.open()
    state.epoch = 1
    path = put(tmp_path / "state" / "rows" / "0000000001.parquet")
    state.arrangement("rows").append([StateFile(path, 1, 1, 1, None, None)])

    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(Exception, match="STORAGE_NOT_WRITABLE"):
        owner.commit(state)
    assert not list(tmp_path.glob("epochs/*.commit"))


@pytest.mark.parametrize("call", ["open", "fsync"])
def test_a_sink_whose_names_cannot_be_flushed_harms_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Its folder goes away when its files have their names, before these are flushed."""
    owner = Checkpoint(lambda path: LocalFiles(), str(tmp_path / "checkpoint"), 20)
    state, _ = owner.open()
    state.epoch = 1
    for sink in ("lost", "whole"):
        staged = tmp_path / sink / "_headrace" / sink / owner.staging_name(1)
        put(staged / "part-0.parquet")
        state.publications.append(Publication(str(staged), f"{tmp_path}/{sink}/epoch=1"))
    opened: dict[Any, Any] = {}
    plain_open, whole = os.open, getattr(os, call)

    def broken(place: Any, *arguments: Any, **options: Any) -> Any:
        path = opened.get(place, place)
        if str(path).startswith(f"{tmp_path}/lost/epoch=1"):
            raise NotADirectoryError(20, "Not a directory", path)
        return whole(place, *arguments, **options)

    def watched_open(path: Any, *arguments: Any, **options: Any) -> int:
        descriptor = plain_open(path, *arguments, **options)
        opened[descriptor] = path
        return descriptor

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", watched_open)
        patched.setattr(os, call, broken)
        owner.commit(state)
    ((publication, reason),) = owner.unpublished.items()
    assert publication.sink == f"{tmp_path}/lost"
    assert "Not a directory" in reason
    assert not Path(state.publications[1].staged).exists()
    owner.publish_again()
    assert not owner.unpublished
    owner.close()
    assert [len(list((tmp_path / sink / "epoch=1").iterdir())) for sink in ("lost", "whole")] == [
        1,
        1,
    ]
