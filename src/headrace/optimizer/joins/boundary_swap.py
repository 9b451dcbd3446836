"""Boundary swap (Section 5.1): an interval join read from the other side.

b within [a - l, a + u] is a within [b - u, b + l]: the bounds change places and signs. Sliding and
session joins read the same from both sides. Without the swap an interval join with unequal bounds
does not commute (Theorem 4); with it, it does.

Paper: Window Join Reordering, Section 3.3, Section 5.1.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.plan.nodes import IntervalBound, JoinTime

NAME = "boundary_swap"


def swapped(time: JoinTime) -> JoinTime:
    """The same condition with its sides exchanged."""
    sides = replace(time, left=time.right, right=time.left)
    if not isinstance(sides, IntervalBound):
        return sides
    lower = None if sides.upper is None else -sides.upper
    upper = None if sides.lower is None else -sides.lower
    return replace(sides, lower=lower, upper=upper)


def is_needed(time: JoinTime) -> bool:
    """Whether exchanging the sides without swapping the bounds would change the meaning."""
    if not isinstance(time, IntervalBound):
        return False
    return (None if time.lower is None else -time.lower) != time.upper
