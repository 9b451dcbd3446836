"""Figures that know what they do not know, statistics over epochs, and costs from them."""

from __future__ import annotations

import itertools
import math
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cost import Cost, cheaper, flow_cost, ranked, row_flow
from headrace.errors import PlanError
from headrace.plan.durations import MINUTE, SECOND
from headrace.plan.nodes import IntervalBound, JoinKind, Node, SameWindow, Union
from headrace.plan.windows import Hopping, Session, tumbling
from headrace.stats import (
    NO_STATISTICS,
    UNKNOWN,
    Estimated,
    Exact,
    Figure,
    Observation,
    Statistics,
    StreamStatistics,
)
from headrace.stats.figure import estimated, total
from tests.support.build import call, col, count, group, join, lit, select, where
from tests.support.plans import BIDS, CLICKS, ITEMS

numbers = st.floats(-1e6, 1e6)
figures = st.one_of(numbers.map(Exact), numbers.map(Estimated), st.just(UNKNOWN))
operations = st.sampled_from([operator.add, operator.sub, operator.mul, operator.truediv])


@given(figures, figures, operations)
def test_arithmetic_is_sound(left: Figure, right: Figure, operation: object) -> None:
    result = operation(left, right)  # type: ignore[operator]
    if not (left.known and right.known):
        assert result == UNKNOWN
        return
    if operation is operator.truediv and right.number == 0:
        assert result == UNKNOWN
        return
    value = operation(left.number, right.number)  # type: ignore[operator]
    if not math.isfinite(value):
        assert result == UNKNOWN
        return
    assert result.number == value
    exact = isinstance(left, Exact) and isinstance(right, Exact)
    assert isinstance(result, Exact if exact else Estimated)


def test_plain_numbers_are_exact() -> None:
    assert 2 * Exact(3) == Exact(6)
    assert 1 - Estimated(3) == Estimated(-2)
    assert 6 / Exact(3) == Exact(2)
    assert 1 + UNKNOWN == UNKNOWN
    assert 0 * UNKNOWN == UNKNOWN
    assert total([Exact(1), Estimated(2)]) == Estimated(3)
    assert total([]) == Exact(0)
    assert estimated(UNKNOWN) == UNKNOWN
    assert Exact(3).least(Estimated(5)) == Estimated(3)
    assert Exact(3).greatest(UNKNOWN) == UNKNOWN
    assert Exact(1e308) * 1e10 == UNKNOWN


def test_figures_cannot_be_compared_by_accident() -> None:
    with pytest.raises(TypeError):
        _ = Exact(1) < Exact(2)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (Exact(1234), "1,234"),
        (Estimated(0.5), "~0.5"),
        (Estimated(12345.6), "~12,346"),
        (Exact(2_500_000), "2.5 M"),
        (UNKNOWN, "?"),
    ],
)
def test_figures_read_well(figure: Figure, text: str) -> None:
    assert str(figure) == text


# --- statistics ----------------------------------------------------------------------------------


def observed(*seen: Observation) -> StreamStatistics:
    statistics = StreamStatistics()
    for one in seen:
        statistics = statistics.observe(one)
    return statistics


def test_nothing_is_known_before_the_first_epoch() -> None:
    known = NO_STATISTICS.of_stream("bids")
    assert known == StreamStatistics()
    assert known.rate == known.rows == known.late_rows == UNKNOWN


def test_counts_add_up_exactly() -> None:
    known = observed(
        Observation(10, 0, 1000, null_times=1),
        Observation(5, 900, 2000, late_rows=2),
        Observation(0),
    )
    assert (known.rows, known.null_times, known.late_rows) == (Exact(15), Exact(1), Exact(2))
    assert known.greatest_time == Exact(2000)


def test_the_rate_is_per_second_of_the_rows_own_time() -> None:
    assert observed(Observation(50, 0, 10_000)).rate == Estimated(5)
    steady = observed(*(Observation(30, i * 1000, (i + 1) * 1000) for i in range(5)))
    assert steady.rate.number == pytest.approx(30)


