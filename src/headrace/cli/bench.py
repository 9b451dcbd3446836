"""``headrace bench``: run a benchmark by name, in a checkout of the repository."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import headrace
from headrace.cli.console import err, note, out
from headrace.errors import HeadraceError


class NoCheckout(HeadraceError):
    """Benches were asked for where there are none."""

    condition = "NO_CHECKOUT"


class Scale(StrEnum):
    small = "small"
    full = "full"


_PACKAGE = Path(headrace.__file__).resolve().parent
# By these the repository is known.
_OF_A_CHECKOUT = ("benchmarks", "benchmarks/harness", "src/headrace")
# Benches compare with plain Structured Streaming as one would deploy it: RocksDB state, and all
# progress reports kept, from which the times of micro-batches are read.
_SETTINGS = {
    "spark.driver.memory": "4g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.numRecentProgressUpdates": "2000",
    "spark.headrace.progress.retained": "2000",
}


def bench(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="Which bench; none lists them.", show_default=False)
    ] = None,
    scale: Annotated[
        Scale, typer.Option(help="small ends in about two minutes; full is what documents quote.")
    ] = Scale.small,
    json: Annotated[
        Path | None, typer.Option(help="Write the report here, and plots beside it.")
    ] = None,
) -> None:
    """Run a benchmark: ratios against plain Spark, with results that must be equal.

    Benches are not installed with Headrace; they are run from a checkout of its repository.
    """
    _make_importable(find_checkout(_PACKAGE, Path.cwd()))
    from benchmarks import BENCHES, find_bench

    if name is None:
        for registered in BENCHES.values():
            out.print(f"{registered.name:17} {registered.purpose}", highlight=False, soft_wrap=True)
        return
    chosen = find_bench(name)

    from benchmarks.harness.plots import write_plots
    from benchmarks.harness.report import Setup, as_table
    from headrace.cli.spark import spark_session

    work = Path(tempfile.mkdtemp(prefix=f"headrace-bench-{name}-"))
    try:
        with (
            _bar(f"{name} ({scale.value})") as advance,
            spark_session(f"headrace bench {name}", _SETTINGS, debug=bool(context.obj)) as spark,
        ):
            report = chosen.load().run(Setup(scale.value, spark, work, note, advance))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if json is not None:
        # Written before the check: a report of a failure is what one wants to look at.
        report.write(json)
        for plot in write_plots(report, json):
            note(f"wrote {plot}")
        note(f"wrote {json}")
    out.print(as_table(report))
    for line, value in report.summary.items():
        out.print(f"{line}: {value:.3g}", highlight=False)
    report.require_equal()


def find_checkout(package: Path, here: Path) -> Path:
    """The repository that the package is part of, or else the one that we are in."""
    for folder in (package.parent.parent, here, *here.parents):
        if all((folder / part / "__init__.py").is_file() for part in _OF_A_CHECKOUT):
            return folder
    raise NoCheckout(
        "benches are run from a checkout of Headrace's repository, and this is none",
        hint="clone it, or unpack the source distribution, and run this command there",
    )


def _make_importable(checkout: Path) -> None:
    # First, because other projects have a package of that name too.
    if sys.path[0] != str(checkout):
        sys.path.insert(0, str(checkout))


@contextmanager
def _bar(title: str) -> Iterator[Callable[[float], None]]:
    """A progress bar on standard error; where there is no terminal, the notes say enough."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task(title, total=1.0)
        yield lambda share: progress.advance(task, share)
