"""Which queries the bucket executor can run to the end, so that an engine without a JVM can."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from headrace.engine.execution.duckdb.meanings import duckdb_type
from headrace.engine.execution.duckdb.render import duckdb_expression
from headrace.engine.execution.duckdb.untranslatable import NOT_HERE, Untranslatable
from headrace.optimizer import optimize
from headrace.plan.expressions import Expr
from headrace.plan.nodes import Aggregate, Filter, Join, Node, Project, Table
from headrace.sql.render import to_sqlglot
from tests.support.queries import Case, random_query

_TRIES = 60


def runs_in_tasks(plan: Node) -> bool:
    """Whether everything in a plan means the same in DuckDB, and all its rows are in files."""
    for node in optimize(plan).plan.walk():
        if isinstance(node, Table) or _sums_decimals_early(node):
            return False
        try:
            for expr in _expressions(node):
                if NOT_HERE in duckdb_expression(to_sqlglot(expr)):
                    # Some values have an equal in DuckDB, and rows may have others.
                    return False
            for field in node.schema:
                duckdb_type(field.type)
        except Untranslatable:
            return False
    return True


def _sums_decimals_early(node: Node) -> bool:
    """Whether an aggregate over a join may have to widen decimals, which Spark does."""
    if not isinstance(node, Aggregate) or not any(isinstance(n, Join) for n in node.input.walk()):
        return False
    arguments = [part for named in node.aggregates for part in named.expr.children]
    return any(str(argument.type).startswith("decimal") for argument in arguments)


def fitting(case: Case, chance: random.Random, weights: Mapping[str, float]) -> Case:
    """The case, if need be with another query that tasks can run: of its form, if one is found."""
    forms: Mapping[str, float] = {case.query.form: 1}
    while True:
        for _ in range(_TRIES):
            if runs_in_tasks(case.plan):
                return case
            case = replace(case, query=random_query(chance, forms))
        forms = weights


def _expressions(node: Node) -> list[Expr]:
    match node:
        case Filter(predicate=predicate):
            return [predicate]
        case Project(columns=columns):
            return [column.expr for column in columns]
        case Aggregate():
            return [named.expr for named in (*node.keys, *node.aggregates)]
        case Join():
            sides = [expr for pair in node.keys for expr in pair]
            return sides if node.residual is None else [*sides, node.residual]
        case _:
            return []
