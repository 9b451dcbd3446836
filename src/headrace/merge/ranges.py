"""Which whole numbers an expression can be: the proof that arithmetic cannot overflow.

Under Spark's ANSI mode an overflow stops the query, otherwise it wraps around. Either way two
sums that are equal on paper are the same only where neither overflows.
"""

from __future__ import annotations

from headrace.plan.types import DataType

Range = tuple[int, int]

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


def range_of_type(kind: DataType) -> Range:
    """The numbers that an integer type holds.

    >>> from headrace.plan.types import TINYINT
    >>> range_of_type(TINYINT)
    (-128, 127)
    """
    half = 1 << (_BITS[kind.name] - 1)
    return -half, half - 1


def fits(values: Range, kind: DataType) -> bool:
    low, high = range_of_type(kind)
    return low <= values[0] and values[1] <= high


def combine(function: str, left: Range, right: Range) -> Range:
    """What ``left function right`` can be, for ``+``, ``-`` and ``*``."""
    if function == "+":
        return left[0] + right[0], left[1] + right[1]
    if function == "-":
        return left[0] - right[1], left[1] - right[0]
    corners = [a * b for a in left for b in right]
    return min(corners), max(corners)
