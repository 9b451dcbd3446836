"""The life of an engine: streams and queries that come and go, start, stop, restart.

``Engine`` is the core that the session, the CLI and the tests stand on. It knows plans, not SQL.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.compiler.planning import plan_all
from headrace.definitions.definition import table
from headrace.engine.changes import Changes, What, revive, waiting_message
from headrace.engine.checkpoint.checkpoint import Checkpoint
from headrace.engine.checkpoint.files import Files, plain_path
from headrace.engine.checkpoint.storage import BranchStorage, Storage
from headrace.engine.entries import CheckpointQueries, Entry, LateJoiners
from headrace.engine.epochs.deliveries import RetryPolicy
from headrace.engine.epochs.live_plan import LivePlan
from headrace.engine.epochs.outbox import undelivered
from headrace.engine.epochs.runner import EpochRunner
from headrace.engine.execution.executor import Executor, ddl
from headrace.engine.ingest.coordinator import Coordinator
from headrace.engine.ingest.ingest import Trigger
from headrace.engine.ingest.registered_stream import RegisteredStream
from headrace.engine.ingest.standstills import Standstills
from headrace.engine.introspection.explain import Explaining
from headrace.engine.introspection.progress import (
    Progress,
    QueryState,
    told_together,
)
from headrace.engine.policy import planner_policy
from headrace.engine.reporting import Reporting
from headrace.engine.restarts import other_state, settle_failed, take_spellings
from headrace.engine.sinks import BatchFunction, claim_folders, make_sink
from headrace.engine.sinks.results import newest, stored_schema
from headrace.errors import CheckpointError, HeadraceError, QueryError, StreamError
from headrace.names import folded, quoted, same_name
from headrace.operators.stateless import table_view
from headrace.plan.nodes import Node, Sink, Table
from headrace.planner.live_query import LiveQuery
from headrace.planner.merging import begin_merging
from headrace.planner.statistics import RuntimeStatistics
from headrace.settings import FailedQueries, Settings
from headrace.spark_sessions import in_session
from headrace.state.branches import (
    results_of,
)
from headrace.state.committed import Committed, Intent
from headrace.state.store_names import outbox_of_query

_LOG = logging.getLogger("headrace")


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
        self._entries: dict[str, Entry] = {}
        self.changes = Changes(self._entries)
        self._lock = threading.RLock()
        self._coordinator: Coordinator | None = None
        self._runner: EpochRunner | None = None
        self._arrived: list[str] = []
        #: The queries of this run, or of the last one.
        self._took_part: set[str] = set()
        self._trigger = Trigger()
        self._standstills = Standstills(self.settings.warn_after / 1_000)
        self._late_joiners = LateJoiners()
        self._reporting: Reporting | None = None
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
            namesake = self._entries.get(folded(sink.name))
            if namesake is not None and namesake.state.active:
                raise QueryError(
                    f"there is a query named {namesake.sink.name!r} already",
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
            self._entries[folded(sink.name)] = Entry(logical, sink, output, state)
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

    def change_query(self, name: str, what: What, before: int | None = None) -> Future[None]:
        """Pause a query, let it go on (``retry`` where it was, ``skip`` from now), or forget it
        with its results; done when a commit holds it, which an engine that runs makes at once.

        With ``before`` nothing that began after this epoch is forgotten by the next start.
        """
        if what == "pause" and not self.active:
            raise QueryError(
                f"query {name!r} cannot be paused: the engine does not run",
                hint="try again when it runs",
                condition="ENGINE_NOT_RUNNING",
            )
        with self._lock:
            entry = self._entries.get(folded(name))
            if what == "forget" and entry is not None and not self.active:
                entry.state.finish("dropped")
                del self._entries[folded(name)]
            asked = self.changes.ask(name if entry is None else entry.name, what, before)
            if self._coordinator is not None:
                self._coordinator.wake()
        return asked

    def revive(self) -> None:
        """Ask for all queries that have failed, each with its place, at the next start."""
        revive(self._entries)

    # Start and stop

    @property
    def active(self) -> bool:
        return self._coordinator is not None and self._coordinator.active

    @property
    def ended_with(self) -> HeadraceError | None:
        """What the last run ended with, once it has: its error, or that of a query."""
        try:
            self.join(0)
        except HeadraceError as error:
            return error
        return None

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
        live: Mapping[str, Entry],
        trigger: Trigger,
    ) -> None:
        """Run the queries from where the checkpoint is; the coordinator leaves it in the end."""
        self.executor.gate = checkpoint.gate
        choices = self.changes.at_start(state, self.failed_queries())
        was = len(state.branches)
        schemas = {name: entry.sink.schema for name, entry in live.items()}
        skipped = settle_failed(state, schemas, choices)
        may_drop = self.settings.allow_query_change
        CheckpointQueries(self.checkpoint, choices, may_drop).compare(state, live)
        claim_folders([entry.output for entry in live.values()], checkpoint, state)
        runner = self._runner = self._runner_on(checkpoint, state, _key(checkpoint.root))
        runner.owes_commit = len(state.branches) < was or self.changes.owes_commit
        runner.use(
            {
                name: entry.enrol(state, name in skipped)
                for name, entry in live.items()
                if name not in state.branches
            }
        )
        for name, branch in list(state.branches.items()):
            waits = branch.failure is not None and choices.of(name) == "wait"
            go_on = self._keep_waiting if waits else self._resume
            go_on(runner, checkpoint, name, live[name])
        reporting = self._reporting = Reporting(
            runner,
            self._entries,
            self.streams,
            self.epochs,
            self._standstills,
            self.settings.state_max_rows,
        )
        self._coordinator = Coordinator(
            self._runner,
            checkpoint,
            self.settings,
            self.streams,
            unfinished,
            self._between_epochs,
            reporting.on_report,
            reporting.on_paused,
            reporting.on_replay,
        )
        self._took_part = set(live)
        for entry in live.values():
            entry.output.begin()
            entry.state.begin()
            entry.state.message = waiting_message(state, entry.name) or entry.state.message
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

    def _keep_waiting(
        self, runner: EpochRunner, checkpoint: Checkpoint, name: str, entry: Entry
    ) -> None:
        """Keep the rows on that a query misses which was paused or has failed."""
        branch = runner.state.branches[name]
        if not branch.rows_gone:
            own = self._runner_of(name, checkpoint, branch.state.copied(), entry)
            runner.branches.keep_on_rows_for(name, branch, own.physical.sources)
            own.close()

    def _runner_of(
        self, name: str, checkpoint: Checkpoint, state: Committed, entry: Entry
    ) -> EpochRunner:
        """A runner for one query on a state of its own."""
        storage = BranchStorage(checkpoint, name)
        own = self._runner_on(storage, state, f"{_key(checkpoint.root)}_{_key(name)}")
        own.use({name: entry.enrol(state)})
        return own

    def _resume(self, runner: EpochRunner, checkpoint: Checkpoint, name: str, entry: Entry) -> None:
        """Let a query go on by itself, which failed once."""
        branch = runner.state.branches[name]
        own = self._runner_of(name, checkpoint, branch.state, entry)
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

    # Called by the coordinator, on its thread

    def _between_epochs(self) -> bool:
        """Let queries join and leave; whether anything changed."""
        self._notice_stream_errors()
        if self._runner is not None:
            self._runner.replan_at_times()
        with self._lock:
            leaving = [e for e in self._entries.values() if e.leaving and self._may_leave(e)]
            arrived, self._arrived = self._arrived, []
            runner = self._runner
            assert runner is not None
            queries = dict(runner.queries)
            entries = {entry.name: entry for entry in self._entries.values()}
            changed = self.changes.between_epochs(runner, queries, self._resume_now)
            caught_up = self._late_joiners.catch_up(runner, queries, entries)
            if not leaving and not arrived and not caught_up and not changed:
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
                arrival = self._entries.get(folded(name))
                if arrival is not None and arrival.state.active:
                    queries[name] = arrival.enrol(runner.state)
                    self._took_part.add(name)
                    arrival.state.begin()
            assert self._coordinator is not None
            self._coordinator.streams.registered |= self.streams
            runner.use(queries)
            return True

    def _resume_now(self, name: str) -> None:
        """Let a query go on by itself between two epochs."""
        assert self._runner is not None
        assert self._coordinator is not None
        self._resume(self._runner, self._coordinator.checkpoint, name, self._entry(name))

    def _may_leave(self, entry: Entry) -> bool:
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

    def _notice_stream_errors(self) -> None:
        assert self._coordinator is not None
        assert self._reporting is not None
        self._reporting.on_stream_errors(self._coordinator.streams.errors)

    def _entry(self, name: str) -> Entry:
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

    def state(self) -> Committed:
        """The last committed state: of this engine, or of one that used its checkpoint before."""
        if self._runner is not None:
            return self._runner.state
        if self.checkpoint is None:
            return Committed()
        state = self._open_checkpoint().read()
        take_spellings(state, [entry.sink.name for entry in self._entries.values()])
        return state

    def results(self, name: str) -> DataFrame:
        """The result table of a query, as of the last committed epoch."""
        entry = self._entries.get(folded(name))
        if entry is None or entry.sink.format != "results":
            result_queries = [
                e.sink.name for e in self._entries.values() if e.sink.format == "results"
            ]
            raise QueryError(
                f"no query keeps results under the name {name!r}",
                hint=f"these do: {', '.join(result_queries)}"
                if result_queries
                else "start one with format('results')",
            )
        arrangement = results_of(self.state(), entry.sink.name)
        paths = [f.path for f in arrangement.files if f.rows] if arrangement is not None else []
        schema = stored_schema(entry.sink)
        if not paths:
            return self.spark.createDataFrame([], ddl(entry.sink.schema))
        session = self.executor.session
        view = f"headrace_results_{_key(entry.sink.name)}"
        session.read.schema(ddl(schema)).parquet(*paths).createOrReplaceTempView(view)
        frame = self.executor.read(newest(entry.sink, table(view)))
        return in_session(self.spark, frame).select(*map(quoted, entry.sink.schema.names))


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
