"""Random queries over random streams: the engine puts out in each epoch what the oracle says.

A group is a set of streams with late, duplicate, NULL, empty and skewed input, and some random
queries of any form that run over them together, sharing what state they can. The engine forgets
everything but its checkpoint in the middle of each run and merges its files early, so recovery and
compaction are always part of what is tested.

Most groups hold queries that tasks can run, and run them in this process, which takes a sixth of
the time; the others hold any query, and go on with the other executor after the restart. A failure
prints the seed of its group, and ``python -m tests.engine.results.test_differential SEED`` runs it
alone (``tasks SEED`` one of tasks, ``idle SEED`` one with streams that are idle at times).
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

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
    task_executor,
    tiny_executor,
)
from tests.support.in_tasks import fitting
from tests.support.queries import WEIGHTS, Case, productive, random_case, random_query
from tests.support.seeds import Seeds, some_and_slow
from tests.support.streams import dense_habits, random_epochs, with_idle_streams
from tests.support.tally import Tally

QUERIES = 5
#: Groups of tasks, and those on Spark: first those of the default run.
TASK_GROUPS, MORE_TASK_GROUPS, PER_TEST = 6, 18, 6
SPARK_GROUPS, MORE_SPARK_GROUPS, PER_SPARK_TEST = 2, 58, 2
EPOCHS = 3
#: Forms that need luck to put out rows come more often than in the generator's own weights.
MIX = {**WEIGHTS, "session_join": 2, "three_way_join": 2, "join_window": 3}
#: These have tests of their own, with streams of many more rows.
MIX |= {"aggregation_join": 0, "moving_join": 0}
#: Tables are Spark's.
NO_TABLES = MIX | {"table_join": 0, "table_join_window": 0}
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


def pair_on(spark: SparkSession) -> Pair:
    """A group begins on the first of these and goes on, after a restart, on the second: the state
    that one of them wrote must be good for the other."""
    chosen = {"auto": ("buckets", "spark")}.get(FORCED_EXECUTOR, (FORCED_EXECUTOR,) * 2)
    one, other = (tiny_executor(spark, executor=name) for name in chosen)
    return one, other


@pytest.fixture(scope="module")
def on_spark(spark: SparkSession) -> Pair:
    return pair_on(spark)


def pair_of_tasks() -> Pair:
    return (task_executor(),) * 2


def group_of(seed: int, mix: Mapping[str, float] = MIX, fits: bool = False) -> list[Case]:
    """Several queries over the same streams and rows; with ``fits`` such as tasks can run."""
    case = random_case(seed, mix)
    # The last epoch, whichever it is, leaps ahead and closes most of what is open.
    first = replace(case, epochs=[*case.epochs[: EPOCHS - 1], case.epochs[-1]])
    more = random.Random(f"group {seed}")
    others = [replace(first, query=random_query(more, mix)) for _ in range(QUERIES - 1)]
    if not fits:
        return [productive(case, more) for case in (first, *others)]
    return [
        productive(case, more, lambda one: fitting(one, more, mix)) for case in (first, *others)
    ]


def group_of_tasks(seed: int) -> list[Case]:
    return group_of(seed, NO_TABLES, fits=True)


def idle_group_of(seed: int) -> list[Case]:
    """Several queries over streams that have enough to join, and are idle at times."""
    cases = group_of(seed, SEVERAL)
    chance = random.Random(f"idle {seed}")
    sources = [s for s in cases[0].catalog.values() if isinstance(s, Source)]
    whole = random_epochs(chance, sources, IDLE_EPOCHS, dense_habits)
    epochs, idle = with_idle_streams(chance, whole)
    return [productive(replace(case, epochs=epochs, idle=idle), chance) for case in cases]


def policies_of(seed: int) -> tuple[PlannerPolicy, ...]:
    """What is asked of the planner: every third group changes its mind about windows between the
    epochs, and every second one computes what several queries read once, however few rows it is."""
    policies = ALL_WINDOW_PLANS if seed % 3 == 1 else (PlannerPolicy(),)
    return tuple(replace(p, rows_per_job=0) for p in policies) if seed % 2 else policies


def check(
    seed: int, executors: Pair, folder: Path, of: Callable[[int], list[Case]] = group_of
) -> Tally:
    """Run one group; what it tried."""
    cases = {f"q{number}": case for number, case in enumerate(of(seed))}
    some = cases["q0"]
    run = run_engine(
        # Half of the groups begin with the one, half with the other.
        executors[seed // 2 % 2],
        {name: (case.plan, case.query.mode) for name, case in cases.items()},
        some.catalog,
        some.epochs,
        some.tables,
        folder,
        restart_after=frozenset({len(some.epochs) // 2}),
        plans=policies_of(seed),
        then=executors[1 - seed // 2 % 2],
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


def check_some(
    chosen: range, executors: Pair, folder: Path, of: Callable[[int], list[Case]], tally: Tally
) -> None:
    for seed in chosen:
        tally.include(check(seed, executors, folder / f"group{seed}", of))


@pytest.mark.parametrize(
    "first", some_and_slow(range(0, TASK_GROUPS + MORE_TASK_GROUPS, PER_TEST), TASK_GROUPS)
)
def test_random_queries_of_tasks(first: int, seeds: Seeds, tmp_path: Path, tally: Tally) -> None:
    some = seeds.some(first, PER_TEST)
    check_some(some, pair_of_tasks(), tmp_path, group_of_tasks, tally)


@pytest.mark.parametrize(
    "first", some_and_slow(range(0, SPARK_GROUPS + MORE_SPARK_GROUPS, PER_SPARK_TEST), SPARK_GROUPS)
)
def test_random_queries(
    first: int, seeds: Seeds, on_spark: Pair, tmp_path: Path, tally: Tally
) -> None:
    check_some(seeds.some(first, PER_SPARK_TEST), on_spark, tmp_path, group_of, tally)


@pytest.mark.parametrize(
    "seed", [IDLE_SEEDS[0], *(pytest.param(n, marks=pytest.mark.slow) for n in IDLE_SEEDS[1:])]
)
def test_random_queries_over_idle_streams(
    seed: int, on_spark: Pair, tmp_path: Path, tally: Tally
) -> None:
    check_some(range(seed, seed + 1), on_spark, tmp_path, idle_group_of, tally)


@pytest.mark.hour
def test_an_hour_of_random_queries(on_spark: Pair, tmp_path: Path, tally: Tally) -> None:
    end = time.monotonic() + 3_600
    seed = random.SystemRandom().randrange(10**9)
    print(f"seeds from {seed}")
    while time.monotonic() < end:
        of = idle_group_of if seed % 3 == 0 else group_of
        tally.include(check(seed, on_spark, tmp_path / f"group{seed}", of))
        seed += 1


def test_idle_streams_make_a_difference() -> None:
    cases = [case for seed in IDLE_SEEDS for case in idle_group_of(seed)]
    changed = sum(1 for case in cases if case.expected() != replace(case, idle=None).expected())
    assert changed >= len(cases) * 0.4


KINDS = {"": group_of, "tasks": group_of_tasks, "idle": idle_group_of}


def main(arguments: list[str]) -> None:
    """Run groups again."""
    kind = "".join(argument for argument in arguments if argument in KINDS)
    pair = pair_of_tasks()
    if kind != "tasks":
        session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        session = session.config("spark.sql.session.timeZone", "UTC")
        pair = pair_on(session.getOrCreate())
    for seed in (int(argument) for argument in arguments if argument not in KINDS):
        with TemporaryDirectory() as place:
            print(f"{check(seed, pair, Path(place) / 'group', KINDS[kind])}, all right")


if __name__ == "__main__":
    main(sys.argv[1:])
