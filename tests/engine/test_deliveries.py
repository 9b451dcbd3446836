"""How long the engine waits before it tries a sink again."""

from __future__ import annotations

import time

import pytest

from headrace.engine.epochs.deliveries import Delivery, RetryPolicy
from headrace.errors import SinkError


def pauses(policy: RetryPolicy, tries: int, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pause after each try, by a clock that stands still."""
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    delivery = Delivery(policy, SinkError("no"))
    found = []
    for _ in range(tries):
        delivery.failed(SinkError("no"))
        found.append(delivery.next_try)
    return found


def test_pauses_grow_up_to_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pauses(RetryPolicy(1.0, 10.0), 6, monkeypatch) == [1, 2, 4, 8, 10, 10]
    assert pauses(RetryPolicy(20.0, 10.0), 2, monkeypatch) == [10, 10]


def test_a_sink_that_is_broken_for_weeks_is_still_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a pause of a minute, 2,000 tries take a day and a half."""
    assert pauses(RetryPolicy(1.0, 60.0), 2_000, monkeypatch)[-1] == 60
    assert pauses(RetryPolicy(0.001, 86_400 * 365.0), 2_000, monkeypatch)[-1] == 86_400 * 365
