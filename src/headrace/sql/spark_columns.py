"""PySpark's columns as SQL syntax.

A column of classic PySpark is a tree of small JVM objects (Spark's ``ColumnNode``), which is walked
here. Their own text (``+(a, 1)``, a COUNT DISTINCT without its DISTINCT) could not be read back.
PySpark itself is not imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from headrace.sql.dialect import parse_data_type, parse_expression
from headrace.sql.refusals import refuse
from headrace.sql.syntax import column_node, constant_node

_BINARY: dict[str, type[exp.Expr]] = {
    "+": exp.Add,
    "-": exp.Sub,
    "*": exp.Mul,
    "/": exp.Div,
    "%": exp.Mod,
    "=": exp.EQ,
    "==": exp.EQ,
    "<=>": exp.NullSafeEQ,
    "!=": exp.NEQ,
    "<": exp.LT,
    "<=": exp.LTE,
    ">": exp.GT,
    ">=": exp.GTE,
    "and": exp.And,
    "or": exp.Or,
    "&": exp.BitwiseAnd,
    "|": exp.BitwiseOr,
    "^": exp.BitwiseXor,
    "like": exp.Like,
    "ilike": exp.ILike,
    "rlike": exp.RegexpLike,
}
_UNARY: dict[str, Callable[[exp.Expr], exp.Expr]] = {
    "!": lambda this: exp.Not(this=this),
    "not": lambda this: exp.Not(this=this),
    "negative": lambda this: exp.Neg(this=this),
    "~": lambda this: exp.BitwiseNot(this=this),
    "isnull": lambda this: exp.Is(this=this, expression=exp.Null()),
    "isnotnull": lambda this: exp.Not(this=exp.Is(this=this, expression=exp.Null())),
}


def is_spark_column(value: object) -> bool:
    """Whether this is a column of PySpark, classic or Connect."""
    kind = type(value)
    return kind.__name__ == "Column" and kind.__module__.startswith("pyspark.")


def node_of_spark_column(column: Any) -> exp.Expr:
    """The column's expression as sqlglot's tree."""
    handle = getattr(column, "_jc", None)
    if handle is None:
        refuse(
            "INVALID_BUILDER_CALL",
            None,
            what_it_is="a Spark Connect column cannot be looked into",
            advice="pass SQL text or a column of headrace.functions",
        )
    return _node(handle.node())


def _node(node: Any) -> exp.Expr:
    kind = node.getClass().getSimpleName()
    match kind:
        case "UnresolvedAttribute":
            return column_node([str(part) for part in _sequence(node.nameParts())])
        case "UnresolvedStar":
            return exp.Star()
        case "Literal":
            return _literal(node)
        case "SqlExpression":
            return parse_expression(str(node.expression()))
        case "Alias":
            names = _sequence(node.name())
            return exp.alias_(_node(node.child()), str(names[0]), quoted=True)
        case "Cast":
            target = parse_data_type(str(node.dataType().sql()))
            mode = node.evalMode()
            safe = mode.isDefined() and "TRY" in str(mode.get()).upper()
            return (exp.TryCast if safe else exp.Cast)(this=_node(node.child()), to=target)
        case "CaseWhenOtherwise":
            branches = [
                exp.If(this=_node(branch._1()), true=_node(branch._2()))
                for branch in _sequence(node.branches())
            ]
            otherwise = node.otherwise()
            default = _node(otherwise.get()) if otherwise.isDefined() else None
            return exp.Case(ifs=branches, default=default)
        case "UnresolvedExtractValue":
            return exp.Bracket(this=_node(node.child()), expressions=[_node(node.extraction())])
        case "UnresolvedFunction":
            return _function(node)
        case _:
            refuse(
                "INVALID_BUILDER_CALL",
                None,
                what_it_is=f"PySpark columns of kind {kind} are not supported",
                advice="write the expression as SQL text",
            )


def _function(node: Any) -> exp.Expr:
    name = str(node.functionName())
    arguments = [_node(argument) for argument in _sequence(node.arguments())]
    lowered = name.lower()
    if lowered in _BINARY and len(arguments) == 2:
        return _BINARY[lowered](this=arguments[0], expression=arguments[1])
    if lowered in _UNARY and len(arguments) == 1:
        return _UNARY[lowered](arguments[0])
    if lowered == "in":
        return exp.In(this=arguments[0], expressions=arguments[1:])
    if node.isDistinct():
        arguments = [exp.Distinct(expressions=arguments)]
    return exp.Anonymous(this=name, expressions=arguments)


def _literal(node: Any) -> exp.Expr:
    value = node.value()
    if value is None or isinstance(value, bool | int | float | str):
        return constant_node(value)
    return parse_expression(str(node.sql()))


def _sequence(values: Any) -> list[Any]:
    """A Scala sequence as a list."""
    return [values.apply(index) for index in range(values.size())]
