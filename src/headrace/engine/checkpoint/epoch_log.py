"""The log of epochs: intents and commits, and how it is known that none is missing.

    epochs/<n>.intent         batches that epoch n is about to process, and streams that are idle
    epochs/<n>.commit         everything that is true after epoch n
    epochs/latest             which commit came last, and whether its output was published

The last commit is the state, so a log whose end was lost would quietly be a state of the past.
Three witnesses know of a later epoch: the file ``latest``, intents beyond the one that comes next,
and Spark's own logs, which note a batch as done only after the epoch that holds it. Each commit
names the digest of the one before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.engine.checkpoint.files import FileSystem
from headrace.engine.checkpoint.lease import numbered
from headrace.errors import CheckpointError
from headrace.names import storage_name
from headrace.state.committed import FORMAT, Committed, Intent
from headrace.state.sealed import Damaged, digest, sealed, unsealed

#: The last commit and the one before it, which it refers to.
_LEAST_RETAINED = 2


@dataclass(frozen=True)
class Ending:
    """Where the log ends: the state, the term of who committed it, and the commit's digest."""

    state: Committed
    term: int = 0
    digest: str = ""


@dataclass(frozen=True)
class _Latest:
    """What was noted of the last commit after it was made."""

    epoch: int = 0
    digest: str = ""
    is_published: bool = False


