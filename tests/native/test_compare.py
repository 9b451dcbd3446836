"""Contestants are compared in turns, and their results as multisets."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from headrace.native.compare import ContestantRun, compare, multiset_difference


def test_the_order_is_turned_around_every_other_round() -> None:
    order: list[str] = []

    def run(name: str) -> Callable[[], ContestantRun]:
        def one() -> ContestantRun:
            order.append(name)
            return ContestantRun(1.0)

        return one

    compare("c", 1, {"a": run("a"), "b": run("b")}, warmups=1, repeats=3)
    assert order == ["a", "b", "b", "a", "a", "b", "b", "a"]


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ([{"a": 1, "b": 2}], [{"b": 2, "a": 1}], True),
        ([{"a": 1}, {"a": None}], [{"a": None}, {"a": 1}], True),
        ([{"a": 1}, {"a": 1}], [{"a": 1}], False),
        ([{"a": 1}], [{"b": 1}], False),
        ([{"w": {"start": 1, "end": 2}}], [{"w": {"start": 1, "end": 2}}], True),
        ([{"w": {"start": 1, "end": 2}}], [{"w": {"start": 1, "end": 3}}], False),
    ],
)
def test_results_are_multisets_with_named_columns(
    left: list[dict[str, object]], right: list[dict[str, object]], equal: bool
) -> None:
    difference = multiset_difference(pa.Table.from_pylist(left), pa.Table.from_pylist(right))
    assert (difference is None) is equal
