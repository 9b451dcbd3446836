"""The engine without Structured Streaming: epochs of known rows, straight into the runner.

What is tested is all of the engine but the coordinator and Spark's own micro-batches, at a
fraction of their cost, and with epochs that are exactly the ones the oracle is given.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
from pyspark.sql import DataFrame, SparkSession

from headrace.engine.checkpoint.checkpoint import Checkpoint
from headrace.engine.checkpoint.files import LocalFiles
from headrace.engine.epochs.live_plan import LivePlan
from headrace.engine.epochs.report import EpochReport
from headrace.engine.epochs.runner import EpochRunner, Running
from headrace.engine.execution.executor import Executor, ddl
from headrace.engine.ingest.micro_batch import Batch
from headrace.engine.sinks.base import QuerySink
from headrace.errors import HeadraceError
from headrace.operators.epoch import Epoch
from headrace.operators.output_rows import OutputRows
from headrace.operators.stateless import table_view
from headrace.operators.write import Write, Writing
from headrace.optimizer import optimize
from headrace.optimizer.windows.layout import Sharing
from headrace.plan.nodes import Node, OutputMode, Sink, Source, Table
from headrace.planner.live_query import LiveQuery
from headrace.planner.merging import begin_merging
from headrace.planner.policy import PlannerPolicy
from headrace.planner.statistics import RuntimeStatistics
from headrace.settings import read_settings
from tests.support.compare import arrow_rows
from tests.support.duck import arrow_table
from tests.support.in_process import in_process_session
from tests.support.streams import Row

#: Which executor the tests run on, where they leave the choice.
FORCED_EXECUTOR = os.environ.get("HEADRACE_TEST_EXECUTOR", "auto")


class CollectingSink(QuerySink):
    """Keeps what each committed epoch published."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self.epochs: dict[int, list[tuple[Any, ...]]] = {}
        self._taken: list[tuple[Any, ...]] = []

    def write(self, epoch: Epoch, rows: OutputRows) -> Writing[int]:
        written = yield Write(self.name, rows.definition.query, rows.schema, columns=rows.columns)
        assert written.table is not None
        self._taken = arrow_rows(written.table)
        return written.rows

    def publish(self, epoch: int) -> None:
        self.epochs[epoch], self._taken = self._taken, []


#: Every way to share windows and to compute them; each is taken even where it costs more.
ALL_WINDOW_PLANS = tuple(
    PlannerPolicy(
        window_sharing=sharing, window_closing=closing, join_passes=passes, least_gain=-inf
    )
    for sharing, closing, passes in (
        (Sharing.FACTORS, "tree", "terms"),
        (Sharing.NONE, "flat", "whole"),
        (Sharing.WINDOWS, "tree", "auto"),
        (Sharing.FACTORS, "flat", "whole"),
    )
)


@dataclass
class EngineRun:
    """What came out of each query in each epoch."""

    rows: dict[str, list[list[tuple[Any, ...]]]]
    reports: list[EpochReport] = field(default_factory=list)
    failures: dict[str, HeadraceError] = field(default_factory=dict)


def tiny_executor(spark: SparkSession, **settings: str) -> Executor:
    """An executor of the engine that cuts even the smallest steps into parts.

    There are more parts than tasks, so that a task gets several parts of one step.
    """
    small = {"tasks.rows": "2", "tasks.buckets": "3", "tasks.leastRows": "0"}
    chosen = {"executor": FORCED_EXECUTOR, **small, **settings}
    return Executor(spark, read_settings({f"spark.headrace.{k}": v for k, v in chosen.items()}))


def task_executor(**settings: str) -> Executor:
    """The same without Spark, whose tasks run in this process: for what tasks can run."""
    return tiny_executor(in_process_session(), **{**settings, "executor": "buckets"})


@contextmanager
def forced(spark: SparkSession, executor: str) -> Iterator[None]:
    """Engines that are made meanwhile run on this executor."""
    key = "spark.headrace.executor"
    usual = spark.conf.get(key, None)
    spark.conf.set(key, executor)
    try:
        yield
    finally:
        spark.conf.unset(key) if usual is None else spark.conf.set(key, usual)


