"""Nowhere: rows are computed and counted, as with Spark's format of the same name.

For measurements, and for queries that are only kept warm.
"""

from __future__ import annotations

from sqlglot import exp

from headrace.engine.epochs.running_epoch import RunningEpoch
from headrace.engine.sinks.base import QuerySink
from headrace.operators.output_rows import OutputRows
from headrace.operators.write import Write, Writing


class NoopSink(QuerySink):
    """Takes the rows, and keeps their number."""

    def write(self, epoch: RunningEpoch, rows: OutputRows) -> Writing[int]:
        written = yield Write(
            self.name,
            rows.definition.query,
            rows.schema,
            columns=rows.columns,
            watch={"rows": exp.Count(this=exp.Star())},
            only_seen=True,
            computes_all=True,
        )
        return int(written.seen["rows"] or 0)
