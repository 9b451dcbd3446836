"""When a sink is tried again, and what counts as delivered. Without Spark."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.definitions.definition import Definition
from headrace.engine.epochs.deliveries import Delivery, RetryPolicy
from headrace.engine.epochs.outbox import deliver
from headrace.engine.epochs.running_epoch import RunningEpoch
from headrace.errors import CheckpointError, SinkError
from headrace.operators.inputs import Inputs
from headrace.operators.write import Writing, run_alone
from headrace.plan.types import Schema
from headrace.state.arrangement import StateFile
from headrace.state.clocks import Clocks
from headrace.state.committed import Committed


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


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_rows_leave_the_outbox_only_if_all_were_read(taken: int) -> None:
    """What is read of a damaged file may be fewer rows than were put there, and no error."""
    waiting = StateFile("/checkpoint/state/outbox-q/1.parquet", 1, 2, 1, None, None)
    state = Committed()
    state.arrangement("outbox-q").append([waiting])

    def write(epoch: RunningEpoch, rows: Definition) -> Writing[int]:
        yield from ()
        return taken

    sink = SimpleNamespace(name="q", sink=SimpleNamespace(schema=Schema(())), write=write)
    executor, none = SimpleNamespace(inputs=Inputs()), cast(Any, None)
    epoch = RunningEpoch(2, cast(Any, executor), none, state, {}, Clocks())
    with pytest.raises(CheckpointError, match=f"of 2 rows .* {taken} can be read"):
        run_alone(none, deliver(epoch, cast(Any, sink)))
    assert state.arrangement("outbox-q").files == [waiting]
