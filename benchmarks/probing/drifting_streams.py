"""Streams for joins whose data change, and for joins whose state outgrows a micro-batch.

``Drift``: rows of a centre stream f look up three others, d1 to d3, each by a key of its own. In
every phase one of the three has hardly any of the keys that f asks for, and the others have many
rows for each: to ask the rare one first is right, and to ask it last makes a row hundreds of
rows before all are dropped. Which one is rare changes from phase to phase, so no single order is
right throughout.

``Growth``: rows of c find exactly one row of a and one of b, which may have come at any time
before. Each micro-batch has the same work to do, whatever is kept by then.

All is made from row numbers alone, so it is always the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.harness.data import FIRST_MILLISECOND
from benchmarks.probing.tpcds_streams import write_parts
from headrace.contestants import StreamFolder

if TYPE_CHECKING:
    import pyarrow as pa

#: Milliseconds of event time that a micro-batch covers.
STEP = 60_000
LOOKED_UP = ("d1", "d2", "d3")
CENTRE_SCHEMA = "id BIGINT, k1 BIGINT, k2 BIGINT, k3 BIGINT, ts TIMESTAMP"
LOOKED_UP_SCHEMA = "k BIGINT, v BIGINT, ts TIMESTAMP"
#: The orders in which rows of f can probe the three, by which the join is written.
ORDERS = tuple(permutations(LOOKED_UP))


@dataclass(frozen=True)
class Drift:
    """A centre stream of ``rows`` in each micro-batch, and what it finds in the three others.

    ``rare`` says for each phase which of them has only ``chance`` of the keys that are looked up,
    with a row each; the others have all, with ``matches`` rows each. The first micro-batch brings
    these rows, all others only ``trickle`` rows of keys that nobody asks for: what is looked up was
    there before.
    """

    rows: int
    batches_per_phase: int
    keys: int = 1_000
    matches: int = 22
    chance: float = 0.01
    trickle: int = 20
    rare: tuple[int, ...] = (0, 2, 1, 0)

    @property
    def loaded(self) -> int:
        """Rows that each of the three begins with: keys with many rows, and as many with one."""
        return self.keys * (self.matches + 1)

    @property
    def batches(self) -> int:
        return 1 + len(self.rare) * self.batches_per_phase

    @property
    def total_rows(self) -> int:
        looked_up = self.loaded + (self.batches - 1) * self.trickle
        return 1 + (self.batches - 1) * self.rows + len(LOOKED_UP) * looked_up

    @property
    def phases(self) -> list[range]:
        """The micro-batches of each phase; the first one of all belongs to none."""
        size = self.batches_per_phase
        return [range(1 + size * p, 1 + size * (p + 1)) for p in range(len(self.rare))]

    def query(self, order: Sequence[str]) -> str:
        joins = "".join(f" JOIN {d} ON f.k{d[1:]} = {d}.k" for d in order)
        return f"SELECT f.id, d1.v AS v1, d2.v AS v2, d3.v AS v3 FROM f{joins}"

    def write(self, folder: Path) -> list[StreamFolder]:
        streams = [StreamFolder("f", folder / "f", CENTRE_SCHEMA, files_per_batch=1)]
        if not (folder / "f").exists():
            write_parts(folder / "f", _tables([self._centre(n) for n in range(self.batches)]))
        for number, name in enumerate(LOOKED_UP):
            place = folder / name
            if not place.exists():
                parts = [self._looked_up(number, n) for n in range(self.batches)]
                write_parts(place, _tables(parts))
            streams.append(StreamFolder(name, place, LOOKED_UP_SCHEMA, files_per_batch=1))
        return streams

    def results(self, folder: Path) -> int:
        """How many rows the join has, counted by DuckDB without making them."""
        counts = "".join(
            f" JOIN (SELECT k, count(*) AS n{d[1:]} FROM '{folder}/{d}/*.parquet' GROUP BY k) AS "
            f"{d} ON f.k{d[1:]} = {d}.k"
            for d in LOOKED_UP
        )
        return _number(f"SELECT sum(n1 * n2 * n3)::BIGINT FROM '{folder}/f/*.parquet' AS f{counts}")

    def _centre(self, batch: int) -> str:
        rows = self.rows if batch else 1
        rare = self.rare[(batch - 1) // self.batches_per_phase] if batch else 0
        first = batch * self.rows
        keys = ", ".join(
            f"{self._key(number, number == rare)} AS k{number + 1}"
            for number in range(len(LOOKED_UP))
        )
        return (
            f"SELECT i::BIGINT AS id, {keys}, {_time(batch, f'i - {first}', rows)} AS ts "
            f"FROM range({first}, {first + rows}) AS t(i)"
        )

    def _key(self, number: int, rare: bool) -> str:
        present = f"(hash(i, {number}) % {self.keys})::BIGINT"
        if not rare:
            return present
        known = f"hash(i, {number + 10}) % 10000 < {round(self.chance * 10_000)}"
        return f"CASE WHEN {known} THEN {self.keys} ELSE {2 * self.keys} END + {present}"

    def _looked_up(self, number: int, batch: int) -> str:
        rows = self.trickle if batch else self.loaded
        if batch:
            # Past every key that the centre has.
            key = f"{batch * 1_000_000_000} + i"
        else:
            many = self.keys * self.matches
            key = f"CASE WHEN i < {many} THEN i % {self.keys} ELSE {self.keys} + i - {many} END"
        return (
            f"SELECT ({key})::BIGINT AS k, (hash(i, {number + 20}) % 100000)::BIGINT AS v, "
            f"{_time(batch, 'i', rows)} AS ts FROM range({rows}) AS t(i)"
        )


GROWTH_QUERY = (
    "SELECT a.k, a.v AS av, b.v AS bv, c.v AS cv FROM c JOIN a ON c.k = a.k JOIN b ON c.k = b.k"
)


@dataclass(frozen=True)
class Growth:
    """Three streams of ``rows`` in each micro-batch, of which nothing is ever forgotten."""

    rows: int
    batches: int

    @property
    def results(self) -> int:
        return self.rows * self.batches

    def write(self, folder: Path) -> list[StreamFolder]:
        streams = []
        for number, name in enumerate("abc"):
            place = folder / name
            if not place.exists():
                parts = [self._part(name, number, batch) for batch in range(self.batches)]
                write_parts(place, _tables(parts))
            streams.append(StreamFolder(name, place, LOOKED_UP_SCHEMA, files_per_batch=1))
        return streams

    def _part(self, name: str, number: int, batch: int) -> str:
        first = batch * self.rows
        # Each key is once in a and once in b; c asks for any of those that there are by now.
        key = f"(hash(i, 7) % {first + self.rows})::BIGINT" if name == "c" else "i::BIGINT"
        return (
            f"SELECT {key} AS k, (hash(i, {number}) % 100000)::BIGINT AS v, "
            f"{_time(batch, f'i - {first}', self.rows)} AS ts "
            f"FROM range({first}, {first + self.rows}) AS t(i)"
        )


def oracle_seconds(phases: Sequence[range], runs: Sequence[Sequence[float]]) -> float:
    """What a run would take that has the best single order in each phase.

    >>> oracle_seconds([range(0, 2), range(2, 3)], [[1.0, 1.0, 9.0], [4.0, 4.0, 2.0]])
    4.0
    """
    return sum(min(phase_seconds(phase, run) for run in runs) for phase in phases)


def phase_seconds(phase: range, run: Sequence[float]) -> float:
    return sum(run[batch] for batch in phase)


def drift_figures(
    drift: Drift,
    joining: Mapping[str, Sequence[float]],
    runs: Mapping[str, float],
    fixed: Sequence[str],
) -> tuple[dict[str, float], dict[str, Any]]:
    """Ratios and notes of contestants, given the join phase of their epochs and their whole runs.

    Those that are fixed are what the others are compared with: with the best of them, and with the
    one who knows which is the best in each phase.
    """
    by_phase = {n: [phase_seconds(p, of) for p in drift.phases] for n, of in joining.items()}
    phases = {name: sum(seconds) for name, seconds in by_phase.items()}
    oracle = oracle_seconds(drift.phases, [joining[name] for name in fixed])
    # What is not joining costs the oracle as much as it costs others.
    around = median(runs[name] - phases[name] for name in fixed)
    ratio: dict[str, float] = {}
    for clock, of, best in (("join phase", phases, oracle), ("run", runs, around + oracle)):
        single = min(of[name] for name in fixed)
        for name in (n for n in runs if n not in fixed):
            ratio[f"{name}/oracle ({clock})"] = of[name] / best
            ratio[f"saved by {name} ({clock})"] = 1 - of[name] / single
    notes = {
        "oracle seconds (join phase)": round(oracle, 3),
        "oracle seconds (run)": round(around + oracle, 3),
        "join phase seconds": {name: round(s, 3) for name, s in phases.items()},
        "join phase seconds by phase": {
            name: [round(s, 3) for s in of] for name, of in by_phase.items()
        },
        "series": {
            "x": "epoch",
            "y": "seconds of the join phase",
            "at": list(range(1, drift.batches)),
            "lines": {n: [round(s, 4) for s in of[1:]] for n, of in joining.items()},
        },
    }
    return ratio, notes


def _time(batch: int, position: str, rows: int) -> str:
    """Rows of a micro-batch are spread over its time."""
    return f"{FIRST_MILLISECOND + batch * STEP} + {STEP} * ({position}) // {max(1, rows)}"


def _tables(queries: Sequence[str]) -> Iterator[pa.Table]:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        for query in queries:
            yield connection.sql(query).to_arrow_table()


def _number(query: str) -> int:
    import duckdb

    with duckdb.connect() as connection:
        found = connection.execute(query).fetchone()
    assert found is not None
    return int(found[0])
