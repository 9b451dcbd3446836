"""Which window joins commute and associate: Table 2 of the paper, case by case.

A verdict says whether a property holds by itself, is acquired by a transformation rule, or fails.
The corrections of the published table: Case A4 asks for windows that are nested in or disjoint from
each other, and intervals of unequal bounds (A7) associate under propagation of b.ts with the
boundary swap.

Paper: Window Join Reordering, Section 3.1, Section 3.2, Section 3.3, Section 4.1, Section 4.2,
Section 4.3, Table 2, Section 5.4, Section 6.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations

from headrace.errors import PlanError
from headrace.optimizer.joins import boundary_swap, largest_window, time_propagation
from headrace.plan.nodes import IntervalBound, JoinTime, SameSession, SameWindow

#: What the table does not speak of.
_NO_CASE = "none"


class HandedOn(Enum):
    """The time that a join's rows carry into the next join."""

    LEFT = "a.ts"
    RIGHT = "b.ts"
    #: The last instant of the window, as in processing time.
    WINDOW_END = "the end of the window"


class Validity(Enum):
    """Whether a property holds by itself, by a rule, or not."""

    HOLDS = "holds"
    ACQUIRED = "acquired"
    FAILS = "fails"


@dataclass(frozen=True)
class Verdict:
    """A case of Table 2 and what it says; ``rule`` is the one by which a property is acquired."""

    case: str
    outcome: Validity
    reason: str
    rule: str | None = None

    @property
    def valid(self) -> bool:
        return self.outcome is not Validity.FAILS


class Level(Enum):
    """How far the joins of a query can be reordered (Section 5.4)."""

    COMMUTATIVE = "commutative only"
    CONDITIONAL = "conditionally associative"
    FULL = "fully associative"


def commutativity(time: JoinTime) -> Verdict:
    """Whether [A ⋈ B] gives what [B ⋈ A] gives: Cases C1 to C4."""
    match time:
        case SameWindow():
            return Verdict("C1", Validity.HOLDS, "windows follow the clock, not the rows")
        case SameSession():
            return Verdict("C2", Validity.HOLDS, "sessions are made of both inputs together")
        case IntervalBound() if not boundary_swap.is_needed(time):
            return Verdict("C3", Validity.HOLDS, "equal bounds reach as far both ways")
        case IntervalBound():
            return Verdict(
                "C4", Validity.ACQUIRED, "unequal bounds change places", boundary_swap.NAME
            )
        case _:
            raise PlanError(f"no case for {time}")


def associativity(first: JoinTime, second: JoinTime, handed: HandedOn) -> Verdict:
    """Whether [[A ⋈ B]^first ⋈ C]^second gives what [A ⋈ [B ⋈ C]] gives: Cases A1 to A7.

    Windows of two kinds have no case of their own in the table; they are conditionally
    associative (Section 6.2, "Support for Multiple Window Types").
    """
    if isinstance(first, SameSession) or isinstance(second, SameSession):
        return Verdict("A5", Validity.FAILS, "sessions depend on the rows that are joined before")
    if handed is HandedOn.WINDOW_END and not (
        isinstance(first, SameWindow) and isinstance(second, SameWindow)
    ):
        return Verdict(
            _NO_CASE, Validity.FAILS, "an interval join has no window whose end it hands on"
        )
    match first, second:
        case SameWindow(window=one), SameWindow(window=other):
            overlapping = one.overlap > 1 or other.overlap > 1
            if overlapping:
                return _conditional("A1" if one.length == other.length else "A3", handed)
            if one == other:
                return Verdict("A2", Validity.HOLDS, "each row is in one window, the same for all")
            return _nested(first, second, handed)
        case IntervalBound(), IntervalBound():
            swap = boundary_swap.is_needed(first) or boundary_swap.is_needed(second)
            verdict = _conditional("A7" if swap else "A6", handed)
            if swap and verdict.valid:
                return Verdict("A7", Validity.ACQUIRED, verdict.reason, boundary_swap.NAME)
            return verdict
        case _:
            return _conditional(_NO_CASE, handed)


def _conditional(case: str, handed: HandedOn) -> Verdict:
    if handed is HandedOn.RIGHT:
        return Verdict(case, Validity.HOLDS, "both joins see the time of b", time_propagation.NAME)
    if handed is HandedOn.LEFT:
        return Verdict(case, Validity.FAILS, "(b, c) alone would be joined by b.ts, not by a.ts")
    return Verdict(
        case, Validity.FAILS, "overlapping windows hand on ends that lie in different windows"
    )


def _nested(first: SameWindow, second: SameWindow, handed: HandedOn) -> Verdict:
    """Case A4: windows that do not overlap, and differ."""
    windows = first.window, second.window
    if handed is HandedOn.RIGHT:
        return _conditional("A4", handed)
    if handed is HandedOn.WINDOW_END:
        if largest_window.only_window(windows) is None:
            return Verdict("A4", Validity.FAILS, "the ends of the windows are not aligned")
        reason = "all joins take the largest window, and are filtered after"
        return Verdict("A4", Validity.ACQUIRED, reason, largest_window.ONLY)
    if largest_window.nested_or_disjoint(*windows):
        reason = "windows are nested in or disjoint from each other"
        return Verdict("A4", Validity.ACQUIRED, reason, largest_window.FIRST)
    return Verdict("A4", Validity.FAILS, "windows of the two joins cross each other")


def classify(times: Sequence[JoinTime], handed: HandedOn = HandedOn.LEFT) -> Level:
    """The level of a query with these joins (Section 5.4).

    In event time one of the streams' times is handed on, whichever: conditional associativity
    asks for orders that begin with that stream.
    """
    if any(isinstance(time, SameSession) for time in times):
        return Level.COMMUTATIVE
    windows = [time.window for time in times if isinstance(time, SameWindow)]
    only_windows = len(windows) == len(times)
    if handed is HandedOn.WINDOW_END:
        aligned = only_windows and largest_window.only_window(windows) is not None
        return Level.FULL if aligned else Level.COMMUTATIVE
    if only_windows and largest_window.is_nesting(windows):
        return Level.FULL
    return Level.CONDITIONAL


def cases(times: Sequence[JoinTime], handed: HandedOn = HandedOn.LEFT) -> tuple[str, ...]:
    """The cases of the table that the joins of a query are; those of one join say how it commutes.

    Windows beside intervals have no case.

    >>> from headrace.plan.windows import Hopping
    >>> hour, day = (SameWindow(Hopping(n, n)) for n in (3_600_000, 86_400_000))
    >>> cases([hour]), cases([hour, day, day])
    (('C1',), ('A2', 'A4'))
    """
    if len(times) == 1:
        return (commutativity(times[0]).case,)
    pairs = combinations(times, 2)
    among = {associativity(one, other, handed).case for one, other in pairs}
    return tuple(sorted(among - {_NO_CASE}))
