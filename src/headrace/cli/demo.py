"""``headrace demo``: a minute of standing queries on a live stream, then plain Spark."""

from __future__ import annotations

import json as json_text
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from headrace.cli.console import err, note, out
from headrace.cli.demo_queries import QUERIES, DemoQuery
from headrace.cli.signals import Asked, Signals, Unended

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console
    from rich.status import Status

    from headrace.cli.feed import Feed
    from headrace.cli.progress import Glance
    from headrace.cli.screen import Newest
    from headrace.contestants import StreamFolder
    from headrace.native.compare import Case
    from headrace.session import Headrace, Query, QueryHandle

DELAY = "2 seconds"
_LOOK_EVERY = 0.25
# Reading results is a Spark job of its own: one query every few seconds, in turn.
_READ_EVERY = 4.0
_DRAIN_WITHIN = 20.0
_WARM_UP_EPOCHS = 3
# How the comparison cuts the files that the live part has left.
_MICRO_BATCHES = 4
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # Plain Spark is run as one would deploy it.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


def demo(
    context: typer.Context,
    seconds: Annotated[
        float, typer.Option(min=5, help="How long the live part runs.", show_default=True)
    ] = 60.0,
    json: Annotated[
        bool, typer.Option("--json", help="Print the outcome as JSON, and the rest to stderr.")
    ] = False,
) -> None:
    """Watch standing queries on a live stream for a minute, then compare with plain Spark."""
    signals = Signals()
    try:
        whole = signals.while_working(
            lambda: _demo(seconds, json, bool(context.obj), signals), lambda: note("stopping")
        )
    except (Asked, Unended):
        raise typer.Exit(signals.exit_code) from None
    if not whole:
        raise typer.Exit(1)


def _demo(seconds: float, json: bool, debug: bool, signals: Signals) -> bool:
    """The demo; whether all went well."""
    from headrace.cli.feed import Feed
    from headrace.cli.spark import spark_session

    # With --json standard output belongs to a program; people read standard error.
    console = err if json else out
    starting = console.status("starting Spark")
    with (
        tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder,
        starting,
        spark_session("headrace demo", _SETTINGS, debug=debug) as spark,
    ):
        signals.check()
        _warm_up(spark, Path(folder, "warm-up"), starting, signals)
        starting.update("planning")
        feed = Feed(Path(folder, "streams"))
        hr, planned = _plan(spark, feed, Path(folder, "live"))
        starting.stop()
        queries = _live(hr, planned, feed, seconds, console, signals)
        feed.close_windows()
        case, refused = _compare(spark, feed, Path(folder), console, signals)
    _conclude(case, refused, console)
    if json:
        outcome = {
            "seconds": seconds,
            "rows": {"bids": feed.bids, "clicks": feed.clicks},
            "queries": [query.to_json() for query in queries],
            "comparison": case.to_json(),
            "not in plain Spark": refused,
        }
        print(json_text.dumps(outcome, indent=1))
    return case.equal and not any(query.error for query in queries)


def _plan(
    spark: SparkSession, feed: Feed, checkpoint: Path, files_per_batch: int | None = None
) -> tuple[Headrace, dict[str, Query]]:
    from headrace.contestants import open_session

    hr = open_session(spark, _streams(feed, files_per_batch), checkpoint)
    return hr, {query.name: hr.sql(query.sql) for query in QUERIES}


def _start(planned: dict[str, Query]) -> dict[str, QueryHandle]:
    return {
        name: query.writeStream.queryName(name).format("results").start()
        for name, query in planned.items()
    }


def _warm_up(spark: SparkSession, folder: Path, status: Status, signals: Signals) -> None:
    """Run the queries on a few files of their own.

    A new Java takes several seconds for the first epoch of all these queries, in which there would
    be nothing to watch.
    """
    from headrace.cli.feed import Feed

    feed = Feed(folder / "streams")
    for _ in range(_WARM_UP_EPOCHS):
        feed.write_once()
    hr, planned = _plan(spark, feed, folder / "state", files_per_batch=1)
    _start(planned)
    hr.start(availableNow=True)
    while not hr.awaitTermination(timeout=_LOOK_EVERY):
        if signals.asked:
            hr.stop(timeout=0)
            raise Asked
        epoch = len(hr.recentProgress) + 1
        status.update(f"warming up: epoch {min(epoch, _WARM_UP_EPOCHS)} of {_WARM_UP_EPOCHS}")


