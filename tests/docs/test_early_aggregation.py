"""docs/early-aggregation.md: what it shows of ``explain``, and the paper's two examples."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.compiler.planning import plan_all
from headrace.optimizer import optimize
from headrace.plan.nodes import OutputMode, Sink, Source
from headrace.plan.types import BIGINT, STRING, TIMESTAMP, Schema
from headrace.planner import early_aggregation
from headrace.planner.decision import PlannedQuery
from headrace.planner.live_query import LiveQuery
from headrace.planner.output_upkeep import describe
from headrace.sql import plan_query
from tests.docs.examples import (
    Example,
    document,
    read_examples,
    rows_text,
    watermark_text,
    write_examples,
)
from tests.docs.generated import check_parts
from tests.support.oracle import run_epochs
from tests.support.oracle_epochs import stream_watermarks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCUMENT = document("early-aggregation.md")
EXAMPLES = read_examples(DOCUMENT)


def test_the_query_is_explained_as_shown(update_golden: bool) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    sql = re.search(r"```sql\n(.*?)```", text, re.DOTALL)
    assert sql
    columns = {
        "calls": (("area", STRING), ("tower", STRING), ("seconds", BIGINT), ("ts", TIMESTAMP)),
        "towers": (("tower", STRING), ("ts", TIMESTAMP)),
    }
    catalog = {name: Source(name, Schema.of(fields), "ts") for name, fields in columns.items()}
    may_fail = sql[1].replace("SUM(a.seconds)", "SUM(3600 / a.seconds)")
    moving = (
        "SELECT a.area, window, SUM(a.seconds) AS seconds, COUNT(*) AS pairs FROM calls a "
        "JOIN towers b ON a.tower = b.tower "
        "GROUP BY a.area, trailing(a.ts, '1 minute'), trailing(b.ts, '1 hour')"
    )
    shown = {
        "moving": explained(moving, catalog),
        "explain": explained(sql[1], catalog),
        "guarded": explained(may_fail, catalog),
    }
    check_parts(DOCUMENT, shown, update_golden)


def explained(sql: str, catalog: dict[str, Source]) -> str:
    plan = optimize(plan_query(sql, catalog).plan).plan
    sink = Sink(plan, "q", "memory", OutputMode.APPEND)
    physical = plan_all([LiveQuery(sink, None)])
    planned = PlannedQuery(plan, plan, physical.panes, early_choices=physical.early_choices)
    told = [part.text for part in (*early_aggregation.describe(planned), *describe(planned))]
    return "```text\n== Early aggregation ==\n" + "\n".join(told) + "\n```\n"


def said_by_the_oracle(example: Example) -> list[dict[str, str]]:
    out = run_epochs(example.plan, example.batches(), example.tables, example.mode)
    marks = stream_watermarks(example.plan, example.batches())
    said = []
    for number, rows in enumerate(out):
        known = {s: pairs[number][1] for s, pairs in sorted(marks.items())}
        texts = (f"{s} {watermark_text(m // 1_000)}" for s, m in known.items() if m is not None)
        said.append({"watermark": ", ".join(texts) or "none yet", "out": rows_text(rows)})
    return said


def test_the_examples_are_as_the_oracle_says(update_golden: bool) -> None:
    said = [said_by_the_oracle(example) for example in EXAMPLES]
    if update_golden:
        blocks = [e.text(found) for e, found in zip(EXAMPLES, said, strict=True)]
        write_examples(DOCUMENT, blocks)
        return
    assert said == [[dict(epoch.said) for epoch in example.epochs] for example in EXAMPLES]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"line {example.line}")
def test_the_engine_agrees(example: Example, spark: SparkSession, tmp_path: Path) -> None:
    from tests.support.engine import run_engine, tiny_executor

    queries = {"q": (example.plan, example.mode)}
    run = run_engine(
        tiny_executor(spark), queries, example.catalog, example.batches(), example.tables, tmp_path
    )
    assert [rows_text(rows) for rows in run.rows["q"]] == [e.said["out"] for e in example.epochs]


def test_both_examples_of_the_paper_are_there() -> None:
    links, auctions, *_ = EXAMPLES
    assert links.sql.count("trailing") == 2
    assert "landmark(a.ts)" in auctions.sql
    assert "person" in auctions.tables
