"""The result table that the engine keeps itself, read with ``hr.results(name)``.

Rows are files of the checkpoint and belong to its commits, so the table is always that of the
last committed epoch. In update mode a group's newest row replaces its older ones.
"""

from __future__ import annotations

from sqlglot import exp

from headrace.definitions.definition import Definition, call, column, keep, named, number, select
from headrace.engine.epochs.compaction import merge_files
from headrace.engine.epochs.running_epoch import RunningEpoch
from headrace.engine.sinks.base import QuerySink
from headrace.errors import SinkError
from headrace.failpoints import failpoint
from headrace.names import storage_name
from headrace.operators.output_rows import OutputRows
from headrace.operators.write import Write, Writing
from headrace.plan.expressions import Column
from headrace.plan.nodes import (
    WINDOW_COLUMN,
    WINDOW_ID_COLUMN,
    Aggregate,
    Filter,
    Node,
    OutputMode,
    Project,
    Sink,
)
from headrace.plan.types import BIGINT, Field, Schema
from headrace.plan.windows import Current, Landmark, Trailing
from headrace.state.arrangement import StateFile
from headrace.state.store_names import results_of_query

EPOCH = "__epoch"


class ResultsSink(QuerySink):
    """Appends each epoch's rows to the result table."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        # Found out now, so that a query whose groups cannot be told apart is refused.
        replaced_by(sink)

    @property
    def writes_files(self) -> bool:
        return True

    def write(self, epoch: RunningEpoch, rows: OutputRows) -> Writing[int]:
        arrangement = epoch.state.arrangement(results_of_query(self.name))
        computed = rows.definition.query
        written = yield Write(
            self.name,
            epoch.derived("stamped", computed, lambda: _stamped(computed, epoch.number)),
            stored_schema(self.sink),
            columns=None if rows.columns is None else (*rows.columns, EPOCH),
            path=epoch.checkpoint.new_path(
                "results", storage_name(self.name), f"{epoch.number:010d}"
            ),
            expected_rows=arrangement.recent_rows,
        )
        failpoint("sink.after")
        arrangement.append(
            StateFile(file.path, epoch.number, file.rows, file.size, None, None)
            for file in written.files
        )
        return written.rows

    def tidy(self, epoch: RunningEpoch, limit: int) -> Writing[None]:
        """Merge the table's small files; replaced rows are left out."""
        return merge_files(
            epoch,
            results_of_query(self.name),
            stored_schema(self.sink),
            lambda rows: Definition(newest(self.sink, rows.query), rows.schema),
            limit,
            area="results",
            folder=storage_name(self.name),
        )


def _stamped(rows: exp.Query, epoch: int) -> exp.Query:
    return select(rows, None).select(named(number(epoch), EPOCH), copy=False)


def stored_schema(sink: Sink) -> Schema:
    return Schema((*sink.schema.fields, Field(EPOCH, BIGINT)))


def newest(sink: Sink, stored: exp.Query) -> exp.Query:
    """The rows of the result table that count."""
    groups = replaced_by(sink)
    if groups is None:
        return stored
    last = exp.Window(
        this=call("max", column(EPOCH)), partition_by=[column(name) for name in groups]
    )
    ranked = select(stored, None).select(named(last, "__newest"), copy=False)
    names = stored_schema(sink).names
    return select(ranked, keep(names), [column(EPOCH).eq(column("__newest"))])


def replaced_by(sink: Sink) -> tuple[str, ...] | None:
    """The columns by which a newer row replaces an older one; None where rows are final."""
    names: dict[str, str] = {name: name for name in sink.schema.names}
    node: Node = sink.input
    while isinstance(node, Project | Filter):
        if isinstance(node, Project):
            below = {c.name: c.expr.name for c in node.columns if isinstance(c.expr, Column)}
            names = {top: below[name] for top, name in names.items() if name in below}
        node = node.input
    if not isinstance(node, Aggregate):
        return None
    window = node.windows[0]
    if isinstance(window, Trailing | Current):
        # Each epoch's evaluation replaces the one before as a whole.
        return ()
    if sink.mode is not OutputMode.UPDATE and not isinstance(window, Landmark):
        return None
    wanted = [key.name for key in node.keys]
    if node.has_window_column:
        wanted.append(WINDOW_COLUMN)
    if len(node.windows) > 1:
        wanted.append(WINDOW_ID_COLUMN)
    tops = {below: top for top, below in names.items()}
    missing = [name for name in wanted if name not in tops]
    if missing:
        raise SinkError(
            f"query {sink.name!r} updates its results, but does not select {', '.join(missing)}",
            hint="select every grouping column, or write in append mode",
        )
    return tuple(tops[name] for name in wanted)
