"""Beside others as alone: random sets of queries that share subplans.

Whatever runs beside a query, whoever joins or leaves, however queries are spelt and merged, on
which executor, and whether the engine was restarted: its rows are, epoch by epoch, those that it
gives alone. What it owes is said by the oracle; by the engine that runs it alone where it joined
late, and in some sets for every query.

Most sets run on the bucket executor in this process, which takes a fraction of a second; some on
Spark, where both executors take turns and what only Spark knows is part of the queries. A failure
prints the smallest set that still fails, and
``python -m tests.engine.results.test_beside_others SEED`` runs that set again (``spark SEED`` on
Spark).
"""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Iterable, Iterator

import pytest
from pyspark.sql import SparkSession

from tests.support.beside_others import Stage, judge, shrunk
from tests.support.in_process import in_process_session
from tests.support.query_sets import random_set
from tests.support.seeds import Seeds, some_and_slow
from tests.support.tally import Tally

SETS, MORE_SETS, PER_TEST = 8, 24, 4
SPARK_SETS = 2
#: Seconds in which a failure is made smaller.
SHRINKING = 20.0


@pytest.fixture(scope="module")
def in_process() -> Stage:
    return Stage(in_process_session())


@pytest.fixture(scope="module")
def on_spark(spark: SparkSession) -> Stage:
    """Each restart goes on with the state that the other executor wrote."""
    return Stage(spark, ("buckets", "spark"))


def check(chosen: Iterable[int], stage: Stage, tally: Tally, spark: bool = False) -> None:
    """Run some sets; all of those that fail are named, and the first is made small."""
    failed: dict[int, str] = {}
    for seed in chosen:
        queries = random_set(seed, spark)
        # To run each query alone takes longer than the set does, and the oracle says the same.
        verdict = judge(queries, stage, alone=seed % 16 == 0)
        tally.include(verdict.tally)
        if verdict.faults:
            failed[seed] = "\n".join(verdict.faults.values())
    if failed:
        seed = next(iter(failed))
        smallest, verdict = shrunk(random_set(seed, spark), stage, SHRINKING)
        lines = [f"set {seed}: {text.splitlines()[0]}" for seed, text in failed.items()]
        lines += ["the first of them made smaller:", str(smallest), *verdict.faults.values()]
        lines.append(f"python -m tests.engine.results.test_beside_others {'spark ' * spark}{seed}")
        pytest.fail("\n".join(lines), pytrace=False)


@pytest.mark.parametrize("first", some_and_slow(range(0, SETS + MORE_SETS, PER_TEST), SETS))
def test_sets_of_queries(first: int, seeds: Seeds, in_process: Stage, tally: Tally) -> None:
    check(seeds.some(first, PER_TEST), in_process, tally)


@pytest.mark.parametrize("first", some_and_slow(range(0, 48, SPARK_SETS), SPARK_SETS))
def test_sets_of_queries_on_spark(first: int, seeds: Seeds, on_spark: Stage, tally: Tally) -> None:
    check(seeds.some(first, SPARK_SETS), on_spark, tally, spark=True)


@pytest.mark.hour
def test_an_hour_of_sets(in_process: Stage, tally: Tally) -> None:
    end = time.monotonic() + 3_600
    seed = random.SystemRandom().randrange(10**9)
    print(f"seeds from {seed}")

    def following() -> Iterator[int]:
        for number in itertools.count(seed):
            if time.monotonic() > end:
                return
            yield number

    check(following(), in_process, tally)


def main(arguments: list[str]) -> None:
    """Run sets again: all of it, and what is left of those that fail."""
    spark = "spark" in arguments
    stage = Stage(in_process_session())
    if spark:
        session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        session = session.config("spark.sql.session.timeZone", "UTC")
        stage = Stage(session.getOrCreate(), ("buckets", "spark"))
    for seed in (int(argument) for argument in arguments if argument != "spark"):
        queries = random_set(seed, spark)
        print(queries)
        verdict = judge(queries, stage, alone=True)
        print(f"set {seed}: {verdict.tally}", *verdict.faults.values(), sep="\n")
        if verdict.faults:
            smallest, verdict = shrunk(queries, stage, 6 * SHRINKING)
            print(smallest, *verdict.faults.values(), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
