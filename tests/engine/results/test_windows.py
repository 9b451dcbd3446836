"""Many windows at once: whatever shares panes and however they close, the results are the same.

Window sets are random: tumbling, hopping and sampling, with offsets, slides that do not divide
lengths. Several queries over one grouping share panes; the layout and the way of closing change
after every epoch, and the engine forgets everything but its checkpoint in the middle.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.engine.execution.executor import Executor
from headrace.optimizer.windows.closing import closing_graph
from headrace.optimizer.windows.layout import Sharing
from headrace.plan.coverage import Coverage
from headrace.plan.nodes import OutputMode
from headrace.plan.windows import Hopping
from headrace.planner.policy import PlannerPolicy
from tests.support.compare import assert_same_rows
from tests.support.engine import (
    ALL_WINDOW_PLANS,
    EngineRun,
    run_engine,
    task_executor,
    tiny_executor,
)
from tests.support.queries import Case, RandomQuery, random_case
from tests.support.seeds import Seeds
from tests.support.tally import Tally

AGGREGATES = (
    "MIN(price) AS least, MAX(price) AS most",
    "SUM(price) AS total, COUNT(*) AS n",
    "AVG(price) AS mean, MIN(price) AS least, COUNT_IF(flag) AS flags",
    "MAX(price) FILTER (WHERE flag) AS most",
)
KEYS = ("k", "k", "k, name", "")


@pytest.fixture(scope="module")
def executor() -> Executor:
    return task_executor()


def window_list(chance: random.Random, count: int) -> str:
    found: set[tuple[int, int, int]] = set()
    while len(found) < count:
        length = chance.choice((2, 3, 4, 5, 6, 9, 10, 12, 15, 20))
        slide = chance.choice((length, length, length, max(1, length // 2), 2, 3, 25))
        found.add((length, slide, chance.choice((0, 0, 0, 1)) % slide))
    parts = [f"window(ts, '{le} seconds', '{sl} seconds', '{o} seconds')" for le, sl, o in found]
    return f"windows({', '.join(parts)})" if len(parts) > 1 else parts[0]


def queries(seed: int, count: int) -> list[Case]:
    """Queries that group the same stream by some keys, with window sets of their own."""
    chance = random.Random(f"windows {seed}")
    first = random_case(seed)
    first = replace(first, epochs=first.epochs[:5])
    found = []
    for _ in range(count):
        windows = window_list(chance, chance.randint(1, 5))
        keys = chance.choice(KEYS)
        columns = "window" + (", window_id" if windows.startswith("windows") else "")
        grouping = windows
        if keys:
            columns, grouping = f"{keys}, {columns}", f"{keys}, {windows}"
        aggregates = chance.choice(AGGREGATES)
        sql = f"SELECT {columns}, {aggregates} FROM bids GROUP BY {grouping}"
        mode = chance.choice((OutputMode.APPEND, OutputMode.APPEND, OutputMode.UPDATE))
        found.append(replace(first, query=RandomQuery(sql, mode, frozenset())))
    return found


def run(
    cases: list[Case], executor: Executor, folder: Path, plans: tuple[PlannerPolicy, ...]
) -> EngineRun:
    some = cases[0]
    return run_engine(
        executor,
        {f"q{i}": (case.plan, case.query.mode) for i, case in enumerate(cases)},
        some.catalog,
        some.epochs,
        some.tables,
        folder,
        restart_after=frozenset({len(some.epochs) // 2}),
        compaction=3,
        plans=plans,
    )


@pytest.mark.parametrize("place", range(5))
def test_every_plan_gives_the_same_windows(
    place: int, seeds: Seeds, executor: Executor, tmp_path: Path, tally: Tally
) -> None:
    check(seeds.one(place), executor, tmp_path, tally)


@pytest.mark.parametrize(
    "place", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 24))]
)
def test_every_plan_gives_the_same_windows_on_spark(
    place: int, seeds: Seeds, spark: SparkSession, tmp_path: Path, tally: Tally
) -> None:
    check(seeds.one(place), tiny_executor(spark), tmp_path, tally)


def check(seed: int, executor: Executor, folder: Path, tally: Tally) -> None:
    cases = queries(seed, 3)
    chance = random.Random(seed)
    plans = tuple(chance.sample(ALL_WINDOW_PLANS, len(ALL_WINDOW_PLANS)))
    found = run(cases, executor, folder / "state", plans)
    for number, case in enumerate(cases):
        for epoch, (actual, wanted) in enumerate(
            zip(found.rows[f"q{number}"], case.expected(), strict=True)
        ):
            assert_same_rows(actual, wanted, context=f"epoch {epoch} of q{number}: {case}")
        tally.add(case.rows)


def test_late_rows_are_counted_alike_by_every_layout(executor: Executor, tmp_path: Path) -> None:
    """A row is late for a query once, however many stores its windows read."""
    counts = []
    for sharing in Sharing:
        plan = PlannerPolicy(window_sharing=sharing)
        seen = []
        for seed in (51,):
            cases = queries(seed, 1)
            folder = tmp_path / f"{sharing.value}{seed}"
            reports = run(cases, executor, folder, (plan,)).reports
            seen.append([sum(report.late.values()) for report in reports])
        counts.append(seen)
    assert counts[0] == counts[1] == counts[2]
    assert any(n for seen in counts[0] for n in seen), "no row was late: this tests nothing"


def test_windows_are_computed_from_factor_windows_that_overlap(
    executor: Executor, tmp_path: Path
) -> None:
    """MIN over (11, 2) and (14, 3) from (3, 2) and (5, 3), whose slides do not divide lengths."""
    windows = (
        "windows(window(ts, '11 seconds', '2 seconds'), window(ts, '14 seconds', '3 seconds'))"
    )
    sql = f"SELECT k, window, window_id, MIN(price) AS least FROM bids GROUP BY k, {windows}"
    for seed in (7, 8):
        some = random_case(seed)
        case = replace(
            some,
            epochs=some.epochs[:5],
            query=RandomQuery(sql, OutputMode.APPEND, frozenset()),
        )
        tree = PlannerPolicy(window_closing="tree")
        found = run([case], executor, tmp_path / f"{seed}", (tree,))
        for actual, wanted in zip(found.rows["q0"], case.expected(), strict=True):
            assert_same_rows(actual, wanted, context=str(case))


def test_the_factor_windows_that_overlap_are_the_ones_that_run() -> None:
    second = Hopping(1_000, 1_000)
    windows = [Hopping(11_000, 2_000), Hopping(14_000, 3_000)]
    graph = closing_graph(windows, second, Coverage.COVERED)
    assert graph.factors == (Hopping(3_000, 2_000), Hopping(5_000, 3_000))
