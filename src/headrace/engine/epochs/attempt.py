"""One try at an epoch: stores, then outputs, on a copy of the state.

Stores and outputs that depend on the new rows alone run first; what they saw of the rows' times
gives the watermarks, and then the rest runs. A try that fails changes nothing: the queries whose
fault it is are named, and the epoch is tried again without them. Where a query fails in its output
alone, the state is whole, and the epoch goes on without it; where a sink does not take the rows,
they wait in the outbox.
"""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from headrace.compiler.physical_plan import QueryOutput, distinct_stores
from headrace.definitions.definition import Definition, select
from headrace.definitions.definition import keep as keep_columns
from headrace.engine.checkpoint.files import not_writable
from headrace.engine.epochs.blame import (
    QueriesFailed,
    Unwritten,
    check_files,
    check_state,
    check_streams,
    query_failed,
)
from headrace.engine.epochs.outbox import deliver, refusal, too_many, waiting_rows
from headrace.engine.epochs.outbox import keep as keep_in_outbox
from headrace.engine.epochs.report import EpochReport
from headrace.engine.epochs.running_epoch import RunningEpoch
from headrace.engine.epochs.shared_output import SharedOutput
from headrace.engine.epochs.shared_rows import materialize_shared
from headrace.engine.ingest.micro_batch import Batch
from headrace.engine.sinks import QuerySink
from headrace.errors import CheckpointError, SinkError
from headrace.names import storage_name
from headrace.operators.base import Operator, Store
from headrace.operators.counting import count_rows
from headrace.operators.output_rows import OutputRows
from headrace.operators.panes.pane_store import PaneStore
from headrace.operators.rows.row_store import RowStore
from headrace.operators.sessions.session_store import SessionStore
from headrace.operators.stateless import SourceRows
from headrace.operators.write import Write, Writing, Written, run_alone, run_together
from headrace.plan.nodes import Source
from headrace.planner.cadence import is_due
from headrace.planner.joined_rows import learn_joins
from headrace.planner.joined_sets import learn_set_joins
from headrace.planner.live_query import LiveQuery
from headrace.state.arrangement import StateFile
from headrace.state.branches import MissedEpoch
from headrace.state.committed import Committed

if TYPE_CHECKING:
    from headrace.engine.epochs.runner import EpochRunner, Running