def test_the_rate_follows_a_change_within_some_epochs() -> None:
    slow = [Observation(10, i * 1000, (i + 1) * 1000) for i in range(20)]
    fast = [Observation(100, i * 1000, (i + 1) * 1000) for i in range(20, 40)]
    rates = [observed(*slow, *fast[:n]).rate.number or 0 for n in (0, 1, 3, 20)]
    assert rates[0] == pytest.approx(10)
    assert rates == sorted(rates)
    assert 10 < rates[1] < rates[2] < rates[3]
    assert rates[3] == pytest.approx(100, rel=0.02)


def test_one_row_has_no_rate_and_late_rows_do_not_make_time_pass() -> None:
    assert observed(Observation(1, 500, 500)).rate == UNKNOWN
    first = observed(Observation(10, 0, 1000))
    late = first.observe(Observation(3, 0, 500, late_rows=3))
    assert late.greatest_time == Exact(1000)
    assert late.rate == Estimated(13)


def test_keys_are_remembered_and_slowly_forgotten() -> None:
    keys = frozenset({"auction"})
    known = observed(Observation(9, 0, 1000, distinct={keys: Exact(100)}))
    assert known.distinct_of(["auction"]) == Exact(100)
    assert known.distinct_of(["bidder"]) == UNKNOWN
    fewer = known.observe(Observation(9, 1000, 2000, distinct={keys: Exact(50)}))
    assert fewer.distinct_of(["auction"]) == Estimated(90)
    silent = known.observe(Observation(9, 1000, 2000, distinct={keys: UNKNOWN}))
    assert silent.distinct_of(["auction"]) == Exact(100)
    assert observed(Observation(5, groups=4), Observation(5, groups=6)).groups == Estimated(6)


def test_a_catalog_is_a_value() -> None:
    before = NO_STATISTICS
    after = before.observe_stream("bids", Observation(5, 0, 1000))
    assert before == NO_STATISTICS == Statistics()
    assert after.of_stream("bids").rows == Exact(5)
    assert after.of_stream("clicks").rows == UNKNOWN


# --- costs ---------------------------------------------------------------------------------------


def cost(figure: Figure) -> Cost:
    return Cost(figure, "rows")


def test_unknown_is_neither_cheaper_nor_dearer() -> None:
    assert cheaper(cost(Exact(1)), cost(Estimated(2)))
    assert not cheaper(cost(Exact(2)), cost(Exact(2)))
    assert not cheaper(cost(UNKNOWN), cost(Exact(2)))
    assert not cheaper(cost(Exact(2)), cost(UNKNOWN))
    assert not cheaper(cost(UNKNOWN), cost(UNKNOWN))


def test_costs_in_different_units_are_not_compared() -> None:
    with pytest.raises(PlanError, match="cannot be compared"):
        cheaper(Cost(Exact(1), "rows"), Cost(Exact(2), "seconds"))


def test_ranking_puts_unknown_costs_last_in_their_order() -> None:
    values = [UNKNOWN, Exact(3), Estimated(1), UNKNOWN, Exact(2)]
    choices = list(enumerate(values))
    for shuffled in itertools.permutations(choices):
        order = ranked(shuffled, lambda choice: cost(choice[1]))
        assert [i for i, _ in order][:3] == [2, 4, 1]
        assert order[3:] == [c for c in shuffled if c[1] == UNKNOWN]


AUCTION = frozenset({"auction"})
KNOWN = NO_STATISTICS.observe_stream(
    "bids",
    Observation(1000, 0, 10_000, distinct={AUCTION: Exact(50), frozenset({"channel"}): Exact(4)}),
).observe_stream("clicks", Observation(200, 0, 10_000, distinct={AUCTION: Exact(20)}))


def rate(plan: Node, statistics: Statistics = KNOWN) -> float | None:
    return row_flow(plan, statistics)[plan].rows_out.number


