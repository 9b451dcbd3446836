"""The processes of the tests on an object store, each with a Spark that can read it.

``python -m tests.engine.checkpoint.object_store_child COMMAND ENDPOINT FOLDER``, with a command of

    files   tries file operations
    run     runs a query; dies where told
    tasks   runs queries there and here
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from headrace import Headrace
from headrace.engine.checkpoint.hadoop_files import HadoopFiles
from headrace.engine.execution.duckdb.executor import TaskOutcome
from headrace.errors import CheckpointError
from headrace.operators.write import Write
from headrace.query import Query
from tests.support.compare import spark_rows
from tests.support.object_store import ACCESS_KEY, SECRET_KEY
from tests.support.stage import QUICK

#: The connector of the Hadoop release that this Spark is built with.
CONNECTOR = "org.apache.hadoop:hadoop-aws:3.5.0"
BUCKET = "s3a://bucket"
ROWS = "SELECT k, v, ts FROM bids"
TOTALS = "SELECT k, SUM(v) AS total FROM bids GROUP BY k, landmark(ts)"
SCHEMA = "k string, v bigint, ts timestamp"
#: Queries over two streams, and the bucket or folder that their results go to.
QUERIES = {
    "totals": (
        "SELECT k, window, COUNT(*) AS n, SUM(v) AS total FROM a GROUP BY k, window(ts, '8 s')",
        "bucket",
    ),
    "pairs": (
        "SELECT a.k, a.v AS av, b.v AS bv FROM a JOIN b ON a.k = b.k "
        "AND b.ts BETWEEN a.ts - INTERVAL 5 SECONDS AND a.ts",
        "other",
    ),
    "probed": ("SELECT a.k, a.v AS av, b.v AS bv FROM a JOIN b ON a.v = b.v", "bucket"),
}
#: Configurations with which Spark reaches the server, and tasks do not.
CASES = {
    "other provider": {
        "spark.hadoop.fs.s3a.aws.credentials.provider": (
            "software.amazon.awssdk.auth.credentials.SystemPropertyCredentialsProvider"
        ),
        "spark.driver.extraJavaOptions": (
            f"-Daws.accessKeyId={ACCESS_KEY} -Daws.secretAccessKey={SECRET_KEY}"
        ),
    },
    # Java has a list of names of its own.
    "unknown host": {"spark.driver.extraJavaOptions": "-Djdk.net.hosts.file={folder}/hosts"},
}


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
        .config("spark.hadoop.fs.s3a.access.key", ACCESS_KEY)
        .config("spark.hadoop.fs.s3a.secret.key", SECRET_KEY)
        .config("spark.hadoop.fs.s3a.attempts.maximum", "3")
    )
    case = os.environ.get("HEADRACE_CASE", "")
    for key, value in CASES.get(case, {}).items():
        builder = builder.config(key, value.format(folder=folder))
    if case == "unknown host":
        folder.mkdir(parents=True)
        names = f"nowhere localhost {socket.gethostname()}"
        (folder / "hosts").write_text(f"127.0.0.1 {names}\n")
        elsewhere = endpoint.replace("127.0.0.1", "nowhere")
        builder = builder.config("spark.hadoop.fs.s3a.endpoint", elsewhere)
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

    def hr(name: str) -> None:
        if files.create(f"{place}/contested", name):
            winners.append(name)

    threads = [threading.Thread(target=hr, args=(str(i),)) for i in range(12)]
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
    hr = Headrace(spark, f"{BUCKET}/checkpoint")
    reader = spark.readStream.schema("k string, v bigint, ts timestamp")
    reader = reader.option("maxFilesPerTrigger", 1)
    hr.stream("bids", reader.parquet(str(folder / "in")), time="ts")
    rows = hr.sql(ROWS).writeStream.queryName("rows").format("parquet")
    rows.option("path", f"{BUCKET}/out").start()
    hr.sql(TOTALS).writeStream.queryName("totals").format("results").outputMode("update").start()
    hr.start(availableNow=True)
    hr.awaitTermination()
    found = sorted(tuple(row) for row in hr.results("totals").collect())
    (folder / "totals.json").write_text(json.dumps(found))


@dataclass
class Seen:
    """Who ran what, epoch by epoch, and what was logged."""

    ran: list[tuple[str, str]] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)


def run_tasks(spark: SparkSession, place: str, other: str, state: str) -> dict[str, object]:
    """The queries over what lies in a place; what came out and who computed it."""
    hr = Headrace(spark, state)
    for stream in ("a", "b"):
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        hr.stream(stream, reader.parquet(f"{place}/in/{stream}"), time="ts", delay="0 seconds")
    queries = {name: hr.sql(sql) for name, (sql, _) in QUERIES.items()}
    folders = {name: place if where == "bucket" else other for name, (_, where) in QUERIES.items()}
    for name, query in queries.items():
        path = f"{folders[name]}/out/{name}"
        query.writeStream.queryName(name).format("parquet").option("path", path).start()
    before = {name: executors(query) for name, query in queries.items()}
    seen = Seen()
    buckets = hr._engine.executor._buckets
    usual = buckets.write_all

    def watched(writes: Sequence[Write]) -> dict[int, TaskOutcome]:
        outcomes = usual(writes)
        seen.ran += [(writes[index].label, found.text) for index, found in outcomes.items()]
        return outcomes

    buckets.write_all = watched  # type: ignore[method-assign]
    handler = logging.Handler()
    handler.emit = lambda record: seen.logged.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("headrace").addHandler(handler)
    hr.start(availableNow=True)
    hr.awaitTermination()
    logging.getLogger("headrace").removeHandler(handler)
    rows = {
        name: sorted(
            spark_rows(spark.read.parquet(f"{folders[name]}/out/{name}").drop("epoch")), key=str
        )
        for name in QUERIES
    }
    return {
        "rows": json.loads(json.dumps(rows, default=str)),
        "epochs": len(hr.recentProgress),
        "seconds": [epoch["seconds"] for epoch in hr.recentProgress],
        "changes": [epoch["planChanges"] for epoch in hr.recentProgress],
        "progress": json.loads(json.dumps(hr.recentProgress, default=str)),
        "ran": seen.ran,
        "logged": seen.logged,
        "before": before,
        "after": {name: executors(query) for name, query in queries.items()},
    }


def executors(query: Query) -> list[str]:
    return query.explanation().split("== Executors ==\n")[1].split("\n==")[0].strip().splitlines()


def compare(spark: SparkSession, folder: Path) -> dict[str, object]:
    """The same on local disks and in the buckets."""
    for key, value in QUICK.items():
        spark.conf.set(key, value)
    return {
        "local": run_tasks(spark, str(folder), str(folder), str(folder / "state")),
        "remote": run_tasks(spark, BUCKET, "s3a://other", f"{BUCKET}/checkpoint"),
    }


def main() -> None:
    command, endpoint, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    try:
        spark = spark_on(endpoint, folder / "spark")
    except Exception as error:
        print(f"no connector: {error}")
        sys.exit(77)
    if command == "files":
        print(json.dumps(try_files(spark)))
    elif command == "tasks":
        print(json.dumps(compare(spark, folder)))
    else:
        run(spark, folder)


if __name__ == "__main__":
    main()
