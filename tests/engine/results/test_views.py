"""Views in a session: made, read by queries that run, shared, and dropped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace import Headrace
from headrace.errors import HeadraceError, Position, SqlError, StreamError
from tests.support.compare import assert_same_rows, spark_rows
from tests.support.stage import Stage, Stream, span

BIDS = Stream("Bids", "k string, v bigint, ts timestamp")


@pytest.fixture
def stage(near_spark: SparkSession, tmp_path: Path) -> Stage:
    stage = Stage(near_spark, tmp_path, {}, {"Bids": BIDS})
    stage.open()
    return stage


def _run(stage: Stage, hr: Headrace) -> None:
    hr.start(availableNow=True)
    assert hr.awaitTermination(120)


def test_queries_over_views(stage: Stage) -> None:
    hr = stage.hr
    hr.view("high", "SELECT k, v, ts FROM bids WHERE v > 1")
    hr.view(
        "Counts", "SELECT k, window, COUNT(*) AS n FROM High GROUP BY k, window(ts, '10 seconds')"
    )
    first = hr.sql("SELECT * FROM counts")
    handle = first.writeStream.queryName("first").format("results").start()
    built = hr.read("COUNTS").where("n > 1").query()
    built.writeStream.queryName("built").format("results").start()
    again = hr.sql("SELECT k AS name, window, n FROM counts")
    again.writeStream.queryName("again").format("results").start()
    text = first.explanation()
    assert text.startswith("== Views ==\nhigh\n  SELECT k, v, ts FROM bids WHERE v > 1\nCounts\n")
    assert [v["name"] for v in json.loads(built.explanation("json"))["views"]] == ["high", "Counts"]
    # One computation for all that read the view.
    assert "again" in hr.explanation()
    # The view goes; what reads it stays.
    hr.drop("counts")
    hr.drop("HIGH")
    with pytest.raises(SqlError, match="no stream, table or view 'counts'"):
        hr.sql("SELECT * FROM counts")
    stage.add_file("Bids", [("a", 1, 1), ("a", 2, 2), ("a", 3, 3), ("b", 5, 4), ("b", 5, 30)])
    _run(stage, hr)
    assert handle.exception() is None
    expected = [("a", span(0, 10), 2), ("b", span(0, 10), 1)]
    assert_same_rows(spark_rows(hr.results("first")), expected)
    assert_same_rows(spark_rows(hr.results("again")), expected)
    assert_same_rows(spark_rows(hr.results("built")), expected[:1])


def test_one_namespace_and_what_may_be_dropped(stage: Stage) -> None:
    hr = stage.hr
    hr.view("one", "SELECT k, v, ts FROM bids")
    hr.view("two", "SELECT k FROM one")
    for name, kind in (("BIDS", "stream"), ("One", "view")):
        with pytest.raises(StreamError, match=f"there is a {kind} named"):
            hr.view(name, "SELECT k FROM bids")
    clock = stage.session.readStream.format("rate").load()
    with pytest.raises(StreamError, match="there is a view named 'one' already; case"):
        hr.stream("ONE", clock, time="timestamp")
    with pytest.raises(StreamError, match="there is a view named 'two'"):
        hr.table("two", stage.session.range(3))
    with pytest.raises(StreamError, match="is no name for a stream, table or view"):
        hr.view("a-b", "SELECT k FROM bids")
    with pytest.raises(StreamError, match="stream 'Bids' is read by the view one and the view two"):
        hr.drop("bids")
    with pytest.raises(StreamError, match="view 'one' is read by the view two"):
        hr.drop("one")
    hr.drop("two")
    hr.drop("one")
    # Its name is free again.
    hr.view("one", "SELECT v FROM bids")
    assert hr.sql("SELECT * FROM one").columns == ["v"]
    hr.drop("one")
    hr.drop("Bids")


def test_what_is_wrong_with_a_view_is_said_when_it_is_made(stage: Stage) -> None:
    hr = stage.hr
    for text, condition, place in (
        ("SELECT k,\n  w FROM bids", "UNKNOWN_COLUMN", Position(2, 3)),
        ("SELECT k FROM v", "VIEW_CYCLE", None),
        ("SELECT v FROM bids ORDER BY v", "ORDER_BY", Position(1, 20)),
        # What Spark alone knows.
        ("SELECT k,\n substring_index(k, v, ts) AS x FROM bids", None, Position(2, 2)),
        ("SELECT k AS __k FROM bids", "RESERVED_NAME", Position(1, 1)),
    ):
        with pytest.raises(HeadraceError) as caught:
            hr.view("v", text)
        assert condition in (None, caught.value.condition)
        assert place in (None, caught.value.position)
        assert "\n" not in str(caught.value)
    with pytest.raises(SqlError, match="no stream, table or view 'v'"):
        hr.sql("SELECT * FROM v")


def test_a_view_of_a_table(stage: Stage) -> None:
    hr = stage.hr
    hr.table(
        "people", stage.session.createDataFrame([("a", "A"), ("b", "B")], "id string, n string")
    )
    hr.view("some_people", "SELECT id, n FROM people WHERE id = 'a'")
    query = hr.sql("SELECT p.n, b.v FROM bids b JOIN some_people p ON b.k = p.id")
    assert query.columns == ["n", "v"]
    assert "Table people" in query.explanation()
    with pytest.raises(SqlError, match="the query reads no stream, only people"):
        hr.sql("SELECT * FROM some_people")
