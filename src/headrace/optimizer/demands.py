"""What a query demands of its plan, by hints and by windows of each input, and whether that is
possible.

It is asked of the optimized plan, in which filters and columns are where they will be, and the
answer is a refusal at the place where the text says so.
"""

from __future__ import annotations

from headrace.errors import PlanError, Position
from headrace.optimizer.early.shape import Declined, aggregation_join, forced_inputs
from headrace.optimizer.joins.steps import InvalidOrder, steps_of
from headrace.plan.join_graph import join_graph, topmost_joins
from headrace.plan.nodes import Aggregate, Join, Node
from headrace.sql.places import Places
from headrace.sql.refusals import refusal


def check_demands(optimized: Node, places: Places, disabled: frozenset[str]) -> None:
    """Refuse what the plan cannot do; ``disabled`` are rules that are turned off."""
    for node in dict.fromkeys(optimized.walk()):
        if isinstance(node, Aggregate):
            _check_sets(node, places.of_node(optimized, node))
    for join in topmost_joins(optimized):
        if join.order is not None:
            _check_order(join, disabled, places.of_node(optimized, join))


def _check_sets(node: Aggregate, place: Position | None) -> None:
    """Aggregates that must be computed below their join, because the query asks for it."""
    hinted = node.early not in ("", "auto", "late")
    if not node.also and not hinted:
        return
    condition = "WINDOWS_OF_INPUTS" if node.also else "IMPOSSIBLE_EARLY_AGGREGATION"
    shape = aggregation_join(node)
    if isinstance(shape, Declined):
        raise refusal(condition, place, reason=shape.reason)
    if not hinted:
        return
    try:
        forced_inputs(shape)
    except PlanError as error:
        raise refusal("IMPOSSIBLE_EARLY_AGGREGATION", place, reason=error.message) from None


def _check_order(join: Join, disabled: frozenset[str], place: Position | None) -> None:
    assert join.order is not None
    steps = steps_of(join_graph(join), join.order, disabled)
    if isinstance(steps, InvalidOrder):
        raise refusal("IMPOSSIBLE_JOIN_ORDER", place, reason=steps.reason)
