"""Approximate counts of different values: the same sketch on every way, and as good as promised.

The sketch is written a second time here, in Python, from what docs/semantics.md says of it.
"""

from __future__ import annotations

import datetime
import hashlib
import math
import random
from collections.abc import Iterable
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from headrace.definitions.definition import column
from headrace.definitions.partials import decompose, state_of_row
from headrace.engine.execution.duckdb.render import duckdb_expression
from headrace.errors import SqlError
from headrace.optimizer import optimize
from headrace.plan.expressions import AggregateCall, Column, Literal
from headrace.plan.nodes import OutputMode, Source, Table
from headrace.plan.types import BIGINT, DOUBLE, STRING, TIMESTAMP, DataType, Schema
from headrace.sql import plan_query
from tests.support.engine import run_engine, task_executor
from tests.support.streams import Row


def estimated(values: Iterable[object], bits: int = 9) -> int:
    """About how many different values these are."""
    registers = [0] * (1 << bits)
    for value in values:
        hashed = int(hashlib.md5(str(value).encode()).hexdigest()[:15], 16)
        rest = hashed >> bits
        zeros = (rest & -rest).bit_length() - 1 if rest else 60 - bits
        registers[hashed % len(registers)] = max(registers[hashed % len(registers)], zeros + 1)
    empty = registers.count(0)
    if empty == len(registers):
        return 0
    power, share, sigma = 1.0, empty / len(registers), empty / len(registers)
    for _ in range(24):
        share *= share
        sigma += share * power
        power *= 2
    hit = sum(2.0**-run for run in registers if run)
    count = len(registers)
    return math.floor(count * count / (2 * math.log(2)) / (count * sigma + hit) + 0.5)


def sketch(kind: DataType, *more: Literal) -> AggregateCall:
    return AggregateCall("approx_count_distinct", (Column("x", kind), *more), BIGINT)


@pytest.mark.parametrize("bits", [9, 12])
@pytest.mark.parametrize("count", [0, 1, 7, 60, 400, 1500, 20_000])
def test_the_count_is_as_good_as_promised(bits: int, count: int) -> None:
    """Within four standard errors, at sizes where other estimators are out."""
    error = 1.04 / math.sqrt(1 << bits)
    found = estimated((f"value {n}" for n in range(count)), bits)
    assert abs(found - count) <= max(1.0, 4 * error * count)


def duckdb_counts(call: AggregateCall, values: list[object], kind: str) -> list[int]:
    """At once, by states of parts, and by states of rows."""
    parts = decompose(call)
    assert parts is not None
    (partial,) = parts.partials
    state, row = duckdb_expression(partial.update), duckdb_expression(state_of_row(partial))
    merged, finish = duckdb_expression(partial.merge(column(partial.name))), parts.finish
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE t (part INTEGER, x {kind})")
    if values:
        listed = [[n % 7, value] for n, value in enumerate(values)]
        connection.executemany("INSERT INTO t VALUES (?, ?)", listed)
    name, counted = f'"{partial.name}"', duckdb_expression(finish)
    return [
        connection.execute(f"SELECT {counted} FROM ({states})").fetchall()[0][0]
        for states in (
            f"SELECT {state} AS {name} FROM t",
            f"SELECT {merged} AS {name} FROM (SELECT {state} AS {name} FROM t GROUP BY part)",
            f"SELECT {merged} AS {name} FROM (SELECT {row} AS {name} FROM t)",
        )
    ]


def test_parts_and_rows_make_the_same_sketch() -> None:
    chance = random.Random(5)
    for count in (0, 1, 30, 900):
        numbers: list[object] = [chance.randrange(count * 2 or 1) for _ in range(count)] + [None]
        known = [number for number in numbers if number is not None]
        assert duckdb_counts(sketch(BIGINT), numbers, "BIGINT") == [estimated(known)] * 3
        texts: list[object] = [f"ü {number}" for number in known]
        assert duckdb_counts(sketch(STRING), texts, "VARCHAR") == [estimated(texts)] * 3
        finer = sketch(BIGINT, Literal(0.02, DOUBLE))
        assert duckdb_counts(finer, numbers, "BIGINT") == [estimated(known, 12)] * 3


def test_spark_makes_the_same_sketch(spark: SparkSession) -> None:
    numbers = [n * 7919 % 1000 for n in range(1500)]
    rows = spark.createDataFrame(
        [(n % 5, n, f"ü{n}", n / 4) for n in numbers], "p int, x bigint, s string, d double"
    )
    rows.createOrReplaceTempView("sketched")
    for kind, name, texts in (
        (BIGINT, "x", numbers),
        (STRING, "s", [f"ü{n}" for n in numbers]),
        (DOUBLE, "d", [n / 4 for n in numbers]),
    ):
        call = AggregateCall("approx_count_distinct", (Column(name, kind),), BIGINT)
        parts = decompose(call)
        assert parts is not None
        (partial,) = parts.partials
        update, merged, finish, row = (
            part.sql(dialect="spark", normalize_functions=False)
            for part in (
                partial.update,
                partial.merge(column(partial.name)),
                parts.finish,
                state_of_row(partial),
            )
        )
        by_part = f"SELECT {update} AS {partial.name} FROM sketched GROUP BY p"
        by_row = f"SELECT {row} AS {partial.name} FROM sketched"
        for states in (by_part, by_row):
            merging = f"SELECT {merged} AS {partial.name} FROM ({states})"
            counted = spark.sql(f"SELECT {finish} FROM ({merging})").collect()[0][0]
            assert counted == estimated(texts), (name, states)


