"""Plans that did not keep their promise are left, and tried again when something speaks for it."""

from __future__ import annotations

import json
import random

import pytest

from headrace.planner.regret import CHANGE, MOST_LESSONS, Promise, Regrets, Subject
from headrace.planner.statistics import RuntimeStatistics

JOIN = Subject("probe_order", "a join", "0")
#: A tenth of the work is promised.
GOOD = Promise(chosen=1.0, written=10.0)


def regretted(observed: float = 40.0, promise: Promise = GOOD) -> Regrets:
    regrets = Regrets()
    assert regrets.judge(JOIN, "p", promise, observed) is not None
    return regrets


def test_whoever_keeps_the_promise_is_left_alone() -> None:
    regrets = Regrets()
    for observed in (0.0, 1.0, 5.0, 10.0, 10.9):
        assert regrets.judge(JOIN, "p", GOOD, observed) is None
        assert regrets.admits(JOIN, "p", GOOD)
    assert regrets.known == {}


def test_more_than_the_written_plan_is_regretted_and_not_admitted_again() -> None:
    regrets = Regrets()
    assert regrets.admits(JOIN, "p", GOOD)
    regret = regrets.judge(JOIN, "p", GOOD, 40.0)
    assert regret is not None
    assert regret.text == (
        "took 40 times the work that was predicted, and 4 times that of the written plan"
    )
    assert not regrets.admits(JOIN, "p", GOOD)
    # The same prediction is no evidence, however often it is made.
    for _ in range(100):
        regrets.judge(JOIN, None, GOOD, 10.0)
        assert not regrets.admits(JOIN, "p", GOOD)
    # Subjects have nothing to do with each other.
    assert regrets.admits(Subject("probe_order", "a join", "1"), "p", GOOD)
    assert regrets.admits(Subject("join_order", "a join", "0"), "p", GOOD)


def test_the_written_plan_is_never_regretted() -> None:
    regrets = Regrets()
    assert regrets.judge(JOIN, None, GOOD, 1_000.0) is None
    assert regrets.known == {}


def test_who_promises_more_than_it_was_wrong_by_is_admitted() -> None:
    # It took 4 times what was promised; an eighth of that is promised now, and still a tenth of
    # what the written plan takes now.
    regrets = regretted(observed=12.0, promise=Promise(3.0, 4.0))
    assert not regrets.admits(JOIN, "p", Promise(2.9, 4.1))
    regrets.judge(JOIN, None, Promise(3.0, 4.0), 4.0)
    assert regrets.admits(JOIN, "p", Promise(2.2, 9.0))


def test_changed_circumstances_are_evidence_and_each_time_more_are_needed() -> None:
    regrets = regretted(observed=4_000.0)
    needed = CHANGE
    for times in range(1, 6):
        # All doubt is gone when predictions for the written plan have come true for a while.
        for _ in range(12):
            regrets.judge(JOIN, None, GOOD, 10.0)
        assert regrets.of(JOIN).doubt == 1.0
        assert regrets.of(JOIN).lessons["p"].times == times
        assert not regrets.admits(JOIN, "p", Promise(1.01 / needed, 10.0))
        assert not regrets.admits(JOIN, "p", Promise(1.0, 9.9 * needed))
        assert regrets.admits(JOIN, "p", Promise(1.0, 10.1 * needed))
        assert regrets.admits(JOIN, "p", Promise(0.99 / needed, 10.0))
        assert regrets.judge(JOIN, "p", GOOD, 4_000.0) is not None
        needed *= CHANGE


def test_a_written_plan_that_takes_as_much_is_evidence() -> None:
    regrets = regretted(observed=40.0)
    regrets.judge(JOIN, None, GOOD, 41.0)
    assert regrets.of(JOIN).lessons == {}
    # The prediction for the written plan was wrong too, so others are doubted as before.
    assert not regrets.admits(JOIN, "p", GOOD)
    for _ in range(2):
        regrets.judge(JOIN, None, Promise(1.0, 41.0), 41.0)
    assert regrets.admits(JOIN, "p", GOOD)


def test_other_plans_are_doubted_until_predictions_come_true() -> None:
    regrets = regretted(observed=16.0)
    assert not regrets.admits(JOIN, "q", Promise(1.0, 10.0))
    assert regrets.admits(JOIN, "q", Promise(1.0, 16.0))
    # 16, 4, 2: predictions that are wrong take nothing of it.
    regrets.judge(JOIN, None, GOOD, 15.5)
    assert regrets.of(JOIN).doubt == 16.0
    regrets.judge(JOIN, None, GOOD, 10.0)
    assert regrets.of(JOIN).doubt == 4.0
    assert regrets.admits(JOIN, "q", Promise(1.0, 10.0))
    assert not regrets.admits(JOIN, "q", Promise(3.0, 10.0))
    assert regrets.judge(JOIN, "q", Promise(2.0, 10.0), 2.5) is None
    assert regrets.of(JOIN).doubt == 2.0
    assert regrets.admits(JOIN, "q", Promise(3.0, 10.0))


def test_who_keeps_the_promise_at_last_is_as_good_as_new() -> None:
    regrets = regretted()
    assert regrets.judge(JOIN, "p", Promise(1.0, 100.0), 2.0) is None
    assert regrets.of(JOIN).lessons == {}


def test_it_is_remembered_and_forgotten() -> None:
    statistics = RuntimeStatistics()
    for number in range(MOST_LESSONS + 3):
        statistics.regrets.judge(JOIN, f"p{number}", GOOD, 40.0)
    statistics.regrets.judge(Subject("early_aggregation", "a set"), "p", GOOD, 40.0)
    assert [*statistics.regrets.of(JOIN).lessons] == [f"p{n}" for n in range(3, MOST_LESSONS + 3)]
    again = RuntimeStatistics.from_json(json.loads(json.dumps(statistics.to_json())))
    assert again.regrets == statistics.regrets
    again.forget_all_but({"a set"})
    assert [subject.name for subject in again.regrets.known] == ["a set"]


@pytest.mark.parametrize("seed", range(20))
def test_a_stream_that_deceives_is_believed_a_few_times(seed: int) -> None:
    """Nine plans of which each promises a tenth and takes ten times the written plan's work, while
    predictions wander within what is no change: each is paid for once at the most."""
    chance = random.Random(seed)
    regrets, paid = Regrets(), dict[str, int]()
    for _ in range(300):
        promise = Promise(chance.uniform(0.9, 1.1), chance.uniform(9, 11))
        plan = f"p{chance.randrange(MOST_LESSONS)}"
        if not regrets.admits(JOIN, plan, promise):
            regrets.judge(JOIN, None, promise, promise.written)
        elif regrets.judge(JOIN, plan, promise, 10 * promise.written):
            paid[plan] = paid.get(plan, 0) + 1
    assert paid
    assert set(paid.values()) == {1}
