"""How long rows live in joins without a condition on time: the ``ttl`` of their streams.

A row of a stream is alive until the watermark has passed its time by more than the stream's
``ttl``. A joined row lives as long as all rows that it is made of, so each of the times that it
carries counts; rows of an aggregate are no longer rows of a stream, and live for ever.
"""

from __future__ import annotations

from headrace.errors import PlanError
from headrace.plan.expressions import Column
from headrace.plan.nodes import Aggregate, Filter, Join, Node, Project, Sink, Source, Table, Union

#: Columns that hold the time of a row of a stream that has a ``ttl``, with it in milliseconds.
Lives = dict[str, int]


def lives(node: Node) -> Lives:
    """The columns of a node's output by which its rows expire; a row without one never does.

    >>> from headrace.plan.types import TIMESTAMP, Field, Schema
    >>> lives(Source("a", Schema((Field("ts", TIMESTAMP),)), "ts", ttl=10_000))
    {'ts': 10000}
    """
    match node:
        case Source():
            return {} if node.ttl is None else {node.time: node.ttl}
        case Table() | Aggregate():
            return {}
        case Filter() | Sink():
            return lives(node.input)
        case Project():
            below = lives(node.input)
            copies = {
                c.name: c.expr.name
                for c in node.columns
                if isinstance(c.expr, Column) and c.expr.name in below
            }
            _require_all(below, set(copies.values()))
            return {name: below[own] for name, own in copies.items()}
        case Union():
            return _lives_of_union(node)
        case Join():
            ttls: Lives = {}
            for side, schema in ((node.left, node.left_schema), (node.right, node.right_schema)):
                outer = dict(zip(side.schema.names, schema.names, strict=True))
                ttls |= {outer[name]: ttl for name, ttl in lives(side).items()}
            return ttls
        case _:
            raise PlanError(f"no life of rows is defined for {type(node).__name__}")


def _lives_of_union(node: Union) -> Lives:
    parts = [
        {part.schema.names.index(name): ttl for name, ttl in lives(part).items()}
        for part in node.parts
    ]
    if any(part != parts[0] for part in parts):
        raise PlanError(
            "a UNION ALL of streams that live for different times, under a join without a "
            "condition on time",
            hint="give the streams the same ttl, or add a condition on time to the join",
        )
    return {node.schema.names[place]: ttl for place, ttl in parts[0].items()}


def _require_all(below: Lives, handed_on: set[str]) -> None:
    missing = sorted(below.keys() - handed_on)
    if missing:
        raise PlanError(
            f"rows live for their stream's ttl, but {', '.join(missing)} is not handed on to the "
            "join that needs it",
            hint=f"select {', '.join(missing)} in the derived table",
        )
