"""One result for many sinks: queries that put out the same rows have them computed once.

Sinks ask for writes each on its own. Here those that ask for the same rows in the same way are
served by one write; what it wrote is then linked or copied to where the others want it. So a
thousand queries of ten kinds cost ten results in one job, and a thousand file names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from urllib.parse import urlparse

from headrace.engine.checkpoint.files import FileSystem
from headrace.operators.write import Write, Writer, Written


class SharedOutput:
    """A writer that writes equal rows once."""

    def __init__(self, writer: Writer, files_of: Callable[[str], FileSystem]) -> None:
        self._writer = writer
        self._files_of = files_of

    def write_all(self, writes: Sequence[Write]) -> list[Written | Exception]:
        leaders: dict[tuple[object, ...], int] = {}
        leader_of = [leaders.setdefault(_sameness(w), i) for i, w in enumerate(writes)]
        followers: dict[int, list[int]] = {leader: [] for leader in leaders.values()}
        for index, leader in enumerate(leader_of):
            if index != leader:
                followers[leader].append(index)
        answers = self._served(writes, followers)
        again = self._of_broken_places(writes, followers, answers)
        # Its place is whole, so what fails now is what they have in common.
        answers |= self._served(writes, again)
        return [answers[index] for index in range(len(writes))]

    def _served(
        self, writes: Sequence[Write], followers: Mapping[int, list[int]]
    ) -> dict[int, Written | Exception]:
        """Write for leaders, and give those that want the same what was written."""
        asked = list(followers)
        answers: dict[int, Written | Exception] = {}
        if not asked:
            return answers
        for leader, answer in zip(
            asked, self._writer.write_all([writes[i] for i in asked]), strict=True
        ):
            answers[leader] = answer
            for index in followers[leader]:
                if isinstance(answer, Written):
                    answers[index] = self._copied(answer, writes[leader], writes[index])
                else:
                    answers[index] = answer
        return answers

    def _of_broken_places(
        self,
        writes: Sequence[Write],
        followers: Mapping[int, list[int]],
        answers: dict[int, Written | Exception],
    ) -> dict[int, list[int]]:
        """Those whose leader failed, under a leader whose own place can be written to.

        A sink that fails must not take the others with it; one whose place is broken, too, is told
        so here.
        """
        again: dict[int, list[int]] = {}
        for leader, others in followers.items():
            if isinstance(answers[leader], Written) or writes[leader].path is None:
                continue
            whole = []
            for index in others:
                trouble = self._trouble(writes[index])
                if trouble is None:
                    whole.append(index)
                else:
                    answers[index] = trouble
            if whole:
                again[whole[0]] = whole[1:]
        return again

    def _trouble(self, write: Write) -> Exception | None:
        """Why a place cannot be written to, if it cannot."""
        assert write.path is not None
        probe = f"{write.path}/.probe"
        try:
            files = self._files_of(write.path)
            was_there = files.exists(write.path)
            files.make_folder(write.path)
            files.write(probe, "")
            files.delete(probe if was_there else write.path)
        except Exception as error:
            return error
        return None

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
    return id(write.query), place, write.folder, write.only_seen, write.computes_all, watched
