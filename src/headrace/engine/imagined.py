"""An epoch that never runs, by which ``explain`` tells who would run what.

Every store has rows of before and of now, and every watermark moves, so that all steps of a query
have something to do. Their definitions are the ones of a real epoch, and the executor judges them
by the same rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pyspark.sql import SparkSession
from sqlglot import exp

from headrace.engine.arrangements import StateFile
from headrace.engine.batches import StreamBatch
from headrace.engine.buckets.executor import BucketExecutor
from headrace.engine.checkpoint import Checkpoint, Committed
from headrace.engine.clocks import Clocks
from headrace.engine.epoch import Epoch
from headrace.engine.executor import Executor
from headrace.engine.files import LocalFiles
from headrace.engine.inputs import BatchInput, FilesInput, Inputs, ProbedInput
from headrace.engine.physical import Physical
from headrace.engine.writes import Write
from headrace.plan.nodes import Source
from headrace.plan.types import Schema
from headrace.settings import Settings

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

    def __init__(self, session: SparkSession, settings: Settings) -> None:
        self.inputs = Inputs()
        self.buckets = BucketExecutor(session, settings, self.inputs)

    def bind_files(self, files: Sequence[StateFile], schema: Schema) -> exp.Select:
        return self.inputs.bind(FilesInput(files, schema))

    def bind_batch(self, batch: StreamBatch) -> exp.Select:
        return self.inputs.bind(BatchInput(batch))

    def bind_probed(self, join: ProbedInput) -> exp.Select:
        return self.inputs.bind(join)

    def parts_of_indexes(self, rows: int) -> int:
        return self.buckets.parts_of_indexes(rows)


def executors_of(
    physical: Physical,
    session: SparkSession,
    settings: Settings,
    file_streams: Mapping[str, bool],
) -> list[str]:
    """For each thing that is written in an epoch, who would do it and why.

    ``file_streams`` says of each stream whether tasks can read its files.
    """
    executor = _Executor(session, settings)
    epoch = _epoch(physical, executor, file_streams)
    return [
        f"{write.label}: {executor.buckets.verdict(write)}" for write in _writes(physical, epoch)
    ]


def _writes(physical: Physical, epoch: Epoch) -> Iterator[Write]:
    for store in physical.stores:
        first = next(store.advance(epoch), None)
        if first is not None:
            yield first
    for operator in physical.outputs.values():
        rows = operator.delta(epoch)
        if rows is not None:
            yield Write("results", rows.query, rows.schema, path="results")


def _epoch(physical: Physical, executor: _Executor, file_streams: Mapping[str, bool]) -> Epoch:
    state = Committed(epoch=1)
    for store in physical.stores:
        for epoch, first, last in ((1, _BEFORE - 1, _AFTER), (2, _BEFORE, _AFTER)):
            file = StateFile(f"{store.name}-{epoch}.parquet", epoch, _ROWS, 0, first, last)
            state.arrangement(store.name).append([file])
    clocks = [*physical.sources, *(store.name for store in physical.stores)]
    batches: dict[str, Any] = {
        name: _Batch(source, [f"{name}.parquet"] if file_streams.get(name) else None)
        for name, source in physical.sources.items()
    }
    return Epoch(
        2,
        cast(Executor, executor),
        Checkpoint(lambda path: LocalFiles(), "imagined", 1),
        state,
        batches,
        clocks_before=Clocks(dict.fromkeys(clocks, _BEFORE)),
        clocks_after=Clocks(dict.fromkeys(clocks, _AFTER)),
    )
