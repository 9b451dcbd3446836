"""``headrace run``: run the pipeline of a file until it is through, or until it is stopped."""

from __future__ import annotations

import json as json_text
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.console import err, note, out
from headrace.cli.signals import Signals, Unended
from headrace.errors import HeadraceError
from headrace.pipeline import Pipeline, TriggerEntry, load_pipeline

if TYPE_CHECKING:
    from headrace.cli.progress import Glance
    from headrace.session import Headrace, QueryHandle

_LOOK_EVERY = 0.2
_SHOW_EVERY = 1.0
_SAY_EVERY = 15.0
#: The exit code of a run that was stopped in the middle of an epoch: "try again".
ABANDONED = 75


@dataclass
class _Run:
    """One run of a pipeline: how it ended, and what became of its queries."""

    pipeline: Pipeline
    stop_timeout: float
    signals: Signals = field(default_factory=Signals)
    hr: Headrace | None = None
    #: finished, stopped (after an epoch), abandoned (in the middle of one) or failed.
    ended: str = "stopped"
    failure: HeadraceError | None = None
    queries: list[Glance] = field(default_factory=list)

    def work(self, name: str, debug: bool) -> None:
        from headrace.assembly import assemble, start_sinks
        from headrace.cli.progress import glances
        from headrace.cli.spark import spark_session

        with spark_session(name, self.pipeline.settings, debug=debug) as spark:
            if self.signals.asked:
                return
            with err.status("planning"):
                hr, queries = assemble(spark, self.pipeline)
                handles = start_sinks(self.pipeline, queries)
            if not self.signals.asked:
                self._run_queries(hr, handles)
            self.queries = [
                query if query.error else replace(query, state=self._state_of_others(handles))
                for query in glances(handles)
            ]

    def _state_of_others(self, handles: Mapping[str, QueryHandle]) -> str:
        """How it ended for queries that have no error of their own."""
        if self.ended == "abandoned":
            return "stopped"
        failed_alone = any(handle.exception() for handle in handles.values())
        return "finished" if self.ended == "failed" and failed_alone else self.ended

    def _run_queries(self, hr: Headrace, handles: dict[str, QueryHandle]) -> None:
        try:
            start_engine(hr, self.pipeline.trigger)
            self.hr = hr
            self._watch(hr, handles)
        except HeadraceError as error:
            self.failure = error
            self.ended = "failed"

    def _watch(self, hr: Headrace, handles: dict[str, QueryHandle]) -> None:
        """Show how far the queries are until the engine is over, or asked to be."""
        from headrace.cli.progress import glances, plain_line

        every = _SHOW_EVERY if err.is_terminal else _SAY_EVERY
        shown = time.monotonic()
        with err.status("starting") if err.is_terminal else nullcontext() as status:
            while not hr.awaitTermination(timeout=_LOOK_EVERY):
                if self.signals.asked:
                    timeout = 0.0 if self.signals.asked_again else self.stop_timeout
                    self.ended = "stopped" if hr.stop(timeout=timeout) else "abandoned"
                    # Raises what ended it, if that was something else.
                    hr.awaitTermination()
                    return
                if time.monotonic() - shown < every:
                    continue
                shown = time.monotonic()
                if status is None:
                    note(plain_line(glances(handles)))
                else:
                    status.update(plain_line(glances(handles)))
        self.ended = "finished"

    def say_that_it_stops(self) -> None:
        if self.hr is None:
            note("stopping")
        else:
            note(
                f"stopping after the epoch that runs, within {self.stop_timeout:g} s; "
                "ask again to abandon it"
            )

    def stop_at_once(self) -> None:
        if self.hr is not None:
            note("abandoning the epoch that runs; the next run does it again")
            self.hr.stop(timeout=0)

    @property
    def exit_code(self) -> int:
        if self.failure is not None or any(query.error for query in self.queries):
            return 1
        if self.ended == "finished":
            return 0
        return ABANDONED if self.ended == "abandoned" else self.signals.exit_code


def run(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A pipeline file.", metavar="PIPELINE")],
    json: Annotated[
        bool, typer.Option("--json", help="Print the outcome of every query as JSON.")
    ] = False,
    stop_timeout: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="How long the epoch that runs may take to end after Ctrl-C or SIGTERM.",
            show_default=True,
        ),
    ] = 30.0,
) -> None:
    """Run the queries of a pipeline file: streams, tables, queries and sinks in YAML."""
    from headrace.cli.progress import query_table

    this = _Run(load_pipeline(file), stop_timeout)
    debug = bool(context.obj)
    try:
        this.signals.while_working(
            lambda: this.work(f"headrace run {file}", debug),
            this.say_that_it_stops,
            this.stop_at_once,
        )
    except Unended:
        this.ended = "stopped" if this.hr is None else "abandoned"
    if json:
        outcome = {"ended": this.ended, "queries": [query.to_json() for query in this.queries]}
        print(json_text.dumps(outcome, indent=1))
    elif any(query.epoch is not None or query.error for query in this.queries):
        out.print(query_table(this.queries))
    if this.failure is not None:
        raise this.failure
    raise typer.Exit(this.exit_code)


def start_engine(hr: Headrace, trigger: TriggerEntry) -> None:
    if trigger.processing_time is not None:
        hr.start(processingTime=trigger.processing_time)
    else:
        hr.start(availableNow=True)
