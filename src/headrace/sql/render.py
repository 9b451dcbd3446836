"""Plan expressions as sqlglot expressions and as Spark SQL text.

The way back from ``plan/`` to SQL, for whoever runs plans on an engine. What is rendered means in
Spark exactly what the plan's expression means, literal types included: ``1.5`` of type double is
not left to Spark's rule that it is a decimal, and a timestamp never depends on a time zone.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable

from sqlglot import exp

from headrace.errors import PlanError
from headrace.plan.expressions import AggregateCall, Call, Cast, Column, Expr, Literal
from headrace.plan.types import BIGINT, DATE, INT, TIMESTAMP, DataType

# Under this name a sqlglot expression remembers its type.
_TYPE = "type"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)

_BINARY: dict[str, type[exp.Expression]] = {
    "+": exp.Add,
    "-": exp.Sub,
    "*": exp.Mul,
    "/": exp.Div,
    "%": exp.Mod,
    "div": exp.IntDiv,
    "=": exp.EQ,
    "<=>": exp.NullSafeEQ,
    "!=": exp.NEQ,
    "<": exp.LT,
    "<=": exp.LTE,
    ">": exp.GT,
    ">=": exp.GTE,
    "and": exp.And,
    "or": exp.Or,
    "||": exp.DPipe,
    "&": exp.BitwiseAnd,
    "|": exp.BitwiseOr,
    "^": exp.BitwiseXor,
    "like": exp.Like,
    "ilike": exp.ILike,
    "rlike": exp.RegexpLike,
}
_UNARY: dict[str, type[exp.Expression]] = {
    "negative": exp.Neg,
    "not": exp.Not,
    "~": exp.BitwiseNot,
}
# What binds tighter than every operator and so needs no brackets around it.
_ATOMS = (
    exp.Column,
    exp.Literal,
    exp.Anonymous,
    exp.Cast,
    exp.Null,
    exp.Boolean,
    exp.Paren,
    exp.Case,
)

ColumnNames = Callable[[str], exp.Expression]


def column_by_name(name: str) -> exp.Expression:
    """A column by its whole name: above a join ``a.ts`` is one name, not a path."""
    return exp.column(exp.to_identifier(name, quoted=True))


def spark_sql(expr: Expr, column: ColumnNames = column_by_name) -> str:
    """Spark SQL text of an expression.

    >>> from headrace.plan.types import BIGINT, BOOLEAN
    >>> price = Column("b.price", BIGINT)
    >>> spark_sql(Call(">", (price, Literal(5, BIGINT)), BOOLEAN))
    '`b.price` > CAST(5 AS BIGINT)'
    """
    # `normalize_functions=False` keeps the spelling of function names, as users wrote them.
    return to_sqlglot(expr, column).sql(dialect="spark", normalize_functions=False)


def to_sqlglot(expr: Expr, column: ColumnNames = column_by_name) -> exp.Expression:
    """An expression for sqlglot; ``column`` says how a column of the input is named there.

    Each part carries its type, for who must know it (see ``type_of``).
    """
    rendered = _rendered(expr, column)
    rendered.meta[_TYPE] = expr.type
    return rendered


def type_of(node: exp.Expr) -> DataType | None:
    """The type of a rendered expression; None of what no plan's expression was rendered to."""
    return node.unnest().meta.get(_TYPE)


def _rendered(expr: Expr, column: ColumnNames) -> exp.Expression:
    match expr:
        case Column(name=name):
            return column(name)
        case Literal():
            return _literal(expr)
        case Cast(argument=argument, data_type=kind, safe=safe):
            value, target = to_sqlglot(argument, column), data_type(kind)
            if safe:
                # Without the flag sqlglot takes TryCast for Spark's old lenient CAST.
                return exp.TryCast(this=value, to=target, safe=True)
            return exp.Cast(this=value, to=target)
        case AggregateCall():
            return _aggregate(expr, column)
        case Call():
            return _call(expr, column)
        case _:
            raise PlanError(f"{type(expr).__name__} has no SQL form")


def data_type(kind: DataType) -> exp.DataType:
    """The sqlglot form of a plan's type."""
    if kind.name == "void":
        return exp.DataType(this=exp.DataType.Type.USERDEFINED, kind="VOID")
    return exp.DataType.build(kind.name, dialect="spark")


