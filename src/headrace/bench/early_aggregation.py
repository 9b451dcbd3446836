"""Early aggregation: all plans of aggregation joins, measured and predicted, and plain Spark.

The experiments of the paper on aggregation join queries (Figures 6 to 10) on this engine. Streams
have a join attribute of 1/σ values, a grouping attribute of g values and a whole number to add up;
S1 groups, and the others do not unless a showcase says so. Windows tumble: in a window of T seconds
there are w = λT rows of a stream, so that a window of other size is one of other length.

- *sweeps*: one parameter after the other, for joins of two and of three streams, every plan;
- *showcases*: four settings, in each of which the paper found another plan to be the best;
- *default*: the paper's default setting over many rows, the chosen plan against aggregating late
  and, for fewer rows, against plain Structured Streaming.

A plan is measured by what its epochs take; starting and stopping queries is the same for all.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from headrace.bench.contestants import FileStream, StandingQuery, run_headrace, run_native
from headrace.bench.fingerprints import fingerprint
from headrace.bench.harness import (
    Case,
    Outcome,
    Report,
    Setup,
    describe_machine,
    difference_between,
)
from headrace.cost.early_aggregation import (
    Derived,
    StreamFigures,
    Tuning,
    choices,
    plan_name,
    published_cost,
)
from headrace.optimizer.early.shape import AggregationJoin, aggregation_join
from headrace.plan.nodes import Aggregate
from headrace.planner.calibration import calibrated
from headrace.planner.early_aggregation import SetLoads, plan_costs
from headrace.stats.load import Load

SCHEMA = "ts TIMESTAMP, j STRING, g STRING, a BIGINT"
#: A plan chosen by the model is good if it is at most this much slower than the best one.
CLOSE = 1.10


@dataclass(frozen=True)
class Setting:
    """Figures of the streams, and the seconds of a window."""

    rates: tuple[float, ...]
    groups: tuple[int, ...]
    selectivity: float
    seconds: float

    @property
    def names(self) -> list[str]:
        return [f"s{number}" for number in range(1, len(self.rates) + 1)]

    @property
    def figures(self) -> Derived:
        return Derived(
            tuple(
                StreamFigures(rate, rate * self.seconds, groups, self.selectivity)
                for rate, groups in zip(self.rates, self.groups, strict=True)
            )
        )

    def sql(self, hint: str = "") -> str:
        """Sums of every stream's numbers, by the groups of those that have some."""
        first, *others = self.names
        window = f"window({{}}.ts, '{self.seconds * 1_000:.0f} milliseconds')"
        joins = " ".join(
            f"JOIN {name} ON {first}.j = {name}.j "
            f"AND {window.format(first)} = {window.format(name)}"
            for name in others
        )
        keys = [f"{n}.g" for n, groups in zip(self.names, self.groups, strict=True) if groups > 1]
        columns = [f"{key} AS g{i}" for i, key in enumerate(keys)]
        sums = [f"sum({name}.a) AS a{i}" for i, name in enumerate(self.names)]
        grouping = ", ".join([*keys, window.format(first)])
        return (
            f"SELECT {hint} {', '.join([*columns, 'window', *sums])} FROM {first} {joins} "
            f"GROUP BY {grouping}"
        )

    @property
    def shape(self) -> AggregationJoin:
        """The query as the planner sees it."""
        from headrace.plan.nodes import Source
        from headrace.plan.types import BIGINT, STRING, TIMESTAMP, Schema
        from headrace.sql import plan_query

        fields = [("ts", TIMESTAMP), ("j", STRING), ("g", STRING), ("a", BIGINT)]
        catalog = {name: Source(name, Schema.of(fields), "ts") for name in self.names}
        plan = plan_query(self.sql(), catalog).plan
        node = next(n for n in plan.walk() if isinstance(n, Aggregate))
        found = aggregation_join(node)
        assert isinstance(found, AggregationJoin)
        return found

    def predicted(self, tuning: Tuning) -> dict[frozenset[int], float]:
        """What the engine's model says of each plan, per millisecond of the streams."""
        shape = self.shape
        values = 1 / self.selectivity
        sets = {
            index: Load(rate * self.seconds, self.seconds * 1_000, groups * values)
            for index, (rate, groups) in enumerate(zip(self.rates, self.groups, strict=True))
        }
        keys = {
            (index, position): values
            for position, members in enumerate(shape.graph.key_classes)
            for index, _ in members
        }
        return plan_costs(shape, SetLoads(sets, {}, keys), tuning)


