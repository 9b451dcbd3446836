"""Expressions carried from one node's columns to another's."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.plan.expressions import Column, Expr, Named
from headrace.plan.types import Schema


def substituted(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """The expression with each named column replaced; other columns stay."""

    def change(part: Expr) -> Expr:
        return values.get(part.name, part) if isinstance(part, Column) else part

    return expr.transform(change)


def definitions(columns: tuple[Named, ...]) -> dict[str, Expr]:
    """What each column of a projection is computed from."""
    return {column.name: column.expr for column in columns}


def by_position(above: Schema, below: Schema) -> dict[str, Expr]:
    """Columns of one schema as the columns in the same places of another."""
    return {
        ours.name: Column(theirs.name, theirs.type)
        for ours, theirs in zip(above, below, strict=True)
    }


def identity(schema: Schema) -> tuple[Named, ...]:
    """A projection list that changes nothing."""
    return tuple(Named(field.name, Column(field.name, field.type)) for field in schema)
