"""Aggregates over columns of several inputs, of different values and of moments, before joins.

Every form of windows with every choice of inputs, against the oracle epoch by epoch: rows that are
late or twice there, NULLs, infinities, groups that are alike and groups of one row. What each query
is put together from is looked at, so that no call is computed in another way unseen.
"""

from __future__ import annotations

import datetime
import random
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.cost.early_aggregation import choices
from headrace.engine.execution.executor import Executor
from headrace.optimizer import optimize
from headrace.optimizer.early.sets import early_sets
from headrace.optimizer.early.shape import AggregationJoin, aggregation_join
from headrace.plan.durations import SECOND
from headrace.plan.nodes import Aggregate, Node, OutputMode, Source, Table
from headrace.plan.types import BIGINT, DOUBLE, INT, STRING, TIMESTAMP, Schema
from headrace.sql import plan_query
from tests.support.compare import assert_same_rows
from tests.support.engine import run_engine, task_executor, tiny_executor
from tests.support.oracle import run_epochs
from tests.support.streams import Row

COLUMNS = [
    ("k", BIGINT),
    ("g", STRING),
    ("n", INT),
    ("v", BIGINT),
    ("d", DOUBLE),
    ("odd", DOUBLE),
    ("ts", TIMESTAMP),
]
CATALOG: dict[str, Source | Table] = {
    name: Source(name, Schema.of(COLUMNS), "ts", delay=3 * SECOND) for name in "abc"
}
BEGIN = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)

#: Made of a factor of each input.
FACTORED = (
    "sum(a.v * b.v)",
    "sum(a.n * b.n)",
    "sum(a.v + b.v)",
    "sum(a.n - b.n)",
    "sum(a.v * b.n)",
    "sum(a.d * b.d)",
    "sum(a.odd * b.odd)",
    "sum(a.odd + b.d)",
    "sum(a.d * (1 - b.d) * b.n)",
    "sum(a.d - b.d + a.n)",
    "sum(a.v * b.v) FILTER (WHERE a.n > 1 AND b.v < 7)",
    "sum(a.v) FILTER (WHERE b.n > 1)",
    "avg(a.odd) FILTER (WHERE b.n > 1 AND a.n > 0)",
    "count(a.g) FILTER (WHERE b.v > 0)",
    "count(*) FILTER (WHERE a.n > 0 AND b.v > 1)",
    "stddev(a.d) FILTER (WHERE b.v > 0)",
    "avg(a.v * b.v)",
    "avg(a.n - b.v)",
    "avg(a.odd * b.odd)",
    "count(a.v * b.v)",
    "count(a.d + b.d)",
    "stddev(a.d + b.d)",
    "var_pop(a.v - b.v)",
    "variance(a.d * b.d)",
    "covar_pop(a.d, b.d)",
    "covar_samp(a.v, b.n)",
    "covar_pop(a.odd, b.d)",
)
#: Computed of columns that tell rows apart.
BY_VALUES = (
    "min(a.v - b.v)",
    "max(a.d * b.d)",
    "sum(a.v * b.v - a.v)",
    "sum(CASE WHEN a.v > b.v THEN a.d END)",
    "stddev(a.d * b.d - a.d)",
    "covar_pop(a.d + b.d, b.d)",
    "count(nullif(a.g, b.g))",
    "sum(a.v) FILTER (WHERE a.v > b.v)",
)
#: Of different values.
DIFFERENT = (
    "count(DISTINCT b.v)",
    "count(DISTINCT b.g)",
    "sum(DISTINCT b.v)",
    "avg(DISTINCT a.n)",
    "count(DISTINCT a.k)",
    "count(DISTINCT b.v) FILTER (WHERE b.n > 1)",
    "count(DISTINCT a.v + b.v)",
)
ONE_SIDED = ("stddev(a.d)", "var_pop(b.v)", "covar_pop(a.d, a.v)", "count(*)", "max(b.d)")
CALLS = (*FACTORED, *BY_VALUES, *DIFFERENT, *ONE_SIDED)

SAME = "window({0}.ts, '10 seconds') = window({1}.ts, '10 seconds')"
TIED = f"a JOIN b ON a.k = b.k AND {SAME.format('a', 'b')}"
HOPS = "window({}.ts, '10 seconds', '5 seconds')"
FORMS = {
    "tumbling": (f"FROM {TIED} GROUP BY a.g, window(a.ts, '10 seconds')", True),
    "hopping": (f"FROM {TIED} GROUP BY window(a.ts, '20 seconds', '5 seconds')", True),
    "several": (
        f"FROM {TIED} "
        "GROUP BY a.g, windows(window(a.ts, '10 seconds'), window(a.ts, '20 seconds'))",
        True,
    ),
    "given": (
        f"FROM a JOIN b ON a.k = b.k AND {HOPS.format('a')} = {HOPS.format('b')} "
        "GROUP BY a.g, window",
        True,
    ),
    "trailing": (f"FROM {TIED} GROUP BY b.g, trailing(a.ts, '15 seconds')", False),
    "landmark": (f"FROM {TIED} GROUP BY a.g, landmark(a.ts)", False),
    "landmark of all": (f"FROM {TIED} GROUP BY landmark(a.ts)", False),
    "each": (
        "FROM a JOIN b ON a.k = b.k "
        "GROUP BY a.g, trailing(a.ts, '15 seconds'), trailing(b.ts, '25 seconds')",
        False,
    ),
    "three": (
        f"FROM {TIED} JOIN c ON a.k = c.k AND {SAME.format('a', 'c')} "
        "GROUP BY c.g, window(a.ts, '10 seconds')",
        True,
    ),
}
#: Forms of the default run, which the others resemble.
DEFAULT = ("each", "given", "landmark", "three")
EPOCHS = 3
TOGETHER = 12


