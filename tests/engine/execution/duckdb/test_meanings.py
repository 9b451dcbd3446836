"""What the tables say means the same does: both engines over the same edge cases.

Every function, aggregate, cast and operator of the tables is run on values at the edges of its
types: NULLs, NaN, infinities, negative numbers, the least and the greatest, times before 1970 and
between milliseconds, texts outside of ASCII. Where Spark raises an error DuckDB must too.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from itertools import product
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from headrace.engine.execution.duckdb import meanings
from headrace.engine.execution.duckdb.meanings import duckdb_type
from headrace.engine.execution.duckdb.render import duckdb_expression
from headrace.engine.execution.duckdb.untranslatable import Untranslatable
from headrace.engine.execution.executor import ddl
from headrace.plan.expressions import AggregateCall, Call, Cast, Column, Expr, Literal
from headrace.plan.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    WINDOW,
    DataType,
    Schema,
)
from headrace.sql.render import spark_sql, to_sqlglot
from tests.support.duck import arrow_table


def moment(micros: int) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(
        microseconds=micros
    )


DECIMAL = DataType("decimal(10,2)")
NAN, INF = math.nan, math.inf
#: Values at the edges of each type. Numbers stay small enough that no product overflows; what
#: overflows has a test of its own.
EDGES: dict[DataType, list[Any]] = {
    BOOLEAN: [True, False, None],
    TINYINT: [-11, -1, 0, 3, 11, None],
    SMALLINT: [-181, -1, 0, 3, 181, None],
    INT: [-46_000, -7, -1, 0, 1, 3, 46_000, None],
    BIGINT: [-3_000_000_000, -7, -1, 0, 1, 3, 3_000_000_000, None],
    FLOAT: [-1.5, -0.0, 0.0, 1.25, NAN, INF, None],
    DOUBLE: [-1e200, -1.5, -0.0, 0.0, 0.1, 1.5, 1e15, NAN, INF, -INF, None],
    STRING: ["", "a", "A", "ab", "a b", "é", "日本", "a%", "_", "zz", "\U0001f600", None],
    DATE: [
        datetime.date(1969, 12, 31),
        datetime.date(1970, 1, 1),
        datetime.date(2024, 2, 29),
        datetime.date(9999, 12, 31),
        None,
    ],
    TIMESTAMP: [
        moment(-62_000_000_000_000_001),
        moment(-1_001),
        moment(-1),
        moment(0),
        moment(999),
        moment(1_709_210_096_123_456),
        moment(250_000_000_000_000_000),
        None,
    ],
    DECIMAL: [Decimal("-12.50"), Decimal("0.00"), Decimal("0.01"), Decimal("99999999.99"), None],
}
INTEGERS = (TINYINT, SMALLINT, INT, BIGINT)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        both_nan = left != left and right != right
        return both_nan or (left == right and math.copysign(1, left) == math.copysign(1, right))
    return type(left) is type(right) and left == right


class Engines:
    """Both engines, asked the same."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark.newSession()
        self._spark.conf.set("spark.sql.ansi.enabled", "true")
        self._spark.conf.set("spark.sql.session.timeZone", "UTC")
        self._duckdb = duckdb.connect(config={"threads": 1})
        self._duckdb.execute("SET TimeZone = 'UTC'")

    def load(self, kinds: list[DataType], rows: list[tuple[Any, ...]]) -> None:
        schema = Schema.of([(f"c{i}", kind) for i, kind in enumerate(kinds)])
        numbered = Schema.of([("row", INT), *((f.name, f.type) for f in schema)])
        named = [
            {"row": n, **dict(zip(schema.names, row, strict=True))} for n, row in enumerate(rows)
        ]
        table = arrow_table(named, numbered)
        self._spark.createDataFrame(table, ddl(numbered)).createOrReplaceTempView("edges")
        self._duckdb.register("arrow", table)
        typed = ", ".join(f"CAST({f.name} AS {duckdb_type(f.type)}) AS {f.name}" for f in numbered)
        self._duckdb.execute(f"CREATE OR REPLACE TABLE edges AS SELECT {typed} FROM arrow")

    def spark(self, expr: Expr, tail: str = "ORDER BY row") -> list[Any]:
        return (
            self._spark.sql(f"SELECT {spark_sql(expr)} AS x FROM edges {tail}")
            .toArrow()["x"]
            .to_pylist()
        )

    def duckdb(self, expr: Expr, tail: str = "ORDER BY row") -> list[Any]:
        text = f"CAST({duckdb_expression(to_sqlglot(expr))} AS {duckdb_type(expr.type)})"
        return (
            self._duckdb.sql(f"SELECT {text} AS x FROM edges {tail}")
            .to_arrow_table()["x"]
            .to_pylist()
        )

    def agree(self, exprs: list[Expr], tail: str = "ORDER BY row") -> None:
        """All expressions at once on Spark, since each query of it takes a while."""
        columns = ", ".join(f"{spark_sql(e)} AS x{n}" for n, e in enumerate(exprs))
        found = self._spark.sql(f"SELECT {columns} FROM edges {tail}").toArrow()
        rows = self._duckdb.sql("SELECT * FROM edges ORDER BY row").fetchall()
        for number, expr in enumerate(exprs):
            wanted = found[f"x{number}"].to_pylist()
            actual = self.duckdb(expr, tail)
            for row, (left, right) in enumerate(zip(wanted, actual, strict=True)):
                inputs = rows[row] if len(rows) == len(wanted) else ""
                assert same(left, right), f"{expr} of {inputs}: Spark {left!r}, DuckDB {right!r}"


