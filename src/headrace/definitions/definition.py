"""Relational definitions: what a physical operator computes, as a query over named inputs.

A definition is a sqlglot query, not DataFrame code, so that more than one executor can run it.
This file holds the few building blocks that operators share; columns are named as in the plan,
and names that begin with two underscores are the engine's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile

from sqlglot import exp

from headrace.optimizer.safety import can_raise
from headrace.plan.expressions import Expr, conjuncts
from headrace.plan.nodes import Filter, Join, Node, Project
from headrace.plan.types import Schema
from headrace.sql.render import data_type, to_sqlglot

Sql = exp.Expr

#: A function that numbers the rows of a task.
ROW_NUMBER = "monotonically_increasing_id"


@dataclass(frozen=True)
class Definition:
    """A query and the schema of its rows."""

    query: exp.Query
    schema: Schema


def column(name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True))


def number(value: int) -> Sql:
    """A whole number as a bigint, whatever its size."""
    return exp.Cast(
        this=exp.Literal(this=str(value), is_string=False),
        to=exp.DataType(this=exp.DataType.Type.BIGINT, nested=False),
    )


def text(value: str) -> Sql:
    return exp.Literal.string(value)


def call(name: str, *arguments: Sql) -> Sql:
    return exp.Anonymous(this=name, expressions=list(arguments))


def named(value: Sql, name: str) -> Sql:
    return exp.alias_(value, name, quoted=True, copy=False)


def struct(**fields: Sql) -> Sql:
    parts: list[Sql] = []
    for name, value in fields.items():
        parts += [text(name), value]
    return call("named_struct", *parts)


def millis(time: Sql) -> Sql:
    """A timestamp as milliseconds, rounded down: exact enough for every window boundary."""
    return call("unix_millis", time)


def micros(time: Sql) -> Sql:
    return call("unix_micros", time)


def floor_to(time: Sql, step: int, offset: int) -> Sql:
    """The last multiple of the step (plus offset) at or before a time, in integers.

    Not ``floor(time / step)``: Spark divides bigints as doubles.
    """
    return time - call("pmod", time.copy() - number(offset), number(step))


def window_struct(start: Sql, end: Sql) -> Sql:
    return struct(start=call("timestamp_millis", start), end=call("timestamp_millis", end))


def all_of(conditions: Iterable[Sql]) -> Sql | None:
    wanted = list(conditions)
    return exp.and_(*wanted, copy=False) if wanted else None


def any_of(conditions: Iterable[Sql]) -> Sql:
    return exp.or_(*conditions, copy=False)


def table(name: str) -> exp.Select:
    return exp.Select(expressions=[exp.Star()]).from_(exp.to_table(name), copy=False)


def select(
    source: exp.Query,
    columns: Mapping[str, Sql] | None,
    where: Iterable[Sql] = (),
    group_by: Iterable[Sql] = (),
) -> exp.Select:
    """``SELECT columns FROM (source) WHERE … GROUP BY …``; no columns means all of them."""
    chosen: list[Sql] = (
        [exp.Star()] if columns is None else [named(value, name) for name, value in columns.items()]
    )
    if isinstance(source, exp.Select) and _is_bare_table(source):
        query = exp.Select(expressions=chosen).from_(source.args["from_"].this.copy(), copy=False)
    else:
        query = exp.Select(expressions=chosen).from_(source.subquery(copy=False), copy=False)
    condition = all_of(where)
    if condition is not None:
        query = query.where(condition, copy=False)
    groups = list(group_by)
    if groups:
        query = query.group_by(*groups, copy=False)
    return query


def _is_bare_table(query: exp.Select) -> bool:
    """``SELECT * FROM name``, which needs no subquery around it."""
    parts = {name for name, value in query.args.items() if value}
    only_star = len(query.expressions) == 1 and isinstance(query.expressions[0], exp.Star)
    return only_star and parts == {"expressions", "from_"}


def constants(rows: list[dict[str, int]]) -> Sql:
    """Numbers as an array of structs, one per row.

    Spark writes a number into the code that it generates, but hands an array to it: what changes
    with each epoch stands in an array, so that the code need not be compiled anew. As JSON, because
    Spark parses that much faster than SQL.
    """
    fields = ", ".join(f"{name}: bigint" for name in rows[0])
    return call("from_json", text(json.dumps(rows)), text(f"array<struct<{fields}>>"))


def distributed(query: exp.Query, names: Iterable[str]) -> exp.Select:
    """The same rows, those with equal values in these columns in one task of Spark.

    What is grouped by these columns and others afterwards changes places no more.
    """
    rows = select(query, None)
    rows.set("distribute", exp.Distribute(expressions=[column(name) for name in names]))
    return rows


def held(query: exp.Query, mark: str) -> exp.Select:
    """The same rows, and a column: whatever is computed of them is computed of these rows alone.

    Spark takes a condition apart and evaluates it as far below as its columns are known, for rows
    that a join or another condition then drops. It leaves alone what asks for a column that differs
    from row to row.
    """
    numbered = select(query, None).select(named(call(ROW_NUMBER), mark), copy=False)
    return select(numbered, None, [column(mark) >= number(0)])


def met(left: exp.Query, right: exp.Query, condition: Sql) -> tuple[exp.Select, exp.Select, Sql]:
    """Two sides of a join and a condition on its pairs that Spark evaluates for pairs only."""
    sides = []
    for side, mark in ((left, "__met_left"), (right, "__met_right")):
        sides.append(select(side, None).select(named(call(ROW_NUMBER), mark), copy=False))
    both = exp.and_(
        column("__met_left") >= number(0), column("__met_right") >= number(0), copy=False
    )
    return sides[0], sides[1], _if(both, condition)


def one_after_the_other(conditions: Iterable[Sql]) -> Sql | None:
    """Conditions of which each is evaluated only where those before it hold, in every engine."""
    result: Sql | None = None
    for condition in reversed(list(conditions)):
        result = condition if result is None else _if(condition, result)
    return result


def _if(condition: Sql, then: Sql) -> Sql:
    return exp.Case(ifs=[exp.If(this=condition, true=then)], default=exp.false())


def keep(names: Iterable[str]) -> dict[str, Sql]:
    return {name: column(name) for name in names}


def union_all(queries: list[exp.Query]) -> exp.Query:
    result = queries[0]
    for query in queries[1:]:
        result = exp.Union(this=result, expression=query, distinct=False)
    return result


def apply_row_by_row(node: Filter | Project, rows: Definition) -> Definition:
    """A filter or projection over rows."""
    if isinstance(node, Filter):
        return Definition(_filtered(node, rows), node.schema)
    columns = {c.name: to_sqlglot(c.expr) for c in node.columns}
    return Definition(select(rows.query, columns), node.schema)


def _filtered(node: Filter, rows: Definition) -> exp.Select:
    certain = list(takewhile(lambda part: not can_raise(part), conjuncts(node.predicate)))
    rest = conjuncts(node.predicate)[len(certain) :]
    safely_filtered = select(rows.query, None, map(to_sqlglot, certain))
    if not rest:
        return safely_filtered
    condition = one_after_the_other(map(to_sqlglot, rest))
    assert condition is not None
    return select(held(safely_filtered, "__kept"), keep(node.schema.names), [condition])


def qualify(
    rows: Definition, join_side_schema: Schema, extra: Mapping[str, Sql] | None = None
) -> exp.Select:
    """Rename an input's columns to the names they have above a join."""
    renamed = {
        target.name: column(source.name)
        for source, target in zip(rows.schema, join_side_schema, strict=True)
    }
    return select(rows.query, {**renamed, **(extra or {})})


def null_columns(schema: Schema) -> dict[str, Sql]:
    """A NULL of the right type for each column."""
    return {f.name: exp.Cast(this=exp.Null(), to=data_type(f.type)) for f in schema}


def is_table_join(node: Node) -> bool:
    """Whether one side of a join is static, so that the join keeps no state."""
    return isinstance(node, Join) and not (node.left.streams() and node.right.streams())


def sql_of(expr: Expr) -> Sql:
    return to_sqlglot(expr)
