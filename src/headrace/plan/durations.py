"""Durations as whole milliseconds.

All window arithmetic in Headrace is exact integer arithmetic on milliseconds. A duration that is
not a whole number of milliseconds, or whose length depends on the calendar, is refused.
"""

from __future__ import annotations

import re

from headrace.errors import DurationError

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WEEK = 7 * DAY

_MICROSECONDS = {
    "microsecond": 1,
    "us": 1,
    "millisecond": 1_000,
    "ms": 1_000,
    "second": SECOND * 1_000,
    "sec": SECOND * 1_000,
    "s": SECOND * 1_000,
    "minute": MINUTE * 1_000,
    "min": MINUTE * 1_000,
    "m": MINUTE * 1_000,
    "hour": HOUR * 1_000,
    "h": HOUR * 1_000,
    "day": DAY * 1_000,
    "d": DAY * 1_000,
    "week": WEEK * 1_000,
    "w": WEEK * 1_000,
}
#: Bounds of windows stay times that Spark, DuckDB and Python know, and pauses ones that they wait.
LONGEST = 100_000 * DAY
_CALENDAR = ("month", "year", "quarter")
_TERM = re.compile(r"\s*([+-]?)\s*(\d+(?:\.\d+)?)\s*([a-z]+)")
_NAMES = ((WEEK, "week"), (DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"), (SECOND, "second"))


def parse_duration(text: str) -> int:
    """Read a duration such as '10 minutes' or '1 hour 30 minutes' as milliseconds.

    >>> parse_duration("1 hour 30 minutes")
    5400000
    >>> parse_duration("interval -5 seconds")
    -5000
    """
    rest = text.strip().lower()
    rest = rest.removeprefix("interval ").strip()
    total, position = 0, 0
    if not rest:
        raise DurationError("a duration is empty", hint="write for example '10 minutes'")
    while position < len(rest):
        term = _TERM.match(rest, position)
        if term is None:
            raise DurationError(
                f"cannot read the duration {text!r}", hint="write for example '10 minutes'"
            )
        sign, number, unit = term.groups()
        singular = unit if unit in _MICROSECONDS else unit.removesuffix("s")
        if singular in _CALENDAR:
            raise DurationError(
                f"the duration {text!r} depends on the calendar",
                hint="use days, hours, minutes, seconds or milliseconds",
            )
        if singular not in _MICROSECONDS:
            raise DurationError(
                f"unknown unit {unit!r} in the duration {text!r}",
                hint="use weeks, days, hours, minutes, seconds or milliseconds",
            )
        micros = _exact_product(number, _MICROSECONDS[singular], text)
        total += -micros if sign == "-" else micros
        position = term.end()
    if total % 1_000:
        raise DurationError(
            f"the duration {text!r} is not a whole number of milliseconds",
            hint="windows are exact to the millisecond",
        )
    if abs(total) > LONGEST * 1_000:
        raise DurationError(
            f"the duration {text!r} is too long",
            hint=f"use at most {LONGEST // DAY} days; landmark(…) reaches over everything so far",
        )
    return total // 1_000


def _exact_product(number: str, factor: int, text: str) -> int:
    """number × factor without floating point."""
    whole, _, fraction = number.partition(".")
    scale = int(10 ** len(fraction))
    product = int(whole + fraction) * factor
    if product % scale:
        raise DurationError(
            f"the duration {text!r} is not a whole number of milliseconds",
            hint="windows are exact to the millisecond",
        )
    return product // scale


def positive_duration(text: str, what: str) -> int:
    """Read a duration that must be longer than nothing."""
    milliseconds = parse_duration(text)
    if milliseconds <= 0:
        raise DurationError(f"{what} must be positive, not {text!r}")
    return milliseconds


def format_duration(milliseconds: int) -> str:
    """The shortest exact spelling, the one that names windows in results.

    >>> format_duration(1_200_000), format_duration(3_600_000), format_duration(5_400_000)
    ('20 minutes', '1 hour', '90 minutes')
    """
    if milliseconds == 0:
        return "0 seconds"
    for size, name in _NAMES:
        if milliseconds % size == 0:
            count = milliseconds // size
            return f"{count} {name}" + ("" if abs(count) == 1 else "s")
    return f"{milliseconds} millisecond" + ("" if abs(milliseconds) == 1 else "s")