def _call(call: Call, column: ColumnNames) -> exp.Expression:
    if call.function == "field":
        struct, field = call.arguments
        assert isinstance(field, Literal)
        return _field(_operand(struct, column), str(field.value))
    arguments = [to_sqlglot(argument, column) for argument in call.arguments]
    operands = [_bracketed(argument) for argument in arguments]
    match call.function:
        case name if name in _BINARY and len(operands) == 2:
            return _BINARY[name](this=operands[0], expression=operands[1])
        case "and" | "or" as name if len(operands) > 2:
            result = operands[0]
            for operand in operands[1:]:
                result = _BINARY[name](this=result, expression=operand)
            return result
        case name if name in _UNARY and len(operands) == 1:
            return _UNARY[name](this=operands[0])
        case "isnull":
            return exp.Is(this=operands[0], expression=exp.Null())
        case "in":
            return exp.In(this=operands[0], expressions=arguments[1:])
        case "case":
            return _case(arguments)
        case "item":
            return exp.Bracket(this=operands[0], expressions=arguments[1:])
        case "window_time":
            # Spark's own function wants a column that its analyzer marked as a window; windows of
            # the engine are plain structs. The last instant is the end less a microsecond.
            end = _function("unix_micros", _field(operands[0], "end"))
            micros = exp.Sub(this=end, expression=exp.Literal.number(1))
            return _function("timestamp_micros", micros)
        case name:
            return _function(name, *arguments)


def _field(struct: exp.Expression, name: str) -> exp.Expression:
    return exp.Dot(this=struct, expression=exp.to_identifier(name, quoted=True))


def _case(arguments: list[exp.Expression]) -> exp.Expression:
    """Condition, value, condition, value, …, and the default where there is one."""
    pairs, default = arguments, None
    if len(arguments) % 2:
        pairs, default = arguments[:-1], arguments[-1]
    branches = [
        exp.If(this=condition, true=value)
        for condition, value in zip(pairs[::2], pairs[1::2], strict=True)
    ]
    return exp.Case(ifs=branches, default=default)


def _aggregate(call: AggregateCall, column: ColumnNames) -> exp.Expression:
    arguments = [to_sqlglot(argument, column) for argument in call.arguments]
    if call.function == "count" and not arguments:
        arguments = [exp.Star()]
    if call.distinct:
        arguments = [exp.Distinct(expressions=arguments)]
    result: exp.Expression = _function(call.function, *arguments)
    if call.filter is not None:
        condition = exp.Where(this=to_sqlglot(call.filter, column))
        result = exp.Filter(this=result, expression=condition)
    return result


def _literal(literal: Literal) -> exp.Expression:
    value, kind = literal.value, literal.type
    match value:
        case None:
            return exp.Null() if kind.name == "void" else _cast(exp.Null(), kind)
        case bool():
            return exp.Boolean(this=value)
        case int():
            # An integer that fits `int` is an int in Spark, and a longer one is a bigint. Left a
            # plain number, it takes part in decimal arithmetic with just the digits it has.
            natural = INT if -(2**31) <= value < 2**31 else BIGINT
            number: exp.Expression = exp.Literal(this=str(abs(value)), is_string=False)
            number = exp.Neg(this=number) if value < 0 else number
            return number if kind == natural else _cast(number, kind)
        case float() | decimal.Decimal():
            # Through text: exact for every double (nan and inf too) and every decimal.
            return _cast(exp.Literal.string(_number_text(value)), kind)
        case str() if kind.is_interval:
            return exp.Interval(this=exp.Literal.string(value))
        case str():
            return exp.Literal.string(value)
        case bytes():
            return exp.HexString(this=value.hex())
        case datetime.datetime():
            instant = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
            micros = exp.Literal(this=str((instant - _EPOCH) // _MICROSECOND), is_string=False)
            moment = _function("timestamp_micros", micros)
            return moment if kind == TIMESTAMP else _cast(moment, kind)
        case datetime.date():
            return _cast(exp.Literal.string(value.isoformat()), DATE)
        case _:
            raise PlanError(f"a literal {type(value).__name__} has no SQL form")


def _number_text(value: float | decimal.Decimal) -> str:
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _cast(value: exp.Expression, kind: DataType) -> exp.Expression:
    return exp.Cast(this=value, to=data_type(kind))


def _function(name: str, *arguments: exp.Expression) -> exp.Expression:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _operand(expr: Expr, column: ColumnNames) -> exp.Expression:
    return _bracketed(to_sqlglot(expr, column))


def _bracketed(expression: exp.Expression) -> exp.Expression:
    return expression if isinstance(expression, _ATOMS) else exp.Paren(this=expression)
