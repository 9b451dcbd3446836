"""The processes of the tests on an object store, each with a Spark that can read it.

python -m tests.engine.object_store_child files ENDPOINT FOLDER   tries file operations
python -m tests.engine.object_store_child run ENDPOINT FOLDER     runs a query; dies where told
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from pyspark.sql import SparkSession

from headrace import Headrace
from headrace.engine.hadoop_files import HadoopFiles
from headrace.errors import CheckpointError
from tests.support.stage import QUICK

#: The connector of the Hadoop release that this Spark is built with.
CONNECTOR = "org.apache.hadoop:hadoop-aws:3.5.0"
BUCKET = "s3a://bucket"
ROWS = "SELECT k, v, ts FROM bids"
TOTALS = "SELECT k, SUM(v) AS total FROM bids GROUP BY k, landmark(ts)"


def spark_on(endpoint: str, folder: Path) -> SparkSession:
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars.packages", CONNECTOR)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(folder))
        .config("spark.hadoop.fs.s3a.endpoint", endpoint)
        .config("spark.hadoop.fs.s3a.endpoint.region", "us-east-1")
        .config("spark.hadoop.fs.s3a.path.style.access", "true")
        .config("spark.hadoop.fs.s3a.connection.ssl.enabled", "false")
        .config("spark.hadoop.fs.s3a.access.key", "test")
        .config("spark.hadoop.fs.s3a.secret.key", "test")
        .config("spark.hadoop.fs.s3a.attempts.maximum", "3")
    )
    cache = os.environ.get("HEADRACE_TEST_IVY")
    if cache:
        builder = builder.config("spark.jars.ivy", cache)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def try_files(spark: SparkSession) -> dict[str, object]:
    files = HadoopFiles(spark, BUCKET)
    place = f"{BUCKET}/files"
    answers: dict[str, object] = {
        "first": files.create(f"{place}/one", "first"),
        "second": files.create(f"{place}/one", "second"),
        "the same again": files.create(f"{place}/one", "first"),
        "read": files.read(f"{place}/one"),
    }
    winners: list[str] = []

    def race(name: str) -> None:
        if files.create(f"{place}/contested", name):
            winners.append(name)

    threads = [threading.Thread(target=race, args=(str(i),)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers["winners"] = [winners == [files.read(f"{place}/contested")], len(winners)]
    files.write(f"{place}/two", "2")
    files.write(f"{place}/two", "22")
    answers["overwritten"] = files.read(f"{place}/two")
    files.move(f"{place}/two", f"{place}/moved/two")
    files.write(f"{place}/two", "222")
    files.move(f"{place}/two", f"{place}/moved/two")
    answers["moved over another"] = [files.read(f"{place}/moved/two"), files.exists(f"{place}/two")]
    answers["names"] = files.names(place)
    answers["nothing there"] = files.names(f"{place}/nowhere")
    try:
        HadoopFiles(spark, "s3a://nowhere").create("s3a://nowhere/x", "x")
        answers["no bucket"] = "created"
    except CheckpointError as error:
        answers["no bucket"] = error.condition
    return answers


def run(spark: SparkSession, folder: Path) -> None:
    for key, value in QUICK.items():
        spark.conf.set(key, value)
    race = Headrace(spark, f"{BUCKET}/checkpoint")
    reader = spark.readStream.schema("k string, v bigint, ts timestamp")
    reader = reader.option("maxFilesPerTrigger", 1)
    race.stream("bids", reader.parquet(str(folder / "in")), time="ts")
    rows = race.sql(ROWS).writeStream.queryName("rows").format("parquet")
    rows.option("path", f"{BUCKET}/out").start()
    race.sql(TOTALS).writeStream.queryName("totals").format("results").outputMode("update").start()
    race.start(availableNow=True)
    race.awaitTermination()
    found = sorted(tuple(row) for row in race.results("totals").collect())
    (folder / "totals.json").write_text(json.dumps(found))


def main() -> None:
    command, endpoint, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    try:
        spark = spark_on(endpoint, folder / "spark")
    except Exception as error:
        print(f"no connector: {error}")
        sys.exit(77)
    if command == "files":
        print(json.dumps(try_files(spark)))
    else:
        run(spark, folder)


if __name__ == "__main__":
    main()
