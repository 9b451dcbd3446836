"""Indexes of a join's inputs on the disks of executors, so that a task looks rows up, not through.

The durable state of a stream is Parquet files, which know nothing of keys. A join without a bound
on time may need any row of them, and must not read all for the sake of a few new ones. So each
machine keeps the rows of a part of an input as *segments*: rows in the order of their keys' hashes,
with a table of where each slot of hashes begins. New epochs become a small segment, and a segment
that is not much smaller than the one before it is merged with it, so that there are few of them and
each row is rewritten a few times only.

Segments are made from committed state alone and can be made again from it at any time: a machine
that has none reads the files, one that is behind reads those of the epochs that it missed. They are
Arrow files which all workers of a machine map into memory, so they are there once.

This module goes to the executors by value and needs nothing there but DuckDB, pyarrow and numpy.

Paper: Multi-Way Joins, Section 3.1.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.engine.checkpoint.processes import Process, has_ended, process_of

try:
    import fcntl
except ImportError:  # Not on Windows, where tasks of one part must not run twice at once.
    fcntl = None  # type: ignore[assignment]

#: A segment this many times smaller than the one before it stays apart.
RATIO = 4
#: Folders of runs that nobody has used for so many seconds are deleted.
FORGOTTEN = 6 * 3600
#: Where a run notes which process it ends with.
_OWNER = ".owner"
KEY, DIES = "__key", "__dies"
#: How names of segments begin: of committed epochs, of the newest, and of those that no disk took.
_KEPT, _READY, _IN_MEMORY = "kept", "ready", "memory"

#: Classes of equal keys by which rows are looked up together.
Path = tuple[int, ...]
Array = Any


class Segment:
    """Rows of an input, and where to find them by each path.

    Rows lie in the order of the first path's hashes; the others have a list of rows in their order.
    """

    def __init__(self, rows: Any, indexes: dict[Path, Slots], first: int, last: int) -> None:
        self.rows = rows
        self.indexes = indexes
        self.first = first
        self.last = last
        self.count = int(rows.num_rows)
        self._arrays: dict[str, Array] = {}
        self._fixed: dict[str, Fixed | None] = {}

    def array(self, name: str) -> Array:
        """A column without NULLs as numbers."""
        if name not in self._arrays:
            self._arrays[name] = numbers(self.rows, name)
        return self._arrays[name]

    def fixed(self, name: str) -> Fixed | None:
        """A column as values of one size, if it is of a type that has such."""
        if name not in self._fixed:
            self._fixed[name] = _fixed(one_chunk(self.rows.column(name)))
        return self._fixed[name]


class Fixed:
    """Values of one size, whatever they stand for, and which of them are not NULL (None: all)."""

    def __init__(self, values: Array, valid: Array | None) -> None:
        self.values = values
        self.valid = valid


def _fixed(column: Any) -> Fixed | None:
    kind = column.type
    plain = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    if not plain or kind.bit_width % 8:
        return None
    size = kind.bit_width // 8
    dtype = np.dtype(f"u{size}") if size <= 8 else np.dtype(f"V{size}")
    valid = None
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
    values = np.frombuffer(column.buffers()[1], dtype)[column.offset : column.offset + len(column)]
    return Fixed(values, valid)


class Slots:
    """Hashes in order, the rows that have them, and where each slot begins.

    A slot is the first bits of a hash. There are twice as many slots as rows, so a slot that is
    looked up holds little else than what was looked for.
    """

    def __init__(self, hashes: Array, rows: Array | None, begins: Array, keys: int) -> None:
        self.hashes = hashes
        self.rows = rows
        self.begins = begins
        self.keys = keys
        self.shift = np.uint64(64 - (len(begins) - 1).bit_length() + 1)

    def look_up(self, hashes: Array) -> tuple[Array, Array]:
        """For each hash, where its candidates begin and how many they are."""
        slots = (hashes >> self.shift).astype(np.int64)
        begins = self.begins[slots]
        return begins, self.begins[slots + 1] - begins


def numbers(rows: Any, name: str) -> Array:
    return one_chunk(rows.column(name)).to_numpy(zero_copy_only=False)


def one_chunk(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def mixed(values: Array) -> Array:
    """A hash of whole numbers that no two of them share: every step of it can be undone."""
    hashes = values.astype(np.uint64, copy=True)
    hashes ^= hashes >> np.uint64(30)
    hashes *= np.uint64(0xBF58476D1CE4E5B9)
    hashes ^= hashes >> np.uint64(27)
    hashes *= np.uint64(0x94D049BB133111EB)
    hashes ^= hashes >> np.uint64(31)
    return hashes


def path_hashes(values: Callable[[int], Array], path: Path) -> Array:
    """The hash of several keys; of a single one no two values share it."""
    hashes = mixed(values(path[0]))
    for key in path[1:]:
        hashes = mixed(hashes * np.uint64(31) + values(key).astype(np.uint64))
    return hashes


def make_segment(rows: Any, paths: Sequence[Path], first: int, last: int) -> Segment:
    """Put rows into order and index them."""
    rows = rows.combine_chunks()
    hashes = path_hashes(lambda key: numbers(rows, f"{KEY}{key}"), paths[0])
    order = np.argsort(hashes, kind="stable")
    rows = rows.take(pa.array(order)).combine_chunks()
    indexes = {paths[0]: _slots(hashes[order], None)}
    for path in paths[1:]:
        hashes = path_hashes(lambda key: numbers(rows, f"{KEY}{key}"), path)
        order = np.argsort(hashes, kind="stable")
        indexes[path] = _slots(hashes[order], order.astype(np.int32))
    return Segment(rows, indexes, first, last)


def _slots(hashes: Array, rows: Array | None) -> Slots:
    bits = max(1, (2 * len(hashes)).bit_length())
    slots = (hashes >> np.uint64(64 - bits)).astype(np.int64)
    begins = np.zeros((1 << bits) + 1, np.int32)
    np.cumsum(np.bincount(slots, minlength=1 << bits), out=begins[1:])
    keys = int(np.count_nonzero(hashes[1:] != hashes[:-1])) + 1 if len(hashes) else 0
    return Slots(hashes, rows, begins, keys)


def merged(one: Segment, other: Segment, paths: Sequence[Path], watermark: int | None) -> Segment:
    """Both together, without rows that have expired."""
    rows = pa.concat_tables([one.rows, other.rows]).combine_chunks()
    if watermark is not None:
        rows = rows.filter(pa.array(numbers(rows, DIES) >= watermark)).combine_chunks()
    return make_segment(rows, paths, min(one.first, other.first), max(one.last, other.last))


# Where segments are kept


class Shelf:
    """The segments of one part of one input, on this machine.

    Together they hold all rows of the epochs up to the last one of any of them. Each is a file that
    appears whole by a rename, and goes only when another has taken its place. If they cannot be
    written, for want of space or rights, the worker holds all of them in memory from then on.
    """

    def __init__(self, run: str, key: str) -> None:
        self._run = os.path.join(_indexes(), run)
        self._folder = os.path.join(self._run, key)
        by_folder: dict[str, dict[str, Segment]] = worker_memory().setdefault("segments", {})
        for folder, held in list(by_folder.items()):
            in_memory = any(name.startswith(_IN_MEMORY) for name in held)
            if not in_memory and not os.path.isdir(folder):
                del by_folder[folder]
        self._opened = by_folder.setdefault(self._folder, {})

    def catch_up(
        self,
        files: Sequence[str],
        spans: Sequence[tuple[int, int]],
        read: Callable[[Sequence[str]], Any],
        paths: Sequence[Path],
        watermark: int | None,
    ) -> list[Segment]:
        """The segments that hold all files, the largest first.

        ``spans`` are the first and last epoch in each file, and ``read`` gives the rows of files.
        Rows that die before the ``watermark`` are never asked for again.
        """
        if not files:
            return []
        with self._locked():
            on_disk = self._segments()
            replaced: list[str] = []
            covered = max((segment.last for segment in on_disk.values()), default=-1)
            missing = [i for i, (_, last) in enumerate(spans) if last > covered]
            if any(spans[i][0] <= covered for i in missing):
                # This machine was behind when epochs that it knows were merged with later ones.
                replaced, on_disk, missing = list(on_disk), {}, list(range(len(files)))
            if missing:
                wanted = [files[i] for i in missing]
                first, last = min(spans[i][0] for i in missing), max(spans[i][1] for i in missing)
                added = self._ready(wanted) or make_segment(read(wanted), paths, first, last)
                while on_disk:
                    name, before = list(on_disk.items())[-1]
                    if added.count * RATIO < before.count:
                        break
                    added = merged(before, added, paths, watermark)
                    replaced.append(name)
                    del on_disk[name]
                self._keep(added, list(on_disk.values()))
                for name in replaced:
                    self._drop(name)
            return list(self._segments().values())

    def make_ready(self, files: Sequence[str], segment: Segment) -> None:
        """Keep the segment of files that the next epoch will ask for, if their epoch comes true."""
        with self._locked():
            for name in self._names(_READY):
                self._drop(name)
            self._save(segment, _READY + _mark(files))

    def _ready(self, files: Sequence[str]) -> Segment | None:
        """What was made ready of just these files."""
        segment = None
        for name in self._names(_READY):
            if name.startswith(_READY + _mark(files)):
                segment = _load(os.path.join(self._folder, name))
            self._drop(name)
        return segment

    def _names(self, kind: str) -> list[str]:
        if not os.path.isdir(self._folder):
            return []
        return [name for name in os.listdir(self._folder) if name.startswith(kind)]

    def _segments(self) -> dict[str, Segment]:
        """What there is, the oldest first: those held in memory, or else those on disk."""
        names = [name for name in self._opened if name.startswith(_IN_MEMORY)]
        if not names:
            names = self._names(_KEPT)
            for name in [name for name in self._opened if name not in names]:
                del self._opened[name]
            for name in names:
                if name not in self._opened:
                    self._opened[name] = _load(os.path.join(self._folder, name))
        return {name: self._opened[name] for name in sorted(names, key=_first_epoch)}

    def _keep(self, added: Segment, others: list[Segment]) -> None:
        """Add a segment; ``others`` are those that stay beside it."""
        if any(name.startswith(_IN_MEMORY) for name in self._opened):
            self._opened[_name(_IN_MEMORY, added)] = added
        elif self._save(added, _KEPT) is None:
            self._opened.clear()
            self._opened.update({_name(_IN_MEMORY, one): one for one in (*others, added)})

    def _save(self, segment: Segment, kind: str) -> str | None:
        """Write a segment; None if that cannot be."""
        name = _name(kind, segment)
        hidden = os.path.join(self._folder, f".{name}")
        try:
            _write(segment, hidden)
            os.chmod(hidden, 0o600)
            os.rename(hidden, os.path.join(self._folder, name))
        except OSError:
            _delete(hidden)
            return None
        return name

    def _drop(self, name: str) -> None:
        self._opened.pop(name, None)
        # Who has it mapped still can read it.
        _delete(os.path.join(self._folder, name))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One task at a time; a second one finds the work done."""
        try:
            if not os.path.isdir(self._folder):
                _forget_others(os.path.basename(self._run))
                _begin_run(self._run)
            # Rows of the user's, which are nobody else's business.
            os.makedirs(self._folder, 0o700, exist_ok=True)
            os.utime(self._run)
            lock = open(os.path.join(self._folder, ".lock"), "w", encoding="utf-8")  # noqa: SIM115
        except OSError:
            # Nothing can be written, so there is nothing to be careful with.
            yield
            return
        with lock:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _delete(path: str) -> None:
    with suppress(OSError):
        os.remove(path)