TWO = Setting((300, 300), (150, 1), 0.1, 5_000 / 300)
THREE = Setting((200, 200, 200), (20, 1, 1), 0.1, 300 / 200)

#: Figure 10: the setting, and the plan that the paper found best.
SHOWCASES = {
    "LAP": Setting((300, 500), (1500, 1500), 0.01, 1.0),
    "EAP10": Setting((300, 500), (1, 1500), 0.01, 1.0),
    "EAP01": Setting((300, 500), (1500, 1), 0.01, 1.0),
    "EAP11": Setting((300, 500), (150, 150), 0.1, 4.0),
}


def sweeps(base: Setting, steps: int) -> Iterator[tuple[str, str, list[tuple[float, Setting]]]]:
    """Name, label of the axis, and points of each sweep around a default setting."""
    window = base.seconds * base.rates[0]
    yield (
        "window size",
        "rows in a window",
        [
            (share * window, replace(base, seconds=share * base.seconds))
            for share in _spread((0.2, 0.4, 0.6, 0.8, 1.0), steps)
        ],
    )
    yield (
        "groups",
        "groups of S1",
        [
            (3.0**power, replace(base, groups=(3**power, *base.groups[1:])))
            for power in _spread((1, 3, 5, 7, 9), steps)
        ],
    )
    yield (
        "stream rate",
        "rows of S1 per second",
        [
            (rate, replace(base, rates=(rate, *base.rates[1:])))
            for rate in _spread((100.0, 300.0, 500.0, 700.0, 900.0), steps)
        ],
    )
    yield (
        "selectivity",
        "join selectivity",
        [
            (selectivity, replace(base, selectivity=selectivity))
            # With three streams and 0.5, aggregating late would make billions of rows.
            for selectivity in _spread((0.0005, 0.005, 0.05, 0.5)[: 6 - len(base.rates)], steps)
        ],
    )


T = TypeVar("T")


