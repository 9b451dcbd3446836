"""The bucket executor from outside: who runs what, how many jobs, and what happens on failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from benchmarks.harness.data import EVENTS_SCHEMA, EventFiles
from headrace import Headrace
from headrace.definitions.definition import call, column, keep, number, select
from headrace.engine.execution.duckdb import kernel
from headrace.engine.execution.duckdb.probe_kernel import ProbeJoinKernel
from headrace.engine.execution.duckdb.remote_files import Access
from headrace.engine.execution.executor import Executor
from headrace.errors import QueryError
from headrace.operators.write import Write, run_alone
from headrace.plan.types import BIGINT, STRING, Schema
from headrace.state.arrangement import StateFile
from tests.support.engine import forced, tiny_executor

SCHEMA = Schema.of([("k", BIGINT), ("v", BIGINT)])


@pytest.fixture
def executor(spark: SparkSession) -> Executor:
    return tiny_executor(spark, executor="buckets")


def stored(folder: Path, rows: int) -> StateFile:
    path = folder / "stored.parquet"
    parquet.write_table(pa.table({"k": list(range(rows)), "v": list(range(rows))}), path)
    return StateFile(str(path), 1, rows, 0, None, None)


def rows_of(executor: Executor, file: StateFile) -> Write:
    query = select(executor.inputs.bind_files([file], SCHEMA), keep(SCHEMA.names))
    return Write("rows", query, SCHEMA)


def sent(write: Write):  # type: ignore[no-untyped-def]
    return (yield write)


def test_explain_says_who_runs_what_and_why(spark: SparkSession, tmp_path: Path) -> None:
    EventFiles(10, 1).write(tmp_path / "a")
    with forced(spark, "auto"):
        hr = Headrace(spark, checkpoint=str(tmp_path / "state"))
    files = spark.readStream.schema(EVENTS_SCHEMA).parquet(str(tmp_path / "a"))
    hr.stream("a", files, time="ts", delay="1 second")
    hr.stream("b", files.where("k > 0"), time="ts", delay="1 second")
    hr.table("t", spark.createDataFrame([(1, "x")], "k BIGINT, name STRING"))

    def executors(sql: str) -> str:
        return hr.sql(sql).explanation().split("== Executors ==\n")[1]

    joined = executors("SELECT a.k FROM a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts")
    assert "rows-a: DuckDB in tasks, in parts of any rows" in joined
    assert "rows-b: Spark, because of the stream b, whose rows come through Spark" in joined
    assert "results: DuckDB in tasks, in parts by k" in joined
    assert "results: Spark, because of the function initcap" in executors(
        "SELECT initcap(CAST(k AS STRING)) AS u FROM a"
    )
    assert "Spark, because of the table t" in executors("SELECT name FROM a JOIN t ON a.k = t.k")


def test_many_queries_are_two_jobs(spark: SparkSession, tmp_path: Path) -> None:
    """One for all stores, and one for all results."""
    EventFiles(4_000, 4).write(tmp_path / "in")
    with forced(spark, "buckets"):
        hr = Headrace(spark, checkpoint=str(tmp_path / "state"))
    stream = spark.readStream.schema(EVENTS_SCHEMA).option("maxFilesPerTrigger", 2)
    hr.stream("s", stream.parquet(str(tmp_path / "in")), time="ts", delay="0 seconds")
    for number_ in range(12):
        sql = f"SELECT k % {number_ + 2} AS g, count(*) AS n FROM s WHERE v > {number_} "
        sql += f"GROUP BY k % {number_ + 2}, window(ts, '{number_ + 1} seconds')"
        hr.sql(sql).writeStream.queryName(f"q{number_}").format("memory").start()
    hr.start(availableNow=True)
    hr.awaitTermination()
    chosen = hr._engine.executor.chosen.values()
    assert all("DuckDB" in how for how in chosen), chosen
    assert [epoch["jobs"] for epoch in hr.recentProgress] == [2, 2]
    assert spark.table("q0").count() > 0


def test_what_duckdb_cannot_compute_spark_computes(executor: Executor, tmp_path: Path) -> None:
    """An error in a task hands the write to Spark, whose word counts."""
    file = stored(tmp_path, 10)
    executor.begin_epoch()
    rows = rows_of(executor, file)
    too_large = call("timestamp_millis", column("v") * number(2**62))
    broken = Write("broken", select(rows.query, {"x": too_large}), Schema.of([("x", STRING)]))
    good, bad = executor.write_all([rows, broken])
    assert not isinstance(good, Exception)
    assert good.rows == 10
    assert isinstance(bad, Exception)
    assert executor.chosen["rows"].startswith("DuckDB")
    assert executor.chosen["broken"].startswith("Spark, because of")


def test_a_package_that_is_missing_is_named(
    executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "run_task", lambda spec: {"missing": "duckdb"})
    executor.begin_epoch()
    with pytest.raises(QueryError) as caught:
        run_alone(executor, sent(rows_of(executor, stored(tmp_path, 3))))
    assert caught.value.condition == "MISSING_PACKAGE"
    assert "duckdb" in str(caught.value)
    assert "spark.headrace.executor=spark" in str(caught.value)


def test_the_kernel_needs_nothing_of_this_package() -> None:
    """It goes to the executors by value: only DuckDB, pyarrow and numpy must be there."""
    spec = {"version": duckdb.__version__, "memory": "1GB", "inputs": {}, "pieces": []}
    program = (
        "import pickle, sys; sys.modules['headrace'] = None; "
        "run, join, spec = pickle.load(sys.stdin.buffer); "
        "print(run(spec), join.__name__)"
    )
    sent_along = cloudpickle.dumps((kernel.run_task, ProbeJoinKernel, spec))
    done = subprocess.run([sys.executable, "-c", program], input=sent_along, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"{'answers': []} ProbeJoinKernel\n"


def test_without_ansi_mode_everything_is_sparks(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", "false")
    executor = tiny_executor(session, executor="buckets")
    executor.begin_epoch()
    written = run_alone(executor, sent(rows_of(executor, stored(tmp_path, 3))))
    assert written.rows == 3
    assert "ansi" in executor.chosen["rows"]


def test_files_through_pyarrow_are_the_same(tmp_path: Path) -> None:
    """What does not lie on a local disk is read and written through pyarrow's file systems."""
    parquet.write_table(pa.table({"k": [1, 2, 3], "v": [4, 5, None]}), tmp_path / "in.parquet")
    answers = []
    for prefix in ("", "file://"):
        answer = kernel.run_task(
            {
                "version": __import__("duckdb").__version__,
                "memory": "100MB",
                "stores": {"file://": Access("file", {})},
                "inputs": {
                    "rows": {
                        "files": [f"{prefix}{tmp_path}/in.parquet"],
                        "columns": {"k": "BIGINT", "v": "BIGINT", "missing": "VARCHAR"},
                        "where": "k > 1",
                        "shared": [],
                        "block": "",
                        "strict": False,
                    }
                },
                "pieces": [
                    {
                        "write": 0,
                        "inputs": {"x": "rows"},
                        "sql": "SELECT * FROM x",
                        "inner": None,
                        "watch": "count(*) AS n, max(v) AS m",
                        "columns": "*",
                        "computes_all": False,
                        "outputs": [
                            {
                                "folder": f"{prefix}{tmp_path}",
                                "name": "out",
                                "where": "true",
                                "part": None,
                            }
                        ],
                    }
                ],
            }
        )
        (given,) = answer["answers"]
        assert "error" not in given, given
        ((path, rows, size, _),) = given["files"]
        assert rows == 2
        assert size > 0
        found = parquet.read_table(path.removeprefix("file://")).to_pylist()
        answers.append((given["seen"], sorted(found, key=lambda row: row["k"])))
    assert answers[0] == answers[1]
    assert answers[0][0] == (2, 5)
    assert answers[0][1][1] == {"k": 3, "v": None, "missing": None}
