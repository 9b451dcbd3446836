"""Statistics of streams, updated by what each epoch observed.

Everything is a value: ``observe`` gives a new catalog and leaves the old one as it was, so a plan
can be explained with the very figures it was chosen by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.stats.figure import UNKNOWN, Estimated, Exact, Figure, figure_from_json

#: How much of the past stays after one epoch. Rates are a ratio of two sums that both fade, so a
#: short epoch weighs as little as the time it covers.
MEMORY = 0.8

Columns = frozenset[str]
#: The figures of a stream.
_FIGURES = ("rate", "rows", "groups", "greatest_time", "null_times", "late_rows")


@dataclass(frozen=True)
class Observation:
    """What one epoch saw of a stream, or of a subplan's output. Times are milliseconds."""

    rows: int
    least_time: int | None = None
    greatest_time: int | None = None
    null_times: int = 0
    late_rows: int = 0
    groups: int | None = None
    distinct: Mapping[Columns, Figure] = field(default_factory=dict)


@dataclass(frozen=True)
class StreamStatistics:
    """What is known about one stream, or about the rows that come out of one subplan.

    ``rate`` is in rows per second of the rows' own time. ``distinct`` counts the values of a set
    of columns within an epoch, ``groups`` the groups within an epoch.
    """

    rate: Figure = UNKNOWN
    rows: Figure = UNKNOWN
    groups: Figure = UNKNOWN
    greatest_time: Figure = UNKNOWN
    null_times: Figure = UNKNOWN
    late_rows: Figure = UNKNOWN
    distinct: Mapping[Columns, Figure] = field(default_factory=dict)
    # The fading sums behind ``rate``.
    recent_rows: float = 0.0
    recent_seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """All but the values of sets of columns, which epochs count again."""
        return {
            **{name: getattr(self, name).to_json() for name in _FIGURES},
            "recent_rows": self.recent_rows,
            "recent_seconds": self.recent_seconds,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamStatistics:
        rate, rows, groups, *others = (figure_from_json(value[name]) for name in _FIGURES)
        greatest_time, null_times, late_rows = others
        return cls(
            rate,
            rows,
            groups,
            greatest_time,
            null_times,
            late_rows,
            recent_rows=value["recent_rows"],
            recent_seconds=value["recent_seconds"],
        )

    def distinct_of(self, columns: Iterable[str]) -> Figure:
        """How many different values these columns take together."""
        return self.distinct.get(frozenset(columns), UNKNOWN)

    def observe(self, seen: Observation) -> StreamStatistics:
        """The statistics after one more epoch."""
        first = not self.rows.known
        seconds = self._seconds_covered(seen)
        recent_rows, recent_seconds = self.recent_rows, self.recent_seconds
        # An epoch whose time does not advance (all its rows are late) has no rate of its own.
        if seconds > 0:
            recent_rows = recent_rows * MEMORY + seen.rows
            recent_seconds = recent_seconds * MEMORY + seconds
        elif seen.rows:
            recent_rows += seen.rows
        return replace(
            self,
            rate=Estimated(recent_rows / recent_seconds) if recent_seconds > 0 else UNKNOWN,
            rows=_counted(self.rows, seen.rows, first),
            null_times=_counted(self.null_times, seen.null_times, first),
            late_rows=_counted(self.late_rows, seen.late_rows, first),
            groups=self.groups if seen.groups is None else _faded(self.groups, Exact(seen.groups)),
            greatest_time=_latest(self.greatest_time, seen.greatest_time),
            distinct={
                **self.distinct,
                **{c: _faded(self.distinct_of(c), figure) for c, figure in seen.distinct.items()},
            },
            recent_rows=recent_rows,
            recent_seconds=recent_seconds,
        )

    def _seconds_covered(self, seen: Observation) -> float:
        if seen.greatest_time is None:
            return 0.0
        begin = self.greatest_time.number
        if begin is None:
            begin = float(seen.greatest_time if seen.least_time is None else seen.least_time)
        return max(0.0, (seen.greatest_time - begin) / 1_000)


def _counted(before: Figure, more: int, first: bool) -> Figure:
    return Exact(more) if first else before + more


def _latest(before: Figure, seen: int | None) -> Figure:
    if seen is None:
        return before
    return before.greatest(seen) if before.known else Exact(seen)


def _faded(before: Figure, seen: Figure) -> Figure:
    """Numbers of keys do not add up over epochs: a high one is remembered and slowly forgotten."""
    if before.number is None or seen.number is None:
        return seen if before.number is None else before
    return Estimated(max(seen.number, before.number * MEMORY + seen.number * (1 - MEMORY)))


NOTHING_KNOWN = StreamStatistics()


@dataclass(frozen=True)
class Statistics:
    """The catalog, by stream name."""

    streams: Mapping[str, StreamStatistics] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {name: statistics.to_json() for name, statistics in self.streams.items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Statistics:
        return cls({name: StreamStatistics.from_json(body) for name, body in value.items()})

    def of_stream(self, name: str) -> StreamStatistics:
        return self.streams.get(name, NOTHING_KNOWN)

    def observe_stream(self, name: str, seen: Observation) -> Statistics:
        """A catalog that also knows what an epoch saw of a stream."""
        return replace(self, streams={**self.streams, name: self.of_stream(name).observe(seen)})


NO_STATISTICS = Statistics()
