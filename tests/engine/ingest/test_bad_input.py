"""What users get wrong: each is refused in one line that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace import Headrace
from tests.support.script import check_error, refused

COLUMNS = "k string, v bigint, d date, other timestamp, local timestamp_ntz, ts timestamp"
WINDOW = "SELECT window, COUNT(*) AS n FROM bids GROUP BY window(ts, {})"


@pytest.fixture(scope="module")
def frame(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    path = tmp_path_factory.mktemp("empty")
    return spark.readStream.schema(COLUMNS).parquet(str(path))


@pytest.fixture(scope="module")
def hr(spark: SparkSession, frame: DataFrame) -> Headrace:
    """Two streams and no checkpoint: nothing here gets as far as to run."""
    hr = Headrace(spark)
    hr.stream("bids", frame, time="ts")
    hr.stream("clicks", frame, time="ts")
    return hr


@pytest.mark.parametrize(
    ("text", "condition", "words"),
    [
        ("SELECT k FROM bidz", "UNKNOWN_RELATION", "'bidz' (line 1, column 15) - did you mean"),
        ("SELECT kk FROM bids", "UNKNOWN_COLUMN", "no column 'kk' (line 1, column 8)"),
        ("SELECT k FROM bids WHERE v = true", "TYPE_MISMATCH", "bigint and boolean"),
        ("SELECT k FROM bids WHERE v", "NOT_A_CONDITION", "this is bigint"),
        (
            "SELECT b.k FROM bids b JOIN clicks c ON b.v = c.ts "
            "AND window(b.ts, '1 hour') = window(c.ts, '1 hour')",
            "TYPE_MISMATCH",
            "bigint and timestamp cannot be compared",
        ),
        (WINDOW.replace("ts", "other").format("'1 hour'"), "NOT_EVENT_TIME", "use ts"),
        (WINDOW.replace("ts", "v").format("'1 hour'"), "NOT_A_TIME", "v is bigint"),
        (WINDOW.format("'10 minuts'"), "INVALID_DURATION", "unknown unit 'minuts'"),
        (WINDOW.format("'soon'"), "INVALID_DURATION", "cannot read the duration 'soon'"),
        (WINDOW.format("'1 month'"), "INVALID_DURATION", "depends on the calendar"),
        (WINDOW.format("'0 seconds'"), "INVALID_DURATION", "length must be positive"),
        (WINDOW.format("'-5 seconds'"), "INVALID_DURATION", "length must be positive"),
        (WINDOW.format("'5 seconds', '0 seconds'"), "INVALID_DURATION", "slide must be positive"),
        (
            "SELECT session_window, COUNT(*) AS n FROM bids GROUP BY session_window(ts, '-1 hour')",
            "INVALID_DURATION",
            "gap must be positive",
        ),
        ("SELECT DISTINCT k FROM bids", "DISTINCT", "GROUP BY k, window(ts, '1 hour')"),
        ("SELECT k FROM bids ORDER BY k", "ORDER_BY", "sort the results where they are read"),
        (
            "SELECT k, COUNT(*) AS n FROM bids GROUP BY k",
            "GROUP_BY_WITHOUT_WINDOW",
            "add window(ts, '10 minutes')",
        ),
        (
            "SELECT b.k FROM bids b JOIN clicks c ON b.v < c.v",
            "JOIN_WITHOUT_KEY",
            "or b.ts BETWEEN a.ts - INTERVAL",
        ),
        ("SELEC k FROM bids", "SYNTAX_ERROR", "cannot be read near"),
        ("SELECT nonsense(k) AS x FROM bids", "UNKNOWN_FUNCTION", "no function nonsense()"),
        # What only Spark knows, and what only the compiler does.
        (
            "SELECT k, unix_seconds('2024-01-01') AS x FROM bids",
            "INVALID_EXPRESSION",
            "(line 1, column 11)",
        ),
        (
            "SELECT '2024-01-01' - INTERVAL 1 DAY AS x FROM bids",
            "TYPE_MISMATCH",
            "(line 1, column 8) - write CAST",
        ),
        ("SELECT k FROM bids WHERE current_path() = 'x'", "NONDETERMINISTIC", "column 26"),
        (
            "SELECT b.k FROM (SELECT k FROM bids) b JOIN clicks c ON b.k = c.k",
            "JOIN_WITHOUT_EVENT_TIME",
            "(line 1, column 40)",
        ),
        (
            "SELECT /*+ EARLY_AGGREGATION(bids) */ COUNT(*) FROM bids "
            "GROUP BY window(ts, '1 hour')",
            "IMPOSSIBLE_EARLY_AGGREGATION",
            "(line 1, column 8)",
        ),
    ],
)
def test_sql_that_cannot_be_a_query(hr: Headrace, text: str, condition: str, words: str) -> None:
    check_error(refused(lambda: hr.sql(text)), condition, words)


@pytest.mark.parametrize(
    ("arguments", "condition", "words"),
    [
        ({"time": "tss"}, "MISSING_TIME_COLUMN", "its columns are k, v, d, other, local, ts"),
        ({"time": "v"}, "WRONG_TIME_COLUMN", "is bigint, not timestamp"),
        ({"time": "d"}, "WRONG_TIME_COLUMN", "to_timestamp(d)"),
        ({"time": "local"}, "WRONG_TIME_COLUMN", "is timestamp_ntz, not timestamp"),
        ({"time": "ts", "delay": "soon"}, "INVALID_DURATION", "cannot read the duration 'soon'"),
        ({"time": "ts", "delay": "-1 second"}, "INVALID_STREAM", "is negative"),
        ({"time": "ts", "ttl": "0 seconds"}, "INVALID_DURATION", "must be positive"),
        ({"time": "ts", "name": "bids"}, "INVALID_STREAM", "there is a stream named"),
        ({"time": "ts", "name": "two words"}, "INVALID_STREAM", "use letters, digits and '_'"),
    ],
)
def test_streams_that_cannot_be_registered(
    hr: Headrace, frame: DataFrame, arguments: dict[str, str], condition: str, words: str
) -> None:
    name = arguments.get("name", "other")
    options = {key: value for key, value in arguments.items() if key != "name"}
    check_error(refused(lambda: hr.stream(name, frame, **options)), condition, words)


def test_frames_of_the_wrong_kind(hr: Headrace, frame: DataFrame, spark: SparkSession) -> None:
    static = spark.createDataFrame([], COLUMNS)
    error = refused(lambda: hr.stream("other", static, time="ts"))
    check_error(error, "INVALID_STREAM", "not a streaming DataFrame", "hr.table")
    check_error(refused(lambda: hr.table("other", frame)), "INVALID_STREAM", "hr.stream")


def test_queries_that_cannot_start(hr: Headrace, tmp_path: Path) -> None:
    query = hr.sql("SELECT k, ts FROM bids")
    obstacle = tmp_path / "file"
    obstacle.touch()

    def start(kind: str, name: str = "q", **options: object) -> Callable[[], object]:
        return query.writeStream.queryName(name).format(kind).options(**options).start

    check_error(refused(start("parket")), "UNKNOWN_SINK", "did you mean 'parquet'?")
    check_error(refused(start("parquet")), "SINK_FAILED", "no path to write to")
    blocked = start("parquet", path=f"{obstacle}/out")
    check_error(refused(blocked), "SINK_FAILED", "cannot write to", "choose a folder")
    check_error(refused(lambda: query.writeStream.queryName("a/b")), "INVALID_QUERY", "'a/b'")
    mode = refused(lambda: query.writeStream.outputMode("complete"))
    check_error(mode, "INVALID_QUERY", "use 'append' or 'update'")
    landmark = hr.sql("SELECT COUNT(*) AS n FROM bids GROUP BY landmark(ts)")
    never = refused(landmark.writeStream.outputMode("append").format("results").start)
    check_error(never, "OUTPUT_MODE", "never final", "use outputMode('update')")
    sessions = hr.sql("SELECT COUNT(*) AS n FROM bids GROUP BY session_window(ts, '1 hour')")
    merging = refused(
        sessions.writeStream.outputMode("update").start,
    )
    check_error(merging, "OUTPUT_MODE", "sessions merge", "use outputMode('append')")
    handle = query.writeStream.queryName("twice").format("results").start()
    check_error(refused(start("results", "twice")), "DUPLICATE_QUERY", "named 'twice' already")
    used = refused(lambda: hr.drop("bids"))
    check_error(used, "INVALID_STREAM", "read by twice", "stop these queries first")
    check_error(refused(lambda: hr.results("other")), "INVALID_QUERY", "these do: twice")
    no_checkpoint = refused(lambda: hr.start(availableNow=True))
    check_error(no_checkpoint, "INVALID_CHECKPOINT", "Headrace(spark, checkpoint='state/')")
    handle.stop()
    check_error(refused(lambda: hr.start(availableNow=True)), "INVALID_QUERY", "no query to run")
    both = refused(lambda: hr.start(availableNow=True, processingTime="1 second"))
    check_error(both, "INVALID_QUERY", "not both")
    check_error(refused(lambda: hr.start(processingTime="soon")), "INVALID_DURATION", "'soon'")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("epoch.gatherTimeot", "1 second", "did you mean spark.headrace.epoch.gatherTimeout?"),
        ("driverRows", "many", "expected a whole number, zero or more"),
        ("epoch.alignment", "soon", "expected a duration"),
        ("allowQueryChange", "perhaps", "expected true or false"),
        ("optimizer.disabledRules", "all_of_them", "expected names of rules"),
    ],
)
def test_settings_that_make_no_sense(spark: SparkSession, key: str, value: str, words: str) -> None:
    session = spark.newSession()
    session.conf.set(f"spark.headrace.{key}", value)
    check_error(refused(lambda: Headrace(session)), "INVALID_SETTING", words)
