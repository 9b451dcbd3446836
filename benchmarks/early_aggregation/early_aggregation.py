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

Paper: Early Aggregation, Section 7.2.1, Section 7.2.2, Section 7.2.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from benchmarks.early_aggregation.settings import SHOWCASES, THREE, TWO, Setting, sweeps
from benchmarks.harness.fingerprints import fingerprint
from benchmarks.harness.report import Report, Setup, describe_machine
from headrace.calibration.join_setting import SCHEMA, write_stream
from headrace.contestants import (
    StandingQuery,
    StreamFolder,
    empty_folder,
    run_headrace,
    run_native,
)
from headrace.cost.early_aggregation import choices, plan_name, published_cost
from headrace.native.compare import Case, ContestantRun, difference_between
from headrace.planner.calibration import calibrated

#: A plan chosen by the model is good if it is at most this much slower than the best one.
CLOSE = 1.10


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
            place = empty_folder(self.setup.work / "run")
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
        found: dict[str, list[ContestantRun]] = {}
        prints: dict[str, Any] = {}
        for turn in range(self.size.warmups + self.size.repeats):
            names = list(hints)
            for name in names if turn % 2 == 0 else reversed(names):
                place = empty_folder(self.setup.work / "run")
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

    def _streams(self, setting: Setting, rows: int) -> list[StreamFolder]:
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
            streams.append(StreamFolder(name, folder, SCHEMA, delay="0 seconds", files_per_batch=2))
        return streams


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
