"""An engine that goes on one epoch at a time, over rows that the test brings.

All of ``Engine`` is the real thing: queries that join, leave, catch up, merge, stop and restart.
The coordinator and Structured Streaming are not there: whoever drives the engine says which rows
make the next epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pyarrow.parquet as parquet
from pyspark.sql import SparkSession

from headrace.engine import engine as engine_module
from headrace.engine.checkpoint.checkpoint import Checkpoint
from headrace.engine.engine import Engine, RegisteredStream
from headrace.engine.epochs.report import EpochReport
from headrace.engine.epochs.runner import EpochRunner
from headrace.engine.epochs.running_epoch import RunningEpoch
from headrace.engine.execution.executor import ddl
from headrace.engine.ingest.ingest import Trigger
from headrace.engine.ingest.micro_batch import Batch
from headrace.engine.sinks.base import QuerySink
from headrace.errors import HeadraceError
from headrace.operators.output_rows import OutputRows
from headrace.operators.write import Write, Writing
from headrace.optimizer import optimize
from headrace.plan.nodes import OutputMode, Sink, Source, Table
from headrace.settings import Settings
from headrace.sql import plan_query
from headrace.state.committed import Intent
from tests.support.compare import arrow_rows
from tests.support.duck import arrow_table
from tests.support.streams import Row

Answer = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Member:
    """A query of an engine: after which epoch it joins (0 is before the first), and which is its
    last
    (None is that of the engine). ``key`` tells it from another that takes its name when it has
    left."""

    key: str
    sql: str
    mode: OutputMode = OutputMode.APPEND
    joins_after: int = 0
    leaves_after: int | None = None
    name: str = ""

    def takes_part(self, epoch: int) -> bool:
        """Whether it is there in an epoch, of which the first is 1."""
        return self.joins_after < epoch and (
            self.leaves_after is None or epoch <= self.leaves_after
        )

    def __str__(self) -> str:
        words = [self.key if self.name in ("", self.key) else f"{self.key} as {self.name}"]
        words += [f"joins after {self.joins_after}"] if self.joins_after else []
        words += [] if self.leaves_after is None else [f"leaves after {self.leaves_after}"]
        words += [self.mode.value] if self.mode is not OutputMode.APPEND else []
        return f"{', '.join(words)}: {self.sql}"


@dataclass(frozen=True)
class Streams:
    """What the streams are, and what they bring: the rows of each in each epoch."""

    catalog: Mapping[str, Source | Table]
    epochs: Sequence[Mapping[str, Sequence[Row]]]
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)


@dataclass(frozen=True)
class Circumstances:
    """What must never show in results: executors, settings, and restarts.

    The engine is restarted after each epoch in ``restarts``, on the next of the executors.
    """

    settings: tuple[Settings, ...]
    restarts: frozenset[int] = frozenset()


def run_members(
    spark: SparkSession,
    members: Sequence[Member],
    streams: Streams,
    folder: Path,
    around: Circumstances,
    look: Callable[[Engine], None] = lambda engine: None,
) -> dict[str, dict[int, Answer]]:
    """What each member puts out in each epoch in which it takes part, by its own key.

    ``look`` is called before each start, when all queries are there, and after each epoch.
    """
    files = _write_files(folder / "in", streams)
    out: dict[str, dict[int, Answer]] = {member.key: {} for member in members}
    lives = 0
    hr = _opened(spark, folder, streams, around.settings[0])
    _start(hr, [m for m in members if m.takes_part(1)], streams, out, look)
    for number in range(1, len(streams.epochs) + 1):
        coordinator = cast(_Steps, hr._coordinator)
        batches = {
            name: Batch(_frame(hr, rows, streams.catalog[name]), number - 1, files[name, number])
            for name, rows in streams.epochs[number - 1].items()
        }
        for member in members:
            if member.leaves_after == number and number < len(streams.epochs):
                hr.remove_query(member.name or member.key)
            if member.joins_after == number:
                _add(hr, member, streams, out)
        report = coordinator.step(batches)
        for error in report.failures.values():
            raise error
        if not coordinator.goes_on:
            break
        look(hr)
        if number in around.restarts and number < len(streams.epochs):
            hr.stop()
            lives += 1
            hr = _opened(spark, folder, streams, around.settings[lives % len(around.settings)])
            _start(hr, [m for m in members if m.takes_part(number + 1)], streams, out, look)
    hr.stop()
    return out


class _Steps:
    """A coordinator that runs an epoch when it is told to."""

    def __init__(
        self,
        runner: EpochRunner,
        checkpoint: Checkpoint,
        settings: Settings,
        streams: Mapping[str, RegisteredStream],
        unfinished: Intent | None,
        between_epochs: Callable[[], bool],
        on_report: Callable[[EpochReport], None],
        on_paused: Callable[[Mapping[str, str]], None],
        on_replay: Callable[[str, EpochReport], None],
    ) -> None:
        self._runner = runner
        self.checkpoint = checkpoint
        self._settings = settings
        self._between_epochs = between_epochs
        self._on_report = on_report
        self.streams = SimpleNamespace(registered=dict(streams), errors={})
        self.error: HeadraceError | None = None
        self.active = False

    def start(self, trigger: Trigger) -> None:
        self.active = True

    def wake(self) -> None: ...

    def stop(self, timeout: float | None) -> bool:
        self.active = False
        self._runner.close()
        self.checkpoint.close()
        return True

    @property
    def goes_on(self) -> bool:
        """Whether anybody is left to go on for."""
        return bool(self._runner.queries)

    def step(self, batches: Mapping[str, Batch]) -> EpochReport:
        """One epoch, and what happens after it."""
        needed = self._runner.sources
        report = self._runner.run({name: b for name, b in batches.items() if name in needed})
        report.seconds["total"] = sum(report.seconds.values())
        self._on_report(report)
        self._runner.tidy(self._settings.compaction_files)
        self._between_epochs()
        return report


class _CollectingSink(QuerySink):
    """Keeps what each committed epoch published."""

    def __init__(self, sink: Sink, epochs: dict[int, Answer]) -> None:
        super().__init__(sink)
        self._epochs = epochs
        self._taken: dict[int, Answer] = {}

    def write(self, epoch: RunningEpoch, rows: OutputRows) -> Writing[int]:
        written = yield Write(self.name, rows.definition.query, rows.schema, columns=rows.columns)
        assert written.table is not None
        self._taken[epoch.number] = arrow_rows(written.table)
        return written.rows

    def publish(self, epoch: int) -> None:
        """Epochs that are repeated for a query come out with the one after them."""
        self._taken.setdefault(epoch, [])
        for number in [n for n in sorted(self._taken) if n <= epoch]:
            assert number not in self._epochs, f"epoch {number} of {self.name} comes out twice"
            self._epochs[number] = self._taken.pop(number)


def _opened(spark: SparkSession, folder: Path, streams: Streams, settings: Settings) -> Engine:
    hr = Engine(spark, str(folder / "state"), settings)
    for name, leaf in streams.catalog.items():
        if isinstance(leaf, Source):
            hr.add_stream(RegisteredStream(_frame(hr, [], leaf), leaf))
        elif name in streams.tables:
            hr.add_table(leaf, _table(spark, streams.tables[name], leaf))
    return hr


def _start(
    hr: Engine,
    members: Sequence[Member],
    streams: Streams,
    out: Mapping[str, dict[int, Answer]],
    look: Callable[[Engine], None],
) -> None:
    for member in members:
        _add(hr, member, streams, out)
    look(hr)
    with mock.patch.object(engine_module, "Coordinator", _Steps):
        hr.start(Trigger())


def _add(
    hr: Engine, member: Member, streams: Streams, out: Mapping[str, dict[int, Answer]]
) -> None:
    plan = plan_query(member.sql, streams.catalog).plan
    sink = Sink(optimize(plan).plan, member.name or member.key, "memory", member.mode)
    kept = _CollectingSink(sink, out[member.key])
    with mock.patch.object(engine_module, "make_sink", return_value=kept):
        hr.add_query(plan, sink, None)


def _frame(hr: Engine, rows: Sequence[Row], leaf: Source | Table) -> Any:
    return _table(hr.executor.session, rows, leaf)


def _table(spark: SparkSession, rows: Sequence[Row], leaf: Source | Table) -> Any:
    return spark.createDataFrame(arrow_table(list(rows), leaf.schema), ddl(leaf.schema))


def _write_files(folder: Path, streams: Streams) -> dict[tuple[str, int], list[str]]:
    """The rows of each stream and epoch as a file, for tasks that read them without Spark."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for number, epoch in enumerate(streams.epochs, 1):
        for name, rows in epoch.items():
            path = folder / f"{name}-{number}.parquet"
            parquet.write_table(arrow_table(list(rows), streams.catalog[name].schema), path)
            written[name, number] = [str(path)]
    return written
