"""Constants: what is computed of them before any row comes, and their places in their type's order.

Only what is plainly the same in every engine is computed: arithmetic that is exact in the type that
comes out, IEEE arithmetic of doubles, and functions of ASCII texts. All else stays as written.

A constant's *place* is a rational number, ordered as Spark orders the values of the type. Texts are
read as fractions digit by digit, so that bounds on them go to the solver as numbers do.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction

from headrace.plan.expressions import LiteralValue
from headrace.plan.types import STRING, DataType

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_DAY_ZERO = datetime.date(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
#: Whole numbers up to here are doubles too.
_EXACT_DOUBLES = 1 << 53
#: Beyond every number, infinity too; NaN is greater than that.
_INFINITY = Fraction(2) ** 1100
#: More digits than characters in Unicode: the end of a text comes before all of them.
_CHARACTERS = 0x110002
_LONGEST_TEXT = 24


def instant(value: LiteralValue) -> int | None:
    """A date in days, a timestamp in microseconds: times have a next one, as whole numbers do.

    >>> instant(datetime.date(1970, 1, 3))
    2
    """
    if isinstance(value, datetime.datetime):
        # Without a zone it is the session's that says which instant it is.
        return (value - _EPOCH) // _MICROSECOND if value.tzinfo is not None else None
    if isinstance(value, datetime.date):
        return (value - _DAY_ZERO).days
    return None


def exact(value: LiteralValue) -> Fraction | None:
    """The number that a constant is; None for infinities, NaN, and what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    return Fraction(value) if math.isfinite(value) else None


def is_exact_double(value: Fraction) -> bool:
    """Whether whole numbers that are rounded to doubles stand to it as they do themselves."""
    return abs(value) < _EXACT_DOUBLES


def as_double(value: LiteralValue) -> float | None:
    """A constant beside a double, as Spark casts it; 0.0 for -0.0, which compare as equal."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    return float(value) + 0.0


def place(value: LiteralValue) -> Fraction | None:
    """Where a double or a text stands in its order."""
    if isinstance(value, float):
        if math.isnan(value):
            return _INFINITY * 2
        return _INFINITY * (1 if value > 0 else -1) if math.isinf(value) else Fraction(value)
    if isinstance(value, str) and len(value) <= _LONGEST_TEXT:
        total = Fraction(0)
        for number, character in enumerate(value, start=1):
            total += Fraction(ord(character) + 1, _CHARACTERS**number)
        return total
    return None


# --- what is computed beforehand -----------------------------------------------------------------


def computed(
    function: str, kind: DataType, values: Sequence[LiteralValue], kinds: Sequence[DataType]
) -> LiteralValue:
    """What a function gives for these constants; None where that is left to Spark."""
    if any(value is None for value in values):
        return None
    if kind.is_integer and function in _DIVISIONS and all(k.is_integer for k in kinds):
        return _divided(function, kind, values)
    if kind.is_decimal and function in _ARITHMETIC:
        return _of_decimals(function, kind, values, kinds)
    if kind.name == "double" and (function in _ARITHMETIC or function == "/"):
        return _of_doubles(function, values)
    if kind == STRING or function == "length":
        return _of_texts(function, values)
    return None


_ARITHMETIC: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}
_DIVISIONS = frozenset({"div", "%"})
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


def _divided(function: str, kind: DataType, values: Sequence[LiteralValue]) -> int | None:
    """Towards zero; the rest has the sign of what is divided."""
    first, second = values
    if not isinstance(first, int) or not isinstance(second, int) or second == 0:
        return None
    quotient = abs(first) // abs(second) * (1 if (first < 0) == (second < 0) else -1)
    result = quotient if function == "div" else first - quotient * second
    half = 1 << (_BITS[kind.name] - 1)
    return result if -half <= result < half else None


def _of_decimals(
    function: str, kind: DataType, values: Sequence[LiteralValue], kinds: Sequence[DataType]
) -> Decimal | None:
    """Where the type that comes out has room for all digits."""
    if len(values) != 2:
        return None
    first, second = map(exact, values)
    if first is None or second is None or any(k.is_fractional for k in kinds):
        return None
    precision, scale = kind.decimal_parameters
    scaled = _ARITHMETIC[function](first, second) * 10**scale
    if scaled.denominator != 1 or abs(scaled) >= 10**precision:
        return None
    return Decimal(scaled.numerator).scaleb(-scale)


def _of_doubles(function: str, values: Sequence[LiteralValue]) -> float | None:
    if len(values) != 2:
        return None
    first, second = map(as_double, values)
    # A negative zero is lost above, and would show in a quotient or a text.
    if first is None or second is None or 0.0 in (first, second):
        return None
    if not all(isinstance(v, float) or abs(Fraction(v)) < _EXACT_DOUBLES for v in values):  # type: ignore[arg-type]
        return None
    if function == "/":
        result = first / second
    else:
        result = {"+": first + second, "-": first - second, "*": first * second}[function]
    return result if math.isfinite(result) and result != 0.0 else None


def _of_texts(function: str, values: Sequence[LiteralValue]) -> str | int | None:
    texts = [value for value in values if isinstance(value, str) and value.isascii()]
    if len(texts) != len(values) or not texts:
        return None
    if function == "concat":
        return "".join(texts)
    if len(texts) != 1:
        return None
    match function:
        case "upper":
            return texts[0].upper()
        case "lower":
            return texts[0].lower()
        case "length":
            return len(texts[0])
        case _:
            return None
