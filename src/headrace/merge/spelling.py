"""One spelling for what SQL spells in several ways: synonyms of functions, and short forms.

    ucase(s)                  →   upper(s)
    nvl2(i, s, t)             →   CASE WHEN i IS NOT NULL THEN s ELSE t END
    s LIKE 'a%'               →   startswith(s, 'a')

Every entry is what Spark itself makes of the form: of these functions one is an alias of the other,
or is replaced by it when a query is analysed. So values, NULLs and errors are the same.

Only what merging compares is spelt so. A plan keeps the words of its query.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.plan.expressions import Call, Cast, Expr, Literal
from headrace.plan.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    DataType,
)

#: Functions of one meaning with the same arguments: each name and the one that stands for it.
SYNONYMS: dict[str, str] = {
    "ucase": "upper",
    "lcase": "lower",
    "char_length": "length",
    "character_length": "length",
    "len": "length",
    "substr": "substring",
    "char": "chr",
    "||": "concat",
    "nvl": "coalesce",
    "ifnull": "coalesce",
    "pow": "power",
    "ceiling": "ceil",
    "sign": "signum",
    "mod": "%",
    "dayofmonth": "day",
    "date_diff": "datediff",
    "dateadd": "date_add",
    "regexp": "rlike",
    "regexp_like": "rlike",
    "position": "locate",
    "sha": "sha1",
    "cardinality": "size",
    "printf": "format_string",
    "to_varchar": "to_char",
}

#: Casts that are spelt as functions.
CASTS: dict[str, DataType] = {
    kind.name: kind
    for kind in (
        *(BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE),
        *(STRING, BINARY, DATE, TIMESTAMP),
    )
}

#: Fields of EXTRACT and date_part, and the function that gives the same.
_FIELDS: dict[str, str] = {
    **dict.fromkeys(("YEAR", "Y", "YEARS", "YR", "YRS"), "year"),
    **dict.fromkeys(("QUARTER", "QTR"), "quarter"),
    **dict.fromkeys(("MONTH", "MON", "MONS", "MONTHS"), "month"),
    **dict.fromkeys(("WEEK", "W", "WEEKS"), "weekofyear"),
    **dict.fromkeys(("DAY", "D", "DAYS"), "day"),
    **dict.fromkeys(("DAYOFWEEK", "DOW"), "dayofweek"),
    "DOY": "dayofyear",
    **dict.fromkeys(("HOUR", "H", "HOURS", "HR", "HRS"), "hour"),
    **dict.fromkeys(("MINUTE", "M", "MIN", "MINS", "MINUTES"), "minute"),
}

#: Functions that are NULL just where one of their arguments is.
NULL_WITH_ANY = frozenset(
    {
        *("upper", "lower", "length", "trim", "ltrim", "rtrim", "reverse", "initcap", "substring"),
        *("concat", "startswith", "endswith", "contains", "md5", "sha1"),
        *("year", "quarter", "month", "day", "hour", "minute", "second", "dayofweek"),
    }
)


def spelt(expr: Expr) -> Expr:
    """The expression with its outermost function in the one spelling; what is below stays.

    >>> from headrace.plan.expressions import Column
    >>> print(spelt(Call("ucase", (Column("s", STRING),), STRING)))
    upper(s)
    """
    while isinstance(expr, Call):
        changed = _respelt(expr)
        if changed is expr:
            return expr
        expr = changed
    return expr


def _respelt(call: Call) -> Expr:
    function, arguments = call.function, call.arguments
    synonym = SYNONYMS.get(function)
    if synonym is not None:
        return Call(synonym, arguments, call.type)
    if function in CASTS and len(arguments) == 1:
        return _cast(arguments[0], CASTS[function])
    form = _FORMS.get(function)
    return form(call) if form is not None else call


def _cast(argument: Expr, kind: DataType) -> Expr:
    return argument if argument.type == kind else Cast(argument, kind)


def _test(function: str, *arguments: Expr) -> Expr:
    return Call(function, arguments, BOOLEAN)


def _if(call: Call) -> Expr:
    return Call("case", call.arguments, call.type)


def _nvl2(call: Call) -> Expr:
    tested, there, missing = call.arguments
    return Call("case", (_test("isnotnull", tested), there, missing), call.type)


def _nullif(call: Call) -> Expr:
    value, other = call.arguments
    return Call("case", (_test("=", value, other), Literal(None, call.type), value), call.type)


def _nullifzero(call: Call) -> Expr:
    (value,) = call.arguments
    zero = Literal(0, INT)
    return Call("case", (_test("=", value, zero), Literal(None, call.type), value), call.type)


def _zeroifnull(call: Call) -> Expr:
    return Call("coalesce", (*call.arguments, Literal(0, INT)), call.type)


def _positive(call: Call) -> Expr:
    (argument,) = call.arguments
    return argument if argument.type == call.type else call


def _left(call: Call) -> Expr:
    text, count = call.arguments
    return Call("substring", (text, Literal(1, INT), count), call.type)


def _btrim(call: Call) -> Expr:
    return Call("trim", call.arguments, call.type) if len(call.arguments) == 1 else call


def _date_part(call: Call) -> Expr:
    field, source = call.arguments
    if isinstance(field, Literal) and source.type in (DATE, TIMESTAMP) and call.type == INT:
        name = _FIELDS.get(str(field.value).upper())
        if name is not None:
            return Call(name, (source,), call.type)
    return call


def _concat(call: Call) -> Expr:
    """One level: a text that is put together is NULL where any of its parts is."""
    if call.type != STRING:
        return call
    if not any(_is_concat(part) for part in call.arguments):
        return call
    parts: list[Expr] = []
    for part in call.arguments:
        parts += part.children if _is_concat(part) else (part,)
    return Call("concat", tuple(parts), call.type)


def _is_concat(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.function in ("concat", "||") and expr.type == STRING


def _like(call: Call) -> Expr:
    """Patterns of one text and wildcards at its ends, as Spark simplifies them."""
    if len(call.arguments) != 2 or call.arguments[0].type != STRING:
        return call
    value, pattern = call.arguments
    text = pattern.value if isinstance(pattern, Literal) else None
    if not isinstance(text, str) or "_" in text or "\\" in text:
        return call
    if "%" not in text:
        return _test("=", value, pattern)
    inner = text.strip("%")
    if "%" in inner:
        return call
    if not inner:
        # Any text will do, but it must be there.
        return _test("=", value, value)
    begins, ends = not text.startswith("%"), not text.endswith("%")
    function = "startswith" if begins else "endswith" if ends else "contains"
    return _test(function, value, Literal(inner, STRING))


def _case(call: Call) -> Expr:
    """NULL is of the type of the whole; what is taken where it is there is ``coalesce``."""
    typed = tuple(
        Literal(None, call.type) if isinstance(a, Literal) and a.value is None else a
        for a in call.arguments
    )
    if typed != call.arguments:
        return Call("case", typed, call.type)
    arguments = call.arguments
    if len(arguments) != 3 or not isinstance(arguments[0], Call):
        return call
    test, value, other = arguments
    assert isinstance(test, Call)
    if test.function == "not" and isinstance(test.arguments[0], Call):
        (inner,) = test.arguments
        assert isinstance(inner, Call)
        if inner.function == "isnull":
            test = Call("isnotnull", inner.arguments, BOOLEAN)
    if test.function == "isnull":
        value, other = other, value
    elif test.function != "isnotnull":
        return call
    if test.arguments != (value,) or not value.type == other.type == call.type:
        return call
    return Call("coalesce", (value, other), call.type)


_FORMS: dict[str, Callable[[Call], Expr]] = {
    "if": _if,
    "nvl2": _nvl2,
    "nullif": lambda call: _nullif(call) if len(call.arguments) == 2 else call,
    "nullifzero": _nullifzero,
    "zeroifnull": _zeroifnull,
    "positive": _positive,
    "left": _left,
    "btrim": _btrim,
    "date_part": _date_part,
    "concat": _concat,
    "like": _like,
    "case": _case,
}