@pytest.fixture(scope="module")
def engines(spark: SparkSession) -> Engines:
    return Engines(spark)


def pairs(left: DataType, right: DataType) -> list[tuple[Any, Any]]:
    return list(product(EDGES[left], EDGES[right]))


COMPARISONS = ("=", "!=", "<", "<=", ">", ">=", "<=>")
ORDERED = (BOOLEAN, *INTEGERS, FLOAT, DOUBLE, STRING, DATE, TIMESTAMP, DECIMAL)


@pytest.mark.parametrize(
    ("left", "right"),
    [*((kind, kind) for kind in ORDERED), (INT, BIGINT), (BIGINT, DOUBLE), (TINYINT, INT)],
    ids=str,
)
def test_comparisons(engines: Engines, left: DataType, right: DataType) -> None:
    engines.load([left, right], pairs(left, right))
    a, b = Column("c0", left), Column("c1", right)
    engines.agree([Call(sign, (a, b), BOOLEAN) for sign in COMPARISONS])


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        (INT, INT, INT),
        (BIGINT, BIGINT, BIGINT),
        (INT, BIGINT, BIGINT),
        (SMALLINT, INT, INT),
        (DOUBLE, DOUBLE, DOUBLE),
        (BIGINT, DOUBLE, DOUBLE),
    ],
    ids=str,
)
def test_arithmetic(engines: Engines, left: DataType, right: DataType, result: DataType) -> None:
    engines.load([left, right], pairs(left, right))
    a, b = Column("c0", left), Column("c1", right)
    signs = ["+", "-"] if BIGINT in (left, right) else ["+", "-", "*"]
    engines.agree([Call(sign, (a, b), result) for sign in signs])


@pytest.mark.parametrize("kind", [INT, BIGINT], ids=str)
def test_divisions(engines: Engines, kind: DataType) -> None:
    rows = [(a, b) for a, b in pairs(kind, kind) if b != 0]
    engines.load([kind, kind], rows)
    a, b = Column("c0", kind), Column("c1", kind)
    zero = Literal(0, INT) if kind == INT else Cast(Literal(0, INT), BIGINT)
    engines.agree(
        [
            Call("%", (a, b), kind),
            Call("div", (a, b), BIGINT),
            Call("/", (a, Literal(3, INT)), DOUBLE),
            Call(
                "/",
                (a, Call("nullif", (b, zero if kind == INT else Cast(zero, BIGINT)), kind)),
                DOUBLE,
            ),
            Call("&", (a, b), kind),
            Call("|", (a, b), kind),
            Call("negative", (a,), kind),
        ]
    )


def test_logic(engines: Engines) -> None:
    engines.load([BOOLEAN, BOOLEAN], pairs(BOOLEAN, BOOLEAN))
    a, b = Column("c0", BOOLEAN), Column("c1", BOOLEAN)
    engines.agree(
        [
            Call("and", (a, b), BOOLEAN),
            Call("or", (a, b), BOOLEAN),
            Call("not", (a,), BOOLEAN),
            Call("isnull", (a,), BOOLEAN),
            Call("case", (a, Literal(1, INT), b, Literal(2, INT)), INT),
            Call("case", (a, Literal(1, INT), Literal(3, INT)), INT),
        ]
    )


