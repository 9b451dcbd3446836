"""Merging: how much standing queries share, how long it takes to find out, and what it saves.

After Section 8 of the query-merging paper. Each part has its cases, and can be run alone by naming
it in the environment variable ``HEADRACE_BENCH_CASES``:

- *sets*: the published query sets, with reference values (where they are on this machine).
- *queries*, *sources*, *distinct*, *overlap*: generated sets that grow, read more streams, or have
  less or more in common (Figures 7 to 9 and 11).
- *churn*: queries that come and go, one at a time.
- *run*: a thousand queries of ten kinds on the engine, merged and not (Figure 12).
- *many*: five thousand of fifty kinds under names of their own, of which some come and go.

All but the last two plan without running anything (``planning``); seconds are then those of
planning a set, and rows the number of its queries.

Paper: Query Merging, Section 8.2.1, Section 8.2.2, Section 8.2.3, Section 8.3, Section 8.4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.harness.parts import Found, Parts, run_parts
from benchmarks.harness.report import Report, Setup
from benchmarks.merging.many import ManySize, run_many
from benchmarks.merging.planning import (
    PlanningBench,
    PlanningSize,
    churn,
    distinct,
    overlap,
    queries,
    sets,
    sources,
)
from benchmarks.merging.running import RunningBench, RunningSize, run_merged


@dataclass(frozen=True)
class Size:
    """What is planned and run at a scale."""

    planning: PlanningSize
    running: RunningSize
    many: ManySize


SIZES = {
    "tiny": Size(
        PlanningSize(
            repeats=1,
            sets=("DistinctSources-800q-2s",),
            groups=10,
            counts=(40, 80, 120),
            streams=(2, 4, 8),
            queries_per_stream=20,
            groups_per_stream=2,
            most_queries=120,
            swept_queries=60,
            swept_groups=8,
            distinct=(0, 50, 100),
            overlaps=(20, 100),
            living=60,
            changes=20,
        ),
        RunningSize(queries=6, groups=2, points=(2, 4), rows=100, batches=3),
        ManySize(queries=12, groups=4, changes=2, epochs=2, rows=50),
    ),
    "small": Size(
        PlanningSize(
            repeats=1,
            sets=("DistinctSources-800q-2s", "IncreasingQueries-1k"),
            groups=100,
            counts=(500, 1_000, 2_000),
            streams=(2, 4, 16),
            queries_per_stream=100,
            groups_per_stream=10,
            most_queries=1_600,
            swept_queries=400,
            swept_groups=40,
            distinct=(0, 50, 100),
            overlaps=(20, 60, 100),
            living=1_000,
            changes=200,
        ),
        RunningSize(queries=60, groups=4, points=(4, 8), rows=500, batches=4),
        ManySize(queries=200, groups=10, changes=10, epochs=4, rows=200),
    ),
    "full": Size(
        PlanningSize(
            repeats=3,
            sets=None,
            groups=100,
            counts=(1_000, 2_000, 4_000, 8_000, 12_000),
            streams=(2, 4, 8, 16, 32, 64, 128, 256),
            queries_per_stream=400,
            groups_per_stream=10,
            # The paper goes on to 102,400.
            most_queries=25_600,
            swept_queries=4_000,
            swept_groups=400,
            distinct=(0, 20, 40, 60, 80, 100),
            overlaps=(20, 40, 60, 80, 100),
            living=10_000,
            changes=1_000,
        ),
        RunningSize(queries=1_000, groups=10, points=(10, 20, 40), rows=2_000, batches=9),
        ManySize(queries=5_000, groups=50, changes=100, epochs=6, rows=500),
    ),
}


def _planning(part: Callable[[PlanningBench], Found]) -> Callable[[Setup], Found]:
    return lambda setup: part(PlanningBench(setup, SIZES[setup.scale].planning))


def _many(setup: Setup) -> Found:
    return run_many(setup, SIZES[setup.scale].many)


def _running(setup: Setup) -> Found:
    return run_merged(RunningBench(setup, SIZES[setup.scale].running))


#: The parts, in the order they run, and about which share of the time each takes.
PARTS: Parts[Setup] = {
    "sets": (_planning(sets), 0.1),
    "queries": (_planning(queries), 0.15),
    "sources": (_planning(sources), 0.15),
    "distinct": (_planning(distinct), 0.1),
    "overlap": (_planning(overlap), 0.1),
    "churn": (_planning(churn), 0.05),
    "run": (_running, 0.25),
    "many": (_many, 0.1),
}


def run(setup: Setup) -> Report:
    return run_parts("merging", setup, PARTS, setup)
