"""Who owns a checkpoint: one process at a time, and a former owner does no harm."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.engine.checkpoint import lease
from headrace.engine.checkpoint.checkpoint import Checkpoint
from headrace.engine.checkpoint.files import LocalFiles
from headrace.engine.checkpoint.lease import Holder
from headrace.engine.checkpoint.processes import Process, is_alive, process_of, this_process
from headrace.errors import CheckpointError
from headrace.state.committed import Committed, Intent
from tests.conftest import REPOSITORY
from tests.engine.checkpoint.test_checkpoint import FILES, put, with_file

ELSEWHERE = Process("elsewhere.example", 4711, "another boot", "pid:[1]", "12345")
#: Opens a checkpoint, says so, and goes on until it is killed.
CHILD = """
import sys, time
from headrace.engine.checkpoint.checkpoint import Checkpoint
from headrace.engine.checkpoint.files import LocalFiles
Checkpoint(lambda path: LocalFiles(), sys.argv[1], 20).open()
print("open", flush=True)
time.sleep(60)
"""


def owner(root: Path, timeout_ms: int = 60_000) -> Checkpoint:
    return Checkpoint(lambda path: FILES, str(root), 20, timeout_ms)


def refusal(one: Checkpoint) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        one.open()
    return caught.value


def opened_elsewhere(root: Path, timeout_ms: int) -> Checkpoint:
    """An owner on another machine, whose processes cannot be looked at from here."""
    one = owner(root, timeout_ms)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease, "this_process", lambda: ELSEWHERE)
        one.open()
    return one


def abandon(one: Checkpoint) -> None:
    """What is left of an owner that was killed: no sign of life any more, and no farewell."""
    one._lease._ended.set()


def test_a_second_owner_is_refused(tmp_path: Path) -> None:
    first = owner(tmp_path)
    first.open()
    error = refusal(owner(tmp_path))
    assert error.condition == "CHECKPOINT_IN_USE"
    assert "in use by another engine of this process, since 20" in error.message
    assert error.hint == "stop that one first"
    first.close()
    second = owner(tmp_path)
    second.open()
    second.close()


def test_a_second_process_is_refused_until_the_first_is_dead(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        error = refusal(owner(tmp_path))
        assert error.condition == "CHECKPOINT_IN_USE"
        assert f"process {child.pid} on {os.uname().nodename}, since" in error.message
    finally:
        child.kill()
        # It is dead before anybody has asked what became of it.
        time.sleep(0.2)
        started = time.monotonic()
        second = owner(tmp_path)
        second.open()
        assert time.monotonic() - started < 10
        child.wait()
        second.close()


def test_another_process_of_the_same_number_is_another() -> None:
    here = this_process()
    assert is_alive(here) is True
    assert is_alive(replace(here, began="1")) is False
    assert is_alive(replace(here, namespace="pid:[1]")) is None
    assert is_alive(replace(here, boot="another")) is None
    assert is_alive(ELSEWHERE) is None
    assert is_alive(process_of(2**22 + 1)) is False


def test_a_dead_owner_elsewhere_is_followed_in_time(tmp_path: Path) -> None:
    first = opened_elsewhere(tmp_path, 400)
    abandon(first)
    second = owner(tmp_path, timeout_ms=400)
    error = refusal(second)
    assert error.condition == "CHECKPOINT_IN_USE"
    assert "process 4711 on elsewhere.example" in error.message
    assert "no sign of life for 0.4 s" in str(error.hint)
    time.sleep(0.5)
    second.open()
    second.close()


def test_an_owner_elsewhere_that_lives_is_not_followed(tmp_path: Path) -> None:
    first = opened_elsewhere(tmp_path, 1_200)
    time.sleep(1.4)
    assert refusal(owner(tmp_path)).condition == "CHECKPOINT_IN_USE"
    first.close()


def test_an_owner_whose_clock_is_behind_is_seen_to_live(tmp_path: Path) -> None:
    first = opened_elsewhere(tmp_path, 3_000)
    (file,) = (tmp_path / "leases").iterdir()
    held = Holder.from_text(file.read_text())
    file.write_text(replace(held, renewed=held.renewed - 3_600).to_text())
    assert refusal(owner(tmp_path)).condition == "CHECKPOINT_IN_USE"
    first.close()


def test_a_dead_owner_whose_clock_was_ahead_is_followed_in_time(tmp_path: Path) -> None:
    """Its last sign of life seems to be still to come, for as long as its clock was ahead."""
    abandon(opened_elsewhere(tmp_path, 600))
    (file,) = (tmp_path / "leases").iterdir()
    held = Holder.from_text(file.read_text())
    file.write_text(replace(held, renewed=held.renewed + 3_600).to_text())
    second = owner(tmp_path, timeout_ms=600)
    started = time.monotonic()
    second.open()
    assert time.monotonic() - started >= 0.6
    second.close()


def test_an_owner_that_could_not_say_that_it_left_keeps_nobody_out(tmp_path: Path) -> None:
    """The disk is full when it ends, and there is room again when its own process comes back."""

    class Full(LocalFiles):
        def write(self, path: str, text: str, lasting: bool = True) -> None:
            raise OSError(28, "No space left on device", path)

    full = Full()
    first = Checkpoint(lambda path: full, str(tmp_path), 20)
    first.open()
    assert refusal(owner(tmp_path)).condition == "CHECKPOINT_IN_USE"
    first.close()
    second = owner(tmp_path)
    second.open()
    assert refusal(owner(tmp_path)).condition == "CHECKPOINT_IN_USE"
    second.close()


def test_an_owner_whose_clock_is_ahead_is_seen_to_live(tmp_path: Path) -> None:
    first = opened_elsewhere(tmp_path, 3_000)
    (file,) = (tmp_path / "leases").iterdir()
    held = Holder.from_text(file.read_text())
    file.write_text(replace(held, renewed=held.renewed + 3_600).to_text())
    assert refusal(owner(tmp_path)).condition == "CHECKPOINT_IN_USE"
    first.close()


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_damaged_lease_is_waited_for(tmp_path: Path, text: str) -> None:
    first = owner(tmp_path)
    first.open()
    first.close()
    (file,) = (tmp_path / "leases").iterdir()
    file.write_text(text)
    second = owner(tmp_path, timeout_ms=300)
    started = time.monotonic()
    second.open()
    assert time.monotonic() - started >= 0.3
    second.close()


def test_leases_that_were_deleted_do_not_bring_names_back(tmp_path: Path) -> None:
    first = owner(tmp_path)
    state, _ = first.open()
    name = first.new_path("state", "rows", "1")
    first.commit(with_file(state, tmp_path, 1))
    first.close()
    for file in (tmp_path / "leases").iterdir():
        file.unlink()
    second = owner(tmp_path)
    second.open()
    assert second.new_path("state", "rows", "1") != name
    second.close()


# A former owner wakes up


def taken_over(tmp_path: Path) -> tuple[Checkpoint, Committed, Checkpoint, Committed]:
    """An owner in its second epoch, which was thought dead, and the one that follows it."""
    first = owner(tmp_path)
    state, _ = first.open()
    one = with_file(state, tmp_path, 1)
    first.commit(one)
    # As if it had been dead.
    held = first._lease._file(first._lease.term)
    holder = Holder.from_text(FILES.read(held))
    FILES.write(held, replace(holder, released=True).to_text())
    second = owner(tmp_path)
    state, _ = second.open()
    return first, one, second, state


def named(state: Committed, root: Path, epoch: int, by: Checkpoint) -> Committed:
    """An epoch that has written a file under a name of its owner's."""
    after = state.copied()
    after.epoch = epoch
    path = by.new_path("state", "rows", f"{epoch:010d}")
    after.arrangement("rows").append(
        [replace(with_file(state, root, 1).arrangement("rows").files[-1], path=put(Path(path)))]
    )
    return after


