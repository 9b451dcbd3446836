"""The processes of the crash tests: one that is killed, and one that lends it a JVM.

    python -m tests.engine.crashes.crash_child run FOLDER      runs the queries; dies where told to
    python -m tests.engine.crashes.crash_child sleep FOLDER    the same, where stream r falls silent
    python -m tests.engine.crashes.crash_child finish FOLDER   restarts them and runs to the end
    python -m tests.engine.crashes.crash_child host            lends its JVM, and does as it is told

Starting a JVM takes longer than all else in these tests. The engine lives in the Python process, so
a process that attaches to the host's JVM loses as much by SIGKILL as one with a JVM of its own. The
host answers each line of its input, the name of a folder, with one line.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path

import pyarrow.parquet as parquet
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import ensure_callback_server_started, launch_gateway
from pyspark.sql import SparkSession

from headrace import Headrace
from tests.support.stage import QUICK

STREAMS = {"l": "k string, ts timestamp", "r": "k string, ts timestamp"}
#: An aggregate, a join by time, one by keys alone, and one query with two sinks.
AGGREGATE = (
    "SELECT k, window, COUNT(*) AS n FROM l GROUP BY k, window(ts, '10 seconds', '5 seconds')"
)
JOIN = (
    "SELECT l.k, l.ts AS lt, r.ts AS rt FROM l JOIN r ON l.k = r.k "
    "AND r.ts BETWEEN l.ts - INTERVAL 4 SECONDS AND l.ts + INTERVAL 4 SECONDS"
)
TWO_SINKS = "SELECT k, COUNT(*) AS n FROM r GROUP BY k, landmark(ts)"
PROBES = "SELECT l.k, l.ts AS lt, r.ts AS rt FROM l JOIN r ON l.k = r.k"
QUERIES = {
    "aggregate": AGGREGATE,
    "join": JOIN,
    "probes": PROBES,
    "updates": TWO_SINKS,
    "totals": TWO_SINKS,
}
TOTALS = "totals.parquet"
#: What a stream that is silent holds back; a folder with a file of this name runs this query.
ASLEEP = "asleep"
HELD_BACK = (
    "SELECT k, window, COUNT(*) AS n FROM (SELECT k, ts FROM l UNION ALL SELECT k, ts FROM r) "
    "AS u GROUP BY k, window(ts, '10 seconds')"
)


def own_spark(folder: Path) -> SparkSession:
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(folder))
        # A JVM that lives for seconds does not earn back what its second compiler costs.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    # A stream whose Python process was killed is no news here.
    session.sparkContext.setLogLevel("OFF")
    return session


def lent_spark() -> SparkSession:
    """A session on the JVM that the environment names."""
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    jvm = gateway.jvm
    context = jvm.org.apache.spark.api.java.JavaSparkContext(
        jvm.org.apache.spark.SparkContext.getOrCreate()
    )
    conf = SparkConf(_jvm=jvm, _jconf=context.getConf())
    return SparkSession(SparkContext(gateway=gateway, jsc=context, conf=conf)).newSession()


def engine_on(spark: SparkSession, folder: Path) -> Headrace:
    session = spark.newSession()
    for key, value in QUICK.items():
        session.conf.set(key, value)
    # Merged files are part of what a crash must not harm.
    session.conf.set("spark.headrace.compaction.files", "3")
    hr = Headrace(session, str(folder / "checkpoint"))
    for name, columns in STREAMS.items():
        reader = session.readStream.schema(columns).option("maxFilesPerTrigger", 1)
        frame = reader.parquet(str(folder / "in" / name))
        hr.stream(name, frame, time="ts", idle="1 second" if name == "r" else None)
    asleep = (folder / ASLEEP).exists()
    for name, text in ({"held": HELD_BACK} if asleep else QUERIES).items():
        writer = hr.sql(text).writeStream.queryName(name)
        if name == "totals":
            writer.format("results").start()
        else:
            writer.format("parquet").option("path", str(folder / "out" / name)).start()
    return hr


def run(spark: SparkSession, folder: Path) -> Headrace:
    hr = engine_on(spark, folder)
    hr.start(availableNow=True)
    hr.awaitTermination()
    return hr


def sleep(spark: SparkSession, folder: Path) -> None:
    """Run on and on; streams fall silent only in an engine that does not end by itself."""
    hr = engine_on(spark, folder)
    hr.start(processingTime="50 milliseconds")
    hr.awaitTermination()


def finish(spark: SparkSession, folder: Path) -> None:
    hr = run(spark, folder)
    if not (folder / ASLEEP).exists():
        parquet.write_table(hr.results("totals").toArrow(), folder / TOTALS)


def host(folder: Path) -> None:
    spark = own_spark(folder)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    own_port = gateway._callback_server.server_socket.getsockname()[1]
    parameters = gateway.gateway_parameters
    print(json.dumps({"port": parameters.port, "secret": parameters.auth_token}), flush=True)
    running = spark._jsparkSession.sharedState().activeStreamingQueries()
    for line in sys.stdin:
        if (Path(line.strip()) / ASLEEP).exists():
            # Streams that have nothing to hand over do not find out.
            for query in list(running.values()):
                query.stop()
        # The streams of the killed process end when they find nobody to call back.
        while not running.isEmpty():
            time.sleep(0.02)
        # It had the JVM call itself; now the JVM must call us.
        server = gateway.java_gateway_server
        server.resetCallbackClient(server.getCallbackClient().getAddress(), own_port)
        try:
            finish(spark, Path(line.strip()))
            answer = "finished"
        except Exception:
            answer = traceback.format_exc()
        print(json.dumps(answer), flush=True)
    spark.stop()


def main() -> None:
    command, folder = sys.argv[1], Path(sys.argv[2])
    if command == "host":
        host(folder)
        return
    lent = "PYSPARK_GATEWAY_PORT" in os.environ
    spark = lent_spark() if lent else own_spark(folder / "spark")
    {"run": run, "sleep": sleep, "finish": finish}[command](spark, folder)


if __name__ == "__main__":
    main()
