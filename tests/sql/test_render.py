"""Rendered expressions evaluate in Spark to what the plan's expression means."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import pytest

from headrace.plan.expressions import AggregateCall, Call, Cast, Column, Expr, Literal
from headrace.plan.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    NULL,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    WINDOW,
    DataType,
    array,
)
from headrace.plan.types import decimal as decimal_type
from headrace.sql.render import spark_sql, to_sqlglot

UTC = datetime.UTC
INSTANT = datetime.datetime(2024, 2, 29, 23, 59, 59, 123457, tzinfo=UTC)
NUMBER = Column("n", BIGINT)
TEXT = Column("a.text", STRING)
WHEN = Column("ts", TIMESTAMP)


def number(value: int) -> Literal:
    return Literal(value, BIGINT)


def call(function: str, *arguments: Expr, kind: DataType = BIGINT) -> Call:
    return Call(function, arguments, kind)


ROW = {"n": 7, "a.text": "it's\\", "ts": INSTANT, "xs": [10, 20], "none": None}

NESTED_TIMES = call("*", call("+", NUMBER, number(1)), call("-", NUMBER, number(2)))
LITERALS: list[tuple[Literal, Any]] = [
    (Literal(None, NULL), None),
    (Literal(None, BIGINT), None),
    (Literal(True, BOOLEAN), True),
    (Literal(5, INT), 5),
    (Literal(-5, INT), -5),
    (Literal(5, BIGINT), 5),
    (Literal(-128, TINYINT), -128),
    (Literal(300, SMALLINT), 300),
    (Literal(2**63 - 1, BIGINT), 2**63 - 1),
    (Literal(-(2**63), BIGINT), -(2**63)),
    (Literal(0.1, DOUBLE), 0.1),
    (Literal(-1e300, DOUBLE), -1e300),
    (Literal(5e-324, DOUBLE), 5e-324),
    (Literal(math.inf, DOUBLE), math.inf),
    (Literal(-math.inf, DOUBLE), -math.inf),
    (Literal(decimal.Decimal("-12.30"), decimal_type(10, 2)), decimal.Decimal("-12.30")),
    (Literal('it\'s "a" \\ `b`\n\té %_ 日本', STRING), 'it\'s "a" \\ `b`\n\té %_ 日本'),
    (Literal("", STRING), ""),
    (Literal(b"\x00\xffa", BINARY), bytearray(b"\x00\xffa")),
    (Literal(datetime.date(2024, 2, 29), DATE), datetime.date(2024, 2, 29)),
]
CALLS: list[tuple[Expr, Any]] = [
    (NESTED_TIMES, 40),
    (call("-", NUMBER, call("-", NUMBER, number(2))), 2),
    (call("/", NUMBER, number(2), kind=DOUBLE), 3.5),
    (call("div", call("negative", NUMBER), number(2)), -3),
    (call("%", call("negative", NUMBER), number(4)), -3),
    (call("negative", call("negative", NUMBER)), 7),
    (call("negative", Literal(-5, INT), kind=INT), 5),
    (call("-", NUMBER, Literal(-(2**31), INT)), 2**31 + 7),
    (call("&", NUMBER, number(3)), 3),
    (call("|", NUMBER, number(8)), 15),
    (call("^", NUMBER, number(1)), 6),
    (call("~", NUMBER), -8),
    (call("<=>", Column("none", BIGINT), Literal(None, BIGINT), kind=BOOLEAN), True),
    (call("!=", NUMBER, number(7), kind=BOOLEAN), False),
    (
        call(
            "and",
            call("or", Literal(True, BOOLEAN), Literal(True, BOOLEAN), kind=BOOLEAN),
            Literal(False, BOOLEAN),
            kind=BOOLEAN,
        ),
        False,
    ),
    (call("not", call("isnull", NUMBER, kind=BOOLEAN), kind=BOOLEAN), True),
    (call("||", TEXT, Literal("!", STRING), kind=STRING), "it's\\!"),
    (call("like", TEXT, Literal("it_s%", STRING), kind=BOOLEAN), True),
    (call("ilike", TEXT, Literal("IT%", STRING), kind=BOOLEAN), True),
    (call("rlike", TEXT, Literal(r"t.s\\$", STRING), kind=BOOLEAN), True),
    (call("in", NUMBER, number(1), number(7), kind=BOOLEAN), True),
    (
        call(
            "case",
            call(">", NUMBER, number(9), kind=BOOLEAN),
            Literal("big", STRING),
            call(">", NUMBER, number(6), kind=BOOLEAN),
            Literal("middle", STRING),
            Literal("small", STRING),
            kind=STRING,
        ),
        "middle",
    ),
    (call("case", call(">", NUMBER, number(9), kind=BOOLEAN), NUMBER), None),
    (call("item", Column("xs", array(BIGINT)), Literal(1, INT)), 20),
    (
        call(
            "field",
            call(
                "named_struct", Literal("y z", STRING), NUMBER, kind=DataType("struct<y z:bigint>")
            ),
            Literal("y z", STRING),
        ),
        7,
    ),
    (call("upper", TEXT, kind=STRING), "IT'S\\"),
    (call("pmod", call("negative", NUMBER), number(4)), 1),
    (Cast(Literal("12", STRING), BIGINT), 12),
    (Cast(Literal("x", STRING), BIGINT, safe=True), None),
]


def test_literals_keep_value_and_type(spark: Any) -> None:
    texts = [f"{spark_sql(literal)} AS c{i}" for i, (literal, _) in enumerate(LITERALS)]
    result = spark.sql("SELECT " + ", ".join(texts))
    kinds = [field.dataType.simpleString() for field in result.schema.fields]
    assert kinds == [literal.type.name for literal, _ in LITERALS]
    assert list(result.collect()[0]) == [value for _, value in LITERALS]


def test_a_double_that_is_no_number_stays_one(spark: Any) -> None:
    (row,) = spark.sql(f"SELECT {spark_sql(Literal(math.nan, DOUBLE))} AS x").collect()
    assert math.isnan(row.x)


def test_operators_and_functions_mean_the_same(spark: Any) -> None:
    frame = _frame(spark)
    result = frame.selectExpr(*(f"{spark_sql(e)} AS c{i}" for i, (e, _) in enumerate(CALLS)))
    assert list(result.collect()[0]) == [value for _, value in CALLS]


@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns"])
def test_times_do_not_depend_on_the_time_zone(spark: Any, zone: str) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    literal = Literal(INSTANT, TIMESTAMP)
    later = call("+", literal, Literal("90 minutes", INTERVAL), kind=TIMESTAMP)
    window = call("window_time", Column("w", WINDOW), kind=TIMESTAMP)
    struct = f"named_struct('start', {spark_sql(literal)}, 'end', {spark_sql(literal)})"
    row = (
        session.sql(f"SELECT {struct} AS w")
        .selectExpr(
            f"unix_micros({spark_sql(literal)}) AS at",
            f"unix_micros({spark_sql(later)}) AS later",
            f"unix_micros({spark_sql(window)}) AS last",
        )
        .collect()[0]
    )
    micros = int(INSTANT.timestamp()) * 1_000_000 + INSTANT.microsecond
    assert tuple(row) == (micros, micros + 90 * 60 * 1_000_000, micros - 1)


def test_a_time_without_zone_is_utc() -> None:
    assert spark_sql(Literal(INSTANT.replace(tzinfo=None), TIMESTAMP)) == spark_sql(
        Literal(INSTANT, TIMESTAMP)
    )


def test_aggregates_with_distinct_and_filter(spark: Any) -> None:
    frame = spark.range(10).selectExpr("id % 3 AS n", "id AS `a.id`")
    n, key = Column("n", BIGINT), Column("a.id", BIGINT)
    calls = [
        AggregateCall("count", (), BIGINT),
        AggregateCall("count", (n,), BIGINT, distinct=True),
        AggregateCall("sum", (key,), BIGINT, filter=call("<", key, number(4), kind=BOOLEAN)),
    ]
    result = frame.selectExpr(*(f"{spark_sql(c)} AS c{i}" for i, c in enumerate(calls)))
    assert tuple(result.collect()[0]) == (10, 3, 6)


def test_columns_are_named_by_the_caller() -> None:
    from sqlglot import exp

    rendered = to_sqlglot(NUMBER, lambda name: exp.column(name, table="t"))
    assert rendered.sql(dialect="spark") == "t.n"


def _frame(spark: Any) -> Any:
    return spark.createDataFrame(
        [tuple(ROW.values())],
        "n bigint, `a.text` string, ts timestamp, xs array<bigint>, none bigint",
    )
