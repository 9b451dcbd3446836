"""``headrace run``: run the pipeline of a file until it is through, or until it is stopped."""

from __future__ import annotations

import json as json_text
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.console import err, note, out
from headrace.errors import HeadraceError
from headrace.pipeline import Pipeline, QuerySpec, Trigger, load_pipeline
from headrace.redaction import redacted_json

if TYPE_CHECKING:
    from headrace.session import Headrace, Query, QueryHandle

_LOOK_EVERY = 1.0
_SAY_EVERY = 15.0


def run(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A pipeline file.", metavar="PIPELINE")],
    json: Annotated[
        bool, typer.Option("--json", help="Print the outcome of every query as JSON.")
    ] = False,
) -> None:
    """Run the queries of a pipeline file: streams, tables, queries and sinks in YAML."""
    from headrace.cli.assemble import assemble
    from headrace.cli.progress import glances, query_table
    from headrace.cli.spark import spark_session

    pipeline = load_pipeline(file)
    failure: HeadraceError | None = None
    ended = "finished"
    with spark_session(f"headrace run {file}", pipeline.settings, debug=bool(context.obj)) as spark:
        with err.status("planning"):
            race, queries = assemble(spark, pipeline)
            handles = start_sinks(pipeline, queries)
        try:
            with _interrupted_by_sigterm():
                start_race(race, pipeline.trigger)
                _watch(race, handles)
        except KeyboardInterrupt:
            note("stopping after the epoch that runs")
            race.stop()
            ended = "stopped"
        except HeadraceError as error:
            failure = error
        found = [
            query if query.error else replace(query, state=ended) for query in glances(handles)
        ]
    if json:
        report = {"queries": [redacted_json(query.to_json()) for query in found]}
        print(json_text.dumps(report, indent=1))
    elif any(query.epoch is not None or query.error for query in found):
        out.print(query_table(found))
    if failure is not None:
        raise failure
    if any(query.error for query in found):
        raise typer.Exit(1)


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Take a polite request to end, as service managers send it, for a Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        # Python lets only its main thread say what signals do.
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def start_sinks(pipeline: Pipeline, queries: dict[str, Query]) -> dict[str, QueryHandle]:
    """Give every query its sink; they begin when the race starts."""
    return {spec.name: _start_sink(queries[spec.name], spec) for spec in pipeline.queries}


def _start_sink(query: Query, spec: QuerySpec) -> QueryHandle:
    writer = query.writeStream.queryName(spec.name).format(spec.sink.format)
    for key, value in spec.sink.options.items():
        writer = writer.option(key, value)
    if spec.sink.path is not None:
        writer = writer.option("path", spec.sink.path)
    return writer.outputMode(spec.output_mode).start()


def start_race(race: Headrace, trigger: Trigger) -> None:
    if trigger.processing_time is not None:
        race.start(processingTime=trigger.processing_time)
    else:
        race.start(availableNow=True)


def _watch(race: Headrace, handles: dict[str, QueryHandle]) -> None:
    """Show how far the queries are until the race is over."""
    from headrace.cli.progress import glances, plain_line

    if err.is_terminal:
        with err.status("starting") as status:
            while not race.awaitTermination(timeout=_LOOK_EVERY):
                status.update(plain_line(glances(handles)))
        return
    while not race.awaitTermination(timeout=_SAY_EVERY):
        note(plain_line(glances(handles)))
