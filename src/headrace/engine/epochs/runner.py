"""Epochs one after the other: which plans run, and each epoch from intent to commit.

The order of durable steps is intent, state, sink output (staged), commit, publication.

Queries that went on by themselves after they had failed (``branches``) have runners of their own,
whose epochs are part of those of the others.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from headrace.compiler.compile import with_columns_of
from headrace.compiler.physical_plan import PhysicalPlan
from headrace.engine.checkpoint.storage import Storage
from headrace.engine.epochs.attempt import Attempt
from headrace.engine.epochs.blame import QueriesFailed, StreamsBroken
from headrace.engine.epochs.branch_runs import BranchRuns
from headrace.engine.epochs.compaction import merge_files
from headrace.engine.epochs.deliveries import Deliveries, RetryPolicy, Waiting
from headrace.engine.epochs.live_plan import LivePlan
from headrace.engine.epochs.outbox import waiting_before
from headrace.engine.epochs.report import EpochReport
from headrace.engine.epochs.running_epoch import RunningEpoch
from headrace.engine.execution.executor import Executor
from headrace.engine.ingest.micro_batch import Batch
from headrace.engine.sinks import QuerySink
from headrace.engine.sinks.results import ResultsSink
from headrace.errors import HeadraceError
from headrace.names import storage_name
from headrace.operators.epoch import EngineLife
from headrace.operators.write import Writing, run_together
from headrace.plan.nodes import Source
from headrace.planner.cadence import is_due
from headrace.planner.live_query import LiveQuery
from headrace.planner.statistics import RuntimeStatistics
from headrace.planner.stored_panes import learn_layouts
from headrace.state.branches import Failure, QueryBranch, branched_off, described, set_aside
from headrace.state.committed import Committed, Intent
from headrace.stats.catalog import Observation


@dataclass(frozen=True)
class Running:
    """A live query with its sink."""

    live: LiveQuery
    sink: QuerySink

    @property
    def name(self) -> str:
        return self.live.sink.name


@dataclass
class Computed:
    """An epoch that has only to be committed."""

    state: Committed
    report: EpochReport
    attempt: Attempt
    branches: dict[str, Computed] = field(default_factory=dict)


class EpochRunner:
    """Holds the current plan and state, and runs epochs over them."""

    def __init__(
        self,
        executor: Executor,
        checkpoint: Storage,
        state: Committed,
        key: str,
        plan: LivePlan,
        retry_policy: RetryPolicy | None = None,
        kept_rows: int = 0,
    ) -> None:
        self._executor = executor
        self._checkpoint = checkpoint
        self._key = key
        self.state = state
        self.plan = plan
        self.life = EngineLife()
        self.queries: dict[str, Running] = {}
        self.deliveries = Deliveries(retry_policy or RetryPolicy())
        #: Queries that failed, and those that went on by themselves.
        self.branches = BranchRuns(executor, kept_rows)
        #: Whether something was decided or done that only the next commit makes true.
        self.owes_commit = False
        #: After which epoch layouts were last looked at, and whether they should be again.
        self._planned_at = 0
        self._streams_changed = False

    @property
    def physical(self) -> PhysicalPlan:
        """What runs."""
        return self.plan.physical

    @property
    def statistics(self) -> RuntimeStatistics:
        """What was learnt while it ran."""
        return self.plan.statistics

    def use(self, queries: Mapping[str, Running]) -> None:
        """Run these queries from now on."""
        self.queries = dict(queries)
        self.plan.use({name: query.live for name, query in queries.items()}, self.state)

    def replan_at_times(self) -> None:
        """Lay out anew what is laid out otherwise than the rows of late would have it: looked at
        now and then, and when something has changed that speaks for it."""
        number = self.state.epoch
        if number == self._planned_at or not (is_due(number) or self._streams_changed):
            return
        self._planned_at, self._streams_changed = number, False
        self.plan.choices.laid_out_for = dict(self.statistics.loads)
        if self.plan.is_outdated:
            self.use(self.queries)

    @property
    def groups(self) -> frozenset[frozenset[str]]:
        """The sets of several streams by whose watermarks some operator goes."""
        sets = frozenset().union(*self.plan.released_by.values())
        own = frozenset(streams for streams in sets if len(streams) > 1)
        return own.union(*(runner.groups for runner in self.branches.runners.values()))

    def rows_held(self) -> int:
        """Rows of the state that wait for the watermarks of several streams."""
        held = [
            store.name
            for store in self.physical.stores
            if not store.endless
            and any(len(streams) > 1 for streams in self.physical.released_by(store))
        ]
        arrangements = (self.state.arrangements.get(name) for name in held)
        own = sum(arrangement.rows for arrangement in arrangements if arrangement is not None)
        return own + sum(runner.rows_held() for runner in self.branches.runners.values())

    @property
    def sources(self) -> dict[str, Source]:
        """The streams that are read, each with all columns that somebody needs."""
        by_stream = dict(self.physical.sources)
        for source in self.branches.sources(self.state):
            present = by_stream.get(source.stream)
            by_stream[source.stream] = (
                source if present is None else with_columns_of(present, source)
            )
        return by_stream

    @property
    def is_needed(self) -> bool:
        """Whether anybody takes part in epochs."""
        return bool(self.queries or self.branches.runners)

    def run(self, batches: Mapping[str, Batch], idle: frozenset[str] = frozenset()) -> EpochReport:
        """Process the batches as one epoch. A query that fails is left out; the rest goes on.

        Streams that are ``idle`` hold no operator's watermark back, unless they bring rows now.
        Streams whose rows cannot be read are left out, too; if these are all, it is raised.
        """
        number = self.state.epoch + 1
        taken = dict(batches)
        broken: dict[str, HeadraceError] = {}
        while True:
            self._checkpoint.begin(Intent(number, {s: b.number for s, b in taken.items()}, idle))
            try:
                done = self.compute(number, taken, idle)
                break
            except StreamsBroken as found:
                broken |= found.errors
                taken = {s: b for s, b in taken.items() if s not in broken}
                if not taken:
                    raise StreamsBroken(broken) from found
            except QueriesFailed as failed:
                # Nobody is left to go on for: the epoch is not committed, a restart repeats it.
                raise next(iter(failed.errors.values())) from failed
        done.report.broken = broken
        if self._changes_nothing(done, taken, idle):
            done.report.is_committed = False
            self._note_deliveries(done)
            return done.report
        started = time.monotonic()
        self._learn(done)
        done.state.publications += self.branches.to_publish
        self._checkpoint.commit(done.state)
        self.branches.to_publish, self.owes_commit = [], False
        self.adopt(done)
        self.deliveries.note_unpublished(self._checkpoint.unpublished)
        self._publish(done)
        self._leave_out(done.report.failures)
        done.report.seconds["commit"] = time.monotonic() - started
        return done.report

    def _changes_nothing(
        self, done: Computed, batches: Mapping[str, Batch], idle: frozenset[str]
    ) -> bool:
        """Whether sinks were tried again in vain, and nothing else was to be done."""
        if batches or self.owes_commit or idle != self.state.clocks.idle:
            return False
        reports = [done.report, *done.report.branches.values()]
        return any(r.refused for r in reports) and not any(r.delivered for r in reports)

    def compute(self, number: int, batches: Mapping[str, Batch], idle: frozenset[str]) -> Computed:
        """An epoch up to its commit. Raises if it fails for everybody."""
        failures: dict[str, HeadraceError] = {}
        while True:
            report = EpochReport(number, failures=failures)
            attempt = Attempt(self, batches, idle, report)
            try:
                done = Computed(attempt.run(), report, attempt)
                report.jobs = self._executor.jobs
                if not self._goes_on_without(failures):
                    raise QueriesFailed(failures)
                for name in failures.keys() & self.queries.keys():
                    self._branch_off(done.state, name, failures[name], number)
                self.branches.compute(done, batches, idle)
                if not self._goes_on_without(failures):
                    raise QueriesFailed(failures)
                self.branches.keep_missed(done)
                return done
            except QueriesFailed as failed:
                failures |= failed.errors
                if not self._goes_on_without(failures):
                    raise QueriesFailed(failures) from failed
                for name, error in failed.errors.items():
                    self._branch_off(self.state, name, error, number)
                self._leave_out(failed.errors)
            finally:
                attempt.release()

    def _goes_on_without(self, failures: Mapping[str, HeadraceError]) -> bool:
        """Whether anybody is left, if these queries fail."""
        others = self.queries.keys() | self.branches.runners.keys()
        return not failures or bool(others - failures.keys())

    def _branch_off(self, state: Committed, name: str, error: HeadraceError, number: int) -> None:
        """Set a query that fails in this epoch aside, with its state of before and its place."""
        stores = [
            store.name for store in self.physical.stores_of(self.physical.outputs[name].operator)
        ]
        outbox = waiting_before(state, name, number)
        branch = QueryBranch(
            branched_off(self.state, name, stores, outbox),
            Failure(number, error.condition, error.message),
            described(self.queries[name].live.sink.schema),
        )
        set_aside(state, name, branch)
        self.branches.keep_rows_for(name, branch, self.plan.alone(self.plan.queries[name]).sources)

    def has_work(self, batches: Mapping[str, Batch], idle: frozenset[str]) -> bool:
        """Whether an epoch is anything to the queries of this runner."""
        streams = self.physical.sources.keys()
        return bool(
            streams & batches.keys()
            or streams & idle != streams & self.state.clocks.idle
            or self.due_deliveries()
        )

    def _learn(self, done: Computed) -> None:
        """Take in what the epoch saw, and let its commit hold what is known."""
        for stream, rows in done.report.rows_in.items():
            seen = Observation(
                rows,
                greatest_time=done.state.greatest.get(stream),
                null_times=done.report.null_times[stream],
            )
            self.statistics.note_stream(stream, seen)
        self._streams_changed |= learn_layouts(
            done.state.panes.running,
            done.report.loads,
            self.statistics,
            self.plan.choices,
            self.plan.policy,
        )
        done.attempt.learn()
        done.state.statistics = self.statistics.to_json()
        for name, own in done.branches.items():
            self.branches.runners[name]._learn(own)

    def adopt(self, done: Computed) -> None:
        """The epoch is true."""
        report = done.report
        self.state = done.state
        report.changes = [*self.plan.take_changes(), *self._executor.take_news()]
        self._note_deliveries(done)
        for name, own in done.branches.items():
            self.branches.runners[name].adopt(own)
        for name in report.failures.keys() & self.branches.runners.keys():
            del self.branches.runners[name]

    def adopt_alone(self, done: Computed) -> None:
        """The same for an epoch of one that goes on by itself, which others commit."""
        self._learn(done)
        self.adopt(done)

    def _note_deliveries(self, done: Computed) -> None:
        self.deliveries.note(done.report, self.state)
        if not done.report.is_committed:
            for name, own in done.branches.items():
                self.branches.runners[name]._note_deliveries(own)

    def _publish(self, done: Computed) -> None:
        number = done.report.epoch
        for name, running in self.queries.items():
            if name not in done.report.failures:
                running.sink.publish(number)
        for runner in self.branches.runners.values():
            for running in runner.queries.values():
                running.sink.publish(number)

    # Sinks that did not take their rows

    def due_deliveries(self) -> list[str]:
        """Queries for whose sinks rows wait, where it is time to try again."""
        return self.deliveries.due(self.state, self.queries)

    def is_delivery_due(self) -> bool:
        """Whether it is time to hand rows over again that a sink did not take."""
        return any(runner.due_deliveries() for runner in (self, *self.branches.runners.values()))

    def publish_again(self) -> None:
        """Publish what is committed and could not be published, if it is time to try again."""
        publishing = self.deliveries.publishing
        if self._checkpoint.unpublished and (publishing is None or publishing.is_due):
            self._checkpoint.publish_again()
            self.deliveries.note_unpublished(self._checkpoint.unpublished)

    def waiting(self) -> dict[str, Waiting]:
        """What waits for sinks, by query."""
        by_query = self.deliveries.waiting(self.state, self.queries)
        for runner in self.branches.runners.values():
            by_query |= runner.waiting()
        return by_query

    def unpublished(self) -> set[str]:
        """The queries of whose output some could not be published."""
        stuck = {publication.query for publication in self._checkpoint.unpublished}
        names = (*self.queries, *self.branches.runners)
        return {name for name in names if storage_name(name) in stuck}

    # Queries that stand still, and go on from there

    def pause(self, name: str, reason: HeadraceError) -> None:
        """Let a query stand still from the next epoch on; whoever asks lets the others go on."""
        number = self.state.epoch + 1
        if name in self.branches.runners:
            self.branches.pause(name, self.state.branches[name], reason, number)
            return
        for store in self.physical.stores_of(self.physical.outputs[name].operator):
            # One that is empty is a state, too, on which the query can go on.
            self.state.arrangement(store.name)
        self._branch_off(self.state, name, reason, number)

    def resume(self, name: str, runner: EpochRunner) -> None:
        """Let a query go on by itself, first with the epochs that it has missed."""
        self.branches.runners[name] = runner
        self.state.branches[name].failure = None
        self.owes_commit = True

    def replay(self) -> tuple[str, EpochReport] | None:
        """Repeat one epoch for a query that has missed it; None where there is none left."""
        return self.branches.replay(self.state)

    def tidy(self, limit: int) -> None:
        """Merge the small files of all queries, also of those that go on by themselves."""
        for runner in (self, *self.branches.runners.values()):
            runner._tidy(limit)

    def _tidy(self, limit: int) -> None:
        """Merge small files of the state, between two epochs.

        The merged files take the place of the small ones in memory now and durably with the next
        commit; until then a restart finds the small ones.
        """
        epoch = RunningEpoch(
            self.state.epoch + 1,
            self._executor,
            self._checkpoint,
            self.state,
            {},
            clocks_before=self.state.clocks,
            clocks_after=self.state.clocks,
        )
        self._executor.begin_epoch()
        work: dict[str, Writing[None]] = {}
        for store in self.physical.stores:
            compacted = partial(store.compacted, epoch)
            work[store.name] = merge_files(
                epoch, store.name, store.schema, compacted, limit, split_by=store.split_by
            )
        for name, running in self.queries.items():
            if isinstance(running.sink, ResultsSink):
                work[f"results of {name}"] = running.sink.tidy(epoch, limit)
        for ended in run_together(self._executor, work).values():
            if isinstance(ended, Exception):
                # Where storage is whole it is about the rows of some query. They stay in small
                # files, and whoever reads them next fails by itself.
                self._checkpoint.probe()

    def close(self) -> None:
        """Leave nothing on the executors; what cannot be reached is forgotten in time."""
        for runner in self.branches.runners.values():
            runner.close()
        if self.plan.choices.probes:
            with suppress(Exception):
                self._executor.forget_indexes(self.life.name)

    def _leave_out(self, failed: Mapping[str, HeadraceError]) -> None:
        remaining = {n: q for n, q in self.queries.items() if n not in failed}
        if len(remaining) < len(self.queries):
            self.use(remaining)
