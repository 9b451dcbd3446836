"""Columns for queries that are built without SQL text, with PySpark's names.

    from headrace.functions import col, count, window

    hr.read("bids").where(col("price") > 5).groupBy("auction", window("ts", "1 hour")).agg(
        count("*").alias("n")
    )

A :class:`Column` holds a piece of SQL syntax; it is bound, typed and checked together with the
query, by the same code that reads SQL text. Every Spark function that Headrace knows can be
called from here by its name (``upper("name")``), besides those that are written out below.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from headrace.sql import functions_table
from headrace.sql.dialect import parse_data_type, parse_expression
from headrace.sql.refusals import did_you_mean, refuse
from headrace.sql.spark_columns import is_spark_column, node_of_spark_column
from headrace.sql.syntax import column_node, constant_node

#: A column, the name of one, or a constant.
Operand = Any


class Column:
    """An expression over columns, with PySpark's operators and methods."""

    def __init__(self, node: exp.Expr) -> None:
        self.node = node

    def __repr__(self) -> str:
        return f"Column<{self.node.sql(dialect='spark')}>"

    # Operators

    def __add__(self, other: Operand) -> Column:
        return self._binary(exp.Add, other)

    def __radd__(self, other: Operand) -> Column:
        return lit(other)._binary(exp.Add, self)

    def __sub__(self, other: Operand) -> Column:
        return self._binary(exp.Sub, other)

    def __rsub__(self, other: Operand) -> Column:
        return lit(other)._binary(exp.Sub, self)

    def __mul__(self, other: Operand) -> Column:
        return self._binary(exp.Mul, other)

    def __rmul__(self, other: Operand) -> Column:
        return lit(other)._binary(exp.Mul, self)

    def __truediv__(self, other: Operand) -> Column:
        return self._binary(exp.Div, other)

    def __rtruediv__(self, other: Operand) -> Column:
        return lit(other)._binary(exp.Div, self)

    def __mod__(self, other: Operand) -> Column:
        return self._binary(exp.Mod, other)

    def __neg__(self) -> Column:
        return Column(exp.Neg(this=_grouped(self.node)))

    def __eq__(self, other: object) -> Column:  # type: ignore[override]
        return self._binary(exp.EQ, other)

    def __ne__(self, other: object) -> Column:  # type: ignore[override]
        return self._binary(exp.NEQ, other)

    def __lt__(self, other: Operand) -> Column:
        return self._binary(exp.LT, other)

    def __le__(self, other: Operand) -> Column:
        return self._binary(exp.LTE, other)

    def __gt__(self, other: Operand) -> Column:
        return self._binary(exp.GT, other)

    def __ge__(self, other: Operand) -> Column:
        return self._binary(exp.GTE, other)

    def __and__(self, other: Operand) -> Column:
        return self._binary(exp.And, other)

    def __or__(self, other: Operand) -> Column:
        return self._binary(exp.Or, other)

    def __invert__(self) -> Column:
        return Column(exp.Not(this=_grouped(self.node)))

    def __getitem__(self, key: str | int) -> Column:
        return Column(exp.Bracket(this=_grouped(self.node), expressions=[lit(key).node]))

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> bool:
        refuse(
            "INVALID_BUILDER_CALL",
            None,
            what_it_is="a column is neither true nor false before the query runs",
            advice="combine conditions with & | ~ instead of and, or, not",
        )

    # Methods

    def alias(self, name: str) -> Column:
        """The column under another name."""
        inner = self.node.this if isinstance(self.node, exp.Alias) else self.node
        return Column(exp.alias_(inner.copy(), name, quoted=True))

    name = alias

    def cast(self, data_type: str) -> Column:
        """``CAST`` to a type named as in SQL; PySpark's types are understood too."""
        return Column(exp.Cast(this=self.node.copy(), to=parse_data_type(_type_name(data_type))))

    astype = cast

    def isNull(self) -> Column:
        return Column(exp.Is(this=_grouped(self.node), expression=exp.Null()))

    def isNotNull(self) -> Column:
        return ~self.isNull()

    def isin(self, *values: Operand) -> Column:
        listed = values[0] if len(values) == 1 and isinstance(values[0], list | tuple) else values
        constants = [lit(value).node for value in listed]
        return Column(exp.In(this=_grouped(self.node), expressions=constants))

    def between(self, low: Operand, high: Operand) -> Column:
        return Column(exp.Between(this=_grouped(self.node), low=lit(low).node, high=lit(high).node))

    def eqNullSafe(self, other: Operand) -> Column:
        return self._binary(exp.NullSafeEQ, other)

    def like(self, pattern: str) -> Column:
        return self._binary(exp.Like, pattern)

    def ilike(self, pattern: str) -> Column:
        return self._binary(exp.ILike, pattern)

    def rlike(self, pattern: str) -> Column:
        return self._binary(exp.RegexpLike, pattern)

    def startswith(self, other: Operand) -> Column:
        return call_function("startswith", self, lit(other))

    def endswith(self, other: Operand) -> Column:
        return call_function("endswith", self, lit(other))

    def contains(self, other: Operand) -> Column:
        return call_function("contains", self, lit(other))

    def substr(self, start: Operand, length: Operand) -> Column:
        return call_function("substring", self, lit(start), lit(length))

    def getItem(self, key: str | int) -> Column:
        return self[key]

    def getField(self, name: str) -> Column:
        """A field of a struct, such as ``start`` of a window."""
        if isinstance(self.node, exp.Column):
            return Column(column_node([*(part.name for part in self.node.parts), name]))
        return Column(
            exp.Dot(this=_grouped(self.node), expression=exp.to_identifier(name, quoted=True))
        )

    def when(self, condition: Column, value: Operand) -> Column:
        """A further branch of :func:`when`."""
        case = self._case()
        case.append("ifs", exp.If(this=condition.node.copy(), true=lit(value).node))
        return Column(case)

    def otherwise(self, value: Operand) -> Column:
        """What :func:`when` gives where no branch holds."""
        case = self._case()
        case.set("default", lit(value).node)
        return Column(case)

    def filter(self, condition: Column | str) -> Column:
        """An aggregate over the rows that meet a condition: ``FILTER (WHERE …)``."""
        return Column(
            exp.Filter(this=self.node.copy(), expression=exp.Where(this=to_node(condition)))
        )

    def _case(self) -> exp.Case:
        node = self.node.copy()
        if not isinstance(node, exp.Case) or node.args.get("default") is not None:
            refuse(
                "INVALID_BUILDER_CALL",
                None,
                what_it_is="when() and otherwise() continue a when()",
                advice="begin with functions.when(condition, value)",
            )
        return node

    def _binary(self, kind: type[exp.Expr], other: Operand) -> Column:
        return Column(kind(this=_grouped(self.node), expression=_grouped(lit(other).node)))


