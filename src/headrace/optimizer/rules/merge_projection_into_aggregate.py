"""An aggregate reads what a projection below it is computed from.

    Aggregate [sum(x)] by k (Project [a.k AS k, a.v * 1.5 AS x] (Join a, b))
        →   Aggregate [sum(a.v * 1.5)] by a.k (Join a, b)

So a derived table below an aggregate is the same plan as its expressions in the aggregate. Keys and
aggregates then have the names that they have where nothing else is said, and a projection above
gives them those that the query reads.

Right for what cannot raise: a projection computes its columns for all rows, an aggregate only for
those that a FILTER or a window leaves. Refused where the time of the windows is computed, and where
an expression would be written out without bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

from headrace.optimizer.rule import Rule
from headrace.optimizer.safety import is_movable
from headrace.plan.expressions import Column, Expr, Named
from headrace.plan.nodes import (
    WINDOW_COLUMN,
    WINDOW_ID_COLUMN,
    Aggregate,
    Node,
    Project,
)
from headrace.plan.substitute import definitions, substituted
from headrace.sql.names import plan_name, unique

#: The parts that an expression may have after columns are replaced.
MOST_PARTS = 500


def merge_projection_into_aggregate(node: Node) -> Node | None:
    if not (isinstance(node, Aggregate) and isinstance(node.input, Project)):
        return None
    values = definitions(node.input.columns)
    time = values[node.time.name]
    also = [values[one.time.name] for one in node.also]
    named = (*node.keys, *node.aggregates)
    read = {name for one in named for name in one.expr.columns()}
    if not isinstance(time, Column) or not all(isinstance(one, Column) for one in also):
        return None
    if not all(is_movable(values[name]) for name in read):
        return None
    keys, aggregates = _carried(node.keys, values), _carried(node.aggregates, values)
    if any(_is_large(one.expr) for one in (*keys, *aggregates)):
        return None
    merged = replace(
        node,
        input=node.input.input,
        keys=keys,
        time=time,
        aggregates=aggregates,
        also=tuple(
            replace(one, time=own)
            for one, own in zip(node.also, also, strict=True)
            if isinstance(own, Column)
        ),
    )
    return _named_by_expressions(merged, node)


def _named_by_expressions(node: Aggregate, before: Aggregate) -> Node:
    """The aggregate with what was named as it is written named so again, and there once."""
    given = {
        one.name for one in (*before.keys, *before.aggregates) if one.name != plan_name(one.expr)
    }
    taken = {WINDOW_COLUMN, WINDOW_ID_COLUMN}
    names: dict[str, str] = {}
    written: dict[Expr, Named] = {}
    for named in (*node.keys, *node.aggregates):
        if named.expr not in written:
            own = named.name if named.name in given else plan_name(named.expr)
            name = unique(own, taken)
            taken.add(name)
            written[named.expr] = Named(name, named.expr)
        names[named.name] = written[named.expr].name
    lower = replace(
        node,
        keys=tuple(dict.fromkeys(written[named.expr] for named in node.keys)),
        aggregates=tuple(dict.fromkeys(written[named.expr] for named in node.aggregates)),
    )
    columns = tuple(
        Named(field.name, Column(names.get(field.name, field.name), field.type))
        for field in node.schema
    )
    return Project(lower, columns)


def _carried(columns: tuple[Named, ...], values: Mapping[str, Expr]) -> tuple[Named, ...]:
    return tuple(Named(column.name, substituted(column.expr, values)) for column in columns)


def _is_large(expr: Expr) -> bool:
    return sum(1 for _ in islice(expr.walk(), MOST_PARTS + 1)) > MOST_PARTS


RULE = Rule("merge_projection_into_aggregate", merge_projection_into_aggregate)
