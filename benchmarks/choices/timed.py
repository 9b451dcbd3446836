"""Some workloads on Spark, by the clock: the chosen plan, and those of the least and the most work.

Which these are is counted first (``judging``). Seconds are those of the epochs; starting and
stopping is the same for all. Processor time is that of Java, Python and all tasks.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import BenchError
from benchmarks.choices.judging import judged, problem_of
from benchmarks.choices.measuring import Forced
from benchmarks.choices.streams import Workload
from benchmarks.harness.cpu_time import cpu_seconds
from benchmarks.harness.report import Setup
from headrace.contestants import StreamFolder, empty_folder, open_session
from headrace.native.compare import Case
from headrace.plan.nodes import Source

#: What leaves the other decisions alone, by kind of workload.
SETTINGS: Mapping[str, Mapping[str, str]] = {"joins": {"joins.passes": "whole"}}


@dataclass(frozen=True)
class Timed:
    """One run on Spark."""

    epochs: float
    cpu: float
    results: int


def timed_case(setup: Setup, workload: Workload, repeats: int) -> Case:
    """The plans of a workload in turns, after one run that warms up."""
    one = judged(workload, empty_folder(setup.work / "choices"))
    streams = _folders(workload, one.files, empty_folder(setup.work / "timed-in"))
    names = {"chosen": None, "least work": one.best.name, "most work": one.worst.name}
    run(setup, workload, streams, None)
    runs: dict[str, list[Timed]] = {}
    for turn in range(repeats):
        for name in names if turn % 2 == 0 else reversed(names):
            runs.setdefault(name, []).append(run(setup, workload, streams, names[name]))
    seconds = {name: median(timed.epochs for timed in some) for name, some in runs.items()}
    cpu = {name: median(timed.cpu for timed in some) for name, some in runs.items()}
    results = {timed.results for some in runs.values() for timed in some}
    setup.say(
        f"timed/{workload.name}: "
        + ", ".join(f"{n} {seconds[n]:.2f} s, {cpu[n]:.1f} s of CPU" for n in names)
    )
    notes = {
        "plans": names,
        "runs": {n: [round(t.epochs, 3) for t in some] for n, some in runs.items()},
        "CPU": {name: round(value, 2) for name, value in cpu.items()},
        "work, chosen/best": round(one.verdict.chosen, 3),
        "work, worst/best": round(one.verdict.worst, 3),
        **({} if len(results) == 1 else {"difference": f"{sorted(results)} results"}),
    }
    return Case(
        f"timed/{workload.name}",
        len(results) == 1,
        workload.rows,
        seconds,
        {
            "chosen/least work": seconds["chosen"] / seconds["least work"],
            "most work/chosen": seconds["most work"] / seconds["chosen"],
            "CPU, chosen/least work": cpu["chosen"] / cpu["least work"],
            "CPU, most work/chosen": cpu["most work"] / cpu["chosen"],
        },
        notes,
    )


def run(setup: Setup, workload: Workload, streams: list[StreamFolder], plan: str | None) -> Timed:
    """One run from an empty checkpoint, by a forced plan or the one that is chosen."""
    kind = workload.name.split("/")[0]
    settings = {**SETTINGS.get(kind, {}), "progress.retained": "100000"}
    place = empty_folder(setup.work / "timed")
    forced = None if plan is None else _forced(setup, workload, streams, plan)
    if forced is not None and kind == "windows":
        settings |= {"windows.costModel": "paper", "windows.closing": forced.policy.window_closing}
    hr = open_session(setup.spark, streams, place, settings)
    query = hr.sql(workload.sql)
    if forced is not None:
        query = query._with_plan(forced.plan)
    handle = query.writeStream.queryName("timed").format("noop").start()
    with nullcontext() if forced is None else forced.by():
        began = cpu_seconds(setup.spark)
        hr.start(availableNow=True)
        hr.awaitTermination()
        cpu = cpu_seconds(setup.spark) - began
    last = handle.lastProgress
    if handle.exception() is not None or last is None:
        raise BenchError(f"{workload.name} failed under Headrace: {handle.exception()}")
    epochs = sum(epoch["seconds"] for epoch in hr.recentProgress)
    return Timed(epochs, cpu, int(last["totalOutputRows"]))


def _forced(setup: Setup, workload: Workload, streams: list[StreamFolder], name: str) -> Forced:
    """The forced plan of that name, of the query as this session reads it."""
    plan = open_session(setup.spark, streams, None).sql(workload.sql).optimized.plan
    problem = problem_of(workload, plan)
    return next(one for one in problem.all_forced() if one.name == name)


def _folders(
    workload: Workload, epochs: Sequence[Mapping[str, list[Path]]], folder: Path
) -> list[StreamFolder]:
    """A folder for each stream, whose files come in the order of the epochs."""
    first = int(time.time()) - len(epochs) - 60
    for number, files in enumerate(epochs):
        for stream, paths in files.items():
            place = folder / stream
            place.mkdir(parents=True, exist_ok=True)
            for path in paths:
                copied = Path(shutil.copy(path, place / path.name))
                os.utime(copied, (first + number, first + number))
    return [
        StreamFolder(name, folder / name, _schema(source), delay="0 seconds", files_per_batch=1)
        for name, source in workload.catalog.items()
    ]


def _schema(source: Source) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in source.schema)
