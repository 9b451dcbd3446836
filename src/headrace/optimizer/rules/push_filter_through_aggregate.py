"""A filter on group keys moves below the aggregate.

    Filter k = 1 AND n > 5 (Aggregate [count(*) AS n] by k)
        →   Filter n > 5 (Aggregate [count(*) AS n] by k (Filter k = 1))

Right for conjuncts that read keys only: all rows of a group have its key, so whole groups go, and
with them their windows and sessions. Conjuncts on ``window``, ``window_id`` and the aggregates
stay. Refused for what can raise (below it would meet rows in no window, and late ones), and for
floating-point keys, where grouping takes 0.0 and -0.0 for one key and a function may not.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.optimizer.rule import Rule
from headrace.optimizer.safety import is_movable
from headrace.plan.expressions import Expr, conjunction, conjuncts
from headrace.plan.nodes import Aggregate, Filter, Node
from headrace.plan.substitute import definitions, substituted


def push_filter_through_aggregate(node: Node) -> Node | None:
    if not (isinstance(node, Filter) and isinstance(node.input, Aggregate)):
        return None
    aggregate = node.input
    keys = {
        name: expr
        for name, expr in definitions(aggregate.keys).items()
        if not expr.type.is_fractional
    }
    pushed: list[Expr] = []
    above: list[Expr] = []
    for part in conjuncts(node.predicate):
        columns = part.columns()
        lowered = substituted(part, keys)
        if columns and columns <= set(keys) and is_movable(lowered):
            pushed.append(lowered)
        else:
            above.append(part)
    condition = conjunction(pushed)
    if condition is None:
        return None
    below = replace(aggregate, input=Filter(aggregate.input, condition))
    rest = conjunction(above)
    return Filter(below, rest) if rest is not None else below


RULE = Rule("push_filter_through_aggregate", push_filter_through_aggregate)
