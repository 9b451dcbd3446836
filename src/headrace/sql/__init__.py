"""SQL text to plan, without Spark.

Read in this order: ``dialect`` (text to sqlglot's tree; ``words`` and ``reading`` see to it that
nothing of it is passed over), ``query`` and ``select`` (the clauses), then what they use:
``scope``, ``joins`` with ``time_bounds``, ``where_ties`` and ``timed_order``, ``aggregates``,
``windows``, ``expressions`` and ``calls``, ``literals`` and ``volatile``, ``names``, and for types
``typing`` with ``functions_table``, ``function_rules`` and ``type_names``. ``views`` are queries
with names. ``refusals`` is the list of what is refused, and why, told with its place
(``positions``, ``places``). ``render`` is the way back, from
plan to SQL; ``syntax`` and ``spark_columns`` are small pieces of trees.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.names import folded
from headrace.plan.depth import too_deep
from headrace.plan.nodes import Node
from headrace.sql.calls import AskedFunction, FunctionTypes
from headrace.sql.dialect import parse_query
from headrace.sql.literals import Zone
from headrace.sql.places import NO_PLACES, Places
from headrace.sql.query import Catalog, Hint, QueryBinder, require_stream
from headrace.sql.refusals import refuse
from headrace.sql.views import View, names_in, with_those_below

__all__ = [
    "AskedFunction",
    "Catalog",
    "FunctionTypes",
    "Hint",
    "ParsedQuery",
    "Places",
    "View",
    "plan_query",
    "plan_view",
]


@dataclass(frozen=True)
class ParsedQuery:
    """A plan, the hints that came with it, where its parts stand in the text, and the views that
    it reads, directly or through others."""

    plan: Node
    hints: tuple[Hint, ...]
    places: Places = NO_PLACES
    views: tuple[View, ...] = ()


def plan_query(
    text: str,
    catalog: Catalog,
    function_type: FunctionTypes | None = None,
    time_zone: Zone = None,
) -> ParsedQuery:
    """The plan of a query over the streams, tables and views of the catalog.

    ``function_type`` is asked for the types of functions that Headrace does not know itself.
    ``time_zone`` is that of timestamps written without one, as Spark's session has it; or who is
    asked for it where there are any.
    """
    binder = QueryBinder(catalog, function_type, time_zone)
    try:
        tree = parse_query(text)
        plan = binder.bind(tree)
        require_stream(plan, tree)
        views = with_those_below(binder.views.values())
        return ParsedQuery(plan, tuple(binder.hints), binder.marked(plan, tree), views)
    except RecursionError:
        raise too_deep() from None


def plan_view(
    name: str,
    text: str,
    catalog: Catalog,
    function_type: FunctionTypes | None = None,
    time_zone: Zone = None,
) -> tuple[View, Places]:
    """A view of what the catalog has, and where the parts of its plan stand in its text.

    Unlike a query it may read tables alone: a query joins them with its streams.
    """
    binder = QueryBinder(catalog, function_type, time_zone)
    try:
        tree = parse_query(text)
        if folded(name) in names_in(tree):
            refuse("VIEW_CYCLE", tree, name=name, through="")
        plan = binder.bind(tree)
        return View(name, plan, text, tuple(binder.views.values())), binder.marked(plan, tree)
    except RecursionError:
        raise too_deep() from None
