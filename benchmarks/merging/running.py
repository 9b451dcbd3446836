"""A thousand queries of ten kinds on the engine: merged, alone, and each on its own.

After Section 8.4 of the query-merging paper: half of the queries are window joins, half window
aggregates of unions, and each reads two of four streams. The contestants:

- *alone*: one query of each group, which is all that there is to compute.
- *merged*: all of them, under Headrace as it is.
- *native*: some of them, one Structured Streaming query each, which reads its streams itself.
- *unmerged*: the same ones under Headrace without merging, which then shares the reading, and
  operators that are written alike.

The last two run some number of queries of each group only; what all would take is extrapolated
along the line through these points. Every contestant runs twice. The first run writes Parquet,
warms up, and has its results compared with those of the group's query in *alone*; the second
writes nothing (``noop``, as in the paper), and its figures count. A thousand results have to go
somewhere in life, so *alone* and *merged* then write Parquet once more, by the clock. A run is all
from the start of the queries to the end of the streams; reading SQL before is told apart.

Paper: Query Merging, Section 8.4.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression, median
from typing import Any

from benchmarks import BenchError
from benchmarks.harness.cpu_time import cpu_seconds
from benchmarks.harness.fingerprints import fingerprint
from benchmarks.harness.report import Setup
from benchmarks.merging.query_sets import RUN_SHAPES, GeneratedQuery, generate
from benchmarks.merging.streams import STREAMS, write_streams
from headrace.contestants import StreamFolder, empty_folder, open_session, trigger_seconds
from headrace.merge import MergeStrategy
from headrace.native.compare import Case, multiset_difference

ALONE, MERGED, NATIVE, UNMERGED = "alone", "merged", "native", "unmerged"
#: Merging must cost at most so many times the micro-batch of the distinct queries alone, and the
#: paper's factors of compute and network are what running each query on its own must cost more.
MOST_BATCH, LEAST_CPU, LEAST_ROWS = 3.0, 5.4, 16.0


@dataclass(frozen=True)
class RunningSize:
    """Queries and their groups, how many run unmerged, and rows of a stream's micro-batches.

    The ``points`` are multiples of the groups, so that the same kinds of queries run at each.
    """

    queries: int
    groups: int
    points: tuple[int, ...]
    rows: int
    batches: int


@dataclass(frozen=True)
class Spent:
    """One run of one contestant."""

    seconds: float
    cpu: float
    source_rows: int
    batches: Sequence[float]
    registering: float
    epochs: Sequence[float] = ()

    @property
    def batch(self) -> float:
        return median(self.batches)

    def to_json(self) -> dict[str, float]:
        figures = {
            "median micro-batch, seconds": self.batch,
            "run, seconds": self.seconds,
            "CPU seconds": self.cpu,
            "source rows": self.source_rows,
            "reading and planning SQL, seconds": self.registering,
        }
        if self.epochs:
            figures["median epoch, seconds"] = median(self.epochs)
        return {name: round(value, 3) for name, value in figures.items()}


@dataclass
class RunningBench:
    """Runs contestants, and keeps what *alone* put out for each group."""

    setup: Setup
    size: RunningSize
    streams: list[StreamFolder] = field(default_factory=list)
    results: dict[int, Path] = field(default_factory=dict)

    # --- contestants -----------------------------------------------------------------------------

    def headrace(
        self, queries: Sequence[GeneratedQuery], strategy: MergeStrategy, out: Path | None
    ) -> Spent:
        spark = self.setup.spark
        settings = {
            "merge.strategy": strategy.value,
            "merge.arithmetic": "unbounded",
            # Every epoch is wanted, however many there are.
            "progress.retained": "100000",
        }
        place = empty_folder(self.setup.work / "headrace")
        hr = open_session(spark, self.streams, place, settings)
        began = time.perf_counter()
        handles = []
        for query in queries:
            writer = hr.sql(query.to_sql()).writeStream.queryName(query.sink.name)
            if out is None:
                handles.append(writer.format("noop").start())
            else:
                handles.append(writer.format("parquet").start(str(out / query.sink.name)))
        started, before = time.perf_counter(), cpu_seconds(spark)
        hr.start(availableNow=True)
        hr.awaitTermination()
        seconds, cpu = time.perf_counter() - started, cpu_seconds(spark) - before
        for handle in handles:
            if handle.exception() is not None:
                raise BenchError(f"a query failed under Headrace: {handle.exception()}")
        progress = {stream.name: hr.streamProgress(stream.name) for stream in self.streams}
        return Spent(
            seconds,
            cpu,
            sum(int(one["numInputRows"]) for of in progress.values() for one in of),
            [t for stream in progress for t in trigger_seconds(hr, stream)],
            started - began,
            [epoch["seconds"] for epoch in hr.recentProgress],
        )

    def native(self, queries: Sequence[GeneratedQuery], out: Path | None) -> Spent:
        """All at the same time, as they would run in life; each reads its streams itself."""
        from headrace import native
        from headrace.plan.nodes import OutputMode

        spark = self.setup.spark
        planner = open_session(spark, self.streams, None)
        session = native.native_session(spark)
        place = empty_folder(self.setup.work / "native")
        began = time.perf_counter()
        writers = []
        for query in queries:
            plan = planner.sql(query.to_sql()).plan
            reads = {s.name: s.read(spark) for s in self.streams if s.name in plan.streams()}
            frame = native.stream_plan(plan, reads, None, OutputMode.APPEND, session)
            writer = frame.writeStream.outputMode("append").trigger(availableNow=True)
            writer = writer.option("checkpointLocation", str(place / query.sink.name))
            if out is None:
                writers.append(writer.format("noop"))
            else:
                writers.append(writer.format("parquet").option("path", str(out / query.sink.name)))
        started, before = time.perf_counter(), cpu_seconds(spark)
        running = [writer.start() for writer in writers]
        try:
            for one in running:
                one.awaitTermination()
        finally:
            for one in running:
                one.stop()
        seconds, cpu = time.perf_counter() - started, cpu_seconds(spark) - before
        progress = [report for one in running for report in one.recentProgress]
        return Spent(
            seconds,
            cpu,
            sum(int(report["numInputRows"]) for report in progress),
            [
                report["durationMs"]["triggerExecution"] / 1_000
                for report in progress
                if report["numInputRows"] > 0
            ],
            started - began,
        )

    # --- results ---------------------------------------------------------------------------------

    def difference(self, queries: Sequence[GeneratedQuery], out: Path) -> str | None:
        """How the results of a run differ from those of each group's query, or nothing."""
        expected = {group: fingerprint(folder) for group, folder in self.results.items()}
        for query in queries:
            assert query.group is not None
            folder = out / query.sink.name
            if fingerprint(folder) != expected[query.group]:
                # Other files may hold equal values of other types: look at the rows themselves.
                found = self._compared(self.results[query.group], folder)
                if found is not None:
                    return f"query {query.sink.name} of group {query.group}: {found}"
        return None

    def _compared(self, expected: Path, found: Path) -> str | None:
        rows = [fingerprint(folder)[0] for folder in (expected, found)]
        if not all(rows):
            return None if rows[0] == rows[1] else f"{rows[1]} rows instead of {rows[0]}"
        reader = self.setup.spark.read.option("recursiveFileLookup", "true")
        tables = [reader.parquet(str(folder)).toArrow() for folder in (expected, found)]
        return multiset_difference(*tables)


