"""Latency: the median small micro-batch against plain Spark's, and late ones against early ones."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from statistics import median

from headrace.bench import BenchError
from headrace.bench.contestants import FileStream, StandingQuery, run_headrace, run_native
from headrace.bench.data import EVENTS_SCHEMA, EventFiles
from headrace.bench.harness import (
    Case,
    Outcome,
    Report,
    Setup,
    compare,
    describe_machine,
    difference_between,
)

ROWS_PER_BATCH = 5_000
# A minute of event time per micro-batch: windows close now and then, as in life.
STEP = 60_000 / ROWS_PER_BATCH

AGGREGATES = "COUNT(*) AS n, SUM(v) AS total, MAX(v) AS most"
ONE_WINDOW = StandingQuery(
    "one", f"SELECT k, window, {AGGREGATES} FROM events GROUP BY k, window(ts, '10 minutes')"
)
FIVE_WINDOWS = StandingQuery(
    "five",
    f"SELECT k, window_id, window, {AGGREGATES} FROM events GROUP BY k, windows("
    + ", ".join(f"window(ts, '{minutes} minutes')" for minutes in (5, 10, 15, 20, 30))
    + ")",
)


def run(setup: Setup) -> Report:
    cases = [
        _against_native(setup, "one window", ONE_WINDOW, "native/headrace >= 0.91"),
        _against_native(setup, "five windows", FIVE_WINDOWS, "native/headrace >= 2"),
        _late_against_early(setup),
    ]
    summary = {f"{case.case} {name}": r for case in cases for name, r in case.ratio.items()}
    return Report("latency", setup.scale, describe_machine(setup.spark), cases, summary)


def _against_native(setup: Setup, what: str, query: StandingQuery, target: str) -> Case:
    batches = 40 if setup.full else 12
    stream = _stream(setup, what.replace(" ", "-"), batches)
    return compare(
        f"{what}/{batches} micro-batches, median",
        batches * ROWS_PER_BATCH,
        {
            "native": partial(run_native, setup.spark, [stream], [query], setup.work),
            "headrace": partial(run_headrace, setup.spark, [stream], [query], setup.work),
        },
        repeats=3 if setup.full else 1,
        measure=_median_batch,
        notes={"target": target},
        say=setup.say,
    )


def _late_against_early(setup: Setup) -> Case:
    """One long run of Headrace: does a micro-batch cost more when the stream is old?"""
    early, late = (100, 1_000) if setup.full else (20, 60)
    # The medians of some neighbours stand for the one batch, which alone would be noise.
    around = 20 if setup.full else 8
    batches = late + around
    stream = _stream(setup, "long", batches)
    setup.say(f"a long run of {batches} micro-batches")
    outcome = run_headrace(setup.spark, [stream], [ONE_WINDOW], setup.work)
    times = outcome.batch_seconds
    if len(times) < batches:
        raise BenchError(f"the long run reported {len(times)} micro-batches instead of {batches}")
    seconds = {
        f"micro-batch {index}": median(times[index - around : index + around])
        for index in (early, late)
    }
    # Plain Spark may take larger bites of the same files: only its results are wanted here.
    whole = replace(stream, files_per_batch=None)
    expected = run_native(setup.spark, [whole], [ONE_WINDOW], setup.work)
    difference = difference_between(expected.results, outcome.results)
    first, last = seconds.values()
    return Case(
        case=f"long run/micro-batch {late} against {early}",
        equal=difference is None,
        rows=batches * ROWS_PER_BATCH,
        seconds=seconds,
        ratio={"late/early": last / first},
        notes={
            "target": "late/early <= 1.1",
            "series": {
                "x": "micro-batch",
                "y": "seconds",
                "lines": {"headrace": [float(f"{t:.4g}") for t in times]},
            },
            **({} if difference is None else {"difference": difference}),
        },
    )


def _stream(setup: Setup, name: str, batches: int) -> FileStream:
    setup.say(f"writing {batches} files of {ROWS_PER_BATCH:,} events")
    events = EventFiles(rows=batches * ROWS_PER_BATCH, files=batches, step=STEP)
    folder = events.write(setup.work / f"events-{name}")
    return FileStream("events", folder, EVENTS_SCHEMA, files_per_batch=1)


def _median_batch(outcome: Outcome) -> float:
    """The first micro-batches of a run start things up, for both; the median does not see them."""
    if not outcome.batch_seconds:
        raise BenchError("a run reported no micro-batches")
    return median(outcome.batch_seconds)
