"""Watermarks that stand still while rows come in: when it is said, of whom, and how often."""

from __future__ import annotations

from headrace.engine.epochs.report import EpochReport
from headrace.engine.ingest.standstills import Standstill, Standstills
from headrace.state.clocks import Clocks

QUERIES = {"pairs": [frozenset("ab")], "alone": [frozenset("a")]}


def watch(
    stands: Standstills, now: float, rows: dict[str, int], idle: str = "", **watermarks: int
) -> dict[str, Standstill]:
    report = EpochReport(1, rows_in=rows, watermarks=watermarks)
    return stands.watch(now, report, Clocks(dict(watermarks), frozenset(idle)), QUERIES)


def test_who_is_held_back_is_told_by_whom() -> None:
    stands = Standstills(warn_after=300)
    assert not watch(stands, 0, {"a": 5, "b": 5}, a=10, b=10)
    assert not watch(stands, 200, {"a": 5}, a=20, b=10)
    found = watch(stands, 300, {"a": 7}, a=30, b=10)
    assert found.keys() == {"pairs"}, "the query over one stream goes on"
    assert (found["pairs"].holder, found["pairs"].rows) == ("b", 12)
    assert "'b' brings nothing newer" in found["pairs"].text
    assert "idle='…'" in found["pairs"].text


def test_it_is_over_when_the_watermark_moves() -> None:
    stands = Standstills(warn_after=300)
    watch(stands, 0, {"a": 5}, a=10, b=10)
    assert watch(stands, 400, {"a": 5}, a=20, b=10)
    assert not watch(stands, 410, {"b": 1}, a=20, b=11)
    assert not watch(stands, 700, {"a": 1}, a=21, b=11)
    assert watch(stands, 710, {"a": 1}, a=22, b=11)


def test_it_is_said_once_and_then_rarely() -> None:
    stands = Standstills(warn_after=300)
    watch(stands, 0, {"a": 1}, a=1, b=0)
    said = [
        now
        for now in range(100, 3_000, 100)
        if (found := watch(stands, now, {"a": 1}, a=now, b=0)) and found["pairs"].is_news
    ]
    assert said == [300, 600, 1_200, 2_400]


def test_a_stream_that_has_shown_no_row() -> None:
    stands = Standstills(warn_after=300)
    watch(stands, 0, {"a": 1}, a=1)
    found = watch(stands, 300, {"a": 1}, a=2)
    assert "'b' has shown no row yet" in found["pairs"].text


def test_idle_streams_hold_nobody_back() -> None:
    stands = Standstills(warn_after=300)
    watch(stands, 0, {"a": 1}, a=1)
    assert not watch(stands, 300, {"a": 1}, idle="b", a=2)


def test_nothing_is_said_while_nothing_comes_in() -> None:
    stands = Standstills(warn_after=300)
    watch(stands, 0, {"a": 1}, a=1, b=0)
    assert not watch(stands, 900, {"c": 1}, a=1, b=0)


def test_a_row_of_the_far_future() -> None:
    stands = Standstills(warn_after=300)
    watch(stands, 0, {"a": 1}, a=10**12, b=10**12)
    found = watch(stands, 300, {"a": 4}, a=10**12, b=10**12)
    assert found["alone"].holder == "a"
    assert "far in the future" in found["alone"].text