def col(name: str) -> Column:
    """A column by its name; ``a.b`` is a column of ``a``, or a field."""
    if name == "*":
        return Column(exp.Star())
    return Column(column_node(_split_name(name)))


column = col


def lit(value: Operand) -> Column:
    """A constant; a column stays what it is."""
    if isinstance(value, Column):
        return Column(value.node.copy())
    if is_spark_column(value):
        return Column(node_of_spark_column(value))
    match value:
        case None | bool() | int() | float() | str() | decimal.Decimal():
            return Column(constant_node(value))
        case datetime.datetime():
            return Column(_typed_text(value.isoformat(sep=" "), "timestamp"))
        case datetime.date():
            return Column(_typed_text(value.isoformat(), "date"))
        case datetime.timedelta():
            micros = value // datetime.timedelta(microseconds=1)
            return Column(
                exp.Interval(this=exp.Literal.string(str(micros)), unit=exp.var("MICROSECONDS"))
            )
        case _:
            refuse(
                "INVALID_BUILDER_CALL",
                None,
                what_it_is=f"{type(value).__name__} is not a constant that SQL has",
                advice="pass a number, a string, a date, a timestamp or a column",
            )


def expr(text: str) -> Column:
    """A piece of SQL: ``expr("price * 2 AS twice")``."""
    return Column(parse_expression(text))


def when(condition: Column, value: Operand) -> Column:
    """The first branch of a CASE; go on with ``.when`` and ``.otherwise``."""
    branch = exp.If(this=condition.node.copy(), true=lit(value).node)
    return Column(exp.Case(ifs=[branch]))


def call_function(name: str, *arguments: Column | str) -> Column:
    """Any function by its name; strings are names of columns."""
    return Column(exp.Anonymous(this=name, expressions=[_argument(a) for a in arguments]))


# Windows


