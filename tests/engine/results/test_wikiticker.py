"""A day of real edits of Wikipedia as one stream, against DuckDB over the same rows."""

from __future__ import annotations

import datetime
import gzip
import os
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession, functions

from headrace import Headrace
from tests.support.compare import assert_same_rows, spark_rows
from tests.support.stage import PATIENT

BATCHES = 4
COLUMNS = (
    "time string, channel string, page string, user string, namespace string, "
    "isRobot boolean, isNew boolean, delta bigint, added bigint, deleted bigint"
)

HOURLY = """
SELECT channel, window, COUNT(*) AS edits, SUM(added) AS added, AVG(delta) AS delta,
       COUNT(*) FILTER (WHERE isNew) AS pages
FROM edits WHERE NOT isRobot GROUP BY channel, window(ts, '1 hour')
"""
HOPPING = """
SELECT namespace, window, window_id, MAX(added) AS most FROM edits
GROUP BY namespace, windows(window(ts, '2 hours', '30 minutes'), window(ts, '6 hours'))
"""
EDITORS = """
SELECT window, COUNT(DISTINCT user) AS editors FROM edits GROUP BY window(ts, '2 hours')
"""
VISITS = """
SELECT user, session_window, COUNT(*) AS edits FROM edits
GROUP BY user, session_window(ts, '10 minutes')
"""
DISPUTES = """
SELECT a.page, a.user AS one, b.user AS other, a.ts, b.ts AS answered FROM edits a
JOIN edits b ON a.page = b.page AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 10 MINUTES
WHERE a.user <> b.user
"""


@pytest.fixture(scope="module")
def lines(shared_data: Path) -> list[bytes]:
    file = shared_data / "wikiticker" / "wikiticker-2015-09-12-sampled.json.gz"
    if not file.exists():
        pytest.skip(f"{file} is not on this machine")
    return gzip.decompress(file.read_bytes()).splitlines()


def test_edits_against_duckdb(spark: SparkSession, lines: list[bytes], tmp_path: Path) -> None:
    size = -(-len(lines) // BATCHES)
    files = [lines[start : start + size] for start in range(0, len(lines), size)]
    (tmp_path / "in").mkdir()
    for number, part in enumerate(files):
        file = tmp_path / "in" / f"{number}.json"
        file.write_bytes(b"\n".join(part))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))

    database = _load(tmp_path)
    delay = _disorder(database)
    session = spark.newSession()
    for key, value in PATIENT.items():
        session.conf.set(key, value)
    hr = Headrace(session, str(tmp_path / "checkpoint"))
    reader = session.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
    frame = reader.json(str(tmp_path / "in"))
    frame = frame.withColumn("ts", functions.to_timestamp("time"))
    hr.stream("edits", frame, time="ts", delay=f"{delay} milliseconds")
    queries = {
        "hourly": HOURLY,
        "hopping": HOPPING,
        "editors": EDITORS,
        "visits": VISITS,
        "disputes": DISPUTES,
    }
    handles = [
        hr.sql(text).writeStream.queryName(name).format("results").start()
        for name, text in queries.items()
    ]
    hr.start(availableNow=True)
    assert hr.awaitTermination(300)

    assert [report["numInputRows"] for report in hr.recentProgress] == list(map(len, files))
    assert all(sum(r["lateRows"] for r in handle.recentProgress) == 0 for handle in handles)
    watermark = datetime.datetime.fromisoformat(hr.recentProgress[-1]["watermarks"]["edits"])
    database.execute("SET VARIABLE watermark = ?", [watermark.replace(tzinfo=None)])
    for name, text in EXPECTED.items():
        expected = database.execute(text).fetchall()
        assert len(expected) > 10
        assert_same_rows(spark_rows(hr.results(name)), expected, name)


def _load(folder: Path) -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    pairs = [column.split() for column in COLUMNS.split(", ")]
    columns = ", ".join(f"'{name}': '{_DUCK[kind]}'" for name, kind in pairs)
    database.execute(
        "CREATE TABLE edits AS SELECT *, CAST(rtrim(time, 'Z') AS TIMESTAMP) AS ts "
        f"FROM read_json('{folder}/in/*.json', columns = {{{columns}}}, filename = true)"
    )
    return database


def _disorder(database: duckdb.DuckDBPyConnection) -> int:
    """How many milliseconds a row may be behind the greatest time of the files before its own."""
    found: Any = database.execute(
        """
        WITH files AS (SELECT filename, min(ts) AS first, max(ts) AS last FROM edits GROUP BY ALL),
        seen AS (SELECT first, max(last) OVER (ORDER BY filename
                 ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM files)
        SELECT epoch_ms(max(before - first)) FROM seen
        """
    ).fetchone()
    return max(0, int(found[0])) + 1


_DUCK = {"string": "VARCHAR", "boolean": "BOOLEAN", "bigint": "BIGINT"}

#: Windows that ended at or before the watermark have come out; of pairs all have.
EXPECTED = {
    "hourly": """
        SELECT channel, {'start': time_bucket(INTERVAL 1 HOUR, ts),
                         'end': time_bucket(INTERVAL 1 HOUR, ts) + INTERVAL 1 HOUR} AS w,
               count(*), CAST(sum(added) AS BIGINT), avg(delta), count(*) FILTER (isNew)
        FROM edits WHERE NOT isRobot GROUP BY channel, w
        HAVING w['end'] <= getvariable('watermark')
    """,
    "hopping": """
        WITH placed AS (
            SELECT namespace, added, '2 hours/30 minutes' AS id, INTERVAL 2 HOUR AS length,
                   time_bucket(INTERVAL 30 MINUTE, ts) - INTERVAL 30 MINUTE * back AS start
            FROM edits, range(4) AS t(back)
            UNION ALL
            SELECT namespace, added, '6 hours', INTERVAL 6 HOUR, time_bucket(INTERVAL 6 HOUR, ts)
            FROM edits
        )
        SELECT namespace, {'start': start, 'end': start + length}, id, max(added) FROM placed
        WHERE start + length <= getvariable('watermark') GROUP BY namespace, start, length, id
    """,
    "editors": """
        SELECT {'start': time_bucket(INTERVAL 2 HOUR, ts),
                'end': time_bucket(INTERVAL 2 HOUR, ts) + INTERVAL 2 HOUR} AS w,
               count(DISTINCT user)
        FROM edits GROUP BY w HAVING w['end'] <= getvariable('watermark')
    """,
    "visits": """
        WITH pauses AS (
            SELECT user, ts, coalesce(ts - lag(ts) OVER each_user > INTERVAL 10 MINUTE, true)
                AS opens FROM edits WINDOW each_user AS (PARTITION BY user ORDER BY ts)
        ), numbered AS (
            SELECT user, ts, count(*) FILTER (opens) OVER (PARTITION BY user ORDER BY ts) AS visit
            FROM pauses
        )
        SELECT user, {'start': min(ts), 'end': max(ts) + INTERVAL 10 MINUTE}, count(*)
        FROM numbered GROUP BY user, visit
        HAVING max(ts) + INTERVAL 10 MINUTE <= getvariable('watermark')
    """,
    "disputes": """
        SELECT a.page, a.user, b.user, a.ts, b.ts FROM edits a JOIN edits b ON a.page = b.page
        AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 10 MINUTE WHERE a.user <> b.user
    """,
}
