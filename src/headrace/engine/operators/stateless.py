"""Operators that remember nothing: sources, filters, projections, unions, joins with tables."""

from __future__ import annotations

from sqlglot import exp

from headrace.engine.epoch import Epoch
from headrace.engine.operators.base import Operator, Step
from headrace.engine.relations import (
    Relation,
    Sql,
    apply_row_by_row,
    column,
    keep,
    qualify,
    select,
    sql_of,
    union_all,
)
from headrace.plan.nodes import Filter, Join, JoinKind, Project, Source, Table, Union
from headrace.plan.types import Schema


class SourceRows(Operator):
    """The new rows of a stream. Rows without a time are left out (and counted by the epoch)."""

    immediate = True

    def __init__(self, node: Source) -> None:
        self.node: Source = node

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return ()

    def delta(self, epoch: Epoch) -> Relation | None:
        batch = epoch.batches.get(self.node.stream)
        if batch is None:
            return None
        timed = column(self.node.time).is_(exp.Null()).not_()
        return Relation(
            select(batch.bind(), keep(self.node.schema.names), [timed]), self.node.schema
        )

    def steps(self) -> tuple[Step, ...]:
        return (
            Step(f"read {self.node.stream}", (f"columns: {', '.join(self.node.schema.names)}",)),
        )


class RowByRow(Operator):
    """A filter, a projection, or a join with a static table: rows in, rows out."""

    def __init__(
        self, node: Filter | Project | Join, source: Operator, table: Schema | None
    ) -> None:
        self.node: Filter | Project | Join = node
        self._source = source
        self._table = table
        self.immediate = source.immediate

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self._source,)

    def delta(self, epoch: Epoch) -> Relation | None:
        rows = self._source.delta(epoch)
        return None if rows is None else apply(self.node, rows)

    def steps(self) -> tuple[Step, ...]:
        match self.node:
            case Filter(predicate=predicate):
                return (Step(f"keep rows where {predicate}"),)
            case Project(columns=columns):
                return (Step("compute " + ", ".join(map(str, columns))),)
            case Join():
                return (Step(f"join with table {_table_of(self.node)[0].table}"),)


class UnionRows(Operator):
    """The rows of all parts."""

    def __init__(self, node: Union, parts: tuple[Operator, ...]) -> None:
        self.node: Union = node
        self._parts = parts
        self.immediate = all(part.immediate for part in parts)

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self._parts

    def delta(self, epoch: Epoch) -> Relation | None:
        deltas = [part.delta(epoch) for part in self._parts]
        queries: list[exp.Query] = [
            select(
                rows.query,
                {
                    ours.name: column(theirs.name)
                    for ours, theirs in zip(self.node.schema, rows.schema, strict=True)
                },
            )
            for rows in deltas
            if rows is not None
        ]
        return Relation(union_all(queries), self.node.schema) if queries else None

    def steps(self) -> tuple[Step, ...]:
        return (Step(f"union of {len(self._parts)} inputs"),)


def apply(node: Filter | Project | Join, rows: Relation) -> Relation:
    """One row-by-row node over the rows of its streaming input."""
    if isinstance(node, Join):
        return _join_table(node, rows)
    return apply_row_by_row(node, rows)


def table_view(table: str) -> str:
    """The name under which a static table stands in the engine's session."""
    return f"headrace_table_{table}"


def _table_of(node: Join) -> tuple[Table, bool]:
    """The static table below a join, and whether the stream is on the left."""
    stream_left = bool(node.left.streams())
    side = node.right if stream_left else node.left
    for inner in side.walk():
        if isinstance(inner, Table):
            return inner, stream_left
    raise AssertionError("a join with a table has a table")


def _static_rows(side: Table | Filter | Project) -> Relation:
    """Rows of a static side, which may carry filters and projections of its own."""
    if isinstance(side, Table):
        source = exp.Select(expressions=[exp.Star()]).from_(
            exp.to_table(table_view(side.table)), copy=False
        )
        return Relation(select(source, keep(side.schema.names)), side.schema)
    below = side.input
    assert isinstance(below, Table | Filter | Project)
    return apply_row_by_row(side, _static_rows(below))


def _join_table(node: Join, rows: Relation) -> Relation:
    _, stream_left = _table_of(node)
    side = node.right if stream_left else node.left
    assert isinstance(side, Table | Filter | Project)
    static = _static_rows(side)
    left, right = (rows, static) if stream_left else (static, rows)
    conditions: list[Sql] = [exp.EQ(this=sql_of(a), expression=sql_of(b)) for a, b in node.keys]
    if node.residual is not None:
        conditions.append(sql_of(node.residual))
    kind = {JoinKind.INNER: "inner", JoinKind.LEFT: "left", JoinKind.RIGHT: "right"}[node.kind]
    query = (
        exp.Select(expressions=[exp.Star()])
        .from_(qualify(left, node.left_schema).subquery("l", copy=False), copy=False)
        .join(
            qualify(right, node.right_schema).subquery("r", copy=False),
            on=exp.and_(*conditions, copy=False) if conditions else None,
            join_type=kind,
            copy=False,
        )
    )
    return Relation(query, node.schema)
