"""One function that needs the rows of its windows does not make the others keep rows."""

from __future__ import annotations

import datetime
import random
from pathlib import Path

import pytest

from headrace.compiler.planning import plan_all
from headrace.operators.panes.pane_store import PaneStore
from headrace.operators.rows.row_store import RowStore
from headrace.optimizer import optimize
from headrace.plan.nodes import OutputMode, Sink, Source, Table
from headrace.plan.types import BIGINT, INT, STRING, TIMESTAMP, Schema
from headrace.planner.live_query import LiveQuery
from headrace.sql import plan_query
from tests.support.compare import assert_same_rows
from tests.support.engine import run_engine, task_executor
from tests.support.oracle import run_epochs
from tests.support.streams import Row

FIELDS = [("k", BIGINT), ("g", STRING), ("n", INT), ("v", BIGINT), ("w", BIGINT), ("ts", TIMESTAMP)]
CATALOG: dict[str, Source | Table] = {"s": Source("s", Schema.of(FIELDS), "ts", delay=4_000)}
BEGIN = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
MIXED = "count(DISTINCT g) AS texts, sum(v) AS total, max(w) AS most, median(n) AS middle"
HOPS = "window(ts, '20 seconds', '5 seconds')"
FORMS = {
    "tumbling": f"SELECT k, window, {MIXED} FROM s GROUP BY k, window(ts, '10 seconds')",
    "hopping": f"SELECT {MIXED}, window FROM s GROUP BY {HOPS}",
    "several": f"SELECT g, window_id, window, {MIXED} FROM s WHERE n > 0 "
    f"GROUP BY g, windows({HOPS}, window(ts, '10 seconds'))",
    "having": f"SELECT k, n, window, {MIXED} FROM s GROUP BY k, n, {HOPS} HAVING sum(w) > 3",
}


def stores_of(sql: str) -> list[object]:
    plan = optimize(plan_query(sql, CATALOG).plan).plan
    live = LiveQuery(Sink(plan, "q", "memory", OutputMode.APPEND), None)
    return list(plan_all([live]).stores)


def random_rows(chance: random.Random, epoch: int) -> list[Row]:
    def row() -> Row:
        return {
            "k": chance.choice([1, 2, None]),
            "g": chance.choice(["x", "y", "z", None]),
            "n": chance.choice([0, 1, 2, 5, None]),
            "v": chance.choice([1, 10, -3, None]),
            "w": chance.randrange(5),
            "ts": BEGIN + datetime.timedelta(seconds=9 * epoch + chance.uniform(-7, 12)),
        }

    return [row() for _ in range(30)]


@pytest.mark.parametrize("mode", [OutputMode.APPEND, OutputMode.UPDATE])
def test_groups_from_panes_and_rows_are_the_same(mode: OutputMode, tmp_path: Path) -> None:
    chance = random.Random(f"split {mode}")
    epochs = [{"s": random_rows(chance, epoch)} for epoch in range(4)]
    queries = {
        name: (optimize(plan_query(sql, CATALOG).plan).plan, mode) for name, sql in FORMS.items()
    }
    run = run_engine(
        task_executor(), queries, CATALOG, epochs, {}, tmp_path, restart_after=frozenset({1})
    )
    for name, (plan, _) in queries.items():
        wanted = run_epochs(plan, epochs, {}, mode)
        assert sum(map(len, wanted)) > 5
        for epoch, rows in enumerate(wanted):
            assert_same_rows(run.rows[name][epoch], rows, context=f"{name}, epoch {epoch}")


def test_rows_are_kept_without_the_columns_of_the_others() -> None:
    kinds = stores_of(FORMS["tumbling"])
    (rows,) = (store for store in kinds if isinstance(store, RowStore))
    (panes,) = (store for store in kinds if isinstance(store, PaneStore))
    assert rows.columns == {"k", "g", "n", "ts"}
    assert len(panes.partials) == 3


def test_rows_that_are_kept_anyway_serve_all() -> None:
    sql = (
        "SELECT median(n) AS m, avg(n) AS a, count(*) AS c FROM s GROUP BY window(ts, '5 seconds')"
    )
    (only,) = stores_of(sql)
    assert isinstance(only, RowStore)