def random_rows(chance: random.Random) -> list[dict[str, list[Row]]]:
    """Rows of few values and few keys; the last epoch closes the windows before it."""

    def row(second: float) -> Row:
        odd = (float("inf"), float("-inf"), float("nan"), 0.0)
        return {
            "k": chance.choice([1, 1, 1, 2, 3, None]),
            "g": chance.choice("xyz"),
            "n": chance.choice([0, 1, 2, 3, -4, None]),
            "v": chance.choice([-2, 0, 1, 5, 7, None]),
            "d": chance.choice([0.25, -1.5, 2.0, 8.0, None]),
            "odd": chance.choice(odd) if chance.random() < 0.04 else chance.choice([0.5, -3.0]),
            "ts": BEGIN + datetime.timedelta(seconds=second),
        }

    epochs = []
    for epoch in range(EPOCHS):
        rows = {}
        for name in "abc":
            some = [row(11 * epoch + chance.randrange(-6, 14)) for _ in range(9)]
            rows[name] = [*some, *some[:2]]
        epochs.append(rows)
    epochs.append({name: [row(90)] for name in "abc"})
    return epochs


def shape_of(plan: Node) -> AggregationJoin:
    node = next(n for n in plan.walk() if isinstance(n, Aggregate))
    shape = aggregation_join(node)
    assert isinstance(shape, AggregationJoin), shape
    return shape


def queries_of(form: str, calls: list[str], update: bool) -> dict[str, tuple[Node, OutputMode]]:
    """The calls together, by every choice of two inputs, and by some of three."""
    rest, windowed = FORMS[form]
    mode = OutputMode.UPDATE if update and windowed else OutputMode.APPEND
    shown = "" if "landmark" in form else "window, "
    if form == "several":
        shown += "window_id, "
    listed = ", ".join(f"{call} AS x{i}" for i, call in enumerate(calls))
    plan = optimize(plan_query(f"SELECT {shown}{listed} {rest}", CATALOG).plan).plan
    shape = shape_of(plan)
    tried = list(choices(shape.eligible))
    queries = {}
    for choice in tried if len(tried) < 5 else [tried[0], tried[4], tried[-1]]:
        early = ", ".join(shape.names[i] for i in sorted(choice)) or "none"
        forced = plan.transform(
            lambda n, early=early: replace(n, early=early) if isinstance(n, Aggregate) else n  # type: ignore[misc]
        )
        queries[f"early {early}"] = forced, mode
    return queries


@pytest.mark.parametrize(
    ("form", "some"),
    [
        pytest.param(form, some, marks=[] if some == 0 and form in DEFAULT else pytest.mark.slow)
        for form in sorted(FORMS)
        for some in range(3)
    ],
)
def test_all_plans_agree(form: str, some: int, tmp_path: Path) -> None:
    check(form, some, task_executor(**{"tasks.rows": "50000"}), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("form", sorted(FORMS))
def test_all_plans_agree_on_spark(form: str, spark: SparkSession, tmp_path: Path) -> None:
    check(form, 3, tiny_executor(spark, executor="spark"), tmp_path)


def check(form: str, some: int, executor: Executor, folder: Path) -> None:
    """Some calls over some rows, by all plans."""
    chance = random.Random(f"two sides {form}{some}")
    calls = chance.sample(CALLS, TOGETHER)
    queries = queries_of(form, calls, update=chance.random() < 0.5)
    epochs = random_rows(chance)
    run = run_engine(
        executor,
        queries,
        CATALOG,
        epochs,
        {},
        folder,
        restart_after=frozenset({1}),
        as_given=frozenset(queries),
    )
    plan, mode = next(iter(queries.values()))
    wanted = run_epochs(plan, epochs, {}, mode)
    assert sum(map(len, wanted)) >= 3, "nothing to compare"
    for name in queries:
        for epoch, rows in enumerate(wanted):
            context = f"{form}, {name}, epoch {epoch}: {calls}"
            assert_same_rows(run.rows[name][epoch], rows, context=context)


@pytest.mark.parametrize("call", CALLS)
def test_what_is_made_of_factors_and_what_of_values(call: str) -> None:
    rest, _ = FORMS["tumbling"]
    shape = shape_of(optimize(plan_query(f"SELECT {call} AS x {rest}", CATALOG).plan).plan)
    sets = early_sets(shape)
    assert bool(sets.factored) is (call in FACTORED)
    assert bool(shape.different) is (call in DIFFERENT)
    groups = [{str(group.expr) for group in early.groups} for early in sets.inputs]
    if call in FACTORED:
        # Nothing but keys tells rows apart.
        assert groups == [{"k", "g"}, {"k"}]
    if call in BY_VALUES:
        assert groups != [{"k", "g"}, {"k"}]
