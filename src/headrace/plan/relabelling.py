"""A plan as what computes its rows, and what its columns are called.

Queries that mean the same compute the same rows under names and in an order of their own. The
names are the sink's business: what is below the topmost projections that compute nothing is
computed once for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plan.expressions import Column, Named
from headrace.plan.nodes import Node, Project
from headrace.plan.types import Schema


@dataclass(frozen=True)
class Relabelling:
    """What ``computes`` rows, and which of its ``columns`` a plan puts out, in the plan's order.

    ``projections`` are those that were looked through, the lowest first; without any, ``columns``
    is None, and rows come out as they are computed.
    """

    computes: Node
    columns: tuple[str, ...] | None = None
    projections: tuple[Project, ...] = ()

    def is_same(self, other: Relabelling) -> bool:
        """Whether these are the same rows of one and the same plan, whatever they are called."""
        return self.computes is other.computes and self._taken == other._taken

    @property
    def _taken(self) -> frozenset[str]:
        return frozenset(self.computes.schema.names if self.columns is None else self.columns)

    def over(self, schema: Schema) -> Node:
        """The plan that puts the columns out under the names of this schema."""
        if self.columns is None:
            return self.computes
        types = self.computes.schema
        named = zip(schema.names, self.columns, strict=True)
        return Project(
            self.computes, tuple(Named(own, Column(c, types[c].type)) for own, c in named)
        )


def relabelling(plan: Node) -> Relabelling:
    """Look through the projections on top of a plan that only name, order or leave out columns."""
    projections: list[Project] = []
    columns = plan.schema.names
    node = plan
    while isinstance(node, Project):
        below = {c.name: c.expr.name for c in node.columns if isinstance(c.expr, Column)}
        if len(below) < len(node.columns):
            break
        columns = tuple(below[name] for name in columns)
        projections.append(node)
        node = node.input
    if not projections:
        return Relabelling(plan)
    return Relabelling(node, columns, tuple(reversed(projections)))
