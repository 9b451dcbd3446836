"""Constants of the text: numbers, strings, dates, timestamps and intervals, typed as Spark does."""

from __future__ import annotations

import calendar
import datetime
import decimal as decimal_module
import re
import zoneinfo
from collections.abc import Callable

from sqlglot import exp

from headrace.plan.durations import format_duration
from headrace.plan.expressions import Cast, Expr, Literal
from headrace.plan.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    INTERVAL_MONTHS,
    NULL,
    STRING,
    TIMESTAMP,
    DataType,
    decimal,
)
from headrace.sql.refusals import refuse

_MICROSECONDS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 7 * 86_400_000_000,
}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_TERM = re.compile(r"\s*([+-]?)\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)
_UNITS = {
    "DAY": r"(?P<DAY>\d+) ",
    "HOUR": r"(?P<HOUR>\d+):",
    "MINUTE": r"(?P<MINUTE>\d+):",
    "SECOND": r"(?P<SECOND>\d+(?:\.\d{1,6})?)",
}
_SPANS = {
    f"{first} TO {last}": re.compile(
        r"(?P<sign>[+-]?)" + "".join(list(_UNITS.values())[begin : end + 1]).rstrip(" :")
    )
    for begin, first in enumerate(_UNITS)
    for end, last in enumerate(_UNITS)
    if begin < end
} | {"YEAR TO MONTH": re.compile(r"(?P<sign>[+-]?)(?P<YEAR>\d+)-(?P<MONTH>\d+)")}


def bind_literal(node: exp.Expr) -> Expr | None:
    """A constant, or None where the node is none."""
    match node:
        case exp.Boolean():
            return Literal(bool(node.this), BOOLEAN)
        case exp.Null():
            return Literal(None, NULL)
        case exp.Literal() if node.is_string:
            return Literal(str(node.this), STRING)
        case exp.Literal():
            try:
                return number(str(node.this))
            except ValueError:
                what, advice = f"{node.this!r} is no number", "write for example 5e3"
                refuse("SYNTAX_ERROR", node, near="", reason=what, advice=advice)
        case exp.HexString():
            return hexadecimal(node)
        case exp.RawString():
            return Literal(str(node.this), STRING)
        case exp.Concat() if all(
            isinstance(part, exp.Literal) and part.is_string for part in node.expressions
        ):
            # 'a' 'b' is one string.
            return Literal("".join(str(part.this) for part in node.expressions), STRING)
        case exp.Interval():
            return interval(node)
        case _:
            return None


def hexadecimal(node: exp.HexString) -> Literal:
    """``X'1C7'``; a digit that is missing is a zero before the first, as in Spark."""
    digits = str(node.this)
    try:
        return Literal(bytes.fromhex(digits if len(digits) % 2 == 0 else f"0{digits}"), BINARY)
    except ValueError:
        refuse(
            "SYNTAX_ERROR",
            node,
            near="",
            reason=f"X'{digits}' holds something that is no hexadecimal digit",
            advice="write for example X'1AFF'",
        )


def number(text: str) -> Literal:
    """A number without suffix.

    >>> number("3").type.name, number("3000000000").type.name, number("0.05").type.name
    ('int', 'bigint', 'decimal(2,2)')
    """
    if "e" in text.lower():
        return Literal(float(text), DOUBLE)
    if "." in text:
        value = decimal_module.Decimal(text)
        _, digits, exponent = value.as_tuple()
        scale = -int(exponent)
        return Literal(value, decimal(max(len(digits), scale), scale))
    whole = int(text)
    if whole < 2**31:
        return Literal(whole, INT)
    if whole < 2**63:
        return Literal(whole, BIGINT)
    return Literal(decimal_module.Decimal(text), decimal(len(text), 0))


def typed_constant(literal: Literal, target: DataType) -> Literal | None:
    """``CAST`` of a constant, done now where it is plainly the same: ``5L``, ``DATE '…'``."""
    value = literal.value
    if isinstance(value, int) and not isinstance(value, bool) and target.is_integer:
        bits = 8 << target.integer_rank
        return Literal(value, target) if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else None
    if isinstance(value, int | decimal_module.Decimal) and target == DOUBLE:
        return Literal(float(value), DOUBLE)
    if isinstance(value, str) and target in (DATE, TIMESTAMP):
        try:
            if target == DATE:
                return Literal(datetime.date.fromisoformat(value.strip()), DATE)
            return Literal(datetime.datetime.fromisoformat(value.strip()), TIMESTAMP)
        except ValueError:
            return None
    return None


_TIME = re.compile(
    r"[+-]?(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](?:(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})"
    r"(?:\.\d*)?)?)?)?.*)?)?)?",
    re.DOTALL,
)


def is_time(text: str) -> bool:
    """Whether Spark may read this as a date or a timestamp; the zone is left to Spark.

    >>> is_time("2024-1-31"), is_time("2024-01-31 12:30"), is_time("2024-13-01"), is_time("soon")
    (True, True, False, False)
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return text.strip().lower() == "epoch"
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups())
    last = calendar.monthrange(2000 + year % 400, month or 1)[1] if month <= 12 else 0
    return (month or 1) <= 12 and (day or 1) <= last and hour < 24 and minute < 60 and second < 60


#: The name of a time zone, or who knows it: asking a session takes time, and few queries need it.
Zone = str | Callable[[], str | None] | None


def in_time_zone(literal: Literal, zone: Zone) -> Literal:
    """A timestamp without a zone as the instant that the session's zone makes of it."""
    value = literal.value
    if not isinstance(value, datetime.datetime):
        return literal
    if value.tzinfo is None:
        name = zone() if callable(zone) else zone
        if name is None:
            return literal
        value = value.replace(tzinfo=zoneinfo.ZoneInfo(name))
    return Literal(value.astimezone(datetime.UTC), literal.type)


def interval(node: exp.Interval) -> Literal:
    """An INTERVAL of constants; its text is the shortest exact spelling."""
    amount_node = node.this.this if isinstance(node.this, exp.Neg) else node.this
    if not isinstance(amount_node, exp.Literal):
        refuse(
            "UNSUPPORTED_EXPRESSION",
            node,
            what_it_is="an INTERVAL of something other than a constant",
            advice="multiply instead: n * INTERVAL 1 MINUTE",
        )
    # INTERVAL 5 MINUTES and INTERVAL '5' MINUTES are the same.
    assert amount_node.is_string or amount_node.is_number
    text = str(amount_node.this)
    if isinstance(node.this, exp.Neg):
        text = text.removeprefix("-") if text.startswith("-") else f"-{text}"
    unit = node.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        return _span(node, text, f"{unit.this.name} TO {unit.expression.name}".upper())
    terms = f"{text} {unit.name}" if unit is not None else text
    micros = months = 0
    position = 0
    while position < len(terms):
        term = _TERM.match(terms, position)
        singular = term[3].upper().removesuffix("S") if term else ""
        if term is None or singular not in _MICROSECONDS | _MONTHS:
            refuse(
                "SYNTAX_ERROR",
                node,
                near="",
                reason=f"the interval {terms!r}",
                advice="write for example INTERVAL 10 MINUTES",
            )
        amount = decimal_module.Decimal(term[2]) * (-1 if term[1] == "-" else 1)
        whole = amount * _MICROSECONDS["SECOND"] if singular == "SECOND" else amount
        if whole != int(whole):
            refuse(
                "SYNTAX_ERROR",
                node,
                near="",
                reason=f"{term[2]} {term[3]} is no interval: only seconds have a fraction, down to "
                "microseconds",
                advice="use a smaller unit: INTERVAL 90 MINUTES instead of 1.5 HOURS",
            )
        if singular in _MONTHS:
            months += int(amount * _MONTHS[singular])
        else:
            micros += int(amount * _MICROSECONDS[singular])
        position = term.end()
    if months and micros:
        refuse(
            "UNSUPPORTED_EXPRESSION",
            node,
            what_it_is="an interval of both months and days",
            advice="add two intervals",
        )
    if months:
        return Literal(f"{months} months", INTERVAL_MONTHS)
    return interval_literal(micros)


def _span(node: exp.Interval, text: str, span: str) -> Literal:
    """``INTERVAL '1 02:03:04' DAY TO SECOND`` and its like."""
    match = _SPANS[span].fullmatch(text.strip()) if span in _SPANS else None
    if match is None:
        refuse(
            "SYNTAX_ERROR",
            node,
            near="",
            reason=f"the interval {text!r} is not {span}",
            advice="write for example INTERVAL '1 02:30:00' DAY TO SECOND",
        )
    sign = -1 if match["sign"] == "-" else 1
    amounts = {unit: amount for unit, amount in match.groupdict().items() if unit != "sign"}
    if span == "YEAR TO MONTH":
        months = int(amounts["YEAR"]) * 12 + int(amounts["MONTH"])
        return Literal(f"{sign * months} months", INTERVAL_MONTHS)
    total = sum(decimal_module.Decimal(amounts[unit]) * _MICROSECONDS[unit] for unit in amounts)
    return interval_literal(sign * int(total))


def interval_literal(micros: int) -> Literal:
    """An interval of days to microseconds."""
    if micros % 1_000 == 0:
        return Literal(format_duration(micros // 1_000), INTERVAL)
    return Literal(f"{micros} microseconds", INTERVAL)


def interval_microseconds(literal: Literal) -> int:
    """The length of an interval literal that :func:`interval_literal` made."""
    amount, unit = str(literal.value).split(" ")
    return int(amount) * _MICROSECONDS[unit.upper().removesuffix("S")]


def fold_cast(argument: Expr, target: DataType, safe: bool) -> Expr:
    """A cast, or the constant it makes."""
    if isinstance(argument, Literal):
        constant = typed_constant(argument, target)
        if constant is not None:
            return constant
    return Cast(argument, target, safe)
