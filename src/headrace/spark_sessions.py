"""DataFrames carried from one Spark session to another, with its views and settings.

A query takes its settings from the session of its DataFrame, and PySpark has no way to move one;
the plan itself can be moved. Sessions of users are never changed, so what needs other settings runs
in a session beside theirs.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession


def in_session(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """The same rows as a DataFrame of another session."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    plan = frame._jdf.queryExecution().analyzed()
    dataset = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan)
    return DataFrame(dataset, spark)
