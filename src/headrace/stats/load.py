"""The load of a grouping: what an epoch brings to the windows over it."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

#: How much of the past stays after one epoch.
MEMORY = 0.5


@dataclass(frozen=True)
class Load:
    """Rows of an epoch, the stretch of their own time that they cover, and their keys."""

    rows: float
    milliseconds: float
    keys: float

    def groups(self, length: float) -> float:
        """How many groups a stretch of time has, if keys are equally likely."""
        rows = self.rows * length / self.milliseconds
        return self.keys * (1 - exp(-rows / self.keys))

    def then(self, later: Load) -> Load:
        """The load after one more epoch: the past fades."""
        return Load(
            self.rows * MEMORY + later.rows * (1 - MEMORY),
            self.milliseconds * MEMORY + later.milliseconds * (1 - MEMORY),
            self.keys * MEMORY + later.keys * (1 - MEMORY),
        )


def observed_load(rows: int, groups: int, milliseconds: int, pane: int) -> Load | None:
    """The load behind rows of an epoch that became this many groups in panes of a length."""
    if rows <= 0 or groups <= 0:
        return None
    covered = max(milliseconds, pane)
    return Load(rows, covered, estimated_keys(rows, groups, covered / pane))


def estimated_keys(rows: float, groups: float, panes: float) -> float:
    """How many keys there are, if this many rows in this many panes made this many groups.

    >>> round(estimated_keys(10_000, 1_987, 10))
    200
    """
    if groups >= rows:
        # Every row was a group of its own: there may be any number of keys.
        return groups * 100.0
    low, high = groups / panes, groups * 100.0
    for _ in range(60):
        middle = (low + high) / 2
        if panes * middle * (1 - exp(-rows / (panes * middle))) < groups:
            low = middle
        else:
            high = middle
    return high
