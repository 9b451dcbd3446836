"""The life of an engine: streams and queries that come and go, start, stop, restart.

``Engine`` is the core that the session, the CLI and the tests stand on. It knows plans, not SQL.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.compiler.planning import plan_all
from headrace.definitions.definition import table
from headrace.engine.checkpoint.checkpoint import Checkpoint
from headrace.engine.checkpoint.files import Files, plain_path
from headrace.engine.checkpoint.storage import BranchStorage, Storage
from headrace.engine.epochs.deliveries import RetryPolicy
from headrace.engine.epochs.live_plan import LivePlan
from headrace.engine.epochs.outbox import undelivered
from headrace.engine.epochs.report import EpochReport
from headrace.engine.epochs.runner import EpochRunner, Running
from headrace.engine.execution.executor import Executor, ddl
from headrace.engine.ingest.coordinator import Coordinator
from headrace.engine.ingest.ingest import Trigger
from headrace.engine.ingest.registered_stream import RegisteredStream
from headrace.engine.ingest.standstills import Standstills
from headrace.engine.introspection.explain import Explaining
from headrace.engine.introspection.progress import (
    Progress,
    QueryState,
    epoch_progress,
    query_progress,
    told_together,
    waiting_status,
)
from headrace.engine.policy import planner_policy
from headrace.engine.restarts import mended, other_state, settle_failed, take_spellings
from headrace.engine.sinks import BatchFunction, QuerySink, claim_folders, make_sink
from headrace.engine.sinks.foreach import in_session
from headrace.engine.sinks.results import newest, stored_schema
from headrace.errors import CheckpointError, QueryError, StreamError
from headrace.names import folded, quoted, same_name
from headrace.operators.stateless import table_view
from headrace.plan.json import plan_hash
from headrace.plan.nodes import Aggregate, Node, Sink, Table
from headrace.plan.times import closes_on_grid
from headrace.planner.cadence import is_due
from headrace.planner.late_joiners import caught_up_at
from headrace.planner.live_query import LiveQuery
from headrace.planner.merging import begin_merging
from headrace.planner.policy import PlannerPolicy
from headrace.planner.statistics import RuntimeStatistics
from headrace.planner.warm_up import warm_up_below
from headrace.settings import FailedQueries, Settings
from headrace.state.branches import (
    drop_own_arrangements,
    forget_branch,
    results_of,
)
from headrace.state.committed import Committed, Intent, QueryRecord
from headrace.state.store_names import outbox_of_query

_LOG = logging.getLogger("headrace")


@dataclass
class _Entry:
    """A query that was started: what it means, its sink, and its health."""

    logical: Node
    sink: Sink
    output: QuerySink
    state: QueryState
    leaving: bool = False
    running: Running | None = None


@dataclass
class Engine:
    """All queries over all streams, on one checkpoint."""

    spark: SparkSession
    checkpoint: str | None
    settings: Settings
    streams: dict[str, RegisteredStream] = field(default_factory=dict)
    #: Asked at each start, because a start that is refused for want of an answer comes again.
    ask_failed_queries: Callable[[], FailedQueries] | None = None

    def __post_init__(self) -> None:
        self.executor = Executor(self.spark, self.settings)
        self.tables: dict[str, DataFrame] = {}
        #: Queries by their folded names.
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.RLock()
        self._coordinator: Coordinator | None = None
        self._runner: EpochRunner | None = None
        self._arrived: list[str] = []
        #: The queries of this run, or of the last one.
        self._took_part: set[str] = set()
        self._trigger = Trigger()
        self._standstills = Standstills(self.settings.warn_after / 1_000)
        self._planned_at = 0
        #: The epoch and plan at which it was last asked who has caught up.
        self._caught_up_at = (-1, -1)
        #: The plan at which late joiners found nobody who keeps what they need.
        self._asked_at: dict[str, int] = {}
        self.epochs: deque[Progress] = deque(maxlen=10_000)
        self.explaining = Explaining(self)

    # Streams and tables

    def add_stream(self, stream: RegisteredStream) -> None:
        if self.active:
            stream.check(self._trigger)
        self.streams[stream.source.stream] = stream

    def add_table(self, table: Table, frame: DataFrame) -> None:
        if frame.isStreaming:
            raise StreamError(
                f"{table.shown!r} is a streaming DataFrame",
                hint="register it with hr.stream(...)",
            )
        self.tables[table.table] = frame
        self._show_table(table.table, frame)

    def _show_table(self, name: str, frame: DataFrame) -> None:
        in_session(self.executor.session, frame).createOrReplaceTempView(table_view(name))

    def remove_stream(self, name: str) -> None:
        """Forget a stream that no query uses."""
        source = self._stream(name).source
        users = [
            e.sink.name
            for e in self._entries.values()
            if e.state.active and source.stream in e.sink.streams()
        ]
        if users:
            raise StreamError(
                f"stream {source.shown!r} is read by {', '.join(users)}",
                hint="stop these queries first",
            )
        del self.streams[source.stream]

    def _stream(self, name: str) -> RegisteredStream:
        if folded(name) not in self.streams:
            raise StreamError(f"no stream {name!r}")
        return self.streams[folded(name)]

    def failed_queries(self) -> FailedQueries:
        """What is to become of queries that failed."""
        ask = self.ask_failed_queries
        return self.settings.failed_queries if ask is None else ask()

    # Queries

    def add_query(self, logical: Node, sink: Sink, function: BatchFunction | None) -> QueryState:
        """Check a query and let it join: now if the engine runs, else when it starts."""
        with self._lock:
            known = self._entries.get(folded(sink.name))
            if known is not None and known.state.active:
                raise QueryError(
                    f"there is a query named {known.sink.name!r} already",
                    hint="choose another queryName, or stop the first one",
                    condition="DUPLICATE_QUERY",
                )
            self._refuse_failed(sink.name)
            plan_all([LiveQuery(sink, None)], policy=planner_policy(self.settings))
            output = make_sink(sink, self.spark, function, self.settings.sink_timeout)
            output.open()
            if self.active and self._runner is not None:
                claim_folders([output], self._runner._checkpoint, self._runner.state)
            state = QueryState(sink.name, self.settings.retained_progress)
            self._entries[folded(sink.name)] = _Entry(logical, sink, output, state)
            if self.active:
                self._arrived.append(sink.name)
                assert self._coordinator is not None
                self._coordinator.wake()
            return state

    def _refuse_failed(self, name: str) -> None:
        """While the engine runs, a query that failed keeps its name and its place."""
        if not self.active or self._runner is None:
            return
        for failed, branch in self._runner.state.branches.items():
            if same_name(failed, name) and branch.failure is not None:
                raise QueryError(
                    f"query {failed!r} failed in epoch {branch.failure.epoch}, and its place is "
                    "kept",
                    hint="choose another queryName, or stop and start again with "
                    f"spark.headrace.failedQueries={failed}=retry, skip or drop",
                    condition="QUERY_FAILED_BEFORE",
                )

    def remove_query(self, name: str) -> None:
        """Let a query go; the others do not notice."""
        with self._lock:
            entry = self._entries.get(folded(name))
            if entry is None or not entry.state.active:
                return
            if not self.active:
                entry.state.finish("stopped")
                return
            entry.leaving = True
            assert self._coordinator is not None
            self._coordinator.wake()

    # Start and stop

    @property
    def active(self) -> bool:
        return self._coordinator is not None and self._coordinator.active

    def start(self, trigger: Trigger) -> None:
        if self.active:
            raise QueryError("the engine runs already", hint="call stop() first")
        live = {e.sink.name: e for e in self._entries.values() if e.state.active}
        if not live:
            raise QueryError(
                "there is no query to run", hint="start one: query.writeStream…start()"
            )
        for stream in self.streams.values():
            stream.check(trigger)
        self._part_from_what_hangs()
        self._trigger = trigger
        checkpoint = self._open_checkpoint()
        state, unfinished = checkpoint.open()
        try:
            take_spellings(state, live)
            self._run_on(checkpoint, state, unfinished, live, trigger)
        except BaseException:
            checkpoint.close()
            raise

    def _run_on(
        self,
        checkpoint: Checkpoint,
        state: Committed,
        unfinished: Intent | None,
        live: Mapping[str, _Entry],
        trigger: Trigger,
    ) -> None:
        """Run the queries from where the checkpoint is; the coordinator leaves it in the end."""
        self.executor.gate = checkpoint.gate
        choices = self.failed_queries()
        was = len(state.branches)
        schemas = {name: entry.sink.schema for name, entry in live.items()}
        skipped = settle_failed(state, schemas, choices)
        self._compare(state, live, choices)
        claim_folders([entry.output for entry in live.values()], checkpoint, state)
        runner = self._runner = self._runner_on(checkpoint, state, _key(checkpoint.root))
        runner.owes_commit = len(state.branches) < was
        runner.use(
            {
                name: self._enrol(entry, state, name in skipped)
                for name, entry in live.items()
                if name not in state.branches
            }
        )
        for name in list(state.branches):
            self._resume(runner, checkpoint, name, live[name])
        self._coordinator = Coordinator(
            self._runner,
            checkpoint,
            self.settings,
            self.streams,
            unfinished,
            self._between_epochs,
            self._on_report,
            self._on_paused,
            self._on_replay,
        )
        self._took_part = set(live)
        for entry in live.values():
            entry.output.begin()
            entry.state.begin()
        self._coordinator.start(trigger)

    def _runner_on(self, storage: Storage, state: Committed, key: str) -> EpochRunner:
        policy = planner_policy(self.settings)
        statistics = RuntimeStatistics.from_json(state.statistics)
        return EpochRunner(
            self.executor,
            storage,
            state,
            key,
            LivePlan(policy, statistics, begin_merging(policy, lambda: statistics.streams)),
            RetryPolicy.of(self.settings),
            self.settings.failed_kept_rows,
        )

    def _resume(
        self, runner: EpochRunner, checkpoint: Checkpoint, name: str, entry: _Entry
    ) -> None:
        """Let a query go on by itself, which failed once."""
        branch = runner.state.branches[name]
        storage = BranchStorage(checkpoint, name)
        own = self._runner_on(storage, branch.state, f"{_key(checkpoint.root)}_{_key(name)}")
        own.use({name: self._enrol(entry, branch.state)})
        if branch.failure is None:
            runner.branches.runners[name] = own
            return
        missing = sorted(
            f"{stream}.{column}"
            for stream, source in own.sources.items()
            for column in set(source.columns.names) - set(branch.columns.get(stream, ()))
        )
        if missing:
            since = f"of which the rows since epoch {branch.failure.epoch} were not kept"
            raise other_state(f"{name!r} reads {', '.join(missing)}, {since}")
        if not {store.name for store in own.physical.stores} <= branch.state.arrangements.keys():
            raise other_state(f"that of {name!r} was part of a plan that was merged with others")
        runner.resume(name, own)

    def stop(self, timeout: float | None = None) -> bool:
        """End after the current epoch, or abandon it after the timeout; whether it was done."""
        if self._coordinator is None:
            return True
        whole = self._coordinator.stop(timeout)
        self._settle()
        return whole

    def _part_from_what_hangs(self) -> None:
        """Let nothing that a thread which was left behind may still do meet with what runs next."""
        if self._coordinator is None or not self._coordinator.left_behind:
            return
        hanging = self._coordinator.hangs_in
        if hanging:
            raise CheckpointError(
                f"the epoch that was abandoned still hangs {hanging[0]}",
                hint="start again when the file system answers, or end this process first",
                condition="CHECKPOINT_IN_USE",
            )
        # The names of its inputs belong to a session of Spark's.
        self.executor = Executor(self.spark, self.settings)
        for name, frame in self.tables.items():
            self._show_table(name, frame)

    def join(self, timeout: float | None) -> bool:
        """Wait for the end; raises what ended the engine, if it did not end well."""
        if self._coordinator is None:
            return True
        if not self._coordinator.join(timeout):
            return False
        self._settle()
        if self._coordinator.error is not None:
            raise self._coordinator.error
        entries = [e for e in self._entries.values() if e.sink.name in self._took_part]
        failed = {e.sink.name: e.state.error for e in entries if e.state.error}
        if failed:
            raise told_together(failed)
        return True

    def _settle(self) -> None:
        """Tell every query how the engine ended."""
        assert self._coordinator is not None
        assert self._runner is not None
        self._notice_stream_errors()
        waiting, unpublished = self._runner.waiting(), self._runner.unpublished()
        for entry in self._entries.values():
            if not entry.state.active or entry.running is None:
                continue
            if self._coordinator.error is not None:
                entry.state.fail(self._coordinator.error)
            else:
                # The query stays registered: the engine may be started again.
                entry.state.message = "stopped with the engine"
                if (
                    entry.sink.name in unpublished
                    and self._runner.deliveries.publishing is not None
                ):
                    entry.state.error = self._runner.deliveries.publishing.error
                outbox = waiting.get(entry.sink.name)
                if outbox is not None:
                    last = None if outbox.delivery is None else outbox.delivery.error
                    entry.state.error = undelivered(entry.sink.name, outbox.outbox, last)

    def _open_checkpoint(self) -> Checkpoint:
        if self.checkpoint is None:
            raise CheckpointError(
                "this engine has no checkpoint",
                hint="give one: Headrace(spark, checkpoint='state/')",
            )
        root = plain_path(self.checkpoint)
        return Checkpoint(
            Files(self.spark, self.settings.checkpoint_flush).of,
            root,
            self.settings.retained_commits,
            self.settings.lease_timeout,
        )

    def _compare(
        self, state: Committed, live: Mapping[str, _Entry], choices: FailedQueries
    ) -> None:
        """Refuse a checkpoint that holds other queries than the ones that are started."""
        for name in list(state.queries):
            problem = self._difference(state, name, live.get(name), choices)
            if problem is not None:
                self._refuse_or_drop(name, problem)
                state.forget_query(name)
        for name, branch in list(state.branches.items()):
            problem = self._difference(branch.state, name, live.get(name), choices)
            if problem is not None:
                self._refuse_or_drop(name, problem)
                forget_branch(state, name)

    def _difference(
        self, state: Committed, name: str, entry: _Entry | None, choices: FailedQueries
    ) -> str | None:
        """What keeps a query from going on where it was."""
        record = state.queries[name]
        if entry is None:
            return f"holds query {name!r}, which was not started"
        stores = _store_names(entry, record.starts_at)
        if choices.of(name) == "retry" and record.plan != _meaning(entry):
            record = mended(record, _meaning(entry), stores)
            # It is merged anew, which may need state that is not there.
            state.enrol(name, record)
        if record.plan != _meaning(entry):
            return f"holds another query named {name!r}"
        if set(record.stores) != set(stores):
            return f"plans query {name!r} differently than the version that wrote it"
        return None

    def _refuse_or_drop(self, name: str, problem: str) -> None:
        if not self.settings.allow_query_change:
            raise CheckpointError(
                f"the checkpoint {self.checkpoint} {problem}",
                hint="start the same queries, name a new checkpoint, or set "
                "spark.headrace.allowQueryChange=true to drop that query's state; one that was "
                f"mended after it failed goes on by spark.headrace.failedQueries={name}=retry",
                condition="CHECKPOINT_QUERIES",
            )

    def _enrol(self, entry: _Entry, state: Committed, keeps_results: bool = False) -> Running:
        """Give a query its place in the state: where it was, or from now on."""
        name = entry.sink.name
        record = state.queries.get(name)
        if record is None:
            seen = [state.greatest.get(stream) for stream in entry.sink.streams()]
            times = [time for time in seen if time is not None]
            starts_at = max(times) + 1 if times else None
            record = QueryRecord(
                _meaning(entry),
                state.epoch + 1,
                starts_at,
                _store_names(entry, starts_at),
                starts_at,
            )
            state.enrol(name, record)
            if not keeps_results:
                drop_own_arrangements(state, name)
        joined_at = record.starts_at if record.joined_at is None else record.joined_at
        if joined_at is not None:
            entry.state.starts_at = joined_at + warm_up_below(entry.sink)
        # A sink lives as long as its query: what it holds in memory outlives a stop and start.
        entry.running = Running(LiveQuery(entry.sink, record.starts_at), entry.output)
        return entry.running

    # Called by the coordinator, on its thread

    def _between_epochs(self) -> bool:
        """Let queries join and leave; whether anything changed."""
        self._notice_stream_errors()
        self._replan_at_times()
        with self._lock:
            leaving = [e for e in self._entries.values() if e.leaving and self._may_leave(e)]
            arrived, self._arrived = self._arrived, []
            runner = self._runner
            assert runner is not None
            queries = dict(runner.queries)
            caught_up = self._catch_up(runner, queries)
            if not leaving and not arrived and not caught_up:
                return False
            for entry in leaving:
                name = entry.sink.name
                entry.leaving = False
                if name in runner.branches.runners:
                    runner.branches.forget(name, runner.state)
                queries.pop(name, None)
                runner.state.forget_query(name)
                runner.state.drop_arrangement(outbox_of_query(name), runner.state.epoch + 1)
                entry.state.finish("stopped")
            for name in arrived:
                entry = self._entry(name)
                if entry.state.active:
                    queries[name] = self._enrol(entry, runner.state)
                    self._took_part.add(name)
                    entry.state.begin()
                    assert self._coordinator is not None
                    self._coordinator.streams |= {s: self.streams[s] for s in entry.sink.streams()}
            runner.use(queries)
            return True

    def _may_leave(self, entry: _Entry) -> bool:
        """A query whose sink has not taken its rows yet stays until it has, or was tried enough."""
        assert self._runner is not None
        waiting = self._runner.waiting().get(entry.sink.name)
        if waiting is None:
            return True
        tries = 0 if waiting.delivery is None else waiting.delivery.tries
        if tries < self.settings.sink_last_tries:
            return False
        last = None if waiting.delivery is None else waiting.delivery.error
        entry.state.error = undelivered(entry.sink.name, waiting.outbox, last)
        _LOG.warning("query %r leaves: %s", entry.sink.name, entry.state.error.message)
        return True

    def _catch_up(self, runner: EpochRunner, queries: dict[str, Running]) -> bool:
        """Late joiners that see what all others see are no longer computed apart."""
        moment = (runner.state.epoch, runner.state.plan_version)
        if moment == self._caught_up_at:
            return False
        self._caught_up_at = moment
        changed = False
        for name, running in queries.items():
            # One that could not be taken in can be only once something else runs.
            asked = self._asked_at.get(name)
            if running.live.starts_at is None or asked == runner.state.plan_version:
                continue
            due = caught_up_at(running.live)
            seen = [runner.state.clocks.watermarks.get(s) for s in running.live.sink.streams()]
            if due is None or any(w is None or w < due for w in seen):
                continue
            # Its own state is kept under other names: it needs somebody who keeps the same.
            if not runner.plan.keeps_all_of(LiveQuery(runner.plan.queries[name].sink, None)):
                self._asked_at[name] = runner.state.plan_version
                continue
            record, stores = runner.state.queries[name], _store_names(self._entry(name), None)
            runner.state.queries[name] = replace(record, starts_at=None, stores=stores)
            queries[name] = replace(running, live=LiveQuery(running.live.sink, None))
            changed = True
        return changed

    def _replan_at_times(self) -> None:
        runner = self._runner
        assert runner is not None
        if runner.state.epoch != self._planned_at and is_due(runner.state.epoch):
            self._planned_at = runner.state.epoch
            runner.replan()

    def _notice_stream_errors(self) -> None:
        """A stream that broke takes its queries with it; their state stays for a restart."""
        assert self._coordinator is not None
        for stream, error in self._coordinator.stream_errors.items():
            for entry in self._entries.values():
                if entry.state.active and stream in entry.sink.streams():
                    entry.state.fail(error)

    def _on_report(self, report: EpochReport) -> None:
        assert self._runner is not None
        self._tell_failures(report)
        if not report.is_committed:
            self._tell_waiting()
            return
        self.epochs.append(
            epoch_progress(report, {s: r.source.shown for s, r in self.streams.items()})
        )
        warnings = self._notice_standstills(report)
        for name in self._runner.queries:
            self._add_progress(name, report, self._runner, warnings.get(name))
        for name, own in report.branches.items():
            if name in self._runner.branches.runners:
                own.seconds["total"] = report.seconds["total"]
                self._add_progress(name, own, self._runner.branches.runners[name])
        self._tell_waiting()

    def _on_replay(self, name: str, report: EpochReport) -> None:
        """A query has repeated an epoch that it had missed."""
        assert self._runner is not None
        self._tell_failures(report)
        if name in self._runner.branches.runners:
            self._add_progress(name, report, self._runner.branches.runners[name])
        self._tell_waiting()

    def _tell_failures(self, report: EpochReport) -> None:
        for name, error in report.failures.items():
            self._entry(name).state.fail(error)
            _LOG.error("query %r has failed in epoch %d: %s", name, report.epoch, error)
        for each in (report, *report.branches.values()):
            for error in each.refused.values():
                _LOG.warning("%s", error)

    def _tell_waiting(self) -> None:
        """Tell queries what waits for their sinks."""
        assert self._runner is not None
        waiting = self._runner.waiting()
        unpublished = self._runner.unpublished()
        for name in (*self._runner.queries, *self._runner.branches.runners):
            state = self._entry(name).state
            state.waiting = waiting_status(waiting.get(name))
            publishing = self._runner.deliveries.publishing
            if name in unpublished and publishing is not None:
                state.warning = publishing.error.message

    def _add_progress(
        self, name: str, report: EpochReport, runner: EpochRunner, warning: str | None = None
    ) -> None:
        entry = self._entry(name)
        entry.state.warning = warning
        counters, streams = runner.plan.late_counters[name], entry.sink.streams()
        entry.state.add(query_progress(name, report, streams, counters, runner.state, warning))

    def _notice_standstills(self, report: EpochReport) -> dict[str, str]:
        """By query, what to say of a watermark that stands still while rows come in."""
        assert self._runner is not None
        clocks, sets = self._runner.state.clocks, self._runner.plan.released_by
        warnings = {}
        for name, found in self._standstills.watch(time.monotonic(), report, clocks, sets).items():
            warnings[name] = found.text
            if found.is_news:
                _LOG.warning("query %r: %s", name, found.text)
        return warnings

    def _on_paused(self, paused: Mapping[str, str]) -> None:
        """Tell queries which of their streams wait, because state is full, and for which."""
        for entry in list(self._entries.values()):
            entry.state.paused = {
                s: paused[s] for s in sorted(entry.sink.streams() & paused.keys())
            }
        for stream, behind in paused.items():
            _LOG.warning(
                "stream %r is paused until %r has moved on: the state that waits for it has more "
                "than the %d rows of spark.headrace.state.maxRows",
                stream,
                behind,
                self.settings.state_max_rows,
            )

    def _entry(self, name: str) -> _Entry:
        return self._entries[folded(name)]

    # Reading

    def stream_progress(self, name: str) -> list[dict[str, Any]]:
        stream = self._stream(name).source.stream
        return self._coordinator.progress_of(stream) if self._coordinator is not None else []

    def sinks(self) -> dict[str, Sink]:
        """The plans of the queries that take part, by name."""
        return {e.sink.name: e.sink for e in list(self._entries.values()) if e.state.active}

    @property
    def runner(self) -> EpochRunner | None:
        """What runs, or ran last; None before the engine was first started."""
        return self._runner

    @property
    def apart(self) -> frozenset[str]:
        """Queries that joined late, and are computed apart until they have caught up."""
        if self._runner is None or not self.active:
            return frozenset()
        return frozenset(n for n, q in self._runner.plan.queries.items() if q.starts_at is not None)

    @property
    def plan(self) -> LivePlan | None:
        """The plan that runs, or ran last; None before the engine was first started."""
        return None if self._runner is None else self._runner.plan

    @property
    def statistics(self) -> RuntimeStatistics:
        """What was learnt while queries ran."""
        return RuntimeStatistics() if self._runner is None else self._runner.statistics

    def stored_rows(self, store: str) -> int:
        """The rows of an arrangement, as of the last committed epoch."""
        if self._runner is None:
            return 0
        arrangement = self._runner.state.arrangements.get(store)
        return 0 if arrangement is None else arrangement.rows

    def results(self, name: str) -> DataFrame:
        """The result table of a query, as of the last committed epoch."""
        entry = self._entries.get(folded(name))
        if entry is None or entry.sink.format != "results":
            kept = [e.sink.name for e in self._entries.values() if e.sink.format == "results"]
            raise QueryError(
                f"no query keeps results under the name {name!r}",
                hint=f"these do: {', '.join(kept)}" if kept else "start one with format('results')",
            )
        if self._runner is not None:
            state = self._runner.state
        else:
            state = self._open_checkpoint().read()
            take_spellings(state, [entry.sink.name])
        arrangement = results_of(state, entry.sink.name)
        paths = [f.path for f in arrangement.files if f.rows] if arrangement is not None else []
        schema = stored_schema(entry.sink)
        if not paths:
            return self.spark.createDataFrame([], ddl(entry.sink.schema))
        session = self.executor.session
        view = f"headrace_results_{_key(entry.sink.name)}"
        session.read.schema(ddl(schema)).parquet(*paths).createOrReplaceTempView(view)
        frame = self.executor.read(newest(entry.sink, table(view)))
        return in_session(self.spark, frame).select(*map(quoted, entry.sink.schema.names))


def _meaning(entry: _Entry) -> str:
    return plan_hash(entry.logical) + ":" + entry.sink.mode.value


def _store_names(entry: _Entry, starts_at: int | None) -> tuple[str, ...]:
    # As if nothing were folded: how queries share stores may change from start to start.
    policy = PlannerPolicy().without_filter_sharing()
    physical = plan_all([LiveQuery(entry.sink, starts_at)], policy=policy)
    names = {store.identity for store in physical.stores}
    # Windows that a version would have kept open are not known to be still to come: it is as if
    # they were kept elsewhere.
    for node in entry.sink.walk():
        if isinstance(node, Aggregate) and closes_on_grid(node):
            names.add(f"closing-{plan_hash(node)[:16]}")
    return tuple(sorted(names))


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
