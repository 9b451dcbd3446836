"""Queries built with methods have the plans of the same queries in SQL."""

from __future__ import annotations

import datetime

import pytest

from headrace import functions as F  # noqa: N812
from headrace.builder import QueryBuilder
from headrace.errors import SqlError
from headrace.plan.nodes import Node
from headrace.sql import plan_query
from tests.sql.catalog import CATALOG


def frame(name: str) -> QueryBuilder:
    return QueryBuilder.read(name, CATALOG)


def plan(sql: str) -> Node:
    return plan_query(sql, CATALOG).plan


PAIRS = {
    "read": (lambda: frame("bids"), "SELECT * FROM bids"),
    "where text": (
        lambda: frame("bids").where("price > 5").where("name LIKE 'a%'").select("auction"),
        "SELECT auction FROM bids WHERE price > 5 AND name LIKE 'a%'",
    ),
    "where columns": (
        lambda: (
            frame("bids")
            .filter((F.col("price") > 5) & ~F.col("name").isNull() | (F.col("auction") == 3))
            .select("auction", (F.col("price") * 2 + 1).alias("p"), F.upper("name"))
        ),
        "SELECT auction, price * 2 + 1 AS p, upper(name) FROM bids "
        "WHERE (price > 5 AND name IS NOT NULL) OR auction = 3",
    ),
    "the example of the design": (
        lambda: (
            frame("bids")
            .where("price > 5")
            .groupBy("auction", F.window("ts", "1 hour"))
            .agg(F.count("*").alias("n"), F.max("price").alias("top"))
        ),
        "SELECT auction, window, count(*) AS n, max(price) AS top FROM bids WHERE price > 5 "
        "GROUP BY auction, window(ts, '1 hour')",
    ),
    "having": (
        lambda: (
            frame("bids")
            .groupBy("auction", F.window("ts", "1 hour", "10 minutes"))
            .agg(F.sum("price").alias("price"))
            .where("price > 100")
        ),
        "SELECT auction, window, sum(price) AS price FROM bids "
        "GROUP BY auction, window(ts, '1 hour', '10 minutes') HAVING sum(price) > 100",
    ),
    "several windows": (
        lambda: (
            frame("bids")
            .groupBy(F.windows(F.window("ts", "20 minutes"), F.window("ts", "1 hour")))
            .count()
        ),
        "SELECT window, window_id, count(*) AS count FROM bids "
        "GROUP BY windows(window(ts, '20 minutes'), window(ts, '1 hour'))",
    ),
    "sessions": (
        lambda: frame("bids").groupBy("auction", F.session_window("ts", "5 minutes")).avg("price"),
        "SELECT auction, session_window, avg(price) FROM bids "
        "GROUP BY auction, session_window(ts, '5 minutes')",
    ),
    "trailing": (
        lambda: frame("bids").groupBy(F.trailing("ts", "1 hour")).agg({"price": "max"}),
        "SELECT window, max(price) FROM bids GROUP BY trailing(ts, '1 hour')",
    ),
    "landmark": (
        lambda: frame("bids").groupBy("auction", F.landmark("ts")).agg("count(*) AS n"),
        "SELECT auction, count(*) AS n FROM bids GROUP BY auction, landmark(ts)",
    ),
    "aggregates": (
        lambda: (
            frame("bids")
            .groupBy(F.window("ts", "1 hour"))
            .agg(
                F.count_distinct("bidder").alias("d"),
                F.count_if(F.col("price") > 1).alias("c"),
                F.percentile("price", 0.5).alias("p"),
                F.sum("price").filter("auction = 1").alias("s"),
                (F.sum("price") / F.count("*")).alias("r"),
                F.stddev("price").alias("sd"),
            )
        ),
        "SELECT window, count(DISTINCT bidder) d, count_if(price > 1) c, percentile(price, 0.5) p, "
        "sum(price) FILTER (WHERE auction = 1) s, sum(price) / count(*) r, std(price) sd "
        "FROM bids GROUP BY window(ts, '1 hour')",
    ),
    "window join": (
        lambda: (
            frame("bids")
            .alias("b")
            .join(
                frame("auctions").alias("a"),
                "b.auction = a.id AND window(b.ts, '1 hour') = window(a.ts, '1 hour')",
                "left",
            )
            .select("b.price", "a.seller")
        ),
        "SELECT b.price, a.seller FROM bids b LEFT JOIN auctions a "
        "ON b.auction = a.id AND window(b.ts, '1 hour') = window(a.ts, '1 hour')",
    ),
    "chain of joins": (
        lambda: (
            frame("bids")
            .alias("b")
            .join(frame("auctions").alias("a"), F.col("b.auction") == F.col("a.id"))
            .join(frame("person").alias("p"), F.expr("a.seller = p.id"), "left_outer")
            .where("city = 'X'")
            .select("price", "city")
        ),
        "SELECT price, city FROM bids b JOIN auctions a ON b.auction = a.id "
        "LEFT JOIN person p ON a.seller = p.id WHERE city = 'X'",
    ),
    "using": (
        lambda: frame("bids").join(frame("clicks"), "auction").select("auction", "page"),
        "SELECT auction, page FROM bids JOIN clicks USING (auction)",
    ),
    "window of a join": (
        lambda: (
            frame("bids")
            .alias("b")
            .join(
                frame("auctions").alias("a"),
                (F.col("b.auction") == F.col("a.id"))
                & (F.window("b.ts", "1 hour") == F.window("a.ts", "1 hour")),
            )
            .groupBy("window")
            .count()
        ),
        "SELECT window, count(*) AS count FROM bids b JOIN auctions a ON b.auction = a.id "
        "AND window(b.ts, '1 hour') = window(a.ts, '1 hour') GROUP BY window",
    ),
    "filtered side of a join": (
        lambda: (
            frame("bids")
            .where("price > 5")
            .alias("b")
            .join(frame("person").alias("p"), "b.bidder = p.id")
            .select("b.price", "city")
        ),
        "SELECT b.price, city FROM (SELECT * FROM bids WHERE price > 5) b "
        "JOIN person p ON b.bidder = p.id",
    ),
    "union": (
        lambda: (
            frame("bids").select("auction", "ts").union(frame("clicks").select("auction", "ts"))
        ),
        "SELECT auction, ts FROM bids UNION ALL SELECT auction, ts FROM clicks",
    ),
    "aggregate of an aggregate": (
        lambda: (
            frame("bids")
            .groupBy("auction", F.window("ts", "1 minute"))
            .agg(F.count("*").alias("n"))
            .groupBy(F.window(F.window_time("window"), "10 minutes"))
            .agg(F.max("n").alias("m"))
        ),
        "SELECT window, max(n) AS m FROM (SELECT auction, window, count(*) AS n FROM bids "
        "GROUP BY auction, window(ts, '1 minute')) "
        "GROUP BY window(window_time(window), '10 minutes')",
    ),
    "derived columns": (
        lambda: frame("clicks").withColumn("page", F.upper("page")).drop("auction"),
        "SELECT page, ts FROM (SELECT auction, upper(page) AS page, ts FROM clicks)",
    ),
    "new column": (
        lambda: frame("clicks").withColumn("p", F.length("page")).withColumnRenamed("p", "n"),
        "SELECT auction, page, ts, p AS n FROM (SELECT *, length(page) AS p FROM clicks)",
    ),
    "constants": (
        lambda: frame("bids").select(
            F.lit(1).alias("a"),
            F.lit(-2.5).alias("b"),
            F.lit("it's").alias("c"),
            F.lit(None).alias("d"),
            F.lit(datetime.date(2024, 1, 1)).alias("e"),
            F.lit(datetime.datetime(2024, 1, 1, 2)).alias("f"),
            (F.col("ts") - datetime.timedelta(minutes=5)).alias("g"),
            F.lit(True).alias("h"),
        ),
        "SELECT 1 a, -2.5D b, 'it''s' c, NULL d, DATE '2024-01-01' e, "
        "TIMESTAMP '2024-01-01 02:00:00' f, ts - INTERVAL 5 MINUTES g, true h FROM bids",
    ),
    "methods": (
        lambda: frame("bids").select(
            F.when(F.col("price") > 1, "a").when(F.col("price") > 0, "b").otherwise("c").alias("w"),
            F.col("price").cast("int").alias("i"),
            F.col("name").isin("x", "y").alias("in"),
            F.col("price").between(1, 2).alias("bt"),
            F.col("name").startswith("a").alias("sw"),
            F.col("name").eqNullSafe("a").alias("ns"),
            F.coalesce(F.col("name"), F.lit("z")).alias("co"),
            (1 - F.col("price")).alias("m"),
            (-F.col("price")).alias("neg"),
        ),
        "SELECT CASE WHEN price > 1 THEN 'a' WHEN price > 0 THEN 'b' ELSE 'c' END w, "
        "CAST(price AS INT) i, name IN ('x', 'y') AS `in`, price BETWEEN 1 AND 2 AS bt, "
        "startswith(name, 'a') sw, name <=> 'a' ns, coalesce(name, 'z') co, 1 - price m, "
        "-price neg FROM bids",
    ),
    "window fields": (
        lambda: (
            frame("bids")
            .groupBy(F.window("ts", "1 hour").alias("w"))
            .agg(F.count("*").alias("n"))
            .select(F.col("w").getField("start").alias("s"), F.col("w.end"), "n")
        ),
        "SELECT w.start AS s, w.end, n FROM (SELECT window AS w, count(*) AS n FROM bids "
        "GROUP BY window(ts, '1 hour'))",
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_builder_and_sql_give_the_same_plan(name: str) -> None:
    build, sql = PAIRS[name]
    assert build().plan == plan(sql)


def test_columns_and_types() -> None:
    built = frame("clicks").select("auction", F.length("page").alias("n"))
    assert built.columns == ["auction", "n"]
    assert built.dtypes == [("auction", "int"), ("n", "int")]
    joined = frame("bids").alias("b").join(frame("clicks").alias("c"), "b.auction = c.auction")
    assert "c.page" in joined.columns


def test_print_schema(capsys: pytest.CaptureFixture[str]) -> None:
    frame("person").printSchema()
    assert capsys.readouterr().out == "root\n |-- id: bigint\n |-- city: string\n"


def test_a_frame_becomes_a_query_of_its_session() -> None:
    made: list[Node] = []
    QueryBuilder.read("bids", CATALOG, lambda plan, _: made.append(plan)).where("price > 5").query()
    assert made == [plan("SELECT * FROM bids WHERE price > 5")]


@pytest.mark.parametrize(
    ("build", "condition", "says"),
    [
        (lambda: frame("bid"), "UNKNOWN_RELATION", "bid"),
        (lambda: frame("bids").where("prise > 5"), "UNKNOWN_COLUMN", "prise"),
        (lambda: frame("bids").select("price +"), "SYNTAX_ERROR", "cannot be read"),
        (lambda: frame("bids").select("price, name"), "SYNTAX_ERROR", "not one expression"),
        (lambda: frame("bids").groupBy("auction").count(), "GROUP_BY_WITHOUT_WINDOW", "window"),
        (
            lambda: frame("bids").join(frame("clicks"), "auction", "sideways"),
            "INVALID_BUILDER_CALL",
            "sideways",
        ),
        (lambda: frame("bids").join(frame("clicks")), "JOIN_WITHOUT_KEY", "keys"),
        (lambda: frame("person").query(), "NO_STREAM", "person"),
        (lambda: frame("bids").query(), "INVALID_BUILDER_CALL", "no session"),
        (lambda: bool(F.col("a") == 1), "INVALID_BUILDER_CALL", "neither true nor false"),
        (lambda: F.col("a").otherwise(1), "INVALID_BUILDER_CALL", "when()"),
        (lambda: F.lit(object()), "INVALID_BUILDER_CALL", "object"),
        (lambda: frame("bids").where(5), "INVALID_BUILDER_CALL", "int is not a column"),  # type: ignore[arg-type]
        (lambda: F.col("price").cast("nonsense type"), "SYNTAX_ERROR", "not a type"),
    ],
)
def test_refusals_come_at_once(build: object, condition: str, says: str) -> None:
    assert callable(build)
    with pytest.raises(SqlError) as caught:
        build()
    assert caught.value.condition == condition
    assert says in str(caught.value)


def test_errors_point_into_the_text_of_an_expression() -> None:
    with pytest.raises(SqlError) as caught:
        frame("bids").where("price > 5 AND nam = 'x'")
    assert caught.value.position is not None
    assert (caught.value.position.line, caught.value.position.column) == (1, 15)


def test_unknown_functions_of_the_module() -> None:
    with pytest.raises(AttributeError, match="did you mean 'upper'"):
        F.uper("name")


def test_pyspark_columns_are_understood(spark: object) -> None:
    from pyspark.sql import functions as S  # noqa: N812

    built = (
        frame("bids")
        .where((S.col("price") > 5) & ~S.col("name").isNull() & S.col("auction").isin(1, 2))
        .groupBy(S.col("auction"), S.window("ts", "1 hour"))
        .agg(
            S.count("*").alias("n"),
            S.countDistinct("bidder").alias("d"),
            S.sum(S.when(S.col("price") > 7, 1).otherwise(-1)).alias("s"),
            S.max(S.upper(S.col("name"))).alias("u"),
            S.percentile("price", S.lit(0.5)).alias("p"),
            S.expr("min(price) AS lo"),
            S.avg(S.col("price").cast("decimal(10,2)")).alias("a"),
            S.count_if(S.col("name").like("a%") | (S.col("name") == "it's")).alias("c"),
        )
    )
    assert built.plan == plan(
        "SELECT auction, window, count(*) n, count(DISTINCT bidder) d, "
        "sum(CASE WHEN price > 7 THEN 1 ELSE -1 END) s, max(upper(name)) u, "
        "percentile(price, 0.5) p, min(price) AS lo, avg(CAST(price AS DECIMAL(10, 2))) a, "
        "count_if(name LIKE 'a%' OR name = 'it''s') c "
        "FROM bids WHERE price > 5 AND name IS NOT NULL AND auction IN (1, 2) "
        "GROUP BY auction, window(ts, '1 hour')"
    )
    fields = frame("bids").select(S.col("ts").alias("t"), S.lit(2.5).alias("x"), S.col("price") % 2)
    assert fields.plan == plan("SELECT ts AS t, 2.5D AS x, price % 2 FROM bids")
