"""The family of errors a user of Headrace can meet.

Every error says in one line what is wrong and, where we can know it, what to do instead.
``condition`` is a stable name that programs may test; the text may change.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.redaction import redacted


@dataclass(frozen=True)
class Position:
    """A place in the user's text, counted from one."""

    line: int
    column: int
    file: str | None = None

    def __str__(self) -> str:
        place = f"line {self.line}, column {self.column}"
        return f"{self.file}: {place}" if self.file else place


class HeadraceError(Exception):
    """Base of all errors that Headrace raises on purpose.

    >>> str(HeadraceError("no stream 'bid'", hint="did you mean 'bids'?"))
    "HEADRACE: no stream 'bid' - did you mean 'bids'?"
    """

    condition = "HEADRACE"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        position: Position | None = None,
        condition: str | None = None,
    ) -> None:
        if condition is not None:
            self.condition = condition
        self.message = redacted(message)
        self.hint = None if hint is None else redacted(hint)
        self.position = position
        place = f" ({position})" if position else ""
        advice = f" - {self.hint}" if hint else ""
        super().__init__(f"{self.condition}: {self.message}{place}{advice}")


class PlanError(HeadraceError):
    """A plan that has no meaning, such as a filter on a column that is not there."""

    condition = "INVALID_PLAN"


class DurationError(HeadraceError):
    """A duration that cannot be read, or that is not positive where it must be."""

    condition = "INVALID_DURATION"


class SqlError(HeadraceError):
    """SQL that cannot be a standing query; the position and what to write instead are given."""

    condition = "UNSUPPORTED_SQL"


class StreamError(HeadraceError):
    """A stream, table or view that cannot be registered or read."""

    condition = "INVALID_STREAM"


class QueryError(HeadraceError):
    """A query that cannot be started, or that failed while it ran."""

    condition = "INVALID_QUERY"


class SinkError(HeadraceError):
    """A sink that cannot be opened or written."""

    condition = "SINK_FAILED"


class CheckpointError(HeadraceError):
    """A checkpoint that does not fit, is damaged, or cannot be written."""

    condition = "INVALID_CHECKPOINT"


class SettingError(HeadraceError):
    """A ``spark.headrace.*`` setting with a value that makes no sense."""

    condition = "INVALID_SETTING"
