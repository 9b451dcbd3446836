"""The command line: thin faces over ``headrace.session``, one file per command.

``main`` is the entry point. ``run``, ``serve``, ``token``, ``sql``, ``explain``, ``merge``,
``calibrate``, ``bench``, ``examples`` and ``demo`` hold the commands (``sql`` has its ``shell``,
its ``speakers`` and its ``answers``), ``spark`` starts the session of a command, ``progress`` reads
what an engine reports, ``signals`` ends a command in good order, ``console`` is where its words go;
the demo has its ``demo_queries``, its ``feed`` and its ``screen``. Spark is imported inside
functions only: ``headrace --help`` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version as version_of
from typing import Annotated

import typer

from headrace import __version__
from headrace.cli.bench import bench
from headrace.cli.calibrate import calibrate
from headrace.cli.console import print_error, print_traceback
from headrace.cli.demo import demo
from headrace.cli.examples import examples
from headrace.cli.explain import explain
from headrace.cli.merge import merge
from headrace.cli.run import run
from headrace.cli.serve import serve
from headrace.cli.sql import sql
from headrace.cli.token import tokens
from headrace.errors import HeadraceError

app = typer.Typer(
    name="headrace",
    help="Standing SQL queries over streams on Apache Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (demo, examples, run, serve, sql, explain, merge, calibrate, bench):
    app.command()(command)
app.add_typer(tokens)


def _version(show: bool) -> None:
    """The versions that a bug report needs, without starting anything."""
    if show:
        python = ".".join(str(part) for part in sys.version_info[:3])
        print(f"headrace {__version__} (PySpark {version_of('pyspark')}, Python {python})")
        raise typer.Exit


@app.callback()
def _global_options(
    # Taken out of the arguments by `main`, wherever it stands; declared here for --help.
    debug: Annotated[
        bool, typer.Option("--debug", help="Show Spark's log, and the traceback of an error.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the versions and exit.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an expected error is one red line and exit code 1."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    try:
        app(args=[a for a in given if a != "--debug"], prog_name="headrace", obj=debug)
    except Exception as error:
        if debug or not _is_expected(error):
            sys.excepthook = print_traceback
            raise
        print_error(error)
        sys.exit(1)


def _is_expected(error: Exception) -> bool:
    """Whether a person can do something about it: ours, and Spark's (a path that is not there)."""
    if isinstance(error, HeadraceError):
        return True
    # If Spark was never imported, this is not Spark's error, and importing it now would be slow.
    errors = sys.modules.get("pyspark.errors")
    return errors is not None and isinstance(error, errors.PySparkException)
