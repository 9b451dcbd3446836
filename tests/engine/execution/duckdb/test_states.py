"""Aggregates from states of constant size, against the same computed here from all rows.

They are compared with exact fractions, and on Spark with its own functions. The rows are random, in
parts of any size, some of them empty, with NULLs, NaN and infinities, and with means so large
against the spread that sums of squares would have no digit right. Parts are merged in one go and in
two, as windows do that share panes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from fractions import Fraction

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.definitions.definition import Sql, column
from headrace.definitions.partials import decompose
from headrace.engine.execution.duckdb.render import duckdb_expression
from headrace.plan.expressions import AggregateCall, Call, Column, Literal
from headrace.plan.types import BIGINT, BOOLEAN, DOUBLE, STRING
from headrace.sql.render import spark_sql

Row = tuple[int, float | None, float | None, bool]
X, Y, FLAG = Column("x", DOUBLE), Column("y", DOUBLE), Column("flag", BOOLEAN)


def from_states(call: AggregateCall, rows: Sequence[Row], levels: int) -> float | None:
    """The aggregate of rows by way of their parts' states."""
    parts = decompose(call)
    assert parts is not None
    (partial,) = parts.partials
    connection = duckdb.connect()
    kinds = {"part": pa.int64(), "x": pa.float64(), "y": pa.float64(), "flag": pa.bool_()}
    columns = zip(*rows, strict=True) if rows else ((),) * len(kinds)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds.values(), strict=True)]
    connection.register("rows", pa.table(dict(zip(kinds, arrays, strict=True))))
    name = f'"{partial.name}"'
    state = duckdb_expression(partial.update)
    stored = f"SELECT part, {state} AS {name} FROM rows GROUP BY part"
    merged = duckdb_expression(partial.merge(column(partial.name)))
    for _ in range(levels - 1):
        stored = f"SELECT part // 3 AS part, {merged} AS {name} FROM ({stored}) GROUP BY part // 3"
    stored = f"SELECT {merged} AS {name} FROM ({stored})"
    sql = f"SELECT {duckdb_expression(parts.finish)} FROM ({stored})"
    (found,) = connection.execute(sql).fetchall()[0]
    return None if found is None else float(found)


# --- the same from all rows, exactly -------------------------------------------------------------


def variance_of(sample: int, root: bool) -> Callable[[list[Row]], float | None]:
    def of(rows: list[Row]) -> float | None:
        values = [x for _, x, _, _ in rows if x is not None]
        if len(values) <= sample:
            return None
        if not all(map(math.isfinite, values)):
            return math.nan
        exact = [Fraction(v) for v in values]
        mean = sum(exact) / len(exact)
        result = sum((v - mean) ** 2 for v in exact) / (len(exact) - sample)
        return math.sqrt(result) if root else float(result)

    return of


def pairs_of(rows: list[Row]) -> list[tuple[float, float]]:
    return [(x, y) for _, x, y, _ in rows if x is not None and y is not None]


def comoment(rows: list[Row], one: int, other: int) -> Fraction:
    exact = [(Fraction(x), Fraction(y)) for x, y in pairs_of(rows)]
    means = [sum(pair[side] for pair in exact) / len(exact) for side in range(2)]
    return sum(
        ((p[one] - means[one]) * (p[other] - means[other]) for p in exact), start=Fraction(0)
    )


def covariance_of(sample: int) -> Callable[[list[Row]], float | None]:
    def of(rows: list[Row]) -> float | None:
        pairs = pairs_of(rows)
        if len(pairs) <= sample:
            return None
        if not all(math.isfinite(v) for pair in pairs for v in pair):
            return math.nan
        return float(comoment(rows, 0, 1) / (len(pairs) - sample))

    return of


def correlation(rows: list[Row]) -> float | None:
    pairs = pairs_of(rows)
    if len(pairs) <= 1:
        return None
    if not all(math.isfinite(v) for pair in pairs for v in pair):
        return math.nan
    squares = comoment(rows, 0, 0) * comoment(rows, 1, 1)
    return float(comoment(rows, 0, 1)) / math.sqrt(squares)