BEGIN = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
FIELDS = [("k", BIGINT), ("x", BIGINT), ("s", STRING), ("ts", TIMESTAMP)]
CATALOG: dict[str, Source | Table] = {
    name: Source(name, Schema.of(FIELDS), "ts") for name in ("a", "b")
}


def stream_rows(chance: random.Random, epoch: int) -> list[Row]:
    def row(second: float) -> Row:
        number = chance.randrange(300)
        x = None if chance.random() < 0.1 else number
        ts = BEGIN + datetime.timedelta(seconds=second)
        return {"k": chance.randrange(3), "x": x, "s": f"é{number}", "ts": ts}

    return [row(15 * epoch + index / 20) for index in range(300)]


def test_panes_windows_and_joins_make_the_same_sketch(tmp_path: Path) -> None:
    """From panes, from rows beside a median, and before and after a join."""
    texts = {
        "panes": "approx_count_distinct(x) AS n FROM a "
        "GROUP BY k, window(ts, '30 seconds', '10 seconds')",
        "rows": "approx_count_distinct(x) AS n, median(x) AS m FROM a "
        "GROUP BY k, window(ts, '30 seconds', '10 seconds')",
        "trailing": "approx_count_distinct(x) AS n FROM a GROUP BY k, trailing(ts, '30 seconds')",
    }
    pairs = (
        "a.k, window, approx_count_distinct(a.x) AS n, approx_count_distinct(b.s) AS m "
        "FROM a JOIN b ON a.k = b.k AND window(a.ts, '15 seconds') = window(b.ts, '15 seconds') "
        "GROUP BY a.k, window(a.ts, '30 seconds')"
    )
    for hint in ("LATE_AGGREGATION", "EARLY_AGGREGATION()", "EARLY_AGGREGATION(a, b)"):
        texts[hint] = f"/*+ {hint} */ {pairs}"
    queries = {
        name: (
            optimize(
                plan_query(f"SELECT {'' if '+' in text else 'k, window, '}{text}", CATALOG).plan
            ).plan,
            OutputMode.APPEND,
        )
        for name, text in texts.items()
    }
    chance = random.Random(11)
    epochs = [{name: stream_rows(chance, epoch) for name in ("a", "b")} for epoch in range(4)]
    run = run_engine(
        task_executor(),
        queries,
        CATALOG,
        epochs,
        {},
        tmp_path,
        restart_after=frozenset({1}),
        as_given=frozenset(queries),
    )
    rows = {name: [row for epoch in epochs for row in epoch[name]] for name in ("a", "b")}

    def within(name: str, k: int, begin: datetime.datetime, end: datetime.datetime) -> list[Row]:
        return [r for r in rows[name] if r["k"] == k and begin <= r["ts"] < end]

    def counted(some: list[Row], name: str) -> int:
        return estimated(r[name] for r in some if r[name] is not None)

    compared = 0
    for name in texts:
        for k, window, n, *more in (row for epoch in run.rows[name] for row in epoch):
            begin, end = (t.replace(tzinfo=datetime.UTC) for t in window)
            assert n == counted(within("a", k, begin, end), "x"), name
            if "AGGREGATION" in name:
                assert more == [counted(within("b", k, begin, end), "s")]
            compared += 1
    assert compared > 40
    plain = [
        sorted(str(row) for epoch in run.rows[name] for row in epoch)
        for name in texts
        if "AGGREGATION" in name
    ]
    assert plain[0] == plain[1] == plain[2] != []


@pytest.mark.parametrize("error", ["0.001", "0.5", "1 / 100", "x", "'a'", "NULL"])
def test_an_error_that_cannot_be_kept_is_refused(error: str) -> None:
    sql = f"SELECT approx_count_distinct(x, {error}) FROM a GROUP BY window(ts, '1 second')"
    with pytest.raises(SqlError, match=r"from 0\.0044 to 0\.39"):
        plan_query(sql, CATALOG)


def test_the_usual_error_is_none() -> None:
    plans = [
        plan_query(f"SELECT {call} AS n FROM a GROUP BY window(ts, '1 second')", CATALOG).plan
        for call in ("approx_count_distinct(x)", "approx_count_distinct(x, 0.05)")
    ]
    assert plans[0] == plans[1]
