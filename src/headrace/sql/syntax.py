"""Small pieces of sqlglot's tree, built from Python values."""

from __future__ import annotations

import decimal

from sqlglot import exp


def column_node(parts: list[str]) -> exp.Expr:
    """A column by the parts of its name: relation, column, fields."""
    identifiers = [exp.to_identifier(part, quoted=True) for part in parts]
    if parts[-1] == "*":
        return exp.Column(this=exp.Star(), table=identifiers[-2])
    keys = ("this", "table", "db", "catalog")
    node: exp.Expr = exp.Column(**dict(zip(keys, reversed(identifiers[:4]), strict=False)))
    for identifier in identifiers[4:]:
        node = exp.Dot(this=node, expression=identifier)
    return node


def constant_node(value: bool | int | float | str | decimal.Decimal | None) -> exp.Expr:
    """A constant; a Python float is a double, where SQL would read 2.5 as a decimal."""
    match value:
        case None:
            return exp.Null()
        case bool():
            return exp.Boolean(this=value)
        case str():
            return exp.Literal.string(value)
        case float():
            number = exp.Literal.number(repr(abs(value)))
            positive: exp.Expr = exp.Cast(this=number, to=exp.DataType.build("double"))
        case _:
            positive = exp.Literal.number(str(abs(value)))
    return exp.Neg(this=positive) if value < 0 else positive
