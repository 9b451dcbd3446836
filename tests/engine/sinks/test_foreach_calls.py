"""Calls of foreachBatch functions never overlap, whoever makes them. Without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from headrace.definitions.definition import Definition, table
from headrace.engine.checkpoint.gate import Gate
from headrace.engine.epochs.running_epoch import RunningEpoch
from headrace.engine.sinks import foreach
from headrace.engine.sinks.foreach import ForeachBatchSink
from headrace.errors import SinkError
from headrace.operators.output_rows import OutputRows
from headrace.operators.write import Written, run_alone
from headrace.plan.nodes import OutputMode, Sink
from tests.sql.catalog import BIDS

ROWS = pa.table({"v": [1]})
SPARK = SimpleNamespace(
    createDataFrame=lambda rows, schema: SimpleNamespace(unpersist=lambda: None),
    sparkContext=SimpleNamespace(),
)


class Writer:
    """What every write gives is one row."""

    def write_all(self, writes: Any) -> list[Written | Exception]:
        return [Written(1, (), {}, ROWS) for _ in writes]


class Caller:
    """A function that hangs in its first call, until it is set free."""

    def __init__(self) -> None:
        self.entered, self.free = threading.Event(), threading.Event()
        self.calls: list[int] = []
        self.threads: list[threading.Thread] = []

    def __call__(self, frame: Any, epoch: int) -> None:
        self.calls.append(epoch)
        self.entered.set()
        self.free.wait(60)

    def set_free(self) -> None:
        self.free.set()
        for thread in self.threads:
            thread.join(60)


@pytest.fixture
def caller() -> Iterator[Caller]:
    one = Caller()
    yield one
    one.set_free()
    assert not foreach._LAST_CALLS


def sink(function: Callable[[Any, int], None], query: str = "rows") -> ForeachBatchSink:
    """That of an engine of its own."""
    node = Sink(BIDS, query, "foreachBatch", OutputMode.APPEND)
    return ForeachBatchSink(node, cast(Any, SPARK), function)


def write(one: ForeachBatchSink, epoch: int, root: str = "/checkpoint") -> int:
    running = SimpleNamespace(
        number=epoch,
        executor=SimpleNamespace(is_few=lambda rows: True, gate=Gate()),
        checkpoint=SimpleNamespace(root=root),
    )
    rows = OutputRows.of(Definition(table("rows"), one.sink.schema))
    return run_alone(Writer(), one.write(cast(RunningEpoch, running), rows))


def hang(caller: Caller) -> None:
    """An engine calls the function in epoch 2, and is left behind in it."""
    caller.threads.append(threading.Thread(target=write, args=(sink(caller), 2), daemon=True))
    caller.threads[-1].start()
    assert caller.entered.wait(60)


def test_a_new_engine_does_not_call_what_hangs_for_the_one_before(caller: Caller) -> None:
    hang(caller)
    for query in ("rows", "ROWS"):
        with pytest.raises(SinkError, match="has not returned from epoch 2"):
            write(sink(caller, query), 2)
    assert caller.calls == [2]
    caller.set_free()
    assert write(sink(caller), 2) == 1
    assert caller.calls == [2, 2]


@pytest.mark.parametrize(("query", "root"), [("others", "/checkpoint"), ("rows", "/elsewhere")])
def test_other_queries_and_checkpoints_are_called(caller: Caller, query: str, root: str) -> None:
    hang(caller)
    taken: list[int] = []
    assert write(sink(lambda frame, epoch: taken.append(epoch), query), 5, root) == 1
    assert taken == [5]
