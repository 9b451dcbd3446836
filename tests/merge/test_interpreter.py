"""The interpreter that judges merged plans agrees with DuckDB, on every row and every error."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headrace.plan.expressions import Expr
from tests.merge.generate import EDGES, READINGS, SMALL, WORDS, condition, row_plan, rows, value
from tests.merge.interpreter import RAISED, Raises, given_row, runner, value_of
from tests.support.compare import assert_same_rows, plain_rows, plain_value
from tests.support.duck import comma, duck_sql, fetch, fresh, load, quote
from tests.support.oracle_batch import relation

pytestmark = pytest.mark.random


def test_expressions() -> None:
    chance = random.Random(3)
    given = rows(READINGS, EDGES, 50, chance)
    exprs = [chance.choice((value, condition))(chance, WORDS) for _ in range(400)]
    raised = 0
    with fresh() as database:
        load(database, "readings", given, READINGS.schema)
        # It would compute common parts outside of TRY, and 3 + m < 3 without the sum.
        database.execute("PRAGMA disable_optimizer")
        for batch in range(0, len(exprs), 50):
            part = exprs[batch : batch + 50]
            columns = comma(f"TRY({duck_sql(expr)})" for expr in part)
            answers = plain_rows(fetch(database, f"SELECT {columns} FROM readings"))
            for row, answer in zip(given, answers, strict=True):
                for expr, theirs in zip(part, answer, strict=True):
                    ours = _value(expr, row)
                    raised += ours == RAISED
                    assert _agree(expr, row, ours, theirs), (str(expr), row, ours, theirs)
    assert raised > 400


def _value(expr: Expr, row: dict[str, Any]) -> Any:
    try:
        return plain_value(value_of(expr, row))
    except Raises:
        return RAISED


def _agree(expr: Expr, row: dict[str, Any], ours: Any, theirs: Any) -> bool:
    """TRY gives NULL where anything raises, even what AND, OR and CASE need not look at."""
    if ours == RAISED:
        return theirs is None
    same = repr(ours) == repr(theirs)
    return same or (theirs is None and any(_value(part, row) == RAISED for part in expr.walk()))


def test_plans() -> None:
    """Filters, projections and unions, where no row raises."""
    given, checked = rows(READINGS, SMALL, 40, random.Random(5)), 0
    with fresh() as database:
        load(database, "readings", given, READINGS.schema)
        for seed in range(150):
            plan = row_plan(random.Random(seed))
            run = runner(plan)
            outcomes = [run(given_row(row)) for row in given]
            if RAISED not in outcomes:
                ours = [_untold(row) for outcome in outcomes for row in outcome]
                columns = comma(map(quote, sorted(plan.schema.names)))
                theirs = fetch(database, f"SELECT {columns} FROM ({relation(plan, database)})")
                assert_same_rows(ours, theirs, f"seed {seed}: {plan}")
                checked += 1
    assert checked > 80


def _untold(row: Any) -> tuple[Any, ...]:
    return tuple(float(v[1]) if isinstance(v, tuple) and v[0] == "double" else v for v in row)
