"""Draw the plans of examples/pipeline.yaml: ``python docs/pictures/make.py``, with Graphviz."""

import subprocess
from pathlib import Path

from headrace.optimizer import optimize
from headrace.pipeline import load_pipeline
from headrace.plan.dot import plans_dot
from headrace.plan.durations import parse_duration
from headrace.plan.nodes import Source, Table
from headrace.plan.types import DataType, Schema
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


def _schema(text: str | None) -> Schema:
    fields = (field.split() for field in (text or "").split(", "))
    return Schema.of((name, DataType(kind.lower())) for name, kind in fields)


if __name__ == "__main__":
    file = HERE / "plans.dot"
    file.write_text(plans_of_the_example(), encoding="utf-8")
    subprocess.run(["dot", "-Tsvg", file, "-o", file.with_suffix(".svg")], check=True)
    print(f"wrote {file} and {file.with_suffix('.svg')}")
