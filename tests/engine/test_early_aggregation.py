"""Random aggregates over joins: every choice of inputs to aggregate early gives the same rows.

All 2^m plans of a query, the one that chooses for itself and the one that aggregates late run as
queries of one race, over streams with late, duplicate, NULL, empty and skewed input, and are
compared with the oracle epoch by epoch. The engine forgets everything but its checkpoint in the
middle, goes on with the other executor, and merges its files early.

``python -m tests.engine.test_early_aggregation SEED`` runs one of them.
"""

from __future__ import annotations

import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.cost.early_aggregation import choices
from headrace.engine.executor import Executor
from headrace.optimizer import optimize
from headrace.optimizer.early.shape import AggregationJoin, aggregation_join
from headrace.plan.nodes import Aggregate, Node, OutputMode, Source
from tests.support.compare import assert_same_rows
from tests.support.engine import FORCED_EXECUTOR, run_engine, tiny_executor
from tests.support.queries import Case, random_case, random_query
from tests.support.streams import dense_habits, random_epochs

QUERIES, PER_TEST, TOGETHER = 208, 16, 4
EPOCHS = 3
FORM = {"aggregation_join": 2.0, "moving_join": 1.0}

Pair = tuple[Executor, Executor]


def cases_of(seed: int) -> list[Case]:
    """Some queries over the same streams and rows."""
    case = random_case(seed, FORM)
    more = random.Random(f"early {seed}")
    sources = [node for node in case.catalog.values() if isinstance(node, Source)]
    # The windows of its inputs take the place of a ttl, where a join has them.
    catalog = case.catalog | {s.stream: replace(s, ttl=None) for s in sources}  # type: ignore[operator]
    rows = random_epochs(more, sources, EPOCHS, dense_habits)
    first = replace(case, catalog=catalog, epochs=rows)
    others = (replace(first, query=random_query(more, FORM)) for _ in range(TOGETHER - 1))
    return [first, *others]


def shape_of(plan: Node) -> AggregationJoin | None:
    for node in plan.walk():
        if isinstance(node, Aggregate):
            shape = aggregation_join(node)
            if isinstance(shape, AggregationJoin):
                return shape
    return None


def all_plans(plan: Node) -> dict[str, Node]:
    """The plan as it is chosen, with each choice of inputs forced, and aggregated late."""
    chosen = optimize(plan).plan
    plans = {"auto": chosen, "late": optimize(plan, frozenset({"early_aggregation"})).plan}
    shape = shape_of(chosen)
    if shape is not None:
        for choice in choices(shape.eligible):
            names = ", ".join(shape.names[index] for index in sorted(choice)) or "none"
            plans[names] = chosen.transform(lambda node, names=names: _forced(node, names))  # type: ignore[misc]
    return plans


def _forced(node: Node, names: str) -> Node:
    return replace(node, early=names) if isinstance(node, Aggregate) and node.early else node


def check(seed: int, executors: Pair, folder: Path) -> tuple[int, int]:
    """Run the queries of one seed; the numbers of rows that came out, and of plans."""
    cases = cases_of(seed)
    queries: dict[str, tuple[Node, OutputMode]] = {}
    for number, case in enumerate(cases):
        for count, plan in enumerate(all_plans(case.plan).values()):
            queries[f"q{number}-{count}"] = plan, case.query.mode
    first = cases[0]
    run = run_engine(
        executors[0],
        queries,
        first.catalog,
        first.epochs,
        first.tables,
        folder,
        restart_after=frozenset({len(first.epochs) // 2}),
        then=executors[1],
        as_given=frozenset(queries),
    )
    rows = 0
    for number, case in enumerate(cases):
        expected = case.expected()
        for count, name in enumerate(all_plans(case.plan)):
            for epoch, wanted in enumerate(expected):
                actual = run.rows[f"q{number}-{count}"][epoch]
                assert_same_rows(actual, wanted, context=f"plan {name}, epoch {epoch}: {case}")
        rows += sum(map(len, expected))
    return rows, len(queries)


@pytest.fixture(scope="module")
def executors(spark: SparkSession) -> list[Pair]:
    chosen = {"auto": ("buckets", "spark")}.get(FORCED_EXECUTOR, (FORCED_EXECUTOR,) * 2)
    pair = tuple(tiny_executor(spark, executor=name) for name in chosen)
    other = tuple(tiny_executor(spark, executor=name) for name in reversed(chosen))
    return [pair, other]  # type: ignore[list-item]


@pytest.mark.random
@pytest.mark.parametrize("first", range(0, QUERIES // TOGETHER, PER_TEST // TOGETHER))
def test_all_plans_agree(first: int, executors: list[Pair], tmp_path: Path) -> None:
    def share(number: int) -> None:
        for seed in range(first + number, first + PER_TEST // TOGETHER, len(executors)):
            check(seed, executors[number], tmp_path / f"group{seed}")

    with ThreadPoolExecutor(len(executors)) as pool:
        for done in [pool.submit(share, number) for number in range(len(executors))]:
            done.result()


def test_most_queries_have_plans_to_compare() -> None:
    cases = [case for seed in range(QUERIES // TOGETHER) for case in cases_of(seed)]
    early = [case for case in cases if shape_of(optimize(case.plan).plan) is not None]
    assert len(early) >= 0.8 * len(cases)
    assert sum(1 for case in early[:40] if any(case.expected())) >= 24


if __name__ == "__main__":
    import tempfile

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    two = tuple(tiny_executor(session, executor=name) for name in ("buckets", sys.argv.pop()))
    for argument in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as place:
            begun = time.monotonic()
            found = check(int(argument), two, Path(place) / "group")  # type: ignore[arg-type]
            print(argument, *found, f"{time.monotonic() - begun:.1f} s")
