"""The random streams and queries: repeatable, accepted, and as odd as they claim to be."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.plan.nodes import OutputMode, Source
from tests.support.oracle import assert_same_rows, run_epochs
from tests.support.queries import WEIGHTS, case_from, random_case
from tests.support.streams import BIDS, epoch_lists, random_epochs, whole

SEEDS = range(120)


def test_a_seed_gives_the_same_case_for_ever() -> None:
    first, second = random_case(17), random_case(17)
    assert first.query == second.query
    assert repr(first.epochs) == repr(second.epochs)
    assert repr(first.tables) == repr(second.tables)


def test_every_form_comes_and_is_accepted() -> None:
    forms: Counter[str] = Counter()
    modes: Counter[OutputMode] = Counter()
    features: Counter[str] = Counter()
    for seed in range(400):
        case = random_case(seed)
        assert case.plan.schema.names, str(case)
        forms.update(case.query.features & WEIGHTS.keys())
        features.update(case.query.features)
        modes[case.query.mode] += 1
    assert set(forms) == set(WEIGHTS)
    assert min(modes.values()) > 10
    for feature in ("cte", "having", "filter", "distinct", "outer", "full", "hopping", "sampling"):
        assert features[feature], feature


@pytest.mark.parametrize("form", sorted(WEIGHTS))
def test_each_form_gives_results(form: str) -> None:
    seeds = range(40)
    assert any(any(random_case(seed, {form: 1}).expected()) for seed in seeds)


def test_streams_misbehave_as_they_claim() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        import random

        epochs = random_epochs(random.Random(seed), [BIDS])
        rows = whole(epochs)["bids"]
        times = [row["ts"] for row in rows if row["ts"] is not None]
        seen["null time"] += len(times) < len(rows)
        seen["null key"] += any(row["k"] is None for row in rows)
        seen["empty epoch"] += any(not epoch["bids"] for epoch in epochs)
        seen["empty stream"] += not rows
        seen["out of order"] += times != sorted(times)
        seen["twice"] += len({repr(row) for row in rows}) < len(rows)
        seen["on a second"] += any(time.microsecond == 0 for time in times)
        seen["microseconds"] += any(time.microsecond % 1000 for time in times)
        greatest = None
        for epoch in epochs:
            moments = [row["ts"] for row in epoch["bids"] if row["ts"] is not None]
            if greatest is not None and any(
                (greatest - moment).total_seconds() * 1000 > BIDS.delay for moment in moments
            ):
                seen["late"] += 1
            greatest = max([*moments, *([greatest] if greatest else [])], default=None)
    assert all(
        seen[oddity]
        for oddity in (
            "null time",
            "null key",
            "empty epoch",
            "empty stream",
            "out of order",
            "twice",
            "on a second",
            "microseconds",
            "late",
        )
    ), seen


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(epochs=epoch_lists([BIDS]), chance=st.randoms(use_true_random=False))
def test_hypothesis_can_draw_them(epochs: object, chance: object) -> None:
    assert isinstance(epochs, list)
    case = case_from(chance)  # type: ignore[arg-type]
    assert any(isinstance(source, Source) for source in case.catalog.values())


def test_a_difference_is_shown_with_its_seed() -> None:
    case = random_case(3)
    with pytest.raises(AssertionError, match=r"1 rows are missing and 1 are too many") as failure:
        assert_same_rows([(1, 2.0)], [(1, 2.1)], case)
    assert "seed 3" in str(failure.value)
    assert_same_rows([(1, 2.0), (None, float("nan"))], [(None, float("nan")), (1, 2.0 + 1e-12)])
    with pytest.raises(AssertionError):
        assert_same_rows([(1,), (1,)], [(1,)])
    with pytest.raises(AssertionError):
        assert_same_rows([(1,)], [(1.0,)])


def test_no_epochs_no_rows() -> None:
    assert run_epochs(BIDS, []) == []