def casts() -> Iterator[tuple[DataType, DataType]]:
    for source, targets in meanings._SAFE_CASTS.items():
        for target in sorted(targets):
            yield DataType(source), DataType(target)


@pytest.mark.parametrize(("source", "target"), casts(), ids=str)
def test_casts(engines: Engines, source: DataType, target: DataType) -> None:
    engines.load([source], [(value,) for value in EDGES[source]])
    engines.agree([Cast(Column("c0", source), target)])


@pytest.mark.parametrize(("source", "target"), sorted(meanings._NARROWING), ids=str)
def test_casts_that_may_overflow(engines: Engines, source: str, target: str) -> None:
    kind = DataType(source)
    engines.load([kind], [(value,) for value in EDGES[kind] if value is None or abs(value) < 100])
    engines.agree([Cast(Column("c0", kind), DataType(target))])
    engines.load([kind], [(2_000_000_000 if source == "int" else 3_000_000_000,)])
    both_fail(engines, Cast(Column("c0", kind), DataType(target)))


def c0(kind: DataType) -> Column:
    return Column("c0", kind)


def c1(kind: DataType) -> Column:
    return Column("c1", kind)


#: Every function of the table with the types to try it on; None: tried on all types below.
FUNCTIONS: dict[str, list[tuple[tuple[Expr, ...], DataType]]] = {
    "unix_millis": [((c0(TIMESTAMP),), BIGINT)],
    "unix_micros": [((c0(TIMESTAMP),), BIGINT)],
    "timestamp_millis": [((c0(BIGINT),), TIMESTAMP)],
    "timestamp_micros": [((c0(BIGINT),), TIMESTAMP)],
    "pmod": [
        ((c0(BIGINT), Cast(Literal(7, INT), BIGINT)), BIGINT),
        ((c0(BIGINT), Call("abs", (c1(BIGINT),), BIGINT)), BIGINT),
    ],
    "named_struct": [
        (
            (
                Literal("start", STRING),
                c0(TIMESTAMP),
                Literal("end", STRING),
                c1(TIMESTAMP),
            ),
            WINDOW,
        )
    ],
    "coalesce": [((c0(k), c1(k)), k) for k in ORDERED],
    "nullif": [((c0(k), c1(k)), k) for k in (INT, STRING, DOUBLE, TIMESTAMP)],
    "if": [
        (
            (
                Call("<", (c0(k), c1(k)), BOOLEAN),
                c0(k),
                c1(k),
            ),
            k,
        )
        for k in (INT, STRING, DOUBLE)
    ],
    "least": [((c0(k), c1(k)), k) for k in (BIGINT, STRING, DATE, TIMESTAMP)],
    "greatest": [((c0(k), c1(k)), k) for k in (BIGINT, STRING, DATE, TIMESTAMP)],
    "abs": [((c0(k),), k) for k in (INT, BIGINT, DOUBLE)],
    "sqrt": [((c0(DOUBLE),), DOUBLE)],
    "length": [((c0(STRING),), INT)],
    "char_length": [((c0(STRING),), INT)],
    "concat": [((c0(STRING), c1(STRING)), STRING)],
    "isnotnull": [((c0(k),), BOOLEAN) for k in ORDERED],
    "isnan": [((c0(k),), BOOLEAN) for k in (FLOAT, DOUBLE)],
    "floor": [((c0(BIGINT),), BIGINT)],
    "shiftright": [((c0(BIGINT), Literal(32, INT)), BIGINT)],
}
# These make rows or lists, or number rows, which only the engine's own definitions do.
OF_THE_ENGINE = {"array", "explode", "monotonically_increasing_id"}


def test_every_function_is_tried() -> None:
    assert set(FUNCTIONS) | OF_THE_ENGINE == set(meanings._FUNCTIONS)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions(engines: Engines, name: str) -> None:
    by_types: dict[DataType, list[Expr]] = {}
    for arguments, result in FUNCTIONS[name]:
        kind = next(c.type for a in arguments for c in columns_of(a))
        by_types.setdefault(kind, []).append(Call(name, arguments, result))
    for kind, exprs in by_types.items():
        rows = pairs(kind, kind)
        if name == "pmod":
            rows = [(a, b) for a, b in rows if b]
        engines.load([kind, kind], rows)
        engines.agree(exprs)


