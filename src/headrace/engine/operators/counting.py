"""Counting a stream's rows inside the pass that appends them to a store.

The watermark needs the greatest time of *all* rows of a batch. A store that reads every row can
tell it for next to nothing; watching the rows on their way costs as much as the pass itself.
"""

from __future__ import annotations

from typing import Any

from headrace.engine.epoch import Epoch
from headrace.engine.operators.base import Operator
from headrace.engine.operators.stateless import SourceRows
from headrace.engine.relations import Relation, Sql

ROWS_SEEN = "__rows_seen"
NULL_TIMES = "__null_times"
GREATEST = "__greatest"


def counted_stream(source: Operator) -> str | None:
    """The stream of a store that reads a source itself, with no filter in between."""
    return source.node.stream if isinstance(source, SourceRows) else None


def rows_to_count(source: Operator, epoch: Epoch) -> Relation | None:
    """All rows of the source, those without a time included."""
    assert isinstance(source, SourceRows)
    return source.with_null_times(epoch)


def watch_counts(rows: Sql, null_times: Sql, greatest: Sql) -> dict[str, Sql]:
    return {ROWS_SEEN: rows, NULL_TIMES: null_times, GREATEST: greatest}


def note_counts(epoch: Epoch, stream: str, seen: dict[str, Any]) -> None:
    """Take the counts out of what was seen and give them to the epoch."""
    epoch.seen[stream] = {
        "rows": seen.pop(ROWS_SEEN) or 0,
        "null_times": seen.pop(NULL_TIMES) or 0,
        "greatest": seen.pop(GREATEST),
    }
