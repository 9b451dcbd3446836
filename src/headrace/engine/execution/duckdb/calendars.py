"""Parts of dates and times that mean the same in Spark and in DuckDB.

A timestamp is taken apart by Spark's session time zone. What is here does so in UTC: it stands for
Spark's functions where that is the zone, which ``reads_clocks`` lets the executor find out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from sqlglot import exp

from headrace.engine.execution.duckdb.untranslatable import (
    Untranslatable,
    constant_text,
    where_proven,
)
from headrace.errors import DurationError
from headrace.plan.durations import parse_duration
from headrace.sql.render import type_of

_MICROS_OF_DAY = 86_400_000_000

Arguments = list[str]
Translation = Callable[[Sequence[exp.Expr], Arguments], str]


def _in_utc(node: exp.Expr, text: str) -> str:
    """A date or a timestamp as something without a time zone."""
    kind = type_of(node)
    if kind is not None and kind.name == "timestamp":
        return f"make_timestamp(epoch_us({text}))"
    if kind is not None and kind.name == "date":
        return text
    raise Untranslatable(f"a part of a {kind}")


def _part(form: str) -> Translation:
    return lambda nodes, texts: f"CAST({form.format(_in_utc(nodes[0], texts[0]))} AS INTEGER)"


def _of_timestamps(form: str) -> Translation:
    def translated(nodes: Sequence[exp.Expr], texts: Arguments) -> str:
        kind = type_of(nodes[0])
        if kind is None or kind.name != "timestamp":
            raise Untranslatable(f"a time of day of a {kind}")
        return _part(form)(nodes, texts)

    return translated


#: Spark's units of date_trunc, with DuckDB's names.
_UNITS = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"),
    "quarter": "quarter",
    **dict.fromkeys(("month", "mon", "mm"), "month"),
    "week": "week",
    **dict.fromkeys(("day", "dd"), "day"),
    "hour": "hour",
    "minute": "minute",
    "second": "second",
}


def _date_trunc(nodes: Sequence[exp.Expr], texts: Arguments) -> str:
    unit = _UNITS.get(constant_text(nodes[0], "a unit").lower())
    kind = type_of(nodes[1])
    if unit is None or kind is None or kind.name != "timestamp":
        raise Untranslatable("date_trunc of that unit or type")
    moment = _in_utc(nodes[1], texts[1])
    return f"make_timestamptz(epoch_us(date_trunc('{unit}', {moment})))"


#: The letters of a pattern that both engines write alike, for years of four digits.
_LETTERS = {
    "yyyy": "%Y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
    "SSS": "%g",
}
_PATTERN = re.compile(r"([A-Za-z])\1*|[-/:., _]")


def _date_format(nodes: Sequence[exp.Expr], texts: Arguments) -> str:
    pattern, place, form = constant_text(nodes[1], "a pattern"), 0, ""
    while place < len(pattern):
        letter = _PATTERN.match(pattern, place)
        if letter is None or (letter[0][0].isalpha() and letter[0] not in _LETTERS):
            raise Untranslatable(f"the pattern {pattern!r} of a date")
        form += _LETTERS.get(letter[0], letter[0])
        place = letter.end()
    moment = _in_utc(nodes[0], texts[0])
    shown = f"strftime({moment}, '{form}')"
    return where_proven(f"year({moment}) BETWEEN 1000 AND 9999", shown)


def _days(sign: str) -> Translation:
    def translated(nodes: Sequence[exp.Expr], texts: Arguments) -> str:
        kinds = [type_of(node) for node in nodes]
        if [kind.name if kind is not None else "" for kind in kinds] != ["date", "int"]:
            raise Untranslatable("days added to something else than a date")
        return f"({texts[0]} {sign} {texts[1]})"

    return translated


def _days_between(nodes: Sequence[exp.Expr], texts: Arguments) -> str:
    if any((kind := type_of(node)) is None or kind.name != "date" for node in nodes):
        raise Untranslatable("days between something else than dates")
    return f"CAST({texts[0]} - {texts[1]} AS INTEGER)"


def _last_day(nodes: Sequence[exp.Expr], texts: Arguments) -> str:
    kind = type_of(nodes[0])
    if kind is None or kind.name != "date":
        raise Untranslatable(f"the last day of a {kind}")
    return f"last_day({texts[0]})"


TRANSLATIONS: dict[str, Translation] = {
    "year": _part("year({})"),
    "quarter": _part("quarter({})"),
    "month": _part("month({})"),
    **dict.fromkeys(("day", "dayofmonth"), _part("day({})")),
    "dayofyear": _part("dayofyear({})"),
    "dayofweek": _part("dayofweek({}) + 1"),
    "weekday": _part("isodow({}) - 1"),
    "weekofyear": _part("week({})"),
    "hour": _of_timestamps("hour({})"),
    "minute": _of_timestamps("minute({})"),
    "second": _of_timestamps("second({})"),
    "date_trunc": _date_trunc,
    "date_format": _date_format,
    "date_add": _days("+"),
    "date_sub": _days("-"),
    "datediff": _days_between,
    "date_diff": _days_between,
    "last_day": _last_day,
}
#: What goes by the time zone, where it is asked of a timestamp.
_BY_ZONE = TRANSLATIONS.keys() - {"date_add", "date_sub", "datediff", "date_diff", "last_day"}


def reads_clocks(query: exp.Expr) -> bool:
    """Whether a definition takes a timestamp apart by the session's time zone, or adds days."""
    for node in query.find_all(exp.Anonymous, exp.Cast):
        if isinstance(node, exp.Cast):
            kinds = {kind.name for kind in map(type_of, (node, node.this)) if kind is not None}
            if "timestamp" in kinds and "date" in kinds:
                return True
        elif node.name.lower() in _BY_ZONE and any(
            (kind := type_of(argument)) is not None and kind.name == "timestamp"
            for argument in node.expressions
        ):
            return True
    return any(_has_days(interval) for interval in query.find_all(exp.Interval))


def _has_days(interval: exp.Interval) -> bool:
    """Whether a day is added with an interval: in Spark as many hours as that day has."""
    try:
        return abs(_micros(interval)) >= _MICROS_OF_DAY
    except DurationError:
        return True


def _micros(interval: exp.Interval) -> int:
    return parse_duration(str(interval.this.this)) * 1000


def shifted(node: exp.Add | exp.Sub, text: Callable[[exp.Expr], str]) -> str | None:
    """A timestamp and an interval of days or less; None for other sums."""
    moment, interval = node.this.unnest(), node.expression.unnest()
    sign = "-" if isinstance(node, exp.Sub) else "+"
    if isinstance(moment, exp.Interval) and sign == "+":
        moment, interval = interval, moment
    kind = type_of(moment)
    if not isinstance(interval, exp.Interval) or kind is None or kind.name != "timestamp":
        return None
    try:
        micros = _micros(interval)
    except DurationError as error:
        raise Untranslatable(str(error)) from None
    return f"make_timestamptz(epoch_us({text(moment)}) {sign} ({micros}))"