class Attempt:
    """One try at an epoch; it changes a copy of the state."""

    def __init__(
        self,
        runner: EpochRunner,
        batches: Mapping[str, Batch],
        idle: frozenset[str],
        report: EpochReport,
    ) -> None:
        self._runner = runner
        self._report = report
        self._idle = idle
        self._physical = runner.physical
        self._sources = sources = runner.sources
        self._executor = runner._executor
        self._executor.begin_epoch()
        for running in runner.queries.values():
            running.sink.undo(report.epoch)
        state = runner.state.copied()
        state.epoch = report.epoch
        state.publications = []
        state.batches |= {stream: batch.number for stream, batch in batches.items()}
        inputs = {
            stream: self._executor.take_in(
                batch,
                sources[stream],
                f"{runner._key}_{storage_name(stream)}",
                runner.statistics.recent_rows.get(stream),
            )
            for stream, batch in batches.items()
            if stream in sources
        }
        self._epoch = RunningEpoch(
            report.epoch,
            self._executor,
            runner._checkpoint,
            state,
            inputs,
            clocks_before=runner.state.clocks,
            statistics=runner.statistics,
            choices=runner.plan.choices,
            # Counting costs a fifth of an append, and keys change slowly.
            counts_keys=is_due(report.epoch)
            or bool(runner.plan.choices.surprised)
            or self._some_keys_are_unknown(),
            life=runner.life,
        )

    def _some_keys_are_unknown(self) -> bool:
        keys, shares = self._runner.statistics.keys, self._runner.statistics.shares
        stores = [store for store in self._physical.stores if isinstance(store, RowStore)]
        return any(
            any((store.name, name) not in keys for name in store.counted)
            or any((store.name, str(one)) not in shares for one in store.counted_filters())
            for store in stores
        )

    def run(self) -> Committed:
        started = time.monotonic()
        now = [store for store in self._physical.stores if store.immediate]
        later = [store for store in self._physical.stores if not store.immediate]
        self._advance(now, self._counting())
        self._deliver()
        outputs = dict(self._physical.outputs)
        immediate = {n: out for n, out in outputs.items() if out.operator.immediate}
        self._write(immediate)
        self._learn_watermarks()
        self._learn_frontiers(now)
        self._report.seconds["ingest"] = time.monotonic() - started
        started = time.monotonic()
        materialize_shared(self._epoch, self._physical, now)
        self._advance(later, {})
        if later:
            materialize_shared(self._epoch, self._physical, self._physical.stores)
        self._write({n: out for n, out in outputs.items() if n not in immediate})
        self._drop_expired()
        self._report.seconds["emit"] = time.monotonic() - started
        self._report.late = self._epoch.late
        self._report.loads = self._epoch.loads
        return self._epoch.state

    def keep_missed(self, behind: Mapping[str, Mapping[str, Source]]) -> dict[str, MissedEpoch]:
        """Write down the rows of this epoch for queries that have failed, by what they read."""
        relations: dict[tuple[str, tuple[str, ...]], Definition] = {}
        work: dict[tuple[str, str], Writing[tuple[StateFile, ...]]] = {}
        for name, sources in behind.items():
            for stream in sources.keys() & self._epoch.batches.keys():
                columns = sources[stream].columns
                # The same for all who want the same: then they are written once.
                key = stream, columns.names
                if key not in relations:
                    bound = self._executor.inputs.bind_batch(self._epoch.batches[stream])
                    rows = select(bound, keep_columns(columns.names))
                    relations[key] = Definition(rows, columns)
                work[name, stream] = self._keep_rows(name, stream, relations[key])
        files_of: dict[str, dict[str, tuple[StateFile, ...]]] = {name: {} for name in behind}
        for (name, stream), ended in run_together(self._shared_output(), work).items():
            if isinstance(ended, Exception):
                # They were read a moment ago, so it is the disk.
                raise not_writable(self._runner._checkpoint.path("state"), ended) from ended
            files_of[name][stream] = ended
        epoch, idle = self._report.epoch, self._report.idle
        return {name: MissedEpoch(epoch, idle, files) for name, files in files_of.items()}

    def _keep_rows(
        self, query: str, stream: str, rows: Definition
    ) -> Writing[tuple[StateFile, ...]]:
        folder = f"missed-{storage_name(query)}-{storage_name(stream)}"
        written = yield Write(
            f"rows of {stream} for {query}",
            rows.query,
            rows.schema,
            path=self._epoch.checkpoint.new_path("state", folder, f"{self._epoch.number:010d}"),
        )
        files = written.files
        return tuple(
            StateFile(f.path, self._epoch.number, f.rows, f.size, None, None) for f in files
        )

    def learn(self) -> None:
        """Take in what joins saw, now that the epoch is true."""
        if self._epoch.counts_keys:
            self._runner.plan.choices.surprised.clear()
        learn_joins(
            self._epoch.joins,
            self._report.epoch,
            self._runner.statistics,
            self._runner.plan.choices,
        )
        learn_set_joins(
            self._epoch.set_joins,
            self._epoch.set_work,
            self._report.epoch,
            self._runner.statistics,
            self._runner.plan.choices,
        )
        for probed in self._epoch.probed.values():
            switches = probed.orders.learn(self._report.epoch, probed.join.observed)
            names = probed.orders.names
            self._runner.plan.choices.changes += [switch.text(names) for switch in switches]

    def release(self) -> None:
        for batch in self._epoch.batches.values():
            batch.release()

    def _counting(self) -> dict[str, Writing[None]]:
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
        for operator, names in _by_operator(self._physical.outputs):
            streams = _streams_read(operator)
            sinks = [self._runner.queries[name].sink for name in names]
            # Sinks of one kind are written together.
            for _ in {type(sink) for sink in sinks}:
                readers.update(streams)
            if operator.immediate and any(sink.reads_all for sink in sinks):
                sure.update(streams)
        apart: dict[str, Writing[None]] = {}
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

    def _count(self, stream: str) -> Writing[None]:
        """Read a stream for the times of its rows: nothing else is sure to read them all."""
        source = self._sources[stream]
        self._epoch.seen[stream] = yield from count_rows(self._epoch, source)

    def _advance(self, stores: Iterable[Store], counting: Mapping[str, Writing[None]]) -> None:
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
                    self._runner._checkpoint.probe()
                    check_streams(self._epoch, [streams[name]])
                    raise ended
            self._learn_frontiers(ready.values())
            due = [store for store in due if store.name not in ready]

    def _needs_one_of(self, store: Store, others: list[Store]) -> bool:
        below = [s for source in store.inputs() for s in self._physical.stores_of(source)]
        return any(other is s for other in others for s in below if s is not store)

    def _blame(self, store: Store, error: Exception) -> Exception:
        """Find the queries for which a store cannot be written; storage trouble is nobody's."""
        users = {
            name: running
            for name, running in self._runner.queries.items()
            if any(s is store for s in self._stores_of(name))
        }
        self._clear_surroundings(users)
        if self._is_computed(store):
            raise not_writable(self._runner._checkpoint.path("state", store.name), error)
        if len(users) > 1:
            guilty = self._failing_alone(store.name, users)
            users = guilty or users
        return QueriesFailed({name: query_failed(name, error) for name in users})

    def _clear_surroundings(self, queries: Iterable[str]) -> None:
        """Raise what is wrong around some queries, so that what is left is their own fault."""
        self._runner._checkpoint.probe()
        names = list(queries)
        check_streams(
            self._epoch, {s for n in names for s in self._runner.queries[n].live.sink.streams()}
        )
        check_state(
            self._epoch,
            distinct_stores(s for name in names for s in self._stores_of(name)),
        )

    def _stores_of(self, name: str) -> list[Store]:
        return self._physical.stores_of(self._physical.outputs[name].operator)

    def _failing_alone(self, store: str, users: Mapping[str, Running]) -> dict[str, Running]:
        """The queries whose share of a store fails by itself; merged ones are tried once."""
        tried: dict[tuple[int, int | None], bool] = {}
        for name in users:
            live = self._runner.plan.queries[name]
            key = id(live.sink.relabelling.computes), live.starts_at
            if key not in tried:
                tried[key] = self._fails_alone(store, live)
        failing = {}
        for name, running in users.items():
            live = self._runner.plan.queries[name]
            if tried[id(live.sink.relabelling.computes), live.starts_at]:
                failing[name] = running
        return failing

    def _is_computed(self, store: Store) -> bool:
        """Whether what a store could not write can be computed: a small file may still fit."""
        trial = copy.copy(self._epoch)
        trial.state = self._epoch.state.copied()
        try:
            run_alone(Unwritten(self._executor), store.advance(trial))
        except Exception:
            return False
        return True

    def _fails_alone(self, store: str, live: LiveQuery) -> bool:
        """Whether one query's share of a store fails by itself."""
        alone = self._runner.plan.alone(live)
        for candidate in alone.stores:
            if candidate.name == store:
                trial = copy.copy(self._epoch)
                trial.state = self._epoch.state.copied()
                try:
                    run_alone(self._executor, candidate.advance(trial))
                except Exception:
                    return True
        return False

    def _write(self, outputs: Mapping[str, QueryOutput]) -> None:
        """Hand all queries' rows to their sinks, together."""
        started = time.monotonic()
        deltas: dict[str, _QueryRows] = {}
        for operator, names in _by_operator(outputs):
            computed = _Delta(operator, self._epoch)
            deltas |= {name: _QueryRows(computed, outputs[name]) for name in names}
        work = {name: self._write_one(name, delta) for name, delta in deltas.items()}
        refused: dict[str, Exception] = {}
        failed: dict[str, Exception] = {}
        for name, ended in self._run_for_queries(work).items():
            if not isinstance(ended, Exception):
                self._report.rows_out[name] = ended
            elif self._sink(name).is_outside and not self._is_waiting(name):
                refused[name] = ended
            else:
                failed[name] = ended
        # Whether it was the sink or the query: the same rows go to the checkpoint, or do not.
        waiting = {name: self._keep_for_later(name, deltas[name]) for name in refused}
        for name, ended in self._run_for_queries(waiting).items():
            if isinstance(ended, Exception):
                failed[name] = refused[name]
                continue
            self._report.rows_out[name] = ended
            self._report.refused[name] = refusal(name, self._epoch.number, refused[name])
        if failed:
            self._clear_surroundings(failed)
            self._clear_disk({name: deltas[name] for name in failed})
            self._report.failures |= {n: query_failed(n, error) for n, error in failed.items()}
        self._bound_outboxes(outputs)
        self._report.seconds["outputs"] = (
            self._report.seconds.get("outputs", 0) + time.monotonic() - started
        )

    def _run_for_queries(self, work: Mapping[str, Writing[int]]) -> dict[str, int | Exception]:
        return run_together(self._shared_output(), work)

    def _shared_output(self) -> SharedOutput:
        return SharedOutput(
            self._executor, self._runner._checkpoint.files_of, self._epoch.inputs, self._executor
        )

    def _sink(self, name: str) -> QuerySink:
        return self._runner.queries[name].sink

    def _is_waiting(self, name: str) -> bool:
        return waiting_rows(self._epoch.state, name) is not None

    def _write_one(self, name: str, delta: _QueryRows) -> Writing[int]:
        if self._is_waiting(name):
            return (yield from self._keep_for_later(name, delta))
        rows = delta.rows
        if rows is None:
            return 0
        return (yield from self._sink(name).write(self._epoch, rows))

    def _keep_for_later(self, name: str, delta: _QueryRows) -> Writing[int]:
        rows = delta.rows
        return 0 if rows is None else (yield from keep_in_outbox(self._epoch, name, rows))

    def _deliver(self) -> None:
        """Hand over what waits for sinks that are due to be tried again."""
        state = self._epoch.state
        outboxes = {name: waiting_rows(state, name) for name in self._runner.due_deliveries()}
        rows = {name: outbox.rows for name, outbox in outboxes.items() if outbox is not None}
        work = {name: deliver(self._epoch, self._sink(name)) for name in rows}
        for name, ended in self._run_for_queries(work).items():
            left = waiting_rows(state, name)
            # That a sink's own folder cannot be written is a refusal like another.
            if isinstance(ended, CheckpointError) and ended.condition == "INVALID_CHECKPOINT":
                raise ended
            if isinstance(ended, Exception):
                first = self._epoch.number if left is None else left.files[0].epoch
                if left is not None and not isinstance(ended, SinkError):
                    # It may be that the rows cannot be read, which is not the sink's trouble.
                    check_files(self._epoch, left.of(first), self._sink(name).sink.schema)
                self._report.refused[name] = refusal(name, first, ended)
            delivered = rows[name] - (0 if left is None else left.rows)
            if delivered:
                self._report.delivered[name] = delivered

    def _bound_outboxes(self, outputs: Iterable[str]) -> None:
        most = self._runner.deliveries.policy.most_rows
        for name in outputs:
            waiting = waiting_rows(self._epoch.state, name)
            if most and waiting is not None and waiting.rows > most:
                last = self._report.refused.get(name) or self._runner.deliveries.last_refusal(name)
                self._report.failures[name] = too_many(name, waiting.rows, most, last)

    def _clear_disk(self, deltas: Mapping[str, _QueryRows]) -> None:
        """Raise if rows can be computed that could not be written to the checkpoint."""
        for name, delta in deltas.items():
            if self._sink(name).writes_files and self._can_be_computed(name, delta):
                raise not_writable(
                    self._runner._checkpoint.path("state"),
                    OSError(f"the rows of query {name!r} are not taken"),
                )

    def _can_be_computed(self, name: str, delta: _QueryRows) -> bool:
        try:
            rows = delta.rows
        except Exception:
            return False
        if rows is None:
            return False
        only_seen = Write(name, rows.query, rows.schema, only_seen=True, computes_all=True)
        (ended,) = self._executor.write_all([only_seen])
        return isinstance(ended, Written)

    def _learn_watermarks(self) -> None:
        """The greatest time seen, less the stream's delay; a watermark never goes back."""
        state = self._epoch.state
        watermarks, idle = dict(state.clocks.watermarks), set(self._idle)
        for stream, batch in self._epoch.batches.items():
            seen = self._epoch.seen.get(stream) or batch.seen()
            self._report.rows_in[stream] = int(seen["rows"])
            self._report.null_times[stream] = int(seen["null_times"])
            greatest = seen["greatest"]
            if greatest is None:
                continue
            idle.discard(stream)
            greatest_before = state.greatest.get(stream)
            state.greatest[stream] = (
                greatest if greatest_before is None else max(greatest_before, greatest)
            )
            delay = self._sources[stream].delay
            before = watermarks.get(stream)
            after = state.greatest[stream] - delay
            watermarks[stream] = after if before is None else max(before, after)
        self._report.idle = frozenset(idle)
        sessions = [store for store in self._physical.stores if isinstance(store, SessionStore)]
        names = {store.name for store in sessions}
        self._report.watermarks = {s: w for s, w in watermarks.items() if s not in names}
        for store in sessions:
            # What is left open by streams that are all idle waits for them; nobody waits for it.
            if store.streams <= idle:
                idle.add(store.name)
        state.clocks = self._epoch.clocks_after = state.clocks.then(
            watermarks, frozenset(idle), frozenset(names)
        )

    def _learn_frontiers(self, stores: Iterable[Store]) -> None:
        """Open sessions hold back the times of what is still to come out of them."""
        for store in stores:
            if not isinstance(store, SessionStore) or not store.holds_back:
                continue
            frontier = run_alone(self._executor, store.frontier(self._epoch))
            if frontier is not None:
                self._epoch.clocks_after.watermarks[store.name] = frontier

    def _drop_expired(self) -> None:
        """Take files out of the state that no query can need again."""
        state = self._epoch.state
        live = {store.name for store in self._physical.stores}
        for store in self._physical.stores:
            arrangement = state.arrangement(store.name)
            expired = arrangement.expired(store.horizon(self._epoch))
            state.drop(store.name, [*expired, *(f for f in arrangement.files if not f.rows)])
        state.clocks.forget(state.clocks.sessions - live)
        if state.clocks.past:
            queries = {query.sink.streams() for query in self._runner.plan.queries.values()}
            state.clocks.prune(streams | state.clocks.sessions for streams in queries)
        state.drop_all_but(live)
        self._forget_layouts()

    def _forget_layouts(self) -> None:
        """Drop the layouts before the present one that no row is stored by any more."""
        state = self._epoch.state
        held = {
            (store.family, store.generation)
            for store in self._physical.stores
            if isinstance(store, PaneStore) and state.arrangement(store.name).files
        }
        generations_left = {
            family: tuple(
                g for g in generations if g is generations[-1] or (family, g.number) in held
            )
            for family, generations in state.panes.generations.items()
        }
        state.panes = replace(state.panes, generations=generations_left)


class _Delta:
    """An operator's new rows, made once for all queries that put them out."""

    def __init__(self, operator: Operator, epoch: RunningEpoch) -> None:
        self._operator = operator
        self._epoch = epoch

    @cached_property
    def rows(self) -> Definition | None:
        return self._operator.new_rows(self._epoch)


@dataclass(frozen=True)
class _QueryRows:
    """The new rows of a query's operator, as the query calls them."""

    computed: _Delta
    output: QueryOutput

    @property
    def rows(self) -> OutputRows | None:
        rows = self.computed.rows
        return None if rows is None else self.output.of(rows)


def _by_operator(outputs: Mapping[str, QueryOutput]) -> list[tuple[Operator, list[str]]]:
    """The queries of each operator: those that were merged wholly have the same one."""
    named: dict[int, tuple[Operator, list[str]]] = {}
    for name, output in outputs.items():
        named.setdefault(id(output.operator), (output.operator, []))[1].append(name)
    return list(named.values())


def _streams_read(operator: Operator) -> list[str]:
    """Streams whose new rows an operator reads itself, not through a store."""
    if isinstance(operator, SourceRows):
        return [operator.node.stream]
    if operator.stores:
        return []
    return [stream for below in operator.inputs for stream in _streams_read(below)]
