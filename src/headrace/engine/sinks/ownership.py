"""Whose a sink's folder is: that of one query of one checkpoint.

    <sink's folder>/_headrace/owner.json

Readers take a folder as a whole, and epochs are numbered anew in each checkpoint: where two queries
write to one, nobody could tell whose rows are whose. So a folder is claimed before anything is
written to it, by *creating* a file in it, which only one process can do. That file names a
checkpoint by its identity, which a copy or a move keeps, and a query by its name. It stays when the
query leaves, as its output does.

A folder without that file can be claimed if it is empty, or if all that it holds was written by
this very query: versions before this one claimed nothing, but put query and checkpoint into the
names of their files.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from urllib.parse import urlparse

from py4j.protocol import Py4JError

from headrace.engine.checkpoint.checkpoint import identity_in
from headrace.engine.checkpoint.files import is_local
from headrace.engine.checkpoint.storage import Storage
from headrace.engine.execution.spark_errors import one_line
from headrace.engine.sinks.base import QuerySink
from headrace.errors import CheckpointError, SinkError
from headrace.names import folded, same_name, storage_name
from headrace.redaction import without_passwords
from headrace.state.committed import Committed
from headrace.state.publication import STAGING
from headrace.state.sealed import sealed, unsealed

MARKER = f"{STAGING}/owner.json"
_FORMAT = 1
_EPOCH = re.compile(r"epoch=(\d+)")
#: Query and mark of the checkpoint of a published file.
_MARKED = re.compile(r"part-\d+-(?P<query>.+)-\d+-(?P<mark>[0-9a-f]{8})(\..*)?")
#: As checkpoints of format 1 published files, under the names that they had when they were staged.
_UNMARKED = re.compile(r"part-\d+(-[0-9a-f-]{36}-c\d+)?(\..*)?")
#: Storage that cannot be reached says nothing about whose a folder is.
_TROUBLE = (OSError, CheckpointError, Py4JError)


@dataclass(frozen=True)
class Owner:
    """A query of a checkpoint. Where the checkpoint lies, and since when, are for people."""

    identity: str
    query: str
    checkpoint: str
    since: str

    def is_same(self, other: Owner) -> bool:
        return self.identity == other.identity and same_name(self.query, other.query)

    def to_text(self) -> str:
        return sealed({"format": _FORMAT, **asdict(self)})

    @classmethod
    def from_text(cls, text: str) -> Owner:
        body = unsealed(text)
        if body.pop("format") != _FORMAT:
            raise ValueError("another version has written it")
        # Earlier versions called it otherwise.
        body.setdefault("identity", body.pop("race", ""))
        return cls(**{name: str(value) for name, value in body.items()})

    def seen_by(self, other: Owner) -> str:
        """How to speak of it to somebody else."""
        if self.identity == other.identity:
            return f"query {self.query!r} of this checkpoint"
        return f"query {self.query!r} of the checkpoint {self.checkpoint}"


def claim_folders(sinks: Iterable[QuerySink], checkpoint: Storage, state: Committed) -> None:
    """Make every sink the owner of its folder; if one cannot be, no folder changes hands.

    A folder that cannot be reached is claimed before its sink first writes.
    """
    claims = [
        _Claim(sink, checkpoint, state, state.epoch) for sink in sinks if sink.folder is not None
    ]
    _refuse_shared(claims)
    for step in (_Claim.check, _Claim.take):
        for claim in claims:
            try:
                step(claim)
            except _TROUBLE:
                claim.sink.owns_folder = False


def claim_now(sink: QuerySink, checkpoint: Storage, state: Committed) -> None:
    """Claim a folder within an epoch, or say why that cannot be."""
    claim = _Claim(sink, checkpoint, state, state.epoch - 1)
    try:
        claim.check()
        claim.take()
    except _TROUBLE as error:
        raise SinkError(
            f"query {sink.name!r} cannot write to {claim.folder}: {one_line(error)}",
            hint="choose a folder that this user may write to",
        ) from error


class _Claim:
    """One query's claim to its folder, in a checkpoint that has come to an epoch."""

    def __init__(self, sink: QuerySink, checkpoint: Storage, state: Committed, epoch: int) -> None:
        assert sink.folder is not None
        self.sink = sink
        self.folder = sink.folder
        self._checkpoint = checkpoint
        self._files = checkpoint.files_of(self.folder)
        self._state = state
        self._epoch = epoch
        since = datetime.now(UTC).isoformat(timespec="seconds")
        place = without_passwords(checkpoint.root)
        self._me = Owner(checkpoint.identity, sink.name, place, since)
        #: Who the folder says it belongs to.
        self._claimed: Owner | None = None

    def check(self) -> None:
        """Raise if the folder is not this query's, and cannot become it."""
        self._refuse_what_is_around()
        self._claimed = self._owner_of(self.folder)
        if self._claimed is None:
            self._refuse_strangers()
        elif not self._claimed.is_same(self._me):
            raise self._in_use(self._claimed)
        else:
            self._refuse_copies(self._claimed)
        self._refuse_later_epochs()

    def take(self) -> None:
        """Write down whose the folder is."""
        path, text = f"{self.folder}/{MARKER}", self._me.to_text()
        if self._claimed is None:
            if is_local(path):
                os.makedirs(posixpath.dirname(path), exist_ok=True)
            created = self._files.create(path, text)
            self._files.flush([], [self.folder])
            try:
                # Somebody may have come at the same time, to the same folder or to one around it.
                self.check()
            except BaseException:
                if created:
                    self._files.delete(path)
                raise
        elif self._claimed.checkpoint != self._me.checkpoint:
            # The checkpoint was moved.
            self._files.write(path, text)
        self.sink.owns_folder = True

    def places(self) -> Iterator[Hashable]:
        """What the folder, and those around it, are by themselves, however they are spelt."""
        return map(_identity, _with_all_around(self.folder))

    def refuse_sharing(self, other: _Claim, same: bool) -> None:
        if same:
            raise self._in_use(other._me)
        raise self._inside(other.folder, other._me)

    def _owner_of(self, folder: str) -> Owner | None:
        path = f"{folder}/{MARKER}"
        if not self._files.exists(path):
            return None
        try:
            return Owner.from_text(self._files.read(path))
        except (ValueError, KeyError, TypeError, *_TROUBLE) as error:
            raise self._refused(
                f"nobody knows whose it is, since {path} is damaged ({one_line(error)})",
                "if it is this query's, delete that file; if not, name another path",
            ) from error

    def _refuse_strangers(self) -> None:
        """Only what this query has written may be in a folder that nobody has claimed."""
        for name in self._files.names(self.folder):
            epoch = _EPOCH.fullmatch(name)
            # Where Spark finds its own sink's log, it reads what that names and nothing else.
            if name == "_spark_metadata" or (_is_seen(name) and not epoch):
                self._refuse_stranger(name)
            if epoch:
                for below in filter(_is_seen, self._files.names(f"{self.folder}/{name}")):
                    if not self._has_written(below, int(epoch[1])):
                        self._refuse_stranger(f"{name}/{below}")

    def _refuse_stranger(self, name: str) -> None:
        raise self._refused(
            f"it holds {name}, which is not of this query",
            "name an empty or a new folder, or move away what is there",
        )

    def _has_written(self, name: str, epoch: int) -> bool:
        marked = _MARKED.fullmatch(name)
        if marked:
            ours = marked["mark"] == self._checkpoint.mark
            query = folded(marked["query"])
            return ours and query in (folded(self.sink.name), storage_name(self.sink.name))
        record = self._state.queries.get(self.sink.name)
        was_there = record is not None and record.since_epoch <= epoch <= self._epoch
        return was_there and _UNMARKED.fullmatch(name) is not None

    def _refuse_copies(self, claimed: Owner) -> None:
        """Two checkpoints of one identity, a copy and what it was made of, may not both write."""
        there = claimed.checkpoint.rstrip("/")
        if there == self._me.checkpoint or _identity(there) == _identity(self._me.checkpoint):
            return
        try:
            text = self._checkpoint.files_of(there).read(f"{there}/headrace.json")
            is_there = identity_in(json.loads(text)) == self._me.identity
        except (ValueError, KeyError, AttributeError, *_TROUBLE):
            # It is gone, or out of sight.
            return
        if is_there:
            raise self._refused(
                f"the checkpoint {there}, of which this one is a copy, writes there",
                "name another path; or move that checkpoint away, if this one takes its place",
            )

    def _refuse_what_is_around(self) -> None:
        """Readers of a folder around this one would read its output as well."""
        for place in _with_all_around(self.folder):
            if self._is_there(f"{place}/headrace.json"):
                raise self._refused(
                    f"it lies in the checkpoint {place}", "name a path outside of checkpoints"
                )
            if _identity(place) != _identity(self.folder) and self._is_there(f"{place}/{MARKER}"):
                owner = self._owner_of(place)
                assert owner is not None
                raise self._inside(place, owner)

    def _is_there(self, path: str) -> bool:
        try:
            return self._files.exists(path)
        except _TROUBLE:
            # Who may write to a folder need not be allowed to look at those above it.
            return False

    def _refuse_later_epochs(self) -> None:
        """Output of epochs that the checkpoint does not know: it was restored from an older day."""
        for name in self._files.names(self.folder):
            epoch = _EPOCH.fullmatch(name)
            if not epoch or int(epoch[1]) <= self._epoch:
                continue
            if any(map(_is_seen, self._files.names(f"{self.folder}/{name}"))):
                raise SinkError(
                    f"query {self.sink.name!r} cannot go on in {self.folder}: it holds {name}, but "
                    f"the checkpoint {self._me.checkpoint} ends at epoch {self._epoch}",
                    hint=f"if the checkpoint was restored, delete epoch={self._epoch + 1} and all "
                    "later ones there: they are done again",
                    condition="SINK_AHEAD",
                )

    def _in_use(self, owner: Owner) -> SinkError:
        advice = "name another path"
        if owner.identity == self._me.identity:
            advice += f"; if {owner.query!r} does not come back, its folder may be moved away"
        else:
            advice += "; if that checkpoint is gone for good, move the folder away"
        return self._refused(f"{owner.seen_by(self._me)} writes there", advice)

    def _inside(self, place: str, owner: Owner) -> SinkError:
        return self._refused(
            f"it lies in {place}, where {owner.seen_by(self._me)} writes",
            "name a path outside of that folder",
        )

    def _refused(self, reason: str, advice: str) -> SinkError:
        return SinkError(
            f"query {self.sink.name!r} cannot write to {self.folder}: {reason}",
            hint=advice,
            condition="SINK_PATH_IN_USE",
        )


