"""One result for many sinks: queries that put out the same rows have them computed once.

Sinks ask for writes each on its own. Here those that ask for the same rows in the same way are
served by one write, whatever they call the columns and in whichever order they want them. What it
wrote is then linked or copied to where others want the very same, and renamed for those that call
it otherwise. So thousands of queries of fifty kinds cost fifty results in one job, and thousands of
file names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol
from urllib.parse import urlparse

from headrace.engine.checkpoint.files import FileSystem, is_local
from headrace.engine.epochs.renamed_files import can_rename, rename_files
from headrace.operators.inputs import Inputs
from headrace.operators.output_rows import relabelled
from headrace.operators.write import Write, Writer, Written
from headrace.state.arrangement import StateFile

#: The columns of a definition that a write takes, and what it calls them.
Labels = tuple[tuple[str, ...], tuple[str, ...]]


class KnowsFew(Protocol):
    """Who says how many rows may come to the driver."""

    def is_few(self, rows: int | None, /) -> bool: ...


class SharedOutput:
    """A writer that writes equal rows once."""

    def __init__(
        self,
        writer: Writer,
        files_of: Callable[[str], FileSystem],
        inputs: Inputs,
        bounds: KnowsFew,
    ) -> None:
        self._writer = writer
        self._files_of = files_of
        self._inputs = inputs
        self._bounds = bounds

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
        unserved = list(followers)
        answers: dict[int, Written | Exception] = {}
        if not unserved:
            return answers
        for leader, answer in zip(
            unserved, self._writer.write_all([writes[i] for i in unserved]), strict=True
        ):
            answers[leader] = answer
            if isinstance(answer, Written):
                answers |= self._handed_on(writes, leader, answer, followers[leader])
            else:
                answers |= dict.fromkeys(followers[leader], answer)
        return answers

    def _handed_on(
        self, writes: Sequence[Write], leader: int, written: Written, others: Iterable[int]
    ) -> dict[int, Written | Exception]:
        """What a leader has written, for all others that want its rows."""
        answers: dict[int, Written | Exception] = {}
        alike: dict[Labels, list[int]] = {}
        own = _labels(writes[leader])
        for index in others:
            labels = _labels(writes[index])
            if labels == own:
                answers[index] = self._copied(written, writes[leader], writes[index])
            else:
                alike.setdefault(labels, []).append(index)
        while alike:
            firsts = [indices[0] for indices in alike.values()]
            renamed = self._renamed(written, writes[leader], [writes[i] for i in firsts])
            left: dict[Labels, list[int]] = {}
            for (labels, (first, *rest)), answer in zip(alike.items(), renamed, strict=True):
                answers[first] = answer
                if isinstance(answer, Written):
                    for index in rest:
                        answers[index] = self._copied(answer, writes[first], writes[index])
                elif rest:
                    # It may be the place of this one alone that is broken.
                    left[labels] = rest
            alike = left
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

    # The same rows under other names

    def _renamed(
        self, written: Written, source: Write, targets: Sequence[Write]
    ) -> list[Written | Exception]:
        """What was written for one, as others want it who call its columns otherwise.

        Few rows are renamed here; of many the writer makes new files out of those that are there.
        """
        picked = [_picked(source, target) for target in targets]
        if source.path is None:
            return [_with_table(written, *each) for each in zip(picked, targets, strict=True)]
        if (
            self._bounds.is_few(written.rows)
            and is_local(source.path)
            and can_rename(source.schema)
        ):
            return rename_files(written, source, list(zip(picked, targets, strict=True)))
        rows = self._inputs.bind_files(
            [StateFile(f.path, 0, f.rows, f.size, None, None) for f in written.files],
            source.schema,
        )
        again = self._writer.write_all(
            [
                Write(
                    target.label,
                    relabelled(rows, target.schema, columns),
                    target.schema,
                    target.path,
                    target.folder,
                    expected_rows=written.rows,
                )
                for columns, target in zip(picked, targets, strict=True)
            ]
        )
        return [replace(w, seen=written.seen) if isinstance(w, Written) else w for w in again]


def _sameness(write: Write) -> tuple[object, ...]:
    """Writes that are alike in this are one: the same columns of the same definition, to be written
    the same way."""
    if write.keep is not None or write.inner is not None:
        return (id(write),)
    watched = tuple((name, sql.sql(dialect="spark")) for name, sql in write.watch.items())
    place = None if write.path is None else urlparse(write.path)[:2]
    columns = frozenset(_labels(write)[0])
    way = write.folder, write.only_seen, write.computes_all
    return id(write.query), columns, place, way, watched


def _labels(write: Write) -> Labels:
    names = write.schema.names
    return (names if write.columns is None else write.columns), names


def _picked(source: Write, target: Write) -> tuple[str, ...]:
    """The columns of one write that another wants, in its order."""
    columns, names = _labels(source)
    called = dict(zip(columns, names, strict=True))
    return tuple(called[column] for column in _labels(target)[0])


def _with_table(written: Written, columns: tuple[str, ...], target: Write) -> Written:
    if written.table is None:
        return written
    chosen = written.table.select([written.table.column_names.index(name) for name in columns])
    return replace(written, table=chosen.rename_columns(list(target.schema.names)))
