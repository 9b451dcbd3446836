"""Soak: minutes of a live stream, with the memory of Java and Python watched all along.

Heap is what is in use just after a collection; resident memory of Java follows the largest heap it
ever needed and says little. In local mode the executors live in the driver's Java, so that one
process holds both; Python workers are children of the driver and are added up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from headrace.bench import BenchError
from headrace.bench.contestants import (
    FileStream,
    StandingQuery,
    open_race,
    read_results,
    run_native,
    start_queries,
)
from headrace.bench.data import EVENTS_SCHEMA, EventFiles, write_events
from headrace.bench.harness import Case, Report, Setup, describe_machine, difference_between
from headrace.bench.latency import FIVE_WINDOWS, ONE_WINDOW

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES: tuple[StandingQuery, ...] = (ONE_WINDOW, FIVE_WINDOWS)
ROWS_PER_FILE = 5_000
# A file each half second holding a minute of event time: hours pass in a soak of ten minutes, so
# that windows open and close and state must be dropped.
FILE_EVERY = 0.5
STEP = 60_000 / ROWS_PER_FILE


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
    seconds = 600.0 if setup.full else 60.0
    files = int(seconds / FILE_EVERY)
    events = EventFiles(rows=files * ROWS_PER_FILE, files=files, step=STEP)
    folder = setup.work / "events"
    folder.mkdir()
    stream = FileStream("events", folder, EVENTS_SCHEMA)
    memory = Memory()
    done = threading.Event()

    race = open_race(setup.spark, [stream], setup.work / "state")
    handles = start_queries(race, QUERIES, setup.work / "out")
    sampling = _in_thread(partial(_sample, setup.spark, memory, 10.0 if setup.full else 3.0, done))
    started = time.perf_counter()
    race.start(processingTime="1 second")
    written = _feed(setup, events, folder)
    time.sleep(5)
    took = time.perf_counter() - started
    done.set()
    sampling.join()
    race.stop()
    for name, handle in handles.items():
        if handle.exception() is not None:
            raise BenchError(f"query {name} failed during the soak: {handle.exception()}")
    found = read_results(setup.spark, QUERIES, setup.work / "out")
    expected = run_native(setup.spark, [stream], QUERIES, setup.work).results
    difference = difference_between(expected, found)
    rows = written * ROWS_PER_FILE
    ratio = {f"{name} late/early": _growth(values) for name, values in memory.lines().items()}
    case = Case(
        case=f"soak/{seconds:.0f} s/{rows:,} events",
        equal=difference is None,
        rows=rows,
        seconds={"headrace": took},
        ratio=ratio,
        notes={
            "target": "late/early <= 1.1",
            "series": {
                "x": "seconds",
                "y": "megabytes",
                "at": [round(second, 1) for second in memory.at],
                "lines": {name: [round(v, 1) for v in vs] for name, vs in memory.lines().items()},
            },
            **({} if difference is None else {"difference": difference}),
        },
    )
    return Report("soak", setup.scale, describe_machine(setup.spark), [case], dict(ratio))


def _feed(setup: Setup, events: EventFiles, folder: Path) -> int:
    """Write the files at their pace; a late file is followed at once, so that the rate holds."""
    import duckdb

    started = time.perf_counter()
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        for number in range(events.files):
            time.sleep(max(0.0, started + number * FILE_EVERY - time.perf_counter()))
            write_events(connection, events, number, folder / f"part-{number:06d}.parquet")
            if number % 60 == 59:
                setup.say(f"wrote {number + 1} of {events.files} files")
    return events.files


def _sample(spark: SparkSession, memory: Memory, every: float, done: threading.Event) -> None:
    try:
        import psutil
    except ImportError:
        raise BenchError("the soak needs psutil", hint="pip install 'headrace[bench]'") from None
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    java = psutil.Process(int(jvm.java.lang.ProcessHandle.current().pid()))
    python = psutil.Process()
    started = time.perf_counter()
    while not done.wait(every):
        runtime = jvm.java.lang.Runtime.getRuntime()
        runtime.gc()
        workers = [child for child in python.children(recursive=True) if child.pid != java.pid]
        memory.at.append(time.perf_counter() - started)
        memory.heap.append((runtime.totalMemory() - runtime.freeMemory()) / 2**20)
        memory.java.append(java.memory_info().rss / 2**20)
        memory.python.append(sum(_resident(process) for process in (python, *workers)) / 2**20)


def _resident(process: object) -> int:
    """A worker may be gone between the listing and the look."""
    try:
        return int(process.memory_info().rss)  # type: ignore[attr-defined]
    except Exception:
        return 0


def _growth(values: list[float]) -> float:
    """The last quarter against the second: the first is still warming up."""
    quarter = len(values) // 4
    if quarter == 0:
        raise BenchError("the soak was too short to sample its memory")
    return mean(values[-quarter:]) / mean(values[quarter : 2 * quarter])


def _in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
