"""The walk-through is what the code does: its boxes are a run's, and its names are in the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import REPOSITORY, SOURCES
from tests.docs.examples import document
from tests.docs.generated import check_parts, parts
from tests.test_layers import PLACE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WALKTHROUGH = document("walkthrough.md")
DOCUMENTS = sorted(WALKTHROUGH.parent.glob("*.md"))
CODE = {path: path.read_text(encoding="utf-8") for path in (SOURCES / "headrace").rglob("*.py")}


def test_a_run_repeats_it(spark: SparkSession, tmp_path: Path, update_golden: bool) -> None:
    from headrace.sql import plan_query
    from tests.docs import walk
    from tests.support.oracle import assert_same_rows, run_epochs

    check_parts(WALKTHROUGH, walk.walk(spark, tmp_path), update_golden)
    epochs = [{"bids": rows} for rows in walk.input_rows()]
    expected = run_epochs(plan_query(walk.SQL, {"bids": walk.BIDS}).plan, epochs)
    assert_same_rows(walk.result_rows(spark, tmp_path), [row for out in expected for row in out])


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_files_exist(path: Path) -> None:
    files = {span for span in _code_spans(path) if re.fullmatch(r"[\w/]+\.py", span)}
    missing = sorted(file for file in files if not _is_file(file))
    assert not missing


@pytest.mark.parametrize("name", ["walkthrough.md", "design.md", "operations.md"])
def test_functions_exist(name: str) -> None:
    spans = _code_spans(document(name))
    called = {span for span in spans if re.fullmatch(r"[\w.]+\(\)", span)}
    unknown = sorted(call for call in called if not _is_defined(call))
    assert not unknown


def test_prose_names_the_inputs_of_the_boxes() -> None:
    boxes = "".join(parts(WALKTHROUGH).values())
    inputs = re.findall(r"headrace_input_\d+", _prose(WALKTHROUGH))
    assert inputs
    assert all(re.search(rf"\b{name}\b", boxes) for name in inputs)


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/design.md"])
def test_maps_have_all_layers_in_their_order(name: str) -> None:
    table = re.search(r"^\| (?:layer|place) \|.*?\n\n", _prose(REPOSITORY / name), re.M | re.S)
    assert table is not None
    cells = (row.split("|")[1] for row in table[0].strip().splitlines())
    rows = [re.findall(r"`(\w+)(?:/|\.py)`", cell) for cell in cells]
    layers = [layer for row in rows for layer in row if layer != "benchmarks"]
    assert set(layers) == PLACE.keys() - {"__init__", "__main__"}
    first = [min(map(PLACE.__getitem__, row)) for row in rows if set(row) & PLACE.keys()]
    assert first == sorted(first)


def _prose(document: Path) -> str:
    return re.sub(r"^```.*?^```", "", document.read_text("utf-8"), flags=re.M | re.S)


def _code_spans(document: Path) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", _prose(document)))


def _is_file(name: str) -> bool:
    code = SOURCES / "headrace"
    roots = (code, code / "merge", REPOSITORY)
    return any((root / name).exists() for root in roots)


def _is_defined(call: str) -> bool:
    """``Owner.method()`` is defined in a file that also defines the owner, or holds it by name."""
    *owner, name = call.removesuffix("()").split(".")
    if not owner or not owner[-1][0].isupper():
        return any(re.search(rf"\bdef {name}\b", code) for code in CODE.values())
    return any(
        re.search(rf"\bclass {owner[-1]}\b", code) and re.search(rf"\bdef {name}\b", code)
        for code in CODE.values()
    )
