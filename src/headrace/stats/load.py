"""The load of a grouping: what an epoch brings to the windows over it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, sqrt

#: How much of the past stays after one epoch.
MEMORY = 0.5
#: A rate, or a number of keys, that is so many times what it was begins a new past.
JUMP = 2.0
#: Rows that met a key again tell how many keys there are; of fewer than this a little only.
TELLING = 20
#: Numbers that differ by less may be the same, one of them estimated by a sketch.
SKETCHED = 0.05


@dataclass(frozen=True)
class Load:
    """Rows of an epoch, the stretch of their own time that they cover, and their keys."""

    rows: float
    milliseconds: float
    keys: float

    def groups(self, length: float) -> float:
        """How many groups a stretch of time has, if keys are equally likely."""
        return different(self.rows * length / self.milliseconds, self.keys)

    def then(self, later: Load) -> Load:
        """The load after one more epoch: the past fades."""
        return Load(
            self.rows * MEMORY + later.rows * (1 - MEMORY),
            self.milliseconds * MEMORY + later.milliseconds * (1 - MEMORY),
            self.keys * MEMORY + later.keys * (1 - MEMORY),
        )

    def followed_by(self, seen: SeenSet) -> Load:
        """The load after one more epoch, for choices that may change at once.

        What lasts is smoothed. A jump is believed from the first epoch to the last one that has
        it, up and down alike: who halves the distance in each epoch learns soon that keys are many,
        and is long in learning that they are few again.
        """
        later = seen.load
        keys = followed_keys(self.keys, seen.rows, seen.groups, later.keys)
        ratio = (later.rows / later.milliseconds) / (self.rows / self.milliseconds)
        if not 1 / JUMP <= ratio <= JUMP:
            return Load(later.rows, later.milliseconds, keys)
        mixed = self.then(later)
        return Load(mixed.rows, mixed.milliseconds, keys)


@dataclass(frozen=True)
class SeenSet:
    """What an epoch saw of an aggregation set.

    ``rows`` were of ``groups``, and took so many values in the columns of ``keys``, by which the
    set is joined. ``load`` is what they tell of an epoch. If the set is of a window that moves, the
    rows entered it in ``entered``, and it begins at ``begins``; None is without a beginning.
    """

    rows: float
    groups: float
    load: Load
    keys: Mapping[str, float]
    entered: TimeSpan | None = None
    begins: float | None = None


@dataclass(frozen=True)
class TimeSpan:
    """A stretch of time ``[first, last)``, in milliseconds."""

    first: float
    last: float


def different(rows: float, keys: float) -> float:
    """How many different ones so many rows have of equally likely keys."""
    return keys * (1 - exp(-rows / keys))


def jumped(before: float, rows: float, seen: float, keys: float) -> bool:
    """Whether what rows tell of the number of keys contradicts what it was."""
    expected = different(rows, before)
    most = max(expected, seen)
    surprising = abs(expected - seen) > max(4 * sqrt(most), SKETCHED * most)
    return surprising and not 1 / JUMP <= keys / before <= JUMP


def followed_keys(before: float, rows: float, seen: float, keys: float) -> float:
    """How many keys there are, after rows of which so many were different.

    ``keys`` are what those rows alone tell. A few rows that all differ tell next to nothing: they
    do not speak against what was known.
    """
    if jumped(before, rows, seen, keys):
        return keys
    met_again = max(0.0, rows - seen)
    weight = (1 - MEMORY) * met_again / (met_again + TELLING)
    return float(before ** (1 - weight) * keys**weight)


def observed_load(rows: float, groups: float, milliseconds: float, pane: float) -> Load | None:
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
