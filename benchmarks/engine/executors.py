"""The two executors against each other: Spark's operators, and DuckDB inside Spark tasks.

Each operator runs at three sizes on both, from the same files in the same micro-batches. An epoch
has two phases, and both are reported: taking the new rows in, and computing what comes out. Three
cases more are what users would ask about: a three-way join with many results, many windows
against a plain Spark batch job, and many small queries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from benchmarks.harness.data import EVENTS_SCHEMA, EventFiles
from benchmarks.harness.fingerprints import fingerprint
from benchmarks.harness.report import Report, Setup, describe_machine
from benchmarks.windows.factor_windows import finest_panes, windows_query
from benchmarks.windows.window_sets import SETUPS, window_set
from headrace.contestants import StandingQuery, StreamFolder, empty_folder, run_headrace
from headrace.native.compare import Case, ContestantRun
from headrace.plan.windows import common_pane

EXECUTORS = {"spark": {"executor": "spark"}, "tasks": {"executor": "buckets"}}
MINUTE = 60_000
KEYS = 16
#: Rows per key and minute of the three streams that are joined.
RATES = {"a": 30, "b": 15, "c": 1}
BATCHES = 4
JOIN_BATCHES = 15
FILES_PER_BATCH = 2

_WINDOW = "window({}.ts, '1 minute')"
JOIN = (
    "SELECT a.k, a.v AS av, b.v AS bv, c.v AS cv FROM a "
    f"JOIN b ON a.k = b.k AND {_WINDOW.format('a')} = {_WINDOW.format('b')} "
    f"JOIN c ON a.k = c.k AND {_WINDOW.format('a')} = {_WINDOW.format('c')}"
)
_SECONDS = "INTERVAL 200 MILLISECONDS"
OPERATORS: dict[str, tuple[str, tuple[str, ...]]] = {
    "filter and projection": ("SELECT k, v * 2 AS w, ts FROM a WHERE v > 25000", ("a",)),
    "tumbling window": (
        "SELECT k, window, count(*) AS n, max(v) AS most FROM a GROUP BY k, window(ts, '1 minute')",
        ("a",),
    ),
    "holistic aggregate": (
        "SELECT k, window, count(DISTINCT v) AS n FROM a GROUP BY k, window(ts, '1 minute')",
        ("a",),
    ),
    "sessions": (
        "SELECT k, session_window, count(*) AS n FROM a "
        "GROUP BY k, session_window(ts, '100 milliseconds')",
        ("a",),
    ),
    "interval join": (
        "SELECT a.k, a.v AS av, b.v AS bv FROM a JOIN b ON a.k = b.k "
        f"AND b.ts BETWEEN a.ts - {_SECONDS} AND a.ts + {_SECONDS}",
        ("a", "b"),
    ),
    "window join": (
        "SELECT a.k, a.v AS av, b.v AS bv FROM a JOIN b ON a.k = b.k "
        "AND window(a.ts, '1 second') = window(b.ts, '1 second')",
        ("a", "b"),
    ),
}


@dataclass(frozen=True)
class Size:
    """What is run at a scale."""

    operators: tuple[int, ...]
    join: tuple[int, ...]
    windows: int
    queries: int
    warmups: int
    repeats: int


SIZES = {
    "tiny": Size((2_000,), (2_000,), 4_000, 3, 0, 1),
    "small": Size((20_000, 200_000), (88_320,), 1_000_000, 40, 1, 1),
    "full": Size((20_000, 200_000, 2_000_000), (883_200, 8_832_000), 10_000_000, 200, 1, 3),
}


def run(setup: Setup) -> Report:
    bench = _Bench(setup, SIZES[setup.scale])
    cases = [*bench.join(), *bench.windows(), *bench.many_queries(), *bench.operators()]
    machine = describe_machine(setup.spark)
    return Report("executors", setup.scale, machine, cases, _summary(cases))


class _Bench:
    def __init__(self, setup: Setup, size: Size) -> None:
        self.setup = setup
        self.size = size
        self.share = 1 / (len(OPERATORS) * len(size.operators) + len(size.join) + 3)

    def operators(self) -> list[Case]:
        cases = []
        for rows in self.size.operators:
            # A second of event time has 1,000 rows of each stream.
            streams = {
                name: self.stream(f"{name}-{rows}", rows, BATCHES, 200, 1.0, salt)
                for salt, name in enumerate("ab")
            }
            for name, (sql, read) in OPERATORS.items():
                used = [streams[stream] for stream in read]
                cases.append(
                    self.compare(f"{name}/{rows:,} rows of each stream", rows, used, [sql])
                )
        return cases

    def join(self) -> list[Case]:
        """The join phase alone is what comes out, without taking the rows in."""
        cases = []
        for rows in self.size.join:
            minutes = rows / (KEYS * sum(RATES.values()))
            streams = [
                self.stream(
                    f"{name}-{rows}-joined",
                    round(minutes * KEYS * rate),
                    JOIN_BATCHES,
                    KEYS,
                    MINUTE / (KEYS * rate),
                    salt,
                )
                for salt, (name, rate) in enumerate(RATES.items())
            ]
            target = f"spark/tasks >= {1.4 if rows < 2_000_000 else 2}, the join phase >= 4"
            cases.append(
                self.compare(
                    f"three-way tumbling join/{rows:,} rows", rows, streams, [JOIN], target
                )
            )
        return cases

    def windows(self) -> list[Case]:
        rows = self.size.windows
        windows = window_set(next(s for s in SETUPS if s.name == "S-20-tumbling"), 0)
        pane, _ = common_pane(windows)
        cases = []
        for batches in (BATCHES, 1):
            stream = self.stream(f"events-{rows}", rows, batches, 200, 1.0, 0, files=20)
            cases.append(
                self.compare(
                    f"20 tumbling windows/{rows:,} events/{batches} micro-batches",
                    rows,
                    [stream],
                    [windows_query(windows, "MIN", "events")],
                    "spark/tasks >= 2.5, batch job/tasks >= 1",
                    {"batch job": partial(finest_panes, self.setup, stream, pane)},
                )
            )
        return cases

    def many_queries(self) -> list[Case]:
        """Queries that have nothing in common but the stream."""
        rows = 20_000 if self.size.queries > 3 else 2_000
        stream = self.stream(f"small-{rows}", rows, BATCHES, 50, 10.0, 0)
        queries = [
            f"SELECT k % {2 + i} AS g, window, max(v) AS most FROM small WHERE v > {i} "
            f"GROUP BY k % {2 + i}, window(ts, '{10 + i} seconds')"
            for i in range(self.size.queries)
        ]
        target = "spark/tasks >= 10"
        name = f"{len(queries)} small window aggregates/{rows:,} rows"
        return [self.compare(name, rows, [stream], queries, target, repeats=1)]

    def stream(
        self,
        name: str,
        rows: int,
        batches: int,
        keys: int,
        step: float,
        salt: int,
        files: int | None = None,
    ) -> StreamFolder:
        folder = self.setup.work / "streams" / name
        count = files or batches * FILES_PER_BATCH
        if not folder.exists():
            self.setup.say(f"writing {rows:,} rows of {name}")
            shake = 1_000 if step * keys > 1_000 else 50
            EventFiles(
                rows, count, keys=keys, step=step, shake=shake, salt=1_000_003 * salt, signed=True
            ).write(folder)
        return StreamFolder(
            name.split("-")[0], folder, EVENTS_SCHEMA, files_per_batch=count // batches
        )

    def compare(
        self,
        case: str,
        rows: int,
        streams: list[StreamFolder],
        queries: list[str],
        target: str = "",
        others: Mapping[str, Callable[[], ContestantRun]] | None = None,
        repeats: int | None = None,
    ) -> Case:
        """Run a case on both executors in turns; results are compared by count and checksum."""
        standing = [StandingQuery(f"q{number}", sql) for number, sql in enumerate(queries)]
        found: dict[str, list[ContestantRun]] = {}
        prints: dict[str, Any] = {}
        runs = repeats or self.size.repeats
        for turn in range(self.size.warmups + runs):
            for name, settings in EXECUTORS.items():
                place = empty_folder(self.setup.work / "run")
                outcome = run_headrace(
                    self.setup.spark, streams, standing, place, settings=settings, read=False
                )
                printed = fingerprint(place / "headrace" / "out")
                self._note(case, name, turn, outcome, found)
                if prints.setdefault("first", printed) != printed:
                    prints["difference"] = f"{name}: {printed} instead of {prints['first']}"
            for name, other in (others or {}).items():
                self._note(case, name, turn, other(), found)
        self.setup.advance(self.share)
        seconds = {name: median(o.seconds for o in runs) for name, runs in found.items()}
        ratio = {f"{n}/tasks": s / seconds["tasks"] for n, s in seconds.items() if n != "tasks"}
        phases = {
            phase: {
                name: median(o.phases.get(phase, 0.0) for o in found[name]) for name in EXECUTORS
            }
            for phase in ("ingest", "emit", "total")
        }
        for phase, both in phases.items():
            if both["tasks"]:
                ratio[f"spark/tasks, {phase} of an epoch"] = both["spark"] / both["tasks"]
        notes: dict[str, Any] = {
            "phases": phases,
            "runs": {name: [round(o.seconds, 3) for o in runs] for name, runs in found.items()},
            "results": prints["first"][0],
        }
        if target:
            notes["target"] = target
        if "difference" in prints:
            notes["difference"] = prints["difference"]
        return Case(case, "difference" not in prints, rows, seconds, ratio, notes)

    def _note(
        self,
        case: str,
        name: str,
        turn: int,
        outcome: ContestantRun,
        found: dict[str, list[ContestantRun]],
    ) -> None:
        warm = turn >= self.size.warmups
        self.setup.say(
            f"{case}: {name} took {outcome.seconds:.3f} s" + ("" if warm else " (warm-up)")
        )
        if warm:
            found.setdefault(name, []).append(outcome)


def _summary(cases: list[Case]) -> dict[str, float]:
    return {f"{case.case}: {name}": value for case in cases for name, value in case.ratio.items()}