def window(
    timeColumn: Column | str,
    windowDuration: str,
    slideDuration: str | None = None,
    startTime: str | None = None,
) -> Column:
    """Tumbling windows, or hopping ones where a slide is given."""
    durations = [windowDuration]
    if slideDuration is not None or startTime is not None:
        durations.append(slideDuration if slideDuration is not None else windowDuration)
    if startTime is not None:
        durations.append(startTime)
    return _with_durations("window", timeColumn, durations)


def windows(*several: Column) -> Column:
    """Several windows computed at once."""
    return call_function("windows", *several)


def session_window(timeColumn: Column | str, gapDuration: str) -> Column:
    """Sessions: rows with no pause longer than the gap."""
    return _with_durations("session_window", timeColumn, [gapDuration])


def trailing(timeColumn: Column | str, duration: str) -> Column:
    """The time up to the watermark, given out anew with each micro-batch."""
    return _with_durations("trailing", timeColumn, [duration])


def landmark(timeColumn: Column | str) -> Column:
    """Everything so far."""
    return _with_durations("landmark", timeColumn, [])


def window_time(windowColumn: Column | str) -> Column:
    """A window's last instant."""
    return call_function("window_time", windowColumn)


# Aggregates whose call is not simply their name


def count(column: Column | str = "*") -> Column:
    return call_function("count", column)


def count_distinct(column: Column | str, *columns: Column | str) -> Column:
    return _distinct("count", column, *columns)


def sum_distinct(column: Column | str) -> Column:
    return _distinct("sum", column)


def countDistinct(column: Column | str, *columns: Column | str) -> Column:
    return count_distinct(column, *columns)


def percentile(column: Column | str, percentage: float | list[float]) -> Column:
    """The exact percentile, or several of them."""
    if isinstance(percentage, list):
        return call_function(
            "percentile", column, call_function("array", *(lit(p) for p in percentage))
        )
    return call_function("percentile", column, lit(percentage))


def to_node(value: Operand) -> exp.Expr:
    """The syntax of a column, a PySpark column, or a piece of SQL."""
    if isinstance(value, Column):
        return value.node.copy()
    if is_spark_column(value):
        return node_of_spark_column(value)
    if isinstance(value, str):
        return parse_expression(value)
    refuse(
        "INVALID_BUILDER_CALL",
        None,
        what_it_is=f"{type(value).__name__} is not a column",
        advice="pass SQL text, or a column of headrace.functions or of PySpark",
    )


def __getattr__(name: str) -> Callable[..., Column]:
    """Every other function that Headrace knows, by its name in Spark."""
    if name in functions_table.callable_names():

        def call(*arguments: Column | str | int | float) -> Column:
            return call_function(
                name, *(a if isinstance(a, Column | str) else lit(a) for a in arguments)
            )

        call.__name__ = name
        return call
    advice = did_you_mean(name, functions_table.known_names(), "use call_function(name, …)")
    raise AttributeError(f"module {__name__!r} has no function {name!r} - {advice}")


def _argument(value: Column | str) -> exp.Expr:
    return col(value).node if isinstance(value, str) else to_node(value)


def _with_durations(name: str, time: Column | str, durations: list[str]) -> Column:
    texts = [exp.Literal.string(duration) for duration in durations]
    return Column(exp.Anonymous(this=name, expressions=[_argument(time), *texts]))


def _distinct(name: str, *columns: Column | str) -> Column:
    distinct = exp.Distinct(expressions=[_argument(c) for c in columns])
    return Column(exp.Anonymous(this=name, expressions=[distinct]))


def _grouped(node: exp.Expr) -> exp.Expr:
    """The node with its alias left out; the tree itself says what belongs together."""
    return (node.this if isinstance(node, exp.Alias) else node).copy()


def _typed_text(text: str, kind: str) -> exp.Expr:
    return exp.Cast(this=exp.Literal.string(text), to=parse_data_type(kind))


def _split_name(name: str) -> list[str]:
    """``a.b`` as two parts; a part in backquotes is taken as it is."""
    parts, current, quoted = [], "", False
    for char in name:
        if char == "`":
            quoted = not quoted
        elif char == "." and not quoted:
            parts.append(current)
            current = ""
        else:
            current += char
    return [*parts, current]


def _type_name(data_type: Any) -> str:
    simple = getattr(data_type, "simpleString", None)
    return str(simple()) if callable(simple) else str(data_type)
