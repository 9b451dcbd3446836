"""Operators that remember nothing: sources, filters, projections, unions, joins with tables."""

from __future__ import annotations

from sqlglot import exp

from headrace.definitions.definition import (
    Definition,
    Sql,
    all_of,
    apply_row_by_row,
    column,
    keep,
    met,
    one_after_the_other,
    qualify,
    select,
    sql_of,
    union_all,
)
from headrace.definitions.join_shape import key_condition
from headrace.names import storage_name
from headrace.operators.base import EpochStep, Operator
from headrace.operators.epoch import Epoch
from headrace.optimizer.safety import can_raise, key_can_raise
from headrace.plan.expressions import conjuncts
from headrace.plan.nodes import Filter, Join, Node, Project, Source, Table, Union


class SourceRows(Operator):
    """The new rows of a stream. Rows without a time are left out (and counted by the epoch)."""

    immediate = True

    def __init__(self, node: Source) -> None:
        self.node: Source = node

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return ()

    def delta(self, epoch: Epoch) -> Definition | None:
        rows = self.with_null_times(epoch)
        if rows is None:
            return None
        timed = column(self.node.time).is_(exp.Null()).not_()
        return Definition(select(rows.query, None, [timed]), self.node.schema)

    def with_null_times(self, epoch: Epoch) -> Definition | None:
        """All new rows, also those without a time, for who counts them."""
        batch = epoch.batches.get(self.node.stream)
        if batch is None:
            return None
        return Definition(
            select(epoch.inputs.bind_batch(batch), keep(self.node.schema.names)), self.node.schema
        )

    def steps(self) -> tuple[EpochStep, ...]:
        return (
            EpochStep(
                f"read {self.node.shown}", (f"columns: {', '.join(self.node.schema.names)}",)
            ),
        )


class RowByRow(Operator):
    """A filter, a projection, or a join with a static table: rows in, rows out."""

    def __init__(self, node: Filter | Project | Join, source: Operator) -> None:
        self.node: Filter | Project | Join = node
        self._source = source
        self.immediate = source.immediate

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self._source,)

    def delta(self, epoch: Epoch) -> Definition | None:
        rows = self._source.new_rows(epoch)
        return None if rows is None else apply(self.node, rows)

    def steps(self) -> tuple[EpochStep, ...]:
        match self.node:
            case Filter(predicate=predicate):
                return (EpochStep(f"keep rows where {predicate}"),)
            case Project(columns=columns):
                return (EpochStep("compute " + ", ".join(map(str, columns))),)
            case Join():
                tables = [n.shown for n in self.node.walk() if isinstance(n, Table)]
                return (EpochStep(f"join with table {', '.join(tables)}"),)


class UnionRows(Operator):
    """The rows of all parts."""

    def __init__(self, node: Union, parts: tuple[Operator, ...]) -> None:
        self.node: Union = node
        self._parts = parts
        self.immediate = all(part.immediate for part in parts)

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self._parts

    def delta(self, epoch: Epoch) -> Definition | None:
        deltas = [part.new_rows(epoch) for part in self._parts]
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
        return Definition(union_all(queries), self.node.schema) if queries else None

    def steps(self) -> tuple[EpochStep, ...]:
        return (EpochStep(f"union of {len(self._parts)} inputs"),)


def apply(node: Filter | Project | Join, rows: Definition) -> Definition:
    """One row-by-row node over the rows of its streaming input."""
    if isinstance(node, Join):
        return _join_table(node, rows)
    return apply_row_by_row(node, rows)


def may_raise(node: Filter | Project | Join) -> bool:
    """Whether a row-by-row node might stop the query for some row."""
    match node:
        case Filter(predicate=predicate):
            return can_raise(predicate)
        case Project(columns=columns):
            return any(can_raise(column.expr) for column in columns)
        case Join(keys=keys, residual=residual):
            by_key = any(key_can_raise(*pair) for pair in keys)
            return by_key or (residual is not None and can_raise(residual))


def table_view(table: str) -> str:
    """The name under which a static table stands in the engine's session."""
    return f"headrace_table_{storage_name(table)}"


def static_rows(side: Node) -> Definition:
    """Rows of a static side, which may carry filters, projections and joins of its own."""
    match side:
        case Table():
            source = exp.Select(expressions=[exp.Star()]).from_(
                exp.to_table(table_view(side.table)), copy=False
            )
            return Definition(select(source, keep(side.schema.names)), side.schema)
        case Filter() | Project():
            return apply_row_by_row(side, static_rows(side.input))
        case Join():
            return _join_sides(side, static_rows(side.left), static_rows(side.right))
        case _:
            raise AssertionError(f"{type(side).__name__} cannot be static")


def _join_table(node: Join, rows: Definition) -> Definition:
    if node.left.streams():
        return _join_sides(node, rows, static_rows(node.right))
    return _join_sides(node, static_rows(node.left), rows)


def _join_sides(node: Join, left: Definition, right: Definition) -> Definition:
    """A join as Spark does it, of two relations that are complete in themselves."""
    conditions: list[Sql] = [key_condition(a, b) for a, b in node.keys]
    ours, theirs = qualify(left, node.left_schema), qualify(right, node.right_schema)
    residual = conjuncts(node.residual)
    conditions += [sql_of(part) for part in residual if not can_raise(part)]
    last = one_after_the_other(sql_of(part) for part in residual if can_raise(part))
    if last is not None:
        ours, theirs, last = met(ours, theirs, last)
        conditions.append(last)
    query = (
        exp.Select(expressions=[exp.Star()])
        .from_(ours.subquery("l", copy=False), copy=False)
        .join(
            theirs.subquery("r", copy=False),
            on=all_of(conditions),
            join_type=node.kind.value if conditions else "cross",
            copy=False,
        )
    )
    if last is not None:
        query = select(query, keep(node.schema.names))
    return Definition(query, node.schema)
