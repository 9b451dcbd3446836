"""Choices: is the plan that the planner chooses the best of those that there are?

Generated workloads of four kinds of decisions, every plan forced and measured:

- *probes*: in which order new rows of a join without a bound on time look the other inputs up;
- *joins*: in which order the joins of an epoch are computed;
- *windows*: which panes are stored for many windows;
- *early*: which inputs of a join are aggregated before it.

Their work (rows read, looked up, joined and stored, each at the price that the planner has for it)
is counted in this process and without Spark, and is the same on every run. Beside it stand the rows
of all of DuckDB's operators, which know nothing of the planner's prices, and processor time.

- *timed*: some of these workloads on Spark, by the clock: the chosen plan, and those of the least
  and of the most work.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.choices.judging import CLOSE, Score, Verdict, all_workloads, judge
from benchmarks.choices.streams import Workload
from benchmarks.choices.timed import timed_case
from benchmarks.harness.parts import Found, Parts, run_parts
from benchmarks.harness.report import Report, Setup
from headrace.contestants import empty_folder
from headrace.native.compare import Case

KINDS = ("probes", "joins", "windows", "early")
TARGETS = (
    f"within {CLOSE - 1:.0%} of the best in 95 % of the workloads with statistics and in 80 % "
    "without; never above twice the best after two epochs"
)


@dataclass(frozen=True)
class Size:
    """What is run at a scale: epochs of a phase, and one in so many workloads."""

    length: int
    every: int
    timed: int
    repeats: int


SIZES = {
    "tiny": Size(3, 24, 1, 1),
    "small": Size(4, 6, 4, 1),
    "full": Size(4, 1, 12, 3),
}


@dataclass
class ChoiceBench:
    setup: Setup
    size: Size


def run(setup: Setup) -> Report:
    bench = ChoiceBench(setup, SIZES[setup.scale])
    return run_parts("choices", setup, PARTS, bench)


def chosen_workloads(size: Size, kind: str) -> Iterator[Workload]:
    """The workloads of a kind; the same ones at every run, of all shapes and traits."""
    own = [one for one in all_workloads(size.length) if one.name.split("/")[0] == kind]
    random.Random(kind).shuffle(own)
    yield from own[:: size.every]


def _kind(kind: str, bench: ChoiceBench) -> Found:
    verdicts = []
    for workload in chosen_workloads(bench.size, kind):
        verdicts.append(judge(workload, empty_folder(bench.setup.work / "choices")))
        bench.setup.say(text_of(verdicts[-1]))
    return [case_of(verdict) for verdict in verdicts], figures_of(kind, verdicts)


def _timed(bench: ChoiceBench) -> Found:
    """As many workloads of each kind."""
    every = [[*chosen_workloads(bench.size, kind)] for kind in KINDS]
    wanted = [one for some in zip(*every, strict=False) for one in some][: bench.size.timed]
    cases = [timed_case(bench.setup, one, bench.size.repeats) for one in wanted]
    return cases, {f"{c.case}, {name}": value for c in cases for name, value in c.ratio.items()}


PARTS: Parts[ChoiceBench] = {
    **{kind: (partial(_kind, kind), 0.2) for kind in KINDS},
    "timed": (_timed, 0.2),
}


def text_of(verdict: Verdict) -> str:
    phases = " ".join(f"{phase:.2f}" for phase in verdict.phases)
    return (
        f"{verdict.workload.name}: {verdict.chosen:.2f} of the best of {verdict.plans} ({phases}; "
        f"worst epoch {verdict.epoch:.2f}), from the first epoch {verdict.cold:.2f}, without "
        f"statistics {verdict.blind:.2f}, the worst {verdict.worst:.2f}; rows {verdict.rows:.2f}, "
        f"CPU {verdict.cpu:.2f}{'' if verdict.equal else '; RESULTS DIFFER'}"
    )


def case_of(verdict: Verdict) -> Case:
    chosen, least = verdict.cpu_seconds
    notes: dict[str, Any] = {
        "target": TARGETS,
        "traits": verdict.workload.traits,
        "plans": verdict.plans,
        "results": verdict.results,
        "phases": verdict.phases,
        "changes": verdict.changes,
        "seconds": "of processor time",
    }
    if not verdict.equal:
        notes["difference"] = "plans have other numbers of results"
    return Case(
        verdict.workload.name,
        verdict.equal,
        verdict.workload.rows,
        {"chosen": chosen, "least of the forced": least},
        {
            "chosen/best": verdict.chosen,
            "chosen/best, from the first epoch": verdict.cold,
            "chosen/best, worst epoch": verdict.epoch,
            "without statistics/best": verdict.blind,
            "worst/best": verdict.worst,
            "rows, chosen/least": verdict.rows,
            "CPU, chosen/least": verdict.cpu,
        },
        notes,
    )


def figures_of(kind: str, verdicts: Sequence[Verdict]) -> dict[str, float]:
    score = Score.of(verdicts)
    return {
        f"{kind}: workloads": float(score.workloads),
        f"{kind}: share within {CLOSE:g} of the best": score.close,
        f"{kind}: the same from the first epoch": score.close_cold,
        f"{kind}: the same without statistics": score.close_blind,
        f"{kind}: workloads with an epoch above twice the best": float(score.ruinous),
        f"{kind}: worst phase": score.worst_phase,
        f"{kind}: median of CPU, chosen/least": score.median_cpu,
    }
