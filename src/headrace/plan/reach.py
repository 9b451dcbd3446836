"""How far before and after a row its partners in a join may lie."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plan.nodes import IntervalBound, JoinTime, SameWindow


@dataclass(frozen=True)
class Reach:
    """Milliseconds before and after a row; None is without bound.

    A negative figure is possible: partners that all lie later than the row.
    """

    before: int | None
    after: int | None

    def swapped(self) -> Reach:
        """The reach from the partner's point of view."""
        return Reach(self.after, self.before)

    def then(self, next_reach: Reach) -> Reach:
        """The reach of a partner's partner."""
        return Reach(_sum(self.before, next_reach.before), _sum(self.after, next_reach.after))

    def narrowed(self, other: Reach) -> Reach:
        """What both allow."""
        return Reach(_least(self.before, other.before), _least(self.after, other.after))

    @property
    def length(self) -> int | None:
        """The stretch of time in which partners lie, or None without bound."""
        return _sum(self.before, self.after)

    def span(self, first: int, last: int) -> tuple[int | None, int | None]:
        """Where partners of rows between two times may lie; a millisecond is added for what
        lies between two milliseconds."""
        begin = None if self.before is None else first - self.before - 1
        end = None if self.after is None else last + self.after + 1
        return begin, end


UNBOUNDED = Reach(None, None)


def reach_of(time: JoinTime | None) -> Reach:
    """From the left row to its partners on the right."""
    match time:
        case IntervalBound(lower=lower, upper=upper):
            return Reach(None if lower is None else -lower, upper)
        case SameWindow(window=window):
            return Reach(window.length - 1, window.length - 1)
        case _:
            return UNBOUNDED


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _least(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)
