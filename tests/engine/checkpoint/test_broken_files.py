"""Files that cannot be read or written: the error says which, and what is wrong with it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace import Headrace
from headrace.engine.execution.spark_errors import one_line
from headrace.engine.execution.spark_executor import write_parquet
from tests.support.script import check_error, refused

START = datetime(2024, 1, 1, tzinfo=UTC)


def parquet_file(path: Path, rows: int = 1000, values: list[object] | None = None) -> None:
    times = [START + timedelta(seconds=i) for i in range(rows)]
    table = pa.table(
        {
            "k": ["a"] * rows,
            "v": values or list(range(rows)),
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    )
    pq.write_table(table, path)


def engine_over(spark: SparkSession, folder: Path, format: str = "parquet") -> Headrace:
    hr = Headrace(spark, checkpoint=str(folder.parent / "state"))
    reader = spark.readStream.schema("k STRING, v BIGINT, ts TIMESTAMP").format(format)
    hr.stream("bids", reader.option("maxFilesPerTrigger", 1).load(str(folder)), time="ts")
    query = hr.sql("SELECT k, v FROM bids")
    query.writeStream.queryName("q").format("results").start()
    return hr


def truncated(file: Path) -> None:
    parquet_file(file)
    file.write_bytes(file.read_bytes()[:3000])


def scrambled(file: Path) -> None:
    parquet_file(file, 50_000)
    whole = bytearray(file.read_bytes())
    for place in range(4, 2000):
        whole[place] = (whole[place] * 7 + 3) % 256
    file.write_bytes(bytes(whole))


def of_other_types(file: Path) -> None:
    parquet_file(file, 1, values=["no number"])


def cut_off(file: Path) -> None:
    file.write_bytes(b"\x1f\x8b\x08\x00garbage")


@pytest.mark.parametrize(
    ("name", "format", "make", "words"),
    [
        ("truncated.parquet", "parquet", truncated, "RuntimeException: "),
        ("scrambled.parquet", "parquet", scrambled, "Exception: "),
        ("other.parquet", "parquet", of_other_types, "column [v]. Expected Spark type bigint"),
        ("cut.json.gz", "json", cut_off, "Unexpected end of input stream"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    spark: SparkSession,
    tmp_path: Path,
    name: str,
    format: str,
    make: Callable[[Path], None],
    words: str,
) -> None:
    folder = tmp_path / "bids"
    folder.mkdir()
    make(folder / name)
    hr = engine_over(spark, folder, format)
    hr.start(availableNow=True)
    error = refused(hr.awaitTermination)
    check_error(error, "STREAM_FAILED", f"bids/{name}", "cannot read", words)


def test_a_folder_that_goes_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """Spark has listed its files, and looks for them one after the other."""
    folder = tmp_path / "bids"
    folder.mkdir()
    for number in range(20):
        parquet_file(folder / f"{number}.parquet", 1)
        os.utime(folder / f"{number}.parquet", (1_700_000_000 + number,) * 2)
    hr = engine_over(spark, folder)
    hr.start()
    until = time.monotonic() + 60
    while hr.lastProgress is None:
        assert time.monotonic() < until
        time.sleep(0.02)
    shutil.rmtree(folder)
    error = refused(hr.awaitTermination)
    check_error(error, "STREAM_FAILED", "'bids' failed", f"the folder {folder} is gone")


def test_a_full_disk_is_told_with_the_file(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no device that is always full")
    (tmp_path / "part-0.parquet.tmp").symlink_to("/dev/full")
    file = str(tmp_path / "part-0.parquet")
    with pytest.raises(OSError, match="No space left") as caught:
        write_parquet(pa.table({"v": list(range(1000))}), file)
    assert file in one_line(caught.value)


def test_texts_of_spark() -> None:
    """As they come from a disk that is full, and for a file that Spark names twice."""
    full = (
        "org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to "
        "file:/data/out/_headrace/q/0000000001-b1929f47-t1. SQLSTATE: 58030\n"
        "\tat org.apache.spark.sql.Whatever(Whatever.scala:1)\n"
        "Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n"
        "\tSuppressed: java.lang.Throwable\n"
        "\tCaused by: java.io.IOException: No space left on device\n"
    )
    assert one_line(PySparkException(full)) == (
        "cannot write file:/data/out/_headrace/q/0000000001-b1929f47-t1: "
        "IOException: No space left on device"
    )
    cut = (
        "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///data/b.parquet.  "
        "SQLSTATE: KD001\nCaused by: java.lang.RuntimeException: file:/data/b.parquet is not a "
        "Parquet file\n"
    )
    assert one_line(PySparkException(cut)) == (
        "cannot read file:///data/b.parquet: RuntimeException: it is not a Parquet file"
    )
