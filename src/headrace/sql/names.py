"""Names of columns that the user did not name, as Spark names them: ``sum(price)``, ``(a + b)``."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from headrace.plan.expressions import (
    OPERATORS,
    AggregateCall,
    Call,
    Cast,
    Column,
    Expr,
    Literal,
)
from headrace.plan.text import expression_text
from headrace.sql.windows import WindowCall


def spark_name(expr: Expr, shown: Mapping[str, str]) -> str:
    """The name Spark would give; ``shown`` maps plan columns to the names that users see."""

    def name(part: Expr) -> str:
        return spark_name(part, shown)

    match expr:
        case Column():
            return shown.get(expr.name, expr.name)
        case Literal():
            return _literal(expr)
        case WindowCall():
            return "session_window" if expr.function == "session_window" else "window"
        case Cast():
            return f"{'TRY_CAST' if expr.safe else 'CAST'}({name(expr.argument)} AS {_type(expr)})"
        case AggregateCall():
            inner = ", ".join(name(a) for a in expr.arguments) or "1"
            distinct = "DISTINCT " if expr.distinct else ""
            text = f"{expr.function}({distinct}{inner})"
            return text if expr.filter is None else f"{text} FILTER (WHERE {name(expr.filter)})"
        case Call():
            return _call(expr, [name(a) for a in expr.arguments])
        case _:
            return getattr(expr, "name", type(expr).__name__)


def plan_name(expr: Expr) -> str:
    """A name inside the plan: the expression as plans print it."""
    return expr.name if isinstance(expr, Column) else expression_text(expr)


def _type(expr: Cast) -> str:
    return expr.type.name.upper()


def _literal(literal: Literal) -> str:
    value = literal.value
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case datetime.datetime():
            return f"TIMESTAMP '{value}'"
        case datetime.date():
            return f"DATE '{value}'"
        case bytes():
            return f"X'{value.hex().upper()}'"
        case _ if literal.type.is_interval:
            return f"INTERVAL '{value}'"
        case _:
            return str(value)


def _call(call: Call, arguments: list[str]) -> str:
    function = call.function
    match function:
        case "and" | "or" | "+" | "-" | "*" | "/" | "%" | "=" | "<=>" | "<" | "<=" | ">" | ">=":
            return f"({arguments[0]} {OPERATORS[function]} {arguments[1]})"
        case "&" | "|" | "^":
            return f"({arguments[0]} {function} {arguments[1]})"
        case "div":
            return f"({arguments[0]} div {arguments[1]})"
        case "!=":
            return f"(NOT ({arguments[0]} = {arguments[1]}))"
        case "not":
            inner = call.arguments[0]
            if isinstance(inner, Call) and inner.function == "isnull":
                return f"({spark_name_of_null(arguments[0])} IS NOT NULL)"
            return f"(NOT {arguments[0]})"
        case "isnull":
            return f"({arguments[0]} IS NULL)"
        case "negative":
            return f"(- {arguments[0]})"
        case "~":
            return f"~{arguments[0]}"
        case "||":
            return f"concat({arguments[0]}, {arguments[1]})"
        case "like":
            return f"{arguments[0]} LIKE {arguments[1]}"
        case "ilike":
            return f"ilike({arguments[0]}, {arguments[1]})"
        case "rlike":
            return f"RLIKE({arguments[0]}, {arguments[1]})"
        case "in":
            return f"({arguments[0]} IN ({', '.join(arguments[1:])}))"
        case "case":
            return _case(arguments)
        case "field":
            return f"{arguments[0]}.{arguments[1]}"
        case "item":
            return f"{arguments[0]}[{arguments[1]}]"
        case "if":
            return f"(IF({', '.join(arguments)}))"
        case _:
            return f"{function}({', '.join(arguments)})"


def spark_name_of_null(text: str) -> str:
    """``x`` of ``(x IS NULL)``."""
    return text.removeprefix("(").removesuffix(" IS NULL)")


def _case(arguments: list[str]) -> str:
    branches = zip(arguments[0:-1:2], arguments[1:-1:2], strict=True)
    text = " ".join(f"WHEN {condition} THEN {value}" for condition, value in branches)
    default = "" if arguments[-1] == "NULL" else f" ELSE {arguments[-1]}"
    return f"CASE {text}{default} END"


def unique(name: str, taken: set[str]) -> str:
    """The name, or the name with the first free number."""
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}_{number}", number + 1
    taken.add(candidate)
    return candidate
