"""Sliding windows of each input, as in the paper's Figures 6 to 10: all plans, by CPU and by rows.

Streams have a join attribute of 1/σ values, a grouping attribute of g values and a whole number to
add up; S1 groups, and the others do not unless a showcase says so. Each stream has a window of w
rows that slides with it. As in the paper a step is one unit of time, a second: λ rows come, and as
many leave. Windows are filled in one epoch before; then steps are measured.

Every plan runs twice: with its output joined anew, and kept up to date by what enters and leaves,
which is the algorithm of the paper. DuckDB aggregates below a join by itself, and would do so in
every plan: that is turned off here, so that what differs between plans is the plans.

All of it runs in this process and without Java. ``python -m
benchmarks.early_aggregation.moving_windows FOLDER [two-way] [three-way] [showcases] [conditions]``
writes a table of each to the standard output.

Paper: Early Aggregation, Section 7.2.1, Section 7.2.2, Section 7.2.3.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from benchmarks.harness.counted_rows import counting_rows
from benchmarks.harness.stepped import cpu_clock, stepped
from headrace.contestants import empty_folder
from headrace.cost.early_aggregation import (
    SetFigures,
    StreamFigures,
    Tuning,
    choices,
    plan_name,
    published_cost,
)
from headrace.engine.execution.duckdb import kernel
from headrace.optimizer import optimize
from headrace.optimizer.early.upkeep import ANEW, KEPT
from headrace.plan.nodes import Aggregate, Node, Source
from headrace.plan.types import BIGINT, STRING, TIMESTAMP, Schema
from headrace.planner.policy import PlannerPolicy
from headrace.sql import plan_query

_BEGIN = 1_714_564_800_000_000
_SECOND = 1_000_000
FIELDS = [("ts", TIMESTAMP), ("j", STRING), ("g", STRING), ("a", BIGINT)]
#: Steps that warm up, and those that are measured.
WARM_UP, STEPS = 2, 3
_AS_WRITTEN = (
    "SET TimeZone = 'UTC'",
    "SET disabled_optimizers = 'statistics_propagation,partial_aggregate_pushdown'",
)


@dataclass(frozen=True)
class MovingSetting:
    """Rows per second, rows of a window and groups of each stream; the selectivity of the join."""

    rates: tuple[int, ...]
    windows: tuple[int, ...]
    groups: tuple[int, ...]
    selectivity: float
    #: A condition of pairs beside the keys, if any.
    condition: str = ""

    @property
    def names(self) -> list[str]:
        return [f"s{number + 1}" for number in range(len(self.rates))]

    @property
    def seconds(self) -> list[float]:
        return [w / rate for w, rate in zip(self.windows, self.rates, strict=True)]

    @property
    def catalog(self) -> dict[str, Source]:
        return {name: Source(name, Schema.of(FIELDS), "ts") for name in self.names}

    @property
    def sql(self) -> str:
        first, *others = self.names
        also = f" AND {self.condition}" if self.condition else ""
        joins = " ".join(f"JOIN {name} ON {first}.j = {name}.j" for name in others)
        keys = [f"{n}.g" for n, groups in zip(self.names, self.groups, strict=True) if groups > 1]
        columns = [f"{key} AS g{i}" for i, key in enumerate(keys)]
        sums = [f"sum({name}.a) AS a{i}" for i, name in enumerate(self.names)]
        windows = [
            f"trailing({name}.ts, '{round(seconds * 1_000)} milliseconds')"
            for name, seconds in zip(self.names, self.seconds, strict=True)
        ]
        return (
            f"SELECT {', '.join([*columns, 'window', *sums])} FROM {first} {joins}{also} "
            f"GROUP BY {', '.join([*keys, *windows])}"
        )

    def plan(self, early: frozenset[int], output: str) -> Node:
        names = ", ".join(self.names[index] for index in sorted(early)) or "none"
        plan = optimize(plan_query(self.sql, self.catalog).plan).plan
        return plan.transform(
            lambda n: replace(n, early=names, output=output) if isinstance(n, Aggregate) else n
        )

    def published(self, early: frozenset[int], nested_loops: bool) -> float:
        """What the paper's model says of a second, with this engine's parameters."""
        figures = tuple(
            StreamFigures(float(rate), float(window), float(groups), self.selectivity)
            for rate, window, groups in zip(self.rates, self.windows, self.groups, strict=True)
        )
        return published_cost(SetFigures(figures), early, Tuning(), nested_loops)

    def epochs(self, folder: Path) -> list[dict[str, list[Path]]]:
        """A window of rows in the first epoch, then the rows of a second in each."""
        longest = max(self.seconds)
        borders = [0.0, *(longest + step for step in range(1 + WARM_UP + STEPS))]
        chance = np.random.default_rng(7)
        return [
            {
                name: [self._rows(folder, name, number, *span, chance)]
                for number, name in enumerate(self.names)
            }
            for span in pairwise(borders)
        ]

    def _rows(
        self,
        folder: Path,
        name: str,
        number: int,
        begin: float,
        end: float,
        chance: np.random.Generator,
    ) -> Path:
        rate = self.rates[number]
        times = np.arange(round(begin * rate), round(end * rate)) / rate
        keys = chance.integers(0, round(1 / self.selectivity), len(times))
        groups = chance.integers(0, self.groups[number], len(times))
        micros = _BEGIN + np.round(times * _SECOND).astype("int64")
        rows = pa.table(
            {
                "ts": pa.array(micros, pa.timestamp("us", "UTC")),
                "j": pa.array([f"j{key}" for key in keys]),
                "g": pa.array([f"g{group}" for group in groups]),
                "a": pa.array(chance.integers(0, 1_000, len(times)), pa.int64()),
            }
        )
        path = folder / f"{name}-{round(begin * 1_000)}.parquet"
        parquet.write_table(rows, path)
        return path


@dataclass(frozen=True)
class Step:
    """What a step took: milliseconds of CPU, all rows of all operators, and those of joins."""

    cpu: float
    rows: int
    joined: int
    results: int


def measure(setting: MovingSetting, early: frozenset[int], output: str, folder: Path) -> Step:
    """The mean of the steps of one plan."""
    epochs = setting.epochs(empty_folder(folder / "streams"))
    place = empty_folder(folder / "run")
    steps: list[Step] = []
    plan = setting.plan(early, output)
    with as_written(), stepped(plan, setting.catalog, place, PlannerPolicy()) as engine:
        for files in epochs:
            with counting_rows() as counted:
                began = cpu_clock()
                report = engine.step(files)
                cpu = cpu_clock() - began
            joined = counted.storing.joined + counted.answering.joined
            steps.append(Step(cpu * 1_000, counted.total, joined, sum(report.rows_out.values())))
    last = steps[-STEPS:]
    return Step(
        sum(step.cpu for step in last) / STEPS,
        round(sum(step.rows for step in last) / STEPS),
        round(sum(step.joined for step in last) / STEPS),
        sum(step.results for step in last),
    )


@contextmanager
def as_written() -> Iterator[None]:
    """Tasks aggregate where plans say so, and nowhere else."""
    with mock.patch.object(kernel, "_AS_SPARK", _AS_WRITTEN):
        yield


TWO = MovingSetting((300, 300), (5_000, 5_000), (150, 1), 0.1)
THREE = MovingSetting((200, 200, 200), (300, 300, 300), (20, 1, 1), 0.1)


def sweeps(
    base: MovingSetting, steps: int
) -> Iterator[tuple[str, list[tuple[str, MovingSetting]]]]:
    """Figures 6 and 7 for two streams, 8 and 9 for three: one parameter of S1 after the other."""

    def some(values: Sequence[float]) -> list[float]:
        at = [round(i * (len(values) - 1) / max(1, steps - 1)) for i in range(steps)]
        return [values[i] for i in at]

    two = len(base.rates) == 2
    yield (
        "rows in the window of S1",
        [
            (f"{w:,.0f}", replace(base, windows=(int(w), *base.windows[1:])))
            for w in some((1_000, 2_000, 3_000, 4_000, 5_000) if two else (100, 200, 300))
        ],
    )
    yield (
        "groups of S1",
        [
            (f"{g:,.0f}", replace(base, groups=(int(g), *base.groups[1:])))
            for g in some((3, 27, 243, 2_187, 19_683))
        ],
    )
    yield (
        "rows of S1 per second",
        [
            (f"{rate:,.0f}", replace(base, rates=(int(rate), *base.rates[1:])))
            for rate in some((100, 300, 500, 700, 900) if two else (100, 300, 600))
        ],
    )
    yield (
        "selectivity",
        [
            (f"{share:g}", replace(base, selectivity=share))
            for share in some((0.0005, 0.005, 0.05, 0.5))
        ],
    )


#: Figure 10: the setting, and the plan that the paper found best.
SHOWCASES = {
    "LAP": MovingSetting((300, 500), (500, 500), (1_500, 1_500), 0.01),
    "EAP10": MovingSetting((300, 500), (500, 500), (1, 1_500), 0.01),
    "EAP01": MovingSetting((300, 500), (500, 500), (1_500, 1), 0.01),
    "EAP11": MovingSetting((300, 500), (2_000, 2_000), (150, 150), 0.1),
}
#: Pairs that no set can stand for.
CONDITIONS = {
    f"{keys} keys": MovingSetting(
        (2_000, 2_000), (40_000, 40_000), (10, 1), 1 / keys, "s1.a > s2.a"
    )
    for keys in (1_000, 100, 10)
}


def all_plans(
    setting: MovingSetting,
    folder: Path,
    only_late: bool = False,
    outputs: Sequence[str] = (ANEW, KEPT),
) -> dict[str, Step]:
    """Each plan of a setting, joined anew and kept; all give as many rows."""
    everyone = frozenset(range(len(setting.rates)))
    measured: dict[str, Step] = {}
    for early in [frozenset[int]()] if only_late else choices(everyone):
        for output in outputs:
            name = f"{plan_name(early, len(everyone))} {output}"
            measured[name] = measure(setting, early, output, folder)
    assert len({step.results for step in measured.values()}) == 1, measured
    return measured


def table(title: str, label: str, points: Iterable[tuple[str, Mapping[str, Step]]]) -> None:
    """Milliseconds of CPU and thousands of joined rows of a step, by plan, line by line."""
    print(f"\n{title}\n")
    for number, (at, steps) in enumerate(points):
        if not number:
            print(f"| {label} | {' | '.join(steps)} |")
            print("|---" * (len(steps) + 1) + "|")
        cells = (f"{s.cpu:.0f} ms, {s.joined / 1_000:,.1f} k" for s in steps.values())
        print(f"| {at} | {' | '.join(cells)} |", flush=True)


def predicted(title: str, label: str, points: Sequence[tuple[str, MovingSetting]]) -> None:
    """What the paper's models say is the cheapest plan at each point."""
    for name, nested in (("hash", False), ("nested loops", True)):
        best = []
        for at, setting in points:
            everyone = frozenset(range(len(setting.rates)))
            costs = {e: setting.published(e, nested) for e in choices(everyone)}
            cheapest = min(costs, key=lambda early: costs[early])
            best.append(f"{at}: {plan_name(cheapest, len(everyone))}")
        print(f"{title}, {label}, {name}, cheapest by the paper's model: {', '.join(best)}")


def main(arguments: Sequence[str]) -> None:
    place, *wanted = arguments
    folder = Path(place)
    for arity, base, steps in (("two-way", TWO, 3), ("three-way", THREE, 2)):
        if not wanted or arity in wanted:
            outputs = (ANEW, KEPT) if base is TWO else (KEPT,)
            for label, points in sweeps(base, steps):
                found = ((at, all_plans(s, folder, outputs=outputs)) for at, s in points)
                table(arity, label, found)
                predicted(arity, label, points)
    if not wanted or "showcases" in wanted:
        label, cases = "best in the paper", list(SHOWCASES.items())
        table("Showcases", label, ((name, all_plans(s, folder)) for name, s in cases))
        predicted("Showcases", label, cases)
    if not wanted or "conditions" in wanted:
        late = ((name, all_plans(s, folder, True)) for name, s in CONDITIONS.items())
        table("A condition beside the keys", "keys", late)


if __name__ == "__main__":
    main(sys.argv[1:])
