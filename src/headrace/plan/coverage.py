"""Which windows can be computed from which others.

From "Factor Windows" (Wu, Bernstein, Raizman, Pavlopoulou), Section II. A window set ``W1`` is
*covered by* ``W2`` if each interval of ``W1`` is the union of intervals of ``W2``, the first of
which begins and the last of which ends with it. It is *partitioned by* ``W2`` if these intervals
do not overlap. What merges with itself (MIN, MAX) can be computed from covering windows, what adds
up (COUNT, SUM) only from partitioning ones.

The paper's windows all begin at time zero, and their slide divides their length. Ours have offsets
and any slide, so each theorem has conditions more than in the paper; for the paper's windows they
always hold.

Paper: Factor Windows, Section II-A, Section II-B, Definition 1, Theorem 1, Definition 2, Theorem 3,
Definition 5, Theorem 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from headrace.plan.windows import Hopping


class Coverage(Enum):
    """How one window may be computed from another."""

    #: From windows that may overlap: right for aggregates that do not mind counting a row twice.
    COVERED = "covered by"
    #: From windows that do not overlap: right for every aggregate that has partial states.
    PARTITIONED = "partitioned by"


def intervals(window: Hopping, first: int, last: int) -> Iterator[tuple[int, int]]:
    """The intervals of a window set that begin in ``[first, last)`` (Section II-A).

    >>> list(intervals(Hopping(10, 2), 0, 4))
    [(0, 10), (2, 12)]
    """
    begin = first + (window.offset - first) % window.slide
    for start in range(begin, last, window.slide):
        yield start, start + window.length


def is_covered_by(coarse: Hopping, fine: Hopping) -> bool:
    """Theorem 1: the slide and the difference of the lengths are multiples of the finer slide.

    Beyond the theorem: offsets differ by a multiple of it too, and the finer windows leave no gap.

    >>> is_covered_by(Hopping(10, 2), Hopping(8, 2))
    True
    """
    if coarse.length <= fine.length:
        return coarse == fine
    return (
        coarse.slide % fine.slide == 0
        and (coarse.length - fine.length) % fine.slide == 0
        and (coarse.offset - fine.offset) % fine.slide == 0
        and fine.slide <= fine.length
    )


def is_partitioned_by(coarse: Hopping, fine: Hopping) -> bool:
    """Theorem 4: covered by, and the finer windows tumble.

    >>> is_partitioned_by(Hopping(10, 2), Hopping(8, 2))
    False
    >>> is_partitioned_by(Hopping(10, 2), Hopping(2, 2))
    True
    """
    return is_covered_by(coarse, fine) if fine.tumbling else coarse == fine


def is_sample_of(window: Hopping, whole: Hopping) -> bool:
    """Whether its intervals are some of another's, such as every second one.

    The paper's theorems leave such windows out: neither of the two is the coarser one.

    >>> is_sample_of(Hopping(2, 4), Hopping(2, 2)), is_sample_of(Hopping(2, 3), Hopping(2, 2))
    (True, False)
    """
    return (
        window.length == whole.length
        and window.slide % whole.slide == 0
        and (window.offset - whole.offset) % whole.slide == 0
    )


def is_derived_from(coarse: Hopping, fine: Hopping, coverage: Coverage) -> bool:
    """Whether the coarser window can be computed from the finer one under these semantics."""
    if coverage is Coverage.COVERED:
        return is_covered_by(coarse, fine)
    return is_partitioned_by(coarse, fine)


def covering_multiplier(coarse: Hopping, fine: Hopping) -> int:
    """Theorem 3: how many intervals of the finer window make one of the coarser.

    >>> covering_multiplier(Hopping(10, 2), Hopping(8, 2))
    2
    """
    return 1 + (coarse.length - fine.length) // fine.slide


def covering_set(interval: tuple[int, int], fine: Hopping) -> list[tuple[int, int]]:
    """Definition 2: the intervals of the finer window that lie inside of an interval."""
    begin, end = interval
    return [(u, v) for u, v in intervals(fine, begin, end) if v <= end]
