"""The gate: what an owner of a checkpoint changes in storage goes through it, until it is closed.

An epoch that takes too long is abandoned. The thread that works on it may hang, in a function of
the user or in a file system, and may wake up at any moment after; then it must do no harm. So the
gate is closed first: from then on, whoever wants to begin to write, create, move or delete a file
meets ``Abandoned``. What had begun before is waited for before the checkpoint is given to another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from headrace.engine.checkpoint.files import FileSystem


class Abandoned(BaseException):
    """The epoch was abandoned: who works on it shall do nothing more.

    It is no ``Exception``, since that is taken for the fault of a query, a sink or a disk, and the
    epoch goes on without those.
    """


class Gate:
    """Open, then closed for ever; knows what has gone in and not yet come out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: dict[object, str] = {}
        self._closed = False
        self._at_last: list[Callable[[], None]] = []

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def inside(self) -> list[str]:
        """What was begun and has not ended."""
        with self._lock:
            return list(self._inside.values())

    def check(self) -> None:
        if self._closed:
            raise Abandoned

    def close(self) -> None:
        with self._lock:
            self._closed = True

    @contextmanager
    def passing(self, what: str) -> Iterator[None]:
        """Do one thing, unless the gate is closed."""
        me = object()
        with self._lock:
            self.check()
            self._inside[me] = what
        try:
            yield
        finally:
            with self._lock:
                del self._inside[me]
                due = [] if self._inside else self._at_last
                self._at_last = [] if due else self._at_last
            for action in due:
                action()

    def when_empty(self, action: Callable[[], None]) -> None:
        """Act now, or when the last that is inside comes out."""
        with self._lock:
            if self._inside:
                self._at_last.append(action)
                return
        action()


class GatedFiles:
    """A file system all of whose changes go through a gate; anybody may look."""

    def __init__(self, files: FileSystem, gate: Gate) -> None:
        self._files = files
        self._gate = gate

    @property
    def flushes(self) -> bool:
        return self._files.flushes

    def read(self, path: str) -> str:
        return self._files.read(path)

    def write(self, path: str, text: str, lasting: bool = True) -> None:
        with self._gate.passing(f"writing {path}"):
            self._files.write(path, text, lasting)

    def create(self, path: str, text: str) -> bool:
        with self._gate.passing(f"creating {path}"):
            return self._files.create(path, text)

    def names(self, path: str) -> list[str]:
        return self._files.names(path)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def make_folder(self, path: str) -> None:
        with self._gate.passing(f"making {path}"):
            self._files.make_folder(path)

    def delete(self, path: str) -> None:
        with self._gate.passing(f"deleting {path}"):
            self._files.delete(path)

    def move(self, source: str, target: str) -> None:
        with self._gate.passing(f"moving {source}"):
            self._files.move(source, target)

    def copy(self, source: str, target: str) -> None:
        with self._gate.passing(f"copying {source}"):
            self._files.copy(source, target)

    def size(self, path: str) -> int:
        return self._files.size(path)

    def flush(self, paths: Iterable[str], folders: Iterable[str] = ()) -> None:
        self._gate.check()
        self._files.flush(paths, folders)

    def protect(self, paths: Iterable[str]) -> None:
        self._gate.check()
        self._files.protect(paths)
