"""Benches are in the repository, in rooms, and not in what users install."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from headrace.cli.bench import NoCheckout, find_checkout
from tests.conftest import REPOSITORY, SOURCES

BENCHMARKS = REPOSITORY / "benchmarks"
PACKAGE = SOURCES / "headrace"
MOST_FILES = 16


def _modules(folder: Path) -> set[str]:
    found = {path.relative_to(REPOSITORY).as_posix() for path in folder.rglob("*.py")}
    assert found
    return found


def test_the_wheel_has_the_package_and_nothing_else() -> None:
    files = WheelBuilder(str(REPOSITORY)).recurse_included_files()
    inside = {file.distribution_path.replace(os.sep, "/") for file in files}
    examples = {path for path in inside if path.startswith("headrace/examples/")}
    assert {path for path in inside - examples if path.endswith(".py")} == {
        path.removeprefix("src/") for path in _modules(PACKAGE)
    }
    assert examples == {
        f"headrace/{path.relative_to(REPOSITORY).as_posix()}"
        for path in (REPOSITORY / "examples").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"headrace/calibration/calibrate.py", "headrace/native/compare.py"} <= inside
    folders = {part for path in inside for part in path.split("/")[:-1]}
    assert not folders & {"bench", "benchmarks", "tests"}


def test_the_source_distribution_has_the_benches() -> None:
    files = SdistBuilder(str(REPOSITORY)).recurse_included_files()
    inside = {file.distribution_path.replace(os.sep, "/") for file in files}
    assert _modules(BENCHMARKS) | _modules(PACKAGE) <= inside


def test_only_the_command_knows_of_benches() -> None:
    """The package runs without them; the command looks for a checkout first."""
    importing = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if any(name.split(".")[0] == "benchmarks" for name in names):
                importing.add(path.relative_to(PACKAGE).as_posix())
    assert importing == {"cli/bench.py"}


ROOMS = sorted(path.parent for path in BENCHMARKS.rglob("__init__.py"))


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.relative_to(REPOSITORY).as_posix())
def test_a_room_says_what_is_in_it(room: Path) -> None:
    inside = {path.stem for path in room.glob("*.py")} - {"__init__"}
    inside |= {path.parent.name for path in room.glob("*/__init__.py")}
    assert 1 < len(inside) <= MOST_FILES
    said = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert sorted(name for name in inside if f"``{name}``" not in said) == []


def _checkout(folder: Path) -> Path:
    for part in ("benchmarks", "benchmarks/harness", "src/headrace"):
        (folder / part).mkdir(parents=True)
        (folder / part / "__init__.py").touch()
    return folder


def test_the_checkout_is_that_of_the_package_or_the_one_around_us(tmp_path: Path) -> None:
    mine, other = _checkout(tmp_path / "mine"), _checkout(tmp_path / "other")
    installed = tmp_path / "python" / "site-packages" / "headrace"
    assert find_checkout(mine / "src" / "headrace", other) == mine
    assert find_checkout(installed, other / "src" / "headrace") == other
    # A project of somebody else's has benches too.
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "benchmarks").mkdir(parents=True)
    (elsewhere / "benchmarks" / "__init__.py").touch()
    with pytest.raises(NoCheckout, match="run from a checkout of Headrace's repository"):
        find_checkout(installed, elsewhere)


@pytest.mark.parametrize("arguments", [["bench"], ["bench", "ingest"]])
def test_installed_alone_there_are_no_benches(tmp_path: Path, arguments: list[str]) -> None:
    """As after an installation: the package by itself, and a folder that is no checkout."""
    shutil.copytree(PACKAGE, tmp_path / "site" / "headrace")
    script = f"from headrace.cli import main; main({arguments!r})"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site"), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: NO_CHECKOUT: benches are run from a checkout of Headrace's repository, and this is "
        "none - clone it, or unpack the source distribution, and run this command there\n"
    )
