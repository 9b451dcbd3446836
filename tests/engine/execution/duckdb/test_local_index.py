"""Indexes on executors: they hold what the files hold, and read no file twice without need."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.checkpoint.processes import process_of, this_process
from headrace.engine.execution.duckdb import local_index
from headrace.engine.execution.duckdb.local_index import (
    DIES,
    KEY,
    Segment,
    Shelf,
    make_segment,
    mixed,
)
from headrace.engine.execution.duckdb.probe_kernel import look_up_all

PATHS = [(0,), (0, 1)]


class Files:
    """Files of rows that count how often they are read."""

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[int, int, int]]] = {}
        self.spans: dict[str, tuple[int, int]] = {}
        self.reads: Counter[str] = Counter()

    def add(self, name: str, first: int, last: int, rows: Sequence[tuple[int, int, int]]) -> None:
        self.rows[name], self.spans[name] = list(rows), (first, last)

    def read(self, names: Sequence[str]) -> pa.Table:
        self.reads.update(names)
        return table([row for name in names for row in self.rows[name]])

    def catch_up(self, shelf: Shelf, watermark: int | None = None) -> list[Segment]:
        names = list(self.rows)
        return shelf.catch_up(names, [self.spans[n] for n in names], self.read, PATHS, watermark)

    @property
    def all_rows(self) -> list[tuple[int, int, int]]:
        return sorted(row for rows in self.rows.values() for row in rows)


def table(rows: Sequence[tuple[int, int, int]]) -> pa.Table:
    one, other, times = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    return pa.table({f"{KEY}0": one, f"{KEY}1": other, DIES: times})


def held(segments: Sequence[Segment]) -> list[tuple[int, int, int]]:
    return sorted(tuple(row.values()) for segment in segments for row in segment.rows.to_pylist())


def rows_of_epoch(epoch: int, count: int = 10) -> list[tuple[int, int, int]]:
    return [((epoch * 7 + i) % 23, i % 3, epoch) for i in range(count)]


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    return Shelf("run", "key")


def test_each_file_is_read_once(shelf: Shelf) -> None:
    files = Files()
    for epoch in range(30):
        files.add(f"f{epoch}", epoch, epoch, rows_of_epoch(epoch))
        segments = files.catch_up(shelf)
        assert held(segments) == files.all_rows
        # Each is several times as large as the next.
        assert len(segments) <= 4
    assert set(files.reads.values()) == {1}


def test_merged_files_are_not_read_again(shelf: Shelf) -> None:
    """The engine merges small files; who has their rows needs no other copy of them."""
    files = Files()
    for epoch in range(8):
        files.add(f"f{epoch}", epoch, epoch, rows_of_epoch(epoch))
        files.catch_up(shelf)
    merged = [row for name in list(files.rows) for row in files.rows.pop(name)]
    files.add("merged", 0, 7, merged)
    files.add("f8", 8, 8, rows_of_epoch(8))
    assert held(files.catch_up(shelf)) == files.all_rows
    assert "merged" not in files.reads


def test_a_machine_that_fell_behind_begins_anew(shelf: Shelf) -> None:
    files = Files()
    for epoch in range(3):
        files.add(f"f{epoch}", epoch, epoch, rows_of_epoch(epoch))
    files.catch_up(shelf)
    # Meanwhile others ran epochs 3 to 6, and files were merged across what is known here.
    early = [row for name in list(files.rows) for row in files.rows.pop(name)]
    files.add("merged", 0, 5, early + [row for e in (3, 4, 5) for row in rows_of_epoch(e)])
    files.add("f6", 6, 6, rows_of_epoch(6))
    assert held(files.catch_up(shelf)) == files.all_rows


def test_what_was_made_ready_is_not_read(shelf: Shelf) -> None:
    files = Files()
    files.add("f0", 0, 0, rows_of_epoch(0))
    shelf.make_ready(["f0"], make_segment(table(rows_of_epoch(0)), PATHS, 0, 0))
    assert held(files.catch_up(shelf)) == files.all_rows
    assert not files.reads
    # Of an epoch that never came true, nothing is taken.
    shelf.make_ready(["lost"], make_segment(table(rows_of_epoch(99)), PATHS, 1, 1))
    files.add("f1", 1, 1, rows_of_epoch(1))
    assert held(files.catch_up(shelf)) == files.all_rows


def test_expired_rows_go_when_segments_are_merged(shelf: Shelf) -> None:
    files = Files()
    for epoch in range(20):
        files.add(f"f{epoch}", epoch, epoch, rows_of_epoch(epoch))
        segments = files.catch_up(shelf, watermark=epoch - 5)
        times = [time for _, _, time in held(segments)]
        assert all(times.count(alive) == 10 for alive in range(max(0, epoch - 5), epoch + 1))
    assert len(held(segments)) < len(files.all_rows) / 2


def test_a_disk_that_takes_nothing(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker holds its segments in memory; another worker still has what is on disk."""
    files = Files()
    for epoch in range(4):
        files.add(f"f{epoch}", epoch, epoch, rows_of_epoch(epoch, 10 + 40 * (epoch == 0)))
        files.catch_up(shelf)
    write = local_index._write

    def full(segment: Segment, folder: str) -> None:
        write(segment, folder)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(local_index, "_write", full)
    for epoch in range(4, 10):
        files.add(f"f{epoch}", epoch, epoch, rows_of_epoch(epoch))
        assert held(files.catch_up(shelf)) == files.all_rows
    monkeypatch.setattr(local_index, "_write", write)
    local_index.worker_memory()["segments"].clear()
    assert held(files.catch_up(Shelf("run", "key"))) == files.all_rows


