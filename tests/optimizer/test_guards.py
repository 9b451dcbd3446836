"""Guards: where one holds, its expression does not fail, and for ordinary values it holds."""

from __future__ import annotations

import random
from collections.abc import Callable

import duckdb
import pytest

from headrace.engine.execution.duckdb.render import duckdb_expression
from headrace.optimizer.early.guards import guard
from headrace.plan.expressions import AggregateCall, Call, Cast, Column, Expr, Literal
from headrace.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, SMALLINT, STRING, DataType, decimal
from headrace.sql.render import to_sqlglot

X, Y = Column("x", BIGINT), Column("y", BIGINT)
N, M = Column("i", INT), Column("j", INT)
D = Column("d", DOUBLE)
Row = dict[str, int | float | None]


def op(sign: str, left: Expr, right: Expr, kind: DataType) -> Call:
    return Call(sign, (left, right), kind)


def fits(value: float | None, bits: int = 64) -> bool:
    return value is None or -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)


def plus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def times(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a * b


#: Expressions, and for which rows they do not fail.
CASES: list[tuple[Expr, Callable[[Row], bool]]] = [
    (op("+", X, Y, BIGINT), lambda r: fits(plus(r["x"], r["y"]))),
    (op("-", X, Y, BIGINT), lambda r: fits(plus(r["x"], times(r["y"], -1)))),
    (op("*", X, Y, BIGINT), lambda r: fits(times(r["x"], r["y"]))),
    (op("*", N, M, INT), lambda r: fits(times(r["i"], r["j"]), 32)),
    (Call("negative", (X,), BIGINT), lambda r: fits(times(r["x"], -1))),
    (Call("abs", (N,), INT), lambda r: fits(None if r["i"] is None else abs(r["i"]), 32)),
    (op("/", X, Y, DOUBLE), lambda r: r["y"] != 0),
    (op("/", X, D, DOUBLE), lambda r: r["d"] != 0),
    (op("%", N, M, INT), lambda r: r["j"] != 0),
    (op("div", X, Y, BIGINT), lambda r: r["y"] != 0 and not (r["x"] == -(2**63) and r["y"] == -1)),
    (Cast(X, INT), lambda r: fits(r["x"], 32)),
    (Cast(X, SMALLINT), lambda r: fits(r["x"], 16)),
    (Cast(D, BIGINT), lambda r: fits(r["d"])),
    (
        op("/", Literal(1, INT), op("+", X, Y, BIGINT), DOUBLE),
        lambda r: fits(plus(r["x"], r["y"])) and plus(r["x"], r["y"]) != 0,
    ),
    (
        Call("case", (op(">", Y, Literal(0, BIGINT), BOOLEAN), op("%", X, Y, BIGINT)), BIGINT),
        lambda r: r["y"] is None or r["y"] != 0,
    ),
]
EDGES = [0, 1, -1, 2, 7, 100, 2**15, 2**31 - 1, -(2**31), 2**31, 2**32, 2**62, 2**63 - 1, -(2**63)]


def rows(rng: random.Random) -> list[Row]:
    whole = [*EDGES, *(e + d for e in EDGES[6:-2] for d in (-1, 1)), None]
    small = [e for e in whole if e is None or fits(e, 32)]
    floats = [0.0, -0.0, 0.5, 3.0, 1e300, -1e300, 9.3e18, float("inf"), None]
    return [
        {
            "x": rng.choice(whole),
            "y": rng.choice(whole),
            "i": rng.choice(small),
            "j": rng.choice(small),
            "d": rng.choice(floats),
        }
        for _ in range(800)
    ]


@pytest.mark.parametrize(("expr", "right"), CASES, ids=[str(expr) for expr, _ in CASES])
def test_where_a_guard_holds_nothing_fails(expr: Expr, right: Callable[[Row], bool]) -> None:
    condition = guard(expr)
    assert condition is not None
    given = rows(random.Random(str(expr)))
    ordinary: Row = {"x": 60, "y": 7, "i": 60, "j": 7, "d": 0.5}
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (x BIGINT, y BIGINT, i INTEGER, j INTEGER, d DOUBLE)")
    everything = [*given, ordinary]
    connection.executemany(
        "INSERT INTO t VALUES (?, ?, ?, ?, ?)", [[*r.values()] for r in everything]
    )
    held = connection.execute(
        f"SELECT {duckdb_expression(to_sqlglot(condition))} FROM t"
    ).fetchall()
    holds = [value for (value,) in held]
    assert None not in holds
    for row, value in zip(everything, holds, strict=True):
        assert right(row) or not value, row
    assert holds[-1], "an ordinary row is sound"
    missed = sum(
        1 for row, value in zip(everything, holds, strict=True) if right(row) and not value
    )
    assert missed < 0.25 * len(given), "few rows are doubted that are right"


def test_what_has_no_guard() -> None:
    text = Column("s", STRING)
    unknown = Call("a_function_nobody_knows", (X,), BIGINT)
    assert guard(unknown) is None
    assert guard(op("+", X, unknown, BIGINT)) is None
    assert guard(op("+", Column("p", decimal(38, 0)), X, decimal(38, 0))) is None
    assert guard(AggregateCall("sum", (text,), DOUBLE)) is None
    assert guard(AggregateCall("sum", (Cast(text, INT),), BIGINT)) is not None
