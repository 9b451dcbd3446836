"""The process that chaos kills: all queries of the plot over one checkpoint.

    python -m tests.engine.crashes.chaos_child run FOLDER      runs on and on
    python -m tests.engine.crashes.chaos_child finish FOLDER   runs to the end, and writes results

It says on its output how far it is: ``session``, ``running``, and in the end ``done``; or
``refused`` or ``stopped`` with a condition, where the engine does not start or ends by itself. What
becomes of failed queries is in ``decisions.json``; a function refuses its rows while there is a
file ``refuses/<query>``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as parquet
from pyspark.sql import DataFrame, SparkSession

from headrace import Headrace
from headrace.errors import HeadraceError
from tests.engine.crashes.chaos_plot import QUERIES, STREAMS, Standing
from tests.engine.crashes.crash_child import lent_spark, own_spark
from tests.support.stage import QUICK

SETTINGS = {
    **QUICK,
    # Which files share an epoch is as chance will have it.
    "spark.headrace.epoch.gatherTimeout": "100 milliseconds",
    "spark.headrace.epoch.absenceTimeout": "300 milliseconds",
    "spark.headrace.compaction.files": "3",
    "spark.headrace.sink.longestPause": "300 milliseconds",
}
REFUSED, STOPPED = 3, 4


def engine_on(spark: SparkSession, folder: Path) -> Headrace:
    decisions = folder / "decisions.json"
    decided = json.loads(decisions.read_text()) if decisions.exists() else {}
    session = spark.newSession()
    for key, value in SETTINGS.items():
        session.conf.set(key, value)
    retried = ",".join(f"{name}=retry" for name in decided.get("retried", ()))
    session.conf.set("spark.headrace.failedQueries", retried)
    hr = Headrace(session, str(folder / "checkpoint"))
    for stream in STREAMS:
        reader = session.readStream.schema(stream.columns).option("maxFilesPerTrigger", 1)
        frame = reader.parquet(str(folder / "in" / stream.name))
        hr.stream(stream.name, frame, stream.time, stream.delay, stream.ttl)
    for query in QUERIES:
        start(hr, folder, query, query.name in decided.get("mended", ()))
    return hr


def start(hr: Headrace, folder: Path, query: Standing, is_mended: bool) -> None:
    text = query.mended if is_mended and query.mended else query.text
    writer = hr.sql(text).writeStream.queryName(query.name)
    if query.groups:
        writer = writer.outputMode("update")
    if query.format == "foreachBatch":
        writer.foreachBatch(printing(folder, query.name)).start()
    elif query.format == "parquet":
        writer.format("parquet").option("path", str(folder / "out" / query.name)).start()
    else:
        writer.format(query.format).start()


def printing(folder: Path, name: str) -> Callable[[DataFrame, int], None]:
    """Writes each epoch to a file of its number, and then notes that it was called."""
    output, refuses = folder / "out" / name, folder / "refuses" / name
    output.mkdir(parents=True, exist_ok=True)

    def write(frame: DataFrame, epoch: int) -> None:
        hidden = output / f".{epoch}-{os.getpid()}.parquet"
        parquet.write_table(frame.toArrow(), hidden)
        if refuses.exists():
            hidden.unlink()
            raise OSError("out of paper")
        os.replace(hidden, output / f"{epoch}.parquet")
        with open(output / "calls", "a") as calls:
            calls.write(f"{epoch}\n")

    return write


def main() -> None:
    command, folder = sys.argv[1], Path(sys.argv[2])
    lent = "PYSPARK_GATEWAY_PORT" in os.environ
    spark = lent_spark() if lent else own_spark(folder / "spark")
    print("session", flush=True)
    try:
        hr = engine_on(spark, folder)
        if command == "finish":
            hr.start(availableNow=True)
        else:
            hr.start(processingTime="50 milliseconds")
    except HeadraceError as error:
        print("refused", error, flush=True)
        os._exit(REFUSED)
    print("running", flush=True)
    try:
        hr.awaitTermination()
    except HeadraceError as error:
        print("stopped", error, flush=True)
        os._exit(STOPPED)
    for query in QUERIES:
        if query.format == "results":
            table = hr.results(query.name).toArrow()
            parquet.write_table(table, folder / "out" / f"{query.name}.parquet")
    print("done", flush=True)


if __name__ == "__main__":
    main()