def _spread(values: Sequence[T], count: int) -> Sequence[T]:
    """So many of the values, the first and the last among them; the middle one if it is one."""
    if count >= len(values):
        return values
    if count == 1:
        return [values[len(values) // 2]]
    return [values[round(i * (len(values) - 1) / (count - 1))] for i in range(count)]


@dataclass(frozen=True)
class Size:
    """How much is run at a scale.

    ``rows`` of a stream, ``sweeps`` with so many ``steps`` for two and for three streams, and so
    many ``showcases``; ``warmups`` and ``repeats`` of each plan; rows of the ``default`` setting,
    and those that plain Spark gets of it.
    """

    rows: int
    sweeps: int
    steps: tuple[int, int]
    showcases: int
    warmups: int
    repeats: int
    default: int
    native: int


SIZES = {
    "tiny": Size(2_000, 1, (1, 1), 1, 0, 1, 2_000, 2_000),
    "small": Size(60_000, 1, (2, 1), 4, 1, 1, 200_000, 10_000),
    "full": Size(200_000, 4, (5, 2), 4, 1, 2, 1_000_000, 50_000),
}


def run(setup: Setup) -> Report:
    bench = _Bench(setup, SIZES[setup.scale])
    cases = [*bench.default(), *bench.sweeps(), *bench.showcases()]
    machine = describe_machine(setup.spark)
    return Report("early-aggregation", setup.scale, machine, cases, _summary(cases))


class _Bench:
    def __init__(self, setup: Setup, size: Size) -> None:
        self.setup = setup
        self.size = size
        self.tuning = calibrated()
        points = sum(len(p) for base in (TWO, THREE) for _, _, p in self._sweeps_of(base))
        self.share = 1 / (4 + points + size.showcases)

    def _sweeps_of(self, base: Setting) -> list[tuple[str, str, list[tuple[float, Setting]]]]:
        steps = self.size.steps[len(base.rates) - 2]
        return list(sweeps(base, steps))[: self.size.sweeps]

    # The default setting

    def default(self) -> list[Case]:
        cases = []
        for name, setting in (("two-way", TWO), ("three-way", THREE)):
            chosen = {"late": "/*+ LATE_AGGREGATION */", "chosen": ""}
            rows = self.size.default // len(setting.rates)
            cases.append(
                self._compare(f"default/{name}/{self.size.default:,} rows", setting, rows, chosen)
            )
            cases.append(self._native(name, setting))
        return cases

    def _native(self, name: str, setting: Setting) -> Case:
        """Plain Structured Streaming joins every pair, so it gets fewer rows."""
        rows = self.size.native // len(setting.rates)
        streams = self._streams(setting, rows)
        standing = [StandingQuery("q", setting.sql())]
        found: dict[str, list[float]] = {"native": [], "chosen": []}
        results: list[Mapping[str, Any]] = []
        for turn in range(self.size.warmups + self.size.repeats):
            place = _empty(self.setup.work / "run")
            native = run_native(self.setup.spark, streams, standing, place)
            ours = run_headrace(self.setup.spark, streams, standing, place)
            results = [native.results, ours.results]
            if turn >= self.size.warmups:
                found["native"].append(native.seconds)
                found["chosen"].append(ours.seconds)
            self.setup.say(
                f"{name}: native took {native.seconds:.2f} s, chosen {ours.seconds:.2f} s"
            )
        self.setup.advance(self.share)
        difference = difference_between(*results)
        seconds = {contestant: median(runs) for contestant, runs in found.items()}
        notes: dict[str, Any] = {"target": "native/chosen >= 10", "runs": found}
        if difference is not None:
            notes["difference"] = difference
        return Case(
            f"native/{name}/{self.size.native:,} rows",
            difference is None,
            self.size.native,
            seconds,
            {"native/chosen": seconds["native"] / seconds["chosen"]},
            notes,
        )

    # All plans of a setting

    def sweeps(self) -> list[Case]:
        cases = []
        for arity, base in (("two-way", TWO), ("three-way", THREE)):
            for name, label, points in self._sweeps_of(base):
                measured = [
                    self._all_plans(f"{arity}/{name}/{at:g}", setting) for at, setting in points
                ]
                series = _series(label, [at for at, _ in points], measured)
                last = measured.pop()
                cases += [*measured, replace(last, notes={**last.notes, "series": series})]
        return cases

    def showcases(self) -> list[Case]:
        return [
            self._all_plans(f"showcase/{best}", setting, best)
            for best, setting in list(SHOWCASES.items())[: self.size.showcases]
        ]

    def _all_plans(self, case: str, setting: Setting, published: str | None = None) -> Case:
        """Every choice of inputs, measured, and what two models say of it."""
        everyone = frozenset(range(len(setting.rates)))
        hints = {
            plan_name(choice, len(everyone)): (
                f"/*+ EARLY_AGGREGATION({', '.join(setting.names[i] for i in sorted(choice))}) */"
            )
            for choice in choices(everyone)
        }
        found = self._compare(case, setting, self.size.rows, hints)
        engine = setting.predicted(self.tuning)
        paper = {c: published_cost(setting.figures, c, self.tuning) for c in engine}
        seconds = found.seconds
        best = min(seconds, key=lambda plan: seconds[plan])
        predicted = plan_name(min(engine, key=lambda c: engine[c]), len(everyone))
        as_published = plan_name(min(paper, key=lambda c: paper[c]), len(everyone))
        notes = {
            **found.notes,
            "best": best,
            "predicted": predicted,
            "predicted by the paper's model": as_published,
            "costs": {plan_name(c, len(everyone)): cost for c, cost in engine.items()},
            "costs by the paper's model": {
                plan_name(c, len(everyone)): cost for c, cost in paper.items()
            },
            "close": seconds[predicted] <= CLOSE * seconds[best],
            "close by the paper's model": seconds[as_published] <= CLOSE * seconds[best],
        }
        if published is not None:
            notes["best in the paper"] = published
            notes["paper's best is close"] = seconds[published] <= CLOSE * seconds[best]
        return replace(found, notes=notes)

    def _compare(self, case: str, setting: Setting, rows: int, hints: dict[str, str]) -> Case:
        """Plans in turns; results are compared by count and checksum."""
        streams = self._streams(setting, rows)
        found: dict[str, list[Outcome]] = {}
        prints: dict[str, Any] = {}
        for turn in range(self.size.warmups + self.size.repeats):
            names = list(hints)
            for name in names if turn % 2 == 0 else reversed(names):
                place = _empty(self.setup.work / "run")
                standing = [StandingQuery("q", setting.sql(hints[name]))]
                outcome = run_headrace(self.setup.spark, streams, standing, place, read=False)
                printed = fingerprint(place / "headrace" / "out")
                if prints.setdefault("first", printed) != printed:
                    prints["difference"] = f"{name}: {printed} instead of {prints['first']}"
                if turn >= self.size.warmups:
                    found.setdefault(name, []).append(outcome)
        seconds = {name: median(sum(o.epoch_seconds) for o in runs) for name, runs in found.items()}
        self.setup.advance(self.share)
        first, *others = hints
        self.setup.say(f"{case}: " + ", ".join(f"{n} {s:.3f}" for n, s in seconds.items()))
        notes: dict[str, Any] = {
            "runs": {n: [round(sum(o.epoch_seconds), 3) for o in r] for n, r in found.items()},
            "whole runs": {n: round(median(o.seconds for o in r), 3) for n, r in found.items()},
            "results": prints["first"][0],
        }
        if "difference" in prints:
            notes["difference"] = prints["difference"]
        ratio = {f"{first}/{name}": seconds[first] / seconds[name] for name in others}
        equal = "difference" not in prints
        return Case(case, equal, rows * len(streams), seconds, ratio, notes)

    def _streams(self, setting: Setting, rows: int) -> list[FileStream]:
        """Streams that cover the same time; the one of the highest rate has so many rows."""
        span = rows / max(setting.rates)
        streams = []
        for number, (name, rate, groups) in enumerate(
            zip(setting.names, setting.rates, setting.groups, strict=True)
        ):
            count = max(2, round(span * rate))
            folder = (
                self.setup.work
                / "streams"
                / (f"{name}-{count}-{rate:g}-{groups}-{setting.selectivity:g}")
            )
            if not folder.exists():
                write_stream(folder, count, rate, groups, round(1 / setting.selectivity), number)
            streams.append(FileStream(name, folder, SCHEMA, delay="0 seconds", files_per_batch=2))
        return streams


def write_stream(
    folder: Path, rows: int, rate: float, groups: int, values: int, salt: int, files: int = 8
) -> None:
    """Rows at a steady rate with join, grouping and aggregation attributes, all independent."""
    import duckdb

    folder.mkdir(parents=True)
    with duckdb.connect() as connection:
        for number in range(files):
            first, last = rows * number // files, rows * (number + 1) // files
            connection.execute(
                f"COPY (SELECT make_timestamptz(1714564800000000 + "
                f"CAST(i * {1_000_000 / rate!r} AS BIGINT)"
                # The last row is of long after, so that every window before it closes.
                f" + CASE WHEN i = {rows - 1} THEN 3600000000 ELSE 0 END) AS ts, "
                f"'j' || (hash(i * 2 + 1, {salt}) % {values}) AS j, "
                f"'g' || (hash(i * 3 + 2, {salt}) % {groups}) AS g, "
                f"CAST(hash(i, {salt}) % 1000 AS BIGINT) AS a "
                f"FROM range({first}, {last}) t(i)) "
                f"TO '{folder}/{number:04d}.parquet' (FORMAT parquet)"
            )


def _series(label: str, at: Sequence[float], cases: Sequence[Case]) -> dict[str, Any]:
    """Measured seconds of every plan, and predicted ones on the scale of the measured."""
    plans = list(cases[0].seconds)
    lines = {f"{plan}, measured": [case.seconds[plan] for case in cases] for plan in plans}
    measured = sum(value for values in lines.values() for value in values)
    predicted = sum(case.notes["costs"][plan] for case in cases for plan in plans)
    for plan in plans:
        lines[f"{plan}, predicted"] = [
            case.notes["costs"][plan] * measured / predicted for case in cases
        ]
    return {"x": label, "y": "seconds", "at": list(at), "lines": lines}


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _summary(cases: list[Case]) -> dict[str, float]:
    found = {
        f"{case.case}: {name}": value
        for case in cases
        if case.case.startswith(("default", "native"))
        for name, value in case.ratio.items()
    }
    for kind in ("two-way", "three-way", "showcase"):
        points = [case for case in cases if case.case.startswith(kind)]
        if points:
            for model in ("close", "close by the paper's model"):
                share = sum(bool(case.notes[model]) for case in points) / len(points)
                found[f"{kind}: chosen plan {model}, share of {len(points)} points"] = share
    return found
