"""One epoch from intent to commit.

The order of durable steps is intent, state, sink output (staged), commit, publication. Stores and
outputs that depend on the new rows alone run first; what they saw of the rows' times gives the
watermarks, and then the rest runs.
"""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from headrace.engine.batches import Batch
from headrace.engine.checkpoint import Checkpoint, Committed, Intent
from headrace.engine.compaction import merge_files
from headrace.engine.compile import compile_queries
from headrace.engine.early_plans import EarlyMemory, EarlyPolicy
from headrace.engine.epoch import Epoch
from headrace.engine.executor import Executor
from headrace.engine.join_orders import JoinMemory, JoinPolicy
from headrace.engine.layouts import LayoutPolicy, decide
from headrace.engine.operators.aggregation_set import AggregationSet
from headrace.engine.operators.base import Operator, Store
from headrace.engine.operators.counting import count_rows
from headrace.engine.operators.pane_store import PaneStore
from headrace.engine.operators.row_store import RowStore
from headrace.engine.operators.session_store import SessionStore
from headrace.engine.operators.stateless import SourceRows
from headrace.engine.physical import LiveQuery, Physical
from headrace.engine.sinks import QuerySink
from headrace.engine.sinks.results import ResultsSink
from headrace.engine.spark_errors import one_line
from headrace.engine.writes import Steps, run_alone, run_together
from headrace.errors import HeadraceError, QueryError, SinkError
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
class EpochReport:
    """What an epoch did, for progress and statistics."""

    epoch: int
    rows_in: dict[str, int] = field(default_factory=dict)
    null_times: dict[str, int] = field(default_factory=dict)
    rows_out: dict[str, int] = field(default_factory=dict)
    late: dict[tuple[str, str], int] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)
    failures: dict[str, HeadraceError] = field(default_factory=dict)
    loads: dict[str, Load] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    jobs: int = 0


class EpochRunner:
    """Holds the current plan and state, and runs epochs over them."""

    def __init__(
        self,
        executor: Executor,
        checkpoint: Checkpoint,
        state: Committed,
        key: str,
        policy: LayoutPolicy,
        closing: str,
        join_policy: JoinPolicy,
        early_policy: EarlyPolicy | None = None,
    ) -> None:
        self._executor = executor
        self._checkpoint = checkpoint
        self._key = key
        self.policy = policy
        self.closing = closing
        self.join_policy = join_policy
        self.early_policy = early_policy or EarlyPolicy()
        self.state = state
        self.queries: dict[str, Running] = {}
        self.physical = Physical()
        self.recent_rows: dict[str, int] = {}
        self.loads: dict[str, Load] = {}
        self.joins = JoinMemory()
        self.early = EarlyMemory(self.loads)
        #: The stores of each query, with the counters of the rows that are late for *it*.
        self.late_counters: dict[str, dict[str, list[str]]] = {}
        self._changes: list[str] = []

    def use(self, queries: Mapping[str, Running]) -> None:
        """Run these queries from now on."""
        self.queries = dict(queries)
        plans = [running.live.sink for running in queries.values()]
        self.state.panes, changes = decide(plans, self.state.panes, self.loads, self.policy)
        self._changes += [change.text for change in changes]
        self.physical = self.compiled([running.live for running in queries.values()])
        self.late_counters = {
            name: {store.name: store.late_counters() for store in self.compiled([q.live]).stores}
            for name, q in queries.items()
        }
        self.state.plan_version += 1

    def compiled(self, queries: list[LiveQuery]) -> Physical:
        """Operators for some of the queries, over the stores that all of them share."""
        return compile_queries(
            queries, self.state.panes, self.closing, self.join_policy, self.early_policy
        )

    def replan(self) -> bool:
        """Change what is laid out otherwise than the rows of late would have it."""
        plans = [running.live.sink for running in self.queries.values()]
        _, changes = decide(plans, self.state.panes, self.loads, self.policy)
        if changes:
            self.use(self.queries)
        return bool(changes)

    def run(self, batches: Mapping[str, Batch]) -> EpochReport:
        """Process the batches as one epoch. A query that fails is left out; the rest goes on."""
        number = self.state.epoch + 1
        failures: dict[str, HeadraceError] = {}
        self._checkpoint.begin(Intent(number, {s: b.number for s, b in batches.items()}))
        while True:
            report = EpochReport(number, failures=failures)
            attempt = _Attempt(self, batches, report)
            try:
                state = attempt.run()
            except _QueriesFailed as failed:
                failures |= failed.errors
                self._leave_out(failed.errors)
                continue
            finally:
                attempt.release()
            break
        if self.queries.keys() <= report.failures.keys():
            # Nobody is left to go on for: the epoch is not committed, so a restart repeats it.
            raise next(iter(report.failures.values()))
        for name in report.failures:
            state.queries.pop(name, None)
        started = time.monotonic()
        self._checkpoint.commit(state)
        self.state = state
        for name, running in self.queries.items():
            if name not in report.failures:
                running.sink.publish(number)
        self._leave_out(report.failures)
        report.seconds["commit"] = time.monotonic() - started
        report.jobs = self._executor.jobs
        attempt.learn()
        report.changes = [*self._changes, *self.joins.changes, *self.early.changes]
        self._changes, self.joins.changes, self.early.changes = [], [], []
        for family, load in report.loads.items():
            known = self.loads.get(family)
            self.loads[family] = load if known is None else known.then(load)
        self.recent_rows |= report.rows_in
        return report

    def tidy(self, limit: int) -> None:
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
            watermarks_before=self.state.watermarks,
            watermarks_after=dict(self.state.watermarks),
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
                raise ended

    def close(self) -> None:
        """Leave nothing on the executors; what cannot be reached is forgotten in time."""
        if self.joins.probing:
            with suppress(Exception):
                self._executor.forget_indexes(self.joins.run)

    def _leave_out(self, failed: Mapping[str, HeadraceError]) -> None:
        remaining = {n: q for n, q in self.queries.items() if n not in failed}
        if not remaining:
            raise next(iter(failed.values()))
        if len(remaining) < len(self.queries):
            self.use(remaining)


