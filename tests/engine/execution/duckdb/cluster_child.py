"""An engine on two executor processes, one of which is killed while an epoch runs.

Run by a test with a folder as its argument; says what happened as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headrace import Headrace
from headrace.engine.execution.duckdb import kernel

SQL = {
    "joined": "SELECT a.k, a.v AS av, b.v AS bv FROM a JOIN b ON a.k = b.k "
    "AND window(a.ts, '1 minute') = window(b.ts, '1 minute')",
    "probed": "SELECT a.k, a.v AS av, b.v AS bv FROM a JOIN b ON a.k = b.k AND a.v % 50 = b.v % 50",
    "counted": "SELECT k, window, count(*) AS n, sum(v) AS total FROM a "
    "GROUP BY k, window(ts, '10 seconds')",
}
SCHEMA = "k BIGINT, v BIGINT, ts TIMESTAMP"

run_task = kernel.run_task


def slow_task(spec: dict[str, Any]) -> dict[str, Any]:
    """Long enough to be killed in the middle."""
    answer = run_task(spec)
    time.sleep(0.7)
    return answer


def executor_pids() -> list[int]:
    # In full width: a container may tell `ps` of a narrow terminal.
    listed = subprocess.run(["ps", "-ewwo", "pid,ppid,args"], capture_output=True, text=True)
    own = {os.getpid()}
    found = []
    lines = [line.split(None, 2) for line in listed.stdout.splitlines()[1:]]
    # Descendants of this process only: other tests may run a cluster of their own.
    for _ in range(6):
        own |= {int(pid) for pid, parent, _ in lines if int(parent) in own}
    for pid, _, args in lines:
        if int(pid) in own and "CoarseGrainedExecutorBackend" in args:
            found.append(int(pid))
    return sorted(found)


def kill_one(spark: SparkSession, hr: Headrace, killed: list[int]) -> None:
    """After the first epoch, as soon as tasks run again."""
    tracker = spark.sparkContext.statusTracker()
    while not hr.recentProgress:
        time.sleep(0.02)
    while not tracker.getActiveJobsIds():
        time.sleep(0.005)
    time.sleep(0.2)
    victim = executor_pids()[-1]
    os.kill(victim, signal.SIGKILL)
    killed.append(victim)


def main(folder: Path) -> None:
    kernel.run_task = slow_task
    spark = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.executor.memory", "768m")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.headrace.executor", "buckets")
        .config("spark.headrace.tasks.rows", "100")
        .config("spark.headrace.tasks.leastRows", "0")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    hr = Headrace(spark, checkpoint=str(folder / "state"))
    for name in "ab":
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 2)
        hr.stream(name, reader.parquet(str(folder / name)), time="ts", delay="10 seconds")
    for name, sql in SQL.items():
        hr.sql(sql).writeStream.queryName(name).format("parquet").start(str(folder / name))
    killed: list[int] = []
    deadline = time.monotonic() + 60
    while len(executor_pids()) < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
    before = executor_pids()
    hr.start(availableNow=True)
    threading.Thread(target=kill_one, args=(spark, hr, killed), daemon=True).start()
    hr.awaitTermination()
    chosen = hr._engine.executor.chosen
    print(json.dumps({"executors": len(before), "killed": killed, "chosen": chosen}))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
