"""Types of operators and the coercions between types, as Spark's ANSI mode has them.

The plan holds no implicit casts: Spark adds them again when it analyses what the engine runs.
These rules say which type comes out, and refuse what Spark would refuse.
"""

from __future__ import annotations

from headrace.plan.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INTERVAL,
    INTERVAL_MONTHS,
    NULL,
    STRING,
    TIMESTAMP,
    DataType,
    decimal,
)

_INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_NTZ = DataType("timestamp_ntz")


class CoercionError(Exception):
    """The types do not go together; the message says why."""


def is_temporal(kind: DataType) -> bool:
    return kind in (DATE, TIMESTAMP, _NTZ)


def is_atomic(kind: DataType) -> bool:
    """Neither an array, a map nor a struct."""
    return "<" not in kind.name


def as_decimal(kind: DataType, digits: int | None = None) -> tuple[int, int]:
    """Precision and scale of a decimal, or of the decimal that holds an integer type.

    A literal takes part with the digits it has, as in Spark (``price * 2`` stays narrow).
    """
    if kind.is_decimal:
        return kind.decimal_parameters
    return (digits if digits is not None else _INTEGER_DIGITS[kind.name]), 0


def common_type(left: DataType, right: DataType) -> DataType:
    """The type that both sides take in comparisons, CASE, IN, coalesce and UNION ALL."""
    if left == right:
        return left
    if NULL in (left, right):
        return right if left == NULL else left
    if STRING in (left, right):
        return _common_with_string(right if left == STRING else left)
    if left.is_numeric and right.is_numeric:
        return widest_number(left, right)
    if is_temporal(left) and is_temporal(right):
        return TIMESTAMP if TIMESTAMP in (left, right) else _NTZ
    if left.is_interval and right.is_interval and _months(left) == _months(right):
        return left
    if left.name.startswith("array<") and right.name.startswith("array<"):
        return DataType(f"array<{common_type(left.element(), right.element())}>")
    raise CoercionError(f"{left} and {right} do not go together")


def widest_number(left: DataType, right: DataType) -> DataType:
    if left.is_fractional or right.is_fractional:
        # A float holds neither every bigint nor every decimal, so those meet at double.
        narrow = {kind for kind in (left, right) if not kind.is_fractional}
        if DOUBLE in (left, right) or narrow:
            return DOUBLE
        return FLOAT
    if left.is_decimal or right.is_decimal:
        (p1, s1), (p2, s2) = as_decimal(left), as_decimal(right)
        scale = max(s1, s2)
        return decimal(max(p1 - s1, p2 - s2) + scale, scale)
    return left if left.integer_rank >= right.integer_rank else right


def _common_with_string(other: DataType) -> DataType:
    if other.is_integer:
        return BIGINT
    if other.is_numeric:
        return DOUBLE
    if is_atomic(other) and not other.is_interval:
        return other
    raise CoercionError(f"string and {other} do not go together")


def common_type_of(types: tuple[DataType, ...]) -> DataType:
    """The common type of all, from left to right."""
    result = NULL
    for kind in types:
        result = common_type(result, kind)
    return result


def comparison_type(left: DataType, right: DataType) -> DataType:
    """The type at which two values are compared, where they can be."""
    if left.name.startswith("map<") or right.name.startswith("map<"):
        raise CoercionError("maps cannot be compared")
    return common_type(left, right)


def arithmetic_type(
    operator: str,
    left: DataType,
    right: DataType,
    digits: tuple[int | None, int | None] = (None, None),
) -> DataType:
    """The type of ``left operator right`` for + - * / % and div.

    ``digits`` are those of integer literals, which take part in decimal arithmetic with just
    the digits they have.
    """
    temporal = _temporal_arithmetic(operator, left, right)
    if temporal is not None:
        return temporal
    if left == STRING and right == STRING:
        raise CoercionError(f"{operator} of two strings does not say as which numbers")
    if operator == "div":
        return _whole_division(left, right)
    left, right = _as_number(left, right), _as_number(right, left)
    for kind in (left, right):
        if not kind.is_numeric:
            raise CoercionError(f"{operator} needs numbers, not {kind}")
    if left.is_fractional or right.is_fractional:
        return DOUBLE if operator == "/" else widest_number(left, right)
    if left.is_decimal or right.is_decimal:
        return _decimal_arithmetic(
            operator, as_decimal(left, digits[0]), as_decimal(right, digits[1])
        )
    return DOUBLE if operator == "/" else widest_number(left, right)


