"""``headrace explain``: the plan of every query of a pipeline file."""

from __future__ import annotations

import json as json_text
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.console import err, out
from headrace.pipeline import load_pipeline


class ExplainMode(StrEnum):
    simple = "simple"
    extended = "extended"
    cost = "cost"
    json = "json"
    dot = "dot"


def explain(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A pipeline file.", metavar="FILE")],
    mode: Annotated[
        ExplainMode, typer.Option(help="How much to print, and in which form.")
    ] = ExplainMode.simple,
    json: Annotated[bool, typer.Option("--json", help="The same as --mode json.")] = False,
) -> None:
    """Print the plan of every query of a pipeline file."""
    from headrace.assembly import assemble
    from headrace.cli.spark import spark_session

    mode = ExplainMode.json if json else mode
    pipeline = load_pipeline(file)
    with (
        err.status("planning"),
        spark_session("headrace explain", pipeline.settings, debug=bool(context.obj)) as spark,
    ):
        _, queries = assemble(spark, pipeline)
        plans = {name: query.explanation(mode.value) for name, query in queries.items()}
    print_plans(plans, mode)


def print_plans(plans: dict[str, str], mode: ExplainMode) -> None:
    """Plans for people with a heading each; as JSON, one object by query name."""
    if mode is ExplainMode.json:
        print(
            json_text.dumps({name: json_text.loads(plan) for name, plan in plans.items()}, indent=1)
        )
        return
    for number, (name, plan) in enumerate(plans.items()):
        if mode is ExplainMode.dot:
            print(f"// {name}")
        else:
            # A rule as wide as the screen for people, a plain heading in a file.
            out.rule(name, align="left") if out.is_terminal else print(f"-- {name}")
        print(plan.rstrip())
        if number + 1 < len(plans):
            print()
