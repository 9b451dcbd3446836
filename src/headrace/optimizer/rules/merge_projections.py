"""Two projections in a row become one.

    Project [b + 1 AS c] (Project [upper(a) AS x, a AS b] t)   →   Project [a + 1 AS c] (t)

Right when what the lower one computes is deterministic. Refused where an expression that costs
something would be written out twice: a chain of such projections would grow without bound.
"""

from __future__ import annotations

from headrace.optimizer.rule import Rule
from headrace.optimizer.safety import is_deterministic
from headrace.plan.expressions import Column, Expr, Literal, Named
from headrace.plan.nodes import Node, Project
from headrace.plan.substitute import definitions, substituted


def merge_projections(node: Node) -> Node | None:
    match node:
        case Project(input=Project(input=below, columns=lower), columns=upper) if _is_mergeable(
            lower, upper
        ):
            values = definitions(lower)
            merged = tuple(Named(c.name, substituted(c.expr, values)) for c in upper)
            return Project(below, merged)
        case _:
            return None


def _is_mergeable(lower: tuple[Named, ...], upper: tuple[Named, ...]) -> bool:
    uses: dict[str, int] = {}
    for column in upper:
        for part in column.expr.walk():
            if isinstance(part, Column):
                uses[part.name] = uses.get(part.name, 0) + 1
    return all(
        is_deterministic(column.expr)
        and (uses.get(column.name, 0) <= 1 or _costs_nothing(column.expr))
        for column in lower
    )


def _costs_nothing(expr: Expr) -> bool:
    return isinstance(expr, Column | Literal)


RULE = Rule("merge_projections", merge_projections)
