"""Which windows may be factor windows of the best graph.

Any window that one of those asked for can be computed from is a factor window, so there are as
many as there are lengths. Most cannot be part of a cheapest graph. Take a factor window of such a
graph, of length ``l`` and slide ``s``, its source, and its *users*: what is computed from it. Let
``S`` be the greatest slide that the users allow: the common divisor of their slides and of what
their lengths and their offsets differ by.

- *Slide.* A longer slide makes both the window and its users cheaper, as long as it is no longer
  than ``l``. So ``s`` divides ``S``, and a multiple of it that does so too is longer than ``l``.
- *Length.* Held between its source and its users, the cost is strictly concave in ``l``: there are
  fewer of longer windows, and each takes in more, both linearly. So ``l`` is the least that the
  slide and the source allow, or the greatest that the shortest user allows, ``s`` below its length.

Under PARTITIONED factor windows tumble, ``l = s``, and these are the common panes of all subsets of
the windows. Only a window that pauses between its intervals can be as long as such a pane without
being it; then the pane is divided by each of its primes. The set is closed under both, and so it is
complete.

Under COVERED the sources and users may be factor windows themselves, so lengths depend on lengths.
As long as there are few windows at all, all are candidates. Where there are too many, candidates
are built up: for each class of windows that can have a user in common, what is best to compute from
rows or from one of the windows so far, and again from those, as far as there is room. That set is
not known to be complete, and ``Candidates`` says so.

Factor windows consist of whole units of time, as in the paper; a unit is the common pane of all
windows where that is shorter than the model's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from math import gcd

from headrace.cost.factor_windows import PaperCost
from headrace.optimizer.windows.divisors import divisors, primes
from headrace.plan.coverage import Coverage, is_derived_from
from headrace.plan.windows import Hopping, common_pane

#: With up to this many windows that any can be computed from, all of them are candidates.
MOST_WINDOWS = 200
#: Else candidates are built up until there are this many, and the most promising are taken.
_MOST_BUILT = 200
_MOST_TAKEN = 100
#: Nor are more places than this looked at, of which there are most where windows are many.
_MOST_TRIED = 30_000
#: Classes of windows with a common user, and common panes, of which there may be 2^n.
_MOST_CLASSES = 250


@dataclass(frozen=True)
class Candidates:
    """Factor windows, and whether a best graph needs no others."""

    windows: tuple[Hopping, ...]
    complete: bool


def factor_candidates(
    windows: Iterable[Hopping], coverage: Coverage, costs: PaperCost
) -> Candidates:
    """The factor windows that a best graph may need, as far as there is room for them."""
    windows = sorted(set(windows), key=_size)
    unit = gcd(common_pane(tuple(windows))[0], costs.unit)
    if coverage is Coverage.PARTITIONED:
        return _partitioning(windows, unit)
    grids = _grids(windows, unit)
    # Some of them may have been asked for.
    if sum(grid.count for grid in grids) <= MOST_WINDOWS + len(windows):
        every = _without(windows, (w for grid in grids for w in grid.windows()))
        if len(every) <= MOST_WINDOWS:
            return Candidates(every, True)
    return Candidates(_without(windows, _built_up(windows, unit, costs)), False)


def _without(windows: list[Hopping], candidates: Iterable[Hopping]) -> tuple[Hopping, ...]:
    wanted = set(windows)
    return tuple(window for window in dict.fromkeys(candidates) if window not in wanted)


# Tumbling ones


def _partitioning(windows: list[Hopping], unit: int) -> Candidates:
    """The common panes of all subsets, with those that pauses make necessary."""
    paused = [w for w in windows if w.slide > w.length]
    panes: dict[Hopping, None] = {}
    waiting = [_pane(window) for window in windows]
    while waiting and len(panes) < _MOST_CLASSES:
        pane = waiting.pop(0)
        if pane in panes:
            continue
        if any(w.length == pane.length for w in paused):
            waiting += [
                Hopping(shorter, shorter, pane.offset)
                for prime in primes(pane.length)
                if (shorter := pane.length // prime) % unit == 0
            ]
        waiting += [_pane(pane, other) for other in panes]
        panes[pane] = None
    return Candidates(_without(windows, panes), not waiting)


def _pane(*windows: Hopping) -> Hopping:
    length, offset = common_pane(windows)
    return Hopping(length, length, offset)


# Any windows


@dataclass(frozen=True)
class Grid:
    """The windows of one slide that some windows can be computed from.

    Their offsets and the rests of their lengths are the same by the slide. ``longest`` is the
    length of the longest of these users.
    """

    slide: int
    offset: int
    rest: int
    longest: int

    @property
    def shortest(self) -> int:
        return self.slide + self.rest

    @property
    def count(self) -> int:
        return max(0, (self.longest - self.shortest) // self.slide)

    def windows(self) -> Iterator[Hopping]:
        for length in range(self.shortest, self.longest, self.slide):
            yield Hopping(length, self.slide, self.offset)

    def above(self, length: int) -> int:
        """The shortest length on the grid that is longer than this."""
        if length < self.shortest:
            return self.shortest
        return self.shortest + ((length - self.shortest) // self.slide + 1) * self.slide

    def is_over(self, window: Hopping) -> bool:
        """Whether windows of the grid, or of a shorter slide in it, may be computed from this."""
        return (
            window.slide <= window.length < self.longest
            and self.slide % window.slide == 0
            and (self.offset - window.offset) % window.slide == 0
            and (self.rest - window.length) % window.slide == 0
        )

    def holds(self, window: Hopping) -> bool:
        """Whether windows of the grid may be what this one is computed from."""
        return (
            window.slide % self.slide == 0
            and (window.offset - self.offset) % self.slide == 0
            and (window.length - self.rest) % self.slide == 0
        )


def _grids(windows: list[Hopping], unit: int) -> list[Grid]:
    """All grids of windows that one of these can be computed from."""
    longest: dict[tuple[int, int, int], int] = {}
    for window in windows:
        for slide in divisors(window.slide // unit):
            slide *= unit
            place = slide, window.offset % slide, window.length % slide
            longest[place] = max(longest.get(place, 0), window.length)
    return [Grid(*place, length) for place, length in longest.items()]


def _built_up(windows: list[Hopping], unit: int, costs: PaperCost) -> list[Hopping]:
    """Panes, and what lies best between windows that were asked for, panes, and such windows."""
    panes = _partitioning(windows, unit).windows
    factors: dict[Hopping, None] = dict.fromkeys([*windows, *panes])
    classes = _classes(windows)
    last: set[Hopping | None] = {None, *factors}
    left = _MOST_TRIED
    while last and len(factors) < _MOST_BUILT and left > 0:
        before = frozenset(factors)
        for source, limit, grid in islice(_places(list(factors), last, classes), left):
            left -= 1
            factors.update(dict.fromkeys(_between(source, limit, grid, unit, costs)))
        last = {window for window in factors if window not in before}
    built = _without([*windows, *panes], factors)
    return [*panes, *_most_promising(built, windows, panes, costs)]


def _places(
    windows: list[Hopping], new: set[Hopping | None], classes: list[Grid]
) -> Iterator[tuple[Hopping | None, int, Grid]]:
    """Where a factor window may be: a source, the length of the shortest user, and their class.

    Only where the source or the user is new; None stands for rows.
    """
    for grid in classes:
        users = [w for w in windows if grid.holds(w)]
        limits = {w.length: False for w in users}
        limits.update((w.length, True) for w in users if w in new)
        for source in (None, *(w for w in windows if grid.is_over(w))):
            for limit, is_new in limits.items():
                if (is_new or source in new) and (source is None or source.length < limit):
                    yield source, limit, grid


def _most_promising(
    built: Iterable[Hopping],
    windows: list[Hopping],
    panes: tuple[Hopping, ...],
    costs: PaperCost,
) -> list[Hopping]:
    """Those that save most for the windows asked for, over these and panes, or cost least."""
    there = [*windows, *panes]

    def least(window: Hopping) -> Fraction:
        sources = (s for s in there if is_derived_from(window, s, Coverage.COVERED))
        return min(costs.step(window, s) for s in (None, *sources) if s != window)

    without = {window: least(window) for window in windows}

    def saved(factor: Hopping) -> Fraction:
        users = (w for w in windows if is_derived_from(w, factor, Coverage.COVERED))
        gains = (without[w] - costs.step(w, factor) for w in users)
        return sum((gain for gain in gains if gain > 0), Fraction(0)) - least(factor)

    built = list(built)
    if len(built) <= _MOST_TAKEN:
        return built
    return sorted(built, key=saved, reverse=True)[:_MOST_TAKEN]


def _classes(windows: list[Hopping]) -> list[Grid]:
    """The grids of the greatest slides that subsets of the windows have in common."""
    classes: dict[tuple[int, int, int], int] = {}
    waiting = [(w.slide, w.offset, w.length % w.slide, w.length) for w in windows]
    while waiting and len(classes) < _MOST_CLASSES:
        slide, offset, rest, longest = waiting.pop(0)
        if (slide, offset, rest) in classes:
            longest_before = classes[slide, offset, rest]
            classes[slide, offset, rest] = max(longest_before, longest)
            continue
        for (other, its_offset, its_rest), its_longest in classes.items():
            both = gcd(slide, other, offset - its_offset, rest - its_rest)
            waiting.append((both, offset % both, rest % both, max(longest, its_longest)))
        classes[slide, offset, rest] = longest
    return [Grid(*place, longest) for place, longest in classes.items()]


def _between(
    source: Hopping | None, limit: int, grid: Grid, unit: int, costs: PaperCost
) -> Iterator[Hopping]:
    """The best windows between a source and users of this class, the shortest of this length.

    Of those right below the shortest user, the one of the longest slide is cheapest for all. Of the
    shortest ones, a shorter slide may be cheaper for the window itself.
    """
    least = unit if source is None else source.slide
    above = 0 if source is None else source.length
    period = costs.period
    cheapest: tuple[int, int] | None = None
    highest = False
    for factor in reversed(divisors(grid.slide // least)):
        slide = least * factor
        if not highest and slide <= limit - slide and limit - slide > above:
            yield Hopping(limit - slide, slide, grid.offset)
            highest = True
        length = Grid(slide, grid.offset % slide, grid.rest % slide, limit).above(above)
        if length >= limit:
            continue
        # Its cost, but for a factor that is the same for all.
        takes = length if source is None else source.slide + length - source.length
        cost = (period - length + slide) * takes, slide
        if cheapest is None or cost[0] * cheapest[1] < cheapest[0] * cost[1]:
            yield Hopping(length, slide, grid.offset)
            cheapest = cost


def _size(window: Hopping) -> tuple[int, int, int]:
    return window.length, window.slide, window.offset
