"""What plans of filters, projections and unions give for one row, errors and all.

DuckDB stops at the first row that raises, so it cannot say *which* rows raise. This can: it runs a
plan on one row at a time, in SQL's three-valued logic and with the errors of Spark's ANSI mode. It
is compared with DuckDB itself in ``test_interpreter.py``.

A filter goes through its conjuncts (after NOT has been pushed down) from left to right and stops at
the first that is not true, as Spark's does. A computed column is computed where it is used, as if
the filters above it stood below it: that is where the optimizer puts them, and where Spark does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from headrace.plan.expressions import Call, Cast, Column, Expr, Literal
from headrace.plan.nodes import Filter, Node, Project, Source, Union
from headrace.plan.types import DataType

#: Columns, each computed when it is asked for.
Row = Mapping[str, Callable[[], Any]]
Compiled = Callable[[Row], Any]

RAISED = "raised"
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


class Raises(Exception):
    """The query would stop at this row."""


Outcome = str | list[tuple[Any, ...]]


def given_row(values: Mapping[str, Any]) -> Row:
    return {name: _known(value) for name, value in values.items()}


def runner(plan: Node) -> Callable[[Row], Outcome]:
    """What a plan gives for a stream's one row, columns by name; or that it raises."""
    run, names = _runner(plan), sorted(plan.schema.names)

    def outcome(given: Row) -> Outcome:
        try:
            made = [tuple(_told(out[name]()) for name in names) for out in run(given)]
        except Raises:
            return RAISED
        return sorted(made, key=repr)

    return outcome


def value_of(expr: Expr, row: Mapping[str, Any]) -> Any:
    """The value of an expression; raises ``Raises``."""
    return _compiled(expr)(given_row(row))


def _told(value: Any) -> Any:
    """A value that equals itself, and 0.0 not -0.0."""
    return ("double", repr(value)) if isinstance(value, float) else value


def _known(value: Any) -> Callable[[], Any]:
    return lambda: value


def _later(compiled: Compiled, row: Row) -> Callable[[], Any]:
    found: list[Any] = []

    def compute() -> Any:
        if not found:
            found.append(compiled(row))
        return found[0]

    return compute


def _runner(node: Node) -> Callable[[Row], list[Row]]:
    match node:
        case Source():
            return lambda given: [given]
        case Filter():
            return _filter(_runner(node.input), _conjuncts(node.predicate, True))
        case Project():
            columns = [(c.name, _compiled(c.expr)) for c in node.columns]
            return _project(_runner(node.input), columns)
        case Union():
            return _union(node)
        case _:
            raise NotImplementedError(type(node).__name__)


def _filter(
    below: Callable[[Row], list[Row]], parts: list[tuple[Compiled, bool]]
) -> Callable[[Row], list[Row]]:
    def run(given: Row) -> list[Row]:
        return [row for row in below(given) if all(part(row) is wanted for part, wanted in parts)]

    return run


def _project(
    below: Callable[[Row], list[Row]], columns: list[tuple[str, Compiled]]
) -> Callable[[Row], list[Row]]:
    def run(given: Row) -> list[Row]:
        return [{name: _later(compiled, row) for name, compiled in columns} for row in below(given)]

    return run


def _union(node: Union) -> Callable[[Row], list[Row]]:
    parts = [
        (_runner(part), list(zip(node.schema.names, part.schema.names, strict=True)))
        for part in node.parts
    ]

    def run(given: Row) -> list[Row]:
        return [
            {ours: row[theirs] for ours, theirs in names}
            for part, names in parts
            for row in part(given)
        ]

    return run


def _conjuncts(expr: Expr, wanted: bool) -> list[tuple[Compiled, bool]]:
    """What must all be true, or false, for the whole to be so."""
    match expr:
        case Call(function="not", arguments=(inner,)):
            return _conjuncts(inner, not wanted)
        case Call(function="and" | "or" as function, arguments=parts) if (
            function == "and"
        ) == wanted:
            return [found for part in parts for found in _conjuncts(part, wanted)]
        case _:
            return [(_compiled(expr), wanted)]


def _compiled(expr: Expr) -> Compiled:
    match expr:
        case Column(name=name):
            return lambda row: row[name]()
        case Literal(value=value):
            return lambda row: value
        case Cast(argument=argument):
            return _cast(_compiled(argument), argument.type, expr.type, expr.safe)
        case Call(function=function, arguments=arguments):
            parts = [_compiled(argument) for argument in arguments]
            if function in ("and", "or"):
                return _logic(parts, decisive=function == "or")
            if function == "case":
                return _case(parts)
            if function == "coalesce":
                return _coalesce(parts)
            return _applied(expr, parts)
        case _:
            raise NotImplementedError(type(expr).__name__)


