"""``headrace explain``: the plan of every query of a pipeline file."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.console import err, out
from headrace.pipeline import load_pipeline

if TYPE_CHECKING:
    from headrace.session import Query


class Mode(StrEnum):
    simple = "simple"
    extended = "extended"
    cost = "cost"
    json = "json"
    dot = "dot"


def explain(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A pipeline file.", metavar="FILE")],
    mode: Annotated[Mode, typer.Option(help="How much to print, and in which form.")] = Mode.simple,
) -> None:
    """Print the plan of every query of a pipeline file."""
    from headrace.cli.assemble import assemble
    from headrace.cli.spark import spark_session

    pipeline = load_pipeline(file)
    with (
        err.status("planning"),
        spark_session("headrace explain", pipeline.settings, debug=bool(context.obj)) as spark,
    ):
        _, queries = assemble(spark, pipeline)
        plans = {name: plan_text(query, mode) for name, query in queries.items()}
    print_plans(plans, mode)


def plan_text(query: Query, mode: Mode) -> str:
    """What ``query.explain`` prints, as text."""
    with redirect_stdout(io.StringIO()) as printed:
        query.explain(mode=mode.value)
    return printed.getvalue().rstrip()


def print_plans(plans: dict[str, str], mode: Mode) -> None:
    """Plans for people with a heading each; as JSON, one object by query name."""
    if mode is Mode.json:
        print(json.dumps({name: json.loads(plan) for name, plan in plans.items()}, indent=1))
        return
    for number, (name, plan) in enumerate(plans.items()):
        if mode is Mode.dot:
            print(f"// {name}")
        else:
            # A rule as wide as the screen for people, a plain heading in a file.
            out.rule(name, align="left") if out.is_terminal else print(f"-- {name}")
        print(plan)
        if number + 1 < len(plans):
            print()
