"""Streams made of random numbers: their keys column by column, phase by phase.

A column is a function of what is drawn so far, so that one may follow from another. Everything is
drawn from a generator that is seeded by the workload's name and the epoch, so the rows are the same
on every run and every machine.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.plan.nodes import Source
from headrace.plan.types import BIGINT, TIMESTAMP, Schema

if TYPE_CHECKING:
    import pyarrow as pa

#: Milliseconds of event time that an epoch covers, and where the streams begin.
STEP = 60_000
BEGINNING = 1_704_067_200_000
#: Keys from here on are in no other stream.
NOWHERE = 1_000_000


@dataclass
class Draw:
    """Rows that are being drawn: how many, the number of the first, and their columns so far."""

    chance: Any
    rows: int
    first: int
    columns: dict[str, Any] = field(default_factory=dict)


Column = Callable[[Draw], Any]


def uniform(values: int) -> Column:
    return lambda draw: draw.chance.integers(0, values, draw.rows)


def zipf(values: int, skew: float) -> Column:
    """The n-th value has 1 / n^skew of the rows of the first."""

    def column(draw: Draw) -> Any:
        weights = [1 / (n + 1) ** skew for n in range(values)]
        total = sum(weights)
        return draw.chance.choice(values, draw.rows, p=[w / total for w in weights])

    return column


def hot(values: int, share: float, value: int = 0) -> Column:
    """A share of the rows have one value."""

    def column(draw: Draw) -> Any:
        drawn = draw.chance.integers(0, values, draw.rows)
        drawn[draw.chance.random(draw.rows) < share] = value
        return drawn

    return column


def partly(values: int, share: float) -> Column:
    """Only a share of the rows have values that the other side has."""

    def column(draw: Draw) -> Any:
        drawn = draw.chance.integers(0, values, draw.rows)
        drawn[draw.chance.random(draw.rows) >= share] += NOWHERE
        return drawn

    return column


def follows(other: str, values: int, exceptions: float = 0.0) -> Column:
    """Another column's value, but for some rows that have any."""

    def column(draw: Draw) -> Any:
        drawn = draw.columns[other] % values
        free = draw.chance.random(draw.rows) < exceptions
        drawn[free] = draw.chance.integers(0, values, int(free.sum()))
        return drawn

    return column


def apart(other: str, values: int, share: float) -> Column:
    """Present only where another column's value is even, and then for a share of the rows; else in
    no other stream. What each finds by itself says nothing of both together."""

    def column(draw: Draw) -> Any:
        drawn = draw.chance.integers(0, values, draw.rows)
        absent = (draw.columns[other] % 2 == 1) | (draw.chance.random(draw.rows) >= share)
        drawn[absent] += NOWHERE
        return drawn

    return column


def serial(values: int) -> Column:
    """One value after the other, and again from the beginning: as many rows of each."""

    def column(draw: Draw) -> Any:
        import numpy as np

        return (np.arange(draw.rows) + draw.first) % values

    return column


@dataclass(frozen=True)
class Phase:
    """What a stream brings to each epoch of a phase."""

    rows: int
    columns: Mapping[str, Column]


@dataclass(frozen=True)
class StreamOf:
    """A stream: what it brings to begin with, and in each phase; the last one stays."""

    name: str
    phases: tuple[Phase, ...]
    load: Phase | None = None

    @property
    def source(self) -> Source:
        names = [*(self.load or self.phases[0]).columns]
        fields = [*((name, BIGINT) for name in names), ("v", BIGINT), ("ts", TIMESTAMP)]
        return Source(self.name, Schema.of(fields), "ts", 0)

    def table(self, workload: str, epoch: int, phase: int | None, step: int) -> pa.Table | None:
        """Its rows of an epoch, which is of a phase or (None) the load; None if there are none."""
        import numpy as np
        import pyarrow as pa

        of = self.load if phase is None else self.phases[min(phase, len(self.phases) - 1)]
        if of is None or not of.rows:
            return None
        chance = np.random.default_rng(zlib.crc32(f"{workload}/{self.name}/{epoch}".encode()))
        draw = Draw(chance, of.rows, epoch * of.rows)
        for name, column in of.columns.items():
            draw.columns[name] = column(draw)
        columns = {n: pa.array(c, pa.int64()) for n, c in draw.columns.items()}
        columns["v"] = pa.array(chance.integers(-500, 500, of.rows), pa.int64())
        times = BEGINNING + epoch * step + np.sort(chance.integers(0, step, of.rows))
        stamps = pa.array(times, pa.timestamp("ms", tz="UTC"))
        columns["ts"] = stamps.cast(pa.timestamp("us", tz="UTC"))
        return pa.table(columns)


@dataclass(frozen=True)
class Workload:
    """A query over streams in phases; ``traits`` say what is special about it.

    The first epoch is that of the load if some stream has one. ``lengths`` are the epochs of each
    phase.
    """

    name: str
    sql: str
    streams: tuple[StreamOf, ...]
    lengths: tuple[int, ...]
    traits: tuple[str, ...] = ()
    step: int = STEP

    @property
    def catalog(self) -> dict[str, Source]:
        return {stream.name: stream.source for stream in self.streams}

    @property
    def loaded(self) -> bool:
        return any(stream.load is not None for stream in self.streams)

    @property
    def phase_of_epochs(self) -> list[int | None]:
        """The phase of each epoch; None is the load."""
        numbers = [n for n, length in enumerate(self.lengths) for _ in range(length)]
        return [None, *numbers] if self.loaded else [*numbers]

    @property
    def rows(self) -> int:
        """About how many rows all streams bring in all epochs."""
        phases = [number for number, length in enumerate(self.lengths) for _ in range(length)]
        later = sum(
            stream.phases[min(phase, len(stream.phases) - 1)].rows
            for stream in self.streams
            for phase in phases
        )
        return later + sum(stream.load.rows for stream in self.streams if stream.load is not None)

    def write(self, folder: Path) -> list[dict[str, list[Path]]]:
        """The files of each stream in each epoch."""
        import pyarrow.parquet as parquet

        folder.mkdir(parents=True, exist_ok=True)
        epochs: list[dict[str, list[Path]]] = []
        for epoch, phase in enumerate(self.phase_of_epochs):
            files: dict[str, list[Path]] = {}
            for stream in self.streams:
                table = stream.table(self.name, epoch, phase, self.step)
                if table is not None:
                    file = folder / f"{stream.name}-{epoch:04d}.parquet"
                    parquet.write_table(table, file)
                    files[stream.name] = [file]
            epochs.append(files)
        return epochs

    def judged(self, warm_up: int) -> list[list[int]]:
        """The epochs of each phase that are judged: not the first ones of it."""
        phases: dict[int, list[int]] = {}
        for epoch, phase in enumerate(self.phase_of_epochs):
            if phase is not None:
                phases.setdefault(phase, []).append(epoch)
        return [epochs[warm_up:] for epochs in phases.values() if epochs[warm_up:]]


def constant(rows: int, columns: Mapping[str, Column]) -> tuple[Phase, ...]:
    return (Phase(rows, columns),)


def of_phases(rows: Sequence[int], columns: Sequence[Mapping[str, Column]]) -> tuple[Phase, ...]:
    return tuple(Phase(count, some) for count, some in zip(rows, columns, strict=True))
