"""Watermarks of operators over streams that are idle at times, against their definition."""

from __future__ import annotations

import json
import random
from itertools import combinations

import pytest

from headrace.state.clocks import ClockReading, Clocks

STREAMS = ("a", "b", "c", "d")
SETS = [
    frozenset(some) for size in range(1, len(STREAMS) + 1) for some in combinations(STREAMS, size)
]


def by_definition(history: list[ClockReading], streams: frozenset[str]) -> int | None:
    """The greatest least of all epochs; an epoch in which one that counts has none says nothing."""
    leasts = []
    for epoch in history:
        counting = streams - epoch.idle
        if counting and counting <= epoch.watermarks.keys():
            leasts.append(min(epoch.watermarks[stream] for stream in counting))
    return max(leasts, default=None)


def random_history(chance: random.Random, epochs: int) -> list[ClockReading]:
    """Streams of different pace; some begin late, and each is idle now and then."""
    watermarks: dict[str, int] = {}
    idle: set[str] = set()
    history = []
    for _ in range(epochs):
        for stream in STREAMS:
            if chance.random() < 0.2:
                idle ^= {stream}
            if stream not in idle and chance.random() < 0.7:
                step = chance.choice((0, 1, 5, 40))
                watermarks[stream] = watermarks.get(stream, chance.randrange(50)) + step
        history.append(ClockReading(dict(watermarks), frozenset(idle)))
    return history


@pytest.mark.random
@pytest.mark.parametrize("seed", range(40))
def test_random_histories(seed: int) -> None:
    chance = random.Random(seed)
    groups = chance.choice([[frozenset(STREAMS)], [frozenset("ab"), frozenset("bcd")]])
    asked = [s for s in SETS if any(s <= group for group in groups)]
    history = random_history(chance, 60)
    clocks = Clocks()
    for number, reading in enumerate(history, 1):
        clocks = clocks.then(reading.watermarks, reading.idle)
        if chance.random() < 0.7:
            clocks.prune(groups)
        if chance.random() < 0.1:
            clocks = Clocks.from_json(json.loads(json.dumps(clocks.to_json())))
        for streams in asked:
            expected = by_definition(history[:number], streams)
            assert clocks.at(streams) == expected, f"seed {seed}, epoch {number}, {set(streams)}"


def test_what_is_remembered_is_bounded() -> None:
    """An engine that lives long must not remember every nap of its streams."""
    clocks = Clocks()
    groups = [frozenset("ab"), frozenset("cd")]
    for reading in random_history(random.Random(1), 3_000):
        clocks = clocks.then(reading.watermarks, reading.idle)
        clocks.prune(groups)
        # Of each group at most one reading for each set of streams that may be idle.
        assert len(clocks.past) <= len(groups) * 2**2
    awake = {stream: max(clocks.watermarks.values()) for stream in STREAMS}
    clocks = clocks.then(awake, frozenset())
    clocks.prune(groups)
    assert not clocks.past, "all have caught up with where any of them was"


def test_never_goes_back() -> None:
    clocks = Clocks().then({"a": 100, "b": 20}, frozenset())
    assert clocks.at("ab") == 20
    clocks = clocks.then({"a": 100, "b": 20}, frozenset("b"))
    assert clocks.at("ab") == 100
    assert clocks.at("b") == 20, "nobody counts: it stays"
    clocks = clocks.then({"a": 100, "b": 50}, frozenset())
    assert clocks.at("ab") == 100
    clocks = clocks.then({"a": 130, "b": 120}, frozenset())
    assert clocks.at("ab") == 120


def test_a_stream_without_rows() -> None:
    clocks = Clocks().then({"a": 7}, frozenset())
    assert clocks.at("ab") is None
    clocks = clocks.then({"a": 7}, frozenset("b"))
    assert clocks.at("ab") == 7
    clocks = clocks.then({"a": 9}, frozenset())
    assert clocks.at("ab") == 7


def test_what_is_forgotten_begins_anew() -> None:
    clocks = Clocks().then({"a": 5, "sessions-x": 3}, frozenset())
    clocks = clocks.then({"a": 5, "sessions-x": 3}, frozenset(("a", "sessions-x")))
    clocks.forget({"sessions-x"})
    assert clocks.at(("a", "sessions-x")) is None
    assert clocks.at("a") == 5
