"""Epochs one after the other: which plans run, and each epoch from intent to commit.

The order of durable steps is intent, state, sink output (staged), commit, publication.

Queries that went on by themselves after they had failed (``branches``) have runners of their own,
whose epochs are part of those of the others.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from headrace.compiler.compile import compile_queries, with_columns_of
from headrace.compiler.physical_plan import PhysicalPlan
from headrace.engine.checkpoint.storage import Storage
from headrace.engine.epochs.attempt import Attempt
from headrace.engine.epochs.blame import QueriesFailed, StreamsBroken
from headrace.engine.epochs.branch_runs import BranchRuns
from headrace.engine.epochs.compaction import merge_files
from headrace.engine.epochs.deliveries import Deliveries, RetryPolicy, Waiting
from headrace.engine.epochs.outbox import waiting_before
from headrace.engine.epochs.report import EpochReport
from headrace.engine.epochs.running_epoch import RunningEpoch
from headrace.engine.execution.executor import Executor
from headrace.engine.ingest.micro_batch import Batch
from headrace.engine.sinks import QuerySink
from headrace.engine.sinks.results import ResultsSink
from headrace.errors import HeadraceError
from headrace.merge import Strategy
from headrace.merge.rewriting import Merging
from headrace.names import storage_name
from headrace.operators.base import Store
from headrace.operators.write import Writing, run_together
from headrace.plan.json import from_json, to_json
from headrace.plan.nodes import Node, Source
from headrace.planner.early_aggregation import EarlyMemory, EarlyPolicy
from headrace.planner.join_order import JoinMemory, JoinPolicy
from headrace.planner.late_joiners import stays_apart
from headrace.planner.live_query import LiveQuery
from headrace.planner.pane_layout import LayoutPolicy, plan_pane_layouts
from headrace.state.branches import Branch, Failure, branched_off, described, set_aside
from headrace.state.committed import Committed, Intent
from headrace.stats.load import Load


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


@dataclass(frozen=True)
class _OwnStores:
    """What a plan needs of stores, as long as its panes are laid out like this.

    That is the names of the counters of each of them, and the sets of streams by whose watermarks
    they let rows go.
    """

    plan: Node
    layout: object
    counters: dict[str, list[str]]
    released_by: frozenset[frozenset[str]]


class EpochRunner:
    """Holds the current plan and state, and runs epochs over them."""

    def __init__(
        self,
        executor: Executor,
        checkpoint: Storage,
        state: Committed,
        key: str,
        policy: LayoutPolicy,
        closing: str,
        join_policy: JoinPolicy,
        early_policy: EarlyPolicy | None = None,
        merging: Merging | None = None,
        retry_policy: RetryPolicy | None = None,
        kept_rows: int = 0,
    ) -> None:
        self._executor = executor
        self._checkpoint = checkpoint
        self._key = key
        self.policy = policy
        self.closing = closing
        self.join_policy = join_policy
        self.early_policy = early_policy or EarlyPolicy()
        self.merging = merging or Merging(Strategy.NONE)
        self.state = state
        self.queries: dict[str, Running] = {}
        #: What each query runs: its plan, merged with those of the others.
        self.live: dict[str, LiveQuery] = {}
        self.physical = PhysicalPlan()
        self.recent_rows: dict[str, int] = {}
        self.loads: dict[str, Load] = {}
        self.joins = JoinMemory()
        self.early = EarlyMemory(self.loads)
        #: The stores of each query, with the counters of the rows that are late for *it*.
        self.late_counters: dict[str, dict[str, list[str]]] = {}
        #: The sets of streams by whose watermarks each query's operators go.
        self.released_by: dict[str, frozenset[frozenset[str]]] = {}
        self._own_stores: dict[tuple[int, int | None], _OwnStores] = {}
        self._changes: list[str] = []
        self.deliveries = Deliveries(retry_policy or RetryPolicy())
        #: Queries that failed, and those that went on by themselves.
        self.branches = BranchRuns(executor, kept_rows)
        #: Whether something was decided or done that only the next commit makes true.
        self.owes_commit = False

    def use(self, queries: Mapping[str, Running]) -> None:
        """Run these queries from now on."""
        self.queries = dict(queries)
        sinks = {name: q.live.sink for name, q in queries.items()}
        never = [name for name, query in queries.items() if stays_apart(query.live)]
        plans = self.merging.update(sinks, self._plans_that_ran(), never)
        self.live = {n: LiveQuery(plans[n], q.live.starts_at) for n, q in queries.items()}
        self._remember_merged()
        distinct = self._distinct_plans()
        self.state.panes, changes = plan_pane_layouts(
            distinct, self.state.panes, self.loads, self.policy
        )
        self._changes += [change.text for change in changes]
        self.physical = self.compiled(list(self.live.values()))
        own = self._stores_by_query()
        self.late_counters = {name: stores.counters for name, stores in own.items()}
        self.released_by = {name: stores.released_by for name, stores in own.items()}
        self.state.plan_version += 1

    def _remember_merged(self) -> None:
        """State is named by the plan that runs, so a restart must find it."""
        self.state.merged, self.state.plans = {}, {}
        hashes: dict[int, str] = {}
        for name, live in self.live.items():
            if live.sink.input is self.queries[name].live.sink.input:
                continue
            if id(live.sink.input) not in hashes:
                written = json.dumps(to_json(live.sink.input), separators=(",", ":"))
                number = hashlib.sha256(written.encode()).hexdigest()[:16]
                self.state.plans[number] = written
                hashes[id(live.sink.input)] = number
            self.state.merged[name] = hashes[id(live.sink.input)]

    def _plans_that_ran(self) -> dict[str, Node]:
        """The plans of queries before a restart: their own, or those they were merged into."""
        if self.live:
            return {}
        plans = {n: from_json(json.loads(text)) for n, text in self.state.plans.items()}
        # Equal plans become one and the same, which is what all sharing looks at.
        same: dict[Node, Node] = {}
        ran: dict[str, Node] = {}
        for name, running in self.queries.items():
            record = self.state.queries.get(name)
            if name in self.state.merged:
                plan = plans[self.state.merged[name]]
                ran[name] = same.setdefault(plan, plan)
            elif self.state.epoch and (record is None or record.since_epoch <= self.state.epoch):
                plan = running.live.sink.input
                ran[name] = same.setdefault(plan, plan)
        return ran

    def _distinct_plans(self) -> list[Node]:
        return list({id(q.sink.input): q.sink.input for q in self.live.values()}.values())

    def _stores_by_query(self) -> dict[str, _OwnStores]:
        """The stores of each query as if it ran alone: merged queries have the same."""
        known, found = self._own_stores, {}
        by_query = {}
        for name, live in self.live.items():
            plan = live.sink.input
            key = id(plan), live.starts_at
            if key not in found:
                # To compile thousands of plans one by one takes seconds, and few have changed.
                layout = self.state.panes.of(plan)
                before = known.get(key)
                if before is None or before.plan is not plan or before.layout != layout:
                    stores = self.compiled([live]).stores
                    counters = {store.name: store.late_counters() for store in stores}
                    sets = frozenset().union(*(released_by(store) for store in stores))
                    before = _OwnStores(plan, layout, counters, sets)
                found[key] = before
            by_query[name] = found[key]
        self._own_stores = found
        return by_query

    @property
    def groups(self) -> frozenset[frozenset[str]]:
        """The sets of several streams by whose watermarks some operator goes."""
        sets = frozenset().union(*self.released_by.values())
        own = frozenset(streams for streams in sets if len(streams) > 1)
        return own.union(*(runner.groups for runner in self.branches.runners.values()))

    def rows_held(self) -> int:
        """Rows of the state that wait for the watermarks of several streams."""
        held = [
            store.name
            for store in self.physical.stores
            if not store.endless and any(len(streams) > 1 for streams in released_by(store))
        ]
        found = (self.state.arrangements.get(name) for name in held)
        own = sum(arrangement.rows for arrangement in found if arrangement is not None)
        return own + sum(runner.rows_held() for runner in self.branches.runners.values())

    def compiled(self, queries: list[LiveQuery]) -> PhysicalPlan:
        """Operators for some of the queries, over the stores that all of them share."""
        return compile_queries(
            queries, self.state.panes, self.closing, self.join_policy, self.early_policy
        )

    def keeps_all_of(self, query: LiveQuery) -> bool:
        """Whether everything that a query would need to remember is in the stores already."""
        stores = {store.name: store for store in self.physical.stores}
        return all(
            needed.name in stores and stores[needed.name].serves(needed)
            for needed in self.compiled([query]).stores
        )

    def replan(self) -> bool:
        """Change what is laid out otherwise than the rows of late would have it."""
        _, changes = plan_pane_layouts(
            self._distinct_plans(), self.state.panes, self.loads, self.policy
        )
        if changes:
            self.use(self.queries)
        return bool(changes)

    @property
    def sources(self) -> dict[str, Source]:
        """The streams that are read, each with all columns that somebody needs."""
        found = dict(self.physical.sources)
        for source in self.branches.sources(self.state):
            known = found.get(source.stream)
            found[source.stream] = source if known is None else with_columns_of(known, source)
        return found

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
        stores = [store.name for store in self.physical.stores_of(self.physical.outputs[name])]
        outbox = waiting_before(state, name, number)
        branch = Branch(
            branched_off(self.state, name, stores, outbox),
            Failure(number, error.condition, error.message),
            described(self.queries[name].live.sink.schema),
        )
        set_aside(state, name, branch)
        self.branches.keep_rows_for(name, branch, self.compiled([self.live[name]]).sources)

    def has_work(self, batches: Mapping[str, Batch], idle: frozenset[str]) -> bool:
        """Whether an epoch is anything to the queries of this runner."""
        streams = self.physical.sources.keys()
        return bool(
            streams & batches.keys()
            or streams & idle != streams & self.state.clocks.idle
            or self.due_deliveries()
        )

    def adopt(self, done: Computed) -> None:
        """The epoch is true."""
        report = done.report
        self.state = done.state
        done.attempt.learn()
        report.changes = [*self._changes, *self.joins.changes, *self.early.changes]
        report.changes += self._executor.take_news()
        self._changes, self.joins.changes, self.early.changes = [], [], []
        for family, load in report.loads.items():
            known = self.loads.get(family)
            self.loads[family] = load if known is None else known.then(load)
        self.recent_rows |= report.rows_in
        self._note_deliveries(done)
        for name, own in done.branches.items():
            self.branches.runners[name].adopt(own)
        for name in report.failures.keys() & self.branches.runners.keys():
            del self.branches.runners[name]

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
        found = self.deliveries.waiting(self.state, self.queries)
        for runner in self.branches.runners.values():
            found |= runner.waiting()
        return found

    def unpublished(self) -> set[str]:
        """The queries of whose output some could not be published."""
        stuck = {publication.query for publication in self._checkpoint.unpublished}
        names = (*self.queries, *self.branches.runners)
        return {name for name in names if storage_name(name) in stuck}

    # Queries that go on from where they failed

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
        if self.joins.probing:
            with suppress(Exception):
                self._executor.forget_indexes(self.joins.run)

    def _leave_out(self, failed: Mapping[str, HeadraceError]) -> None:
        remaining = {n: q for n, q in self.queries.items() if n not in failed}
        if len(remaining) < len(self.queries):
            self.use(remaining)


def released_by(store: Store) -> frozenset[frozenset[str]]:
    """The sets of streams by whose watermarks a store lets rows go; sessions follow theirs."""
    return frozenset(
        frozenset(clock for clock in clocks if not clock.startswith("sessions-"))
        for clocks in store.released_by()
    )


def is_time_to_plan(epoch: int) -> bool:
    """Often while little is known of the streams, then now and then."""
    return epoch % 16 == 0 if epoch > 8 else epoch in (1, 2, 4, 8)