def _refuse_shared(claims: Iterable[_Claim]) -> None:
    """Refuse queries that would write to one folder, or into each other's."""
    owned: dict[Hashable, _Claim] = {}
    for claim in claims:
        first = owned.setdefault(next(claim.places()), claim)
        if first is not claim:
            claim.refuse_sharing(first, same=True)
    for claim in owned.values():
        for place in claim.places():
            around = owned.get(place, claim)
            if around is not claim:
                claim.refuse_sharing(around, same=False)


def _with_all_around(path: str) -> list[str]:
    """A folder and those that it is in; of a local one also those behind symbolic links."""
    parsed = urlparse(path)
    if is_local(path):
        tops, starts = "", [path, os.path.realpath(path)]
    else:
        tops, starts = f"{parsed.scheme}://{parsed.netloc}", [parsed.path]
    around: dict[str, None] = {}
    for start in starts:
        # In full without doubled and trailing slashes: //a is not the same as /a to Python.
        place = posixpath.normpath(f"/{start.strip('/')}")
        while place != "/":
            around.setdefault(tops + place)
            place = posixpath.dirname(place)
    around.setdefault(tops)
    return list(around)


def _identity(path: str) -> Hashable:
    """What a folder is, however its path is spelt: on local disks whatever links lead to it."""
    if is_local(path):
        try:
            status = os.stat(path or "/")
            return status.st_dev, status.st_ino
        except OSError:
            return os.path.realpath(path or "/")
    parsed = urlparse(path)
    name = re.sub("/+", "/", posixpath.normpath(f"/{parsed.path}")).rstrip("/")
    return f"{parsed.scheme}://{parsed.netloc}".lower() + name


def _is_seen(name: str) -> bool:
    """Whether Spark's readers look at what is named so."""
    return not name.startswith(("_", "."))
