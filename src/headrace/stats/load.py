"""The load of a grouping: what an epoch brings to the windows over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import NamedTuple

#: How much of the past stays after one epoch.
MEMORY = 0.5
#: A rate, or a number of keys, that is so many times what it was begins a new past.
JUMP = 2.0
#: Rows that met a key again tell how many keys there are; of fewer than this a little only.
TELLING = 20
#: Numbers that differ by less may be the same, one of them estimated by a sketch.
SKETCHED = 0.05
#: For so many epochs it is remembered how many groups panes had that are not made any more.
REMEMBERED = 16


class SeenLength(NamedTuple):
    """The share of an epoch's rows that panes of a length had groups for, when such were made last,
    so many epochs ago."""

    length: float
    share: float
    age: int = 0


@dataclass(frozen=True)
class Load:
    """Rows of an epoch, the stretch of their own time that they cover, and their keys.

    Keys come and go, and few of them may have most of the rows, so their number alone does not tell
    how many groups a stretch of time has. ``seen`` are lengths of which it is known, in order.
    """

    rows: float
    milliseconds: float
    keys: float
    seen: tuple[SeenLength, ...] = ()

    def groups(self, length: float) -> float:
        """How many groups a stretch of time has: if keys are equally likely, put right by what was
        seen of the lengths next to it."""
        alike = self._alike(length)
        if not self.seen:
            return alike
        return min(self.rows * length / self.milliseconds, alike * self._factor(length))

    def stored(self, length: float) -> float:
        """Groups that an epoch appends to panes of a length: one that is shorter than a pane has
        no more of it than its own rows."""
        return min(self.rows, self._alike_stored(length) * self._factor(length))

    def _alike(self, length: float) -> float:
        return different(self.rows * length / self.milliseconds, self.keys)

    def _alike_stored(self, length: float) -> float:
        panes = max(1.0, self.milliseconds / length)
        return panes * self._alike(min(length, self.milliseconds))

    def _factor(self, length: float) -> float:
        """How many times the groups of equally likely keys there are."""
        below = max((one for one in self.seen if one.length <= length), default=None)
        above = min((one for one in self.seen if one.length >= length), default=None)
        nearest = below or above
        if nearest is None:
            return 1.0
        if below is None or above is None or below.length == above.length:
            return self._factor_seen(nearest)
        share = log(length / below.length) / log(above.length / below.length)
        return float(self._factor_seen(below) ** (1 - share) * self._factor_seen(above) ** share)

    def _factor_seen(self, seen: SeenLength) -> float:
        return seen.share * self.rows / self._alike_stored(seen.length)

    def then(self, later: Load) -> Load:
        """The load after one more epoch: the past fades."""
        # What panes of another length tell of keys is another thing.
        same = not later.seen or not self.seen or later._finest == self._finest
        keys = self.keys * MEMORY + later.keys * (1 - MEMORY) if same else later.keys
        return Load(
            self.rows * MEMORY + later.rows * (1 - MEMORY),
            self.milliseconds * MEMORY + later.milliseconds * (1 - MEMORY),
            keys,
            self.recalled(later),
        )

    @property
    def _finest(self) -> float:
        return min(one.length for one in self.seen if not one.age)

    def recalled(self, later: Load) -> tuple[SeenLength, ...]:
        """What is known of lengths after one more epoch, which may have seen others."""
        fresh = {one.length: one for one in later.seen}
        for one in self.seen:
            now = fresh.get(one.length)
            if now is not None:
                share = one.share * MEMORY + now.share * (1 - MEMORY)
                fresh[one.length] = now._replace(share=share)
            elif one.age + 1 < REMEMBERED:
                fresh[one.length] = one._replace(age=one.age + 1)
        return tuple(sorted(fresh.values()))

    def is_unlike(self, later: Load) -> bool:
        """Whether an epoch brought so many more or fewer rows, or groups of the same panes, that
        what was known before it is of another time."""
        if _differ(later.rows / later.milliseconds, self.rows / self.milliseconds):
            return True
        shares = {one.length: one.share for one in self.seen}
        return any(
            one.length in shares
            and _differ(one.share, shares[one.length])
            and _surprises(one.share * later.rows, shares[one.length] * later.rows)
            for one in later.seen
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
    ``skew`` says how unequal its groups are, where rows were grouped.
    """

    rows: float
    groups: float
    load: Load
    keys: Mapping[str, float]
    entered: TimeSpan | None = None
    begins: float | None = None
    skew: float | None = None


@dataclass(frozen=True)
class SetWork:
    """What an epoch did to an aggregation set: of ``rows`` that came within some milliseconds.

    ``grouped`` are the rows that were grouped for it, those of its own that were read again among
    them, and ``stored`` those that were written.
    """

    rows: float
    milliseconds: float
    grouped: float
    stored: float


@dataclass(frozen=True)
class TimeSpan:
    """A stretch of time ``[first, last)``, in milliseconds."""

    first: float
    last: float


def different(rows: float, keys: float) -> float:
    """How many different ones so many rows have of equally likely keys."""
    return keys * (1 - exp(-rows / keys))


def skew_of(squares: float, rows: float, groups: float) -> float:
    """How many times the mean of the rows of groups their root mean square is.

    >>> skew_of(squares=4.0, rows=4.0, groups=4.0), skew_of(squares=100.0, rows=10.0, groups=4.0)
    (1.0, 2.0)
    """
    return max(1.0, sqrt(squares * groups) / rows) if rows > 0 else 1.0


def jumped(before: float, rows: float, seen: float, keys: float) -> bool:
    """Whether what rows tell of the number of keys contradicts what it was."""
    return _surprises(different(rows, before), seen) and _differ(keys, before)


def _differ(one: float, other: float) -> bool:
    return not 1 / JUMP <= one / other <= JUMP


def _surprises(expected: float, seen: float) -> bool:
    """Whether numbers of groups differ by more than chance and sketches do."""
    most = max(expected, seen)
    return abs(expected - seen) > max(4 * sqrt(most), SKETCHED * most)


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


@dataclass(frozen=True)
class SeenPanes:
    """Rows of an epoch that became so many groups in panes of a length, and the milliseconds from
    the first of these to the last."""

    length: int
    rows: float
    groups: float
    milliseconds: float


def load_of_panes(panes: Sequence[SeenPanes]) -> Load | None:
    """The load behind an epoch's rows, each of which is in a pane of each length.

    The shortest panes tell how many keys there are, and the others how far that holds for longer
    stretches of time.
    """
    # Queries that came later may have panes of the same length to themselves.
    by_length = {seen.length: seen for seen in sorted(panes, key=lambda seen: seen.rows)}
    finest, *others = sorted(by_length.values(), key=lambda seen: seen.length)
    load = observed_load(finest.rows, finest.groups, finest.milliseconds, finest.length)
    if load is None:
        return None
    seen = tuple(
        SeenLength(float(one.length), max(one.groups, 1.0) / load.rows) for one in (finest, *others)
    )
    return Load(load.rows, load.milliseconds, load.keys, seen)


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
