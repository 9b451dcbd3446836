"""Random queries over random streams: what the engine puts out in each epoch is what the oracle says.

Each case is a query of any form over streams with late, duplicate, NULL, empty and skewed input.
The engine forgets everything but its checkpoint in the middle of each run, and merges its files
early, so that recovery and compaction are always part of what is tested. A failing case prints its
seed; ``python -m tests.engine.test_differential SEED`` runs it alone.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.engine.executor import SparkExecutor
from tests.support.compare import assert_same_rows
from tests.support.engine import run_engine, tiny_executor
from tests.support.queries import WEIGHTS, Case, random_case

CASES = 300
PER_TEST = 10
#: Forms that need luck to put out rows come more often than in the generator's own weights.
MIX = {**WEIGHTS, "session_join": 2, "three_way_join": 2, "join_window": 3}


@pytest.fixture(scope="module")
def executor(spark: SparkSession) -> Iterator[SparkExecutor]:
    yield tiny_executor(spark)


def check(case: Case, executor: SparkExecutor, folder: Path) -> int:
    """Run one case; the number of rows that came out."""
    expected = case.expected()
    middle = frozenset({len(case.epochs) // 2})
    run = run_engine(
        executor,
        {"q": (case.plan, case.query.mode)},
        case.catalog,
        case.epochs,
        case.tables,
        folder,
        restart_after=middle,
    )
    for number, (actual, wanted) in enumerate(zip(run.rows["q"], expected, strict=True)):
        assert_same_rows(actual, wanted, context=f"epoch {number} of {case}")
    return sum(map(len, expected))


@pytest.mark.random
@pytest.mark.parametrize("first", range(0, CASES, PER_TEST))
def test_random_queries(first: int, executor: SparkExecutor, tmp_path: Path) -> None:
    for seed in range(first, first + PER_TEST):
        check(random_case(seed, MIX), executor, tmp_path / f"case{seed}")


@pytest.mark.hour
def test_an_hour_of_random_queries(executor: SparkExecutor, tmp_path: Path) -> None:
    end = time.monotonic() + 3_600
    seed = random.SystemRandom().randrange(10**9)
    print(f"seeds from {seed}")
    while time.monotonic() < end:
        check(random_case(seed, MIX), executor, tmp_path / f"case{seed}")
        seed += 1


def test_most_cases_put_rows_out() -> None:
    """Queries that never emit would prove nothing."""
    cases = [random_case(seed, MIX) for seed in range(60)]
    productive = sum(1 for case in cases if any(case.expected()))
    assert productive >= 40


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
            chosen = random_case(int(argument), MIX)
            print(chosen)
            print(check(chosen, tiny_executor(session), Path(place) / "case"), "rows, all right")
