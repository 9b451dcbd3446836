"""SQL text to plan, without Spark.

Read in this order: ``dialect`` (text to sqlglot's tree; ``words`` and ``reading`` see to it that
nothing of it is passed over), ``query`` and ``select`` (the clauses), then what they use:
``scope``, ``joins`` with ``time_bounds``, ``aggregates``, ``windows``, ``expressions`` and
``calls``, ``literals`` and ``volatile``, ``names``, and for types ``typing`` with
``functions_table``, ``function_rules`` and ``type_names``. ``refusals`` is the list of what is
refused, and why, told with its place (``positions``, ``places``). ``render`` is the way back, from
plan to SQL; ``syntax`` and ``spark_columns`` are small pieces of trees.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plan.depth import too_deep
from headrace.plan.nodes import Node
from headrace.sql.calls import AskedFunction, FunctionTypes
from headrace.sql.dialect import parse_query
from headrace.sql.places import NO_PLACES, Places
from headrace.sql.query import Catalog, Hint, QueryBinder, require_stream

__all__ = [
    "AskedFunction",
    "Catalog",
    "FunctionTypes",
    "Hint",
    "ParsedQuery",
    "Places",
    "plan_query",
]


@dataclass(frozen=True)
class ParsedQuery:
    """A plan, the hints that came with it, and where its parts stand in the text."""

    plan: Node
    hints: tuple[Hint, ...]
    places: Places = NO_PLACES


def plan_query(
    text: str,
    catalog: Catalog,
    function_type: FunctionTypes | None = None,
    time_zone: str | None = None,
) -> ParsedQuery:
    """The plan of a query over the streams and tables of the catalog.

    ``function_type`` is asked for the types of functions that Headrace does not know itself.
    ``time_zone`` is that of timestamps written without one, as Spark's session has it.
    """
    binder = QueryBinder(catalog, function_type, time_zone)
    try:
        tree = parse_query(text)
        plan = binder.bind(tree)
        require_stream(plan, tree)
        return ParsedQuery(plan, tuple(binder.hints), binder.marked(plan, tree))
    except RecursionError:
        raise too_deep() from None
