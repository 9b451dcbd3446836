"""Whether a choice was good: its work against that of the best plan, phase by phase.

Of each phase of a workload the first two epochs are left out: what an epoch teaches comes with its
results. The best plan is another one in each phase, and is asked for nothing while it changes. So
the chosen plan is compared with somebody who knows what will come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.choices.aggregating import EarlyProblem
from benchmarks.choices.early_workloads import early_workloads
from benchmarks.choices.joined_workloads import joined_workloads
from benchmarks.choices.joining import WHOLE, JoinedProblem
from benchmarks.choices.laying_out import LayoutProblem
from benchmarks.choices.measuring import Forced, Measured, Problem, measure
from benchmarks.choices.probed_workloads import probed_workloads
from benchmarks.choices.probing import ProbedProblem
from benchmarks.choices.streams import Workload
from benchmarks.choices.window_workloads import window_workloads
from headrace.optimizer import optimize
from headrace.plan.nodes import Node
from headrace.planner.policy import PlannerPolicy
from headrace.sql import plan_query

#: Epochs of a phase that are not judged, and within how much of the best a choice is good.
WARM_UP, CLOSE, RUINOUS = 2, 1.10, 2.0
#: So much more in a single epoch is nobody's ruin: 20 µs of work.
_LITTLE = 20e-6


@dataclass(frozen=True)
class Verdict:
    """What came of one workload.

    ``chosen`` is the work of the chosen plan in that of the best one, over what is judged;
    ``cold`` the same over all epochs, the first ones included; ``blind`` that of the plan which is
    chosen while nothing is known, kept for good. ``epoch`` is the worst single epoch of those
    judged, ``worst`` the worst plan, ``rows`` are those of all operators and ``cpu`` is processor
    time, of the chosen plan in that of the forced run which had the least.
    """

    workload: Workload
    plans: int
    equal: bool
    chosen: float
    cold: float
    blind: float
    epoch: float
    worst: float
    rows: float
    cpu: float
    phases: tuple[float, ...]
    cpu_seconds: tuple[float, float]
    results: int
    changes: tuple[str, ...]

    @property
    def kind(self) -> str:
        return self.workload.name.split("/")[0]


def all_workloads(length: int) -> Iterator[Workload]:
    yield from probed_workloads(length)
    yield from joined_workloads(length)
    yield from window_workloads(length)
    yield from early_workloads(length)


def problem_of(workload: Workload, plan: Node | None = None) -> Problem:
    """What is decided of a workload; of its own plan if none is given."""
    if plan is None:
        plan = optimize(plan_query(workload.sql, workload.catalog).plan).plan
    match workload.name.split("/")[0]:
        case "probes":
            return ProbedProblem(plan)
        case "joins":
            return JoinedProblem(plan)
        case "windows":
            return LayoutProblem(plan, workload)
        case _:
            return EarlyProblem(plan)


@dataclass(frozen=True)
class Judged:
    """A verdict, with the forced runs of the least and the most work, and the files of all runs."""

    verdict: Verdict
    best: Measured
    worst: Measured
    files: Sequence[dict[str, list[Path]]]


def judge(workload: Workload, folder: Path) -> Verdict:
    return judged(workload, folder).verdict


def judged(workload: Workload, folder: Path) -> Judged:
    """Run a workload by the plan that is chosen, by the forced ones, and compare their work."""
    problem = problem_of(workload)
    epochs = workload.write(folder / "in")
    policy = WHOLE if isinstance(problem, JoinedProblem) else PlannerPolicy()

    def run(forced: Forced) -> Measured:
        return measure(problem, workload, epochs, folder / "run", forced)

    chosen = run(Forced("chosen", problem.plan, policy))
    runs = [run(forced) for forced in problem.forced(chosen)]
    blind = problem.blind()
    without = next((one for one in runs if one.name == blind.name), None) or run(blind)
    everything = [chosen, without, *runs]
    problem.settle(everything)
    later = [epoch for phase in workload.judged(WARM_UP) for epoch in phase]
    ranked = sorted(runs, key=lambda one: one.work_of(later))
    verdict = _verdict(workload, problem, chosen, without, runs)
    return Judged(verdict, ranked[0], ranked[-1], epochs)


def _verdict(
    workload: Workload,
    problem: Problem,
    chosen: Measured,
    without: Measured,
    runs: Sequence[Measured],
) -> Verdict:
    judged = workload.judged(WARM_UP)
    bests = [problem.best_work(runs, epochs) for epochs in judged]
    best = sum(bests)
    later = [epoch for epochs in judged for epoch in epochs]
    whole = workload.judged(0)
    return Verdict(
        workload,
        len(runs),
        len({run.results for run in (chosen, without, *runs)}) == 1,
        _times(chosen.work_of(later), best),
        _times(
            chosen.work_of([epoch for epochs in whole for epoch in epochs]),
            sum(problem.best_work(runs, epochs) for epochs in whole),
        ),
        _times(without.work_of(later), best),
        max(
            _times(chosen.work_of([e]), problem.best_work(runs, [e]))
            for e in later
            if chosen.work_of([e]) - problem.best_work(runs, [e]) > _LITTLE or e == later[0]
        ),
        _times(max(run.work_of(later) for run in runs), best),
        _times(
            sum(chosen.rows[e] for e in later), min(sum(r.rows[e] for e in later) for r in runs)
        ),
        _times(chosen.cpu_of(later), min(run.cpu_of(later) for run in runs)),
        tuple(
            _times(chosen.work_of(epochs), one) for epochs, one in zip(judged, bests, strict=True)
        ),
        (chosen.cpu_of(later), min(run.cpu_of(later) for run in runs)),
        chosen.results,
        tuple(chosen.changes),
    )


def _times(one: float, other: float) -> float:
    """How many times the other it is; two times nothing are the same."""
    return (one + 1e-12) / (other + 1e-12)


@dataclass(frozen=True)
class Score:
    """Of some workloads, the shares that were chosen well."""

    workloads: int
    close: float
    close_cold: float
    close_blind: float
    ruinous: int
    worst_phase: float
    median_cpu: float

    @classmethod
    def of(cls, verdicts: Sequence[Verdict]) -> Score:
        count = len(verdicts)
        return cls(
            count,
            sum(v.chosen <= CLOSE for v in verdicts) / count,
            sum(v.cold <= CLOSE for v in verdicts) / count,
            sum(v.blind <= CLOSE for v in verdicts) / count,
            sum(v.epoch > RUINOUS for v in verdicts),
            max(max(v.phases) for v in verdicts),
            sorted(v.cpu for v in verdicts)[count // 2],
        )
