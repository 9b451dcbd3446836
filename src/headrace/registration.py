"""What is checked when a query is registered, beside what the SQL binder refuses by itself.

A query that is registered can run: whatever the optimizer, the compiler or Spark's analyzer has
against it is said here, with its place in the text, and not by ``explain()`` or ``start()``. Only
what depends on the output mode or on a sink is left for ``start()``.
"""

from __future__ import annotations

from headrace.engine.compile import compile_queries
from headrace.engine.physical import LiveQuery
from headrace.errors import HeadraceError, PlanError, Position
from headrace.optimizer import optimize
from headrace.optimizer.early.shape import Declined, aggregation_join, forced_inputs
from headrace.optimizer.joins.steps import Refusal, steps_of
from headrace.plan.join_graph import join_graph, topmost_joins
from headrace.plan.nodes import Aggregate, Join, Node, Sink
from headrace.plan.output_modes import natural_mode
from headrace.sql.places import NO_PLACES, Places
from headrace.sql.refusals import refusal


def check_plan(
    plan: Node, places: Places = NO_PLACES, disabled: frozenset[str] = frozenset()
) -> None:
    """Raise what keeps a plan from running; ``disabled`` are rules that are turned off."""
    optimized = optimize(plan, disabled).plan
    for aggregate in _aggregates(optimized):
        _check_sets(aggregate, places.of_node(optimized, aggregate))
    for join in topmost_joins(optimized):
        _check_order(join, disabled, places.of_node(optimized, join))
    try:
        _compile(optimized)
    except HeadraceError as error:
        raise _placed(error, optimized, places) from error


def _aggregates(plan: Node) -> list[Aggregate]:
    return [node for node in dict.fromkeys(plan.walk()) if isinstance(node, Aggregate)]


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
    if join.order is None:
        return
    steps = steps_of(join_graph(join), join.order, disabled)
    if isinstance(steps, Refusal):
        raise refusal("IMPOSSIBLE_JOIN_ORDER", place, reason=steps.reason)


def _compile(plan: Node) -> None:
    compile_queries([LiveQuery(Sink(plan, "query", "results", natural_mode(plan)), None)])


def _placed(error: HeadraceError, plan: Node, places: Places) -> HeadraceError:
    """The error at the place of the lowest join or aggregate that cannot be compiled."""
    place = places.whole
    for node in plan.walk():
        if isinstance(node, Join | Aggregate):
            try:
                _compile(node)
            except HeadraceError:
                place = places.of_node(plan, node)
    return type(error)(error.message, hint=error.hint, position=place, condition=error.condition)