def _logic(parts: list[Compiled], decisive: bool) -> Compiled:
    def compute(row: Row) -> Any:
        result: bool | None = not decisive
        for part in parts:
            value = part(row)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return compute


def _case(parts: list[Compiled]) -> Compiled:
    def compute(row: Row) -> Any:
        for index in range(0, len(parts) - 1, 2):
            if parts[index](row) is True:
                return parts[index + 1](row)
        return parts[-1](row)

    return compute


def _coalesce(parts: list[Compiled]) -> Compiled:
    def compute(row: Row) -> Any:
        return next((value for part in parts if (value := part(row)) is not None), None)

    return compute


def _applied(expr: Call, parts: list[Compiled]) -> Compiled:
    function = expr.function
    if function == "isnull":
        return lambda row: parts[0](row) is None
    if function == "isnotnull":
        return lambda row: parts[0](row) is not None
    numeric = all(argument.type.is_numeric for argument in expr.arguments)
    fractional = numeric and any(argument.type.is_fractional for argument in expr.arguments)
    operation = _operation(expr, fractional)
    strict = function not in ("<=>", "in")
    places = list(range(len(parts)))
    if function in ("/", "div", "%"):
        # Spark looks at the divisor first.
        places.reverse()

    def compute(row: Row) -> Any:
        values: list[Any] = [None] * len(parts)
        for place in places:
            values[place] = parts[place](row)
            if strict and values[place] is None:
                # And at nothing more where one is NULL: the rest may raise, but is not computed.
                return None
        if fractional:
            values = [None if value is None else float(value) for value in values]
        return operation(*values)

    return compute


def _operation(expr: Call, fractional: bool) -> Callable[..., Any]:
    function = expr.function
    if function in ("+", "-", "*", "negative", "abs"):
        compute = {
            "+": lambda a, b: a + b,
            "-": lambda a, b: a - b,
            "*": lambda a, b: a * b,
            "negative": lambda a: -a,
            "abs": lambda a: abs(a),
        }[function]
        if fractional:
            return compute
        low, high = _limits(expr.type)
        return lambda *values: _checked(compute(*values), low, high)
    if function in ("div", "%"):
        low, high = _limits(expr.type)
        return lambda a, b: _checked(_divided(function, a, b), low, high)
    known = _OPERATIONS.get(function)
    if known is None:
        raise NotImplementedError(function)
    return known


def _divided(function: str, a: int, b: int) -> int:
    """Towards zero; the rest has the sign of what is divided."""
    if b == 0:
        raise Raises
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient if function == "div" else a - quotient * b


def _checked(value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise Raises
    return value


def _limits(kind: DataType) -> tuple[int, int]:
    half = 1 << (_BITS[kind.name] - 1)
    return -half, half - 1


def _cast(inner: Compiled, given: DataType, wanted: DataType, safe: bool) -> Compiled:
    def convert(value: Any) -> Any:
        if wanted.is_integer and given.is_integer:
            return _checked(value, *_limits(wanted))
        if wanted.is_fractional and given.is_numeric:
            return float(value)
        if wanted.name == "string" and given.is_integer:
            return str(value)
        if wanted == given:
            return value
        raise NotImplementedError(f"{given} as {wanted}")

    def compute(row: Row) -> Any:
        value = inner(row)
        if value is None:
            return None
        try:
            return convert(value)
        except Raises:
            if safe:
                return None
            raise

    return compute


def _order(value: Any) -> Any:
    """NaN is greater than all other doubles, and equal to itself."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value


def _in(value: Any, *choices: Any) -> bool | None:
    if value is None:
        return None
    if any(c is not None and _order(c) == _order(value) for c in choices):
        return True
    return None if None in choices else False


def _like(text: str, pattern: str) -> bool:
    parts = {"%": ".*", "_": "."}
    regex = "".join(parts.get(char, re.escape(char)) for char in pattern)
    return re.fullmatch(regex, text, re.DOTALL) is not None


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "=": lambda a, b: _order(a) == _order(b),
    "!=": lambda a, b: _order(a) != _order(b),
    "<": lambda a, b: _order(a) < _order(b),
    "<=": lambda a, b: _order(a) <= _order(b),
    ">": lambda a, b: _order(a) > _order(b),
    ">=": lambda a, b: _order(a) >= _order(b),
    "<=>": lambda a, b: (a is None) == (b is None) and (a is None or _order(a) == _order(b)),
    "not": lambda a: not a,
    "in": _in,
    "like": _like,
    "upper": lambda a: a.upper(),
    "lower": lambda a: a.lower(),
    "length": lambda a: len(a),
    "||": lambda a, b: a + b,
}
