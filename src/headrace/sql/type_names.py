"""Types named in the text, in Spark's own spelling. What is no type of Spark is refused."""

from __future__ import annotations

from typing import NoReturn

from sqlglot import exp

from headrace.plan.types import DataType, decimal
from headrace.sql.refusals import refuse

_PLAIN = {
    exp.DType.BOOLEAN: "boolean",
    exp.DType.TINYINT: "tinyint",
    exp.DType.SMALLINT: "smallint",
    exp.DType.INT: "int",
    exp.DType.BIGINT: "bigint",
    exp.DType.FLOAT: "float",
    exp.DType.DOUBLE: "double",
    exp.DType.TEXT: "string",
    exp.DType.BINARY: "binary",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMPTZ: "timestamp",
    exp.DType.TIMESTAMPLTZ: "timestamp",
    exp.DType.TIMESTAMPNTZ: "timestamp_ntz",
    exp.DType.VARIANT: "variant",
}
_NESTED = {exp.DType.ARRAY: ("array", 1), exp.DType.MAP: ("map", 2)}


def data_type(node: exp.DataType) -> DataType:
    """The type that a node names."""
    kind = node.this
    if isinstance(kind, exp.Interval):
        return _interval(kind)
    if kind == exp.DType.DECIMAL:
        return _decimal(node)
    if kind == exp.DType.STRUCT:
        return _struct(node)
    if kind in _NESTED:
        name, count = _NESTED[kind]
        parts = [part for part in node.expressions if isinstance(part, exp.DataType)]
        if len(parts) != count or len(node.expressions) != count:
            _hollow(node)
        return DataType(f"{name}<{','.join(str(data_type(part)) for part in parts)}>")
    if kind not in _PLAIN:
        refuse(
            "UNSUPPORTED_EXPRESSION",
            node,
            what_it_is=f"the type {getattr(kind, 'value', kind)}",
            advice=f"use one of {', '.join(sorted({*_PLAIN.values(), 'decimal(10,2)'}))}",
        )
    return DataType(_PLAIN[kind])


def _decimal(node: exp.DataType) -> DataType:
    digits: list[int] = []
    for parameter in node.expressions:
        written = parameter.this if isinstance(parameter, exp.DataTypeParam) else None
        if not isinstance(written, exp.Literal) or written.is_string or not written.name.isdigit():
            _no_decimal(node)
        digits.append(int(written.name))
    if len(digits) > 2:
        _no_decimal(node)
    precision, scale = (*digits, *(10, 0)[len(digits) :])
    if not 1 <= precision <= 38 or scale > precision:
        _no_decimal(node)
    return decimal(precision, scale)


def _struct(node: exp.DataType) -> DataType:
    fields: list[str] = []
    for field in node.expressions:
        kind = field.args.get("kind") if isinstance(field, exp.ColumnDef) else None
        if not isinstance(kind, exp.DataType):
            _hollow(node)
        fields.append(f"{field.name}:{data_type(kind)}")
    if not fields:
        _hollow(node)
    return DataType(f"struct<{','.join(fields)}>")


def _interval(node: exp.Interval) -> DataType:
    unit = node.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        return DataType(f"interval {unit.this.name} to {unit.expression.name}".lower())
    if unit is None:
        refuse(
            "UNSUPPORTED_EXPRESSION",
            node.parent,
            what_it_is="the type INTERVAL without units",
            advice="write INTERVAL DAY TO SECOND or INTERVAL YEAR TO MONTH",
        )
    return DataType(f"interval {unit.name}".lower())


def _hollow(node: exp.DataType) -> NoReturn:
    refuse(
        "SYNTAX_ERROR",
        node,
        near="",
        reason=f"the type {node.sql(dialect='spark')} does not say what it holds",
        advice="write for example ARRAY<INT>, MAP<STRING, INT> or STRUCT<a: INT>",
    )


def _no_decimal(node: exp.DataType) -> NoReturn:
    refuse(
        "SYNTAX_ERROR",
        node,
        near="",
        reason=f"{node.sql(dialect='spark')} is no decimal type",
        advice="write DECIMAL(digits, digits after the point), with 38 digits at most",
    )
