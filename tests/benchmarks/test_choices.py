"""The bench of choices, without Spark: what it counts is right, and some choices stay good."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from benchmarks.choices.choices import SIZES, case_of, chosen_workloads, figures_of
from benchmarks.choices.judging import CLOSE, RUINOUS, Verdict, all_workloads, judge, problem_of
from benchmarks.choices.measuring import Forced, Measured, Problem, measure
from benchmarks.choices.probing import ProbedProblem
from benchmarks.choices.streams import Workload
from headrace.plan.join_graph import left_deep, with_order
from headrace.planner.policy import PlannerPolicy

#: Workloads whose plans differ widely, with what the worst plan takes in the best at least.
GUARDED = {
    "probes/snowflake, static/skew": 1.4,
    "joins/star of 3/skew": 2.0,
    "windows/multiples/few rows": 2.0,
    "early/showcase LAP": 1.3,
}
MORE = {
    "probes/star of 3, static/drift": 1.5,
    "probes/clique of 4/skew": 2.0,
    "joins/clique of 4/plain": 3.0,
    "joins/star of 5/drift": 2.0,
    "windows/two families/many keys": 1.2,
    "early/3 streams/few groups/1": 4.0,
}
LENGTH = 3


def workload(name: str) -> Workload:
    return next(one for one in all_workloads(LENGTH) if one.name == name)


def check(name: str, difference: float, folder: Path) -> Verdict:
    verdict = judge(workload(name), folder)
    assert verdict.equal
    assert verdict.results > 0
    assert verdict.chosen <= CLOSE, verdict
    assert verdict.epoch <= RUINOUS, verdict
    # There was something to choose, and nothing is better than the best.
    assert verdict.worst >= difference, verdict
    assert min(verdict.chosen, verdict.cold, verdict.blind) >= 0.999, verdict
    return verdict


@pytest.mark.parametrize("name", GUARDED)
def test_choices_stay_good(name: str, tmp_path: Path) -> None:
    verdict = check(name, GUARDED[name], tmp_path)
    case = case_of(verdict)
    assert case.equal
    assert case.ratio["chosen/best"] == verdict.chosen
    figures = figures_of(verdict.kind, [verdict])
    assert figures[f"{verdict.kind}: share within 1.1 of the best"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE)
def test_more_choices_stay_good(name: str, tmp_path: Path) -> None:
    check(name, MORE[name], tmp_path)


def run(problem: Problem, one: Workload, folder: Path, forced: Forced) -> Measured:
    return measure(problem, one, one.write(folder / "in"), folder / "run", forced)


def test_the_best_order_follows_from_a_few_that_are_run(tmp_path: Path) -> None:
    """The best order is put together from steps of some orders: all are run to see."""
    one = replace(workload("probes/bushy/burst"), lengths=(1, 1))
    problem = problem_of(one)
    assert isinstance(problem, ProbedProblem)
    chosen = run(problem, one, tmp_path, Forced("chosen", problem.plan, PlannerPolicy()))
    some = [run(problem, one, tmp_path, forced) for forced in problem.forced(chosen)]
    every = [
        run(
            problem,
            one,
            tmp_path,
            Forced("", with_order(problem.plan, problem.join, left_deep(order)), PlannerPolicy()),
        )
        for order in permutations(range(4))
        # Both other inputs of the two that bring rows come after one of them, in each way.
        if order[0] == 0 or order[:2] == (1, 3)
    ]
    assert len(some) < len(every)
    for epochs in one.judged(0):
        best = problem.best_work(some, epochs)
        assert best == pytest.approx(problem.best_work(every, epochs))
        assert best <= min(run.work_of(epochs) for run in every)


def test_what_is_counted_is_what_is_there(tmp_path: Path) -> None:
    one = workload("windows/multiples/few rows")
    problem = problem_of(one)
    chosen = run(problem, one, tmp_path, Forced("chosen", problem.plan, PlannerPolicy()))
    rows = one.streams[0].phases[0].rows
    for counted in chosen.counted.values():
        # All rows are read and grouped once, and as many groups are stored as come of them.
        assert counted.storing.grouped == rows <= counted.storing.scanned
        assert 0 < counted.storing.written == counted.storing.watched < rows
        assert counted.storing.statements == 1
    assert chosen.results > 0


def test_workloads_are_many_and_of_all_kinds() -> None:
    names = [one.name for one in all_workloads(LENGTH)]
    assert len(set(names)) == len(names) >= 60
    assert set(GUARDED) <= set(names)
    for trait in ("skew", "drift", "burst", "correlated", "static", "star of 5", "snowflake"):
        assert any(trait in name for name in names), trait
    for size in SIZES.values():
        assert all(list(chosen_workloads(size, kind)) for kind in ("probes", "joins", "windows"))
