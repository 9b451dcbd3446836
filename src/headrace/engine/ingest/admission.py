"""Which of the waiting micro-batches make up the next epoch, and which streams are idle in it.

Streams advance together in event time: one that runs ahead waits for the one that is furthest
behind, because what it brings could only pile up as state. Nobody waits long: a stream that is
behind and does not come within the gather timeout is tardy, and one that has not delivered for
the absence timeout is absent; neither is waited for until it has delivered again. Only where state
has reached its bound is a stream that runs ahead paused until the ones behind have moved.

To be idle is something else: it is said of the stream by its user, changes the meaning of results,
and is therefore part of the epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from headrace.settings import Settings

_EARLIEST = float("-inf")


@dataclass
class StreamState:
    """What is known of a stream's progress. Times of the clock are seconds.

    ``idle_after`` is how long the stream may be without rows before it is idle; None is for ever.
    """

    last_delivery: float
    watermark: int | None = None
    idle_after: float | None = None
    advance: int = 0
    tardy: bool = False
    last_rows: float = field(init=False)

    def __post_init__(self) -> None:
        self.last_rows = self.last_delivery

    def delivered(self, now: float, watermark: int | None, rows: int) -> None:
        if watermark is not None and self.watermark is not None:
            self.advance = watermark - self.watermark
        self.watermark = watermark if watermark is not None else self.watermark
        self.last_delivery = now
        self.tardy = False
        if rows:
            self.last_rows = now

    @property
    def position(self) -> float:
        return _EARLIEST if self.watermark is None else self.watermark

    def is_silent(self, now: float) -> bool:
        """Whether it has brought no rows for as long as makes it idle."""
        return self.idle_after is not None and now - self.last_rows >= self.idle_after

    def runs_ahead_of(self, position: float, settings: Settings) -> bool:
        """Whether it is further ahead than streams may be of each other."""
        return self.position > position + max(settings.alignment, self.advance)


def waits_since(arrived: float, free_at: float) -> float:
    """Since when a batch waits for others: while an epoch runs, it waits for nobody.

    An epoch that takes longer than the gather timeout would make tardy whoever delivers next,
    though it was the epoch that kept them.
    """
    return max(arrived, free_at)


def admit(
    streams: Mapping[str, StreamState],
    arrivals: Mapping[str, float],
    now: float,
    settings: Settings,
) -> list[str]:
    """The streams whose waiting batches run now; none while it is worth waiting for another."""
    if not arrivals:
        return []
    absent = [
        stream
        for stream, state in streams.items()
        if stream not in arrivals
        and not state.tardy
        and now - state.last_delivery < settings.absence_timeout / 1_000
    ]
    in_play = [streams[stream] for stream in (*arrivals, *absent) if stream in streams]
    furthest_behind = min((state.position for state in in_play), default=_EARLIEST)
    waited = now - min(arrivals.values())
    for stream in absent:
        state = streams[stream]
        if not state.runs_ahead_of(furthest_behind, settings):
            if waited < settings.gather_timeout / 1_000:
                return []
            state.tardy = True
    behind = min((streams[s].position for s in arrivals if s in streams), default=_EARLIEST)
    return sorted(s for s in arrivals if not streams[s].runs_ahead_of(behind, settings))


def paused(
    streams: Mapping[str, StreamState],
    waiting: Collection[str],
    idle: Collection[str],
    groups: Collection[Collection[str]],
    settings: Settings,
) -> dict[str, str]:
    """The streams that state has no room for, each with the one that it has to wait for.

    ``groups`` are streams whose operators let go of state by the watermark of all of them. A
    stream of such a group that runs ahead of the furthest behind, silent or not, would only add to
    what waits for that one. The furthest behind of all is never paused.
    """
    waits_for: dict[str, str] = {}
    for stream in sorted(waiting):
        others = {s for group in groups if stream in group for s in group}
        counting = sorted(s for s in others if s in streams and s not in idle)
        slowest = min(counting, key=lambda s: streams[s].position, default=stream)
        if streams[stream].runs_ahead_of(streams[slowest].position, settings):
            waits_for[stream] = slowest
    return waits_for
