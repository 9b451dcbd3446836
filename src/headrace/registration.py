"""What is checked when a query is registered, beside what the SQL binder refuses by itself.

A query that is registered can run: whatever the optimizer, the compiler or Spark's analyzer has
against it is said here, with its place in the text, and not by ``explain()`` or ``start()``. Only
what depends on the output mode or on a sink is left for ``start()``.
"""

from __future__ import annotations

from headrace.compiler.planning import plan_all
from headrace.engine.introspection.check import check_names
from headrace.errors import HeadraceError
from headrace.optimizer import Optimized, optimize
from headrace.optimizer.demands import check_demands
from headrace.plan.depth import check_depth
from headrace.plan.nodes import Aggregate, Join, Node, Sink
from headrace.plan.output_modes import natural_mode
from headrace.planner.live_query import LiveQuery
from headrace.sql.places import NO_PLACES, Places


def check_plan(
    plan: Node, places: Places = NO_PLACES, disabled: frozenset[str] = frozenset()
) -> Optimized:
    """The plan that runs, or raise what keeps it from that; ``disabled`` rules are turned off."""
    check_depth(plan, places.whole)
    optimized_plan = optimize(plan, disabled)
    optimized = optimized_plan.plan
    check_names(optimized, places.whole)
    check_demands(optimized, places, disabled)
    try:
        _compile(optimized)
    except HeadraceError as error:
        raise _placed(error, optimized, places) from error
    return optimized_plan


def _compile(plan: Node) -> None:
    plan_all([LiveQuery(Sink(plan, "query", "results", natural_mode(plan)), None)])


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
