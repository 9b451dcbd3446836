"""Theorems 1 to 4 of "Factor Windows": the paper's examples, and brute force over intervals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.plan.coverage import (
    covering_multiplier,
    covering_set,
    intervals,
    is_covered_by,
    is_partitioned_by,
)
from headrace.plan.windows import Hopping

small = st.builds(Hopping, st.integers(1, 12), st.integers(1, 12), st.integers(0, 11))


def test_interval_representation() -> None:
    assert list(intervals(Hopping(10, 2), 0, 3)) == [(0, 10), (2, 12)]


def test_intervals_begin_at_their_offset_also_before_zero() -> None:
    assert list(intervals(Hopping(3, 5, 2), -8, 5)) == [(-8, -5), (-3, 0), (2, 5)]


def test_example_2_each_interval_is_covered_by_two() -> None:
    fine = Hopping(8, 2)
    assert covering_set((0, 10), fine) == [(0, 8), (2, 10)]
    assert covering_set((2, 12), fine) == [(2, 10), (4, 12)]


def test_example_3_and_5_covered_but_not_partitioned() -> None:
    assert is_covered_by(Hopping(10, 2), Hopping(8, 2))
    assert covering_multiplier(Hopping(10, 2), Hopping(8, 2)) == 2
    assert not is_partitioned_by(Hopping(10, 2), Hopping(8, 2))


def test_example_1_forty_minutes_are_two_times_twenty() -> None:
    forty, twenty, thirty = (Hopping(m, m) for m in (40, 20, 30))
    assert is_partitioned_by(forty, twenty)
    assert covering_multiplier(forty, twenty) == 2
    assert not is_covered_by(forty, thirty)
    assert not is_covered_by(thirty, twenty)


@pytest.mark.parametrize(
    ("coarse", "fine"),
    [
        (Hopping(20, 20, 5), Hopping(10, 10)),  # the grids never meet
        (Hopping(20, 20), Hopping(5, 10)),  # the finer one leaves gaps
        (Hopping(10, 10), Hopping(10, 5)),  # nothing is finer than an equal length
    ],
)
def test_not_covered(coarse: Hopping, fine: Hopping) -> None:
    assert not is_covered_by(coarse, fine)


def _covered_by_definition(coarse: Hopping, fine: Hopping) -> bool:
    """Definitions 1 and 3, interval by interval over several periods."""
    if coarse == fine:
        return True
    if coarse.length <= fine.length:
        return False
    for begin, end in intervals(coarse, 0, 12 * 12 * 12):
        inside = covering_set((begin, end), fine)
        if not inside or inside[0][0] != begin or inside[-1][1] != end:
            return False
        if {t for u, v in inside for t in range(u, v)} != set(range(begin, end)):
            return False
    return True


@given(small, small)
def test_theorem_1_is_the_definition(coarse: Hopping, fine: Hopping) -> None:
    assert is_covered_by(coarse, fine) == _covered_by_definition(coarse, fine)


@given(small, small)
def test_theorem_4_is_the_definition(coarse: Hopping, fine: Hopping) -> None:
    disjoint = all(
        left[1] <= right[0]
        for interval in intervals(coarse, 0, 12 * 12 * 12)
        for left, right in zip(
            covering_set(interval, fine), covering_set(interval, fine)[1:], strict=False
        )
    )
    expected = coarse == fine or (_covered_by_definition(coarse, fine) and disjoint)
    # A single interval of the finer window inside of each coarser one would have the same length.
    assert is_partitioned_by(coarse, fine) == expected


@given(small, small)
def test_theorem_3_counts_the_covering_set(coarse: Hopping, fine: Hopping) -> None:
    if is_covered_by(coarse, fine):
        for interval in intervals(coarse, 0, 40):
            assert len(covering_set(interval, fine)) == covering_multiplier(coarse, fine)


@given(small, small, small)
def test_theorem_2_a_partial_order(a: Hopping, b: Hopping, c: Hopping) -> None:
    assert is_covered_by(a, a)
    if is_covered_by(a, b) and is_covered_by(b, a):
        assert a == b
    if is_covered_by(a, b) and is_covered_by(b, c):
        assert is_covered_by(a, c)
