"""The session in which a stream's own logs are written, and that nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.engine.ingest.spark_log import KEY, WITHOUT_MODES, with_quick_log


@pytest.fixture
def numbers(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """A stream of a folder of Parquet files."""
    spark.range(3).write.parquet(str(tmp_path / "in"))
    return spark.readStream.schema("id BIGINT").parquet(str(tmp_path / "in"))


def source_session(frame: DataFrame) -> object:
    """The session by whose settings a file source writes its log."""
    plan = frame._jdf.queryExecution().analyzed()
    while plan.children().size():
        plan = plan.children().head()
    return plan.dataSource().sparkSession()


def test_logs_on_a_local_disk_are_written_without_modes(
    spark: SparkSession, numbers: DataFrame, tmp_path: Path
) -> None:
    quick = with_quick_log(numbers, str(tmp_path / "log"))
    assert quick.sparkSession.conf.get(KEY) == WITHOUT_MODES
    assert source_session(quick).conf().get(KEY) == WITHOUT_MODES  # type: ignore[attr-defined]
    assert spark.conf.get(KEY, None) is None, "the user's session is as it was"


def test_a_stream_with_a_transformation_keeps_it(numbers: DataFrame, tmp_path: Path) -> None:
    even = numbers.where("id % 2 = 0").selectExpr("id AS number")
    quick = with_quick_log(even, str(tmp_path / "log"))
    assert quick.sparkSession.conf.get(KEY) == WITHOUT_MODES
    rows: list[int] = []
    writer = quick.writeStream.foreachBatch(
        lambda batch, _: rows.extend(row.number for row in batch.collect())
    )
    writer = writer.option("checkpointLocation", str(tmp_path / "log"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(rows) == [0, 2]


def test_other_stores_and_what_a_user_has_set_stay(
    spark: SparkSession, numbers: DataFrame, tmp_path: Path
) -> None:
    assert with_quick_log(numbers, "s3a://bucket/log") is numbers
    spark.conf.set(KEY, "a.class.of.their.own")
    try:
        assert with_quick_log(numbers, str(tmp_path / "log")) is numbers
    finally:
        spark.conf.unset(KEY)
