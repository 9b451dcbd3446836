"""Clocks: how far event time has got, for streams, open sessions, and operators over several.

A stream has a watermark, and so has a session join whose open sessions hold back what lies above
it. An operator over several of them stands at the least of those that count. One that is *idle*
does not count, so the set of those that count changes from epoch to epoch, and the least of them
may go down when one counts again. An operator's watermark never goes back: it is the greatest
least that there was in any epoch,

    W(n, S) = max over epochs m <= n of min over s in S, not idle in m, of w(m, s).

This is a matter of the streams alone: which queries run, and which operators they are made of,
makes no difference to it. Since the watermarks ``w`` never go back either, the last epoch in which
just the same clocks were idle says as much as all of these together: what has to be remembered is
one *reading* for each such set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class ClockReading:
    """The watermarks at the end of an epoch (ms), and which clocks were idle in it."""

    watermarks: Mapping[str, int]
    idle: frozenset[str] = frozenset()

    def least(self, clocks: Collection[str]) -> int | None:
        """The least of those that count; None where none does, or one has no watermark."""
        counting = [self.watermarks.get(clock) for clock in clocks if clock not in self.idle]
        watermarks = [watermark for watermark in counting if watermark is not None]
        return min(watermarks) if watermarks and len(watermarks) == len(counting) else None

    def is_behind(self, later: ClockReading, among: Collection[str]) -> bool:
        """Whether a later reading says at least as much of every set of clocks among these.

        It does if no clock is idle there that counts here, and those that count again have come at
        least as far as any that counts here.
        """
        if any(clock in later.idle and clock not in self.idle for clock in among):
            return False
        counting = [w for c, w in self.watermarks.items() if c in among and c not in self.idle]
        if not counting:
            return True
        again = [c for c in self.idle if c in among and c not in later.idle]
        return all(later.watermarks.get(c, min(counting) - 1) >= max(counting) for c in again)

    def without(self, clocks: Collection[str]) -> ClockReading:
        watermarks = {c: w for c, w in self.watermarks.items() if c not in clocks}
        return ClockReading(watermarks, self.idle.difference(clocks))


@dataclass
class Clocks:
    """The watermarks of now, which clocks are idle, and what else operators may stand at."""

    watermarks: dict[str, int] = field(default_factory=dict)
    idle: frozenset[str] = frozenset()
    past: tuple[ClockReading, ...] = ()
    #: Which of the clocks are those of open sessions, by the names of their stores.
    sessions: frozenset[str] = frozenset()

    def at(self, clocks: Iterable[str]) -> int | None:
        """The watermark of an operator over these clocks; None while it has none."""
        names = list(clocks)
        readings = (ClockReading(self.watermarks, self.idle), *self.past)
        leasts = [least for r in readings if (least := r.least(names)) is not None]
        return max(leasts, default=None)

    def then(
        self,
        watermarks: Mapping[str, int],
        idle: frozenset[str],
        sessions: frozenset[str] = frozenset(),
    ) -> Clocks:
        """The clocks after another epoch."""
        past = self.past
        if idle != self.idle:
            # What an older reading says of the same idle clocks is said by a newer one.
            past = tuple(r for r in past if r.idle not in (idle, self.idle))
            past = (*past, ClockReading(dict(self.watermarks), self.idle))
        return Clocks(dict(watermarks), idle, past, self.sessions | sessions)

    def forget(self, clocks: Collection[str]) -> None:
        """Clocks that are no more; another of the same name begins anew."""
        if not clocks:
            return
        self.watermarks = {c: w for c, w in self.watermarks.items() if c not in clocks}
        self.idle = self.idle.difference(clocks)
        self.sessions = self.sessions.difference(clocks)
        self.past = tuple(reading.without(clocks) for reading in self.past)

    def prune(self, groups: Iterable[Collection[str]]) -> None:
        """Drop the readings that no operator can stand at, if each is over clocks of one group."""
        if not self.past:
            return
        sets = list(groups)
        readings = [*self.past, ClockReading(self.watermarks, self.idle)]
        self.past = tuple(
            reading
            for number, reading in enumerate(self.past)
            if not all(
                any(reading.is_behind(later, among) for later in readings[number + 1 :])
                for among in sets
            )
        )

    def copied(self) -> Clocks:
        return replace(self, watermarks=dict(self.watermarks))

    def to_json(self) -> dict[str, Any]:
        return {
            "watermarks": self.watermarks,
            "idle": sorted(self.idle),
            "sessions": sorted(self.sessions),
            "past_watermarks": [
                {"watermarks": dict(r.watermarks), "idle": sorted(r.idle)} for r in self.past
            ],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Clocks:
        past = tuple(
            ClockReading(r["watermarks"], frozenset(r["idle"]))
            for r in value.get("past_watermarks", ())
        )
        watermarks = value["watermarks"]
        sessions = value.get("sessions")
        if sessions is None:
            # Earlier versions told them from streams by their names.
            sessions = [clock for clock in watermarks if clock.startswith("sessions-")]
        idle = frozenset(value.get("idle", ()))
        return cls(watermarks, idle, past, frozenset(sessions))