def _name(kind: str, segment: Segment) -> str:
    return f"{kind}-{segment.first}-{segment.last}-{uuid.uuid4().hex[:8]}"


def _first_epoch(name: str) -> int:
    return int(name.split("-")[1])


def _mark(files: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()[:16]


def forgetting(run: str) -> Callable[[object], None]:
    """What a task does to delete the indexes of a run that has ended."""
    return lambda _: shutil.rmtree(os.path.join(_indexes(), run), ignore_errors=True)


def _indexes() -> str:
    return os.path.join(local_folder(), "headrace-index")


def local_folder() -> str:
    """Where Spark keeps what it deletes when the application ends."""
    local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return local if local and os.path.isdir(local) else tempfile.gettempdir()


def worker_memory() -> dict[str, Any]:
    """What a task leaves for the next one of its worker.

    A task brings this module along by value, so nothing of it would last.
    """
    keeper = sys.modules.setdefault("_headrace_worker", ModuleType("_headrace_worker"))
    return keeper.__dict__


def _begin_run(folder: str) -> None:
    """Make the folder of a run, and note which process it ends with."""
    base = os.path.dirname(folder)
    os.makedirs(base, 0o700, exist_ok=True)
    os.makedirs(folder, 0o700, exist_ok=True)
    path = os.path.join(folder, _OWNER)
    if not os.path.exists(path):
        hidden = f"{path}.{uuid.uuid4().hex[:8]}"
        with open(hidden, "w", encoding="utf-8") as file:
            json.dump(vars(process_of(_java())), file)
        os.replace(hidden, path)


def _java() -> int:
    """The process that lives as long as the indexes are of use: the one that starts workers.

    Workers are forked by a daemon of its own, or started straight; none of them lasts.
    """
    above = os.getppid()
    with suppress(OSError, IndexError, ValueError), open(f"/proc/{above}/cmdline", "rb") as file:
        if b"pyspark.daemon" in file.read():
            with open(f"/proc/{above}/stat", encoding="utf-8", errors="replace") as status:
                return int(status.read().rpartition(")")[2].split()[1])
    return above


def _forget_others(run: str) -> None:
    """Delete what runs have left behind that were killed, or ended long ago.

    A Spark that was killed leaves its folder beside that of the one which runs now.
    """
    here = _indexes()
    beside = os.path.join(os.path.dirname(local_folder()), "blockmgr-*", os.path.basename(here))
    for base in {here, *glob.glob(beside)}:
        with suppress(OSError):
            for name in os.listdir(base):
                folder = os.path.join(base, name)
                if name != run and _is_forgotten(folder):
                    shutil.rmtree(folder, ignore_errors=True)


def _is_forgotten(folder: str) -> bool:
    try:
        with open(os.path.join(folder, _OWNER), encoding="utf-8") as file:
            owner = Process(**json.load(file))
    except (OSError, ValueError, TypeError):
        owner = None
    if owner is not None and has_ended(owner):
        return True
    with suppress(OSError):
        return time.time() - os.path.getmtime(folder) > FORGOTTEN
    return False


def _write(segment: Segment, path: str) -> None:
    """Rows and indexes as two streams of one file."""
    columns: dict[str, Any] = {}
    for keys, slots in segment.indexes.items():
        name = "_".join(map(str, keys))
        columns[f"hashes {name}"] = slots.hashes
        columns[f"begins {name}"] = slots.begins
        columns[f"keys {name}"] = np.array([slots.keys])
        if slots.rows is not None:
            columns[f"rows {name}"] = slots.rows
    # One row of lists: arrays of different lengths in one batch.
    lists = [
        pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), pa.array(values))
        for values in columns.values()
    ]
    index = pa.record_batch(lists, names=list(columns))
    with pa.OSFile(path, "wb") as file:
        with pa.ipc.new_stream(file, segment.rows.schema) as writer:
            writer.write_table(segment.rows, max_chunksize=max(segment.count, 1))
        with pa.ipc.new_stream(file, index.schema) as writer:
            writer.write_batch(index)


def _load(path: str) -> Segment:
    file = pa.memory_map(path)
    rows = pa.ipc.open_stream(file).read_all()
    batch = pa.ipc.open_stream(file).read_next_batch()
    arrays = {name: batch.column(name).values.to_numpy() for name in batch.schema.names}
    indexes: dict[Path, Slots] = {}
    for name in arrays:
        kind, _, text = name.partition(" ")
        if kind == "hashes":
            keys = tuple(map(int, text.split("_")))
            indexes[keys] = Slots(
                arrays[name],
                arrays.get(f"rows {text}"),
                arrays[f"begins {text}"],
                int(arrays[f"keys {text}"][0]),
            )
    _, first, last, _ = os.path.basename(path).split("-")
    return Segment(rows, indexes, int(first), int(last))
