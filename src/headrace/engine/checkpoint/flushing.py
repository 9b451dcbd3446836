"""What must outlast a power cut before an epoch is committed.

A commit names files that others wrote: tasks, DuckDB, Spark, this process. On a local disk they may
still be in memory only, so all that is new is flushed first, with the folders that hold it; Spark's
notes of which rows a batch has, too, since the commit holds batches by their numbers. All of it is
asked for at once, because a disk takes hardly longer for many files than for one. New files of the
state are made private to the user on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from headrace.engine.checkpoint.files import FileSystem
from headrace.names import storage_name
from headrace.state.committed import Committed
from headrace.state.publication import Publication


class Flushing:
    """Knows what was flushed before, so that an epoch costs what is new in it."""

    def __init__(self, files_of: Callable[[str], FileSystem], root: str) -> None:
        self._files_of = files_of
        self._files = files_of(root)
        self._root = root
        self._safe: set[str] = set()
        self._batches: dict[str, int] = {}
        self._logs: set[str] = set()
        #: Folders whose own names were flushed.
        self._folders: set[str] = set()

    def begin_with(self, state: Committed) -> None:
        """All that a commit on disk names is safe."""
        self._safe = set(state.files())
        self._batches = dict(state.batches)

    def flush(self, state: Committed) -> None:
        """Make safe all that a commit of this state would name."""
        named = set(state.files())
        new = named - self._safe
        self._files.protect(new)
        wanted: list[tuple[FileSystem, str, str]] = []
        if self._files.flushes:
            paths = chain(new, self._new_logs(state))
            wanted += [(self._files, self._root, path) for path in paths]
        for publication in state.publications:
            files = self._files_of(publication.staged)
            if files.flushes:
                wanted.append((files, publication.sink, publication.staged))
        for files in {id(files): files for files, _, _ in wanted}.values():
            here = [(top, path) for one, top, path in wanted if one is files]
            files.flush([path for _, path in here], self._above(here))
        self._safe, self._batches = named, dict(state.batches)

    def flush_published(self, publications: Sequence[Publication]) -> dict[Publication, Exception]:
        """Make safe the names under which output was published; where that failed, and why.

        A sink's folder may go away at any moment, which is no other sink's trouble.
        """
        try:
            self._flush_names(publications)
        except Exception:
            return self._unflushed(publications)
        return {}

    def _unflushed(self, publications: Iterable[Publication]) -> dict[Publication, Exception]:
        """Flush one after the other, to find those for which it fails."""
        failed: dict[Publication, Exception] = {}
        for publication in publications:
            try:
                self._flush_names([publication])
            except Exception as error:
                failed[publication] = error
        return failed

    def _flush_names(self, publications: Iterable[Publication]) -> None:
        folders: dict[int, tuple[FileSystem, set[str]]] = {}
        for publication in publications:
            files = self._files_of(publication.final)
            if files.flushes and files.exists(publication.final):
                _, names = folders.setdefault(id(files), (files, set()))
                names |= {publication.final, publication.sink}
        for files, names in folders.values():
            files.flush([], names)

    def _above(self, paths: Iterable[tuple[str, str]]) -> set[str]:
        """The folders in which there are new names: of what is new, and of folders that are.

        Each path comes with the folder up to which it matters.
        """
        above: set[str] = set()
        for top, path in paths:
            folder = path.rpartition("/")[0]
            above.add(folder)
            while folder not in self._folders and len(folder) > len(top):
                self._folders.add(folder)
                folder = folder.rpartition("/")[0]
                above.add(folder)
        return above

    def _new_logs(self, state: Committed) -> Iterator[str]:
        """Spark's notes of the batches that this state holds first."""
        for stream, batch in state.batches.items():
            if self._batches.get(stream) == batch:
                continue
            ingest = f"{self._root}/ingest/{storage_name(stream)}"
            notes = [f"{ingest}/metadata", f"{ingest}/offsets/{batch}"]
            for source in self._files.names(f"{ingest}/sources"):
                log = f"{ingest}/sources/{source}"
                notes += [f"{log}/{name}" for name in self._files.names(log)]
            new = [note for note in notes if note not in self._logs and self._files.exists(note)]
            self._logs.update(new)
            yield from new
