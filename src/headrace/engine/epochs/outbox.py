"""The outbox: rows that a sink would not take, kept in the checkpoint until it does.

What a query has computed is not lost because the place where it goes is full, slow or away. The
rows of such an epoch are written beside the state and belong to its commit. Between and in later
epochs they are handed over again, oldest first and under their own epoch's number, with growing
pauses; until the sink has taken them, rows of later epochs queue behind them.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.definitions.definition import Definition
from headrace.engine.epochs.running_epoch import RunningEpoch
from headrace.engine.execution.spark_errors import one_line
from headrace.engine.sinks.base import QuerySink
from headrace.errors import CheckpointError, HeadraceError, SinkError
from headrace.failpoints import failpoint
from headrace.operators.output_rows import OutputRows
from headrace.operators.write import Write, Writing
from headrace.state.arrangement import Arrangement, StateFile
from headrace.state.committed import Committed
from headrace.state.store_names import outbox_of_query


def waiting_rows(state: Committed, query: str) -> Arrangement | None:
    """What waits for a query's sink; None where nothing does."""
    outbox = state.arrangements.get(outbox_of_query(query))
    return outbox if outbox is not None and outbox.files else None


def waiting_before(state: Committed, query: str, epoch: int) -> Arrangement | None:
    """What waited for a query's sink before this epoch."""
    outbox = state.arrangements.get(outbox_of_query(query))
    return None if outbox is None else replace(outbox, files=outbox.before(epoch))


def keep(epoch: RunningEpoch, query: str, rows: OutputRows) -> Writing[int]:
    """Put an epoch's rows into the outbox; the number of rows."""
    name = outbox_of_query(query)
    written = yield Write(
        f"outbox of {query}",
        rows.definition.query,
        rows.schema,
        path=epoch.checkpoint.new_path("state", name, f"{epoch.number:010d}"),
        columns=rows.columns,
    )
    if written.rows:
        epoch.state.arrangement(name).append(
            StateFile(file.path, epoch.number, file.rows, file.size, None, None)
            for file in written.files
        )
    else:
        epoch.state.garbage += [(epoch.number, file.path) for file in written.files]
    return written.rows


def deliver(epoch: RunningEpoch, sink: QuerySink) -> Writing[int]:
    """Hand over what waits, epoch by epoch, until the sink refuses; the number of epochs.

    Each epoch that the sink has taken leaves the outbox, also when a later one is refused.
    """
    outbox = epoch.state.arrangement(outbox_of_query(sink.name))
    delivered = 0
    for number in sorted({file.epoch for file in outbox.files}):
        files = outbox.of(number)
        schema = sink.sink.schema
        rows = Definition(epoch.inputs.bind_files(files, schema), schema)
        taken = yield from sink.write(replace(epoch, number=number), OutputRows.of(rows))
        waited = sum(file.rows for file in files)
        if taken != waited:
            raise CheckpointError(
                f"of {waited} rows that waited for query {sink.name!r} in epoch {number}, {taken} "
                f"can be read from {files[0].path}",
                hint="restore the checkpoint as a whole from a copy, or start with a new one",
            )
        failpoint("deliver.after")
        outbox.replace(files, [])
        epoch.state.garbage += [(epoch.number, file.path) for file in files]
        delivered += 1
    return delivered


def refusal(query: str, epoch: int, error: Exception) -> HeadraceError:
    """What a sink's failure is called."""
    if isinstance(error, HeadraceError):
        return error
    refused = SinkError(
        f"the sink of query {query!r} did not take the rows of epoch {epoch}: {one_line(error)}",
        hint="mend the sink; the rows wait in the checkpoint until it takes them",
    )
    refused.__cause__ = error
    return refused


def undelivered(query: str, outbox: Arrangement, last: HeadraceError | None) -> SinkError:
    """That a run has ended while rows were waiting."""
    epochs = sorted({file.epoch for file in outbox.files})
    span = f"epoch {epochs[0]}" if len(epochs) == 1 else f"epochs {epochs[0]} to {epochs[-1]}"
    why = "" if last is None else f": {last.message}"
    refused = SinkError(
        f"{outbox.rows} rows of query {query!r} wait for its sink since {span}{why}",
        hint="mend the sink and start again; they are in the checkpoint, and are delivered first",
    )
    refused.__cause__ = last
    return refused


def too_many(query: str, rows: int, most: int, last: HeadraceError | None) -> SinkError:
    """That a query cannot go on, because its sink takes nothing."""
    why = "" if last is None else f"; the sink said: {last.message}"
    return SinkError(
        f"{rows} rows of query {query!r} wait for its sink, and spark.headrace.sink.outboxRows is "
        f"{most}{why}",
        hint="mend the sink and start again; nothing is lost",
    )
