"""An epoch that never runs, by which ``explain`` tells who would run what.

Every store has rows of before and of now, and every watermark moves, so that all steps of a query
have something to do. Their definitions are the ones of a real epoch, and the executor judges them
by the same rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.compiler.physical_plan import PhysicalPlan
from headrace.engine.checkpoint.checkpoint import Checkpoint
from headrace.engine.checkpoint.files import LocalFiles
from headrace.engine.execution.duckdb.executor import BucketExecutor
from headrace.engine.execution.executor import Executor
from headrace.operators.epoch import Epoch
from headrace.operators.inputs import Inputs
from headrace.operators.write import Write
from headrace.plan.nodes import Source
from headrace.settings import Settings
from headrace.state.arrangement import StateFile
from headrace.state.clocks import Clocks
from headrace.state.committed import Committed

# In milliseconds; so far apart that any window closes in between.
_BEFORE, _AFTER = 10**12, 2 * 10**12
_ROWS = 1_000_000


@dataclass(frozen=True, eq=False)
class _Batch:
    source: Source
    files: Sequence[str] | None
    expected_rows: int = _ROWS


class _Executor:
    """Names inputs, and runs nothing."""

    def __init__(self, executor: Executor, settings: Settings) -> None:
        self.inputs = Inputs()
        self.buckets = BucketExecutor(executor.session, settings, self.inputs, executor.learnt)

    def parts_of_indexes(self, rows: int) -> int:
        return self.buckets.parts_of_indexes(rows)


@dataclass(frozen=True)
class Locations:
    """Where an epoch would read and write: tasks may not reach every store.

    ``streams`` are the folders of the streams whose files tasks can read; None for the others. The
    ``sink`` is empty where it is no folder, or not known.
    """

    checkpoint: str
    sink: str
    streams: Mapping[str, str | None]


def executors_of(
    physical: PhysicalPlan, executor: Executor, settings: Settings, places: Locations
) -> list[str]:
    """For each thing that is written in an epoch, who would do it and why."""
    imagined = _Executor(executor, settings)
    epoch = _epoch(physical, imagined, places)
    verdicts = [
        f"{write.label}: {imagined.buckets.verdict(write, label)}"
        for label, write in _writes(physical, epoch, places.sink)
    ]
    untried = imagined.buckets.untried
    return [
        *verdicts,
        *(f"{store}: tasks try to reach it when they first need it" for store in untried),
    ]


def _writes(physical: PhysicalPlan, epoch: Epoch, sink: str) -> Iterator[tuple[str, Write]]:
    """What is written, each with the label by which it is known when it is."""
    for store in physical.stores:
        first = next(store.advance(epoch), None)
        if first is not None:
            yield first.label, first
    for name, output in physical.outputs.items():
        computed = output.operator.delta(epoch)
        if computed is not None:
            rows = output.of(computed)
            yield name, Write("results", rows.query, rows.schema, path=f"{sink}/results")


def _epoch(physical: PhysicalPlan, executor: _Executor, places: Locations) -> Epoch:
    state = Committed(epoch=1)
    for store in physical.stores:
        for epoch, first, last in ((1, _BEFORE - 1, _AFTER), (2, _BEFORE, _AFTER)):
            path = f"{places.checkpoint}/{store.name}-{epoch}.parquet"
            file = StateFile(path, epoch, _ROWS, 0, first, last)
            state.arrangement(store.name).append([file])
    clocks = [*physical.sources, *(store.name for store in physical.stores)]
    batches: dict[str, Any] = {
        name: _Batch(source, None if folder is None else [f"{folder}/{i}.parquet" for i in (1, 2)])
        for name, source in physical.sources.items()
        for folder in [places.streams.get(name)]
    }
    return Epoch(
        2,
        executor,
        Checkpoint(lambda path: LocalFiles(), places.checkpoint, 1),
        state,
        batches,
        clocks_before=Clocks(dict.fromkeys(clocks, _BEFORE)),
        clocks_after=Clocks(dict.fromkeys(clocks, _AFTER)),
    )
