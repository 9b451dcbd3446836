"""Filters over files: what DuckDB derives of an expression must not keep rows that are none.

Each predicate stands with the rows that it keeps, worked out by hand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.plan.nodes import OutputMode, Source
from headrace.plan.types import BIGINT, STRING, TIMESTAMP, Schema
from headrace.sql import plan_query
from tests.support.engine import run_engine, task_executor
from tests.support.streams import BEGIN, Row

ROWS = Source("rows", Schema.of([("p", BIGINT), ("s", STRING), ("ts", TIMESTAMP)]), "ts")
VALUES = ((1, "x"), (2, "y"), (None, "z"), (7, None))


@pytest.mark.parametrize(
    ("predicate", "kept"),
    [
        ("CASE WHEN p > 1 THEN 'a' END IN ('a')", {2, 7}),
        ("CASE WHEN p > 1 THEN 'a' END IN ('a', 'b')", {2, 7}),
        ("CASE WHEN p <> p THEN '' END IN ('')", set()),
        ("CASE p WHEN 2 THEN 'a' END IN ('a')", {2}),
        ("nullif('a', s) IN ('a')", {1, 2, None, 7}),
        ("nullif('x', s) IN ('x')", {2, None, 7}),
        ("CASE WHEN p > 1 THEN 1 END IN (1)", {2, 7}),
    ],
)
def test_a_filter_keeps_its_rows(predicate: str, kept: set[int | None], tmp_path: Path) -> None:
    plan = plan_query(f"SELECT p FROM rows WHERE {predicate}", {"rows": ROWS}).plan
    rows: list[Row] = [{"p": p, "s": s, "ts": BEGIN} for p, s in VALUES]
    run = run_engine(
        task_executor(), {"q": (plan, OutputMode.APPEND)}, {"rows": ROWS}, [{"rows": rows}], {},
        tmp_path,
    )  # fmt: skip
    (epoch,) = run.rows["q"]
    assert sorted(map(repr, epoch)) == sorted(repr((p,)) for p in kept)