def test_a_former_owner_cannot_commit(tmp_path: Path) -> None:
    first, one, second, same = taken_over(tmp_path)
    late = named(one, tmp_path, 2, first)
    second.commit(named(same, tmp_path, 2, second))
    with pytest.raises(CheckpointError, match="was taken over by another engine") as caught:
        first.commit(late)
    assert caught.value.condition == "CHECKPOINT_LOST"
    check_whole(tmp_path, second, 2)


def test_a_former_owner_cannot_begin(tmp_path: Path) -> None:
    first, _, second, _ = taken_over(tmp_path)
    second.begin(Intent(2, {"bids": 5}))
    with pytest.raises(CheckpointError, match="was taken over"):
        first.begin(Intent(2, {"bids": 1}))
    second.close()
    third = owner(tmp_path)
    assert third.open()[1] == Intent(2, {"bids": 5})
    third.close()


@pytest.mark.parametrize("epochs", [1, 30])
def test_a_former_owner_that_looked_before_it_lost_cannot_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epochs: int
) -> None:
    """It sleeps between its last look at the lease and its commit; the other one goes on, until
    its own commit of that epoch is no longer kept."""
    first, one, second, state = taken_over(tmp_path)
    late = named(one, tmp_path, 2, first)
    for epoch in range(2, 2 + epochs):
        state = named(state, tmp_path, epoch, second)
        second.commit(state)
    monkeypatch.setattr(first._lease, "check", lambda: None)
    with pytest.raises(CheckpointError) as caught:
        first.commit(late)
    assert caught.value.condition == "CHECKPOINT_LOST"
    check_whole(tmp_path, second, 1 + epochs)


def test_a_former_owner_that_commits_first_has_lost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit is whole, though another one has opened the checkpoint since; that one stops."""
    first, one, second, state = taken_over(tmp_path)
    # The files were there when the second one began.
    late = named(one, tmp_path, 2, first)
    second.close()
    second = owner(tmp_path)
    state, _ = second.open()
    monkeypatch.setattr(first._lease, "check", lambda: None)
    first.commit(late)
    with pytest.raises(CheckpointError) as caught:
        second.commit(named(state, tmp_path, 2, second))
    assert caught.value.condition == "CHECKPOINT_LOST"
    check_whole(tmp_path, second, 2)


def test_two_that_follow_the_same_dead_owner(tmp_path: Path) -> None:
    """Both find it dead; only one of them can begin the next term."""

    class Late(LocalFiles):
        """The other one is quicker by a step."""

        other: Checkpoint | None = None

        def create(self, path: str, text: str) -> bool:
            if path.endswith(".lease") and self.other is None:
                self.other = owner(tmp_path)
                self.other.open()
            return super().create(path, text)

    files = Late()
    error = refusal(Checkpoint(lambda path: files, str(tmp_path), 20))
    assert error.condition == "CHECKPOINT_IN_USE"
    assert files.other is not None
    files.other.close()


def check_whole(root: Path, last_owner: Checkpoint, epoch: int) -> None:
    """All that the last commit names is there, and nothing of it was harmed."""
    last_owner.close()
    third = owner(root)
    state, _ = third.open()
    third.close()
    assert state.epoch == epoch
    assert all(os.path.exists(path) for path in state.files())
