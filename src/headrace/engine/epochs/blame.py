"""Whose fault it is that a part of an epoch fails: a stream's, the state's, the disk's, a query's.

A query fails only by what it computes. So before one is blamed, everything around it is tried by
itself: whether the checkpoint can be written, whether the rows of its streams can be read, whether
its state can, and whether what it asked for can be computed where it is not to be written. This
costs a few passes over them, and nothing where all goes well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from headrace.definitions.definition import keep, select
from headrace.engine.epochs.running_epoch import RunningEpoch
from headrace.engine.execution.spark_errors import one_line
from headrace.errors import CheckpointError, HeadraceError, QueryError, SinkError, StreamError
from headrace.operators.base import Store
from headrace.operators.write import Write, Writer, Written
from headrace.plan.types import Schema
from headrace.state.arrangement import StateFile


class QueriesFailed(Exception):
    """Some queries cannot take part in this epoch."""

    def __init__(self, errors: dict[str, HeadraceError]) -> None:
        super().__init__(", ".join(errors))
        self.errors = errors


class StreamsBroken(Exception):
    """The new rows of some streams cannot be read."""

    def __init__(self, errors: dict[str, HeadraceError]) -> None:
        super().__init__(", ".join(errors))
        self.errors = errors


def check_streams(epoch: RunningEpoch, streams: Iterable[str]) -> None:
    """Raise if the new rows of some of these streams cannot be read."""
    errors: dict[str, HeadraceError] = {}
    for stream in sorted(set(streams) & epoch.batches.keys()):
        source = epoch.batches[stream].source
        rows = select(epoch.inputs.bind_batch(epoch.batches[stream]), keep(source.schema.names))
        try:
            epoch.executor.read_through(rows)
        except Exception as error:
            errors[stream] = StreamError(
                f"stream {source.shown!r} failed: {one_line(error)}",
                hint="mend the source and start again; it resumes where it was",
                condition="STREAM_FAILED",
            )
    if errors:
        raise StreamsBroken(errors)


def check_state(epoch: RunningEpoch, stores: Iterable[Store]) -> None:
    """Raise if a file of earlier epochs that one of these stores holds cannot be read."""
    for store in stores:
        arrangement = epoch.state.arrangements.get(store.name)
        if arrangement is not None:
            check_files(epoch, arrangement.before(epoch.number), store.schema)


def check_files(epoch: RunningEpoch, files: Sequence[StateFile], schema: Schema) -> None:
    """Raise if one of these files of the checkpoint cannot be read."""
    if not files or _unreadable(epoch, files, schema) is None:
        return
    for file in files:
        error = _unreadable(epoch, [file], schema)
        if error is not None:
            raise CheckpointError(
                f"{file.path} is damaged or gone: {one_line(error)}",
                hint="restore the checkpoint as a whole from a copy, or start with a new one",
            ) from error


class Unwritten:
    """A writer that computes all it is asked for, and writes nothing."""

    def __init__(self, executor: Writer) -> None:
        self._executor = executor

    def write_all(self, writes: Sequence[Write]) -> list[Written | Exception]:
        return self._executor.write_all(
            [
                replace(write, path=None, folder=False, only_seen=True, computes_all=True)
                for write in writes
            ]
        )


def query_failed(name: str, error: Exception) -> HeadraceError:
    """What it is called that a query cannot compute its rows."""
    if isinstance(error, SinkError | QueryError):
        return error
    return QueryError(
        f"query {name!r} failed: {one_line(error)}",
        hint="mend the cause and start it again; the other queries go on, and its rows are kept",
        condition="QUERY_FAILED",
    )


def _unreadable(
    epoch: RunningEpoch, files: Sequence[StateFile], schema: Schema
) -> Exception | None:
    try:
        epoch.executor.read_through(epoch.inputs.bind_files(files, schema))
    except Exception as error:
        return error
    return None
