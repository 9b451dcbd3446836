"""Rows that came out of joins of sets: what is made of them, and what choices are held to."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from headrace.optimizer import optimize
from headrace.optimizer.early.shape import AggregationJoin, aggregation_join
from headrace.plan.nodes import Aggregate, Source
from headrace.plan.types import BIGINT, TIMESTAMP, Schema
from headrace.planner.choices import Choices, EarlyInputs
from headrace.planner.early_aggregation import EarlyChoice, match_of
from headrace.planner.joined_sets import SetJoinRun, learn_set_joins
from headrace.planner.policy import PlannerPolicy
from headrace.planner.statistics import RuntimeStatistics, SetMatch
from headrace.sql import plan_query
from headrace.stats.load import Load, SetWork, skew_of

NOTHING, A, B, BOTH = (frozenset(inputs) for inputs in ((), (0,), (1,), (0, 1)))
COLUMNS = Schema.of([("k", BIGINT), ("g", BIGINT), ("ts", TIMESTAMP)])
SQL = (
    "SELECT a.g, window, count(*) AS n FROM a JOIN b ON a.k = b.k AND "
    "window(a.ts, '10 seconds') = window(b.ts, '10 seconds') "
    "GROUP BY a.g, window(a.ts, '10 seconds')"
)
ROWS, SPAN = 1_000.0, 10_000.0


@dataclass(frozen=True)
class StoredSet:
    store: str
    joined_by: tuple[tuple[int, str], ...] = ((0, "k"),)


def shape() -> AggregationJoin:
    catalog = {name: Source(name, COLUMNS, "ts") for name in "ab"}
    plan = optimize(plan_query(SQL, dict(catalog)).plan).plan
    found = aggregation_join(next(n for n in plan.walk() if isinstance(n, Aggregate)))
    assert isinstance(found, AggregationJoin)
    return found


CHOICE = EarlyChoice(shape(), (StoredSet("sa"), StoredSet("sb")), PlannerPolicy(), None)


def known(keys: float = 20.0) -> RuntimeStatistics:
    statistics = RuntimeStatistics()
    for store in ("sa", "sb"):
        statistics.sets[store] = Load(ROWS, SPAN, keys)
        statistics.keys[store, "k"] = keys
    return statistics


def learn(
    statistics: RuntimeStatistics,
    inputs: frozenset[int],
    epoch: int,
    found: int | None,
    work: dict[str, SetWork] | None = None,
) -> Choices:
    """An epoch in which a hundred rows were expected."""
    choices = Choices()
    loads = CHOICE.loads(statistics, lambda store: 0)
    choices.early[CHOICE.identity] = EarlyInputs(epoch, inputs, CHOICE, loads)
    results = {} if found is None else {BOTH: found}
    runs = [SetJoinRun(CHOICE.identity, (ROWS, ROWS), 100.0, results)]
    learn_set_joins(runs, work or {}, epoch, statistics, choices)
    return choices


def test_what_ran_tells_of_what_did_not() -> None:
    skews = {0: 3.0, 1: 2.0}
    assert match_of(BOTH, {}, skews) == 1.0
    assert match_of(BOTH, {BOTH: 5.0}, skews) == 5.0
    # Rows that were grouped stand for as many as their groups are unequal.
    assert match_of(A, {BOTH: 5.0}, skews) == 10.0
    assert match_of(NOTHING, {BOTH: 5.0}, skews) == 30.0
    assert match_of(NOTHING, {BOTH: 5.0, A: 7.0}, skews) == 21.0
    # What rows do not find, groups of them do not find either; that they find more says nothing.
    assert match_of(BOTH, {NOTHING: 0.1, A: 0.3}, skews) == 0.1
    assert match_of(BOTH, {NOTHING: 50.0}, skews) == 1.0
    assert match_of(B, {A: 50.0}, skews) == 1.0


def test_groups_are_as_unequal_as_their_root_mean_square() -> None:
    assert skew_of(squares=100.0 * 4, rows=200.0, groups=100.0) == 1.0
    # Half of the rows in one of a hundred groups.
    assert skew_of(squares=100.0**2 + 99, rows=199.0, groups=100.0) == pytest.approx(5.05, rel=0.01)


def test_what_ran_once_comes_nearer_to_what_runs() -> None:
    statistics = known()
    learn(statistics, NOTHING, 1, 900)
    assert statistics.set_matches[CHOICE.identity] == {NOTHING: SetMatch(9.0, 1)}
    learn(statistics, BOTH, 2, 100)
    matches = statistics.set_matches[CHOICE.identity]
    assert matches == {NOTHING: SetMatch(3.0, 1), BOTH: SetMatch(1.0, 2)}
    # Rows that were not counted say nothing.
    learn(statistics, BOTH, 3, None)
    assert statistics.set_matches[CHOICE.identity] == matches
    again = RuntimeStatistics.from_json(statistics.to_json())
    assert again.set_matches == statistics.set_matches
    # Where the same choice finds something else, the others are of another time.
    learn(statistics, BOTH, 4, 500)
    assert statistics.set_matches[CHOICE.identity] == {BOTH: SetMatch(5.0, 4)}
    again.forget_all_but(())
    assert again.set_matches == {}


def test_explain_tells_rows_beside_those_that_were_seen() -> None:
    statistics = known()
    described = CHOICE.described(statistics, Choices(), lambda store: 0)
    assert "the join gives ~" in described.text
    assert "seen" not in described.text
    learn(statistics, BOTH, 1, 400)
    described = CHOICE.described(statistics, Choices(), lambda store: 0)
    joined = described.to_json()["joined"]
    assert joined["seen"]["value"] == pytest.approx(4 * joined["estimated"]["value"])
    assert "rows per hour; seen: ~" in described.text


def test_a_choice_that_takes_more_than_late_aggregation_is_left() -> None:
    statistics, usual = known(), SetWork(ROWS, SPAN, ROWS, 20.0)
    choices = learn(statistics, BOTH, 1, 100, {"sa": usual, "sb": usual})
    assert choices.changes == []
    # Ten times the rows were grouped than came.
    again = SetWork(ROWS, SPAN, 10 * ROWS, 20.0)
    choices = learn(statistics, BOTH, 2, 100, {"sa": again, "sb": again})
    (change,) = choices.changes
    assert change.startswith("early aggregation of nothing again (was a, b, which took ")
    assert choices.early[CHOICE.identity].inputs == NOTHING
    # The same figures do not bring it back, and an epoch without work says nothing.
    known_now = CHOICE.loads(statistics, lambda store: 0)
    assert known_now is not None
    for epoch in range(3, 20):
        choices = learn(statistics, NOTHING, epoch, 100)
        choices.early[CHOICE.identity] = EarlyInputs(epoch, NOTHING, CHOICE, known_now)
        assert BOTH not in {chosen_in(statistics, choices, epoch + 1)}
    assert learn(statistics, BOTH, 30, 100).changes == []


def chosen_in(statistics: RuntimeStatistics, choices: Choices, number: int) -> frozenset[int]:
    @dataclass
    class Planning:
        number: int
        statistics: RuntimeStatistics
        choices: Choices

        def stored_rows(self, store: str, /) -> int:
            return 0

    return CHOICE.inputs(Planning(number, statistics, choices))