def _live(
    hr: Headrace,
    planned: dict[str, Query],
    feed: Feed,
    seconds: float,
    console: Console,
    signals: Signals,
) -> list[Glance]:
    """The live part: start everything, watch, and at the end show plans and results."""
    from headrace.cli.progress import glances, query_table, rows_taken
    from headrace.cli.screen import WIDTH_FOR_KINDS, Moment, Screen

    kinds = {query.name: query.kind for query in QUERIES}
    handles = _start(planned)
    feed.start()
    hr.start(processingTime="1 second")
    started = time.monotonic()
    newest: Newest | None = None
    reading: Future[Newest] | None = None
    turns = 0

    def show(screen: Screen) -> None:
        moment = Moment(
            time.monotonic() - started, seconds, feed.rates(), glances(handles), kinds, newest
        )
        screen.show(moment)

    with Screen(console) as screen, ThreadPoolExecutor(1) as reader:
        while (elapsed := time.monotonic() - started) < seconds and hr.isActive:
            if signals.asked:
                break
            if reading is None and elapsed >= _READ_EVERY * (turns + 1) and hr.recentProgress:
                query = QUERIES[turns % len(QUERIES)]
                reading = reader.submit(_newest, hr, query, planned[query.name])
                turns += 1
            if reading is not None and reading.done():
                newest, reading = reading.result(), None
            show(screen)
            time.sleep(_LOOK_EVERY)
        feed.stop()
        # The rows that were written last are still to be taken.
        while rows_taken(hr) < feed.bids + feed.clicks and hr.isActive:
            if signals.asked or time.monotonic() - started > seconds + _DRAIN_WITHIN:
                break
            show(screen)
            time.sleep(_LOOK_EVERY)
    hr.stop(timeout=0 if signals.asked else None)
    signals.check()
    glanced = glances(handles)
    for query in QUERIES:
        _print_query(_newest(hr, query, planned[query.name]), console)
    console.print(query_table(glanced, kinds if console.width >= WIDTH_FOR_KINDS else None))
    return glanced


def _newest(hr: Headrace, query: DemoQuery, planned: Query) -> Newest:
    from headrace.cli.screen import Newest
    from headrace.plan.text import plan_text

    frame = hr.results(query.name)
    latest = next((c for c in ("window", "ts") if c in frame.columns), frame.columns[0])
    rows = frame.orderBy(frame[latest].desc()).limit(4).collect()
    cells = [[_cell(value) for value in row] for row in rows]
    return Newest(
        query.name, frame.columns, cells, query.sql, plan_text(planned.optimized.plan).rstrip()
    )


def _cell(value: Any) -> str:
    """Windows as from-to, times without the date: the demo lasts a minute."""
    if hasattr(value, "asDict"):
        return " - ".join(_cell(part) for part in value)
    return value.strftime("%H:%M:%S") if hasattr(value, "strftime") else str(value)


def _print_query(newest: Newest, console: Console) -> None:
    from headrace.cli.screen import result_table, sql_text

    console.print(Text(f"\n{newest.query}", style="bold cyan"))
    console.print(sql_text(newest.sql))
    console.print()
    console.print(Text(newest.plan, style="dim"), soft_wrap=not console.is_terminal)
    console.print(result_table(newest))


def _streams(feed: Feed, files_per_batch: int | None = None) -> list[StreamFolder]:
    from headrace.cli.feed import BIDS_SCHEMA, CLICKS_SCHEMA
    from headrace.contestants import StreamFolder

    return [
        StreamFolder(name, feed.folder / name, schema, "ts", DELAY, files_per_batch, "json")
        for name, schema in (("bids", BIDS_SCHEMA), ("clicks", CLICKS_SCHEMA))
    ]


def _compare(
    spark: SparkSession, feed: Feed, folder: Path, console: Console, signals: Signals
) -> tuple[Case, dict[str, str]]:
    """Run the files that were written through both; also what plain Spark cannot do, and why."""
    from headrace.contestants import (
        StandingQuery,
        open_session,
        refused_by_native,
        run_headrace,
        run_native,
    )
    from headrace.native.compare import compare

    files = len(list((feed.folder / "bids").glob("*.json")))
    streams = _streams(feed, files_per_batch=-(-files // _MICRO_BATCHES))
    standing = [StandingQuery(query.name, query.sql) for query in QUERIES]
    refused = refused_by_native(open_session(spark, streams, None), standing)
    common = [query for query in standing if query.name not in refused]
    title = "the same files again, with plain Spark and with Headrace"
    with console.status(title) as status:

        def say(line: str) -> None:
            signals.check()
            status.update(f"{title} ({line.rpartition(': ')[2]})")

        case = compare(
            f"{len(common)} queries over {feed.bids + feed.clicks:,} rows",
            feed.bids + feed.clicks,
            {
                "plain Spark": partial(run_native, spark, streams, common, folder),
                "Headrace": partial(run_headrace, spark, streams, common, folder),
            },
            # Headrace has been running for a minute, plain Spark not at all: without a first
            # round for both, the comparison would be with a cold one.
            warmups=1,
            repeats=1,
            say=say,
        )
    return case, refused


def _conclude(case: Case, refused: dict[str, str], console: Console) -> None:
    ratio = case.ratio["plain Spark/Headrace"]
    times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in case.seconds.items())
    verdict = "results are equal" if case.equal else f"RESULTS DIFFER: {case.notes['difference']}"
    console.print(
        Text.assemble(
            (f"{case.case}: plain Spark takes {ratio:.2f} times as long", "bold"),
            f" ({times}; the same micro-batches, warm, one run each); ",
            (verdict, "green" if case.equal else "red"),
        ),
        soft_wrap=not console.is_terminal,
    )
    for name, reason in refused.items():
        console.print(Text(f"{name} is not compared: {reason}", style="dim"), soft_wrap=True)
