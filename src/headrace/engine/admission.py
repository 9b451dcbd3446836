"""Which of the waiting micro-batches make up the next epoch.

Streams advance together in event time: one that runs ahead waits for the one that is furthest
behind, because what it brings could only pile up as state. Nobody waits long: a stream that is
behind and does not come within the gather timeout is tardy, and one that has not delivered for
the idle timeout is idle; neither is waited for until it has delivered again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.settings import Settings

_EARLIEST = float("-inf")


@dataclass
class StreamState:
    """What is known of a stream's progress. Times of the clock are seconds."""

    last_delivery: float
    watermark: int | None = None
    advance: int = 0
    tardy: bool = False

    def delivered(self, now: float, watermark: int | None) -> None:
        if watermark is not None and self.watermark is not None:
            self.advance = watermark - self.watermark
        self.watermark = watermark if watermark is not None else self.watermark
        self.last_delivery = now
        self.tardy = False

    @property
    def position(self) -> float:
        return _EARLIEST if self.watermark is None else self.watermark


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
        and now - state.last_delivery < settings.idle_timeout / 1_000
    ]
    in_play = [streams[stream] for stream in (*arrivals, *absent) if stream in streams]
    furthest_behind = min((state.position for state in in_play), default=_EARLIEST)
    waited = now - min(arrivals.values())
    for stream in absent:
        state = streams[stream]
        if state.position <= furthest_behind + max(settings.alignment, state.advance):
            if waited < settings.gather_timeout / 1_000:
                return []
            state.tardy = True
    admitted = []
    behind = min((streams[s].position for s in arrivals if s in streams), default=_EARLIEST)
    for stream in arrivals:
        state = streams[stream]
        if state.position <= behind + max(settings.alignment, state.advance):
            admitted.append(stream)
    return sorted(admitted)
