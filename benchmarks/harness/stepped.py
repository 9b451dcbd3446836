"""One query over epochs of files, in this process and without Spark.

All of the engine runs but the coordinator and Structured Streaming: stores, plans, statistics,
commits. Epochs are exactly the files that they are given, so what is counted of them is the same in
every run, and an epoch takes hundredths of a second.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness.in_process import in_process_session
from headrace.engine.checkpoint.checkpoint import Checkpoint
from headrace.engine.checkpoint.files import LocalFiles
from headrace.engine.epochs.live_plan import LivePlan
from headrace.engine.epochs.report import EpochReport
from headrace.engine.epochs.runner import EpochRunner, Running
from headrace.engine.execution.executor import Executor
from headrace.engine.ingest.micro_batch import Batch
from headrace.engine.sinks.noop import NoopSink
from headrace.plan.nodes import Node, OutputMode, Sink, Source
from headrace.planner.live_query import LiveQuery
from headrace.planner.merging import begin_merging
from headrace.planner.policy import PlannerPolicy
from headrace.planner.statistics import RuntimeStatistics
from headrace.settings import read_settings

#: One part, so that what is counted of a step is counted of all of it.
_WHOLE = {"executor": "buckets", "tasks.rows": "1000000000", "tasks.wholeRows": "1000000000"}


@dataclass
class Stepped:
    """An engine that holds one query, and goes on an epoch at a time."""

    runner: EpochRunner
    catalog: Mapping[str, Source]
    epochs: int = 0
    rows_out: int = 0
    changes: list[str] = field(default_factory=list)

    def step(self, files: Mapping[str, Sequence[Path]]) -> EpochReport:
        """One epoch of the rows in these files, and what the engine does between two epochs."""
        session = self.runner._executor.session
        batches: dict[str, Batch] = {
            stream: Batch(session.createDataFrame([], ""), self.epochs, [str(p) for p in paths])
            for stream, paths in files.items()
        }
        self.epochs += 1
        report = self.runner.run(batches)
        for error in report.failures.values():
            raise error
        self.rows_out += sum(report.rows_out.values())
        self.runner.tidy(8)
        self.runner.replan_at_times()
        self.changes += self.runner.plan.take_changes()
        return report


@contextmanager
def stepped(
    plan: Node,
    catalog: Mapping[str, Source],
    folder: Path,
    policy: PlannerPolicy,
    settings: Mapping[str, str] = {},
) -> Iterator[Stepped]:
    """An engine over an empty checkpoint in a folder, with an optimized plan."""
    chosen = {f"spark.headrace.{key}": value for key, value in {**_WHOLE, **settings}.items()}
    executor = Executor(in_process_session(), read_settings(chosen))
    checkpoint = Checkpoint(lambda _: LocalFiles(), str(folder), retained_commits=2)
    state, _ = checkpoint.open()
    statistics = RuntimeStatistics()
    live = LivePlan(policy, statistics, begin_merging(policy, lambda: statistics.streams))
    runner = EpochRunner(executor, checkpoint, state, folder.name, live)
    sink = Sink(plan, "q", "noop", OutputMode.APPEND)
    runner.use({"q": Running(LiveQuery(sink, None), NoopSink(sink))})
    try:
        yield Stepped(runner, catalog)
    finally:
        runner.close()
        checkpoint.close()


def cpu_clock() -> float:
    """Seconds of processor time of this process, tasks included."""
    return time.process_time()
