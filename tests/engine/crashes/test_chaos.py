"""Chaos, with what befalls the process written out: in short, and longer; and by chance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from tests.engine.crashes.chaos import Life, random_lives, run
from tests.engine.crashes.chaos_plot import QUERIES, STREAMS, Data, expected
from tests.engine.crashes.test_crash import Host, host
from tests.support.compare import assert_same_rows

__all__ = ["host"]
#: What waits for a function is handed over when it is mended, and then the process dies.
SHORT = (Life(refuses="printed", mends=True, place="deliver.after:1", intruder=True),)
LONGER = (
    # One query fails at once, another when its first window closes.
    Life(epochs=8, refuses="printed"),
    # What waits for the function is handed over when it is mended; the process dies meanwhile.
    Life(place="deliver.after:1", mends=True),
    # Output that is committed is published by the next one, also in the folder that is back.
    Life(place="commit.after:4", loses="pairs", intruder=True),
)


@pytest.mark.crash
@pytest.mark.parametrize(
    ("lives", "sink_failures"), [(SHORT, 1), pytest.param(LONGER, 2, marks=pytest.mark.slow)]
)
def test_killed_while_much_is_broken(
    lives: Sequence[Life], sink_failures: int, tmp_path: Path, host: Host
) -> None:
    tallies = run(tmp_path / "chaos", 7, lives, environment=host.environment, zeros=(1, 0))
    assert tallies.kills == len(lives)
    assert tallies.places_missed == 0
    assert tallies.refused == 1
    assert tallies.sink_failures == sink_failures
    assert tallies.failed_queries == 2
    assert tallies.rows > 200


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.usefixtures("spark_processes")
def test_killed_at_random(tmp_path: Path) -> None:
    tallies = run(tmp_path / "chaos", 20240101, kills=50)
    assert tallies.kills == 50
    assert tallies.refused == 2
    assert tallies.sink_failures >= 8
    assert tallies.failed_queries == 2


def test_chance_has_all_kinds_of_lives() -> None:
    lives = random_lives(Random(1), 50)
    assert len(lives) == 50
    assert sum(life.intruder for life in lives) == 2
    assert len({life.place for life in lives if life.place}) > 8
    assert sum(life.place is None and life.epochs == 0 for life in lives) > 3
    assert any(life.alone for life in lives)
    assert {life.refuses is None for life in lives} == {True, False}
    assert {life.loses is None for life in lives} == {True, False}


@pytest.mark.parametrize("seed", range(2))
def test_what_comes_out_does_not_depend_on_the_cut(seed: int) -> None:
    """Or else the comparison would say nothing of a process that is killed."""
    number, random = 140, Random(seed)
    data = Data(seed, 5, 9)
    files = {
        s.name: [data.rows(s.name, n) for n in range(number - 1)] + [data.last_rows(s.name, number)]
        for s in STREAMS
    }
    ends = dict.fromkeys(files, 0)
    cut = []
    while min(ends.values()) < number:
        epoch = {}
        for stream, end in ends.items():
            # One may be ahead of the other, and an epoch may take several files or none.
            most = min(number, min(ends.values()) + 8)
            later = min(most, end + random.choice([0, 1, 1, 3]))
            epoch[stream] = list(range(end, later))
            ends[stream] = later
        cut.append(epoch)
    one_each = expected(files, [{stream: [n] for stream in files} for n in range(number)])
    for name, rows in expected(files, cut).items():
        assert_same_rows(rows, one_each[name], name)
    # Nobody meets a row of the round before: each ask has one bid.
    assert len(one_each["pairs"]) == sum(len(rows) for rows in files["asks"][:-1])
    assert all(one_each[query.name] for query in QUERIES)
