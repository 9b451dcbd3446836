"""One result for many sinks: queries that put out the same rows have them computed once.

Sinks ask for writes each on its own. Here those that ask for the same rows in the same way are
served by one write; what it wrote is then linked or copied to where the others want it. So a
thousand queries of ten kinds cost ten results in one job, and a thousand file names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from urllib.parse import urlparse

from headrace.engine.files import FileSystem
from headrace.engine.writes import Write, Writer, Written


class FanOut:
    """A writer that writes equal rows once."""

    def __init__(self, writer: Writer, files_of: Callable[[str], FileSystem]) -> None:
        self._writer = writer
        self._files_of = files_of

    def write_all(self, writes: Sequence[Write]) -> list[Written | Exception]:
        leaders: dict[tuple[object, ...], int] = {}
        leader_of = [leaders.setdefault(_sameness(w), i) for i, w in enumerate(writes)]
        asked = sorted(set(leader_of))
        served = dict(zip(asked, self._writer.write_all([writes[i] for i in asked]), strict=True))
        answers: list[Written | Exception] = []
        for index, leader in enumerate(leader_of):
            answer = served[leader]
            if index != leader and isinstance(answer, Written):
                answer = self._copied(answer, writes[leader], writes[index])
            answers.append(answer)
        return answers

    def _copied(self, written: Written, source: Write, target: Write) -> Written | Exception:
        if source.path is None or target.path is None:
            return written
        files = self._files_of(target.path)
        moved = []
        try:
            for file in written.files:
                path = target.path + file.path[len(source.path) :]
                files.copy(file.path, path)
                moved.append(replace(file, path=path))
        except Exception as error:
            return error
        return replace(written, files=tuple(moved))


def _sameness(write: Write) -> tuple[object, ...]:
    """Writes that are alike in this are one: the same definition, to be written the same way."""
    if write.keep is not None or write.inner is not None:
        return (id(write),)
    watched = tuple((name, sql.sql(dialect="spark")) for name, sql in write.watch.items())
    place = None if write.path is None else urlparse(write.path)[:2]
    return id(write.query), place, write.folder, write.only_seen, watched
