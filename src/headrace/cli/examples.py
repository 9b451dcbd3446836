"""``headrace examples``: the examples of the documents, in a folder of one's own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

import headrace
from headrace.cli.console import out
from headrace.errors import HeadraceError

_NAME = "examples"


class ExamplesExist(HeadraceError):
    """There is a folder of that name already."""

    condition = "EXAMPLES_EXIST"


def examples(
    folder: Annotated[
        Path, typer.Argument(help="Where the folder 'examples' is to be.", metavar="FOLDER")
    ] = Path(),
) -> None:
    """Write the examples of the documents, with their data, into a folder."""
    target = folder / _NAME
    if target.exists():
        raise ExamplesExist(
            f"{target} is there already", hint="name another folder, or move it out of the way"
        )
    shutil.copytree(packaged(Path(headrace.__file__).parent), target)
    out.print(f"{target} has a program, quickstart.py, and a pipeline file, pipeline.yaml")
    out.print(f"run them in {folder.resolve()}: python {_NAME}/quickstart.py, or")
    out.print(f"headrace run {_NAME}/pipeline.yaml")


def packaged(package: Path) -> Path:
    """Where the examples are: a wheel brings them along, in a checkout they are at its top."""
    inside = package / _NAME
    return inside if inside.is_dir() else package.parents[1] / _NAME