#: A contestant: its queries, and how they are run, into a folder or nowhere.
Contestant = tuple[
    Sequence[GeneratedQuery], Callable[[Sequence[GeneratedQuery], Path | None], Spent]
]


def run_merged(bench: RunningBench) -> tuple[list[Case], dict[str, float]]:
    size, setup = bench.size, bench.setup
    bench.streams = write_streams(setup.work / "merging", size.rows, size.batches)
    contestants = _contestants(bench)
    written: dict[str, Spent] = {}
    wrong = None
    for name, (queries, run) in contestants.items():
        out = empty_folder(setup.work / ("results" if name == ALONE else "out"))
        written[name] = run(queries, out)
        _say(setup, name, "Parquet", written[name])
        if name == ALONE:
            bench.results = {q.group: out / q.sink.name for q in queries if q.group is not None}
        elif wrong is None:
            found = bench.difference(queries, out)
            wrong = found and f"{name} against {ALONE}: {found}"
    spent: dict[str, Spent] = {}
    # The other way round, so that it is not always the same ones that come late.
    for name, (queries, run) in reversed(contestants.items()):
        spent[name] = run(queries, None)
        _say(setup, name, "noop", spent[name])
    for name in (ALONE, MERGED):
        queries, run = contestants[name]
        written[name] = run(queries, empty_folder(setup.work / "out"))
        _say(setup, name, "Parquet, warm", written[name])
    rows = {group: fingerprint(folder)[0] for group, folder in sorted(bench.results.items())}
    case = _case(size, {name: spent[name] for name in contestants}, written, rows, wrong)
    return [case], {f"run, {name}": value for name, value in case.ratio.items()}


