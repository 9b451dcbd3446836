"""The checkpoint: what an epoch intends, what it committed, and how to recover from a crash.

    headrace.json             format and identity of this checkpoint
    ingest/<stream>/          Spark's own checkpoint of the stream's query
    epochs/<n>.intent         batches that epoch n is about to process, and streams that are idle
    epochs/<n>.commit         everything that is true after epoch n
    state/<arrangement>/      files of the arrangements
    results/<query>/          result tables that the engine keeps

An epoch is: intent, state files, sink output (staged), commit, publication of the sink output.
The commit is one small file put in place by a rename. Before it, nothing of the epoch counts and
a restart deletes it; after it, a restart finishes the publication.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.engine.arrangements import Arrangement
from headrace.engine.clocks import Clocks
from headrace.engine.failpoints import reach
from headrace.engine.files import FileSystem
from headrace.engine.layouts import PanePlan
from headrace.errors import CheckpointError

FORMAT = 1


@dataclass(frozen=True)
class QueryRecord:
    """What the checkpoint knows of a query: its meaning, and from when it may speak.

    ``visible_from`` (ms) is the time from which the query sees every row; None is from the start.
    ``stores`` are the arrangements it needs: a version that plans it otherwise cannot resume it.
    ``joined_at`` (ms) is that time for one that joined late, also when it has caught up since.
    """

    plan: str
    since_epoch: int
    visible_from: int | None
    stores: tuple[str, ...]
    joined_at: int | None = None


@dataclass(frozen=True)
class Publication:
    """Staged output that becomes visible by a rename once its epoch is committed."""

    staged: str
    final: str


@dataclass
class Committed:
    """The whole durable state after an epoch; one per race, carried from epoch to epoch."""

    epoch: int = 0
    batches: dict[str, int] = field(default_factory=dict)
    greatest: dict[str, int] = field(default_factory=dict)
    clocks: Clocks = field(default_factory=Clocks)
    plan_version: int = 0
    panes: PanePlan = field(default_factory=PanePlan)
    queries: dict[str, QueryRecord] = field(default_factory=dict)
    arrangements: dict[str, Arrangement] = field(default_factory=dict)
    #: The plans that queries run which were merged with others, by name, each plan once.
    merged: dict[str, str] = field(default_factory=dict)
    plans: dict[str, str] = field(default_factory=dict)
    publications: list[Publication] = field(default_factory=list)
    garbage: list[tuple[int, str]] = field(default_factory=list)

    def arrangement(self, name: str) -> Arrangement:
        return self.arrangements.setdefault(name, Arrangement(name))

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
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "epoch": self.epoch,
            "batches": self.batches,
            "greatest": self.greatest,
            **self.clocks.to_json(),
            "plan_version": self.plan_version,
            "panes": self.panes.to_json(),
            "queries": {name: vars(record) for name, record in self.queries.items()},
            "arrangements": {name: a.to_json() for name, a in self.arrangements.items()},
            "merged": self.merged,
            "plans": self.plans,
            "publications": [vars(p) for p in self.publications],
            "garbage": self.garbage,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Committed:
        return cls(
            epoch=value["epoch"],
            batches=value["batches"],
            greatest=value["greatest"],
            clocks=Clocks.from_json(value),
            plan_version=value["plan_version"],
            panes=PanePlan.from_json(value["panes"]),
            queries={
                name: QueryRecord(**{**record, "stores": tuple(record["stores"])})
                for name, record in value["queries"].items()
            },
            arrangements={
                name: Arrangement.from_json(name, body)
                for name, body in value["arrangements"].items()
            },
            merged=value.get("merged", {}),
            plans=value.get("plans", {}),
            publications=[Publication(**p) for p in value["publications"]],
            garbage=[(epoch, path) for epoch, path in value["garbage"]],
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


class Checkpoint:
    """Reads and writes one checkpoint folder."""

    def __init__(
        self, files_of: Callable[[str], FileSystem], root: str, retained_commits: int
    ) -> None:
        self.files_of = files_of
        self.files = files_of(root)
        self.root = root.rstrip("/")
        self._retained = retained_commits

    def path(self, *parts: str) -> str:
        return "/".join((self.root, *parts))

    def open(self) -> tuple[Committed, Intent | None]:
        """Create or recover: the last committed state, and the epoch that must be done again."""
        self._identify()
        self.files.make_folder(self.path("epochs"))
        committed = self._last_commit()
        intent = self._unfinished_intent(committed.epoch)
        self._finish_publications(committed)
        self._delete_strays(committed)
        return committed, intent

    def begin(self, intent: Intent) -> None:
        reach("intent.before")
        body = {
            "format": FORMAT,
            "epoch": intent.epoch,
            "batches": intent.batches,
            "idle": sorted(intent.idle),
        }
        self.files.write(self._epoch_file(intent.epoch, "intent"), json.dumps(body))
        reach("intent.after")

    def commit(self, state: Committed) -> None:
        """Make the epoch true, then publish its output and tidy up."""
        reach("commit.before")
        self.files.write(
            self._epoch_file(state.epoch, "commit"),
            json.dumps(state.to_json(), separators=(",", ":")),
        )
        reach("commit.after")
        self._finish_publications(state)
        reach("publish.after")
        self._delete_garbage(state)
        for suffix in ("intent", "commit"):
            old = self._epoch_file(state.epoch - self._retained, suffix)
            self.files.delete(old)

    def probe(self) -> None:
        """Raise if the checkpoint cannot be written just now: a full disk, lost permissions."""
        path = self.path(".probe")
        self.files.write(path, "x" * 65_536)
        self.files.delete(path)

    def _identify(self) -> None:
        """Check that the folder is ours and of this format; make it so if it is empty."""
        path = self.path("headrace.json")
        if not self.files.exists(path):
            strangers = [n for n in self.files.names(self.root) if not n.startswith(".")]
            if strangers:
                raise CheckpointError(
                    f"{self.root} is not a Headrace checkpoint, but holds {strangers[0]!r}",
                    hint="name an empty or a new folder",
                )
            self.files.make_folder(self.root)
            self.files.write(path, json.dumps({"format": FORMAT, "race": uuid.uuid4().hex}))
            return
        try:
            found = json.loads(self.files.read(path))["format"]
        except (ValueError, KeyError, TypeError):
            raise CheckpointError(f"{path} is damaged", hint="restore it, or start anew") from None
        if found != FORMAT:
            raise CheckpointError(
                f"{self.root} was written in format {found}; this version reads format {FORMAT}",
                hint="run it with the version that wrote it, or name a new folder",
                condition="CHECKPOINT_VERSION",
            )

    def _last_commit(self) -> Committed:
        names = [n for n in self.files.names(self.path("epochs")) if n.endswith(".commit")]
        if not names:
            return Committed()
        path = self.path("epochs", names[-1])
        try:
            return Committed.from_json(json.loads(self.files.read(path)))
        except (ValueError, KeyError, TypeError):
            raise CheckpointError(
                f"{path} is damaged",
                hint="restore it from a backup, or start with a new checkpoint",
            ) from None

    def _unfinished_intent(self, committed: int) -> Intent | None:
        path = self._epoch_file(committed + 1, "intent")
        if not self.files.exists(path):
            return None
        body = json.loads(self.files.read(path))
        return Intent(body["epoch"], body["batches"], frozenset(body.get("idle", ())))

    def _finish_publications(self, state: Committed) -> None:
        for publication in state.publications:
            files = self.files_of(publication.staged)
            if files.exists(publication.staged):
                files.delete(publication.final)
                files.move(publication.staged, publication.final)

    def _delete_garbage(self, state: Committed) -> None:
        """Delete what left the state in an earlier epoch.

        Result tables are read by users, whose DataFrames list the files of some past moment:
        their files stay for as long as the commits that name them.
        """
        results = self.path("results") + "/"

        def is_due(epoch: int, path: str) -> bool:
            grace = self._retained if path.startswith(results) else 0
            return epoch + grace < state.epoch

        kept = []
        for epoch, path in state.garbage:
            if is_due(epoch, path):
                self.files.delete(path)
            else:
                kept.append((epoch, path))
        state.garbage = kept

    def _delete_strays(self, state: Committed) -> None:
        """Delete the files that no commit speaks of: the work of an epoch that never ended."""
        known = [file.path for a in state.arrangements.values() for file in a.files]
        known += [path for _, path in state.garbage]
        # With all folders that they are in.
        wanted = {path[:end] for path in known for end in _ends(path)}
        for area in ("state", "results"):
            for name in self.files.names(self.path(area)):
                folder = self.path(area, name)
                for entry in self.files.names(folder):
                    path = f"{folder}/{entry}"
                    if path not in wanted:
                        self.files.delete(path)

    def _epoch_file(self, epoch: int, suffix: str) -> str:
        return self.path("epochs", f"{epoch:010d}.{suffix}")


def _ends(path: str) -> list[int]:
    """Where the names in a path end."""
    return [*(place for place, letter in enumerate(path) if letter == "/"), len(path)]
