"""Factor windows: many windows of one aggregate, against plain Spark and against sharing less.

The setups are those of the paper's Tables I to III. A unit of time is a second here, and a second
has a thousand events of 200 keys. Three questions, each with its own cases:

- *published*: how much faster than plain Spark, on as many events as in the paper;
- *limit*: how far from a Spark batch job that only computes the finest panes;
- *choice*: whether the plan that was chosen is the best of those that could have been, also where
  there are so many keys that sharing saves little.

Paper: Factor Windows, Section V-B, Table I, Table II, Section V-D, Table III, Section V-E.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import mean
from typing import Any

from benchmarks.harness.data import EVENTS_SCHEMA, EventFiles
from benchmarks.harness.report import Report, Setup, describe_machine
from benchmarks.windows.window_sets import SETUPS, UNIT, window_set, windows_sql
from headrace.contestants import StandingQuery, StreamFolder, run_headrace, run_native
from headrace.cost.factor_windows import PaperCost
from headrace.native.compare import Case, ContestantRun, compare
from headrace.optimizer.windows.published import min_cost_graph_with_factors
from headrace.optimizer.windows.steiner import best_graph
from headrace.plan.coverage import Coverage
from headrace.plan.windows import Hopping, common_pane

PLANNED_SETS = 6
BATCHES = 4
FILES = 20

#: Mean speed-ups with factor windows: Tables I and III (10 M synthetic events) and II (real data).
PAPER = {
    "R-5-tumbling": 1.85, "R-10-tumbling": 1.88, "R-5-hopping": 3.26, "R-10-hopping": 3.20,
    "S-5-tumbling": 4.28, "S-10-tumbling": 7.91, "S-5-hopping": 2.17, "S-10-hopping": 2.92,
    "R-15-tumbling": 2.97, "R-20-tumbling": 2.10, "R-15-hopping": 4.67, "R-20-hopping": 4.23,
    "S-15-tumbling": 11.29, "S-20-tumbling": 14.28, "S-15-hopping": 3.51, "S-20-hopping": 4.02,
}  # fmt: skip
PAPER_REAL = {
    "R-5-tumbling": 1.43, "R-10-tumbling": 1.53, "R-5-hopping": 1.54, "R-10-hopping": 1.46,
    "S-5-tumbling": 4.12, "S-10-tumbling": 7.53, "S-5-hopping": 1.22, "S-10-hopping": 1.45,
}  # fmt: skip

#: The plans that could be chosen, each forced by settings.
ALTERNATIVES: dict[str, dict[str, str]] = {
    "no sharing": {"windows.sharing": "none", "windows.closing": "flat"},
    "windows share": {"windows.sharing": "windows", "windows.closing": "flat"},
    "factors, flat": {"windows.closing": "flat"},
    "factors, tree": {"windows.closing": "tree"},
}


@dataclass(frozen=True)
class Size:
    """What is run at a scale."""

    published: int
    sets: int
    choice: int
    many_keys: int
    repeats: int
    warm_up: int
    headrace_runs: int
    setups: tuple[str, ...] = tuple(PAPER)
    choice_setups: tuple[str, ...] = tuple(PAPER)


SIZES = {
    "tiny": Size(4_000, 1, 2_000, 2_000, 1, 2_000, 1, ("S-5-tumbling",), ("R-5-hopping",)),
    "small": Size(
        1_000_000, 1, 200_000, 200_000, 1, 100_000, 1, ("S-20-tumbling", "R-5-hopping"),
        ("R-5-tumbling",),
    ),
    "full": Size(
        10_000_000, 1, 1_000_000, 1_000_000, 1, 200_000, 3, tuple(PAPER),
        ("R-5-tumbling", "R-5-hopping", "S-10-tumbling", "S-20-hopping", "R-20-tumbling"),
    ),
}  # fmt: skip


def run(setup: Setup) -> Report:
    size = SIZES[setup.scale]
    bench = _Bench(setup, size)
    cases = [*bench.published(), *bench.limit(), *bench.choice()]
    return Report(
        "factor-windows", setup.scale, describe_machine(setup.spark), cases, bench.summary(cases)
    )


class _Bench:
    def __init__(self, setup: Setup, size: Size) -> None:
        self.setup = setup
        self.size = size
        self.by_name = {windows.name: windows for windows in SETUPS}
        steps = len(size.setups) * size.sets + 2 + 2 * len(size.choice_setups)
        self.share = 1 / steps

    # How much faster than plain Spark

    def published(self) -> list[Case]:
        stream = self.events(self.size.published)
        # The code for each window set is compiled in a short run of both.
        short = self.events(self.size.warm_up)
        cases = []
        for name in self.size.setups:
            for seed in range(self.size.sets):
                windows = window_set(self.by_name[name], seed)
                contestants = {
                    "native": partial(self.native, stream, windows, "MIN"),
                    "headrace": partial(self.warm_headrace, stream, windows),
                }
                self.native(short, windows, "MIN")
                self.headrace(short, windows, "MIN", {})
                cases.append(
                    compare(
                        f"{name}/MIN/{self.size.published:,} events/set-{seed}",
                        self.size.published,
                        contestants,
                        warmups=0,
                        repeats=self.size.repeats,
                        notes={
                            "setup": name,
                            "paper": PAPER[name],
                            "target": f"native/headrace >= {PAPER[name]} in the mean",
                        },
                        say=self.setup.say,
                        advance=self.setup.part(self.share),
                    )
                )
        return cases

    # How far from the least that Spark can do

    def limit(self) -> list[Case]:
        stream = self.events(self.size.published)
        cases = []
        for name in ("S-20-tumbling", "R-20-tumbling"):
            windows = window_set(self.by_name[name], 0)
            panes, _ = common_pane(windows)
            contestants: dict[str, Callable[[], ContestantRun]] = {
                "headrace": partial(self.headrace, stream, windows, "MIN", {}, False),
                "finest panes": partial(finest_panes, self.setup, stream, panes),
            }
            cases.append(
                compare(
                    f"{name}/limit/{self.size.published:,} events",
                    self.size.published,
                    contestants,
                    warmups=0 if self.setup.scale == "tiny" else 1,
                    repeats=1 if self.setup.scale == "tiny" else 3,
                    notes={
                        "limit": True,
                        "pane": f"{panes} ms",
                        "target": "headrace/finest panes <= 1.6",
                    },
                    say=self.setup.say,
                    advance=self.setup.part(self.share),
                )
            )
        return cases

    # Whether the best plan was chosen

    def choice(self) -> list[Case]:
        few = self.events(self.size.choice)
        many = self.events(self.size.many_keys, many_keys=True)
        cases = []
        for stream, keys in ((few, "200 keys"), (many, "100,000 skewed keys")):
            for number, name in enumerate(self.size.choice_setups):
                function = ("MIN", "SUM", "AVG")[number % 3]
                windows = window_set(self.by_name[name], 1)
                contestants = {
                    label: partial(self.headrace, stream, windows, function, settings)
                    for label, settings in ALTERNATIVES.items()
                }
                contestants["headrace"] = partial(self.headrace, stream, windows, function, {})
                case = compare(
                    f"{name}/{function}/{keys}/{self.size.choice:,} events",
                    self.size.choice,
                    contestants,
                    warmups=0 if self.setup.scale == "tiny" else 1,
                    repeats=1 if self.setup.scale == "tiny" else 2,
                    say=self.setup.say,
                    advance=self.setup.part(self.share),
                )
                best = min(case.seconds, key=lambda c: case.seconds[c])
                worse = case.seconds["headrace"] / case.seconds[best]
                notes = {
                    **case.notes,
                    "choice": True,
                    "best": best,
                    "chosen/best": round(worse, 3),
                    "target": "chosen/best <= 1.1, and no slower than no sharing",
                }
                cases.append(
                    Case(case.case, case.equal, case.rows, case.seconds, case.ratio, notes)
                )
        return cases

    # Contestants and data

    def events(self, rows: int, many_keys: bool = False) -> StreamFolder:
        events = EventFiles(rows, FILES)
        delay = "10 seconds"
        if many_keys:
            events = EventFiles(rows, FILES, keys=100_000, shake=60_000, skew=3)
            delay = "70 seconds"
        folder = self.setup.work / f"events-{rows}-{events.keys}"
        if not folder.exists():
            self.setup.say(f"writing {rows:,} events")
            events.write(folder)
        return StreamFolder(
            "events", folder, EVENTS_SCHEMA, delay=delay, files_per_batch=FILES // BATCHES
        )

    def native(
        self, stream: StreamFolder, windows: tuple[Hopping, ...], function: str
    ) -> ContestantRun:
        return run_native(self.setup.spark, [stream], [_query(windows, function)], self.setup.work)

    def warm_headrace(self, stream: StreamFolder, windows: tuple[Hopping, ...]) -> ContestantRun:
        """The median of some runs.

        Plain Spark warms up within its own long run; a run that is over after a tenth of that time
        would be measured while Java still compiles what it runs.
        """
        runs = [self.headrace(stream, windows, "MIN", {}) for _ in range(self.size.headrace_runs)]
        return sorted(runs, key=lambda outcome: outcome.seconds)[len(runs) // 2]

    def headrace(
        self,
        stream: StreamFolder,
        windows: tuple[Hopping, ...],
        function: str,
        settings: Mapping[str, str],
        with_results: bool = True,
    ) -> ContestantRun:
        query = _query(windows, function)
        outcome = run_headrace(
            self.setup.spark, [stream], [query], self.setup.work, settings=settings
        )
        return outcome if with_results else ContestantRun(outcome.seconds)

    def planning(self) -> dict[str, float]:
        """For sets of 20 windows: what each search saves by the paper's cost, and its time."""
        found: dict[str, float] = {}
        for name in ("R-20-tumbling", "R-20-hopping", "S-20-tumbling", "S-20-hopping"):
            saved: dict[str, list[float]] = {"published": [], "searched": []}
            gaps, seconds = [], []
            for seed in range(PLANNED_SETS):
                windows = window_set(self.by_name[name], seed)
                costs = PaperCost.of(windows, unit=UNIT)
                alone = sum(costs.step(window, None) for window in windows)
                published = min_cost_graph_with_factors(windows, Coverage.COVERED, costs)
                started = time.perf_counter()
                searched = best_graph(windows, Coverage.COVERED, costs)
                seconds.append(time.perf_counter() - started)
                saved["published"].append(float(alone / costs.total(published)))
                saved["searched"].append(float(alone / searched.cost))
                gaps.append(searched.gap)
            for which, ratios in saved.items():
                found[f"{name} planned cost, none/{which} least"] = min(ratios)
                found[f"{name} planned cost, none/{which} most"] = max(ratios)
            found[f"{name} greatest gap to the bound"] = max(gaps)
            found[f"{name} longest search, seconds"] = max(seconds)
        return found

    def summary(self, cases: list[Case]) -> dict[str, float]:
        found = self.planning()
        for name in self.size.setups:
            ratios = [c.ratio["native/headrace"] for c in cases if c.notes.get("setup") == name]
            found[f"{name} native/headrace mean"] = mean(ratios)
            found[f"{name} paper's mean"] = PAPER[name]
            if name in PAPER_REAL:
                found[f"{name} paper's mean, real data"] = PAPER_REAL[name]
        for case in cases:
            if case.notes.get("limit"):
                found[f"{case.case.split('/')[0]} headrace/finest panes"] = case.ratio[
                    "headrace/finest panes"
                ]
        choices: list[Any] = [c for c in cases if c.notes.get("choice")]
        near = [c.notes["chosen/best"] <= 1.1 for c in choices]
        found["share of choices within 10 % of the best"] = sum(near) / len(near)
        return found


def finest_panes(setup: Setup, stream: StreamFolder, pane: int) -> ContestantRun:
    """One batch job of plain Spark: the aggregate per key and pane, written."""
    out = setup.work / "panes"
    shutil.rmtree(out, ignore_errors=True)
    started = time.perf_counter()
    rows = setup.spark.read.schema(EVENTS_SCHEMA).parquet(str(stream.folder))
    start = f"unix_millis(ts) - pmod(unix_millis(ts), {pane}L)"
    grouped = rows.selectExpr("k", "v", f"{start} AS pane").groupBy("k", "pane")
    grouped.agg({"v": "min"}).toDF("k", "pane", "least").write.parquet(str(out))
    return ContestantRun(time.perf_counter() - started)


def windows_query(windows: tuple[Hopping, ...], function: str, stream: str = "events") -> str:
    """All windows of a set in one query."""
    group = windows_sql(windows)
    return f"SELECT k, window, window_id, {function}(v) AS x FROM {stream} GROUP BY k, {group}"


def _query(windows: tuple[Hopping, ...], function: str) -> StandingQuery:
    return StandingQuery("windows", windows_query(windows, function))