def run_engine(
    executor: Executor,
    queries: Mapping[str, tuple[Node, OutputMode]],
    catalog: Mapping[str, Source | Table],
    epochs: Sequence[Mapping[str, list[Row]]],
    tables: Mapping[str, list[Row]],
    folder: Path,
    restart_after: frozenset[int] = frozenset(),
    compaction: int = 4,
    plans: Sequence[PlannerPolicy] = (PlannerPolicy(),),
    then: Executor | None = None,
    as_given: frozenset[str] = frozenset(),
    may_fail: bool = False,
    idle: Sequence[Collection[str]] | None = None,
    replans: bool = False,
) -> EngineRun:
    """Run queries over epochs; ``restart_after`` forgets everything but the checkpoint there.

    ``then`` is the executor after the first restart, if not the same. Plans of the queries named in
    ``as_given`` are not optimized. With ``may_fail`` a query that fails is left out, and the run
    tells why; otherwise the first failure is raised. ``idle`` names the streams that are idle in
    each epoch; one that is not named in an epoch has no batch in it. With ``replans`` layouts of
    panes are looked at between epochs, as engines do.

    ``plans`` say what is asked of the planner, one after the other and over again: a change of plan
    between two epochs must never show in the results.
    """
    for name, node in catalog.items():
        if isinstance(node, Table):
            for one in (executor, then or executor):
                frame = _frame(one, tables[name], node)
                frame.createOrReplaceTempView(table_view(name))
    sinks = {
        name: CollectingSink(
            Sink(plan if name in as_given else optimize(plan).plan, name, "memory", mode)
        )
        for name, (plan, mode) in queries.items()
    }
    running = {n: Running(LiveQuery(sink.sink, None), sink) for n, sink in sinks.items()}
    runner = _open(executor, folder, running, plans[0])
    reports = []
    failures: dict[str, HeadraceError] = {}
    for number, epoch in enumerate(epochs):
        batches = {
            stream: Batch(
                _frame(executor, rows, catalog[stream]),
                number,
                _files(folder / f"in-{stream}-{number}", rows, catalog[stream]),
            )
            for stream, rows in epoch.items()
            if stream in runner.physical.sources
        }
        report = runner.run(batches, frozenset(idle[number]) if idle else frozenset())
        if report.failures and not may_fail:
            raise next(iter(report.failures.values()))
        failures |= report.failures
        reports.append(report)
        runner.tidy(compaction)
        if replans:
            runner.replan_at_times()
        policy = plans[(number + 1) % len(plans)]
        if number in restart_after:
            executor = then or executor
            runner._checkpoint.close()
            runner = _open(executor, folder, running, policy)
        elif len(plans) > 1:
            runner.plan.policy = policy
            runner.use(runner.queries)
    runner._checkpoint.close()
    rows = {
        name: [sink.epochs.get(number + 1, []) for number in range(len(epochs))]
        for name, sink in sinks.items()
    }
    return EngineRun(rows, reports, failures)


def _open(
    executor: Executor, folder: Path, running: Mapping[str, Running], policy: PlannerPolicy
) -> EpochRunner:
    checkpoint = Checkpoint(lambda _: LocalFiles(), str(folder), retained_commits=5)
    state, _ = checkpoint.open()
    key = folder.name.replace("-", "_")
    statistics = RuntimeStatistics.from_json(state.statistics)
    plan = LivePlan(policy, statistics, begin_merging(policy, lambda: statistics.streams))
    runner = EpochRunner(executor, checkpoint, state, key, plan)
    runner.use(running)
    return runner


def _files(folder: Path, rows: list[Row], node: Source | Table) -> list[str]:
    """The rows as two Parquet files, for tasks that read them without Spark."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, part in enumerate((rows[::2], rows[1::2])):
        paths.append(str(folder / f"{number}.parquet"))
        parquet.write_table(arrow_table(part, node.schema), paths[-1])
    return paths


def _frame(executor: Executor, rows: list[Row], node: Source | Table) -> DataFrame:
    return executor.session.createDataFrame(arrow_table(rows, node.schema), ddl(node.schema))