def columns_of(expr: Expr) -> Iterator[Column]:
    if isinstance(expr, Column):
        yield expr
    elif isinstance(expr, Call):
        for argument in expr.arguments:
            yield from columns_of(argument)


def test_texts(engines: Engines) -> None:
    engines.load([STRING, STRING], pairs(STRING, STRING))
    a, b = Column("c0", STRING), Column("c1", STRING)
    patterns = ("a%", "%", "_", "", "%b", "é", "日_", "__")
    engines.agree(
        [
            Call("||", (a, b), STRING),
            *(Call("like", (a, Literal(pattern, STRING)), BOOLEAN) for pattern in patterns),
            Call("in", (a, Literal("a", STRING), Literal("é", STRING)), BOOLEAN),
            Call("in", (a, b, Literal("a", STRING)), BOOLEAN),
        ]
    )


def test_constants(engines: Engines) -> None:
    engines.load([INT], [(1,)])
    engines.agree(
        [
            Literal(value, kind)
            for kind, values in EDGES.items()
            for value in values
            if not (value is None and kind in (DECIMAL,))
        ]
    )


AGGREGATES: dict[str, list[tuple[DataType, DataType]]] = {
    "count": [(kind, BIGINT) for kind in ORDERED],
    "count_if": [(BOOLEAN, BIGINT)],
    "sum": [
        (TINYINT, BIGINT),
        (INT, BIGINT),
        (BIGINT, BIGINT),
        (FLOAT, DOUBLE),
        (DOUBLE, DOUBLE),
        (DECIMAL, DataType("decimal(20,2)")),
    ],
    "min": [(kind, kind) for kind in ORDERED],
    "max": [(kind, kind) for kind in ORDERED],
    "bool_and": [(BOOLEAN, BOOLEAN)],
    "every": [(BOOLEAN, BOOLEAN)],
    "bool_or": [(BOOLEAN, BOOLEAN)],
    "some": [(BOOLEAN, BOOLEAN)],
    "any": [(BOOLEAN, BOOLEAN)],
    "bit_and": [(kind, kind) for kind in INTEGERS],
    "bit_or": [(kind, kind) for kind in INTEGERS],
    "bit_xor": [(kind, kind) for kind in INTEGERS],
    "avg": [(TINYINT, DOUBLE), (INT, DOUBLE), (BIGINT, DOUBLE), (DOUBLE, DOUBLE)],
    "mean": [(INT, DOUBLE)],
    "median": [(INT, DOUBLE), (BIGINT, DOUBLE)],
    "var_pop": [(DOUBLE, DOUBLE)],
}
#: Aggregates of two columns, with the types of both.
OF_PAIRS: dict[str, list[tuple[DataType, DataType]]] = {
    "max_by": [(DOUBLE, kind) for kind in ORDERED if kind != BOOLEAN],
    "min_by": [(STRING, kind) for kind in ORDERED if kind != BOOLEAN],
}
# An estimate, which only the engine asks for, and never to show it.
ESTIMATES = {"approx_count_distinct"}
# The engines round it differently in the last digit; the tests of states compare it.
ROUNDED = {"covar_pop"}


def test_every_aggregate_is_tried() -> None:
    assert set(AGGREGATES) | OF_PAIRS.keys() | ESTIMATES | ROUNDED == set(meanings._AGGREGATES)


@pytest.mark.parametrize("name", sorted(AGGREGATES))
def test_aggregates(engines: Engines, name: str) -> None:
    for kind, result in AGGREGATES[name]:
        values = EDGES[kind]
        if kind in (DOUBLE, FLOAT) and name in ("sum", "avg", "var_pop"):
            # Sums of values far apart depend on the order in which they are added.
            values = [v for v in values if v is None or v != v or abs(v) < 1e10 or v == INF]
        a, group = Column("c0", kind), Column("c1", INT)
        # One group each: all values, NULLs alone, nothing but the first value, all but NaN.
        rows = [(v, 0) for v in values]
        rows += [(None, 1), (None, 1), (values[0], 2)]
        rows += [(v, 3) for v in values if v == v]
        engines.load([kind, INT], rows)
        exprs: list[Expr] = [AggregateCall(name, (a,), result)]
        some = Call("<", (group, Literal(2, INT)), BOOLEAN)
        exprs.append(AggregateCall(name, (a,), result, filter=some))
        if name in ("count", "min", "max"):
            exprs.append(AggregateCall(name, (a,), result, distinct=True))
        engines.agree(exprs, "GROUP BY c1 ORDER BY c1")


