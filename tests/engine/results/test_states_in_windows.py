"""Aggregates of constant size in windows, epoch by epoch, against what the rows of each window are.

The epochs run in this process on the executor of tasks, where nothing may need Spark's operators.
"""

from __future__ import annotations

import datetime
import random
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from headrace.optimizer import optimize
from headrace.plan.nodes import OutputMode, Source, Table
from headrace.plan.types import BIGINT, DOUBLE, TIMESTAMP, Schema
from headrace.sql import plan_query
from tests.support.engine import run_engine, tiny_executor
from tests.support.in_process import in_process_session
from tests.support.streams import Row

CALLS = (
    "stddev(x)",
    "var_pop(x) FILTER (WHERE y > 0)",
    "corr(x, y)",
    "covar_samp(x, y)",
    "min_by(x, y)",
    "max_by(x, ts)",
)
BEGIN = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
WINDOWS = {"tumbling": (20, 20), "hopping": (30, 10)}


def rows_of(chance: random.Random, epoch: int) -> list[Row]:
    rows: list[Row] = []
    for index in range(60):
        second = 12 * epoch + index / 5
        x = None if chance.random() < 0.1 else 1e9 + chance.gauss(0, 1)
        y = None if chance.random() < 0.1 else chance.gauss(0, 3) + (x or 0) - 1e9
        ts = BEGIN + datetime.timedelta(seconds=second)
        rows.append({"k": chance.randrange(3), "x": x, "y": y, "ts": ts})
    return rows


@pytest.mark.parametrize("tasks", [2, 50_000])
@pytest.mark.parametrize("kind", sorted(WINDOWS))
def test_windows_are_made_of_states(kind: str, tasks: int, tmp_path: Path) -> None:
    length, slide = WINDOWS[kind]
    chance = random.Random(kind)
    fields = [("k", BIGINT), ("x", DOUBLE), ("y", DOUBLE), ("ts", TIMESTAMP)]
    catalog: dict[str, Source | Table] = {"s": Source("s", Schema.of(fields), "ts")}
    listed = ", ".join(f"{call} AS c{n}" for n, call in enumerate(CALLS))
    over = f"window(ts, '{length} seconds', '{slide} seconds')"
    plan = optimize(
        plan_query(f"SELECT k, window, {listed} FROM s GROUP BY k, {over}", catalog).plan
    ).plan
    epochs = [{"s": rows_of(chance, epoch)} for epoch in range(6)]
    settings = {"tasks.rows": str(tasks)}
    executor = tiny_executor(in_process_session(), executor="buckets", **settings)
    run = run_engine(
        executor, {"q": (plan, OutputMode.APPEND)}, catalog, epochs, {}, tmp_path,
        restart_after=frozenset({2}),
    )  # fmt: skip
    came = [row for epoch in epochs for row in epoch["s"]]
    rows = pa.Table.from_pylist(came)
    connection = duckdb.connect()
    found = [row for epoch in run.rows["q"] for row in epoch]
    assert len(found) >= 9
    seconds = [int((row["ts"] - BEGIN).total_seconds()) for row in came]
    whole = rows.append_column("second", pa.array(seconds))
    connection.register("s", whole)
    own = listed.replace("max_by", "arg_max_null").replace("min_by", "arg_min_null")
    for k, window, *values in found:
        start, end = (int((moment - BEGIN).total_seconds()) for moment in map(_utc, window))
        assert end - start == length
        within = f"k = {k} AND second >= {start} AND second < {end}"
        wanted = connection.execute(f"SELECT {own} FROM s WHERE {within}").fetchall()[0]
        for call, value, expected in zip(CALLS, values, wanted, strict=True):
            close = expected is not None and value == pytest.approx(expected, rel=1e-6)
            assert value is expected or close, (call, k, start)


def _utc(moment: datetime.datetime) -> datetime.datetime:
    return moment.replace(tzinfo=datetime.UTC) if moment.tzinfo is None else moment
