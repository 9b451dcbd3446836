"""Sessions of rows that share their times: a row belongs to one session, whatever the order.

An instant that many rows share may begin a session. Sorted by time its rows come in any order, and
not in the same one each time: whichever of them comes first, all of them are in the new session.
"""

from __future__ import annotations

import datetime
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.engine.execution.executor import Executor
from headrace.plan.durations import MINUTE
from headrace.plan.nodes import OutputMode, Source, Table
from headrace.plan.types import BIGINT, TIMESTAMP, Schema
from headrace.sql import plan_query
from tests.support.compare import assert_same_rows
from tests.support.engine import run_engine, task_executor, tiny_executor
from tests.support.oracle import run_epochs
from tests.support.streams import BEGIN, Epochs, Row

pytestmark = pytest.mark.random

COLUMNS = Schema.of((("k", BIGINT), ("v", BIGINT), ("ts", TIMESTAMP)))
CATALOG: dict[str, Source | Table] = {
    name: Source(name, COLUMNS, "ts", delay=MINUTE) for name in "ab"
}
GAP = "session_window(ts, '5 seconds')"
QUERIES = {
    "by key": f"SELECT k, window, COUNT(*) AS n, SUM(v) AS total FROM a GROUP BY k, {GAP}",
    "all rows": f"SELECT window, COUNT(*) AS n, MIN(v) AS least FROM a GROUP BY {GAP}",
    "distinct": f"SELECT window, COUNT(DISTINCT v) AS n FROM a GROUP BY {GAP}",
    "join": (
        "SELECT a.k, a.v AS av, b.v AS bv FROM a JOIN b ON a.k = b.k "
        "AND session_window(a.ts, '5 seconds') = session_window(b.ts, '5 seconds') "
        "WHERE a.v < 10 AND b.v < 10"
    ),
}


def rows_of(chance: random.Random, instants: tuple[int, ...], keys: int) -> list[Row]:
    """Forty rows over a few instants, given in seconds."""
    return [
        {
            "k": chance.randrange(keys),
            "v": number,
            "ts": BEGIN + datetime.timedelta(seconds=chance.choice(instants)),
        }
        for number in range(40)
    ]


def epochs_of(seed: int) -> Epochs:
    """Rows that begin sessions, rows of the same instants, rows between them, and the end."""
    chance = random.Random(f"ties {seed}")
    keys = 1 + seed % 2
    epochs: Epochs = [
        {stream: rows_of(chance, instants, keys) for stream in "ab"}
        for instants in ((0, 4, 20, 40), (0, 20, 31, 40), (4, 9, 36, 50))
    ]
    end: Row = {"k": 0, "v": 99, "ts": BEGIN + datetime.timedelta(hours=1)}
    return [*epochs, {stream: [end] for stream in "ab"}]


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_one_instant_are_in_one_session(seed: int, tmp_path: Path) -> None:
    check(seed, task_executor(), tmp_path)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_rows_of_one_instant_are_in_one_session_on_spark(
    seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    check(seed, tiny_executor(spark, executor="spark"), tmp_path)


def check(seed: int, executor: Executor, folder: Path) -> None:
    plans = {name: plan_query(sql, CATALOG).plan for name, sql in QUERIES.items()}
    epochs = epochs_of(seed)
    run = run_engine(
        executor,
        {name: (plan, OutputMode.APPEND) for name, plan in plans.items()},
        CATALOG,
        epochs,
        {},
        folder,
    )
    for name, plan in plans.items():
        expected = run_epochs(plan, epochs)
        assert any(expected), name
        for number, (actual, wanted) in enumerate(zip(run.rows[name], expected, strict=True)):
            assert_same_rows(actual, wanted, context=f"{name}, epoch {number}, seed {seed}")
