"""docs/join-order.md shows what ``explain`` says, and its examples are the oracle's."""

from __future__ import annotations

import re

import pytest

from headrace.optimizer.joins.describe import DescribedJoin, describe_joins
from headrace.plan.nodes import Source
from headrace.plan.types import BIGINT, STRING, TIMESTAMP, Schema
from headrace.sql import plan_query
from tests.docs.examples import Example, document, read_examples, rows_text
from tests.docs.generated import check_parts
from tests.support.oracle import run_epochs

JOIN_ORDER = document("join-order.md")
EXAMPLES = read_examples(JOIN_ORDER)


def test_the_query_is_explained_as_shown(update_golden: bool) -> None:
    text = JOIN_ORDER.read_text(encoding="utf-8")
    sql = re.search(r"```sql\n(.*?)```", text, re.DOTALL)
    assert sql
    catalog = {
        name: Source(
            name, Schema.of((("road", STRING), (value, BIGINT), ("ts", TIMESTAMP))), "ts", 0
        )
        for name, value in (("traffic", "speed"), ("quality", "particles"), ("wind", "gusts"))
    }
    plan = plan_query(sql[1], catalog).plan
    (joins,) = describe_joins(plan, {}, {}, frozenset(), reorder=True)
    assert isinstance(joins, DescribedJoin)
    shown = f"```text\n== Joins ==\n{joins.text}\n```\n"
    check_parts(JOIN_ORDER, {"explain": shown}, update_golden)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"line {example.line}")
def test_the_oracle_agrees(example: Example) -> None:
    out = run_epochs(example.plan, example.batches(), example.tables, example.mode)
    assert [rows_text(rows) for rows in out] == [epoch.said["out"] for epoch in example.epochs]


def test_there_is_a_session_join_and_one_in_processing_time() -> None:
    sessions, processing = EXAMPLES
    assert sessions.sql.count("session_window") == 4
    assert "window_time(window)" in processing.sql
