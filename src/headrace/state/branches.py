"""Queries that go on by themselves: what a checkpoint holds of one that has failed.

The rows of an epoch in which a query fails would be gone for it once the others have gone on. So
the query *branches off*: it keeps a state of its own, that of the last epoch in which it took part,
and the rows of its streams are kept, epoch by epoch, until somebody decides. Told to go on from
where it failed, it first repeats the epochs that it missed, under their own numbers, and then takes
part in every epoch, still on its own state: with the others it would share stores that were not
kept for it in between.

A branch holds files that were shared when it began; a file is deleted when nobody holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace.plan.types import Schema
from headrace.state.arrangement import Arrangement, StateFile
from headrace.state.store_names import outbox_of_query, results_of_query

if TYPE_CHECKING:
    from headrace.state.committed import Committed

#: More epochs than this are not kept, however few rows they have.
MOST_EPOCHS = 10_000


def own_arrangements(query: str) -> tuple[str, str]:
    """What belongs to a query alone, whatever it shares with others."""
    return results_of_query(query), outbox_of_query(query)


@dataclass(frozen=True)
class Failure:
    """Why a query failed, and in which epoch."""

    epoch: int
    condition: str
    message: str


@dataclass(frozen=True)
class MissedEpoch:
    """An epoch in which a failed query did not take part: the rows that its streams brought."""

    epoch: int
    idle: frozenset[str]
    files: Mapping[str, tuple[StateFile, ...]]

    @property
    def rows(self) -> int:
        return sum(file.rows for files in self.files.values() for file in files)

    def to_json(self, inside: Callable[[str], str]) -> dict[str, Any]:
        files = {
            stream: [{**asdict(file), "path": inside(file.path)} for file in files]
            for stream, files in self.files.items()
        }
        return {"epoch": self.epoch, "idle": sorted(self.idle), "files": files}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], full: Callable[[str], str]) -> MissedEpoch:
        files = {
            stream: tuple(StateFile(**{**file, "path": full(file["path"])}) for file in files)
            for stream, files in value["files"].items()
        }
        return cls(value["epoch"], frozenset(value["idle"]), files)


def described(schema: Schema) -> tuple[str, ...]:
    """The columns of a query's output, to see whether another one puts out the same."""
    return tuple(f"{field.name} {field.type.name}" for field in schema)


@dataclass
class QueryBranch:
    """A query on a state of its own; ``failure`` is why it stands still, None while it runs.

    ``missed`` are the epochs that it has not taken part in, in order, of whose rows the ``columns``
    by stream are kept; with ``rows_gone`` there were too many of them, and it cannot go on from
    where it failed. What it has put out has the columns of ``schema``, each with its type.
    """

    state: Committed
    failure: Failure | None
    schema: tuple[str, ...] = ()
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missed: list[MissedEpoch] = field(default_factory=list)
    rows_gone: bool = False

    @property
    def missed_rows(self) -> int:
        return sum(epoch.rows for epoch in self.missed)

    def files(self) -> Iterator[str]:
        yield from self.state.files()
        for epoch in self.missed:
            yield from (file.path for files in epoch.files.values() for file in files)

    def miss(self, epoch: MissedEpoch) -> None:
        """Note an epoch that the query does not take part in; one that changes nothing is left."""
        idle = self.missed[-1].idle if self.missed else self.state.clocks.idle
        if epoch.files or epoch.idle != idle:
            self.missed.append(epoch)

    def let_go_of_rows(self) -> list[str]:
        """Forget what going on from the failure would need; the files that are free then."""
        freed = set(self.files())
        own = {name for query in self.state.queries for name in own_arrangements(query)}
        own_arrangements_left = {
            name: a for name, a in self.state.arrangements.items() if name in own
        }
        self.state.arrangements, self.missed, self.rows_gone = own_arrangements_left, [], True
        return sorted(freed - set(self.files()))

    def copied(self) -> QueryBranch:
        return replace(self, state=self.state.copied(), missed=list(self.missed))

    def to_json(self, root: str, inside: Callable[[str], str]) -> dict[str, Any]:
        return {
            "state": self.state.to_json(root),
            "failure": None if self.failure is None else asdict(self.failure),
            "schema": self.schema,
            "columns": self.columns,
            "missed": [epoch.to_json(inside) for epoch in self.missed],
            "rows_gone": self.rows_gone,
        }

    @classmethod
    def from_json(
        cls,
        value: Mapping[str, Any],
        state_of: Callable[[dict[str, Any]], Committed],
        full: Callable[[str], str],
    ) -> QueryBranch:
        failure = value["failure"]
        return cls(
            state_of(value["state"]),
            None if failure is None else Failure(**failure),
            tuple(value["schema"]),
            {stream: tuple(names) for stream, names in value["columns"].items()},
            [MissedEpoch.from_json(epoch, full) for epoch in value["missed"]],
            value["rows_gone"],
        )


def branched_off(
    before: Committed, query: str, stores: Iterable[str], outbox: Arrangement | None
) -> Committed:
    """The state of one query after the last epoch that it took part in.

    ``stores`` are the arrangements that it read, ``outbox`` what still waits for its sink.
    """
    results = results_of_query(query)
    arrangements = {
        n: before.arrangements[n] for n in (*stores, results) if n in before.arrangements
    }
    if outbox is not None:
        arrangements[outbox.name] = outbox
    merged = {n: plan for n, plan in before.merged.items() if n == query}
    return replace(
        before,
        batches=dict(before.batches),
        greatest=dict(before.greatest),
        clocks=before.clocks.copied(),
        queries={n: record for n, record in before.queries.items() if n == query},
        arrangements={n: replace(a, files=list(a.files)) for n, a in arrangements.items()},
        merged=merged,
        plans={m.plan: before.plans[m.plan] for m in merged.values()},
        publications=[],
        garbage=[],
        branches={},
    )


def set_aside(state: Committed, query: str, branch: QueryBranch) -> None:
    """Let a query take part no more; what is its own goes with it."""
    state.branches[query] = branch
    state.forget_query(query)
    for name in own_arrangements(query):
        state.arrangements.pop(name, None)


def forget_branch(state: Committed, query: str) -> QueryBranch:
    """Take a branch out of the state; its files are deleted, but for those that others hold."""
    branch = state.branches.pop(query)
    state.garbage += [(state.epoch, path) for path in branch.files()]
    state.garbage += branch.state.garbage
    return branch


def back_among_others(state: Committed, query: str) -> None:
    """End a branch, of which only what belongs to the query itself is left: it begins anew."""
    branch = forget_branch(state, query)
    own = [n for n in own_arrangements(query) if n in branch.state.arrangements]
    state.arrangements |= {name: branch.state.arrangements[name] for name in own}


def results_of(state: Committed, query: str) -> Arrangement | None:
    """The result table of a query, also of one that has failed or goes on by itself."""
    states = (state, *(branch.state for branch in state.branches.values()))
    tables = (each.arrangements.get(results_of_query(query)) for each in states)
    return next((arrangement for arrangement in tables if arrangement is not None), None)


def drop_own_arrangements(state: Committed, query: str) -> None:
    """What another query of this name has left."""
    for name in own_arrangements(query):
        state.drop_arrangement(name, state.epoch + 1)
