"""Five thousand standing queries of fifty kinds at once, each with its own names for its columns.

The queries are those of ``running`` under a projection that renames and reorders all columns, as
people who do not know of each other would write them. The contestants are one query of each kind,
and all of them; while all of them run, some come and as many go. A query's rows are compared by
their number with those of the first query of its kind.

What it costs to plan a query more, and one less, is measured beside that without Spark.

Paper: Query Merging, Section 8.4.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks import BenchError
from benchmarks.harness.cpu_time import cpu_seconds
from benchmarks.harness.report import Setup
from benchmarks.merging.query_sets import RUN_SHAPES, GeneratedQuery, generate, sources
from benchmarks.merging.streams import STREAMS, write_streams
from headrace.contestants import empty_folder, open_session
from headrace.native.compare import Case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.query import QueryHandle
    from headrace.session import Headrace

ALONE, MANY = "alone", "many"
#: The epoch of all must take at most so many times that of one of each kind, and to plan one query
#: more or less so much CPU.
MOST_EPOCH, MOST_CHANGE_MS = 2.0, 50.0
#: Epochs that warm up, and those after queries came or went.
WARM, AFTER, SPARE = 3, 3, 12
_WAIT = 1_200


@dataclass(frozen=True)
class ManySize:
    """Queries and their kinds, those that come and go, and the epochs that are measured."""

    queries: int
    groups: int
    changes: int
    epochs: int
    rows: int


@dataclass(frozen=True)
class Query:
    """A query as its user writes it, and of which kind it is."""

    name: str
    text: str
    group: int


def renamed(count: int, groups: int) -> list[Query]:
    """So many queries, with columns that nobody else calls so, in an order of their own."""
    chance = random.Random(f"{count}/{groups}")
    members: dict[int, list[GeneratedQuery]] = {}
    for query in generate(4 * groups, STREAMS, groups, shapes=RUN_SHAPES):
        assert query.group is not None
        members.setdefault(query.group, []).append(query)
    queries = []
    for number in range(count):
        group, turn = number % groups, number // groups
        written = members[group][turn % len(members[group])]
        names = list(written.sink.schema.names)
        chance.shuffle(names)
        columns = ", ".join(f"`{name}` AS c{number}_{i}" for i, name in enumerate(names))
        text = f"SELECT {columns} FROM ({written.to_sql()})"
        queries.append(Query(f"q{number}", text, group))
    return queries


def run_many(setup: Setup, size: ManySize) -> tuple[list[Case], dict[str, float]]:
    queries = renamed(size.queries + size.changes, size.groups)
    planning = plan_changes(queries, size)
    setup.say(f"many: {json.dumps(planning)}")
    # Epochs go on while newcomers are registered.
    batches = WARM + size.epochs + 2 * AFTER + SPARE
    streams = write_streams(setup.work / "many-streams", size.rows, batches)
    figures: dict[str, dict[str, Any]] = {}
    rows: dict[str, dict[int, int]] = {}
    for name, taken in ((ALONE, queries[: size.groups]), (MANY, queries[: size.queries])):
        place = empty_folder(setup.work / name)
        hr = open_session(setup.spark, streams, place, {"merge.arithmetic": "unbounded"})
        newcomers = queries[size.queries :] if name == MANY else []
        all_rows = STREAMS * size.rows * batches
        contestant = Contestant(hr, place, taken, newcomers, all_rows)
        figures[name], rows[name] = contestant.run(setup.spark, size.epochs)
        setup.say(f"many, {name}: {json.dumps(figures[name])}")
    seconds = {name: figures[name]["median epoch, seconds"] for name in figures}
    ratio = {f"epoch, {size.queries} queries/{size.groups}": seconds[MANY] / seconds[ALONE]}
    target = f"epoch <= {MOST_EPOCH:g}, a change <= {MOST_CHANGE_MS:g} ms of CPU"
    case = Case(
        f"many/{size.queries} queries in {size.groups} groups",
        rows[ALONE] == rows[MANY],
        STREAMS * size.rows * batches,
        seconds,
        ratio,
        {"target": target, "planning": planning, **figures},
    )
    return [case], {f"many, {name}": value for name, value in ratio.items()}


# --- planning ------------------------------------------------------------------------------------


def plan_changes(queries: Sequence[Query], size: ManySize) -> dict[str, float]:
    """What it takes of CPU to plan all, and then one more or one less, in milliseconds."""
    from headrace.engine.epochs.live_plan import LivePlan
    from headrace.optimizer import optimize
    from headrace.plan.nodes import OutputMode, Sink
    from headrace.planner.live_query import LiveQuery
    from headrace.planner.merging import begin_merging
    from headrace.planner.policy import PlannerPolicy
    from headrace.planner.statistics import RuntimeStatistics
    from headrace.sql import plan_query
    from headrace.state.committed import Committed

    catalog = {source.stream: source for source in sources(STREAMS)}
    began = time.process_time()
    live = {}
    for query in queries:
        plan = optimize(plan_query(query.text, catalog).plan).plan
        live[query.name] = LiveQuery(Sink(plan, query.name, "noop", OutputMode.APPEND), None)
    reading = time.process_time() - began
    policy, statistics = PlannerPolicy(merge_unbounded=True), RuntimeStatistics()
    merging = begin_merging(policy, lambda: statistics.streams)
    planned, state = LivePlan(policy, statistics, merging), Committed()
    running = dict(list(live.items())[: size.queries])
    began = time.process_time()
    planned.use(running, state)
    first = time.process_time() - began
    spent: dict[str, list[float]] = {"adding": [], "removing": []}
    for name in list(live)[size.queries :]:
        began = time.process_time()
        # One that joins a running engine is computed apart at first.
        running[name] = LiveQuery(live[name].sink, 1)
        planned.use(running, state)
        added = time.process_time()
        del running[next(iter(running))]
        planned.use(running, state)
        spent["adding"].append(added - began)
        spent["removing"].append(time.process_time() - added)
        if len(spent["adding"]) == 20:
            break
    written = json.dumps(state.to_json("/"))
    return {
        "reading and optimizing, ms for each": round(1e3 * reading / len(queries), 2),
        "planning all, ms for each": round(1e3 * first / size.queries, 2),
        **{f"{name} one, ms": round(1e3 * median(each), 1) for name, each in spent.items()},
        "plans in a commit, KB": round(len(written) / 1e3, 1),
    }


# --- running -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contestant:
    """Queries that run, and those that come and go meanwhile; ``rows`` is what streams bring."""

    hr: Headrace
    place: Path
    queries: Sequence[Query]
    newcomers: Sequence[Query]
    rows: int

    def run(self, spark: SparkSession, epochs: int) -> tuple[dict[str, Any], dict[int, int]]:
        """Its figures, and how many rows each kind has put out in the end."""
        hr, queries = self.hr, self.queries
        began = time.process_time()
        handles = [_started(hr, query) for query in queries]
        registering = (time.process_time() - began) / len(queries)
        hr.start(processingTime="10 milliseconds")
        try:
            _wait_for(hr, WARM)
            cpu = cpu_seconds(spark)
            first = _wait_for(hr, WARM + epochs)
            cpu = cpu_seconds(spark) - cpu
            figures = {
                "registering, ms of Python's CPU for each": round(1e3 * registering, 2),
                "median epoch, seconds": _median(hr, WARM, first),
                "CPU of an epoch, seconds": round(cpu / (first - WARM), 3),
                **_footprint(spark, self.place),
            }
            if self.newcomers:
                figures |= _changed(hr, self.newcomers)
            _wait_until(hr, lambda: sum(p["numInputRows"] for p in hr.recentProgress) >= self.rows)
        finally:
            hr.stop()
        for handle in handles:
            if handle.exception() is not None:
                raise BenchError(f"a query failed: {handle.exception()}")
        return figures, _rows(queries, handles)


def _changed(hr: Headrace, newcomers: Sequence[Query]) -> dict[str, float]:
    """Epochs while queries come, and while as many go."""
    figures = {}
    before = _epochs(hr)
    added = [_started(hr, query) for query in newcomers]
    after = _wait_for(hr, _epochs(hr) + AFTER)
    figures["median epoch while they come, seconds"] = _median(hr, before, after)
    for handle in added:
        if not handle.recentProgress:
            raise BenchError(f"query {handle.name} takes no part")
        handle.stop()
    end = _wait_for(hr, after + AFTER)
    figures["median epoch while they go, seconds"] = _median(hr, after, end)
    return figures


def _started(hr: Headrace, query: Query) -> QueryHandle:
    return hr.sql(query.text).writeStream.queryName(query.name).format("noop").start()


def _epochs(hr: Headrace) -> int:
    last = hr.lastProgress
    return 0 if last is None else int(last["epoch"])


def _wait_for(hr: Headrace, epoch: int) -> int:
    """Wait until an epoch is done; the last one that is."""
    _wait_until(hr, lambda: _epochs(hr) >= epoch)
    return _epochs(hr)


def _wait_until(hr: Headrace, is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + _WAIT
    while not is_so():
        if not hr.isActive or time.monotonic() > until:
            raise BenchError("the engine does not go on")
        time.sleep(0.01)


def _median(hr: Headrace, after: int, last: int) -> float:
    taken = [p["seconds"] for p in hr.recentProgress if after < p["epoch"] <= last]
    return float(round(median(taken), 3))


def _footprint(spark: SparkSession, place: Path) -> dict[str, float]:
    java = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    commits = sorted((place / "checkpoint").rglob("*.commit")) or sorted(place.rglob("*.commit"))
    return {
        "memory of Python, MB": _status(os.getpid(), "VmRSS") // 1_000,
        "memory of Java, MB": _status(int(java), "VmRSS") // 1_000,
        "threads of Python": threading.active_count(),
        "threads of Java": _status(int(java), "Threads"),
        "open files": len(os.listdir("/proc/self/fd")),
        "files of the checkpoint": sum(path.is_file() for path in place.rglob("*")),
        "commit, KB": commits[-1].stat().st_size // 1_000,
    }


def _status(process: int, field: str) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise BenchError(f"no {field} of process {process}")


def _rows(queries: Sequence[Query], handles: Sequence[QueryHandle]) -> dict[int, int]:
    """Rows of each kind; raises where two of a kind differ."""
    rows: dict[int, int] = {}
    for query, handle in zip(queries, handles, strict=True):
        last = handle.lastProgress
        own = 0 if last is None else int(last["totalOutputRows"])
        if rows.setdefault(query.group, own) != own:
            raise BenchError(f"query {query.name} has {own} rows, not {rows[query.group]}")
    return rows
