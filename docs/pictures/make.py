"""Draw the pictures of the documents: ``python docs/pictures/make.py``, with Graphviz."""

import subprocess
from pathlib import Path

from headrace.optimizer import optimize
from headrace.pipeline import load_pipeline
from headrace.plan.dot import plan_dot, plans_dot
from headrace.plan.durations import parse_duration
from headrace.plan.nodes import Source, Table
from headrace.plan.types import DataType, Schema
from headrace.plan.window_graph import graph_cluster
from headrace.planner.decision import PlannedQuery
from headrace.planner.pane_layout import PanePlan, describe, plan_pane_layouts
from headrace.planner.policy import PlannerPolicy
from headrace.sql import plan_query

HERE = Path(__file__).resolve().parent
PIPELINE = HERE.parent.parent / "examples" / "pipeline.yaml"


def plans_of_the_example() -> str:
    """Both queries in one graph; what they share is drawn once."""
    pipeline = load_pipeline(PIPELINE)
    catalog: dict[str, Source | Table] = {
        s.name: Source(s.name, _schema(s.schema), s.time, parse_duration(s.delay or "0 seconds"))
        for s in pipeline.streams
    }
    catalog |= {t.name: Table(t.name, _schema(t.schema)) for t in pipeline.tables}
    plans = [optimize(plan_query(q.sql, catalog).plan).plan for q in pipeline.queries]
    return plans_dot(plans, names=[q.name for q in pipeline.queries])


def windows_of_an_aggregate() -> str:
    """The plan of docs/windows.md, and beside it what its windows are computed from."""
    readings = Source("readings", _schema("device STRING, temperature DOUBLE, ts TIMESTAMP"), "ts")
    sql = (
        "SELECT device, window, window_id, MIN(temperature) AS least FROM readings GROUP BY device,"
        " windows(window(ts, '20 minutes'), window(ts, '30 minutes'), window(ts, '40 minutes'))"
    )
    plan = optimize(plan_query(sql, {"readings": readings}).plan).plan
    panes, _ = plan_pane_layouts([plan], PanePlan(), {}, PlannerPolicy())
    (windows,) = describe(PlannedQuery(plan, plan, panes))
    beside = graph_cluster(windows.graph, "g", windows.title, windows.costs)
    return plan_dot(plan, beside=beside)


def _schema(text: str | None) -> Schema:
    fields = (field.split() for field in (text or "").split(", "))
    return Schema.of((name, DataType(kind.lower())) for name, kind in fields)


if __name__ == "__main__":
    pictures = {"plans.dot": plans_of_the_example(), "windows.dot": windows_of_an_aggregate()}
    for name, text in pictures.items():
        file = HERE / name
        file.write_text(text, encoding="utf-8")
        subprocess.run(["dot", "-Tsvg", file, "-o", file.with_suffix(".svg")], check=True)
        print(f"wrote {file} and {file.with_suffix('.svg')}")