@pytest.mark.parametrize("name", sorted(OF_PAIRS))
def test_aggregates_of_pairs(engines: Engines, name: str) -> None:
    for value, order in OF_PAIRS[name]:
        # Places are taken once: of rows that share one either engine may take any.
        places = list(dict.fromkeys(EDGES[order]))
        values = EDGES[value]
        rows = [(values[n % len(values)], place, 0) for n, place in enumerate(places)]
        rows += [(None, place, 1) for place in places] + [(values[0], None, 2)]
        rows += [(v, places[0], 3) for v in values[:1]]
        engines.load([value, order, INT], rows)
        a, b, group = Column("c0", value), Column("c1", order), Column("c2", INT)
        some = Call("<", (group, Literal(2, INT)), BOOLEAN)
        calls: list[Expr] = [AggregateCall(name, (a, b), value, filter=f) for f in (None, some)]
        engines.agree(calls, "GROUP BY c2 ORDER BY c2")


OVERFLOWS: list[tuple[DataType, tuple[Any, Any], str]] = [
    (INT, (2**31 - 1, 1), "+"),
    (INT, (-(2**31), 1), "-"),
    (BIGINT, (2**63 - 1, 1), "+"),
    (BIGINT, (2**62, 2), "*"),
    (INT, (1, 0), "%"),
    (BIGINT, (1, 0), "div"),
]


def both_fail(engines: Engines, expr: Expr) -> None:
    with pytest.raises(Exception, match=r"(?i)overflow|zero|out of range|cast"):
        engines.spark(expr)
    with pytest.raises(duckdb.Error):
        engines.duckdb(expr)


@pytest.mark.parametrize(("kind", "values", "sign"), OVERFLOWS, ids=str)
def test_what_fails_in_spark_fails_in_duckdb(
    engines: Engines, kind: DataType, values: tuple[Any, Any], sign: str
) -> None:
    engines.load([kind, kind], [values])
    both_fail(engines, Call(sign, (Column("c0", kind), Column("c1", kind)), kind))


def test_a_sum_that_overflows_fails(engines: Engines) -> None:
    engines.load([BIGINT], [(2**63 - 1,), (1,)])
    total = AggregateCall("sum", (Column("c0", BIGINT),), BIGINT)
    with pytest.raises(Exception, match=r"(?i)overflow"):
        engines.spark(total, "")
    with pytest.raises(duckdb.Error):
        engines.duckdb(total, "")


@pytest.mark.parametrize(
    ("expr", "reason"),
    [
        (Cast(Column("x", DOUBLE), BIGINT), "a cast from double to bigint"),
        (Cast(Column("x", STRING), INT), "a cast from string to int"),
        (Call("initcap", (Column("x", STRING),), STRING), "the function initcap"),
        # What stands between is not what comes out.
        (Call("concat_ws", (Column("x", STRING),), STRING), "concat_ws of nothing"),
        (Call("/", (Column("x", INT), Column("y", INT)), DOUBLE), "the division"),
        (
            Call(
                "/",
                (Column("x", INT), Call("nullif", (Column("y", INT), Literal(5, INT)), INT)),
                DOUBLE,
            ),
            "the division",
        ),
        (
            AggregateCall("avg", (Column("x", BIGINT),), DOUBLE, distinct=True),
            "the average of different whole numbers",
        ),
        (Call("like", (Column("x", STRING), Literal("a\\%", STRING)), BOOLEAN), "LIKE"),
        (
            Call("+", (Column("x", DECIMAL), Column("y", DECIMAL)), DECIMAL),
            "arithmetic of",
        ),
        (Call("<", (Column("x", STRING), Column("y", INT)), BOOLEAN), "a comparison of int and"),
        (Column("x", DataType("map<string,int>")), "the type map"),
        (
            AggregateCall("collect_list", (Column("x", INT),), DataType("array<int>")),
            "collect_list",
        ),
    ],
    ids=lambda value: re.sub(r"\W+", " ", str(value)),
)
def test_what_differs_is_left_to_spark(expr: Expr, reason: str) -> None:
    with pytest.raises(Untranslatable, match=re.escape(reason)):
        duckdb_expression(to_sqlglot(expr))
