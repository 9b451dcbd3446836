"""Which expressions may be evaluated elsewhere: on other rows, earlier, or more often.

Under Spark's ANSI mode a division by zero, a failing cast or an overflow stops the query. A filter
may stand there to keep such rows away, so an expression that can raise must not be moved to rows
that it never saw. The lists name what is known never to raise; everything else is taken to raise.
"""

from __future__ import annotations

from headrace.plan.expressions import (
    COMPARISONS,
    AggregateCall,
    Call,
    Cast,
    Column,
    Expr,
    Literal,
)
from headrace.plan.types import BOOLEAN, DataType
from headrace.sql.typing import as_decimal

_NEVER_RAISE = frozenset(
    {
        *("and", "or", "not", "isnull", "field", "||", "~", "isnotnull"),
        *("upper", "lower", "ucase", "lcase", "trim", "ltrim", "rtrim", "length", "char_length"),
        *("concat", "reverse", "initcap", "instr"),
        *("startswith", "endswith", "contains", "window_time", "struct"),
        *("hash", "xxhash64", "md5", "sha1"),
    }
)
#: These never raise for numbers. Of a text that is no number Spark's own cast raises, before the
#: function is called.
_OF_NUMBERS = frozenset(
    {
        *("&", "|", "^", "isnan", "nanvl"),
        *("try_add", "try_subtract", "try_multiply", "try_divide"),
    }
)
#: The arguments after the first are whole numbers; of wider ones Spark's cast may raise.
_PLACES_IN_TEXT = frozenset({"substring", "substr", "left", "right"})
#: Spark casts the arguments of these to one type, and a string that is no number then raises.
_ONE_TYPE = COMPARISONS | {"in", "coalesce", "nvl", "ifnull", "nullif", "greatest", "least"}
_PARTS_OF_TIME = frozenset(
    {"year", "month", "day", "dayofmonth", "hour", "minute", "second", "dayofweek"}
)
#: Arithmetic that overflows on integers and decimals, but never on floating point.
_OVERFLOW = frozenset({"+", "-", "*", "negative", "abs"})
_NOT_DETERMINISTIC = frozenset(
    {
        *("rand", "random", "randn", "uniform", "randstr", "uuid", "shuffle"),
        *("monotonically_increasing_id", "spark_partition_id", "input_file_name"),
        *("current_timestamp", "now", "current_date", "curdate", "localtimestamp"),
        *("current_time", "unix_timestamp", "version", "java_method", "reflect"),
    }
)
_DIVISIONS = frozenset({"/", "%", "div", "pmod"})
#: Aggregates that take values as they are.
_OF_ANYTHING = frozenset(
    {"count", "count_if", "min", "max", "bool_or", "bool_and", "any", "every", "some"}
    | {"min_by", "max_by", "approx_count_distinct", "collect_set"}
)
_UP_TO_INT = frozenset({"tinyint", "smallint", "int", "void"})
_WIDER = ("tinyint", "smallint", "int", "bigint", "float", "double")


def is_deterministic(expr: Expr) -> bool:
    """Whether evaluating it twice, or at another time, gives the same."""
    return not any(isinstance(e, Call) and e.function in _NOT_DETERMINISTIC for e in expr.walk())


def can_raise(expr: Expr) -> bool:
    """Whether evaluating it on some row might stop the query."""
    return any(raises_itself(e) for e in expr.walk())


def argument_can_raise(call: AggregateCall) -> bool:
    """Whether taking a row into an aggregate might stop the query; what it adds up to is another
    matter.

    Sums of texts are sums of casts, and those raise for a text that is no number.
    """
    casts = call.function not in _OF_ANYTHING and not _are_numbers(call.arguments)
    return casts or any(map(can_raise, call.children))


def key_can_raise(left: Expr, right: Expr) -> bool:
    """Whether comparing two keys of a join might stop the query."""
    return can_raise(Call("=", (left, right), BOOLEAN))