def _contestants(bench: RunningBench) -> dict[str, Contestant]:
    size = bench.size
    queries = generate(size.queries, STREAMS, size.groups, shapes=RUN_SHAPES)
    members: dict[int | None, list[GeneratedQuery]] = defaultdict(list)
    for query in queries:
        members[query.group].append(query)

    def some(count: int) -> list[GeneratedQuery]:
        """So many queries, as many of each group as of any other."""
        return [query for of in members.values() for query in of[: count // size.groups]]

    def merged(queries: Sequence[GeneratedQuery], out: Path | None) -> Spent:
        return bench.headrace(queries, MergeStrategy.SM_PLUS, out)

    def unmerged(queries: Sequence[GeneratedQuery], out: Path | None) -> Spent:
        return bench.headrace(queries, MergeStrategy.NONE, out)

    contestants: dict[str, Contestant] = {
        ALONE: (some(size.groups), merged),
        MERGED: (queries, merged),
    }
    for count in size.points:
        contestants[f"{NATIVE} {count}"] = (some(count), bench.native)
        contestants[f"{UNMERGED} {count}"] = (some(count), unmerged)
    return contestants


def _say(setup: Setup, name: str, sink: str, spent: Spent) -> None:
    setup.say(
        f"run: {name} ({sink}): micro-batch {spent.batch:.2f} s, run {spent.seconds:.1f} s, "
        f"CPU {spent.cpu:.1f} s, {spent.source_rows:,} source rows, "
        f"SQL {spent.registering:.1f} s"
    )


# --- what it comes to ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A straight line through what was measured.

    >>> Line.through({10: 7.0, 20: 12.0, 40: 22.0}).at(1_000)
    502.0
    """

    slope: float
    start: float

    @classmethod
    def through(cls, points: Mapping[int, float]) -> Line:
        slope, start = linear_regression(list(points), list(points.values()))
        return cls(slope, start)

    def at(self, count: int) -> float:
        return self.start + self.slope * count


def _case(
    size: RunningSize,
    spent: Mapping[str, Spent],
    written: Mapping[str, Spent],
    results: Mapping[int, int],
    wrong: str | None,
) -> Case:
    merged = spent[MERGED]
    all_queries = f"{size.queries:,}"
    ratio = {
        f"micro-batch, {all_queries} merged/{size.groups} alone, {sink}": of[MERGED].batch
        / of[ALONE].batch
        for sink, of in (("noop", spent), ("Parquet", written))
    }
    lines: dict[str, Any] = {}
    measures: dict[str, Callable[[Spent], float]] = {
        "CPU": lambda one: one.cpu,
        "source rows": lambda one: one.source_rows,
    }
    for figure, measure in measures.items():
        for kind in (NATIVE, UNMERGED):
            points = {count: measure(spent[f"{kind} {count}"]) for count in size.points}
            line = Line.through(points)
            extrapolated = line.at(size.queries)
            ratio[f"{figure}, {all_queries} {kind}/merged"] = extrapolated / measure(merged)
            lines[f"{kind}, {figure}"] = {
                "measured": {str(count): round(value, 3) for count, value in points.items()},
                "for each query": round(line.slope, 4),
                f"at {all_queries}": round(extrapolated, 1),
                "merged": round(measure(merged), 3),
            }
    charts = {
        "CPU seconds": {name: [round(one.cpu, 2)] for name, one in spent.items()},
        "source rows": {name: [one.source_rows] for name, one in spent.items()},
        "median micro-batch, seconds": {name: [round(one.batch, 3)] for name, one in spent.items()},
    }
    return Case(
        f"run/{all_queries} queries in {size.groups} groups/{size.batches} micro-batches",
        wrong is None,
        STREAMS * size.rows * size.batches,
        {name: one.batch for name, one in spent.items()},
        ratio,
        {
            "target": f"micro-batch <= {MOST_BATCH:g}, CPU native/merged >= {LEAST_CPU:g}, "
            f"source rows native/merged >= {LEAST_ROWS:g}",
            "noop": {name: one.to_json() for name, one in spent.items()},
            "Parquet": {name: one.to_json() for name, one in written.items()},
            "lines": lines,
            "results of each group": {str(group): rows for group, rows in results.items()},
            "series": {
                "x": "micro-batch (of all streams in Headrace, of all queries in plain Spark)",
                "y": "seconds",
                "lines": {n: [round(s, 3) for s in one.batches] for n, one in spent.items()},
            },
            "bars": {
                title: {"x": "", "y": title, "groups": ["noop"], "bars": bars}
                for title, bars in charts.items()
            },
            **({} if wrong is None else {"difference": wrong}),
        },
    )
