"""Which batches share an epoch, which streams are idle, and which are paused: without Spark."""

from __future__ import annotations

from headrace.engine.ingest.admission import StreamState, admit, paused
from headrace.settings import Settings, read_settings

MINUTE = 60_000


def settings(**given: str) -> Settings:
    return read_settings({f"spark.headrace.{k.replace('_', '.')}": v for k, v in given.items()})


def stream(watermark: int | None, last: float = 100.0, idle: float | None = None) -> StreamState:
    return StreamState(last, watermark, idle)


def test_streams_of_one_pace_share_an_epoch() -> None:
    streams = {"a": stream(0), "b": stream(MINUTE)}
    assert admit(streams, {"a": 100.0, "b": 100.0}, 100.0, settings()) == ["a", "b"]


def test_one_that_runs_ahead_waits() -> None:
    streams = {"a": stream(0), "b": stream(MINUTE + 1)}
    assert admit(streams, {"a": 100.0, "b": 100.0}, 100.0, settings()) == ["a"]


def test_one_that_is_behind_is_waited_for_for_a_while() -> None:
    streams = {"a": stream(0), "b": stream(0)}
    assert admit(streams, {"a": 100.0}, 100.5, settings()) == []
    assert admit(streams, {"a": 100.0}, 101.0, settings()) == ["a"]
    # It was not in time, and is not waited for until it has delivered again.
    assert admit(streams, {"a": 101.0}, 101.0, settings()) == ["a"]
    streams["b"].delivered(101.0, 0, rows=1)
    assert admit(streams, {"a": 101.0}, 101.0, settings()) == []


def test_one_that_is_absent_is_not_waited_for() -> None:
    streams = {"a": stream(0), "b": stream(0, last=95.0)}
    assert admit(streams, {"a": 100.0}, 100.0, settings()) == ["a"]


def test_idle_is_who_has_brought_no_rows_for_long() -> None:
    state = stream(0, last=100.0, idle=60.0)
    assert not state.is_silent(159.9)
    assert state.is_silent(160.0)
    state.delivered(160.0, 0, rows=0)
    assert state.is_silent(160.0), "a batch without rows says nothing"
    state.delivered(170.0, 0, rows=1)
    assert not state.is_silent(229.9)
    assert state.is_silent(230.0)
    assert not stream(0, last=100.0).is_silent(1e9), "who has no idle time never is"


AB = [frozenset("ab")]


def test_who_runs_ahead_is_paused_until_the_others_come() -> None:
    streams = {"a": stream(MINUTE + 1), "b": stream(0, last=0.0)}
    assert paused(streams, {"a"}, frozenset(), AB, settings()) == {"a": "b"}
    streams["b"].delivered(200.0, 1, rows=1)
    assert paused(streams, {"a"}, frozenset(), AB, settings()) == {}


def test_one_without_rows_is_behind_everybody() -> None:
    streams = {"a": stream(1), "b": stream(None)}
    assert paused(streams, {"a"}, frozenset(), AB, settings()) == {"a": "b"}
    assert paused(streams, {"b"}, frozenset(), AB, settings()) == {}


def test_idle_streams_pause_nobody() -> None:
    streams = {"a": stream(10 * MINUTE), "b": stream(0)}
    assert paused(streams, {"a"}, frozenset("b"), AB, settings()) == {}


def test_who_has_nothing_to_do_with_each_other_does_not_wait() -> None:
    streams = {"a": stream(10 * MINUTE), "b": stream(10 * MINUTE), "c": stream(0)}
    assert paused(streams, {"a", "b"}, frozenset(), AB, settings()) == {}


def test_somebody_can_always_go_on() -> None:
    """Whoever is furthest behind of all that wait and count is not paused."""
    streams = {name: stream(10 * MINUTE * place) for place, name in enumerate("abcd")}
    groups = [frozenset(pair) for pair in ("ab", "bc", "cd", "da")]
    found = paused(streams, set("abcd"), frozenset(), groups, settings())
    assert found == {"b": "a", "c": "b", "d": "a"}
