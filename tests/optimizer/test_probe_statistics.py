"""Statistics of probes: forecasts, cycles, and the equations that make costs of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from headrace.cost.probing import (
    ProbeModel,
    ProbeTuning,
    key_factor,
    match_only,
    probe_cost,
    query_cost,
    query_only,
    sequence_cost,
    sequence_rank,
)
from headrace.stats.forecast import damped, holt
from headrace.stats.probes import (
    LEAST_SAMPLED,
    EdgeCounts,
    Figures,
    ProbeHistory,
    ProbeStatistics,
    ProbeStep,
    fed_back,
)

PAPER, ENGINE = ProbeModel.PAPER, ProbeModel.ENGINE

# --- forecasts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [holt, damped])
def test_a_forecast_needs_a_value(method: Callable[[Sequence[float]], float]) -> None:
    with pytest.raises(ValueError, match="history"):
        method([])
    assert method([7]) == 7.0


@pytest.mark.parametrize("method", [holt, damped])
def test_what_never_changes_stays(method: Callable[[Sequence[float]], float]) -> None:
    assert method([0.3] * 10) == pytest.approx(0.3)


def test_holt_by_hand() -> None:
    # Level 10, trend 0. Then 20: expected 10, level 15, trend 0.2 · 5 = 1.
    assert holt([10, 20]) == pytest.approx(16)
    # Then 30: expected 16, level 23, trend 0.2 · 8 + 0.8 · 1 = 2.4.
    assert holt([10, 20, 30]) == pytest.approx(25.4)
    # Then 10: expected 25.4, level 17.7, trend 0.2 · (17.7 - 23) + 0.8 · 2.4 = 0.86.
    assert holt([10, 20, 30, 10]) == pytest.approx(18.56)


def test_damped_by_hand() -> None:
    # Level 10, trend 0. Then 20: expected 10, level 15, trend 1, of which 0.9 lasts.
    assert damped([10, 20]) == pytest.approx(15.9)
    # Then 30: expected 15.9, level 22.95, trend 0.2 · 7.95 + 0.8 · 0.9 = 2.31.
    assert damped([10, 20, 30]) == pytest.approx(22.95 + 0.9 * 2.31)


def test_weights() -> None:
    # The newest value is the level and the newest rise the trend: a line is continued.
    assert holt([10, 20, 30], level_weight=1, trend_weight=1) == 40
    # 30 and half of a trend of 10.
    assert damped([10, 20, 30], level_weight=1, trend_weight=1, damping=0.5) == 35
    # No trend at all: plain exponential smoothing, 0.5 · 30 + 0.5 · 15.
    assert holt([10, 20, 30], trend_weight=0) == 22.5


# --- cycles --------------------------------------------------------------------------------------


def test_rates_and_means() -> None:
    counts = EdgeCounts(queries=6, matches=2, rows=8) + EdgeCounts(4, 3, 2)
    assert counts == EdgeCounts(10, 5, 10)
    assert (counts.rate, counts.mean) == (0.5, 2.0)  # Eqs. 9 and 10
    assert EdgeCounts(5, 0, 0).rate == 0.0
    assert EdgeCounts(5, 0, 0).mean is None
    assert EdgeCounts().rate is None


def test_epochs_add_up_to_a_cycle() -> None:
    history = ProbeHistory(length=3)
    history.add({(0, 1): EdgeCounts(4, 1, 2)}, {(0, 1): 10}, {0: 5, 1: 20}, {0: 4})
    history.add(
        {(0, 1): EdgeCounts(6, 4, 8), (1, 0): EdgeCounts(1, 1, 1)},
        {(0, 1): 12},
        {1: 25},
        {0: 6, 1: 1},
    )
    assert not history.cycles
    assert history.forecast() is None
    cycle = history.close()
    assert cycle is not None
    assert list(history.cycles) == [cycle]
    assert cycle.edges == {(0, 1): EdgeCounts(10, 5, 10), (1, 0): EdgeCounts(1, 1, 1)}
    assert cycle.keys == {(0, 1): 12}
    assert cycle.rows == {0: 5, 1: 25}
    assert cycle.arrivals == {0: 10, 1: 1}


def test_a_cycle_without_probes_says_nothing() -> None:
    history = ProbeHistory(length=3)
    assert history.close() is None
    history.add({(0, 1): EdgeCounts()}, {(0, 1): 3}, {1: 3}, {0: 2})
    assert history.close() is None
    assert history.cycles == ()
    # And nothing of it is left for the next one.
    history.add({(1, 0): EdgeCounts(1, 0, 0)}, {}, {}, {})
    cycle = history.close()
    assert cycle is not None
    assert (cycle.keys, cycle.rows, cycle.arrivals) == ({}, {}, {})


def closed(history: ProbeHistory, counts: EdgeCounts, keys: float, rows: float) -> None:
    history.add({(0, 1): counts}, {(0, 1): keys}, {1: rows}, {0: counts.queries})
    history.close()


def test_a_history_is_bounded() -> None:
    history = ProbeHistory(length=2)
    for matches in (1, 2, 3):
        closed(history, EdgeCounts(10, matches, matches), 5, 5)
    assert [cycle.edges[0, 1].matches for cycle in history.cycles] == [2, 3]
    with pytest.raises(ValueError, match="room"):
        ProbeHistory(0)


def test_forecast_of_statistics() -> None:
    history = ProbeHistory(length=5)
    closed(history, EdgeCounts(10, 1, 10), 10, 100)  # γ 0.1, μ 10
    closed(history, EdgeCounts(10, 2, 40), 20, 200)  # γ 0.2, μ 20
    found = history.forecast()
    assert found is not None
    assert found.rates == {(0, 1): pytest.approx(0.159)}  # damped
    assert found.means == {(0, 1): pytest.approx(16)}
    assert found.keys == {(0, 1): pytest.approx(16)}
    assert found.rows == {1: pytest.approx(160)}
    last = history.forecast(smooth=False)
    assert last == ProbeStatistics({(0, 1): 0.2}, {(0, 1): 20.0}, {(0, 1): 20.0}, {1: 200.0})


def test_forecasts_stay_within_bounds() -> None:
    falling = ProbeHistory(length=9)
    for matches, found, held in ((10, 200, 90), (5, 5, 40), (0, 0, 1), (0, 0, 0), (0, 0, 0)):
        closed(falling, EdgeCounts(10, matches, found), held, held)
    for _ in range(4):
        closed(falling, EdgeCounts(10, 1, 1), 0, 0)
    low = falling.forecast()
    assert low is not None
    assert (low.means[0, 1], low.keys[0, 1], low.rows[1]) == (1.0, 1.0, 0.0)
    assert 0.0 <= low.rates[0, 1] <= 1.0
    rising = ProbeHistory(length=9)
    for matches in (0, 4, 8, 10, 10, 10):
        closed(rising, EdgeCounts(10, matches, matches), 1, 1)
    high = rising.forecast()
    assert high is not None
    assert high.rates[0, 1] == 1.0


def test_only_cycles_with_a_value_count() -> None:
    history = ProbeHistory(length=5)
    closed(history, EdgeCounts(10, 2, 6), 4, 4)
    closed(history, EdgeCounts(10, 0, 0), 4, 4)  # no μ here
    history.add({(1, 0): EdgeCounts(1, 0, 0)}, {(1, 0): 2}, {0: 2}, {1: 1})
    history.close()  # nothing of (0, 1) here
    found = history.forecast()
    assert found is not None
    assert found.means[0, 1] == 3.0
    assert found.rates[0, 1] == pytest.approx(damped([0.2, 0.0]))
    # Never a match: the rate is zero, and the mean does not matter.
    assert (found.rates[1, 0], found.means[1, 0]) == (0.0, 1.0)
    assert found.knows((0, 1))
    assert not found.knows((0, 2))
    last = history.forecast(smooth=False)
    assert last is not None
    assert (last.rates[0, 1], last.means[0, 1]) == (0.0, 3.0)


def test_keys_alone_are_no_statistics() -> None:
    history = ProbeHistory(length=5)
    history.add({(0, 1): EdgeCounts(1, 1, 1)}, {(0, 1): 2, (2, 1): 2}, {1: 2}, {})
    history.close()
    found = history.forecast()
    assert found is not None
    assert found.keys.keys() == {(0, 1), (2, 1)}
    assert not found.knows((2, 1))


# --- costs ---------------------------------------------------------------------------------------

TUNING = ProbeTuning(query=8.0, match=2.0, base=1.0, slots=2.0)
#: From input 0 every other probe finds 4 rows, from input 1 every fourth finds 2.
CHAIN = ((0, 1), (1, 2))
KNOWN = ProbeStatistics(
    rates={(0, 1): 0.5, (1, 2): 0.25},
    means={(0, 1): 4.0, (1, 2): 2.0},
    keys={(0, 1): 8.0, (1, 2): 2.0},
    rows={0: 1.0, 1: 32.0, 2: 4.0},
)


@pytest.mark.parametrize(
    ("keys", "slots"), [(1, 2), (2, 4), (3, 8), (8, 16), (9, 32), (1000, 2048)]
)
def test_hash_tables_grow(keys: int, slots: int) -> None:
    assert key_factor(keys, TUNING) == 1.0 + keys / (2 * slots)  # Eq. 5
    assert 1.125 <= key_factor(keys, TUNING) <= 1.25


def test_a_query_costs_its_share_of_a_table() -> None:
    assert query_cost(0, TUNING) == 8 * 1.25  # Eq. 4


@pytest.mark.parametrize(
    ("model", "tuning", "last", "whole"),
    [
        # Both tables are as full as they get: 8 · 1.25 for a query.
        # 10 + 0.25 · (2 · 2) = 11, and 10 + 0.5 · (2 · 4 + 11) = 19.5.
        (PAPER, TUNING, 11.0, 19.5),
        # 10 + 0.25 · 2 · 2 = 11, and 10 + 0.5 · 4 · (2 + 11) = 36.
        (ENGINE, TUNING, 11.0, 36.0),
        # 10 + 0.5 · 10, and 10 + 2 · 10.
        (PAPER, query_only(TUNING), 10.0, 15.0),
        (ENGINE, query_only(TUNING), 10.0, 30.0),
        # 0.5 · (8 + 1), and 2 · (2 + 1).
        (PAPER, match_only(TUNING), 1.0, 4.5),
        (ENGINE, match_only(TUNING), 1.0, 6.0),
    ],
)
def test_costs_by_hand(model: ProbeModel, tuning: ProbeTuning, last: float, whole: float) -> None:
    assert sequence_cost((), KNOWN, tuning, model) == 0.0  # Eq. 2
    assert sequence_cost(CHAIN[1:], KNOWN, tuning, model) == last
    assert sequence_cost(CHAIN, KNOWN, tuning, model) == whole  # Eqs. 1, 3 and 8
    assert sequence_rank(CHAIN, KNOWN, tuning, model) == (0, whole)


def test_models_agree_where_a_match_is_one_row() -> None:
    single = ProbeStatistics(KNOWN.rates, {(0, 1): 1.0, (1, 2): 1.0}, KNOWN.keys, KNOWN.rows)
    published, ours = (sequence_cost(CHAIN, single, TUNING, model) for model in (PAPER, ENGINE))
    assert published == pytest.approx(ours)


def test_a_probe_alone_costs_the_same_in_both_models() -> None:
    for edge in CHAIN:
        published = probe_cost(KNOWN, edge, TUNING, PAPER)
        ours = probe_cost(KNOWN, edge, TUNING, ENGINE)
        assert published is not None
        assert ours is not None
        assert published.own == ours.own


def test_the_unknown_has_no_cost() -> None:
    assert probe_cost(KNOWN, (2, 0), TUNING, ENGINE) is None
    with pytest.raises(ValueError, match="nothing is known"):
        sequence_cost(((2, 0), (0, 1)), KNOWN, TUNING, ENGINE)
    # One unknown pair, and what is known of the rest: 10 + 0.5 · 4 · 2.
    assert sequence_rank(((2, 0), (0, 1)), KNOWN, TUNING, ENGINE) == (1, 14.0)


def cycle_of(rate: float, rows: float) -> dict[tuple[int, int], EdgeCounts]:
    matches = round(1_000 * rate)
    return {(0, 1): EdgeCounts(1_000, matches, round(matches * rows))}


def forecasts(cycles: list[tuple[float, float]]) -> list[float]:
    """The forecast rate after each cycle."""
    history = ProbeHistory(60)
    found = []
    for rate, rows in cycles:
        history.add(cycle_of(rate, rows), {(0, 1): 10.0}, {}, {})
        history.close()
        forecast = history.forecast()
        assert forecast is not None
        found.append(forecast.rates[0, 1])
    return found


def test_a_jump_of_a_steady_pair_is_believed_at_once() -> None:
    assert forecasts([(0.9, 2.0)] * 6 + [(0.1, 2.0)])[-1] == 0.1
    # Also one in the rows of a match alone: the rate is then that of the cycle, too.
    assert forecasts([(0.5, 2.0), (0.52, 2.0)] * 3 + [(0.55, 9.0)])[-1] == 0.55
    # What is within the noise is smoothed.
    assert 0.5 < forecasts([(0.5, 2.0)] * 6 + [(0.6, 2.0)])[-1] < 0.6


def test_a_pair_that_jumps_again_and_again_is_smoothed() -> None:
    """Of the jumps of every other cycle only the first is believed."""
    rates = forecasts([(0.9, 2.0), (0.1, 2.0)] * 8)
    assert rates[1] == 0.1
    assert all(0.2 < rate < 0.8 for rate in rates[6:])


def test_few_probes_are_no_jump() -> None:
    history = ProbeHistory(60)
    for counts in [EdgeCounts(20, 18, 18)] * 6 + [EdgeCounts(20, 1, 1)]:
        history.add({(0, 1): counts}, {(0, 1): 10.0}, {}, {})
        history.close()
    forecast = history.forecast()
    assert forecast is not None
    assert forecast.rates[0, 1] > 0.3


# --- steps ---------------------------------------------------------------------------------------

#: Probes of input 2 by the key of input 0, for rows that met nothing yet, or input 1.
FIRST, SECOND = (0, 0b001, (0, 2)), (0, 0b011, (0, 2))
#: The order that runs begins with input 1.
BEGINS = (0, 0b001, (0, 1))


def stepped(
    history: ProbeHistory,
    sampled: dict[ProbeStep, EdgeCounts],
    observed: dict[ProbeStep, EdgeCounts] | None = None,
) -> None:
    pair = {(0, 1): EdgeCounts(100, 50, 50), (0, 2): EdgeCounts(100, 50, 50)}
    history.add(pair, {(0, 1): 9.0, (0, 2): 9.0}, {}, {0: 100}, sampled, observed or {})
    assert history.close() is not None


def steps_of(history: ProbeHistory) -> dict[ProbeStep, Figures]:
    known = history.forecast()
    assert known is not None
    return dict(known.steps)


def test_what_was_observed_takes_the_place_of_a_sample() -> None:
    told = EdgeCounts(100, 10, 10)
    true = EdgeCounts(4_000, 2_000, 6_000, 8_000)
    found = fed_back({SECOND: told, BEGINS: told}, {SECOND: true})
    assert found == {SECOND: true, BEGINS: told}


def test_what_a_sample_missed_in_one_step_it_missed_in_others_to_the_same_input() -> None:
    """A tenth of a row was told, five rows are true: with 0.05 for luck, 5.05 / 0.15 times more."""
    told, true = EdgeCounts(100, 10, 10), EdgeCounts(4_000, 400, 20_000)
    found = fed_back({SECOND: told, FIRST: EdgeCounts(200, 40, 40)}, {SECOND: true})
    assert found[SECOND] == true
    corrected = found[FIRST]
    assert corrected.rows / corrected.queries == pytest.approx(0.25 * 5.05 / 0.15 - 0.05, rel=1e-3)
    # As many of them found something as told.
    assert corrected.rate == pytest.approx(0.2, rel=0.01)
    # A sample that found nothing at all is corrected too.
    nothing = fed_back({SECOND: told, FIRST: EdgeCounts(200)}, {SECOND: true})[FIRST]
    assert nothing.rows / nothing.queries == pytest.approx(0.05 * 5.05 / 0.15 - 0.05, rel=1e-3)


def test_few_rows_tell_nothing_of_a_step() -> None:
    few = EdgeCounts(LEAST_SAMPLED - 1, 1, 1)
    assert fed_back({FIRST: few}, {}) == {}
    # What was observed is what it is; but a handful corrects nothing.
    found = fed_back(
        {FIRST: EdgeCounts(100, 10, 10), SECOND: EdgeCounts(100, 10, 10)}, {SECOND: few}
    )
    assert found == {FIRST: EdgeCounts(100, 10, 10), SECOND: few}


def test_figures_of_a_step_are_the_nearest_that_are_known() -> None:
    here, there = Figures(0.5, 2.0), Figures(0.25, 1.0, 3.0)
    known = ProbeStatistics(
        {(0, 2): 0.9}, {(0, 2): 1.0}, {(0, 2): 8.0}, {}, steps={FIRST: here, SECOND: there}
    )
    assert known.figures((0, 2), 0, 0b001) == here
    assert known.figures((0, 2), 0, 0b011) == there
    # Met input 3 as well: the most of it that is known.
    assert known.figures((0, 2), 0, 0b1011) == there
    assert known.figures((0, 2), 0, 0b1001) == here
    # Other new rows: the pair as it is for all.
    assert known.figures((0, 2), 1, 0b011) == Figures(0.9, 1.0)
    # 10 for the query and 3 rows in vain, which costs 6, then 0.25 rows of 2.
    cost = probe_cost(known, (0, 2), TUNING, ENGINE, (0, 0b011))
    assert cost is not None
    assert cost.own == 10 + 6 + 0.5


def test_steps_are_forecast_since_they_were_seen_without_a_gap() -> None:
    history = ProbeHistory(60)
    often, seldom = EdgeCounts(100, 100, 300), EdgeCounts(100, 100, 200)
    for _ in range(3):
        stepped(history, {FIRST: often, SECOND: often})
    assert steps_of(history)[SECOND] == Figures(1.0, 3.0)
    # Not seen: nothing is known of it, however much was.
    stepped(history, {FIRST: often})
    assert SECOND not in steps_of(history)
    # A cycle in which input 0 had no new rows is no gap.
    history.add({(1, 0): EdgeCounts(10, 1, 1)}, {(1, 0): 9.0}, {}, {1: 10})
    assert history.close() is not None
    assert FIRST in steps_of(history)
    # Seen again, it is as seen now, and not in the middle between this and long ago.
    stepped(history, {FIRST: often, SECOND: seldom})
    assert steps_of(history)[SECOND] == Figures(1.0, 2.0)


def test_two_cycles_that_agree_are_no_noise() -> None:
    """After a burst the trend would lead far below what every cycle sees again."""
    rates = [(0.5, 2.0)] * 5 + [(0.5, 900.0)] + [(0.5, 2.0)] * 3
    history = ProbeHistory(60)
    means = []
    for rate, found in rates:
        history.add(cycle_of(rate, found), {(0, 1): 10.0}, {}, {})
        history.close()
        forecast = history.forecast()
        assert forecast is not None
        means.append(forecast.means[0, 1])
    assert means[5] == 900.0
    assert means[7:] == [2.0, 2.0]


def test_a_sample_alone_promises_what_no_order_has_corrected() -> None:
    history = ProbeHistory(60)
    assert history.sample() is None
    stepped(history, {FIRST: EdgeCounts(100, 10, 10)}, {FIRST: EdgeCounts(4_000, 4_000, 8_000)})
    promised, known = history.sample(), history.forecast()
    assert promised is not None
    assert known is not None
    assert promised.steps[FIRST] == Figures(0.1, 1.0)
    assert known.steps[FIRST] == Figures(1.0, 2.0)


def test_a_restart_knows_the_steps_of_the_last_cycle() -> None:
    history = ProbeHistory(60)
    for _ in range(5):
        stepped(history, {FIRST: EdgeCounts(100, 10, 10)}, {BEGINS: EdgeCounts(50, 5, 6, 7)})
    again = ProbeHistory.from_json(json.loads(json.dumps(history.to_json())))
    assert steps_of(again) == steps_of(history)
    assert [bool(cycle.sampled) for cycle in again.cycles] == [False, False, True]