def _whole_division(left: DataType, right: DataType) -> DataType:
    """``div`` is for whole numbers and decimals; a string is read as a whole number."""
    for kind, other in ((left, right), (right, left)):
        whole = kind.is_integer or kind.is_decimal or (kind == STRING and other.is_integer)
        if not whole and kind != NULL:
            raise CoercionError(f"div needs whole numbers or decimals, not {kind}")
    return BIGINT


def _as_number(kind: DataType, other: DataType) -> DataType:
    """Strings and NULLs take the number type of the other side."""
    if kind == STRING:
        return BIGINT if other.is_integer else DOUBLE
    if kind == NULL:
        return other if other.is_numeric else DOUBLE
    return kind


def _decimal_arithmetic(operator: str, left: tuple[int, int], right: tuple[int, int]) -> DataType:
    """Spark's DecimalType arithmetic, with loss of scale allowed (its default)."""
    (p1, s1), (p2, s2) = left, right
    match operator:
        case "+" | "-":
            scale = max(s1, s2)
            return decimal(max(p1 - s1, p2 - s2) + scale + 1, scale)
        case "*":
            return decimal(p1 + p2 + 1, s1 + s2)
        case "/":
            scale = max(6, s1 + p2 + 1)
            return decimal(p1 - s1 + s2 + scale, scale)
        case _:
            scale = max(s1, s2)
            return decimal(min(p1 - s1, p2 - s2) + scale, scale)


def _temporal_arithmetic(operator: str, left: DataType, right: DataType) -> DataType | None:
    if operator in ("*", "/") and left.is_interval and (right.is_numeric or right == STRING):
        return _whole(left)
    if operator == "*" and right.is_interval and (left.is_numeric or left == STRING):
        return _whole(right)
    if operator not in ("+", "-"):
        return None
    if left.is_interval and right.is_interval:
        if _months(left) != _months(right):
            raise CoercionError("months and days cannot be added")
        return left if left == right else _whole(left)
    if right.is_interval and (is_temporal(left) or left in (STRING, NULL)):
        return _moved(left, right)
    if operator == "+" and left.is_interval and (is_temporal(right) or right in (STRING, NULL)):
        return _moved(right, left)
    if left == DATE and (right.is_integer or right == NULL):
        if right == BIGINT:
            raise CoercionError("a date is moved by whole days of type int, not bigint")
        return DATE
    if operator == "+" and right == DATE and left.is_integer and left != BIGINT:
        return DATE
    if operator == "-" and left == DATE and right == DATE:
        return DataType("interval day")
    if operator == "-" and is_temporal(left) and is_temporal(right):
        return INTERVAL
    if operator == "-" and STRING in (left, right) and (is_temporal(left) or is_temporal(right)):
        return INTERVAL
    return None


def _months(interval: DataType) -> bool:
    return "month" in interval.name or "year" in interval.name


def _whole(interval: DataType) -> DataType:
    return INTERVAL_MONTHS if _months(interval) else INTERVAL


def _moved(time: DataType, interval: DataType) -> DataType:
    if time == DATE:
        whole_days = _months(interval) or interval.name == "interval day"
        return DATE if whole_days else TIMESTAMP
    return TIMESTAMP if time in (STRING, NULL) else time


def can_cast(source: DataType, target: DataType) -> bool:
    """Whether ANSI Spark has a CAST between these types."""
    if source == target or NULL in (source, target) or STRING in (source, target):
        return is_atomic(source) or source == target or target == STRING
    if not is_atomic(source) or not is_atomic(target):
        return source.name.split("<")[0] == target.name.split("<")[0]
    if source.is_numeric:
        return target.is_numeric or target in (BOOLEAN, TIMESTAMP) or target.is_interval
    if source == BOOLEAN:
        return target.is_numeric
    if source == DATE:
        return is_temporal(target)
    if is_temporal(source):
        return is_temporal(target) or (source == TIMESTAMP and target.is_numeric)
    if source.is_interval:
        return (target.is_interval and _months(source) == _months(target)) or target.is_integer
    return source.name == "binary" and target.is_integer
