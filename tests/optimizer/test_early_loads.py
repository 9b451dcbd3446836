"""What is believed of loads, keys and windows: from figures that are made up, or counted here."""

from __future__ import annotations

import random

import duckdb
import pytest

from headrace.definitions.key_bits import for_duckdb
from headrace.planner.statistics import RuntimeStatistics
from headrace.stats.key_bits import different_keys, merged, share_for
from headrace.stats.load import Load, SeenSet, TimeSpan, estimated_keys
from headrace.stats.moving_window import MOST_STRETCHES, MovingWindow, Stretch


def seen(rows: int, keys: float, chance: random.Random) -> SeenSet:
    """An epoch of a second, with rows of equally likely keys."""
    groups = len({chance.randrange(int(keys)) for _ in range(rows)})
    return SeenSet(rows, groups, Load(rows, 1_000, estimated_keys(rows, groups, 1)), {})


def believed(epochs: list[tuple[int, float]], seed: int = 5) -> list[float]:
    chance = random.Random(seed)
    statistics, found = RuntimeStatistics(), []
    for rows, keys in epochs:
        statistics.note_set("s", seen(rows, keys, chance))
        found.append(statistics.sets["s"].keys)
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("burst", [10, 10**6])
def test_up_and_down_take_the_same_time(burst: int, seed: int) -> None:
    keys = believed(
        [(2_000, 100.0)] * 4 + [(2_000, 100.0 * burst)] * 3 + [(2_000, 100.0)] * 3, seed
    )
    assert all(90 < k < 110 for k in (*keys[:4], *keys[7:]))
    assert all(k > 800 for k in keys[4:7])


def test_a_few_rows_that_differ_say_nothing() -> None:
    assert believed([(2_000, 100.0)] * 3 + [(3, 10**9), (1, 10**9)])[-1] == pytest.approx(
        100, rel=0.05
    )
    # Nor do they speak against there being many.
    assert believed([(2_000, 10**9)] * 3 + [(3, 10**9)])[-1] > 10_000


def test_a_slow_drift_is_followed() -> None:
    keys = believed([(2_000, 100.0 * 1.1**epoch) for epoch in range(20)])
    assert keys[-1] == pytest.approx(100 * 1.1**19, rel=0.15)


def test_a_rate_is_followed_when_it_jumps() -> None:
    chance, statistics = random.Random(1), RuntimeStatistics()
    for rows in (2_000, 2_000, 20_000, 20_000, 2_000):
        statistics.note_set("s", seen(rows, 100, chance))
        assert statistics.sets["s"].rows == rows


def test_a_window_holds_what_came_while_it_was_open() -> None:
    """Three epochs of few keys, two of a burst, and then it leaves again."""
    window = MovingWindow()
    for epoch, keys in enumerate([10.0] * 3 + [1e6] * 2 + [10.0] * 6):
        jumped = epoch in (3, 5)
        came = Stretch(epoch * 1_000, (epoch + 1) * 1_000, 500, keys)
        window = window.moved((epoch + 1) * 1_000 - 4_000, came, jumped)
        assert window.rows == pytest.approx(500 * min(4, epoch + 1))
        bursts = len({3, 4} & set(range(epoch - 3, epoch + 1)))
        assert window.groups == pytest.approx(10 * (bursts < 4) + 500 * bursts, rel=0.05)
    assert MovingWindow.from_json(window.to_json()) == window


def test_a_window_without_an_end_is_remembered_in_few_stretches() -> None:
    window = MovingWindow()
    for epoch in range(100):
        came = Stretch(epoch, epoch + 1, 10, 5.0 if epoch % 2 else 1e9)
        window = window.moved(None, came, jumped=True)
    assert len(window.stretches) == MOST_STRETCHES
    assert window.rows == 1_000
    assert window.groups == pytest.approx(50 * (10 + 4.3), rel=0.05)


def test_what_is_known_of_sets_is_durable() -> None:
    statistics = RuntimeStatistics()
    came = TimeSpan(0, 1_000)
    statistics.note_set("s", SeenSet(50, 10, Load(50, 1_000, 10), {"k": 4.0}, came, -9_000.0))
    known = RuntimeStatistics.from_json(statistics.to_json())
    assert known == statistics
    assert known.moving["s"].rows == 50
    known.forget_all_but(())
    assert (known.sets, known.moving, known.keys) == ({}, {}, {})


@pytest.mark.parametrize("keys", [0, 1, 50, 3_000, 60_000, 400_000])
def test_keys_are_counted_by_their_bits(keys: int) -> None:
    """Each key comes twice, in two parts, and a few rows have none."""
    share = share_for(2 * keys)
    connection = duckdb.connect()
    parts = []
    for part in range(2):
        numbers = f"SELECT i FROM range({keys * part // 3}, {keys}) t(i) UNION ALL SELECT NULL"
        sql = for_duckdb([str(share), "i"])
        (bits,) = connection.execute(f"SELECT {sql} FROM ({numbers})").fetchall()[0]
        parts += [] if bits is None else [bits]
    assert different_keys(merged(parts), share) == pytest.approx(keys, rel=0.06, abs=0.5)
