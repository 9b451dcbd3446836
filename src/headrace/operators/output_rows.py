"""The rows that a query hands to its sink.

Queries that mean the same have one definition in common, whatever their columns are called. A sink
that passes on the definition and its columns is served together with the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from headrace.definitions.definition import Definition, column, select
from headrace.plan.types import Schema


@dataclass(frozen=True)
class OutputRows:
    """``columns`` of a definition's rows, in the order and under the names of the ``schema``.

    None are the definition's own.
    """

    definition: Definition
    schema: Schema
    columns: tuple[str, ...] | None = None

    @classmethod
    def of(cls, rows: Definition) -> OutputRows:
        """Rows that are called as they are."""
        return cls(rows, rows.schema)

    @property
    def query(self) -> exp.Query:
        """The rows under their own names, for whoever reads them alone."""
        return relabelled(self.definition.query, self.schema, self.columns)


def relabelled(query: exp.Query, schema: Schema, columns: tuple[str, ...] | None) -> exp.Query:
    """Columns of a query under the names of a schema."""
    if columns is None:
        return query
    return select(query, {own: column(c) for own, c in zip(schema.names, columns, strict=True)})
