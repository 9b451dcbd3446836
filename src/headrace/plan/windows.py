"""Windows: the kinds that queries use, and exact integer arithmetic on them.

A hopping window set ``W(length, slide, offset)`` holds the intervals ``[s, s + length)`` for every
``s`` with ``s ≡ offset (mod slide)``. All figures are milliseconds.

Paper: Factor Windows, Section II-A.
Paper: Early Aggregation, Section 3, Definition 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from headrace.errors import DurationError
from headrace.plan.durations import format_duration


@dataclass(frozen=True)
class Window:
    """Base of the window kinds."""


@dataclass(frozen=True)
class Hopping(Window):
    """Tumbling (slide = length), overlapping (slide < length) or sampling (slide > length)."""

    length: int
    slide: int
    offset: int = 0

    def __post_init__(self) -> None:
        if self.length <= 0:
            raise DurationError(f"a window's length must be positive, not {self.length} ms")
        if self.slide <= 0:
            raise DurationError(f"a window's slide must be positive, not {self.slide} ms")
        # One spelling per window set, so that equal windows compare equal.
        object.__setattr__(self, "offset", self.offset % self.slide)

    @property
    def tumbling(self) -> bool:
        return self.length == self.slide

    @property
    def overlap(self) -> int:
        """The greatest number of windows that hold one instant."""
        return -(-self.length // self.slide)

    @property
    def pane(self) -> int:
        """The longest pane that every window of the set is a union of."""
        return gcd(self.length, self.slide)

    @property
    def name(self) -> str:
        """How results name this window: '20 minutes', '1 hour/10 minutes'."""
        text = format_duration(self.length)
        if not self.tumbling:
            text += f"/{format_duration(self.slide)}"
        if self.offset:
            text += f"+{format_duration(self.offset)}"
        return text

    def last_start(self, time: int) -> int:
        """Start of the latest window that begins at or before this time."""
        return time - (time - self.offset) % self.slide

    def starts(self, time: int) -> range:
        """Starts of all windows that hold this time; empty in the gap of a sampling window."""
        last = self.last_start(time)
        count = max(0, -(-(self.length - (time - last)) // self.slide))
        return range(last - (count - 1) * self.slide, last + 1, self.slide)

    def last_closed_start(self, watermark: int) -> int:
        """Start of the latest window whose end is at or below the watermark."""
        return self.last_start(watermark - self.length)

    def share_one(self, left: int, right: int) -> bool:
        """Whether at least one window holds both times.

        >>> Hopping(10, 5).share_one(4, 11), Hopping(10, 5).share_one(5, 14)
        (False, True)
        """
        return max(left, right) < self.last_start(min(left, right)) + self.length


def grids_of(window: Hopping) -> tuple[Hopping, ...]:
    """The grids in whose cells windows that do not overlap lie one by one: cells begin with the
    windows, or end with them, which is the same where there are no pauses.

    >>> [grid.name for grid in grids_of(Hopping(4_000, 10_000))]
    ['10 seconds', '10 seconds+4 seconds']
    """
    slide, begin = window.slide, window.offset
    return tuple(dict.fromkeys(Hopping(slide, slide, at) for at in (begin, begin + window.length)))


def stays_in_cells(window: Hopping, grid: Hopping) -> bool:
    """Whether each window lies in one cell of a grid.

    >>> stays_in_cells(Hopping(5, 5), Hopping(10, 10)), stays_in_cells(Hopping(5, 5), Hopping(7, 7))
    (True, False)
    """
    border = (grid.offset - window.offset) % window.slide
    return (
        window.overlap == 1
        and grid.slide % window.slide == 0
        and (border == 0 or border >= window.length)
    )


def ends_on(window: Hopping, grid: Hopping) -> bool:
    """Whether each window ends where a cell of a grid does.

    >>> ends_on(Hopping(20, 10), Hopping(10, 10)), ends_on(Hopping(15, 10), Hopping(10, 10))
    (True, False)
    """
    end = window.offset + window.length - grid.offset
    return window.slide % grid.slide == 0 and end % grid.slide == 0


@dataclass(frozen=True)
class Session(Window):
    """A group's rows with no pause longer than the gap.

    A row opens a new session if it lies *more* than the gap after the previous one, as in Spark and
    Flink: rows exactly one gap apart are together. The paper on window join reordering says "at
    least".
    """

    gap: int

    def __post_init__(self) -> None:
        if self.gap <= 0:
            raise DurationError(f"a session's gap must be positive, not {self.gap} ms")

    @property
    def name(self) -> str:
        return f"session {format_duration(self.gap)}"


@dataclass(frozen=True)
class Trailing(Window):
    """``[watermark - length, watermark)``, evaluated again at the end of each epoch."""

    length: int

    def __post_init__(self) -> None:
        if self.length <= 0:
            raise DurationError(
                f"a trailing window's length must be positive, not {self.length} ms"
            )

    @property
    def name(self) -> str:
        return f"trailing {format_duration(self.length)}"

    def begin(self, end: int) -> int:
        """Where the window begins that ends at a watermark."""
        return end - self.length


@dataclass(frozen=True)
class Current(Window):
    """The tumbling window that holds the instant before the watermark, as far as that has come.

    A window of one input of a join, beside others: it grows until the watermark has reached its
    end, and is whole there.
    """

    length: int
    offset: int = 0

    def __post_init__(self) -> None:
        # The same checks, and one spelling.
        object.__setattr__(self, "offset", self._grid.offset)

    @property
    def _grid(self) -> Hopping:
        return Hopping(self.length, self.length, self.offset)

    @property
    def name(self) -> str:
        return self._grid.name

    def begin(self, end: int) -> int:
        """Where the window begins that has come as far as a watermark.

        >>> Current(10).begin(19), Current(10).begin(20), Current(10).begin(21)
        (10, 10, 20)
        """
        return self._grid.last_start(end - 1)


@dataclass(frozen=True)
class Landmark(Window):
    """Everything so far; the groups that changed come out with each epoch."""

    def begin(self, end: int) -> None:
        """It has no beginning."""

    @property
    def name(self) -> str:
        return "landmark"


@dataclass(frozen=True)
class InheritedWindow(Window):
    """The window that the input already carries, as a join or a lower aggregate assigned it."""

    @property
    def name(self) -> str:
        return "given"


#: Windows of one input of a join that end at the watermark of all of them.
InputWindowKind = Trailing | Current | Landmark


def tumbling(length: int, offset: int = 0) -> Hopping:
    return Hopping(length, length, offset)


def common_pane(windows: tuple[Hopping, ...]) -> tuple[int, int]:
    """Length and offset of the longest pane that every window of every set is a union of.

    >>> common_pane((Hopping(20, 20), Hopping(30, 10, 5)))
    (5, 0)
    """
    first = windows[0]
    length = 0
    for window in windows:
        length = gcd(length, window.length, window.slide, abs(window.offset - first.offset))
    return length, first.offset % length
