"""What a window holds that moves: rows and groups of the stretches of time that lie in it.

A burst stays in a window for as long as the window is long, also when what comes is as it was
before. So the window is remembered as stretches in which the number of keys was about the same.
Groups of different stretches are taken to be different ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.stats.load import different, estimated_keys

#: The oldest stretches of a window without an end are put together above this number.
MOST_STRETCHES = 16


@dataclass(frozen=True)
class Stretch:
    """Rows that came in ``[first, last)``, in milliseconds, and how many keys there were."""

    first: float
    last: float
    rows: float
    keys: float

    @property
    def groups(self) -> float:
        return different(self.rows, self.keys)

    def after(self, begin: float | None) -> Stretch | None:
        """What of it lies after an instant, if rows are spread evenly."""
        if begin is None or begin <= self.first:
            return self
        if begin >= self.last:
            return None
        left = (self.last - begin) / (self.last - self.first)
        return replace(self, first=begin, rows=self.rows * left)

    def and_then(self, later: Stretch) -> Stretch:
        return Stretch(self.first, later.last, self.rows + later.rows, later.keys)


@dataclass(frozen=True)
class MovingWindow:
    """The stretches of a window, oldest first."""

    stretches: tuple[Stretch, ...] = ()

    @property
    def rows(self) -> float:
        return sum(stretch.rows for stretch in self.stretches)

    @property
    def groups(self) -> float:
        return sum(stretch.groups for stretch in self.stretches)

    def moved(self, begin: float | None, came: Stretch, jumped: bool) -> MovingWindow:
        """The window after rows came into it, and everything before ``begin`` left it."""
        *older, last = self.stretches or (None,)
        parts = [*older, last, came] if jumped or last is None else [*older, last.and_then(came)]
        left = (part.after(begin) for part in parts if part is not None)
        held = [part for part in left if part is not None]
        while len(held) > MOST_STRETCHES:
            first, second = held[0], held[1]
            both = first.and_then(second)
            keys = estimated_keys(both.rows, first.groups + second.groups, 1)
            held[:2] = [replace(both, keys=keys)]
        return MovingWindow(tuple(held))

    def to_json(self) -> list[list[float]]:
        return [[part.first, part.last, part.rows, part.keys] for part in self.stretches]

    @classmethod
    def from_json(cls, value: Sequence[Sequence[float]]) -> MovingWindow:
        return cls(tuple(Stretch(*part) for part in value))