def test_rows_of_stateless_nodes() -> None:
    assert rate(BIDS) == 100
    assert rate(BIDS, NO_STATISTICS) is None
    assert rate(select(BIDS, "ts")) == 100
    assert rate(Union((BIDS, BIDS))) == 200
    assert rate(where(BIDS, call("=", col(BIDS, "channel"), "a"))) == 25
    assert rate(where(BIDS, lit(False))) == 0
    assert rate(where(BIDS, call("<", col(BIDS, "price"), 5))) is None


def test_rows_of_aggregates() -> None:
    def counts(*windows: object, keys: tuple[str, ...] = ("auction",)) -> Node:
        return group(BIDS, keys, "ts", *windows, n=count())  # type: ignore[arg-type]

    assert rate(counts(tumbling(MINUTE))) == pytest.approx(50 / 60)
    assert rate(counts(Hopping(MINUTE, 10 * SECOND))) == pytest.approx(5)
    assert rate(counts(tumbling(MINUTE), tumbling(10 * SECOND))) == pytest.approx(50 / 60 + 5)
    # A window that holds fewer rows than there are keys has at most as many groups.
    assert rate(counts(tumbling(100))) == pytest.approx(100)
    assert rate(counts(tumbling(MINUTE), keys=())) == pytest.approx(1 / 60)
    assert rate(counts(tumbling(MINUTE), keys=("bidder",))) is None
    assert rate(counts(Session(SECOND))) is None


def test_rows_of_joins() -> None:
    pairs = join(BIDS, CLICKS, ("auction", "auction"))
    left, right = col(pairs, "a.ts"), col(pairs, "b.at")

    def joined(time: object, **options: object) -> Node:
        return join(BIDS, CLICKS, ("auction", "auction"), time, **options)  # type: ignore[arg-type]

    # 100 × 20 × span / 50. Both bounds of an interval are inclusive: 5,001 milliseconds.
    assert rate(joined(IntervalBound(left, right, -SECOND, 4 * SECOND))) == pytest.approx(200.04)
    assert rate(joined(SameWindow(left, right, tumbling(10 * SECOND)))) == pytest.approx(400)
    overlapping = Hopping(10 * SECOND, 5 * SECOND)
    assert rate(joined(SameWindow(left, right, overlapping))) == pytest.approx(600)
    sampling = Hopping(5 * SECOND, 10 * SECOND)
    assert rate(joined(SameWindow(left, right, sampling))) == pytest.approx(100)
    assert rate(joined(None)) is None
    assert rate(joined(IntervalBound(left, right, 0, 0), kind=JoinKind.LEFT)) is None
    assert rate(join(BIDS, ITEMS, ("auction", "id"))) is None


def test_a_window_join_meets_as_many_rows_as_the_formula_says() -> None:
    """The mean over all offsets, counted second by second."""
    for window in (tumbling(12), Hopping(12, 4), Hopping(12, 8), Hopping(4, 12)):
        period = range(1000, 1000 + window.slide)
        near = range(1000 - 30, 1000 + 30 + window.slide)
        shares = [bool(set(window.starts(t)) & set(window.starts(u))) for t in period for u in near]
        mean = sum(shares) / len(period)
        pairs = join(BIDS, CLICKS, ("auction", "auction"))
        scaled = Hopping(window.length * SECOND, window.slide * SECOND)
        time = SameWindow(col(pairs, "a.ts"), col(pairs, "b.at"), scaled)
        plan = join(BIDS, CLICKS, ("auction", "auction"), time)
        # Whole seconds instead of instants: a window of n seconds holds n of them.
        assert rate(plan) == pytest.approx(100 * 20 * mean / 50, rel=0.1)


def test_the_cost_of_a_plan_is_all_rows_that_go_into_its_nodes() -> None:
    plan = select(where(BIDS, call("=", col(BIDS, "channel"), "a")), "ts")
    assert flow_cost(plan, KNOWN) == Cost(Estimated(100 + 100 + 25), "rows/s")
    assert not flow_cost(plan, NO_STATISTICS).known
    assert str(flow_cost(plan, NO_STATISTICS)) == "? rows/s"
