"""Watermarks that stand still while rows come in: who is held back, by which stream, since when.

A stream that is silent holds up every operator over it, and what the others bring piles up as
state. Nothing is wrong with any single epoch then, so somebody has to watch over many of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from headrace.engine.epochs.report import EpochReport
from headrace.state.clocks import Clocks

#: Streams whose least watermark an operator goes by.
Streams = frozenset[str]


@dataclass
class _Stand:
    """Where a watermark stands, since when, and the rows of each stream that came in meanwhile."""

    watermark: int | None
    since: float
    rows: Counter[str] = field(default_factory=Counter)
    #: For how many seconds it had stood when that was last said; 0 is never.
    told: float = 0.0


@dataclass(frozen=True)
class Standstill:
    """A watermark that has stood still for too long."""

    holder: str
    seconds: float
    rows: int
    #: The holder's own watermark, None where it has shown no row.
    watermark: int | None
    #: Whether the rows that came in are the holder's own.
    own_rows: bool
    #: Whether it is time to say so again.
    is_news: bool

    @property
    def text(self) -> str:
        begin = (
            f"its watermark has stood still for {_length(self.seconds)} while {self.rows} rows "
            f"came in: stream {self.holder!r} "
        )
        if self.own_rows:
            return begin + (
                "brings only rows that are older than one it has shown; look for a time far in "
                "the future in it"
            )
        state = "has shown no row yet" if self.watermark is None else "brings nothing newer"
        return begin + f"{state}; if it may be silent, register it with idle='…'"


class Standstills:
    """Watches the watermarks of sets of streams from epoch to epoch."""

    def __init__(self, warn_after: float) -> None:
        self._warn_after = warn_after
        self._stands: dict[Streams, _Stand] = {}

    def watch(
        self,
        now: float,
        report: EpochReport,
        clocks: Clocks,
        queries: Mapping[str, Collection[Streams]],
    ) -> dict[str, Standstill]:
        """Take in an epoch; the queries one of whose watermarks has stood still for too long.

        ``queries`` says by the watermarks of which streams their operators go. A standstill is
        news when it is found, and again whenever it has lasted twice as long.
        """
        standing = self._standing(now, report, clocks, set().union(*queries.values()))
        by_query = {
            name: [standing[streams] for streams in sets if streams in standing]
            for name, sets in (queries.items() if standing else ())
        }
        return {
            name: max(stands, key=lambda stand: stand.seconds)
            for name, stands in by_query.items()
            if stands
        }

    def _standing(
        self, now: float, report: EpochReport, clocks: Clocks, sets: Iterable[Streams]
    ) -> dict[Streams, Standstill]:
        standstills: dict[Streams, Standstill] = {}
        stands: dict[Streams, _Stand] = {}
        for streams in sets:
            watermark = clocks.at(streams)
            stand = self._stands.get(streams)
            if stand is None or stand.watermark != watermark:
                stand = _Stand(watermark, now)
            else:
                stand.rows += Counter({s: report.rows_in.get(s, 0) for s in streams})
            stands[streams] = stand
            seconds = now - stand.since
            holder = _holder(streams - clocks.idle, report.watermarks)
            if not stand.rows or seconds < self._warn_after or holder is None:
                continue
            is_news = seconds >= 2 * stand.told
            if is_news:
                stand.told = seconds
            standstills[streams] = Standstill(
                holder,
                seconds,
                stand.rows.total(),
                report.watermarks.get(holder),
                set(stand.rows) == {holder},
                is_news,
            )
        self._stands = stands
        return standstills


def _holder(counting: Streams, watermarks: Mapping[str, int]) -> str | None:
    """The stream that is furthest behind; one that has shown no row is before all others."""
    return min(
        sorted(counting), key=lambda s: (s in watermarks, watermarks.get(s, 0)), default=None
    )


def _length(seconds: float) -> str:
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
