"""Sums of bigints fail if their value does not fit, in whatever order and parts they are added."""

from __future__ import annotations

import random

import duckdb
import pytest

from headrace.definitions.definition import column
from headrace.definitions.partials import decompose, of_rows
from headrace.engine.execution.duckdb.render import duckdb_expression
from headrace.plan.expressions import AggregateCall, Column
from headrace.plan.types import BIGINT

SUM = AggregateCall("sum", (Column("x", BIGINT),), BIGINT)
EDGES = [0, 1, -1, 2**31, -(2**32), 2**62, -(2**62), 2**63 - 1, -(2**63), None]


def fits(value: int) -> bool:
    return -(2**63) <= value < 2**63


@pytest.mark.parametrize("seed", range(5))
def test_a_sum_of_parts_is_the_sum(seed: int) -> None:
    rng = random.Random(seed)
    parts = decompose(SUM)
    assert parts is not None
    updates = ", ".join(f'{duckdb_expression(p.update)} AS "{p.name}"' for p in parts.partials)
    merged = ", ".join(
        f'{duckdb_expression(p.merge(column(p.name)))} AS "{p.name}"' for p in parts.partials
    )
    finish = duckdb_expression(parts.finish)
    connection = duckdb.connect()
    failed = 0
    for _ in range(60):
        values = [rng.choice(EDGES) for _ in range(rng.randrange(1, 9))]
        connection.execute("CREATE OR REPLACE TABLE t (part INTEGER, x BIGINT)")
        connection.executemany(
            "INSERT INTO t VALUES (?, ?)", [[rng.randrange(3), v] for v in values]
        )
        known = [value for value in values if value is not None]
        total = sum(known) if known else None
        by_part = f"SELECT part, {updates} FROM t GROUP BY part"
        for query in (
            f"SELECT {finish} FROM (SELECT {merged} FROM ({by_part}))",
            f"SELECT {duckdb_expression(of_rows(SUM))} FROM t",
        ):
            if total is None or fits(total):
                assert connection.execute(query).fetchall() == [(total,)], values
            else:
                with pytest.raises(duckdb.Error, match=r"verflow|range"):
                    connection.execute(query).fetchall()
                failed += 1
    assert 10 < failed < 110
