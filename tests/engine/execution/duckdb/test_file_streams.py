"""Streams whose files tasks read: which they are, and files that are not what the stream says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace import Headrace
from headrace.engine.checkpoint.files import LocalFiles
from headrace.engine.ingest.file_streams import FileStream, is_file_stream
from tests.support.compare import spark_rows
from tests.support.engine import forced

SCHEMA = "k BIGINT, v INT, ts TIMESTAMP"
SQL = "SELECT k, sum(v) AS total FROM s GROUP BY k, window(ts, '1 minute')"
MICROS = 1_704_067_200_000_000


def table(rows: int, first: int = 0, **kinds: pa.DataType) -> pa.Table:
    """Rows a second apart; ``kinds`` are column types other than the usual ones."""
    kinds = {"k": pa.int64(), "v": pa.int32(), "ts": pa.timestamp("us", tz="UTC"), **kinds}
    times = pa.array([MICROS + (first + i) * 1_000_000 for i in range(rows)])
    columns = {
        "k": pa.array([(first + i) % 3 for i in range(rows)]),
        "v": pa.array([first + i for i in range(rows)]),
        "ts": times.cast(pa.timestamp("us", tz="UTC")),
    }
    return pa.table({name: values.cast(kinds[name]) for name, values in columns.items()})


def write(folder: Path, number: int, rows: pa.Table, **options: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{number}.parquet"
    parquet.write_table(rows, file, **options)
    os.utime(file, (1_000 + number, 1_000 + number))
    return file


def reader(spark: SparkSession, folder: Path, **options: str) -> DataFrame:
    return spark.readStream.schema(SCHEMA).options(**options).parquet(str(folder))


def run(spark: SparkSession, frame: DataFrame, place: Path) -> tuple[list[Any], dict[str, str]]:
    """The results of the query over all there is, and who computed them."""
    with forced(spark, "buckets"):
        hr = Headrace(spark, checkpoint=str(place / "state"))
    hr.stream("s", frame, time="ts", delay="0 seconds")
    hr.sql(SQL).writeStream.queryName("q").format("parquet").start(str(place / "out"))
    hr.start(availableNow=True)
    hr.awaitTermination()
    rows = spark_rows(spark.read.parquet(str(place / "out")).drop("epoch"))
    return rows, hr._engine.executor.chosen


def sums(first: int) -> list[tuple[int, int]]:
    """The results of a minute, by hand."""
    return [(k, sum(v for v in range(first, first + 60) if v % 3 == k)) for k in range(3)]


def test_which_streams_are_files(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, table(3))
    frame = reader(spark, tmp_path / "in", maxFilesPerTrigger="1")
    assert is_file_stream(frame)
    assert not is_file_stream(frame.where("v > 1"))
    assert not is_file_stream(frame.withColumn("w", frame["v"]))
    assert not is_file_stream(reader(spark, tmp_path / "in", mergeSchema="true"))
    assert not is_file_stream(spark.readStream.schema(SCHEMA).json(str(tmp_path / "in")))
    assert not is_file_stream(spark.readStream.format("rate").load())


def test_the_files_of_each_batch(spark: SparkSession, tmp_path: Path) -> None:
    """As many batches as it takes for Spark to have compacted its log twice."""
    names = [write(tmp_path / "in 1", n, table(2, 2 * n)).name for n in range(23)]
    frame = reader(spark, tmp_path / "in 1", maxFilesPerTrigger="1")
    seen: dict[int, list[str] | None] = {}
    log = tmp_path / "log"
    stream = FileStream(LocalFiles(), str(log))

    def note(batch: DataFrame, number: int) -> None:
        seen[number] = stream.files_of(number)

    query = frame.writeStream.foreachBatch(note).option("checkpointLocation", str(log))
    query.trigger(availableNow=True).start().awaitTermination()
    assert [[Path(f).name for f in seen[n] or []] for n in range(23)] == [[n] for n in names]
    assert all(Path(f).exists() for files in seen.values() for f in files or [])


@pytest.mark.parametrize(
    ("case", "rows", "options"),
    [
        ("as the stream says", table(90), {}),
        ("Spark's old format of times", table(90), {"use_deprecated_int96_timestamps": True}),
        ("times in milliseconds", table(90, ts=pa.timestamp("ms", tz="UTC")), {}),
    ],
)
def test_files_that_tasks_can_read(
    case: str, rows: pa.Table, options: dict[str, Any], spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path / "in", 0, rows, **options)
    write(tmp_path / "in", 1, table(60, 90))
    found, chosen = run(spark, reader(spark, tmp_path / "in"), tmp_path)
    # Two whole minutes are closed: seconds 0 to 59 and 60 to 119, a third of them for each key.
    wanted = [
        (k, sum(v for v in range(m, m + 60) if v % 3 == k)) for m in (0, 60) for k in range(3)
    ]
    assert sorted(found) == sorted(wanted)
    if os.environ.get("HEADRACE_TEST_EXECUTOR") != "spark":
        assert all(how.startswith("DuckDB") for how in chosen.values()), chosen


def test_a_column_that_a_file_lacks_is_null(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, table(60).drop_columns("v"))
    write(tmp_path / "in", 1, table(30, 60))
    found, _ = run(spark, reader(spark, tmp_path / "in"), tmp_path)
    assert sorted(found) == [(0, None), (1, None), (2, None)]


def test_files_of_other_types_are_read_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    """A narrower type than the stream's, which Spark widens: the results are Spark's."""
    write(tmp_path / "in", 0, table(90, k=pa.int32()))
    found, chosen = run(spark, reader(spark, tmp_path / "in"), tmp_path)
    assert sorted(found) == sums(0)
    assert any("column k is INTEGER in the files" in how for how in chosen.values()), chosen


def test_folders_that_say_something_of_the_rows_are_read_by_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path / "in" / "k=1", 0, table(90).drop_columns("k"))
    write(tmp_path / "in" / "k=2", 1, table(90).drop_columns("k"))
    found, _ = run(spark, reader(spark, tmp_path / "in"), tmp_path)
    assert sorted(found) == [(1, sum(range(60))), (2, sum(range(60)))]
