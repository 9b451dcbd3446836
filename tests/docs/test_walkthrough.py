"""The walk-through is what the code does: its boxes are a run's, and its names are in the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import SOURCES
from tests.docs.examples import document
from tests.docs.generated import check_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WALKTHROUGH = document("walkthrough.md")
CODE = {path: path.read_text(encoding="utf-8") for path in (SOURCES / "headrace").rglob("*.py")}


def test_a_run_repeats_it(spark: SparkSession, tmp_path: Path, update_golden: bool) -> None:
    from headrace.sql import plan_query
    from tests.docs import walk
    from tests.support.oracle import assert_same_rows, run_epochs

    parts = walk.walk(spark, tmp_path)
    check_parts(WALKTHROUGH, parts, update_golden)
    epochs = [{"bids": rows} for rows in walk.input_rows()]
    expected = run_epochs(plan_query(walk.SQL, {"bids": walk.BIDS}).plan, epochs)
    assert_same_rows(walk.result_rows(spark, tmp_path), [row for out in expected for row in out])


@pytest.mark.parametrize("name", ["walkthrough.md", "design.md", "operations.md"])
def test_files_and_functions_exist(name: str) -> None:
    text = re.sub(r"^```.*?^```", "", document(name).read_text("utf-8"), flags=re.M | re.S)
    spans = set(re.findall(r"`([^`\n]+)`", text))
    files = {span for span in spans if re.fullmatch(r"[\w/]+\.py", span)}
    missing = sorted(file for file in files if not _is_file(file))
    assert not missing
    called = {span for span in spans if re.fullmatch(r"[\w.]+\(\)", span)}
    unknown = sorted(call for call in called if not _is_defined(call))
    assert not unknown


def _is_file(name: str) -> bool:
    return (SOURCES / "headrace" / name).exists() or (SOURCES.parent / name).exists()


def _is_defined(call: str) -> bool:
    """``Owner.method()`` is defined in a file that also defines the owner, or holds it by name."""
    *owner, name = call.removesuffix("()").split(".")
    if not owner or not owner[-1][0].isupper():
        return any(re.search(rf"\bdef {name}\b", code) for code in CODE.values())
    return any(
        re.search(rf"\bclass {owner[-1]}\b", code) and re.search(rf"\bdef {name}\b", code)
        for code in CODE.values()
    )
