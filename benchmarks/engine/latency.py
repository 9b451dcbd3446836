"""Latency: the median small micro-batch against plain Spark's, and late ones against early ones.

A micro-batch is timed by Spark's clock, for both contestants. Headrace merges files of its state
after a batch has returned, so the run as a whole is shared out over its batches too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import mean, median

from benchmarks import BenchError
from benchmarks.harness.data import EVENTS_SCHEMA, EventFiles
from benchmarks.harness.report import Report, Setup, describe_machine
from headrace.contestants import StandingQuery, StreamFolder, run_headrace, run_native
from headrace.native.compare import WALL, Case, ContestantRun, compare, difference_between

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


@dataclass(frozen=True)
class Size:
    """How much of everything; a batch of the long run is the middle of ``around`` each side."""

    batches: int
    warmups: int
    repeats: int
    early: int
    late: int
    around: int


SIZES = {
    "tiny": Size(batches=2, warmups=0, repeats=1, early=2, late=4, around=1),
    "small": Size(batches=12, warmups=1, repeats=1, early=20, late=60, around=8),
    "full": Size(batches=40, warmups=1, repeats=3, early=100, late=1_000, around=20),
}


def run(setup: Setup) -> Report:
    size = SIZES[setup.scale]
    cases = [
        _against_native(setup, size, "one window", ONE_WINDOW, 0.91, setup.part(0.2)),
        _against_native(setup, size, "five windows", FIVE_WINDOWS, 2, setup.part(0.4)),
        _late_against_early(setup, size, setup.part(0.4)),
    ]
    summary = {f"{case.case} {name}": r for case in cases for name, r in case.ratio.items()}
    return Report("latency", setup.scale, describe_machine(setup.spark), cases, summary)


def _against_native(
    setup: Setup,
    size: Size,
    what: str,
    query: StandingQuery,
    target: float,
    advance: Callable[[float], None],
) -> Case:
    stream = _stream(setup, what.replace(" ", "-"), size.batches)
    case = compare(
        f"{what}/{size.batches} micro-batches, median",
        size.batches * ROWS_PER_BATCH,
        {
            "native": partial(run_native, setup.spark, [stream], [query], setup.work),
            "headrace": partial(run_headrace, setup.spark, [stream], [query], setup.work),
        },
        warmups=size.warmups,
        repeats=size.repeats,
        measure=_median_batch,
        notes={"target": f"native/headrace >= {target}"},
        say=setup.say,
        advance=advance,
    )
    walls = case.notes[WALL]
    ratio = {**case.ratio, "native/headrace wall": walls["native"] / walls["headrace"]}
    return replace(case, ratio=ratio)


def _late_against_early(setup: Setup, size: Size, advance: Callable[[float], None]) -> Case:
    """One long run of Headrace: does a micro-batch cost more when the stream is old?"""
    batches = size.late + size.around
    stream = _stream(setup, "long", batches)
    setup.say(f"a long run of {batches} micro-batches")
    outcome = run_headrace(
        setup.spark, [stream], [ONE_WINDOW], setup.work, lambda epochs: advance(epochs / batches)
    )
    if len(outcome.batch_seconds) < batches:
        raise BenchError(
            f"the long run reported {len(outcome.batch_seconds)} micro-batches, not {batches}"
        )
    # Spark's clock by the median, as one batch alone would be noise; from one start to the next by
    # the mean, so that the merging of files, which not every batch has, is in it.
    triggers = _around(outcome.batch_seconds, size, median)
    walls = _around(outcome.start_to_start, size, mean)
    # Spark's own logs of a stream grow with its age too: this is what Headrace adds.
    epochs = _around(outcome.epoch_seconds, size, median)
    # Plain Spark may take larger bites of the same files: only its results are wanted here.
    whole = replace(stream, files_per_batch=None)
    expected = run_native(setup.spark, [whole], [ONE_WINDOW], setup.work)
    difference = difference_between(expected.results, outcome.results)
    return Case(
        case=f"long run/micro-batch {size.late} against {size.early}",
        equal=difference is None,
        rows=batches * ROWS_PER_BATCH,
        seconds={
            f"micro-batch {size.early}": triggers[0],
            f"micro-batch {size.late}": triggers[1],
            f"micro-batch {size.early} wall": walls[0],
            f"micro-batch {size.late} wall": walls[1],
        },
        ratio={
            "late/early": triggers[1] / triggers[0],
            "late/early wall": walls[1] / walls[0],
            "late/early epoch": epochs[1] / epochs[0],
        },
        notes={
            "target": "late/early <= 1.1",
            "series": {
                "x": "micro-batch",
                "y": "seconds",
                "lines": {
                    "headrace": [float(f"{t:.4g}") for t in outcome.batch_seconds],
                    "headrace, start to start": [float(f"{t:.4g}") for t in outcome.start_to_start],
                    "headrace, epoch": [float(f"{t:.4g}") for t in outcome.epoch_seconds],
                },
            },
            **({} if difference is None else {"difference": difference}),
        },
    )


def _around(
    times: Sequence[float], size: Size, middle: Callable[[Sequence[float]], float]
) -> tuple[float, float]:
    """The time of the early batch and of the late one, from their neighbours on both sides."""
    early, late = (
        middle(times[index - size.around : index + size.around])
        for index in (size.early, size.late)
    )
    return early, late


def _stream(setup: Setup, name: str, batches: int) -> StreamFolder:
    setup.say(f"writing {batches} files of {ROWS_PER_BATCH:,} events")
    events = EventFiles(rows=batches * ROWS_PER_BATCH, files=batches, step=STEP)
    folder = events.write(setup.work / f"events-{name}")
    return StreamFolder("events", folder, EVENTS_SCHEMA, files_per_batch=1)


def _median_batch(outcome: ContestantRun) -> float:
    """The first micro-batches of a run start things up, for both; the median does not see them."""
    if not outcome.batch_seconds:
        raise BenchError("a run reported no micro-batches")
    return median(outcome.batch_seconds)
