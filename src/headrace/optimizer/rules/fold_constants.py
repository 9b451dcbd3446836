"""Constants and double negations vanish from conditions.

    Filter NOT NOT (a AND TRUE)   →   Filter a

Right for all values, NULL included: only identities of three-valued logic are used. ``a = a`` is
not TRUE (it may be NULL), and ``NULL AND a`` stays. Nothing is reordered, so that a condition that
guards another still stands before it. Arithmetic on constants is left to Spark, whose overflow and
rounding it is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace

from headrace.optimizer.rule import Rule
from headrace.optimizer.safety import is_deterministic
from headrace.plan.expressions import (
    AggregateCall,
    Call,
    Cast,
    Expr,
    Literal,
    Named,
    conjunction,
    conjuncts,
)
from headrace.plan.nodes import Aggregate, Filter, Join, Node, Project
from headrace.plan.types import BOOLEAN

TRUE = Literal(True, BOOLEAN)
FALSE = Literal(False, BOOLEAN)

_NEGATED = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_COMPARE: dict[str, Callable[[object, object], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,  # type: ignore[dict-item]
    "<=": operator.le,  # type: ignore[dict-item]
    ">": operator.gt,  # type: ignore[dict-item]
    ">=": operator.ge,  # type: ignore[dict-item]
}


def fold_constants(node: Node) -> Node | None:
    match node:
        case Filter():
            predicate = folded(node.predicate)
            return node.input if predicate == TRUE else Filter(node.input, predicate)
        case Project():
            return Project(node.input, _folded_all(node.columns))
        case Aggregate():
            return replace(
                node, keys=_folded_all(node.keys), aggregates=_folded_all(node.aggregates)
            )
        case Join(residual=Expr() as residual):
            predicate = folded(residual)
            return replace(node, residual=None if predicate == TRUE else predicate)
        case _:
            return None


def _folded_all(columns: tuple[Named, ...]) -> tuple[Named, ...]:
    return tuple(Named(column.name, folded(column.expr)) for column in columns)


def folded(expr: Expr) -> Expr:
    """The expression with everything folded that can be.

    >>> from headrace.plan.expressions import Column
    >>> a = Column("a", BOOLEAN)
    >>> both = Call("and", (a, TRUE), BOOLEAN)
    >>> print(folded(Call("not", (Call("not", (both,), BOOLEAN),), BOOLEAN)))
    a
    """
    while True:
        after = expr.transform(_fold)
        if after == expr:
            return after
        expr = after


def _fold(expr: Expr) -> Expr:
    match expr:
        case Call(function="not", arguments=(argument,)):
            return _fold_not(expr, argument)
        case Call(function="and"):
            return _fold_and(expr)
        case Call(function="or", arguments=arguments):
            undecided = [a for a in arguments if a != FALSE]
            if TRUE in undecided:
                return TRUE
            if len(undecided) < 2:
                return undecided[0] if undecided else FALSE
            return Call("or", tuple(undecided), BOOLEAN)
        case Call(function="isnull", arguments=(Literal(value=value),)):
            return Literal(value is None, BOOLEAN)
        case Call(function="in", arguments=(value, choice)):
            return Call("=", (value, choice), BOOLEAN) if value.type == choice.type else expr
        case Call(function="case"):
            return _fold_case(expr)
        case Call(function=function, arguments=(Literal() as left, Literal() as right)) if (
            function in _COMPARE
        ):
            return _fold_comparison(expr, left, right)
        case Cast(argument=argument, data_type=kind) if argument.type == kind:
            return argument
        case AggregateCall(filter=condition) if condition == TRUE:
            return AggregateCall(expr.function, expr.arguments, expr.data_type, expr.distinct)
        case _:
            return expr


def _fold_not(expr: Expr, argument: Expr) -> Expr:
    match argument:
        case Literal(value=bool(value)):
            return Literal(not value, BOOLEAN)
        case Call(function="not", arguments=(inner,)):
            return inner
        case Call(function=function, arguments=operands) if function in _NEGATED:
            # Spark's order is total (NaN is the greatest and equals itself), so this is exact.
            return Call(_NEGATED[function], operands, BOOLEAN)
        case Call(function="or", arguments=operands):
            # More conjuncts, each of which can be pushed on its own.
            return Call("and", tuple(Call("not", (o,), BOOLEAN) for o in operands), BOOLEAN)
        case _:
            return expr


def _fold_and(expr: Expr) -> Expr:
    parts = conjuncts(expr)
    if FALSE in parts:
        return FALSE
    left: list[Expr] = []
    seen: set[Expr] = set()
    for part in parts:
        if part != TRUE and not (part in seen and is_deterministic(part)):
            left.append(part)
            seen.add(part)
    return conjunction(left) or TRUE


def _fold_case(expr: Call) -> Expr:
    arguments = expr.arguments
    left: list[Expr] = []
    for index in range(0, len(arguments) - 1, 2):
        condition, value = arguments[index : index + 2]
        if condition == TRUE:
            # The first true branch is the default of those before it.
            return Call("case", (*left, value), expr.type) if left else _typed(value, expr)
        if condition != FALSE:
            left += [condition, value]
    default = arguments[-1] if len(arguments) % 2 else Literal(None, expr.type)
    return Call("case", (*left, default), expr.type) if left else _typed(default, expr)


def _typed(value: Expr, expr: Expr) -> Expr:
    return value if value.type == expr.type else Cast(value, expr.type)


def _fold_comparison(expr: Call, left: Literal, right: Literal) -> Expr:
    same_kind = type(left.value) is type(right.value) and left.type == right.type
    if same_kind and isinstance(left.value, bool | int | str) and not left.type.is_interval:
        return Literal(_COMPARE[expr.function](left.value, right.value), BOOLEAN)
    return expr


RULE = Rule("fold_constants", fold_constants)
