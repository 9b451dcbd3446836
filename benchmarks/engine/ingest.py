"""Ingest: how many events per second go through one window aggregate, against plain Spark."""

from __future__ import annotations

from functools import partial

from benchmarks.harness.data import EVENTS_SCHEMA, EventFiles
from benchmarks.harness.report import Report, Setup, describe_machine
from headrace.contestants import StandingQuery, StreamFolder, run_headrace, run_native
from headrace.native.compare import compare

BATCHES = 4
FILES = 20
ROWS = {"tiny": 20_000, "small": 1_000_000, "full": 10_000_000}
# The first three native runs in a new Java took 18, 6.0 and 3.2 s for a million events.
WARMUPS = {"tiny": 0, "small": 2, "full": 2}
REPEATS = {"tiny": 1, "small": 2, "full": 3}
QUERY = StandingQuery(
    "per_key",
    "SELECT k, window, COUNT(*) AS n, SUM(v) AS total, MIN(v) AS least, MAX(v) AS most "
    "FROM events GROUP BY k, window(ts, '10 minutes')",
)


def run(setup: Setup) -> Report:
    rows = ROWS[setup.scale]
    # At any scale the stream spans some 17 windows.
    events = EventFiles(rows=rows, files=FILES, step=10_000_000 / rows)
    setup.say(f"writing {rows:,} events")
    folder = events.write(setup.work / "events")
    stream = StreamFolder("events", folder, EVENTS_SCHEMA, files_per_batch=FILES // BATCHES)
    case = compare(
        f"one 10-minute window/{rows:,} events/{BATCHES} micro-batches",
        rows,
        {
            "native": partial(run_native, setup.spark, [stream], [QUERY], setup.work),
            "headrace": partial(run_headrace, setup.spark, [stream], [QUERY], setup.work),
        },
        warmups=WARMUPS[setup.scale],
        repeats=REPEATS[setup.scale],
        notes={"target": "native/headrace >= 1"},
        say=setup.say,
        advance=setup.advance,
    )
    summary = {
        "native/headrace": case.ratio["native/headrace"],
        "headrace events/s": rows / case.seconds["headrace"],
        "native events/s": rows / case.seconds["native"],
    }
    return Report("ingest", setup.scale, describe_machine(setup.spark), [case], summary)
