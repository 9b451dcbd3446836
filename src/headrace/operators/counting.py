"""Counting a stream's rows inside the pass that appends them to a store.

The watermark needs the greatest time of *all* rows of a batch. A store that reads every row can
tell it for next to nothing; watching the rows on their way costs as much as the pass itself.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from headrace.definitions.definition import Definition, Sql, call, column, keep, millis, select
from headrace.operators.base import Operator
from headrace.operators.epoch import Epoch
from headrace.operators.stateless import SourceRows
from headrace.operators.write import Write, Writing
from headrace.plan.nodes import Source

ROWS_SEEN = "__rows_seen"
NULL_TIMES = "__null_times"
GREATEST = "__greatest"


def counted_stream(source: Operator) -> str | None:
    """The stream of a store that reads a source itself, with no filter in between."""
    return source.node.stream if isinstance(source, SourceRows) else None


def rows_to_count(source: Operator, epoch: Epoch) -> Definition | None:
    """All rows of the source, those without a time included."""
    assert isinstance(source, SourceRows)
    return source.with_null_times(epoch)


def count_rows(epoch: Epoch, source: Source) -> Writing[dict[str, Any]]:
    """Read a stream for nothing but the counts."""
    time = column(source.time)
    missing = exp.Is(this=time.copy(), expression=exp.Null())
    written = yield Write(
        f"times of {source.stream}",
        select(epoch.inputs.bind_batch(epoch.batches[source.stream]), keep([source.time])),
        source.schema.select([source.time]),
        watch={
            "rows": exp.Count(this=exp.Star()),
            "null_times": call("count_if", missing),
            "greatest": call("max", millis(time)),
        },
        only_seen=True,
    )
    return written.seen


def watch_counts(rows: Sql, null_times: Sql, greatest: Sql) -> dict[str, Sql]:
    return {ROWS_SEEN: rows, NULL_TIMES: null_times, GREATEST: greatest}


def note_counts(epoch: Epoch, stream: str, seen: dict[str, Any]) -> None:
    """Take the counts out of what was seen and give them to the epoch."""
    epoch.seen[stream] = {
        "rows": seen.pop(ROWS_SEEN) or 0,
        "null_times": seen.pop(NULL_TIMES) or 0,
        "greatest": seen.pop(GREATEST),
    }
