"""Registering queries without Spark: what ``hr.sql()`` does, all but Spark's own checks."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.plan.nodes import Node, Source, Table
from headrace.registration import check_plan
from headrace.sql import plan_query


def registered(text: str, catalog: Mapping[str, Source | Table]) -> Node:
    """The plan of a query that could be started now."""
    parsed = plan_query(text, catalog)
    check_plan(parsed.plan, parsed.places)
    return parsed.plan
