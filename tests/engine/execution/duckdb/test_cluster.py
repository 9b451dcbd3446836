"""On a cluster of two executor processes, one of which dies while an epoch runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from benchmarks.harness.data import EventFiles
from headrace.native.compare import multiset_difference
from tests.conftest import REPOSITORY
from tests.engine.execution.duckdb.cluster_child import SQL

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("spark_processes")]

# The same queries over the files as a whole. Windows come out once the watermark has passed them:
# the greatest time less the delay of ten seconds.
ORACLE = {
    "joined": "SELECT a.k, a.v AS av, b.v AS bv FROM a JOIN b ON a.k = b.k "
    "AND epoch_ms(a.ts) // 60000 = epoch_ms(b.ts) // 60000",
    "probed": "SELECT a.k, a.v AS av, b.v AS bv FROM a JOIN b ON a.k = b.k AND a.v % 50 = b.v % 50",
    "counted": "SELECT k, start, count(*) AS n, sum(v)::BIGINT AS total "
    "FROM (SELECT *, epoch_ms(ts) // 10000 * 10000 AS start FROM a) "
    "WHERE start + 10000 <= (SELECT max(epoch_ms(ts)) - 10000 FROM a) GROUP BY k, start",
}


SHOWN = {
    "joined": "k, av, bv",
    "probed": "k, av, bv",
    "counted": 'k, epoch_ms("window".start) AS start, n, total',
}


@pytest.mark.slow
def test_a_killed_executor_changes_nothing(tmp_path: Path) -> None:
    for salt, name in enumerate("ab"):
        events = EventFiles(6_000, 8, keys=16, step=100, shake=1_000, salt=salt)
        events.write(tmp_path / name)
    child = subprocess.run(
        [sys.executable, "-m", "tests.engine.execution.duckdb.cluster_child", str(tmp_path)],
        cwd=REPOSITORY,
        env={k: v for k, v in os.environ.items() if k != "PYSPARK_PYTHON"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert child.returncode == 0, child.stderr[-3_000:]
    said = json.loads(child.stdout.strip().splitlines()[-1])
    assert said["executors"] == 2
    assert len(said["killed"]) == 1
    assert all("DuckDB" in how for how in said["chosen"].values()), said["chosen"]
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for name in "ab":
            database.execute(
                f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{tmp_path}/{name}/*.parquet')"
            )
        for name in SQL:
            files = f"read_parquet('{tmp_path}/{name}/epoch=*/*.parquet')"
            found = database.sql(f"SELECT {SHOWN[name]} FROM {files}").to_arrow_table()
            wanted = database.sql(ORACLE[name]).to_arrow_table()
            assert wanted.num_rows > 500
            assert multiset_difference(wanted, found) is None
            # Nothing of the attempts that were cut off is left beside the results.
            assert not list((tmp_path / name).rglob("*attempts*"))
