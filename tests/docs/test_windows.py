"""docs/windows.md shows what ``explain`` says, and its picture is the one that is drawn."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from headrace.plan.nodes import Source
from headrace.plan.types import DOUBLE, STRING, TIMESTAMP, Schema
from headrace.planner.decision import PlannedQuery
from headrace.planner.pane_layout import PanePlan, describe, plan_pane_layouts
from headrace.planner.policy import PlannerPolicy
from headrace.sql import plan_query

DOCS = Path(__file__).parents[2] / "docs"
READINGS = Source(
    "readings", Schema.of([("device", STRING), ("temperature", DOUBLE), ("ts", TIMESTAMP)]), "ts"
)


def test_the_example_is_explained_as_shown() -> None:
    text = (DOCS / "windows.md").read_text(encoding="utf-8")
    sql = re.search(r"```sql\n(.*?)```", text, re.DOTALL)
    shown = re.search(r"```text\n== Windows ==\n(.*?)```", text, re.DOTALL)
    assert sql
    assert shown
    plan = plan_query(sql[1], {"readings": READINGS}).plan
    panes, _ = plan_pane_layouts([plan], PanePlan(), {}, PlannerPolicy())
    (windows,) = describe(PlannedQuery(plan, plan, panes))
    assert windows.text == shown[1].rstrip("\n")


def test_the_pictures_are_of_today() -> None:
    file = DOCS / "pictures" / "make.py"
    spec = importlib.util.spec_from_file_location("make_pictures", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    drawn = (DOCS / "pictures" / "windows.dot").read_text(encoding="utf-8")
    assert module.windows_of_an_aggregate() == drawn
