"""Soak: minutes of a live stream, with the memory of Java and Python watched all along.

Heap is what is in use just after a collection; resident memory of Java follows the largest heap it
ever needed and says little. In local mode the executors live in the driver's Java, so that one
process holds both; Python workers are children of the driver and are added up.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks import BenchError
from benchmarks.engine.latency import FIVE_WINDOWS, ONE_WINDOW
from benchmarks.harness.data import EVENTS_SCHEMA, EventFiles, write_events
from benchmarks.harness.report import Report, Setup, describe_machine
from headrace.contestants import (
    StandingQuery,
    StreamFolder,
    finish,
    mean_phases,
    open_session,
    read_results,
    require_health,
    run_headrace,
    run_native,
    start_queries,
)
from headrace.native.compare import Case, difference_between

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from headrace.session import Headrace

QUERIES: tuple[StandingQuery, ...] = (ONE_WINDOW, FIVE_WINDOWS)
ROWS_PER_FILE = 5_000
# A file each half second holding a minute of event time: hours pass in a soak of ten minutes, so
# that windows open and close and state must be dropped.
FILE_EVERY = 0.5
STEP = 60_000 / ROWS_PER_FILE
SECONDS = {"tiny": 8.0, "small": 60.0, "full": 600.0}
SAMPLE_EVERY = {"tiny": 1.0, "small": 3.0, "full": 10.0}
# With the stream at rest, rows that are not taken within this time are not going to be.
DRAIN_WITHIN = 120.0


@dataclass
class Memory:
    """Samples of megabytes in use, taken by a thread."""

    at: list[float] = field(default_factory=list)
    heap: list[float] = field(default_factory=list)
    java: list[float] = field(default_factory=list)
    python: list[float] = field(default_factory=list)

    def lines(self) -> dict[str, list[float]]:
        return {"heap after collection": self.heap, "java resident": self.java} | {
            "python resident": self.python
        }


def run(setup: Setup) -> Report:
    seconds = SECONDS[setup.scale]
    files = int(seconds / FILE_EVERY)
    events = EventFiles(rows=files * ROWS_PER_FILE, files=files, step=STEP)
    folder = setup.work / "events"
    folder.mkdir()
    stream = StreamFolder("events", folder, EVENTS_SCHEMA)
    if setup.scale != "tiny":
        _warm_up(setup)

    hr = open_session(setup.spark, [stream], setup.work / "state")
    queries = start_queries(hr, QUERIES, setup.work / "out")
    started = time.perf_counter()
    with _watched(setup.spark, SAMPLE_EVERY[setup.scale]) as memory:
        hr.start(processingTime="1 second")
        try:
            _feed(setup, events, folder)
            fed = time.perf_counter()
            _drain(hr, events.rows)
        finally:
            hr.stop()
    require_health(queries)
    took = time.perf_counter() - started
    # What is live at the end has been committed; a run over what there is finds no row that the
    # live one has missed, or else the comparison shows it.
    finish(hr, queries)
    found = read_results(setup.spark, queries, setup.work / "out")
    setup.say("the same files with plain Spark, for its results")
    expected = run_native(setup.spark, [stream], QUERIES, setup.work).results
    difference = difference_between(expected, found)
    ratio = {f"{name} late/early": growth(values) for name, values in memory.lines().items()}
    notes: dict[str, Any] = {
        "target": "late/early <= 1.1",
        "epochs": len(hr.recentProgress),
        "seconds behind at the end": round(started + took - fed, 1),
        "phases": {"headrace": {name: round(s, 4) for name, s in mean_phases(hr).items()}},
        "series": {
            "x": "seconds",
            "y": "megabytes",
            "at": [round(second, 1) for second in memory.at],
            "lines": {name: [round(v, 1) for v in vs] for name, vs in memory.lines().items()},
        },
    }
    if difference is not None:
        notes["difference"] = difference
    case = Case(
        case=f"soak/{seconds:.0f} s/{events.rows:,} events",
        equal=difference is None,
        rows=events.rows,
        seconds={"headrace": took},
        ratio=ratio,
        notes=notes,
    )
    return Report("soak", setup.scale, describe_machine(setup.spark), [case], dict(ratio))


def _warm_up(setup: Setup) -> None:
    """A few epochs of the same queries: in a new Java the first one takes many seconds."""
    setup.say("warming up")
    files = EventFiles(rows=3 * ROWS_PER_FILE, files=3, step=STEP).write(setup.work / "warm-up")
    stream = StreamFolder("events", files, EVENTS_SCHEMA, files_per_batch=1)
    run_headrace(setup.spark, [stream], QUERIES, setup.work)


def _feed(setup: Setup, events: EventFiles, folder: Path) -> None:
    """Write the files at their pace; a late file is followed at once, so that the rate holds."""
    import duckdb

    setup.say(f"a file of {ROWS_PER_FILE:,} events each {FILE_EVERY} s, {events.files} of them")
    started = time.perf_counter()
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        for number in range(events.files):
            time.sleep(max(0.0, started + number * FILE_EVERY - time.perf_counter()))
            write_events(connection, events, number, folder / f"part-{number:06d}.parquet")
            setup.advance(0.9 / events.files)


def _drain(hr: Headrace, rows: int) -> None:
    """Wait until every row that was written has been part of an epoch."""
    deadline = time.perf_counter() + DRAIN_WITHIN
    while (taken := sum(epoch["numInputRows"] for epoch in hr.recentProgress)) < rows:
        if not hr.isActive:
            # Raises what ended it.
            hr.awaitTermination()
            raise BenchError("the engine ended during the soak")
        if time.perf_counter() > deadline:
            raise BenchError(
                f"{taken:,} of {rows:,} rows were taken {DRAIN_WITHIN:.0f} s after the last"
            )
        time.sleep(0.2)


@contextmanager
def _watched(spark: SparkSession, every: float) -> Iterator[Memory]:
    """Sample memory in a thread as long as the context lasts."""
    try:
        import psutil
    except ImportError:
        raise BenchError("the soak needs psutil", hint="pip install 'headrace[bench]'") from None
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    java = psutil.Process(int(jvm.java.lang.ProcessHandle.current().pid()))
    python = psutil.Process()
    memory, done = Memory(), threading.Event()

    def resident(process: psutil.Process) -> float:
        try:
            return float(process.memory_info().rss / 2**20)
        except psutil.NoSuchProcess:
            # A worker may be gone between the listing and the look.
            return 0.0

    def sample() -> None:
        started = time.perf_counter()
        runtime = jvm.java.lang.Runtime.getRuntime()
        while not done.wait(every):
            runtime.gc()
            workers = [child for child in python.children(recursive=True) if child.pid != java.pid]
            memory.at.append(time.perf_counter() - started)
            memory.heap.append((runtime.totalMemory() - runtime.freeMemory()) / 2**20)
            memory.java.append(resident(java))
            memory.python.append(sum(resident(process) for process in (python, *workers)))

    sampling = threading.Thread(target=sample, name="memory", daemon=True)
    sampling.start()
    try:
        yield memory
    finally:
        done.set()
        sampling.join()


def growth(values: list[float]) -> float:
    """The last quarter against the second: the first is still warming up.

    By the median: a sample in the middle of an epoch holds the rows of that epoch, twice the rest.
    """
    quarter = len(values) // 4
    if quarter == 0:
        raise BenchError("the soak was too short to sample its memory")
    return median(values[-quarter:]) / median(values[quarter : 2 * quarter])
