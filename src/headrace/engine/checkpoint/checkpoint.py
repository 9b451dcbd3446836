"""The checkpoint: what an epoch intends, what it committed, and how to recover from a crash.

    headrace.json             format and identity of this checkpoint
    leases/<term>.lease       who owns it (``lease``)
    ingest/<stream>/          Spark's own checkpoint of the stream's query
    epochs/                   intents and commits (``epoch_log``)
    state/<arrangement>/      files of the arrangements
    results/<query>/          result tables that the engine keeps
    definitions/              what a service was told to run

An epoch is: intent, state files, sink output (staged), commit, publication of the sink output.
The commit is one small file that is created, never overwritten. Before it, nothing of the epoch
counts; after it, a restart finishes the publication.

A process that was thought dead may wake up at any moment and commit the epoch that it was about.
So one that takes over deletes nothing until it has made a commit of its own: either the other's
commit came first and finds all its files, or it can come no more. Files of different owners have
different names.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from headrace.engine.checkpoint.epoch_log import Ending, EpochLog, damaged
from headrace.engine.checkpoint.files import FileSystem
from headrace.engine.checkpoint.flushing import Flushing
from headrace.engine.checkpoint.gate import Gate, GatedFiles
from headrace.engine.checkpoint.lease import Lease, lost
from headrace.engine.checkpoint.publishing import listed, publish
from headrace.engine.execution.spark_errors import one_line
from headrace.errors import CheckpointError
from headrace.failpoints import failpoint
from headrace.state.committed import AREAS, FORMAT, Committed, Intent
from headrace.state.publication import STAGING, Publication
from headrace.state.sealed import sealed, unsealed

#: Formats that this version reads; it writes the last one.
_READABLE = (1, FORMAT)
#: The folder for what a service was told to run; the engine knows nothing of what is in it.
DEFINITIONS = "definitions"
#: How much of a checkpoint's identity is in the names of what it writes elsewhere.
_MARK_LENGTH = 8


def identity_in(body: Mapping[str, Any]) -> str:
    """The identity that ``headrace.json`` holds; earlier versions called it otherwise."""
    return str(body["identity"] if "identity" in body else body["race"])


class Checkpoint:
    """Reads and writes one checkpoint folder."""

    def __init__(
        self,
        files_of: Callable[[str], FileSystem],
        root: str,
        retained_commits: int,
        lease_timeout_ms: int = 60_000,
    ) -> None:
        self.gate = Gate()
        self._ungated = files_of
        self._gated: dict[int, tuple[FileSystem, GatedFiles]] = {}
        self.files = self.files_of(root)
        self.root = root.rstrip("/")
        self._retained = retained_commits
        self._log = EpochLog(self.files, self.root, retained_commits)
        # The lease is given back when nothing passes the gate any more.
        self._lease = Lease(files_of(root), self.root, lease_timeout_ms)
        self._flushing = Flushing(self.files_of, self.root)
        self._own_identity = ""
        self._ending = Ending(Committed())
        self._begun: Intent | None = None
        self._strays: list[str] = []
        #: Output of committed epochs whose sinks could not be reached, and why.
        self.unpublished: dict[Publication, str] = {}

    def files_of(self, path: str) -> FileSystem:
        """The file system that a path belongs to, as long as this owner may change anything."""
        files = self._ungated(path)
        # Kept beside the other, so that no second one takes its identity.
        return self._gated.setdefault(id(files), (files, GatedFiles(files, self.gate)))[1]

    def path(self, *parts: str) -> str:
        return "/".join((self.root, *parts))

    def new_path(self, area: str, folder: str, name: str) -> str:
        """Where to write what a commit will name; no other owner writes under this name."""
        return self.path(area, folder, f"{name}-t{self._lease.term}")

    @property
    def identity(self) -> str:
        """What a checkpoint is called wherever it lies; known once it is open."""
        return self._own_identity

    @property
    def mark(self) -> str:
        """What tells this checkpoint's files from those of others in a folder that it shares."""
        return self._own_identity[:_MARK_LENGTH]

    def staging_name(self, epoch: int) -> str:
        """The name of a folder for an epoch's output; no other checkpoint or owner has it."""
        return f"{epoch:010d}-{self.mark}-t{self._lease.term}"

    def read(self) -> Committed:
        """The last committed state, for whoever does not own the checkpoint: nothing changes."""
        identity = self._identity()
        return Committed() if identity is None else self._log.ending(identity).state

    def open(self) -> tuple[Committed, Intent | None]:
        """Own, create or recover: the last committed state, and the epoch to be done again."""
        # What is damaged, or something else, is left as it is.
        identity = self._identity()
        ending = self._ending if identity is None else self._log.ending(identity)
        self._log.unfinished(ending.state.epoch)
        self._make_folders()
        self._lease.acquire(ending.term)
        try:
            return self._recover()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Own it no longer; what was abandoned is owned until nobody can write to it any more."""
        self.gate.when_empty(self._lease.release)

    def abandon(self) -> None:
        """Let no thread write, publish or delete anything from now on, wherever it is."""
        self.gate.close()

    def begin(self, intent: Intent) -> None:
        failpoint("intent.before")
        self.gate.check()
        self._lease.check()
        if intent != self._begun:
            self._log.write_intent(intent)
        failpoint("intent.after")

    def commit(self, state: Committed) -> None:
        """Make the epoch true, then publish its output and tidy up."""
        try:
            self._commit(state)
            # It is true, but who was to tell of it is not asked any more.
            self.gate.check()
        except BaseException:
            # Whether the epoch counts is for a restart to find out.
            self.close()
            raise

    def publish_again(self) -> None:
        """Try once more to publish what is committed, and could not be published."""
        self.gate.check()
        self._lease.check()
        self._publish(list(self.unpublished))

    def probe(self) -> None:
        """Raise if the checkpoint cannot be written just now: a full disk, lost permissions."""
        path = self.path(".probe")
        self.files.write(path, "x" * 65_536, lasting=False)
        self.files.delete(path)

    def _commit(self, state: Committed) -> None:
        failpoint("commit.before")
        state.publications = [
            listed(p, self.files_of(p.staged), self.mark) for p in state.publications
        ]
        self._flushing.flush(state)
        failpoint("flush.after")
        # What waits longer is safe since it was first committed.
        state.publications = [*self.unpublished, *state.publications]
        self.gate.check()
        self._lease.check()
        ending = self._log.write_commit(
            state, self._own_identity, self._lease.term, self._ending.digest
        )
        if ending is None:
            raise lost(self.root, None)
        failpoint("commit.after")
        self._ending = ending
        self._publish(state.publications)
        failpoint("publish.after")
        self._delete_strays(state)
        self._delete_garbage(state)
        self._log.drop_old(state.epoch)

    def _make_folders(self) -> None:
        for path in (self.root, *map(self.path, ("epochs", "leases", "ingest", *AREAS))):
            self.files.make_folder(path)

    def _recover(self) -> tuple[Committed, Intent | None]:
        self._own_identity = self._identify()
        ending = self._ending = self._log.ending(self._own_identity)
        state = ending.state
        self._log.check_spark_logs(state)
        self._begun = self._log.unfinished(state.epoch)
        entries = set(self._entries())
        named = {self._entry(path) for path in state.files()}
        if not named <= entries:
            missing = min(named - entries)
            raise CheckpointError(
                f"{missing} is gone, which the commit of epoch {state.epoch} names",
                hint="restore the checkpoint as a whole, or start with a new one",
                condition="CHECKPOINT_GAP",
            )
        self._strays = [*sorted(entries - named), *self._log.left_behind()]
        self._flushing.begin_with(state)
        # A sink's folder may be moved away once all that it is to have is there.
        if state.publications and not self._log.is_published(ending):
            self._publish(state.publications, restarted=True)
        return state, self._begun

    def _identity(self) -> str | None:
        """The identity of the checkpoint in this folder; None where there is no checkpoint yet."""
        path = self.path("headrace.json")
        if not self.files.exists(path):
            self._refuse_strangers()
            return None
        try:
            text = self.files.read(path)
            body = json.loads(text)
            format_, identity = body["format"], identity_in(body)
            if format_ == FORMAT:
                unsealed(text)
        except (ValueError, KeyError, TypeError) as reason:
            raise damaged(path, reason, "restore it, or start with a new checkpoint") from None
        if format_ not in _READABLE:
            raise CheckpointError(
                f"{self.root} was written in format {format_}; this version reads format {FORMAT}",
                hint="run it with the version that wrote it, or name a new folder",
                condition="CHECKPOINT_VERSION",
            )
        return identity

    def _refuse_strangers(self) -> None:
        ours = {"epochs", "leases", "ingest", DEFINITIONS, *AREAS}
        names = [n for n in self.files.names(self.root) if not n.startswith(".")]
        # A process that died while it made the checkpoint has left empty folders.
        may_be_full = ("leases", DEFINITIONS)
        strangers = [n for n in names if n not in ours or (n not in may_be_full and self._has(n))]
        if strangers:
            raise CheckpointError(
                f"{self.root} is not a Headrace checkpoint, but holds {strangers[0]!r}",
                hint="name an empty or a new folder",
            )

    def _has(self, name: str) -> bool:
        return bool(self.files.names(self.path(name)))

    def _identify(self) -> str:
        """The identity of the checkpoint, now that it is ours; made where there is none."""
        path = self.path("headrace.json")
        recorded = self._identity()
        identity = recorded or uuid.uuid4().hex
        text = sealed({"format": FORMAT, "identity": identity})
        if recorded is None:
            self.files.create(path, text)
        elif self.files.read(path) != text:
            # An older version must not take it for one of its own.
            self.files.write(path, text)
        return identity

    def _publish(self, publications: Sequence[Publication], restarted: bool = False) -> None:
        """Publish what a commit names; what cannot be, now, is named by the next one again.

        What is neither staged nor published any more, in a folder that is there, was published
        before, and moved on by readers; or somebody has deleted it.
        """
        done: list[Publication] = []
        former, self.unpublished = self.unpublished, {}
        for publication in publications:
            files = self.files_of(publication.staged)
            named = listed(publication, files, self.mark)
            reason = ""
            try:
                if not publish(named, files):
                    reason = "what was staged for it is gone"
                    if restarted or named in former:
                        reason = "" if files.exists(f"{named.sink}/{STAGING}") else reason
            except Exception as error:
                reason = one_line(error)
            if reason:
                self.unpublished[named] = reason
            else:
                done.append(named)
        for publication, failure in self._flushing.flush_published(done).items():
            self.unpublished[publication] = one_line(failure)
        for publication in done:
            if publication not in self.unpublished:
                self.files_of(publication.staged).delete(publication.staged)
        self._log.note_latest(self._ending, is_published=not self.unpublished)

    def _delete_garbage(self, state: Committed) -> None:
        """Delete what left the state in an earlier epoch.

        Result tables are read by users, whose DataFrames list the files of some past moment:
        their files stay for as long as the commits that name them.
        """
        results = self.path("results") + "/"

        def is_due(epoch: int, path: str) -> bool:
            grace = self._retained if path.startswith(results) else 0
            return epoch + grace < state.epoch

        not_yet_due, in_state = [], set(state.files())
        for epoch, path in state.garbage:
            if path in in_state:
                # Whoever holds it still says so when it needs it no more.
                continue
            if is_due(epoch, path):
                self.files.delete(path)
            else:
                not_yet_due.append((epoch, path))
        state.garbage = not_yet_due

    def _delete_strays(self, state: Committed) -> None:
        """Delete what no commit spoke of when this owner began: work of epochs that never ended."""
        if not self._strays:
            return
        owned = {self._entry(path) for path in state.files()}
        owned |= {self._entry(path) for _, path in state.garbage}
        for path in self._strays:
            if path not in owned:
                self.files.delete(path)
        self._strays = []

    def _entries(self) -> Iterator[str]:
        """All that lies in the folders of arrangements and result tables."""
        for area in AREAS:
            for folder in self.files.names(self.path(area)):
                for name in self.files.names(self.path(area, folder)):
                    yield self.path(area, folder, name)

    def _entry(self, path: str) -> str:
        """The entry of an arrangement's folder that a file is, or is in."""
        parts = path[len(self.root) + 1 :].split("/")
        return self.path(*parts[:3])
