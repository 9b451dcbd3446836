"""The examples run, and the documents show what they print."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import REPOSITORY
from tests.docs.examples import document
from tests.docs.generated import check_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

README = REPOSITORY / "README.md"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The examples in a place of their own, so that what they write is new."""
    shutil.copytree(REPOSITORY / "examples", tmp_path / "examples")
    return tmp_path


def test_the_readme_shows_the_quickstart() -> None:
    code = (REPOSITORY / "examples" / "quickstart.py").read_text(encoding="utf-8")
    assert f"```python\n{code}```" in README.read_text(encoding="utf-8")
    assert len(code.splitlines()) <= 21


def test_the_picture_is_that_of_the_example() -> None:
    made = runpy.run_path(str(document("pictures/make.py")))["plans_of_the_example"]()
    drawn = document("pictures/plans.dot").read_text(encoding="utf-8")
    assert made == drawn, "run docs/pictures/make.py"
    assert document("pictures/plans.svg").exists()


def test_quickstart(
    spark: SparkSession, copied: Path, capsys: pytest.CaptureFixture[str], update_golden: bool
) -> None:
    # Java stays in the directory it was started in, so paths are made absolute instead.
    code = (copied / "examples" / "quickstart.py").read_text(encoding="utf-8")
    code = code.replace('"examples/', f'"{copied}/examples/').replace(
        '"build/', f'"{copied}/build/'
    )
    exec(compile(code, "quickstart.py", "exec"), {})
    printed = capsys.readouterr().out
    assert printed.startswith("== Plan ==")
    table = printed[printed.index("+--") :].strip()
    check_parts(README, {"quickstart": f"```text\n{table}\n```\n"}, update_golden)


def test_pipeline(spark: SparkSession, copied: Path, update_golden: bool) -> None:
    from headrace.assembly import assemble, start_sinks
    from headrace.cli.run import start_engine
    from headrace.pipeline import load_pipeline

    pipeline = load_pipeline(copied / "examples" / "pipeline.yaml")
    hr, queries = assemble(spark, pipeline)
    handles = start_sinks(pipeline, queries)
    start_engine(hr, pipeline.trigger)
    hr.awaitTermination()
    assert [handle.exception() for handle in handles.values()] == [None, None]
    shown = []
    for name in handles:
        # Which epoch a row came in depends on when the streams met.
        rows = spark.read.parquet(f"{copied}/build/pipeline/{name}").drop("epoch")
        shown.append(f"{name}\n{_table(rows.orderBy(*rows.columns))}")
    check_parts(
        document("pipeline.md"),
        {"pipeline": "```text\n" + "\n".join(shown) + "```\n"},
        update_golden,
    )


def _table(rows: DataFrame) -> str:
    text: str = rows._show_string(50, False)  # type: ignore[operator]
    return text.rstrip("\n") + "\n"
