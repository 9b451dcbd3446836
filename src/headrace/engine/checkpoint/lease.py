"""The lease on a checkpoint: who owns it, how a second owner is refused, and how a dead one goes.

    leases/<term>.lease

Each owner has a term, one more than the one before it, and the greatest term is the owner. A term
begins by *creating* its file, which only one process can do, so two that find the same dead owner
do not both follow it. The owner renews its file as a sign of life; a process that was thought dead
can only renew its own, and finds the next term when it looks.

Time decides nothing but who may try: that a former owner does no harm is the doing of commits,
which are created and never overwritten.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from headrace.engine.checkpoint.files import FileSystem
from headrace.engine.checkpoint.processes import Process, is_alive, this_process
from headrace.errors import CheckpointError
from headrace.state.sealed import sealed, unsealed

#: Signs of life within the time after which an owner without any counts as dead.
_SIGNS = 6
#: The leases of this process, by term and time: one may have been left without a word, where the
#: disk was full, and its process lives.
_OWN: set[tuple[int, float]] = set()


@dataclass(frozen=True)
class Holder:
    """What an owner says of itself. Times are seconds, by its own clock."""

    process: Process
    since: float
    renewed: float
    timeout: float
    released: bool = False

    def to_text(self) -> str:
        return sealed(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Holder:
        body = unsealed(text)
        return cls(**{**body, "process": Process(**body["process"])})

    def __str__(self) -> str:
        since = _moment(self.since)
        if self.process == this_process():
            return f"another engine of this process, since {since}"
        return f"process {self.process.pid} on {self.process.host}, since {since}"


class Lease:
    """One process's claim to a checkpoint; ``term`` is 0 while it has none."""

    def __init__(self, files: FileSystem, root: str, timeout_ms: int) -> None:
        self._files = files
        self._root = root
        self._folder = f"{root}/leases"
        self._timeout = timeout_ms / 1_000
        self._holder: Holder | None = None
        self._ended = threading.Event()
        self._renewing = threading.Lock()
        self.term = 0

    def acquire(self, after: int) -> None:
        """Become the owner in a term later than this one and all before it, or say who is."""
        while True:
            newest = self._newest()
            if newest:
                self._refuse_if_held(newest)
            now = time.time()
            holder = Holder(this_process(), now, now, self._timeout)
            term = max(newest, after) + 1
            _OWN.add((term, holder.since))
            try:
                if self._files.create(self._file(term), holder.to_text()):
                    self._holder, self.term = holder, term
                    break
            finally:
                if self._holder is None:
                    _OWN.discard((term, holder.since))
        self._ended = threading.Event()
        for former in self._terms():
            if former < term:
                self._files.delete(self._file(former))
        threading.Thread(
            target=self._keep_renewing, args=(self._ended,), name="headrace-lease", daemon=True
        ).start()

    def check(self) -> None:
        """Raise if another process has become the owner."""
        if self._holder is None:
            raise CheckpointError(
                f"{self._root} is not open",
                hint="start the engine again",
                condition="CHECKPOINT_LOST",
            )
        newest = self._newest()
        if newest > self.term:
            raise lost(self._root, self._read(newest))

    def release(self) -> None:
        """Leave, so that the next owner need not wait."""
        self._ended.set()
        with self._renewing:
            holder, self._holder = self._holder, None
            if holder is None:
                return
            _OWN.discard((self.term, holder.since))
            # The term stays on file: the next one must be greater. An owner that cannot say that
            # it leaves is found dead in time.
            with suppress(Exception):
                left = replace(holder, renewed=time.time(), released=True)
                self._files.write(self._file(self.term), left.to_text())

    def _keep_renewing(self, ended: threading.Event) -> None:
        while not ended.wait(self._timeout / _SIGNS):
            # Storage may be out of reach for a while; who commits will be told.
            with suppress(Exception), self._renewing:
                if self._holder is None or self._newest() > self.term:
                    return
                self._holder = replace(self._holder, renewed=time.time())
                self._files.write(self._file(self.term), self._holder.to_text())

    def _refuse_if_held(self, term: int) -> None:
        holder = self._read(term)
        if holder is not None and holder.released:
            return
        alive = None if holder is None else _is_held(term, holder)
        if alive is False:
            return
        timeout = self._timeout if holder is None else holder.timeout
        if alive is None and self._is_silent(term, holder, timeout):
            return
        raise CheckpointError(
            f"{self._root} is in use by {holder or 'a process that left no name'}",
            hint="stop that one first"
            if alive
            else "stop that one first; if it is dead, start again when it has shown no sign of "
            f"life for {timeout:g} s",
            condition="CHECKPOINT_IN_USE",
        )

    def _is_silent(self, term: int, holder: Holder | None, timeout: float) -> bool:
        """Whether an owner elsewhere has ended: no sign of life for its time, and none follows.

        Clocks of machines differ, so that a time long past is not believed alone, and one that is
        still to come says nothing.
        """
        silence = None if holder is None else time.time() - holder.renewed
        if silence is not None and 0 <= silence < timeout:
            return False
        patience = timeout if silence is None or silence < 0 else 2 * timeout / _SIGNS
        until = time.monotonic() + patience
        while time.monotonic() < until:
            time.sleep(min(patience / 4, 1.0))
            if self._newest() != term or self._read(term) != holder:
                return False
        return True

    def _read(self, term: int) -> Holder | None:
        """The owner of a term; None where its file is gone or damaged."""
        try:
            return Holder.from_text(self._files.read(self._file(term)))
        except Exception:
            return None

    def _terms(self) -> list[int]:
        return numbered(self._files.names(self._folder), ".lease")

    def _newest(self) -> int:
        return max(self._terms(), default=0)

    def _file(self, term: int) -> str:
        return f"{self._folder}/{term:010d}.lease"


def _is_held(term: int, holder: Holder) -> bool | None:
    """Whether an owner goes on; None where that cannot be known from here."""
    if holder.process == this_process():
        return (term, holder.since) in _OWN
    return is_alive(holder.process)


def numbered(names: list[str], suffix: str) -> list[int]:
    """The numbers of files that are named by one, in order."""
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def lost(root: str, holder: Holder | None) -> CheckpointError:
    """This process owned the checkpoint and does no longer."""
    return CheckpointError(
        f"{root} was taken over by {holder or 'another process'}",
        hint="nothing that this one did since counts; see that only one of them is started",
        condition="CHECKPOINT_LOST",
    )


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
