"""Storage that dies in the middle of everything: before, after or within each of its operations.

An engine of three epochs with two sinks is led by owners that lose their storage at the first,
second, third … operation. Whatever was lost, the next owner brings it to the same end: every epoch
is published once and whole, and the state holds what its commit names and nothing else.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.checkpoint import lease
from headrace.engine.checkpoint.checkpoint import Checkpoint
from headrace.engine.checkpoint.files import LocalFiles
from headrace.engine.checkpoint.processes import Process, this_process
from headrace.state.arrangement import StateFile
from headrace.state.committed import Intent
from headrace.state.publication import Publication
from tests.engine.checkpoint.test_checkpoint import put
from tests.support.seeds import Seeds

EPOCHS = 3
#: The files that each epoch stages, by query.
STAGED = {"x": 2, "y": 1}
OPERATIONS = (
    *("read", "write", "create", "names", "exists", "make_folder", "delete", "move"),
    *("flush", "protect"),
)


class Died(Exception):
    """The process is no more; whatever it does after this does nothing."""


class Dying(LocalFiles):
    """Dies at one of its operations: before it, or after it."""

    def __init__(self, at: int, after: bool) -> None:
        super().__init__()
        self.left = at
        self._after = after

    def step(self, operation: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        self.left -= 1
        if self.left < 0 or (self.left == 0 and not self._after):
            raise Died
        done = operation(*arguments, **named)
        if self.left == 0:
            raise Died
        return done


def _dying(name: str) -> Callable[..., Any]:
    operation = getattr(LocalFiles, name)
    return lambda self, *arguments, **named: self.step(operation, self, *arguments, **named)


for _name in OPERATIONS:
    setattr(Dying, _name, _dying(_name))


class DyingStore(Dying):
    """Where a rename is a copy and then a deletion, it dies between the two as well."""

    def move(self, source: str, target: str) -> None:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        self.step(shutil.copyfile, source, target)
        self.step(os.remove, source)


@pytest.fixture(autouse=True)
def quick_and_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each owner is a process that has ended by the time of the next; disks do not wait."""
    processes = _processes()
    monkeypatch.setattr(lease, "this_process", lambda: next(processes))
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def _processes() -> Iterator[Process]:
    here = this_process()
    while True:
        # The number is taken, but by a process that began at another time.
        yield Process(here.host, here.pid, here.boot, here.namespace, "0")


def lead(folder: Path, files: LocalFiles, last: int = EPOCHS) -> None:
    """Go on from where the checkpoint is to the last epoch, as the engine does."""
    owner = Checkpoint(lambda path: files, str(folder / "checkpoint"), 2)
    try:
        state, intent = owner.open()
        for epoch in range(state.epoch + 1, last + 1):
            batches = {"bids": epoch - 1}
            assert intent is None or intent == Intent(epoch, batches)
            intent = None
            owner.begin(Intent(epoch, batches))
            after = state.copied()
            after.epoch, after.batches, after.publications = epoch, batches, []
            path = put(Path(owner.new_path("state", "rows", f"{epoch:010d}")), f"state {epoch}")
            rows = after.arrangement("rows")
            gone = rows.files[:-1]
            rows.replace(gone, [StateFile(path, epoch, 1, 1, None, None)])
            after.garbage += [(epoch, file.path) for file in gone]
            for query, parts in STAGED.items():
                staged = folder / "out" / "_headrace" / query / owner.staging_name(epoch)
                for part in range(parts):
                    put(staged / f"part-{part}.parquet", f"{query} {epoch} {part}")
                put(staged / "_SUCCESS", "")
                final = f"{folder}/out/epoch={epoch}"
                after.publications.append(Publication(str(staged), final))
            owner.commit(after)
            state = after
    finally:
        owner.close()


def check(folder: Path) -> None:
    """Lead it one epoch further, which tidies up, and compare."""
    last = EPOCHS + 1
    lead(folder, LocalFiles(), last)
    out = folder / "out"
    assert sorted(p.name for p in out.iterdir()) == [
        "_headrace",
        *(f"epoch={epoch}" for epoch in range(1, last + 1)),
    ]
    for epoch in range(1, last + 1):
        published = sorted(p.read_text() for p in (out / f"epoch={epoch}").iterdir())
        assert published == [f"x {epoch} 0", f"x {epoch} 1", f"y {epoch} 0"], epoch
    state = Checkpoint(lambda path: LocalFiles(), str(folder / "checkpoint"), 2).read()
    assert state.epoch == last
    # The file of the last epoch, that of the one before, and what left the state in the last.
    texts = {p: p.read_text() for p in (folder / "checkpoint" / "state" / "rows").iterdir()}
    assert sorted(texts.values()) == [f"state {epoch}" for epoch in (2, 3, 4)]
    assert {texts[Path(path)] for path in state.files()} == {"state 3", "state 4"}


def test_storage_that_lives(tmp_path: Path) -> None:
    lead(tmp_path, LocalFiles())
    check(tmp_path)


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("kind", "after"), [(Dying, False), (Dying, True), (DyingStore, True)])
def test_storage_that_dies_once(
    tmp_path: Path, kind: type[Dying], after: bool, step: int, seeds: Seeds
) -> None:
    """At each operation of a whole life, recovery from an epoch that was cut off among them; at a
    part of them, others every day, in the default run."""
    at = seeds.base % step - step + 1
    while True:
        at += step
        folder = tmp_path / str(at)
        try:
            lead(folder, kind(at, after))
        except Died:
            check(folder)
            continue
        break
    assert at > 100, "so many operations has a life"


@pytest.mark.parametrize(
    ("kind", "after"), [(Dying, False), (Dying, True), (DyingStore, False), (DyingStore, True)]
)
def test_storage_that_dies_again_and_again(tmp_path: Path, kind: type[Dying], after: bool) -> None:
    """Each owner comes a few operations further than the one before it, in recovery too."""
    at = deaths = 0
    while True:
        at += 1
        try:
            lead(tmp_path, kind(at, after))
        except Died:
            deaths += 1
            continue
        break
    assert deaths > 20
    check(tmp_path)
