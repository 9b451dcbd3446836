"""The expressions of random queries mean the same in Spark, as rendered, and in the oracle."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headrace.plan.nodes import Aggregate, Node, Project
from headrace.sql import plan_query
from headrace.sql.render import spark_sql
from tests.support.duck import arrow_table
from tests.support.expressions import Scope, aggregate, predicate, value
from tests.support.oracle import assert_same_rows, run_batch, spark_rows
from tests.support.streams import BIDS, random_epochs, whole

CATALOG = {"bids": BIDS}
SCOPE = Scope.of(BIDS.schema)


def _rows(seed: int) -> list[dict[str, Any]]:
    """Some dozens of rows with times, which every query needs."""
    rows: list[dict[str, Any]] = []
    while len(rows) < 40:
        seed += 1
        rows += [r for r in whole(random_epochs(random.Random(seed), [BIDS]))["bids"] if r["ts"]]
    return rows


def _frame(spark: Any, rows: list[dict[str, Any]]) -> Any:
    return spark.createDataFrame(arrow_table(rows, BIDS.schema))


def _find(plan: Node, kind: type[Any]) -> Any:
    return next(node for node in plan.walk() if isinstance(node, kind))


@pytest.mark.parametrize("seed", range(3))
def test_scalar_expressions(spark: Any, seed: int) -> None:
    chance = random.Random(seed)
    texts = [value(chance, SCOPE, 3) for _ in range(60)]
    texts += [f"({predicate(chance, SCOPE, 2)})" for _ in range(40)]
    columns = ", ".join(f"{text} AS c{i}" for i, text in enumerate(texts))
    plan = plan_query(f"SELECT {columns} FROM bids", CATALOG).plan
    rows = _rows(seed)
    project = _find(plan, Project)
    selected = [f"{spark_sql(c.expr)} AS {c.name}" for c in project.columns]
    actual = spark_rows(_frame(spark, rows).selectExpr(*selected))
    expected = run_batch(plan, {"bids": rows})
    for index, text in enumerate(texts):
        mine, theirs = ([(row[index],) for row in side] for side in (actual, expected))
        assert_same_rows(mine, theirs, f"seed {seed}: {text}")


@pytest.mark.parametrize("seed", range(3))
def test_aggregates(spark: Any, seed: int) -> None:
    chance = random.Random(seed)
    texts = [aggregate(chance, SCOPE)[0] for _ in range(40)]
    columns = ", ".join(f"{text} AS v{i}" for i, text in enumerate(texts))
    plan = plan_query(f"SELECT k, {columns} FROM bids GROUP BY k, landmark(ts)", CATALOG).plan
    rows = _rows(100 + seed)
    node = _find(plan, Aggregate)
    _frame(spark, rows).createOrReplaceTempView("same_meaning")
    selected = [f"{spark_sql(a.expr)} AS `{a.name}`" for a in node.aggregates]
    actual = spark.sql(f"SELECT k, {', '.join(selected)} FROM same_meaning GROUP BY k")
    assert_same_rows(
        spark_rows(actual), run_batch(node, {"bids": rows}), f"seed {seed}", node.schema.names
    )
