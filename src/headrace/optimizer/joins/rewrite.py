"""An order as a plan of its own: the same rows from joins in that order.

The engine needs no such plan: its state is the same for all orders. Plain Spark and the tests'
oracle run a plan as it stands, so for them an order is one.

Paper: Window Join Reordering, Section 6.2.
"""

from __future__ import annotations

from headrace.errors import PlanError
from headrace.optimizer.joins.steps import InvalidOrder, JoinStep, steps_of
from headrace.plan.expressions import Column, Named, conjunction
from headrace.plan.join_graph import JoinGraph, join_graph, pairs_of
from headrace.plan.nodes import Join, JoinKind, Node, Order, Project


def reordered(node: Join, order: Order) -> Node:
    """The join with its inputs joined in this order; columns stay where they were."""
    graph = join_graph(node)
    steps = steps_of(graph, order)
    if isinstance(steps, InvalidOrder):
        raise PlanError(steps.reason)
    built: dict[Order, Node] = dict(enumerate(leaf.node for leaf in graph.leaves))
    for pair, step in zip(pairs_of(order), steps, strict=True):
        built[pair] = _joined(graph, step, built)
    columns = tuple(Named(f.name, Column(f.name, f.type)) for f in node.schema)
    return Project(built[order], columns)


def _joined(graph: JoinGraph, step: JoinStep, built: dict[Order, Node]) -> Join:
    first, *more = step.conditions or (None,)
    return Join(
        built[step.left],
        built[step.right],
        JoinKind.INNER,
        _alias(graph, step.left),
        _alias(graph, step.right),
        step.keys,
        first,
        conjunction(list(step.predicates)),
        also=tuple(time for time in more if time is not None),
    )


def _alias(graph: JoinGraph, side: Order) -> str | None:
    """The alias that an input gets; joins below have given theirs already."""
    if not isinstance(side, int):
        return None
    leaf = graph.leaves[side]
    return None if leaf.schema == leaf.node.schema else leaf.name