ORACLE: dict[str, Callable[[list[Row]], float | None]] = {
    "var_pop": variance_of(0, False),
    "var_samp": variance_of(1, False),
    "variance": variance_of(1, False),
    "stddev_pop": variance_of(0, True),
    "stddev_samp": variance_of(1, True),
    "stddev": variance_of(1, True),
    "std": variance_of(1, True),
    "covar_pop": covariance_of(0),
    "covar_samp": covariance_of(1),
    "corr": correlation,
}


def random_rows(seed: int) -> list[Row]:
    chance = random.Random(seed)
    center, spread = chance.choice(((0.0, 1.0), (1.0, 1e6), (1e9, 1.0), (-3e12, 1e3)))
    odd = chance.choice(((), (), (math.nan,), (math.inf,), (-math.inf, 1.0)))
    rows: list[Row] = []
    for part in range(chance.randrange(1, 12)):
        for _ in range(chance.choice((0, 1, 2, 7, 40))):
            x = None if chance.random() < 0.1 else center + spread * chance.gauss(0, 1)
            y = None if chance.random() < 0.1 else spread * chance.gauss(0, 1) + (x or 0) / 3
            rows.append((part, x, y, chance.random() < 0.7))
    for value in odd:
        rows.append((0, value, 1.0, True))
    chance.shuffle(rows)
    return rows


@pytest.mark.parametrize("name", sorted(ORACLE))
def test_moments(name: str) -> None:
    arguments = (X, Y) if name.startswith("co") else (X,)
    for seed in range(12):
        rows = random_rows(seed)
        for chosen in (None, FLAG):
            call = AggregateCall(name, arguments, DOUBLE, filter=chosen)
            kept = [row for row in rows if chosen is None or row[3]]
            wanted = ORACLE[name](kept)
            for levels in (1, 2):
                found = from_states(call, rows, levels)
                where = f"{name} of seed {seed}, {levels} levels: {found} and not {wanted}"
                if wanted is None or found is None:
                    assert found is wanted, where
                elif math.isnan(wanted):
                    assert math.isnan(found), where
                else:
                    assert found == pytest.approx(wanted, rel=1e-6, abs=1e-9), where


@pytest.mark.parametrize("name", ["corr", "covar_pop", "var_samp", "stddev_pop"])
@pytest.mark.parametrize("rows", [[], [(0, None, None, True)], [(0, None, 1.0, True)]])
def test_of_nothing_there_is_nothing(name: str, rows: list[Row]) -> None:
    call = AggregateCall(name, (X, Y) if name.startswith("co") else (X,), DOUBLE)
    assert from_states(call, rows, 1) is None


def test_what_spark_fails_for_fails() -> None:
    """A correlation with what is always the same divides by zero."""
    call = AggregateCall("corr", (X, Y), DOUBLE)
    with pytest.raises(duckdb.Error, match="division by zero"):
        from_states(call, [(0, 1.0, 2.0, True), (1, 3.0, 2.0, True)], 1)


@pytest.mark.parametrize("name", ["min_by", "max_by"])
def test_extremes_by_another_column(name: str) -> None:
    chance = random.Random(name)
    for _ in range(40):
        places = chance.sample([*range(-20, 20), math.inf, -math.inf, math.nan], 12)
        rows: list[Row] = [
            (
                chance.randrange(4),
                chance.choice((None, chance.random())),
                chance.choice((None, float(place))),
                True,
            )
            for place in places[: chance.randrange(13)]
        ]
        # NaN is the greatest, a NULL is no place, and the value of the chosen row may be NULL.
        ranked = sorted(
            (row for row in rows if row[2] is not None),
            key=lambda row: (math.isnan(row[2] or 0.0), row[2]),
        )
        wanted = ranked[0 if name == "min_by" else -1][1] if ranked else None
        for levels in (1, 2):
            assert from_states(AggregateCall(name, (X, Y), DOUBLE), rows, levels) == wanted


def test_states_are_of_constant_size() -> None:
    """What is stored of any number of rows has as many columns as of one."""
    one, other = Column("s", STRING), Column("i", BIGINT)
    calls = [
        AggregateCall("max_by", (one, other), STRING),
        *(AggregateCall(name, (X,), DOUBLE) for name in ("skewness", "kurtosis", "stddev")),
        *(AggregateCall(name, (X, Y), DOUBLE) for name in ("corr", "covar_pop", "covar_samp")),
    ]
    kinds = set()
    for call in calls:
        parts = decompose(call)
        assert parts is not None
        kinds.add(str(parts.partials[0].type))
    # Functions of the same moments share them.
    assert len(kinds) == 4
    shared = {p.name for call in calls[4:] for p in (decompose(call) or parts).partials}
    assert len(shared) == 1


