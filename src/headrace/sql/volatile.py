"""Texts that mean another time at each run: 'now', 'today', 'tomorrow', 'yesterday', and '10:30',
which is half past ten of the day on which it is read.

Spark reads such a text as a time wherever a constant string becomes a date or a timestamp: in a
typed literal or a CAST, in a function of times, and by itself where a string meets a time in a
comparison, in CASE or in COALESCE. The constant may also be a column of a derived table, since
the optimizer of either side puts it in its place. As a string, 'now' is a word like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from headrace.plan.expressions import AggregateCall, Call, Cast, Column, Expr, Literal
from headrace.plan.nodes import Aggregate, Filter, Join, Node, Project, Union
from headrace.plan.types import STRING
from headrace.sql import functions_table as table
from headrace.sql.typing import is_temporal

#: A special word, or a time without a day. 'epoch' is always the same.
_MOVING = re.compile(
    r"\s*(?:(?:now|today|tomorrow|yesterday)\b|T?\d{1,2}:).*", re.IGNORECASE | re.DOTALL
)
#: Functions that read any argument as a time.
_AS_TIME = frozenset(
    {"date", "timestamp", "to_date", "try_to_date", "to_timestamp", "try_to_timestamp"}
)
#: Functions that keep a string a string, whatever stands beside it.
_AS_TEXT = frozenset(
    {"concat", "||", "concat_ws", "format_string", "printf", "field", "named_struct", "struct"}
)

#: Columns that hold a constant, by name.
Constants = Mapping[str, Literal]


def is_moving_time(text: str) -> bool:
    """Whether Spark makes another time of this text at each run.

    >>> is_moving_time(" Now "), is_moving_time("T10:30"), is_moving_time("nowhere")
    (True, True, False)
    """
    return _MOVING.fullmatch(text) is not None


def moving_times(plan: Node) -> Iterator[Expr]:
    """The constants of a plan that are read as a time and mean another one at each run.

    A constant that is computed (``concat('n', 'ow')``) may be any, and is taken for one.
    """
    for node in plan.walk():
        constants: dict[str, Literal] = {}
        for side, names in _named_inputs(node):
            constants |= {names[name]: value for name, value in _constants(side).items()}
        for expr in _expressions(node):
            yield from _within(expr, constants)


def _within(expr: Expr, constants: Constants) -> Iterator[Expr]:
    for part in expr.walk():
        match part:
            case Cast() if is_temporal(part.type):
                operands: tuple[Expr, ...] = (part.argument,)
            case Call() if _reads_times(part):
                operands = part.arguments
            case _:
                continue
        for operand in operands:
            constant = constants.get(operand.name) if isinstance(operand, Column) else operand
            if constant is not None and constant.type == STRING and _moves(constant, constants):
                yield constant


def _reads_times(call: Call) -> bool:
    """Whether a string among the arguments may be read as a time."""
    if call.function in _AS_TEXT:
        return False
    signature = table.SCALARS.get(call.function)
    if call.function in _AS_TIME or (signature is not None and "t" in signature.signature):
        return True
    types = (*(argument.type for argument in call.arguments), call.type)
    return any(is_temporal(kind) or kind.is_interval for kind in types)


def _moves(constant: Expr, constants: Constants) -> bool:
    """Whether a string that is read as a time may be a moving one."""
    if isinstance(constant, Literal):
        return is_moving_time(str(constant.value))
    return not any(
        isinstance(part, AggregateCall) or (isinstance(part, Column) and part.name not in constants)
        for part in constant.walk()
    )


def _constants(node: Node) -> dict[str, Literal]:
    """The columns of a node's output that are string constants."""
    match node:
        case Project():
            below = _constants(node.input)
            constants = {c.name: _constant(c.expr, below) for c in node.columns}
        case Filter():
            return _constants(node.input)
        case Aggregate():
            below = _constants(node.input)
            constants = {key.name: _constant(key.expr, below) for key in node.keys}
        case Join():
            constants = {}
            for side, names in _named_inputs(node):
                constants |= {names[name]: value for name, value in _constants(side).items()}
        case Union():
            parts = [(part.schema.names, _constants(part)) for part in node.parts]
            constants = {
                name: next((c[own[i]] for own, c in parts if own[i] in c), None)
                for i, name in enumerate(node.schema.names)
            }
        case _:
            return {}
    return {name: value for name, value in constants.items() if value is not None}


def _constant(expr: Expr, below: Constants) -> Literal | None:
    if isinstance(expr, Column):
        return below.get(expr.name)
    return expr if isinstance(expr, Literal) and expr.type == STRING else None


def _named_inputs(node: Node) -> list[tuple[Node, Mapping[str, str]]]:
    """The inputs of a node, with the names under which it sees their columns."""
    if isinstance(node, Join):
        schemas = (node.left_schema, node.right_schema)
        return [
            (side, dict(zip(side.schema.names, schema.names, strict=True)))
            for side, schema in zip(node.inputs, schemas, strict=True)
        ]
    return [(side, {name: name for name in side.schema.names}) for side in node.inputs]


def _expressions(node: Node) -> list[Expr]:
    match node:
        case Filter():
            return [node.predicate]
        case Project():
            return [column.expr for column in node.columns]
        case Aggregate():
            return [named.expr for named in (*node.keys, *node.aggregates)]
        case Join():
            sides = [expr for pair in node.keys for expr in pair]
            return sides if node.residual is None else [*sides, node.residual]
        case _:
            return []
