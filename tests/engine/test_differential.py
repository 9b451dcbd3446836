"""Random queries over random streams: the engine puts out in each epoch what the oracle says.

A group is a set of streams with late, duplicate, NULL, empty and skewed input, and some random
queries of any form that run over them together, sharing what state they can. The engine forgets
everything but its checkpoint in the middle of each run and merges its files early, so recovery and
compaction are always part of what is tested. A failure prints the seed of its group, and
``python -m tests.engine.test_differential SEED`` runs that group alone (``idleSEED`` the one with
streams that are idle at times).
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.engine.execution.executor import Executor
from headrace.plan.nodes import Source
from headrace.planner.policy import PlannerPolicy
from tests.support.compare import assert_same_rows
from tests.support.engine import (
    ALL_WINDOW_PLANS,
    FORCED_EXECUTOR,
    run_engine,
    tiny_executor,
)
from tests.support.queries import WEIGHTS, Case, productive, random_case, random_query
from tests.support.streams import dense_habits, random_epochs, with_idle_streams
from tests.support.tally import Tally

GROUPS, QUERIES = 60, 5  # 300 pairs of a query and its streams
PER_TEST = 4
EPOCHS = 3
#: Forms that need luck to put out rows come more often than in the generator's own weights.
MIX = {**WEIGHTS, "session_join": 2, "three_way_join": 2, "join_window": 3}
#: These have tests of their own, with streams of many more rows.
MIX |= {"aggregation_join": 0, "moving_join": 0}
#: Forms in which one stream can hold another back, over streams that are idle at times.
SEVERAL = dict.fromkeys(WEIGHTS, 0.0) | {
    "union_window": 3,
    "window_join": 2,
    "interval_join": 4,
    "session_join": 2,
    "state_join": 2,
    "three_way_join": 2,
    "join_window": 4,
}
IDLE_EPOCHS = 6
#: Groups in which it makes a difference to many queries that streams are idle.
IDLE_SEEDS = range(13, 16)


Pair = tuple[Executor, Executor]


@pytest.fixture(scope="module")
def executors(spark: SparkSession) -> list[Pair]:
    """Two pairs, since the steps of tiny inputs are single tasks and the machine has two cores.

    A group begins on the first executor of a pair and goes on, after a restart, on the second: the
    state that one of them wrote must be good for the other.
    """
    chosen = {"auto": ("buckets", "spark")}.get(FORCED_EXECUTOR, (FORCED_EXECUTOR,) * 2)
    pair = tuple(tiny_executor(spark, executor=name) for name in chosen)
    other = tuple(tiny_executor(spark, executor=name) for name in reversed(chosen))
    return [pair, other]  # type: ignore[list-item]


def group_of(seed: int, mix: Mapping[str, float] = MIX) -> list[Case]:
    """Several queries over the same streams and rows."""
    case = random_case(seed, mix)
    # The last epoch, whichever it is, leaps ahead and closes most of what is open.
    first = replace(case, epochs=[*case.epochs[: EPOCHS - 1], case.epochs[-1]])
    more = random.Random(f"group {seed}")
    others = [replace(first, query=random_query(more, mix)) for _ in range(QUERIES - 1)]
    return [productive(case, more) for case in (first, *others)]


def idle_group_of(seed: int) -> list[Case]:
    """Several queries over streams that have enough to join, and are idle at times."""
    cases = group_of(seed, SEVERAL)
    chance = random.Random(f"idle {seed}")
    sources = [s for s in cases[0].catalog.values() if isinstance(s, Source)]
    whole = random_epochs(chance, sources, IDLE_EPOCHS, dense_habits)
    epochs, idle = with_idle_streams(chance, whole)
    return [productive(replace(case, epochs=epochs, idle=idle), chance) for case in cases]


def policies_of(seed: int) -> tuple[PlannerPolicy, ...]:
    """What is asked of the planner; every second group computes what several queries read once,
    however few rows it is."""
    policies = ALL_WINDOW_PLANS if seed % 3 == 1 else (PlannerPolicy(),)
    return tuple(replace(p, rows_per_job=0) for p in policies) if seed % 2 else policies


def check(seed: int, executors: Pair, folder: Path, of: Callable[[int], list[Case]]) -> Tally:
    """Run one group; what it tried."""
    cases = {f"q{number}": case for number, case in enumerate(of(seed))}
    some = cases["q0"]
    run = run_engine(
        executors[0],
        {name: (case.plan, case.query.mode) for name, case in cases.items()},
        some.catalog,
        some.epochs,
        some.tables,
        folder,
        restart_after=frozenset({len(some.epochs) // 2}),
        # Every third group changes its mind about windows between the epochs.
        plans=policies_of(seed),
        then=executors[1],
        idle=some.idle,
    )
    tally = Tally(sets=1)
    for name, case in cases.items():
        for number, (actual, wanted) in enumerate(
            zip(run.rows[name], case.expected(), strict=True)
        ):
            assert_same_rows(actual, wanted, context=f"epoch {number} of {name}: {case}")
        tally.add(case.rows)
    return tally


@pytest.mark.random
@pytest.mark.parametrize("first", range(0, GROUPS, PER_TEST))
def test_random_queries(first: int, executors: list[Pair], tmp_path: Path, tally: Tally) -> None:
    check_some(range(first, first + PER_TEST), executors, tmp_path, group_of, tally)


@pytest.mark.random
def test_random_queries_over_idle_streams(
    executors: list[Pair], tmp_path: Path, tally: Tally
) -> None:
    check_some(IDLE_SEEDS, executors, tmp_path, idle_group_of, tally)


def check_some(
    seeds: range,
    executors: list[Pair],
    tmp_path: Path,
    of: Callable[[int], list[Case]],
    tally: Tally,
) -> None:
    def share(number: int) -> list[Tally]:
        mine = seeds[number :: len(executors)]
        return [check(seed, executors[number], tmp_path / f"group{seed}", of) for seed in mine]

    with ThreadPoolExecutor(len(executors)) as pool:
        for done in [pool.submit(share, number) for number in range(len(executors))]:
            for tried in done.result():
                tally.include(tried)


@pytest.mark.hour
def test_an_hour_of_random_queries(executors: list[Pair], tmp_path: Path, tally: Tally) -> None:
    end = time.monotonic() + 3_600
    seed = random.SystemRandom().randrange(10**9)
    print(f"seeds from {seed}")
    while time.monotonic() < end:
        of = idle_group_of if seed % 3 == 0 else group_of
        tally.include(check(seed, executors[0], tmp_path / f"group{seed}", of))
        seed += 1


def test_idle_streams_make_a_difference() -> None:
    cases = [case for seed in IDLE_SEEDS for case in idle_group_of(seed)]
    changed = sum(1 for case in cases if case.expected() != replace(case, idle=None).expected())
    assert changed >= len(cases) * 0.4


if __name__ == "__main__":
    import tempfile

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    for argument in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as place:
            pair = (tiny_executor(session),) * 2
            of = idle_group_of if argument.startswith("idle") else group_of
            seed = int(argument.removeprefix("idle"))
            print(f"{check(seed, pair, Path(place) / 'group', of)}, all right")