def test_a_place_that_cannot_be_made(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "headrace-index").write_text("in the way")
    files = Files()
    for epoch in range(6):
        files.add(f"f{epoch}", epoch, epoch, rows_of_epoch(epoch))
        # As each task does: what the worker holds is found again.
        shelf = Shelf("run", "key")
        assert held(files.catch_up(shelf)) == files.all_rows
        shelf.make_ready(["next"], make_segment(table(rows_of_epoch(0)), PATHS, 9, 9))
    assert set(files.reads.values()) == {1}
    local_index.worker_memory()["segments"].clear()


def test_what_a_run_leaves_behind_can_be_forgotten(shelf: Shelf, tmp_path: Path) -> None:
    files = Files()
    files.add("f0", 0, 0, rows_of_epoch(0))
    files.catch_up(shelf)
    assert os.listdir(tmp_path / "headrace-index") == ["run"]
    local_index.forgetting("run")(0)
    assert os.listdir(tmp_path / "headrace-index") == []


def test_indexes_are_private(shelf: Shelf, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        files = Files()
        files.add("f0", 0, 0, rows_of_epoch(0))
        files.catch_up(shelf)
    finally:
        os.umask(before)
    folders = [tmp_path / "headrace-index", *(tmp_path / "headrace-index").glob("run/key")]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o700, 0o700]
    (segment,) = folders[-1].glob("kept-*")
    assert stat.S_IMODE(segment.stat().st_mode) == 0o600


def test_what_killed_processes_have_left_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Spark that is killed leaves its folder, and the next one has another beside it."""
    here = this_process()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    gone = replace(process_of(dead.pid), began="1")
    dead.wait()
    owners = {
        "killed": gone,
        "rebooted": replace(here, boot="another"),
        "living": here,
        "elsewhere": replace(here, host="elsewhere", boot="another"),
    }
    for name, owner in owners.items():
        run = tmp_path / f"blockmgr-{name}" / "headrace-index" / name
        (run / "key").mkdir(parents=True)
        (run / ".owner").write_text(json.dumps(vars(owner)))
    (tmp_path / "blockmgr-unnamed" / "headrace-index" / "unnamed").mkdir(parents=True)
    (tmp_path / "blockmgr-now").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "blockmgr-now"))
    files = Files()
    files.add("f0", 0, 0, rows_of_epoch(0))
    files.catch_up(Shelf("run", "key"))
    left = {path.name for path in tmp_path.glob("blockmgr-*/headrace-index/*")}
    assert left == {"living", "elsewhere", "unnamed", "run"}
    # The run of now ends with the process that has started this one.
    (owner_file,) = tmp_path.glob("blockmgr-now/headrace-index/run/.owner")
    assert json.loads(owner_file.read_text())["pid"] == os.getppid()


def test_look_ups_find_all_and_nothing_else() -> None:
    chance = np.random.default_rng(7)
    keys = chance.integers(-50, 50, 400)
    keys[:3] = (np.iinfo(np.int64).min, np.iinfo(np.int64).max, 0)
    rows = table([(int(k), 0, 0) for k in keys])
    segment = make_segment(rows, [(0,)], 0, 0)
    wanted = np.concatenate([np.arange(-60, 60), keys[:2]])
    sources, positions = look_up_all(segment, (0,), wanted)
    stored = segment.array(f"{KEY}0")
    found = sorted(zip(wanted[sources].tolist(), stored[positions].tolist(), strict=True))
    assert found == sorted((int(k), int(k)) for w in wanted for k in keys if k == w)


def test_no_two_numbers_share_a_hash() -> None:
    """Equal hashes of a single key are equal keys: there is no check afterwards."""
    numbers = np.concatenate(
        [np.arange(-100_000, 100_000), np.int64(1) << np.arange(63), [np.iinfo(np.int64).min]]
    )
    assert len(np.unique(mixed(numbers))) == len(np.unique(numbers))