class _QueriesFailed(Exception):
    """Some queries cannot take part in this epoch."""

    def __init__(self, errors: dict[str, HeadraceError]) -> None:
        super().__init__(", ".join(errors))
        self.errors = errors


class _Attempt:
    """One try at an epoch; it changes a copy of the state."""

    def __init__(
        self, runner: EpochRunner, batches: Mapping[str, Batch], report: EpochReport
    ) -> None:
        self._runner = runner
        self._report = report
        self._physical = runner.physical
        self._executor = runner._executor
        self._executor.begin_epoch()
        state = copy.deepcopy(runner.state)
        state.epoch = report.epoch
        state.publications = []
        state.batches |= {stream: batch.number for stream, batch in batches.items()}
        inputs = {
            stream: self._executor.take_in(
                batch,
                self._physical.sources[stream],
                f"{runner._key}_{stream}",
                runner.recent_rows.get(stream),
            )
            for stream, batch in batches.items()
            if stream in self._physical.sources
        }
        self._epoch = Epoch(
            report.epoch,
            self._executor,
            runner._checkpoint,
            state,
            inputs,
            watermarks_before=dict(runner.state.watermarks),
            joins=runner.joins,
            early=runner.early,
            # Counting costs a fifth of an append, and keys change slowly.
            counts_keys=report.epoch % 16 == 0 or self._some_keys_are_unknown(),
        )

    def _some_keys_are_unknown(self) -> bool:
        known = self._runner.joins.keys
        return any(
            (store.name, name) not in known
            for store in self._physical.stores
            for name in _counted_keys(store)
        )

    def run(self) -> Committed:
        started = time.monotonic()
        now = [store for store in self._physical.stores if store.immediate]
        later = [store for store in self._physical.stores if not store.immediate]
        self._advance(now, self._counting())
        outputs = dict(self._physical.outputs)
        immediate = {n: op for n, op in outputs.items() if op.immediate}
        self._write(immediate)
        self._learn_watermarks()
        self._learn_frontiers(now)
        self._report.seconds["ingest"] = time.monotonic() - started
        started = time.monotonic()
        self._advance(later, {})
        self._write({n: op for n, op in outputs.items() if n not in immediate})
        self._drop_expired()
        self._report.seconds["emit"] = time.monotonic() - started
        self._report.late = self._epoch.late
        self._report.loads = self._epoch.loads
        return self._epoch.state

    def learn(self) -> None:
        """Take in what multi-way joins saw, now that the epoch is true."""
        for probed in self._epoch.probed.values():
            switches = probed.memory.learn(self._report.epoch, probed.join.observed)
            names = probed.memory.names
            self._runner.joins.changes += [switch.text(names) for switch in switches]

    def release(self) -> None:
        for batch in self._epoch.batches.values():
            batch.release()

    def _counting(self) -> dict[str, Steps[None]]:
        """Decide how the rows of each batch are counted; the streams that take work of its own."""
        readers: Counter[str] = Counter()
        sure: Counter[str] = Counter()
        for store in self._physical.stores:
            counted = store.counts()
            if counted is not None and store.immediate:
                self._epoch.counted_by.setdefault(counted, store.name)
            for operator in store.inputs():
                streams = _streams_read(operator)
                readers.update(streams)
                if store.immediate:
                    sure.update(streams)
        for name, operator in self._physical.outputs.items():
            streams = _streams_read(operator)
            readers.update(streams)
            if operator.immediate and self._runner.queries[name].sink.reads_all:
                sure.update(streams)
        apart: dict[str, Steps[None]] = {}
        for stream, batch in self._epoch.batches.items():
            batch.readers = readers[stream]
            if stream in self._epoch.counted_by:
                continue
            if sure[stream] and batch.files is None:
                batch.watch()
            else:
                batch.readers += 1
                apart[stream] = self._count(stream)
        return apart

    def _count(self, stream: str) -> Steps[None]:
        """Read a stream for the times of its rows: nothing else is sure to read them all."""
        source = self._physical.sources[stream]
        self._epoch.seen[stream] = yield from count_rows(self._epoch, source)

    def _advance(self, stores: Iterable[Store], counting: Mapping[str, Steps[None]]) -> None:
        """Append to stores, together where none needs another, and count streams besides."""
        due = list(stores)
        streams = {f"times of {stream}": stream for stream in counting}
        besides = {f"times of {stream}": steps for stream, steps in counting.items()}
        while due or besides:
            ready = {s.name: s for s in due if not self._needs_one_of(s, due)}
            work = {name: store.advance(self._epoch) for name, store in ready.items()} | besides
            besides.clear()
            for name, ended in run_together(self._executor, work).items():
                if isinstance(ended, Exception):
                    if name in ready:
                        raise self._blame(ready[name], ended) from ended
                    raise self._blame_readers(streams[name], ended) from ended
            self._learn_frontiers(ready.values())
            due = [store for store in due if store.name not in ready]

    def _needs_one_of(self, store: Store, others: list[Store]) -> bool:
        below = [s for source in store.inputs() for s in self._physical.stores_of(source)]
        return any(other is s for other in others for s in below if s is not store)

    def _blame(self, store: Store, error: Exception) -> Exception:
        """Find the queries for which a store cannot be written; storage trouble is nobody's."""
        self._runner._checkpoint.probe()
        users = {
            name: running
            for name, running in self._runner.queries.items()
            if any(s is store for s in self._physical.stores_of(self._physical.outputs[name]))
        }
        if len(users) > 1:
            guilty = {name: q for name, q in users.items() if self._fails_alone(store.name, q)}
            users = guilty or users
        return _QueriesFailed({name: _query_failed(name, error) for name in users})

    def _blame_readers(self, stream: str, error: Exception) -> Exception:
        """A stream that cannot be read fails the queries that read it."""
        readers = [n for n, q in self._runner.queries.items() if stream in q.live.sink.streams()]
        return _QueriesFailed({name: _query_failed(name, error) for name in readers})

    def _fails_alone(self, store: str, running: Running) -> bool:
        """Whether one query's share of a store fails by itself."""
        alone = self._runner.compiled([running.live])
        for candidate in alone.stores:
            if candidate.name == store:
                trial = copy.copy(self._epoch)
                trial.state = copy.deepcopy(self._epoch.state)
                try:
                    run_alone(self._executor, candidate.advance(trial))
                except Exception:
                    return True
        return False

    def _write(self, outputs: Mapping[str, Operator]) -> None:
        """Hand all queries' rows to their sinks, together."""
        started = time.monotonic()
        work = {name: self._write_one(name, operator) for name, operator in outputs.items()}
        for name, ended in run_together(self._executor, work).items():
            if isinstance(ended, Exception):
                # State is untouched by a sink, so the epoch goes on without this query.
                self._runner._checkpoint.probe()
                self._report.failures[name] = _query_failed(name, ended)
            else:
                self._report.rows_out[name] = ended
        self._report.seconds["outputs"] = (
            self._report.seconds.get("outputs", 0) + time.monotonic() - started
        )

    def _write_one(self, name: str, operator: Operator) -> Steps[int]:
        rows = operator.delta(self._epoch)
        if rows is None:
            return 0
        return (yield from self._runner.queries[name].sink.write(self._epoch, rows))

    def _learn_watermarks(self) -> None:
        """The greatest time seen, less the stream's delay; a watermark never goes back."""
        state = self._epoch.state
        for stream, batch in self._epoch.batches.items():
            seen = self._epoch.seen.get(stream) or batch.seen()
            self._report.rows_in[stream] = int(seen["rows"])
            self._report.null_times[stream] = int(seen["null_times"])
            greatest = seen["greatest"]
            if greatest is None:
                continue
            known = state.greatest.get(stream)
            state.greatest[stream] = greatest if known is None else max(known, greatest)
            delay = self._physical.sources[stream].delay
            before = state.watermarks.get(stream)
            after = state.greatest[stream] - delay
            state.watermarks[stream] = after if before is None else max(before, after)
        self._epoch.watermarks_after = dict(state.watermarks)
        sessions = {s.name for s in self._physical.stores if isinstance(s, SessionStore)}
        self._report.watermarks = {s: w for s, w in state.watermarks.items() if s not in sessions}

    def _learn_frontiers(self, stores: Iterable[Store]) -> None:
        """Open sessions hold back the times of what is still to come out of them."""
        for store in stores:
            if not isinstance(store, SessionStore) or not store.holds_back:
                continue
            frontier = run_alone(self._executor, store.frontier(self._epoch))
            if frontier is not None:
                self._epoch.state.watermarks[store.name] = frontier
                self._epoch.watermarks_after[store.name] = frontier

    def _drop_expired(self) -> None:
        """Take files out of the state that no query can need again."""
        state = self._epoch.state
        live = {store.name for store in self._physical.stores}
        for store in self._physical.stores:
            arrangement = state.arrangement(store.name)
            gone = arrangement.expired(store.horizon(self._epoch))
            gone += [file for file in arrangement.files if not file.rows]
            arrangement.replace(gone, [])
            state.garbage += [(state.epoch, file.path) for file in gone]
        for name in [n for n in state.watermarks if n.startswith("sessions-") and n not in live]:
            del state.watermarks[name]
        for name in [
            n for n in state.arrangements if n not in live and not n.startswith("results-")
        ]:
            state.garbage += [(state.epoch, f.path) for f in state.arrangements.pop(name).files]
        self._forget_layouts()

    def _forget_layouts(self) -> None:
        """Drop the layouts before the present one that no row is stored by any more."""
        state = self._epoch.state
        held: dict[str, set[str]] = {}
        for store in self._physical.stores:
            if isinstance(store, PaneStore) and state.arrangement(store.name).files:
                held.setdefault(store.family, set()).add(store.name)
        kept = {
            family: tuple(
                g
                for g in generations
                if g is generations[-1]
                or any(n.endswith(f"-{g.number}") for n in held.get(family, ()))
            )
            for family, generations in state.panes.generations.items()
        }
        state.panes = replace(state.panes, generations=kept)


def is_time_to_plan(epoch: int) -> bool:
    """Often while little is known of the streams, then now and then."""
    return epoch % 16 == 0 if epoch > 8 else epoch in (1, 2, 4, 8)


def _counted_keys(store: Store) -> set[str]:
    if isinstance(store, RowStore):
        return store.counted
    return store.joined_by if isinstance(store, AggregationSet) else set()


def _streams_read(operator: Operator) -> list[str]:
    """Streams whose new rows an operator reads itself, not through a store."""
    if isinstance(operator, SourceRows):
        return [operator.node.stream]
    if operator.stores:
        return []
    return [stream for below in operator.inputs for stream in _streams_read(below)]


def _query_failed(name: str, error: Exception) -> HeadraceError:
    if isinstance(error, SinkError | QueryError):
        return error
    return QueryError(
        f"query {name!r} failed: {one_line(error)}",
        hint="mend the cause and start it again; the other queries go on",
        condition="QUERY_FAILED",
    )
