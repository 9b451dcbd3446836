"""``headrace demo``: a minute of standing queries on a live stream, then plain Spark."""

from __future__ import annotations

import json as json_text
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.syntax import Syntax
from rich.text import Text

from headrace.cli.console import err, out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

    from headrace.bench.contestants import FileStream, StandingQuery
    from headrace.bench.harness import Case
    from headrace.cli.feed import Feed
    from headrace.cli.progress import Glance
    from headrace.cli.screen import Newest
    from headrace.session import Headrace, QueryHandle

DELAY = "2 seconds"
SQL = {
    "busy_auctions": """\
SELECT auction, window, COUNT(*) AS bids, MAX(price) AS top
FROM bids
GROUP BY auction, window(ts, '10 seconds')""",
    "money_by_category": """\
SELECT category, window_id, window, COUNT(*) AS bids, SUM(price) AS money
FROM bids
GROUP BY category,
         windows(window(ts, '5 seconds'), window(ts, '10 seconds'), window(ts, '30 seconds'))""",
    "big_bids": """\
SELECT auction, bidder, price, ts
FROM bids
WHERE price > 990""",
    "click_then_bid": """\
SELECT c.visitor, b.auction, c.page, b.price, b.ts
FROM bids AS b
JOIN clicks AS c
  ON b.bidder = c.visitor AND b.auction = c.auction
 AND b.ts BETWEEN c.ts AND c.ts + INTERVAL 3 SECONDS""",
}
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
        bool, typer.Option("--json", help="Print the outcome as JSON and no screen.")
    ] = False,
) -> None:
    """Watch standing queries on a live stream for a minute, then compare with plain Spark."""
    from headrace.cli.spark import spark_session

    # With --json standard output belongs to a program; people read standard error.
    console = err if json else out
    status = console.status("starting Spark")
    with (
        tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder,
        status,
        spark_session("headrace demo", _SETTINGS, debug=bool(context.obj)) as spark,
    ):
        status.stop()
        outcome = _play(spark, Path(folder), seconds, console)
    if json:
        print(json_text.dumps(outcome, indent=1))
    if not outcome["comparison"]["equal"]:
        raise typer.Exit(1)


def _play(spark: SparkSession, folder: Path, seconds: float, console: Console) -> dict[str, Any]:
    from headrace.cli.feed import Feed

    feed = Feed(folder / "streams")
    queries, plans = _live(spark, feed, folder, seconds, console)
    for name, plan in plans.items():
        console.print(Text(f"\n{name}", style="bold"))
        console.print(Syntax(SQL[name], "sql", background_color="default"))
        console.print(Text(plan), soft_wrap=True)
    console.print()
    case = _compare(spark, feed, folder, console)
    _conclude(case, console)
    return {
        "seconds": seconds,
        "rows": {"bids": feed.bids, "clicks": feed.clicks},
        "queries": [query.to_json() for query in queries],
        "comparison": case.to_json(),
    }


def _live(
    spark: SparkSession, feed: Feed, folder: Path, seconds: float, console: Console
) -> tuple[list[Glance], dict[str, str]]:
    """The live part: start everything, watch, and let the last windows close."""
    from headrace.bench.contestants import open_race
    from headrace.cli.explain import Mode, plan_text
    from headrace.cli.progress import glances
    from headrace.cli.screen import Moment, Screen

    feed.start()
    race = open_race(spark, _streams(feed), folder / "live")
    planned = {name: race.sql(sql) for name, sql in SQL.items()}
    handles: dict[str, QueryHandle] = {
        name: query.writeStream.queryName(name).format("results").start()
        for name, query in planned.items()
    }
    race.start(processingTime="1 second")
    started, newest, looked = time.monotonic(), None, 0
    with Screen(console) as screen:
        while (elapsed := time.monotonic() - started) < seconds:
            # Reading results is a Spark job of its own: one query every few seconds, in turn.
            if elapsed >= 3.0 * (looked + 1):
                newest = _newest(race, list(SQL)[looked % len(SQL)])
                looked += 1
            rows = {"bids": feed.bids, "clicks": feed.clicks}
            screen.show(Moment(elapsed, seconds, rows, glances(handles), newest))
            time.sleep(0.25)
    feed.close()
    plans = {name: plan_text(query, Mode.simple) for name, query in planned.items()}
    race.stop()
    return glances(handles), plans


def _newest(race: Headrace, name: str) -> Newest:
    from headrace.cli.screen import Newest

    frame = race.results(name)
    latest = next((c for c in ("window", "ts") if c in frame.columns), frame.columns[0])
    rows = frame.orderBy(frame[latest].desc()).limit(5).collect()
    return Newest(name, frame.columns, [[_cell(value) for value in row] for row in rows])


def _cell(value: Any) -> str:
    """Windows as from-to, times without the date: the demo lasts a minute."""
    if hasattr(value, "asDict"):
        return " - ".join(_cell(part) for part in value)
    return value.strftime("%H:%M:%S") if hasattr(value, "strftime") else str(value)


def _streams(feed: Feed, files_per_batch: int | None = None) -> list[FileStream]:
    from headrace.bench.contestants import FileStream
    from headrace.cli.feed import BIDS_SCHEMA, CLICKS_SCHEMA

    return [
        FileStream(name, feed.folder / name, schema, "ts", DELAY, files_per_batch, "json")
        for name, schema in (("bids", BIDS_SCHEMA), ("clicks", CLICKS_SCHEMA))
    ]


def _compare(spark: SparkSession, feed: Feed, folder: Path, console: Console) -> Case:
    """Run the recorded files through both, in a few micro-batches each."""
    from functools import partial

    from headrace.bench.contestants import run_headrace, run_native
    from headrace.bench.harness import compare

    files = len(list((feed.folder / "bids").glob("*.json")))
    streams = _streams(feed, files_per_batch=max(1, -(-files // 5)))
    queries = _standing_queries()
    with console.status("the same files once more, with Headrace and with plain Spark"):
        return compare(
            f"{len(queries)} queries over {files} files per stream",
            feed.bids + feed.clicks,
            {
                "plain Spark": partial(run_native, spark, streams, queries, folder),
                "Headrace": partial(run_headrace, spark, streams, queries, folder),
            },
            # Headrace has been running for a minute, plain Spark not at all: without a first
            # round for both, the comparison would be with a cold one.
            warmups=1,
            repeats=1,
        )


def _standing_queries() -> list[StandingQuery]:
    from headrace.bench.contestants import StandingQuery

    return [StandingQuery(name, sql) for name, sql in SQL.items()]


def _conclude(case: Case, console: Console) -> None:
    ratio = case.ratio["plain Spark/Headrace"]
    times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in case.seconds.items())
    verdict = "results are equal" if case.equal else f"RESULTS DIFFER: {case.notes['difference']}"
    colour = "green" if case.equal else "red"
    console.print(
        Text.assemble(
            (f"{case.case}: plain Spark/Headrace {ratio:.2f}", "bold"),
            f" ({times}; {case.rows:,} rows, warm, one run each); ",
            (verdict, colour),
        ),
        soft_wrap=True,
    )
