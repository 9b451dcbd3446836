"""Largest window first, and largest window only (Section 5.2).

Two joins with windows that do not overlap, W1 for (a, b) and W2 for (a, c), are fully associative
if every window of the one is nested in, or disjoint from, every window of the other. Then b and c
lie in one window of the larger operator whenever both lie with a in windows of theirs: both hold a,
so they are not disjoint. Joining (b, c) by the larger window first loses nothing, and joining a by
the smaller one afterwards restores what was asked for.

The condition that is printed in the paper (lengths and slides divide each other) is neither
sufficient nor necessary: SW(10,15) and SW(20,30) satisfy it and have windows that cross.

In processing time a join hands on the end of its window instead. Ends must then be aligned, and
*largest window only* computes all joins by the largest window and filters afterwards.

Paper: Window Join Reordering, Section 5.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from headrace.plan.windows import Hopping

FIRST = "largest_window_first"
ONLY = "largest_window_only"


def nested_or_disjoint(one: Hopping, other: Hopping) -> bool:
    """Whether no window of the one crosses a window of the other.

    Starts of the two differ by every number that leaves the remainder of their offsets modulo the
    greatest common divisor of the slides, so it suffices to look for a crossing difference.

    >>> nested_or_disjoint(Hopping(30, 30), Hopping(5, 30))
    True
    >>> nested_or_disjoint(Hopping(10, 15), Hopping(20, 30))
    False
    """
    step = gcd(one.slide, other.slide)
    remainder = (other.offset - one.offset) % step
    # ``other`` begins inside ``one`` and ends after it, or begins before it and ends inside.
    begins_inside = max(0, one.length - other.length), one.length
    ends_inside = -other.length, min(0, one.length - other.length)
    return not any(
        _has_member(low, high, remainder, step) for low, high in (begins_inside, ends_inside)
    )


def _has_member(low: int, high: int, remainder: int, step: int) -> bool:
    """Whether a number strictly between the two leaves this remainder."""
    first = low + 1 + (remainder - (low + 1)) % step
    return first < high


def is_nesting(windows: Iterable[Hopping]) -> bool:
    """Whether windows neither overlap among themselves nor cross each other: Cases A2 and A4."""
    all_windows = list(windows)
    return all(w.overlap == 1 for w in all_windows) and all(
        nested_or_disjoint(one, other)
        for i, one in enumerate(all_windows)
        for other in all_windows[i + 1 :]
    )


def largest(windows: Iterable[Hopping]) -> Hopping:
    """The longest; of equally long ones the one with fewest windows."""
    return max(windows, key=lambda w: (w.length, w.slide, w.offset))


def implied_window(one: Hopping, other: Hopping) -> Hopping | None:
    """A window that holds b and c, if one of the first holds (a, b) and one of the other (a, c)."""
    return largest((one, other)) if is_nesting((one, other)) else None


def only_window(windows: Iterable[Hopping]) -> Hopping | None:
    """The window for all joins of a query in processing time, or None where ends do not align.

    Every join hands on the last instant of its window. That instant must lie in the window of the
    next operator in which the contributing rows lie, so all windows must end where windows of the
    largest do, or within them, and slides must divide each other.
    """
    all_windows = list(windows)
    top = largest(all_windows)
    divide = all(top.slide % w.slide == 0 or w.slide % top.slide == 0 for w in all_windows)
    return top if divide and is_nesting(all_windows) else None


def shared_ends(windows: Iterable[Hopping]) -> Hopping | None:
    """The instants at which a window of each kind ends, as the starts of windows; None if there is
    none, or if they do not come round again with the longest slide.

    >>> shared_ends([Hopping(30, 30), Hopping(10, 10)])
    Hopping(length=30, slide=30, offset=0)
    >>> shared_ends([Hopping(30, 30), Hopping(5, 30)])
    """
    all_windows = list(windows)
    slowest = max(all_windows, key=lambda w: w.slide)
    end = slowest.offset + slowest.length
    for window in all_windows:
        begin = end - window.length - window.offset
        if slowest.slide % window.slide or begin % window.slide:
            return None
    return Hopping(slowest.slide, slowest.slide, end)
