"""The multi-way join inside a task: new rows of each input, probed through the others one by one.

Algorithms 1 and 2 of the paper on run-time optimized multi-way joins, at the grain of a
micro-batch: instead of one tuple, all new rows of an input look their keys up in the next input's
index, those that found nothing are out, and the others go on with what they found. Rows are carried
as positions, and only results are put together; no intermediate result is kept.

Each result comes out once: new rows of input i meet all rows of the inputs after it, but only rows
of earlier epochs of those before it.

This module goes to the executors by value and needs nothing there but DuckDB, pyarrow and numpy.

Paper: Multi-Way Joins, Section 3.1, Algorithm 1, Algorithm 2, Section 4.3.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.engine.execution.duckdb.local_index import (
    DIES,
    KEY,
    Array,
    Fixed,
    Path,
    Segment,
    Shelf,
    make_segment,
    one_chunk,
    path_hashes,
)

Spec = dict[str, Any]

#: How many new rows are probed together, and how many rows they may become before they are cut.
SLICE = 1 << 16
MOST_ROWS = 1 << 19


class Rows:
    """Combinations of rows: a position in each input so far, and the values of their keys.

    ``origin`` says for rows that were just found by which of the rows that looked.
    """

    def __init__(
        self, positions: dict[int, Array], values: dict[int, Array], origin: Array | None = None
    ) -> None:
        self.positions = positions
        self.values = values
        self.origin = origin

    def __len__(self) -> int:
        return len(next(iter(self.positions.values())))

    def taken(self, chosen: Any) -> Rows:
        """Some of them: by a slice, by positions or by a mask."""
        return Rows(
            {index: of[chosen] for index, of in self.positions.items()},
            {key: of[chosen] for key, of in self.values.items()},
            None if self.origin is None else self.origin[chosen],
        )

    @property
    def met(self) -> int:
        """The inputs that they are of, as bits."""
        return sum(1 << index for index in self.positions)

    @property
    def origins(self) -> int:
        """How many rows these were found by."""
        if self.origin is None or not len(self.origin):
            return 0
        seen = np.zeros(int(self.origin.max()) + 1, bool)
        seen[self.origin] = True
        return int(np.count_nonzero(seen))


class IndexedInput:
    """One input in a task: segments of earlier epochs, and perhaps one of new rows."""

    def __init__(self, old: list[Segment], new: Segment | None) -> None:
        self.segments = old + ([new] if new is not None else [])
        self.new = new
        self.old_count = len(old)
        counts = [0, *(segment.count for segment in self.segments)]
        self.starts: Array = np.cumsum(np.array(counts))

    @property
    def held(self) -> int:
        return sum(segment.count for segment in self.segments)

    def numbers(self, name: str, positions: Array) -> Array:
        """A column of numbers at some positions."""
        arrays = [segment.array(name) for segment in self.segments]
        return _gathered(arrays, self._apart(positions), len(positions))

    def columns(self, names: Sequence[str], positions: Array) -> list[Any]:
        """Columns of any type at some positions."""
        apart = self._apart(positions)
        gathered = []
        for name in names:
            columns = [segment.fixed(name) for segment in self.segments]
            typed = [column for column in columns if column is not None]
            if len(typed) == len(columns):
                gathered.append(self._fixed(name, typed, apart, len(positions)))
            else:
                gathered.append(self._any_type(name, apart))
        return gathered

    def _apart(self, positions: Array) -> list[tuple[int, Any, Array]]:
        """By segment: which of the positions lie in it, and where."""
        if len(self.segments) == 1:
            return [(0, slice(None), positions)]
        # There are few segments: comparing with each beats a search.
        which = np.zeros(len(positions), np.int8)
        for start in self.starts[1:-1]:
            which += positions >= start
        by_segment = []
        for index in range(len(self.segments)):
            here = np.flatnonzero(which == index)
            if len(here):
                by_segment.append((index, here, positions[here] - self.starts[index]))
        return by_segment

    def _fixed(
        self, name: str, columns: list[Fixed], apart: list[tuple[int, Any, Array]], count: int
    ) -> Any:
        """A column whose values are all of one size, which numpy takes faster than Arrow."""
        values = _gathered([column.values for column in columns], apart, count)
        valid = None
        if any(column.valid is not None for column in columns):
            masks = [
                c.valid if c.valid is not None else np.ones(len(c.values), bool) for c in columns
            ]
            bits = np.packbits(_gathered(masks, apart, count), bitorder="little")
            valid = pa.py_buffer(bits)
        kind = self.segments[0].rows.schema.field(name).type
        return pa.Array.from_buffers(kind, count, [valid, pa.py_buffer(values)])

    def _any_type(self, name: str, apart: list[tuple[int, Any, Array]]) -> Any:
        parts = [
            one_chunk(self.segments[index].rows.column(name)).take(pa.array(local))
            for index, _, local in apart
        ]
        if len(parts) == 1:
            return parts[0]
        order = np.concatenate([here for _, here, _ in apart])
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_arrays(parts).take(pa.array(back))


def _gathered(arrays: list[Array], apart: list[tuple[int, Any, Array]], count: int) -> Array:
    if len(apart) == 1:
        index, _, local = apart[0]
        return arrays[index][local]
    values = np.empty(count, arrays[0].dtype)
    for index, here, local in apart:
        values[here] = arrays[index][local]
    return values


class ProbeJoinKernel:
    """A part of a join in one epoch."""

    def __init__(self, spec: Spec, read: Callable[[Spec, Sequence[str]], Any], check: Any) -> None:
        """``read`` gives rows of files; ``check`` runs conditions that DuckDB decides."""
        self.spec = spec
        self._check = check
        began = self.began = time.perf_counter()
        self.inputs = [_open(spec, one, read) for one in spec["inputs"]]
        self.classes: list[list[int]] = [one["classes"] for one in spec["inputs"]]
        self._watermarks: list[int | None] = [one["watermark"] for one in spec["inputs"]]
        self.seconds = {"index": time.perf_counter() - began}
        self.results = 0
        #: Rows that were looked up, and rows that were found, in all probes.
        self.looked_up = self.found = 0
        #: What each step of the orders found: rows that were looked up, those that found any, rows
        #: that go on, and rows that were found in vain.
        self.steps: dict[tuple[int, int, int, int], list[int]] = {}

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """These columns of the results, a batch at a time."""
        by_input = [
            [name for name in one["columns"] if name in columns] for one in self.spec["inputs"]
        ]
        for driver, order in self.spec["orders"].items():
            for rows in self._driven(int(driver), [tuple(pair) for pair in order]):
                values_of: dict[str, Any] = {}
                for index, names in enumerate(by_input):
                    if names:
                        values = self.inputs[index].columns(names, rows.positions[index])
                        values_of |= dict(zip(names, values, strict=True))
                self.results += len(rows)
                yield pa.record_batch([values_of[name] for name in columns], names=list(columns))

    def _driven(self, driver: int, order: list[tuple[int, int]]) -> Iterator[Rows]:
        """All results whose new row of the driver came last, or with rows of later inputs."""
        new = self.inputs[driver].new
        if new is None or not all(self._reachable(driver, other) for _, other in order):
            return
        begin = int(self.inputs[driver].starts[self.inputs[driver].old_count])
        positions = np.arange(begin, begin + new.count)
        values = {key: new.array(f"{KEY}{key}") for key in self.classes[driver]}
        rows = self.alive(Rows({driver: positions}, values), driver)
        for start in range(0, len(rows), SLICE):
            part = rows.taken(slice(start, start + SLICE))
            yield from self._probed(self.meeting(part, frozenset((driver,)), driver), order, driver)

    def _reachable(self, driver: int, other: int) -> bool:
        return bool(self._segments(driver, other))

    def _segments(self, driver: int, other: int) -> list[tuple[int, Segment]]:
        """What rows of the driver may meet of another input, with the position of its first row."""
        source = self.inputs[other]
        last = len(source.segments) if other > driver else source.old_count
        return [
            (int(source.starts[i]), segment)
            for i, segment in enumerate(source.segments[:last])
            if segment.count
        ]

    def _probed(self, rows: Rows, order: list[tuple[int, int]], driver: int) -> Iterator[Rows]:
        """Algorithm 2: probe the next input, and go on with what matched."""
        if not len(rows):
            return
        if not order:
            yield rows
            return
        (prober, probed), *rest = order
        for part in self._matches(rows, prober, probed, driver):
            yield from self._probed(part, rest, driver)

    def _matches(self, rows: Rows, prober: int, probed: int, driver: int) -> Iterator[Rows]:
        path = self.path(prober, probed)
        hashes = path_hashes(rows.values.__getitem__, path)
        self.looked_up += len(hashes)
        counts = self.steps.setdefault((driver, rows.met, prober, probed), [0] * 4)
        counts[0] += len(hashes)
        runs = [
            (start, segment, *segment.indexes[path].look_up(hashes))
            for start, segment in self._segments(driver, probed)
        ]
        candidates = sum(many.astype(np.int64) for *_, many in runs)
        for part in _parts(candidates):
            pairs = [
                expanded(hashes[part], segment.indexes[path], begins[part], many[part], start)
                for start, segment, begins, many in runs
            ]
            sources = np.concatenate([source for source, _ in pairs])
            positions = np.concatenate([position for _, position in pairs])
            self.found += len(sources)
            if len(sources):
                joined = self.joined(rows.taken(part), sources, positions, probed, path)
                counts[1] += joined.origins
                counts[2] += len(joined)
                counts[3] += len(sources) - len(joined)
                yield joined

    def path(self, prober: int, probed: int) -> Path:
        return tuple(key for key in self.classes[probed] if key in self.classes[prober])

    def joined(self, rows: Rows, sources: Array, positions: Array, probed: int, path: Path) -> Rows:
        """Rows with what they found, if all their keys are equal and all conditions hold."""
        before = frozenset(rows.positions)
        matched = rows.taken(sources)
        values = dict(matched.values)
        source = self.inputs[probed]
        wrong: Array | None = None
        for key in self.classes[probed]:
            if key not in values:
                values[key] = source.numbers(f"{KEY}{key}", positions)
            elif path != (key,):
                # No two values of one key share a hash, but those of several together may.
                unequal = source.numbers(f"{KEY}{key}", positions) != values[key]
                wrong = unequal if wrong is None else wrong | unequal
        joined_rows = Rows({**matched.positions, probed: positions}, values, sources)
        if wrong is not None and wrong.any():
            joined_rows = joined_rows.taken(~wrong)
        return self.meeting(self.alive(joined_rows, probed), before | {probed}, probed)

    def alive(self, rows: Rows, index: int) -> Rows:
        watermark = self._watermarks[index]
        if watermark is None or not len(rows):
            return rows
        alive = self.inputs[index].numbers(DIES, rows.positions[index]) >= watermark
        return rows if alive.all() else rows.taken(alive)

    def meeting(self, rows: Rows, present: frozenset[int], added: int) -> Rows:
        """Those that meet the conditions that can be decided since an input was added."""
        for condition in self.spec["conditions"]:
            owners = frozenset(condition["inputs"])
            if added not in owners or not owners <= present or not len(rows):
                continue
            columns: dict[str, Any] = {}
            for index, names in condition["columns"].items():
                arrays = self.inputs[int(index)].columns(names, rows.positions[int(index)])
                columns |= dict(zip(names, arrays, strict=True))
            rows = rows.taken(self._check(columns, condition["sql"]))
        return rows


def _open(spec: Spec, one: Spec, read: Callable[[Spec, Sequence[str]], Any]) -> IndexedInput:
    """Bring an input's segments up to date, and index its new rows."""
    paths = [tuple(path) for path in one["paths"]]

    shelf = Shelf(spec["run"], one["shelf"])
    old = shelf.catch_up(
        one["old"], one["spans"], lambda files: read(one, files), paths, one["watermark"]
    )
    if not one["new"]:
        return IndexedInput(old, None)
    new = make_segment(read(one, one["new"]), paths, spec["epoch"], spec["epoch"])
    shelf.make_ready(one["new"], new)
    return IndexedInput(old, new if new.count else None)


