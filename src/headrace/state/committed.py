"""What a commit holds: the whole durable state of an engine after an epoch.

In memory files are named in full; in the commit by their place in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.plan.nodes import Sink
from headrace.planner.pane_layout import PanePlan
from headrace.state.arrangement import Arrangement, StateFile
from headrace.state.branches import QueryBranch
from headrace.state.clocks import Clocks
from headrace.state.places import full, inside
from headrace.state.publication import Publication
from headrace.state.sealed import Damaged
from headrace.state.store_names import kind_of

#: Of checkpoints and of every file in ``epochs/``. In format 1 commits had no checksum and named
#: files in full.
FORMAT = 2
#: Folders of a checkpoint that hold files which commits name.
AREAS = ("state", "results")


@dataclass(frozen=True)
class QueryRecord:
    """What the checkpoint knows of a query: its meaning, and from when it may speak.

    ``starts_at`` (ms) is the time from which the query sees every row; None is from the start.
    ``stores`` are the arrangements it needs: a version that plans it otherwise cannot resume it.
    ``joined_at`` (ms) is that time for one that joined late, also when it has caught up since.
    """

    plan: str
    since_epoch: int
    starts_at: int | None
    stores: tuple[str, ...]
    joined_at: int | None = None

    def to_json(self) -> dict[str, Any]:
        # As format 2 calls it.
        body = {**vars(self), "visible_from": self.starts_at}
        del body["starts_at"]
        return body

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> QueryRecord:
        return cls(
            value["plan"],
            value["since_epoch"],
            value["visible_from"],
            tuple(value["stores"]),
            value.get("joined_at"),
        )


@dataclass(frozen=True)
class MergedPlan:
    """The plan that a query runs which was merged with others: its number, and which of its
    ``columns`` are the query's, in the query's order; None where they are called so."""

    plan: str
    columns: tuple[str, ...] | None = None

    def to_json(self) -> str | list[str]:
        return self.plan if self.columns is None else [self.plan, *self.columns]

    @classmethod
    def from_json(cls, value: str | list[str]) -> MergedPlan:
        return cls(value) if isinstance(value, str) else cls(value[0], tuple(value[1:]))


@dataclass
class Committed:
    """The whole durable state after an epoch; one per hr, carried from epoch to epoch."""

    epoch: int = 0
    batches: dict[str, int] = field(default_factory=dict)
    greatest: dict[str, int] = field(default_factory=dict)
    clocks: Clocks = field(default_factory=Clocks)
    plan_version: int = 0
    panes: PanePlan = field(default_factory=PanePlan)
    queries: dict[str, QueryRecord] = field(default_factory=dict)
    arrangements: dict[str, Arrangement] = field(default_factory=dict)
    #: The plans that queries run which were merged with others, by name, each plan once.
    merged: dict[str, MergedPlan] = field(default_factory=dict)
    plans: dict[str, str] = field(default_factory=dict)
    publications: list[Publication] = field(default_factory=list)
    garbage: list[tuple[int, str]] = field(default_factory=list)
    #: Queries that failed, and those that went on from there, by name.
    branches: dict[str, QueryBranch] = field(default_factory=dict)
    #: What was learnt of streams and joins, as whoever plans has written it.
    statistics: dict[str, Any] = field(default_factory=dict)

    def arrangement(self, name: str) -> Arrangement:
        return self.arrangements.setdefault(name, Arrangement(name))

    # Changes, each in one place

    def note_plan(
        self, panes: PanePlan, merged: Mapping[str, MergedPlan], plans: Mapping[str, str]
    ) -> None:
        """Queries run by another plan from now on."""
        self.panes, self.merged, self.plans = panes, dict(merged), dict(plans)
        self.plan_version += 1

    def enrol(self, query: str, record: QueryRecord) -> None:
        """A query takes part, of which nothing is known yet."""
        self.queries[query] = record
        self.merged.pop(query, None)

    def forget_query(self, query: str) -> None:
        """A query takes part no more; the state that it shared stays while others need it."""
        self.queries.pop(query, None)
        self.merged.pop(query, None)

    def drop(self, name: str, files: Iterable[StateFile]) -> None:
        """Take files out of an arrangement; they are deleted once no commit names them."""
        gone = list(files)
        self.arrangement(name).replace(gone, [])
        self.garbage += [(self.epoch, file.path) for file in gone]

    def drop_arrangement(self, name: str, epoch: int) -> None:
        """Take a whole arrangement out; its files may go when a later epoch than this is true."""
        old = self.arrangements.pop(name, None)
        if old is not None:
            self.garbage += [(epoch, file.path) for file in old.files]

    def drop_all_but(self, stores: Collection[str]) -> None:
        """Drop the arrangements that no plan reads; what belongs to queries is theirs to drop."""
        for name in list(self.arrangements):
            if name not in stores and not kind_of(name).is_of_a_query:
                self.drop_arrangement(name, self.epoch)

    def files(self) -> Iterator[str]:
        """The paths of the state's files."""
        for arrangement in self.arrangements.values():
            yield from (file.path for file in arrangement.files)
        for branch in self.branches.values():
            yield from branch.files()

    def copied(self) -> Committed:
        """A state of its own to change; what is never changed is shared."""
        return replace(
            self,
            batches=dict(self.batches),
            greatest=dict(self.greatest),
            clocks=self.clocks.copied(),
            queries=dict(self.queries),
            arrangements={n: replace(a, files=list(a.files)) for n, a in self.arrangements.items()},
            merged=dict(self.merged),
            plans=dict(self.plans),
            publications=list(self.publications),
            garbage=list(self.garbage),
            branches={name: branch.copied() for name, branch in self.branches.items()},
            statistics=dict(self.statistics),
        )

    def to_json(self, root: str) -> dict[str, Any]:
        arrangements = {name: a.to_json() for name, a in self.arrangements.items()}
        for arrangement in arrangements.values():
            for file in arrangement["files"]:
                file["path"] = inside(root, file["path"])
        return {
            "epoch": self.epoch,
            "batches": self.batches,
            "greatest": self.greatest,
            **self.clocks.to_json(),
            "plan_version": self.plan_version,
            "panes": self.panes.to_json(),
            "queries": {name: record.to_json() for name, record in self.queries.items()},
            "arrangements": arrangements,
            "merged": {name: merged.to_json() for name, merged in self.merged.items()},
            "plans": self.plans,
            "publications": [p.to_json() for p in self.publications],
            "garbage": [(epoch, inside(root, path)) for epoch, path in self.garbage],
            "statistics": self.statistics,
            "branches": {
                name: branch.to_json(root, lambda path: inside(root, path))
                for name, branch in self.branches.items()
            },
        }

    @classmethod
    def from_json(cls, value: dict[str, Any], root: str) -> Committed:
        """The state that a commit of this format, or of an older one, holds."""
        old = value["format"] == 1

        def path_of(written: str) -> str:
            if old and not written.startswith(f"{root}/"):
                raise Damaged(f"it names {written}; in format 1 a checkpoint cannot be moved")
            relative = inside(root, written) if old else written
            if relative.split("/")[0] not in AREAS:
                raise Damaged(f"{written} is no place for state")
            return full(root, relative)

        publication = Publication.from_format_1 if old else Publication.from_json
        arrangements = {n: Arrangement.from_json(n, b) for n, b in value["arrangements"].items()}
        for arrangement in arrangements.values():
            arrangement.files = [replace(f, path=path_of(f.path)) for f in arrangement.files]
        return cls(
            epoch=value["epoch"],
            batches=value["batches"],
            greatest=value["greatest"],
            clocks=Clocks.from_json(value),
            plan_version=value["plan_version"],
            panes=PanePlan.from_json(value["panes"]),
            queries={
                name: QueryRecord.from_json(record) for name, record in value["queries"].items()
            },
            arrangements=arrangements,
            merged={n: MergedPlan.from_json(m) for n, m in value.get("merged", {}).items()},
            plans=value.get("plans", {}),
            publications=[publication(p) for p in value["publications"]],
            garbage=[(epoch, path_of(path)) for epoch, path in value["garbage"]],
            statistics=value.get("statistics", {}),
            branches={
                name: QueryBranch.from_json(
                    branch, lambda body: cls.from_json({"format": FORMAT, **body}, root), path_of
                )
                for name, branch in value.get("branches", {}).items()
            },
        )


@dataclass(frozen=True)
class Intent:
    """The batches of an epoch that was begun, and the streams that are idle in it.

    That a stream is idle is found out by the clock on the wall; written down, it is a fact that a
    repetition of the epoch finds again.
    """

    epoch: int
    batches: dict[str, int]
    idle: frozenset[str] = frozenset()


def joins_at(sink: Sink, state: Committed) -> int | None:
    """From when a query that joins now sees every row; None where nothing was there before it."""
    seen = (state.greatest.get(stream) for stream in sink.streams())
    return max((time + 1 for time in seen if time is not None), default=None)
