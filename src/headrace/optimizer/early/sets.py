"""What an early aggregation below a join is made of: Rules 1 and 2 of the paper (Section 5).

Rule 1: it groups by the query's grouping attributes that its input has, and by what joins and
conditions read of it. Rule 2: it computes the query's aggregates of its input, and counts its rows
where an aggregate of another input, or a count of the joined rows, is multiplied by them.

Further than the paper: a grouping *expression* over one input is one attribute, however many
columns it reads; and an input that is not aggregated early has the same columns, one row at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.optimizer.early.shape import SCALED, AggregationJoin
from headrace.optimizer.substitute import by_position, substituted
from headrace.plan.expressions import AggregateCall, Column, Expr, Named


@dataclass(frozen=True)
class EarlySet:
    """The columns of one input's set.

    ``groups`` are its grouping attributes, named as above the join and computed from the input's
    own columns. ``measures`` are positions of the query's aggregates that it computes, with the
    call over its own columns. ``counts`` says that the number of its rows is needed.
    """

    groups: tuple[Named, ...]
    measures: tuple[tuple[int, AggregateCall], ...]
    counts: bool


@dataclass(frozen=True)
class EarlySets:
    """The sets of all inputs, and the query's groups in terms of them."""

    inputs: tuple[EarlySet, ...]
    keys: tuple[Named, ...]


def early_sets(shape: AggregationJoin) -> EarlySets:
    """What every input's set has to hold."""
    keys, computed = _grouping_attributes(shape)
    inputs = []
    for index, leaf in enumerate(shape.graph.leaves):
        own = by_position(leaf.schema, leaf.node.schema)
        names = sorted(_columns_needed(shape, keys, index))
        groups = [Named(name, own[name]) for name in names]
        groups += [
            Named(n, substituted(e, own)) for n, (owner, e) in computed.items() if owner == index
        ]
        measures = []
        for position, named in enumerate(shape.aggregates):
            if owner_of(shape, named.expr) == index:
                call = substituted(named.expr, own)
                assert isinstance(call, AggregateCall)
                measures.append((position, call))
        inputs.append(EarlySet(tuple(groups), tuple(measures), _counts(shape, index)))
    return EarlySets(tuple(inputs), keys)


def owner_of(shape: AggregationJoin, expr: Expr) -> int | None:
    """The input that an aggregate is of; None for a count of joined rows, and where it is over
    several inputs, whose columns then stay as they are."""
    owners = shape.graph.owners(expr)
    return next(iter(owners)) if len(owners) == 1 else None


def _grouping_attributes(
    shape: AggregationJoin,
) -> tuple[tuple[Named, ...], dict[str, tuple[int, Expr]]]:
    """The query's keys over attributes of the sets, and the attributes that are computed."""
    keys: list[Named] = []
    computed: dict[str, tuple[int, Expr]] = {}
    for position, key in enumerate(shape.keys):
        owners = shape.graph.owners(key.expr)
        if len(owners) != 1 or isinstance(key.expr, Column):
            keys.append(key)
            continue
        name = f"__group{position}"
        computed[name] = next(iter(owners)), key.expr
        keys.append(Named(key.name, Column(name, key.expr.type)))
    return tuple(keys), computed


def _columns_needed(shape: AggregationJoin, keys: tuple[Named, ...], index: int) -> set[str]:
    """Columns of an input that something above its set reads as they are."""
    graph = shape.graph
    readers: list[Expr] = [key.expr for key in keys]
    readers += [named.expr for named in shape.aggregates if len(graph.owners(named.expr)) > 1]
    readers += graph.predicates
    for edge in graph.keys:
        readers += [edge.left_key, edge.right_key]
    names = {name for expr in readers for name in expr.columns()}
    if shape.times[index] and shape.panes[index] is None:
        names.add(shape.times[index])
    return names & set(graph.leaves[index].schema.names)


def _counts(shape: AggregationJoin, index: int) -> bool:
    """Whether some aggregate is multiplied by the number of this input's rows."""
    for named in shape.aggregates:
        assert isinstance(named.expr, AggregateCall)
        if named.expr.function in SCALED and owner_of(shape, named.expr) != index:
            return True
    return False