def _parts(candidates: Array) -> Iterator[slice]:
    """Cut rows so that each part has few candidates; a row with very many is a part by itself."""
    if int(candidates.sum()) <= MOST_ROWS:
        yield slice(0, len(candidates))
        return
    totals = np.cumsum(candidates)
    begin, done = 0, 0
    while begin < len(candidates):
        end = max(begin + 1, int(np.searchsorted(totals, done + MOST_ROWS, "right")))
        yield slice(begin, end)
        begin, done = end, int(totals[end - 1])


def expanded(
    hashes: Array, slots: Any, begins: Array, counts: Array, start: int
) -> tuple[Array, Array]:
    """Which row met which: each row with each candidate of its slot that has its hash."""
    hits = np.flatnonzero(counts)
    counts = counts[hits].astype(np.int64)
    ends = np.cumsum(counts)
    sources = np.repeat(hits, counts)
    slots_hit = np.arange(int(ends[-1]) if len(ends) else 0)
    slots_hit += np.repeat(begins[hits] - (ends - counts), counts)
    equal = slots.hashes[slots_hit] == hashes[sources]
    if not equal.all():
        sources, slots_hit = sources[equal], slots_hit[equal]
    rows = slots_hit if slots.rows is None else slots.rows[slots_hit].astype(np.int64)
    return sources, rows + start


def look_up_all(segment: Segment, path: Path, values: Array) -> tuple[Array, Array]:
    """Look values of a single key up: which of them met which row."""
    return look_up(segment, path, path_hashes(lambda _: values, path))


def look_up(segment: Segment, path: Path, hashes: Array) -> tuple[Array, Array]:
    slots = segment.indexes[path]
    return expanded(hashes, slots, *slots.look_up(hashes), 0)
