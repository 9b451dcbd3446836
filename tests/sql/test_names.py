"""Columns that the user did not name have the names that Spark gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sql import plan_query
from tests.sql.catalog import CATALOG, TYPED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXPRESSIONS = [
    "i",
    "I",
    "typed.L",
    "st.x",
    "i + 1",
    "i - l * 2",
    "(i)",
    "-d",
    "i / 2",
    "i % 2",
    "i div 2",
    "s || 'x'",
    "i IN (1, 2)",
    "i IS NULL",
    "i IS NOT NULL",
    "NOT (i = 1)",
    "i <> 1",
    "i <=> 1",
    "i > 1 AND d < 2 OR b",
    "CASE WHEN i = 1 THEN 2 ELSE 3 END",
    "CASE WHEN i = 1 THEN 2 END",
    "if(i = 1, 2, 3)",
    "CAST(i AS STRING)",
    "i::double",
    "s LIKE 'a%'",
    "s RLIKE 'a'",
    "s ILIKE 'a'",
    "upper(s)",
    "coalesce(i, 2)",
    "'it''s'",
    "1.50",
    "5L",
    "true",
    "NULL",
    "~i",
    "i & 1",
    "arr[0]",
    "m['a']",
    "DATE '2024-01-01'",
    "length(upper(s))",
    "round(d, 2)",
]
AGGREGATES = [
    "count(*)",
    "count(1)",
    "count(i)",
    "count(DISTINCT i)",
    "count(DISTINCT i, s)",
    "sum(d)",
    "sum(DISTINCT i)",
    "mean(i)",
    "std(i)",
    "stddev_samp(i)",
    "var_samp(i)",
    "every(b)",
    "any(b)",
    "array_agg(i)",
    "sum(i) FILTER (WHERE i > 1)",
    "sum(i) / count(*)",
    "max(d) - min(d)",
    "median(d)",
    "count_if(i = 1)",
    "upper(max(s))",
    "window",
    "window.start",
    "window(ts, '1 hour')",
]


def _ours(expression: str, group: str = "") -> str:
    plan = plan_query(f"SELECT {expression} FROM typed {group}", CATALOG).plan
    (name,) = plan.schema.names
    return name


def test_names_are_those_of_spark(spark: SparkSession) -> None:
    columns = ", ".join(f"CAST(NULL AS {f.type}) AS {f.name}" for f in TYPED.schema)
    spark.sql(f"SELECT {columns}").createOrReplaceTempView("typed")
    group = "GROUP BY window(ts, '1 hour')"
    plain = spark.sql(f"SELECT {', '.join(EXPRESSIONS)} FROM typed").columns
    grouped = spark.sql(f"SELECT {', '.join(AGGREGATES)} FROM typed {group}").columns
    assert [_ours(text) for text in EXPRESSIONS] == plain
    assert [_ours(text, group) for text in AGGREGATES] == grouped
