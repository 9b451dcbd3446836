"""Which batches share an epoch, which streams are idle, and which are paused: without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from headrace.engine.ingest.admission import StreamState, admit, paused, waits_since
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


# A simulation of many epochs: when batches arrive, when epochs run, and who is in them.


@dataclass
class Source:
    """A stream that hands over its next batch some time after the last one was taken.

    ``pause`` says how long that takes, ``batch`` how much event time it brings; both by the number
    of the batch. After ``ends`` batches it brings no more.
    """

    pause: Callable[[int], float] = lambda number: 0.2
    batch: Callable[[int], int] = lambda number: 10_000
    ends: int = 10**9
    number: int = 0
    due: float = 0.0
    arrived: float | None = None


@dataclass
class Simulation:
    """Epochs over sources, on a clock of its own that ticks like the coordinator looks."""

    sources: Mapping[str, Source]
    epoch_seconds: float
    now: float = 0.0
    free_at: float = 0.0
    epochs: list[tuple[float, list[str]]] = field(default_factory=list)
    furthest_apart: int = 0

    def run(self, seconds: float) -> None:
        chosen = settings()
        states = {name: StreamState(0.0) for name in self.sources}
        while self.now < seconds:
            for source in self.sources.values():
                if source.arrived is None and source.number < source.ends:
                    source.arrived = source.due if source.due <= self.now else None
            arrivals = {
                name: waits_since(source.arrived, self.free_at)
                for name, source in self.sources.items()
                if source.arrived is not None
            }
            admitted = admit(states, arrivals, self.now, chosen)
            if not admitted:
                self.now += 0.05
                continue
            self.epochs.append((self.now, admitted))
            self.now += self.epoch_seconds
            self.free_at = self.now
            for name in admitted:
                source, state = self.sources[name], states[name]
                source.arrived = None
                source.number += 1
                reached = (state.watermark or 0) + source.batch(source.number)
                state.delivered(self.now, reached, rows=1)
                source.due = self.now + source.pause(source.number)
            marks = [s.watermark for s in states.values() if s.watermark is not None]
            if len(marks) == len(states):
                self.furthest_apart = max(self.furthest_apart, max(marks) - min(marks))


def test_streams_of_one_pace_never_part_however_long_epochs_take() -> None:
    """With epochs of 3 s each stream would find the other waiting for longer than it may."""
    for epoch_seconds in (0.1, 1.0, 3.0, 30.0):
        both = {"a": Source(), "b": Source(pause=lambda number: 0.4)}
        simulation = Simulation(both, epoch_seconds)
        simulation.run(40 * (epoch_seconds + 1))
        assert len(simulation.epochs) > 20
        assert all(admitted == ["a", "b"] for _, admitted in simulation.epochs[1:])


def test_a_fast_stream_keeps_to_the_alignment_however_long_epochs_take() -> None:
    """It brings a minute at a time, the slow one a second: a batch ahead is as far as it gets."""
    for epoch_seconds in (0.1, 3.0):
        sources = {
            "fast": Source(batch=lambda number: 60_000),
            "slow": Source(batch=lambda n: 1_000),
        }
        simulation = Simulation(sources, epoch_seconds)
        simulation.run(100 * (epoch_seconds + 0.5))
        assert simulation.furthest_apart <= 2 * MINUTE
        assert sources["slow"].number > 50


def test_a_stream_that_falls_silent_is_waited_for_once() -> None:
    sources = {"a": Source(), "quiet": Source(ends=3)}
    simulation = Simulation(sources, 0.5)
    simulation.run(60.0)
    began = [start for start, _ in simulation.epochs]
    pauses = [later - earlier - 0.5 for earlier, later in pairwise(began)]
    # Once for the gather timeout, from the arrival of the other's batch, and never again: it is
    # tardy until it delivers.
    (longest,) = [pause for pause in pauses if pause > 0.4]
    assert 1.2 <= longest <= 1.3


def test_bursts_are_gathered_with_who_goes_on() -> None:
    """A stream that brings ten batches in a row and then rests: what it shares it shares."""
    bursty = Source(pause=lambda number: 20.0 if number % 10 == 0 else 0.1)
    simulation = Simulation({"bursty": bursty, "steady": Source()}, 2.0)
    simulation.run(200.0)
    together = sum(admitted == ["bursty", "steady"] for _, admitted in simulation.epochs)
    alone = sum(admitted == ["bursty"] for _, admitted in simulation.epochs)
    # It is alone while what the steady one brought in the rest is further ahead than allowed.
    assert together > 15
    assert alone > 0
