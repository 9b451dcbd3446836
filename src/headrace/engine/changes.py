"""What somebody asks to become of one query while the others run: pause, go on, be forgotten.

A query is paused by the way of one that failed: it branches off with its state, and the rows that
its streams bring meanwhile are kept for it (``state.branches``). Everything is done between two
epochs and is true with the next commit, which is then made at once, with rows or without; only
then is the asker told. What is asked of an engine that does not run is done when it starts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Literal

from headrace.engine.entries import Entry
from headrace.engine.epochs.runner import EpochRunner, Running
from headrace.engine.restarts import check_schema
from headrace.errors import HeadraceError, QueryError
from headrace.names import folded, same_name
from headrace.settings import FailedQueries
from headrace.state.branches import back_among_others, drop_own_arrangements, forget_branch
from headrace.state.committed import Committed

What = Literal["pause", "retry", "skip", "forget"]
#: The condition of a branch that nobody has to mend.
PAUSED = "QUERY_PAUSED"


@dataclass(frozen=True)
class Change:
    """One wish; ``done`` when a commit holds it."""

    name: str
    what: What
    #: Of a query to be forgotten: one that began after this epoch is another of that name.
    before: int | None = None
    done: Future[None] = field(default_factory=Future)


class Changes:
    """The wishes of one engine. Those who ask and the coordinator are different threads."""

    def __init__(self, entries: dict[str, Entry]) -> None:
        self._entries = entries
        self._lock = threading.Lock()
        self._asked: list[Change] = []
        self._uncommitted: list[Change] = []

    def ask(self, name: str, what: What, before: int | None = None) -> Future[None]:
        change = Change(name, what, before)
        with self._lock:
            self._asked.append(change)
        return change.done

    def at_start(self, state: Committed, choices: FailedQueries) -> FailedQueries:
        """Forget in the state what is to be forgotten; what was decided of queries that failed."""
        by_name = dict(choices.by_name)
        for change in self._take():
            if change.what == "pause":
                self._ask_again(change)
                continue
            self._uncommitted.append(change)
            if change.what == "forget":
                forget(state, change.name, change.before)
            else:
                by_name[folded(change.name)] = change.what
        return replace(choices, by_name=by_name)

    @property
    def owes_commit(self) -> bool:
        return bool(self._uncommitted)

    def between_epochs(
        self,
        runner: EpochRunner,
        queries: dict[str, Running],
        resume: Callable[[str], None],
    ) -> bool:
        """Do what was asked; whether other queries are to run now, which ``queries`` has then.

        ``resume`` lets a query of this name go on by itself.
        """
        if not runner.owes_commit:
            done, self._uncommitted = self._uncommitted, []
            for change in done:
                change.done.set_result(None)
        changed = False
        for change in self._take():
            entry = self._entries.get(folded(change.name))
            if entry is not None and entry.running is None and change.what == "pause":
                # It joins in this very moment.
                self._ask_again(change)
                continue
            try:
                self._do(change, entry, runner, queries, resume)
            except HeadraceError as error:
                change.done.set_exception(error)
                continue
            runner.owes_commit = changed = True
            self._uncommitted.append(change)
        return changed

    def _do(
        self,
        change: Change,
        entry: Entry | None,
        runner: EpochRunner,
        queries: dict[str, Running],
        resume: Callable[[str], None],
    ) -> None:
        name, state = change.name, runner.state
        if change.what == "forget":
            queries.pop(name, None)
            own = runner.branches.runners.pop(name, None)
            if own is not None:
                own.close()
            forget(state, name)
            if entry is not None:
                entry.state.finish("dropped")
                del self._entries[folded(name)]
            return
        if entry is None:
            raise QueryError(f"no query {name!r}", condition="UNKNOWN_QUERY")
        if change.what == "pause":
            if name not in queries and name not in runner.branches.runners:
                raise QueryError(f"query {name!r} does not run: it is {entry.state.message}")
            runner.pause(name, QueryError(f"query {name!r} is paused", condition=PAUSED))
            queries.pop(name, None)
            entry.state.message = "paused"
            return
        branch = state.branches.get(name)
        if branch is None or branch.failure is None:
            raise QueryError(f"query {name!r} is neither paused nor failed")
        check_schema(name, branch, entry.sink.schema)
        if change.what == "skip":
            back_among_others(state, name)
            queries[name] = entry.enrol(state, keeps_results=True)
        elif branch.rows_gone:
            raise QueryError(
                f"query {name!r} cannot go on where it was: the rows since then are no longer kept",
                hint="let it go on from now",
                condition="QUERY_FAILED_BEFORE",
            )
        else:
            resume(name)
        entry.state.active = True
        entry.state.begin()

    def _take(self) -> list[Change]:
        with self._lock:
            asked, self._asked = self._asked, []
        return asked

    def _ask_again(self, change: Change) -> None:
        with self._lock:
            self._asked.append(change)


def forget(state: Committed, name: str, before: int | None = None) -> None:
    """Forget a query with its state and its result table, if it began until this epoch."""

    def is_old(holder: Committed, query: str) -> bool:
        return before is None or holder.queries[query].since_epoch <= before

    for name_there, branch in list(state.branches.items()):
        if same_name(name_there, name):
            if not is_old(branch.state, name_there):
                return
            forget_branch(state, name_there)
    for name_there in [n for n in state.queries if same_name(n, name)]:
        if not is_old(state, name_there):
            return
        state.forget_query(name_there)
    drop_own_arrangements(state, name)


def waiting_message(state: Committed, name: str) -> str | None:
    """What a query is that stands still, if it does: paused, or failed."""
    branch = state.branches.get(name)
    if branch is None or branch.failure is None:
        return None
    return "paused" if branch.failure.condition == PAUSED else "failed"


def revive(entries: Mapping[str, Entry]) -> None:
    """Ask again for what has failed, for the engine to start."""
    for entry in entries.values():
        if not entry.state.active and entry.state.error is not None:
            entry.state.active = True
