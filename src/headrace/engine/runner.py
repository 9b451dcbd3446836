"""Epochs one after the other: which plans run, and each epoch from intent to commit.

The order of durable steps is intent, state, sink output (staged), commit, publication.

Queries that went on by themselves after they had failed (``branches``) have runners of their own,
whose epochs are part of those of the others.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from headrace.engine.arrangements import Arrangement, StateFile
from headrace.engine.attempt import Attempt
from headrace.engine.batches import Batch
from headrace.engine.blame import QueriesFailed, StreamsBroken
from headrace.engine.branches import (
    MOST_EPOCHS,
    Branch,
    Failure,
    MissedEpoch,
    branched_off,
    described,
    forget_branch,
    own_arrangements,
)
from headrace.engine.catching_up import stays_apart
from headrace.engine.checkpoint import Committed, Intent, Publication
from headrace.engine.compaction import merge_files
from headrace.engine.compile import compile_queries, with_columns_of
from headrace.engine.early_plans import EarlyMemory, EarlyPolicy
from headrace.engine.epoch import Epoch
from headrace.engine.executor import Executor, ddl
from headrace.engine.join_orders import JoinMemory, JoinPolicy
from headrace.engine.layouts import LayoutPolicy, decide
from headrace.engine.operators.base import Store
from headrace.engine.outbox import Delivery, RetryPolicy, waiting_before, waiting_rows
from headrace.engine.physical import LiveQuery, Physical
from headrace.engine.report import EpochReport
from headrace.engine.sinks import QuerySink
from headrace.engine.sinks.results import ResultsSink
from headrace.engine.storage import Storage
from headrace.engine.writes import Steps, run_together
from headrace.errors import HeadraceError, SinkError
from headrace.merge import Strategy
from headrace.merge.rewriting import Merging
from headrace.names import storage_name
from headrace.plan.json import from_json, to_json
from headrace.plan.nodes import Node, Source
from headrace.plan.types import Schema
from headrace.stats.load import Load


@dataclass(frozen=True)
class Running:
    """A live query with its sink."""

    live: LiveQuery
    sink: QuerySink

    @property
    def name(self) -> str:
        return self.live.sink.name


@dataclass(frozen=True)
class Waiting:
    """What waits for a sink, and how it goes with the sink; nothing is known of that at first."""

    outbox: Arrangement
    delivery: Delivery | None


@dataclass
class _Computed:
    """An epoch that has only to be committed."""

    state: Committed
    report: EpochReport
    attempt: Attempt
    branches: dict[str, _Computed] = field(default_factory=dict)


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
        self.physical = Physical()
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
        self.retry_policy = retry_policy or RetryPolicy()
        #: Sinks that did not take what they were given last, by query.
        self._deliveries: dict[str, Delivery] = {}
        #: The same of output that could not be published, of all sinks together.
        self.publishing: Delivery | None = None
        #: How many rows are kept for a query that fails.
        self._kept_rows = kept_rows
        #: What failed queries read, of which rows are kept for them.
        self._failed_sources: dict[str, dict[str, Source]] = {}
        #: The runners of queries that go on by themselves.
        self.branches: dict[str, EpochRunner] = {}
        #: Whether something was decided or done that only the next commit makes true.
        self.owes_commit = False
        self._pending: list[Publication] = []

    def use(self, queries: Mapping[str, Running]) -> None:
        """Run these queries from now on."""
        self.queries = dict(queries)
        sinks = {name: q.live.sink for name, q in queries.items()}
        never = [name for name, query in queries.items() if stays_apart(query.live)]
        plans = self.merging.update(sinks, self._plans_that_ran(), never)
        self.live = {n: LiveQuery(plans[n], q.live.visible_from) for n, q in queries.items()}
        self._remember_merged()
        distinct = self._distinct_plans()
        self.state.panes, changes = decide(distinct, self.state.panes, self.loads, self.policy)
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
            key = id(plan), live.visible_from
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
        return frozenset(streams for streams in sets if len(streams) > 1)

    def rows_held(self) -> int:
        """Rows of the state that wait for the watermarks of several streams."""
        held = [
            store.name
            for store in self.physical.stores
            if not store.endless and any(len(streams) > 1 for streams in released_by(store))
        ]
        found = (self.state.arrangements.get(name) for name in held)
        return sum(arrangement.rows for arrangement in found if arrangement is not None)

    def compiled(self, queries: list[LiveQuery]) -> Physical:
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
        _, changes = decide(self._distinct_plans(), self.state.panes, self.loads, self.policy)
        if changes:
            self.use(self.queries)
        return bool(changes)

    @property
    def sources(self) -> dict[str, Source]:
        """The streams that are read, each with all columns that somebody needs."""
        found = dict(self.physical.sources)
        others = [runner.sources for runner in self.branches.values()]
        for source in chain.from_iterable(each.values() for each in (*others, *self._kept_for())):
            known = found.get(source.stream)
            found[source.stream] = source if known is None else with_columns_of(known, source)
        return found

    def _kept_for(self) -> Iterator[Mapping[str, Source]]:
        for name, branch in self.state.branches.items():
            if branch.failure is not None and not branch.rows_gone:
                yield self.sources_of_failed(name)

    def sources_of_failed(self, query: str) -> Mapping[str, Source]:
        """The streams of a query that has failed, with the columns that are kept for it."""
        return self._failed_sources.get(query, {})

    @property
    def is_needed(self) -> bool:
        """Whether anybody takes part in epochs."""
        return bool(self.queries or self.branches)

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
                done = self._compute(number, taken, idle)
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
            self._note_deliveries(done.report)
            done.report.is_committed = False
            return done.report
        started = time.monotonic()
        done.state.publications = [*self._pending, *done.state.publications]
        self._checkpoint.commit(done.state)
        self._pending, self.owes_commit = [], False
        self._adopt(done)
        self._note_unpublished()
        self._publish(done)
        self._leave_out(done.report.failures)
        done.report.seconds["commit"] = time.monotonic() - started
        return done.report

    def _changes_nothing(
        self, done: _Computed, batches: Mapping[str, Batch], idle: frozenset[str]
    ) -> bool:
        """Whether sinks were tried again in vain, and nothing else was to be done."""
        if (
            batches
            or self.owes_commit
            or self._checkpoint.unpublished
            or idle != self.state.clocks.idle
        ):
            return False
        reports = [done.report, *done.report.branches.values()]
        return any(r.refused for r in reports) and not any(r.delivered for r in reports)

    def _compute(
        self, number: int, batches: Mapping[str, Batch], idle: frozenset[str]
    ) -> _Computed:
        """An epoch up to its commit. Raises if it fails for everybody."""
        failures: dict[str, HeadraceError] = {}
        while True:
            report = EpochReport(number, failures=failures)
            attempt = Attempt(self, batches, idle, report)
            try:
                done = _Computed(attempt.run(), report, attempt)
                report.jobs = self._executor.jobs
                if not self._goes_on_without(failures):
                    raise QueriesFailed(failures)
                for name in failures.keys() & self.queries.keys():
                    outbox = waiting_before(done.state, name, number)
                    self._branch_off(done.state, name, failures[name], number, outbox)
                self._compute_branches(done, batches, idle)
                if not self._goes_on_without(failures):
                    raise QueriesFailed(failures)
                failed = [(n, b) for n, b in done.state.branches.items() if b.failure is not None]
                attempt.keep_missed(failed)
                for _, branch in failed:
                    self._bound_missed(done.state, branch)
                return done
            except QueriesFailed as failed:
                failures |= failed.errors
                if not self._goes_on_without(failures):
                    raise QueriesFailed(failures) from failed
                for name, error in failed.errors.items():
                    outbox = waiting_before(self.state, name, number)
                    self._branch_off(self.state, name, error, number, outbox)
                self._leave_out(failed.errors)
            finally:
                attempt.release()

    def _goes_on_without(self, failures: Mapping[str, HeadraceError]) -> bool:
        """Whether anybody is left, if these queries fail."""
        others = self.queries.keys() | self.branches.keys()
        return not failures or bool(others - failures.keys())

    def _branch_off(
        self,
        state: Committed,
        name: str,
        error: HeadraceError,
        number: int,
        outbox: Arrangement | None,
    ) -> None:
        """Set a query that fails in this epoch aside, with its state of before and its place."""
        stores = [s.name for s in self.physical.stores_of(self.physical.outputs[name])]
        sources = self.compiled([self.live[name]]).sources
        columns = {stream: source.columns.names for stream, source in sources.items()}
        branch = Branch(
            branched_off(self.state, name, stores, outbox),
            Failure(number, error.condition, error.message),
            described(self.queries[name].live.sink.schema),
            columns,
        )
        self._failed_sources[name] = sources
        state.branches[name] = branch
        state.queries.pop(name, None)
        state.merged.pop(name, None)
        for own in own_arrangements(name):
            state.arrangements.pop(own, None)
        if not self._kept_rows:
            branch.let_go_of_rows()

    def _bound_missed(self, state: Committed, branch: Branch) -> None:
        if branch.rows_gone:
            return
        if branch.missed_rows > self._kept_rows or len(branch.missed) > MOST_EPOCHS:
            state.garbage += [(state.epoch, path) for path in branch.let_go_of_rows()]

    def _compute_branches(
        self, done: _Computed, batches: Mapping[str, Batch], idle: frozenset[str]
    ) -> None:
        """The same epoch for the queries that go on by themselves."""
        number, report = done.report.epoch, done.report
        for name, runner in self.branches.items():
            branch = done.state.branches[name]
            if not runner.has_work(batches, idle):
                branch.state = runner.state
                continue
            mine = {stream: batch for stream, batch in batches.items() if stream in runner.sources}
            try:
                own = runner._compute(number, mine, idle)
            except QueriesFailed as failed:
                self._fail_again(branch, name, failed.errors[name], number)
                report.failures[name] = failed.errors[name]
                continue
            done.branches[name] = own
            report.jobs += own.report.jobs
            report.branches[name] = own.report
            report.rows_out |= own.report.rows_out
            branch.state = own.state
            self._take_over(done.state, own.state)

    def _fail_again(self, branch: Branch, name: str, error: HeadraceError, number: int) -> None:
        runner = self.branches[name]
        branch.failure = Failure(number, error.condition, error.message)
        self._failed_sources[name] = runner.physical.sources
        branch.columns = {s: source.columns.names for s, source in runner.physical.sources.items()}

    def _take_over(self, state: Committed, own: Committed) -> None:
        """What a branch wants published and deleted is done with the commit of all."""
        state.publications += own.publications
        state.garbage += own.garbage
        own.publications, own.garbage = [], []

    def has_work(self, batches: Mapping[str, Batch], idle: frozenset[str]) -> bool:
        """Whether an epoch is anything to the queries of this runner."""
        streams = self.physical.sources.keys()
        return bool(
            streams & batches.keys()
            or streams & idle != streams & self.state.clocks.idle
            or self.due_deliveries()
        )

    def _adopt(self, done: _Computed) -> None:
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
        self._note_deliveries(report)
        for name, own in done.branches.items():
            self.branches[name]._adopt(own)
        for name in report.failures.keys() & self.branches.keys():
            del self.branches[name]

    def _publish(self, done: _Computed) -> None:
        number = done.report.epoch
        for name, running in self.queries.items():
            if name not in done.report.failures:
                running.sink.publish(number)
        for runner in self.branches.values():
            for running in runner.queries.values():
                running.sink.publish(number)

    # Sinks that did not take their rows

    def _note_deliveries(self, report: EpochReport) -> None:
        now = time.monotonic()
        for name, error in report.refused.items():
            delivery = self._deliveries.setdefault(name, Delivery(self.retry_policy, error))
            delivery.failed(now, error)
        for name in [n for n in self._deliveries if waiting_rows(self.state, n) is None]:
            del self._deliveries[name]
        for name, own in report.branches.items():
            if name in self.branches and not report.is_committed:
                self.branches[name]._note_deliveries(own)

    def _note_unpublished(self) -> None:
        stuck = self._checkpoint.unpublished
        if not stuck:
            self.publishing = None
            return
        publication, reason = next(iter(stuck.items()))
        error = SinkError(
            f"{publication.final} cannot be published: {reason}",
            hint="mend the sink's folder; what was staged appears when it can be written to",
        )
        self.publishing = self.publishing or Delivery(self.retry_policy, error)
        self.publishing.failed(time.monotonic(), error)

    def unpublished(self) -> set[str]:
        """The queries of whose output some could not be published."""
        stuck = {publication.query for publication in self._checkpoint.unpublished}
        names = (*self.queries, *self.branches)
        return {name for name in names if storage_name(name) in stuck}

    def due_deliveries(self) -> list[str]:
        """Queries for whose sinks rows wait, where it is time to try again."""
        now = time.monotonic()
        return [
            name
            for name in self.queries
            if waiting_rows(self.state, name) is not None
            and (name not in self._deliveries or self._deliveries[name].next_try <= now)
        ]

    def last_refusal(self, query: str) -> HeadraceError | None:
        delivery = self._deliveries.get(query)
        return None if delivery is None else delivery.error

    def waiting(self) -> dict[str, Waiting]:
        """What waits for sinks, by query."""
        found = {}
        for name in self.queries:
            outbox = waiting_rows(self.state, name)
            if outbox is not None:
                found[name] = Waiting(outbox, self._deliveries.get(name))
        for runner in self.branches.values():
            found |= runner.waiting()
        return found

    def is_delivery_due(self) -> bool:
        """Whether it is time to try sinks again that did not take their rows."""
        if self._checkpoint.unpublished:
            now = time.monotonic()
            if self.publishing is None or self.publishing.next_try <= now:
                return True
        return any(runner.due_deliveries() for runner in (self, *self.branches.values()))

    # Queries that go on from where they failed

    def resume(self, name: str, runner: EpochRunner) -> None:
        """Let a query go on by itself, first with the epochs that it has missed."""
        self.branches[name] = runner
        self.state.branches[name].failure = None
        self.owes_commit = True

    def forget(self, name: str) -> None:
        """Let a query go that went on by itself."""
        self.branches.pop(name).close()
        forget_branch(self.state, name)

    def replay(self) -> tuple[str, EpochReport] | None:
        """Repeat one epoch for a query that has missed it; None where there is none left.

        It is true with the next commit, with which its output is published.
        """
        for name, runner in self.branches.items():
            branch = self.state.branches[name]
            if branch.missed:
                return name, self._replay(name, runner, branch, branch.missed[0])
        return None

    def _replay(
        self, name: str, runner: EpochRunner, branch: Branch, missed: MissedEpoch
    ) -> EpochReport:
        started = time.monotonic()
        batches = {
            stream: self._batch_again(missed.epoch, files, runner.sources[stream])
            for stream, files in missed.files.items()
            if stream in runner.sources
        }
        try:
            done = runner._compute(missed.epoch, batches, missed.idle)
        except QueriesFailed as failed:
            self._fail_again(branch, name, failed.errors[name], missed.epoch)
            del self.branches[name]
            return EpochReport(missed.epoch, failures=failed.errors)
        runner._adopt(done)
        branch.state = done.state
        self._pending += done.state.publications
        done.state.publications = []
        self._take_over(self.state, done.state)
        self.state.garbage += [
            (self.state.epoch, f.path) for files in missed.files.values() for f in files
        ]
        del branch.missed[0]
        done.report.seconds["total"] = time.monotonic() - started
        return done.report

    def _batch_again(self, epoch: int, files: Sequence[StateFile], source: Source) -> Batch:
        paths = [file.path for file in files if file.rows]
        schema = Schema(tuple(source.columns))
        session = self._executor.session
        if not paths:
            return Batch(session.createDataFrame([], ddl(schema)), epoch)
        return Batch(session.read.schema(ddl(schema)).parquet(*paths), epoch, paths)

    def tidy(self, limit: int) -> None:
        """Merge the small files of all queries, also of those that go on by themselves."""
        for runner in (self, *self.branches.values()):
            runner._tidy(limit)

    def _tidy(self, limit: int) -> None:
        """Merge small files of the state, between two epochs.

        The merged files take the place of the small ones in memory now and durably with the next
        commit; until then a restart finds the small ones.
        """
        epoch = Epoch(
            self.state.epoch + 1,
            self._executor,
            self._checkpoint,
            self.state,
            {},
            clocks_before=self.state.clocks,
            clocks_after=self.state.clocks,
        )
        self._executor.begin_epoch()
        work: dict[str, Steps[None]] = {}
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
        for runner in self.branches.values():
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
