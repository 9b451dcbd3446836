"""The queries of an engine: what each means, its sink, its health, and its place in the state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.compiler.planning import plan_all
from headrace.engine.epochs.runner import EpochRunner, Running
from headrace.engine.introspection.progress import QueryState
from headrace.engine.restarts import mended
from headrace.engine.sinks import QuerySink
from headrace.errors import CheckpointError
from headrace.plan.json import plan_hash
from headrace.plan.nodes import Aggregate, Node, Sink
from headrace.plan.times import closes_on_grid
from headrace.planner.late_joiners import caught_up_at
from headrace.planner.live_query import LiveQuery
from headrace.planner.policy import PlannerPolicy
from headrace.planner.warm_up import warm_up_below
from headrace.settings import FailedQueries
from headrace.state.branches import drop_own_arrangements, forget_branch
from headrace.state.committed import Committed, QueryRecord, joins_at


@dataclass
class Entry:
    """A query that was started."""

    logical: Node
    sink: Sink
    output: QuerySink
    state: QueryState
    leaving: bool = False
    running: Running | None = None

    @property
    def name(self) -> str:
        return self.sink.name

    @property
    def meaning(self) -> str:
        """What a checkpoint knows the query by."""
        return plan_hash(self.logical) + ":" + self.sink.mode.value

    def store_names(self, starts_at: int | None) -> tuple[str, ...]:
        """The state that it needs, whatever it shares with others."""
        # As if nothing were folded: how queries share stores may change from start to start.
        policy = PlannerPolicy().without_filter_sharing()
        physical = plan_all([LiveQuery(self.sink, starts_at)], policy=policy)
        names = {store.identity for store in physical.stores}
        # Windows that a version would have kept open are not known to be still to come: it is as if
        # they were kept elsewhere.
        for node in self.sink.walk():
            if isinstance(node, Aggregate) and closes_on_grid(node):
                names.add(f"closing-{plan_hash(node)[:16]}")
        return tuple(sorted(names))

    def enrol(self, state: Committed, keeps_results: bool = False) -> Running:
        """Its place in the state: where it was, or from now on."""
        record = state.queries.get(self.name)
        if record is None:
            starts_at = joins_at(self.sink, state)
            stores = self.store_names(starts_at)
            record = QueryRecord(self.meaning, state.epoch + 1, starts_at, stores, starts_at)
            state.enrol(self.name, record)
            if not keeps_results:
                drop_own_arrangements(state, self.name)
        joined_at = record.starts_at if record.joined_at is None else record.joined_at
        if joined_at is not None:
            self.state.starts_at = joined_at + warm_up_below(self.sink)
        # A sink lives as long as its query: what it holds in memory outlives a stop and start.
        self.running = Running(LiveQuery(self.sink, record.starts_at), self.output)
        return self.running


@dataclass(frozen=True)
class CheckpointQueries:
    """Compares the queries of a checkpoint with those that are started on it."""

    checkpoint: str | None
    choices: FailedQueries
    may_drop: bool

    def compare(self, state: Committed, live: Mapping[str, Entry]) -> None:
        """Refuse a checkpoint that holds other queries, or drop what is no longer asked for."""
        for name in list(state.queries):
            problem = self._difference(state, name, live.get(name))
            if problem is not None:
                self._refuse_or_drop(name, problem)
                state.forget_query(name)
        for name, branch in list(state.branches.items()):
            problem = self._difference(branch.state, name, live.get(name))
            if problem is not None:
                self._refuse_or_drop(name, problem)
                forget_branch(state, name)

    def _difference(self, state: Committed, name: str, entry: Entry | None) -> str | None:
        """What keeps a query from going on where it was."""
        record = state.queries[name]
        if entry is None:
            return f"holds query {name!r}, which was not started"
        stores = entry.store_names(record.starts_at)
        if self.choices.of(name) == "retry" and record.plan != entry.meaning:
            record = mended(record, entry.meaning, stores)
            # It is merged anew, which may need state that is not there.
            state.enrol(name, record)
        if record.plan != entry.meaning:
            return f"holds another query named {name!r}"
        if set(record.stores) != set(stores):
            return f"plans query {name!r} differently than the version that wrote it"
        return None

    def _refuse_or_drop(self, name: str, problem: str) -> None:
        if not self.may_drop:
            raise CheckpointError(
                f"the checkpoint {self.checkpoint} {problem}",
                hint="start the same queries, name a new checkpoint, or set "
                "spark.headrace.allowQueryChange=true to drop that query's state; one that was "
                f"mended after it failed goes on by spark.headrace.failedQueries={name}=retry",
                condition="CHECKPOINT_QUERIES",
            )


class LateJoiners:
    """Queries that joined late, until they see what all others see and are computed with them."""

    def __init__(self) -> None:
        #: The epoch and plan at which it was last asked who has caught up.
        self._looked_at = (-1, -1)
        #: The plan at which they found nobody who keeps what they need.
        self._asked_at: dict[str, int] = {}

    def catch_up(
        self, runner: EpochRunner, queries: dict[str, Running], entries: Mapping[str, Entry]
    ) -> bool:
        """Let those that have caught up be computed with the others; whether there are any."""
        moment = (runner.state.epoch, runner.state.plan_version)
        if moment == self._looked_at:
            return False
        self._looked_at = moment
        changed = False
        for name, running in queries.items():
            # One that could not be taken in can be only once something else runs.
            asked_at = self._asked_at.get(name)
            if running.live.starts_at is None or asked_at == runner.state.plan_version:
                continue
            due = caught_up_at(running.live)
            seen = [runner.state.clocks.watermarks.get(s) for s in running.live.sink.streams()]
            if due is None or any(w is None or w < due for w in seen):
                continue
            # Its own state is kept under other names: it needs somebody who keeps the same.
            if not runner.plan.keeps_all_of(LiveQuery(runner.plan.queries[name].sink, None)):
                self._asked_at[name] = runner.state.plan_version
                continue
            record, stores = runner.state.queries[name], entries[name].store_names(None)
            runner.state.queries[name] = replace(record, starts_at=None, stores=stores)
            queries[name] = replace(running, live=LiveQuery(running.live.sink, None))
            changed = True
        return changed
