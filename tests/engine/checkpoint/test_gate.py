"""The gate before storage: once it is closed nothing changes any more, and nobody is hurried."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.engine.checkpoint.checkpoint import Checkpoint
from headrace.engine.checkpoint.files import FileSystem, LocalFiles
from headrace.engine.checkpoint.gate import Abandoned, Gate, GatedFiles
from headrace.state.committed import Committed, Intent

CHANGES: dict[str, Callable[[FileSystem, str], object]] = {
    "write": lambda files, path: files.write(path, "new"),
    "create": lambda files, path: files.create(f"{path}-2", "new"),
    "make_folder": lambda files, path: files.make_folder(f"{path}-2"),
    "delete": lambda files, path: files.delete(path),
    "move": lambda files, path: files.move(path, f"{path}-2"),
    "copy": lambda files, path: files.copy(path, f"{path}-2"),
    "protect": lambda files, path: files.protect([path]),
    "flush": lambda files, path: files.flush([path]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_goes_through_the_gate(tmp_path: Path, change: str) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    gate = Gate()
    files = GatedFiles(LocalFiles(), gate)
    gate.close()
    with pytest.raises(Abandoned):
        CHANGES[change](files, str(path))
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert files.read(str(path)) == "old", "anybody may look"
    CHANGES[change](GatedFiles(LocalFiles(), Gate()), str(path))


def test_all_operations_are_thought_of() -> None:
    looks = {"read", "names", "exists", "size", "flushes"}
    operations = {name for name in vars(FileSystem) if not name.startswith("_")}
    assert operations == looks | CHANGES.keys()


def test_the_last_that_comes_out_does_what_was_left_to_it() -> None:
    gate = Gate()
    gone: list[str] = []
    entered, free = threading.Event(), threading.Event()

    def hang() -> None:
        with gate.passing("moving a"):
            entered.set()
            free.wait(10)

    hanging = threading.Thread(target=hang)
    hanging.start()
    assert entered.wait(10)
    gate.close()
    gate.when_empty(lambda: gone.append("left"))
    assert (gone, gate.inside) == ([], ["moving a"])
    free.set()
    hanging.join()
    assert (gone, gate.inside) == (["left"], [])
    gate.when_empty(lambda: gone.append("at once"))
    assert gone == ["left", "at once"]


def test_an_abandoned_checkpoint(tmp_path: Path) -> None:
    root = str(tmp_path / "state")
    one = Checkpoint(lambda path: LocalFiles(), root, 20)
    state, _ = one.open()
    one.begin(Intent(1, {"bids": 0}))
    one.abandon()
    state.epoch = 1
    for step in (
        lambda: one.begin(Intent(1, {"bids": 1})),
        one.probe,
        lambda: one.commit(state),
        lambda: one.files_of(root).delete(root),
    ):
        with pytest.raises(Abandoned):
            step()
    one.close()
    after = Checkpoint(lambda path: LocalFiles(), root, 20)
    assert after.open() == (Committed(), Intent(1, {"bids": 0}))
    after.close()
