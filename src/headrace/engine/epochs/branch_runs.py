"""The queries that failed, and those that went on by themselves, while the engine runs.

What of them is durable is said in ``branches``. A query that goes on has a runner of its own, whose
epochs are part of those of the others: computed after theirs, and true with the same commit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.engine.epochs.blame import QueriesFailed, StreamsBroken
from headrace.engine.epochs.report import EpochReport
from headrace.engine.execution.executor import Executor, ddl
from headrace.engine.ingest.micro_batch import Batch
from headrace.errors import CheckpointError, HeadraceError
from headrace.plan.nodes import Source
from headrace.state.arrangement import StateFile
from headrace.state.branches import MOST_EPOCHS, Failure, MissedEpoch, QueryBranch, forget_branch
from headrace.state.committed import Committed
from headrace.state.publication import Publication

if TYPE_CHECKING:
    from headrace.engine.epochs.runner import Computed, EpochRunner


class BranchRuns:
    """Those of one engine."""

    def __init__(self, executor: Executor, most_rows: int) -> None:
        self._executor = executor
        #: How many rows are kept for a query that failed.
        self._most_rows = most_rows
        #: Of queries that go on, by name.
        self.runners: dict[str, EpochRunner] = {}
        #: What queries read that have failed.
        self._failed_sources: dict[str, Mapping[str, Source]] = {}
        #: Output of epochs that were repeated since the last commit.
        self.to_publish: list[Publication] = []

    def sources(self, state: Committed) -> Iterator[Source]:
        """What is read for all of them."""
        for runner in self.runners.values():
            yield from runner.sources.values()
        for name, branch in state.branches.items():
            if branch.failure is not None and not branch.rows_gone:
                yield from self._failed_sources.get(name, {}).values()

    def keep_rows_for(self, name: str, branch: QueryBranch, sources: Mapping[str, Source]) -> None:
        """Keep the rows of these streams from now on, so that the query can go on."""
        self._failed_sources[name] = sources
        branch.columns = {stream: source.columns.names for stream, source in sources.items()}
        if not self._most_rows:
            branch.let_go_of_rows()

    def keep_on_rows_for(
        self, name: str, branch: QueryBranch, sources: Mapping[str, Source]
    ) -> None:
        """The same after a restart; what was not kept before stays unknown."""
        before = branch.columns
        self.keep_rows_for(name, branch, sources)
        branch.columns = {
            stream: tuple(name for name in names if name in before.get(stream, ()))
            for stream, names in branch.columns.items()
        }

    def keep_missed(self, done: Computed) -> None:
        """Keep the rows of an epoch for the queries that do not take part in it, up to a bound."""
        state = done.state
        failed = {n: b for n, b in state.branches.items() if b.failure is not None}
        behind = {n: self._failed_sources.get(n, {}) for n, b in failed.items() if not b.rows_gone}
        for name, missed in done.attempt.keep_missed(behind).items():
            branch = failed[name]
            branch.miss(missed)
            if branch.missed_rows > self._most_rows or len(branch.missed) > MOST_EPOCHS:
                state.garbage += [(state.epoch, path) for path in branch.let_go_of_rows()]

    def compute(self, done: Computed, batches: Mapping[str, Batch], idle: frozenset[str]) -> None:
        """An epoch that was computed for the others, for those that go on by themselves."""
        number, report = done.report.epoch, done.report
        for name, runner in self.runners.items():
            branch = done.state.branches[name]
            if not runner.has_work(batches, idle):
                branch.state = runner.state
                continue
            mine = {stream: batch for stream, batch in batches.items() if stream in runner.sources}
            try:
                own = runner.compute(number, mine, idle)
            except QueriesFailed as failed:
                report.failures[name] = failed.errors[name]
                self._fail_again(name, branch, failed.errors[name], number)
                continue
            done.branches[name] = own
            report.jobs += own.report.jobs
            report.branches[name] = own.report
            report.rows_out |= own.report.rows_out
            branch.state = own.state
            _hand_over(own.state, done.state.publications, done.state)

    def replay(self, state: Committed) -> tuple[str, EpochReport] | None:
        """Repeat one epoch for a query that has missed it; None where there is none left.

        It is true with the next commit, with which its output is published.
        """
        for name, runner in self.runners.items():
            if state.branches[name].missed:
                return name, self._replay(name, runner, state)
        return None

    def pause(self, name: str, branch: QueryBranch, error: HeadraceError, number: int) -> None:
        """Let a query stand still that went on by itself."""
        self._fail_again(name, branch, error, number)
        self.runners.pop(name).close()

    def forget(self, name: str, state: Committed) -> None:
        """Let a query go that went on by itself."""
        self.runners.pop(name).close()
        forget_branch(state, name)

    def _replay(self, name: str, runner: EpochRunner, state: Committed) -> EpochReport:
        started = time.monotonic()
        branch = state.branches[name]
        missed = branch.missed[0]
        batches = {
            stream: self._batch_again(missed, files, runner.sources[stream])
            for stream, files in missed.files.items()
            if stream in runner.sources
        }
        try:
            done = runner.compute(missed.epoch, batches, missed.idle)
        except StreamsBroken as broken:
            reason = next(iter(broken.errors.values()))
            raise CheckpointError(
                f"rows that are kept for query {name!r} are damaged or gone: {reason.message}",
                hint="restore the checkpoint as a whole from a copy, or start with a new one",
            ) from broken
        except QueriesFailed as failed:
            self._fail_again(name, branch, failed.errors[name], missed.epoch)
            del self.runners[name]
            return EpochReport(missed.epoch, failures=failed.errors)
        runner.adopt_alone(done)
        branch.state = done.state
        _hand_over(done.state, self.to_publish, state)
        rows = [(state.epoch, f.path) for files in missed.files.values() for f in files]
        state.garbage += rows
        del branch.missed[0]
        done.report.seconds["total"] = time.monotonic() - started
        return done.report

    def _batch_again(
        self, missed: MissedEpoch, files: Sequence[StateFile], source: Source
    ) -> Batch:
        """The rows of a stream that were kept, as a micro-batch."""
        paths = [file.path for file in files if file.rows]
        session, columns = self._executor.session, ddl(source.columns)
        if not paths:
            return Batch(session.createDataFrame([], columns), missed.epoch)
        return Batch(session.read.schema(columns).parquet(*paths), missed.epoch, paths)

    def _fail_again(
        self, name: str, branch: QueryBranch, error: HeadraceError, number: int
    ) -> None:
        branch.failure = Failure(number, error.condition, error.message)
        self.keep_rows_for(name, branch, self.runners[name].physical.sources)


def _hand_over(own: Committed, to_publish: list[Publication], state: Committed) -> None:
    """What a branch wants published and deleted is done with the commit of all."""
    to_publish += own.publications
    state.garbage += own.garbage
    own.publications, own.garbage = [], []