class EpochLog:
    """Reads and writes the log of one checkpoint."""

    def __init__(self, files: FileSystem, root: str, retained: int) -> None:
        self._files = files
        self._root = root
        self._retained = max(retained, _LEAST_RETAINED)

    def ending(self, identity: str) -> Ending:
        """The last commit, if the log is whole; whoever reads while others commit may do so."""
        # Witnesses first: they must not have seen more than is read after them.
        latest = self._latest()
        batches_done = dict(self._batches("commits"))
        names = self._files.names(f"{self._root}/epochs")
        commits = numbered(names, ".commit")
        ending = self._read_commit(commits[-1], identity) if commits else Ending(Committed())
        self._check_end(ending, latest, numbered(names, ".intent"), batches_done)
        return ending

    def unfinished(self, committed: int) -> Intent | None:
        """The epoch that was begun after the last commit."""
        path = self._file(committed + 1, "intent")
        if not self._files.exists(path):
            return None
        try:
            body = _opened(self._files.read(path))
            batches = {stream: int(batch) for stream, batch in body["batches"].items()}
            return Intent(int(body["epoch"]), batches, frozenset(body.get("idle", ())))
        except (ValueError, KeyError, TypeError, AttributeError) as reason:
            raise damaged(
                path,
                reason,
                f"restore it, or delete it: epoch {committed + 1} then begins with the batches "
                "that come, of which a foreachBatch function may have seen others",
            ) from None

    def check_spark_logs(self, state: Committed) -> None:
        """Raise if Spark has forgotten batches that the state holds: it would number others so."""
        batches = _by_folder(state)
        for stream, begun in self._batches("offsets"):
            held = batches.get(stream, -1)
            if begun < held:
                raise _gap(
                    f"the state of {self._root} holds batch {held} of stream {stream!r}, but "
                    f"Spark's log of it ends at {begun}",
                    "ingest",
                )

    def write_intent(self, intent: Intent) -> None:
        body = {
            "format": FORMAT,
            "epoch": intent.epoch,
            "batches": intent.batches,
            "idle": sorted(intent.idle),
        }
        self._files.write(self._file(intent.epoch, "intent"), sealed(body))

    def write_commit(
        self, state: Committed, identity: str, term: int, before: str
    ) -> Ending | None:
        """Commit, unless somebody else has committed this epoch or a later one."""
        body = {"format": FORMAT, "identity": identity, "term": term, "previous": before}
        text = sealed({**body, **state.to_json(self._root)})
        path = self._file(state.epoch, "commit")
        if not self._files.create(path, text):
            return None
        later = numbered(self._files.names(f"{self._root}/epochs"), ".commit")[-1]
        if later > state.epoch:
            # So long ago that the commit in whose place this one stands was dropped.
            self._files.delete(path)
            return None
        return Ending(state, term, digest(text))

    def note_latest(self, ending: Ending, is_published: bool) -> None:
        body = {
            "epoch": ending.state.epoch,
            "commit": ending.digest,
            "published": is_published,
        }
        self._files.write(f"{self._root}/epochs/latest", sealed(body), lasting=False)

    def is_published(self, ending: Ending) -> bool:
        """Whether it was noted that all output of the last commit is where readers see it."""
        latest = self._latest()
        return latest.is_published and latest.digest == ending.digest

    def drop_old(self, epoch: int) -> None:
        for suffix in ("intent", "commit"):
            self._files.delete(self._file(epoch - self._retained, suffix))

    def left_behind(self) -> list[str]:
        """Temporary files of writers that died."""
        names = self._files.names(f"{self._root}/epochs")
        return [f"{self._root}/epochs/{name}" for name in names if name.endswith(".tmp")]

    def _read_commit(self, epoch: int, identity: str) -> Ending:
        path = self._file(epoch, "commit")
        try:
            text = self._files.read(path)
            body = _opened(text)
            if body.get("identity", body.get("race", identity)) != identity:
                raise Damaged("it is the commit of another checkpoint")
            if body["epoch"] != epoch:
                raise Damaged(f"it is the commit of epoch {body['epoch']}")
            state = Committed.from_json(body, self._root)
            before = self._file(epoch - 1, "commit")
            if body.get("previous") and self._files.exists(before):
                self._check_previous(before, body["previous"])
            return Ending(state, body.get("term", 0), digest(text))
        except (ValueError, KeyError, TypeError, AttributeError) as reason:
            raise damaged(
                path, reason, "restore the checkpoint from a copy, or start with a new one"
            ) from None

    def _check_previous(self, path: str, expected: str) -> None:
        if digest(self._files.read(path)) != expected:
            raise Damaged(f"it does not follow from {path}")

    def _latest(self) -> _Latest:
        """What came last as far as it was noted; a witness that cannot be read says nothing."""
        try:
            body = unsealed(self._files.read(f"{self._root}/epochs/latest"))
            is_published = bool(body.get("published", False))
            return _Latest(int(body["epoch"]), str(body["commit"]), is_published)
        except Exception:
            return _Latest()

    def _check_end(
        self,
        ending: Ending,
        latest: _Latest,
        intents: list[int],
        batches_done: dict[str, int],
    ) -> None:
        last, state = ending.state.epoch, ending.state
        where = f"{self._root} ends at the commit of epoch {last}" if last else f"{self._root} ends"
        if latest.epoch > last:
            raise _gap(f"{where}, but epoch {latest.epoch} was committed", "epochs")
        if latest.epoch == last and last and latest.digest != ending.digest:
            raise _gap(f"{where}, but another commit of that epoch was made", "epochs")
        if intents and intents[-1] > last + 1:
            raise _gap(f"{where}, but epoch {intents[-1]} was begun", "epochs")
        batches = _by_folder(state)
        for stream, batch in batches_done.items():
            held = batches.get(stream, -1)
            if batch > held:
                raise _gap(
                    f"{where}, and holds {held + 1} batches of stream {stream!r}, but Spark has "
                    f"finished {batch + 1}",
                    "epochs",
                )

    def _batches(self, kind: str) -> Iterator[tuple[str, int]]:
        """The last batch of each stream in one of Spark's logs of it."""
        for stream in self._files.names(f"{self._root}/ingest"):
            batches = numbered(self._files.names(f"{self._root}/ingest/{stream}/{kind}"), "")
            if batches:
                yield stream, batches[-1]

    def _file(self, epoch: int, suffix: str) -> str:
        return f"{self._root}/epochs/{epoch:010d}.{suffix}"


def _by_folder(state: Committed) -> dict[str, int]:
    """The batches that the state holds, by the folders of the streams' own logs."""
    return {storage_name(stream): batch for stream, batch in state.batches.items()}


def _opened(text: str) -> dict[str, Any]:
    """The body of an intent or commit; those of format 1 have no checksum."""
    body = json.loads(text)
    if not isinstance(body, dict):
        raise Damaged("it is not an object")
    return body if body["format"] == 1 else unsealed(text)


def damaged(path: str, reason: Exception, hint: str) -> CheckpointError:
    if isinstance(reason, Damaged):
        why = str(reason)
    elif isinstance(reason, KeyError):
        why = f"it lacks {reason}"
    else:
        why = "it cannot be read"
    return CheckpointError(f"{path} is damaged: {why}", hint=hint)


def _gap(message: str, folder: str) -> CheckpointError:
    return CheckpointError(
        message,
        hint=f"restore the checkpoint's folder {folder!r} as it was, or start with a new one",
        condition="CHECKPOINT_GAP",
    )