def test_filters_tell_states_apart() -> None:
    some = Call(">", (X, Literal(0.0, DOUBLE)), BOOLEAN)
    plain = decompose(AggregateCall("corr", (X, Y), DOUBLE))
    chosen = decompose(AggregateCall("corr", (X, Y), DOUBLE, filter=some))
    assert plain is not None
    assert chosen is not None
    assert plain.partials != chosen.partials


# --- as Spark has them ---------------------------------------------------------------------------

BY_ONE = ("var_pop", "var_samp", "stddev_pop", "stddev_samp", "skewness", "kurtosis")
BY_TWO = ("corr", "covar_pop", "covar_samp", "min_by", "max_by")
EDGES: list[list[Row]] = [
    [],
    [(0, None, None, True)],
    [(0, 1.0, 2.0, True)],
    [(0, 1.0, 2.0, True), (1, 3.0, 5.0, False)],
    [(0, 1e200, 2.0, True), (1, -1e200, 5.0, True), (1, 0.0, 4.0, True)],
    [(0, 1e40, 2.0, True), (1, -3e40, 5.0, True), (1, 0.0, 4.0, True), (2, 1e40, 1.0, True)],
]


@pytest.mark.spark
def test_states_mean_what_sparks_own_aggregates_mean(spark: SparkSession) -> None:
    """Of the same rows, group by group; and states of Spark are those of DuckDB."""
    groups = [*EDGES, *map(random_rows, range(20))]
    listed = [(number, *row) for number, rows in enumerate(groups) for row in rows]
    schema = "g int, part bigint, x double, y double, flag boolean"
    spark.createDataFrame(listed, schema).createOrReplaceTempView("stated")
    calls = [AggregateCall(name, (X,), DOUBLE, filter=f) for name in BY_ONE for f in (None, FLAG)]
    calls += [
        AggregateCall(name, (X, Y), DOUBLE, filter=f) for name in BY_TWO for f in (None, FLAG)
    ]
    parts = [decompose(call) or pytest.fail(str(call)) for call in calls]
    states = {p.name: p for found in parts for p in found.partials}
    own = ", ".join(f"{spark_sql(call)} AS own{n}" for n, call in enumerate(calls))
    updates = ", ".join(f"{text(p.update)} AS `{name}`" for name, p in states.items())
    merges = ", ".join(f"{text(p.merge(column(n)))} AS `{n}`" for n, p in states.items())
    finishes = ", ".join(f"{text(found.finish)} AS found{n}" for n, found in enumerate(parts))
    stored = f"SELECT g, part, {updates} FROM stated GROUP BY g, part"
    halves = f"SELECT g, part div 3 AS part, {merges} FROM ({stored}) GROUP BY g, part div 3"
    merged = f"SELECT g, {merges} FROM ({halves}) GROUP BY g"
    wanted = spark.sql(f"SELECT g, {own} FROM stated GROUP BY g ORDER BY g").collect()
    actual = spark.sql(f"SELECT g, {finishes} FROM ({merged}) ORDER BY g").collect()
    for left, right in zip(wanted, actual, strict=True):
        for number, call in enumerate(calls):
            one, other = left[f"own{number}"], right[f"found{number}"]
            where = f"{call} of group {left['g']}: Spark {one}, by states {other}"
            if call.function in ("min_by", "max_by") or one is None or other is None:
                assert same(one, other), where
            elif math.isfinite(one):
                assert other == pytest.approx(one, rel=1e-6, abs=1e-9), where
            else:
                # Which of them depends on the order of the rows, in Spark itself.
                assert not math.isfinite(other), where


def same(one: float | None, other: float | None) -> bool:
    both = one is not None and other is not None
    return one == other or (both and math.isnan(one) and math.isnan(other))  # type: ignore[arg-type]


def text(sql: Sql) -> str:
    return sql.sql(dialect="spark", normalize_functions=False)