def is_movable(expr: Expr) -> bool:
    """Whether it may be evaluated on rows that it never saw."""
    return is_deterministic(expr) and not can_raise(expr)


def raises_itself(expr: Expr) -> bool:
    """Whether this call, apart from its arguments, might stop the query."""
    match expr:
        case Column() | Literal():
            return False
        case Cast(argument=argument, data_type=kind, safe=safe):
            return not safe and not _cast_always_works(argument.type, kind)
        case Call(function=function, arguments=arguments) if function in ("like", "ilike"):
            return not _is_plain_pattern(arguments[1])
        case Call(function=function, arguments=arguments) if function in _OVERFLOW:
            return not (expr.type.is_fractional and _are_numbers(arguments))
        case Call(function=function, arguments=arguments) if function in _OF_NUMBERS:
            return not _are_numbers(arguments)
        case Call(function=function, arguments=(left, right)) if function in _DIVISIONS:
            return not (_are_plain(left, right) and _always_divides(right, function))
        case Call(function="shiftright", arguments=(value, places)):
            return not (value.type.is_integer and places.type.name in _UP_TO_INT)
        case Call(function=function, arguments=arguments) if function in _PLACES_IN_TEXT:
            return not all(a.type.name in _UP_TO_INT for a in arguments[1:])
        case Call(function=function, arguments=arguments) if function in _ONE_TYPE:
            return not _one_family(arguments)
        case Call(function="case", arguments=arguments):
            return not _one_family((*arguments[1:-1:2], arguments[-1]))
        case Call(function=function, arguments=arguments) if function in _PARTS_OF_TIME:
            return any(a.type.name not in ("date", "timestamp") for a in arguments)
        case Call(function="unix_micros", arguments=arguments):
            # What a timestamp is made of.
            return any(a.type.name != "timestamp" for a in arguments)
        case Call(function=function):
            return function not in _NEVER_RAISE
        case _:
            return True


def _are_numbers(arguments: tuple[Expr, ...]) -> bool:
    return all(a.type.is_numeric or a.type.name == "void" for a in arguments)


def _are_plain(*arguments: Expr) -> bool:
    """Whether these are whole numbers or floating point, whose quotients are bounded."""
    return all(a.type.is_integer or a.type.is_fractional for a in arguments)


def _always_divides(divisor: Expr, function: str) -> bool:
    """Whether it is a constant that is not zero. The least bigint divided by -1 is too great."""
    value = divisor.value if isinstance(divisor, Literal) else None
    if not isinstance(value, int | float):
        return False
    return value != 0 and not (function == "div" and value == -1)


def _cast_always_works(given: DataType, wanted: DataType) -> bool:
    if given == wanted or given.name == "void" or wanted.name == "string":
        return True
    if given.name in _WIDER and wanted.name in _WIDER:
        return _WIDER.index(given.name) <= _WIDER.index(wanted.name)
    if given.is_decimal and wanted.is_fractional:
        return True
    if wanted.is_decimal and (given.is_integer or given.is_decimal):
        (p1, s1), (p2, s2) = as_decimal(given), as_decimal(wanted)
        return s1 <= s2 and p1 - s1 <= p2 - s2
    return (given.name, wanted.name) in {("timestamp", "date"), ("date", "timestamp")}


def _one_family(arguments: tuple[Expr, ...]) -> bool:
    """Whether these can be brought to one type without a cast that might fail."""
    kinds = {a.type for a in arguments if a.type.name != "void"}
    if len(kinds) <= 1 or all(kind.is_numeric for kind in kinds):
        return True
    return all(kind.name in ("date", "timestamp") for kind in kinds)


def _is_plain_pattern(pattern: Expr) -> bool:
    # A backslash before an ordinary character is an error in Spark.
    return (
        isinstance(pattern, Literal)
        and isinstance(pattern.value, str | None)
        and "\\" not in (pattern.value or "")
    )
