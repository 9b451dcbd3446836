"""Names of every kind, from registration to the restart, through the public API.

Random cases run under odd names (``tests/support/renaming.py``), on both executors, with a restart
between any two epochs at which every name is spelt with another case, and put out what the oracle
says of the same cases under their plain names.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace import Headrace
from headrace.engine.execution.executor import ddl
from headrace.engine.restarts import take_spellings
from headrace.errors import HeadraceError, QueryError, StreamError
from headrace.names import folded, quoted, storage_name
from headrace.plan.durations import format_duration
from headrace.plan.nodes import OutputMode, Source
from headrace.query import QueryHandle, QueryWriter
from headrace.state.arrangement import Arrangement, StateFile
from headrace.state.committed import Committed, QueryRecord
from tests.support.compare import assert_same_rows, spark_rows
from tests.support.duck import arrow_table
from tests.support.queries import Case, random_case, random_query
from tests.support.renaming import DOTTED, ODDITIES, WORDS, another_case, query_names, rename
from tests.support.stage import QUICK, read_epoch, span

EPOCHS, QUERIES = 2, 5
#: Each query also writes to one of these.
SINKS = ("memory", "results", "foreachBatch", "noop", "console")
Rows = list[tuple[Any, ...]]


class Life:
    """Random queries under odd names, in an engine that is opened anew for every epoch."""

    def __init__(self, spark: SparkSession, folder: Path, executor: str, seed: int) -> None:
        self.chance = random.Random(f"names {seed}")
        self.folder = folder
        first = self._first_case(seed)
        catalog = {
            name: replace(node, ttl=node.ttl or None) if isinstance(node, Source) else node
            for name, node in first.catalog.items()
        }
        first = replace(first, epochs=first.epochs[:EPOCHS], catalog=catalog)
        self.cases: list[Case] = [
            first,
            *(replace(first, query=random_query(self.chance)) for _ in range(QUERIES - 1)),
        ]
        self.renamed = rename(self.cases, self.chance)
        names = query_names(self.chance, 2 * QUERIES)
        self.names, self.twins = names[:QUERIES], names[QUERIES:]
        self.session = spark.newSession()
        for key, value in QUICK.items():
            self.session.conf.set(key, value)
        self.session.conf.set("spark.headrace.executor", executor)
        # Streams that run ahead do not wait for others.
        self.session.conf.set("spark.headrace.epoch.alignment", "1000 days")
        self.handed_over: dict[tuple[int, int], Rows] = {}

    @staticmethod
    def _first_case(seed: int) -> Case:
        """A case whose streams all begin at once: then a file of each makes an epoch."""
        for attempt in itertools.count():
            case = random_case(seed * 1_000 + attempt)
            times = {s.stream: s.time for s in case.catalog.values() if isinstance(s, Source)}
            first = case.epochs[0]
            if all(any(row[time] for row in first[stream]) for stream, time in times.items()):
                return case
        raise AssertionError

    def respelt(self, name: str) -> str:
        return another_case(name, self.chance)

    @contextlib.contextmanager
    def epoch(self, number: int) -> Iterator[tuple[Headrace, list[QueryHandle]]]:
        """One epoch of an engine that knows nothing but its checkpoint, with what it prints."""
        for stream, rows in self.cases[0].epochs[number].items():
            self._add_file(stream, rows, number)
        hr = self._open()
        handles = [self._start(hr, index) for index in range(QUERIES)]
        hr.explanation()
        with contextlib.redirect_stdout(io.StringIO()):
            hr.start(availableNow=True)
            hr.awaitTermination()
        yield hr, handles

    def _open(self) -> Headrace:
        hr = Headrace(self.session, str(self.folder / "checkpoint"))
        for stream, source in self.renamed.streams.items():
            reader = self.session.readStream.schema(ddl(source.schema))
            hr.stream(
                self.respelt(source.stream),
                reader.option("maxFilesPerTrigger", 1).parquet(str(self._input(stream))),
                self.respelt(source.time),
                format_duration(source.delay),
                None if source.ttl is None else format_duration(source.ttl),
            )
        for name, table in self.renamed.tables.items():
            rows = arrow_table(self.renamed.rows(self.cases[0].tables[name]), table.schema)
            frame = self.session.createDataFrame(rows, ddl(table.schema))
            hr.table(self.respelt(table.table), frame)
        return hr

    def _start(self, hr: Headrace, index: int) -> QueryHandle:
        query = hr.sql(self.renamed.sql[index])
        query.explanation()
        writer = query.writeStream.queryName(self.respelt(self.names[index]))
        twin = query.writeStream.queryName(self.respelt(self.twins[index]))
        if self.cases[index].query.mode is OutputMode.UPDATE:
            writer, twin = writer.outputMode("update"), twin.outputMode("update")
        writer.format("parquet").option("path", self.output(index)).start()
        sink = self.sink_of(index)

        def hand_over(rows: DataFrame, epoch: int) -> None:
            self.handed_over[index, epoch] = spark_rows(rows)

        return (twin.foreachBatch(hand_over) if "each" in sink else twin.format(sink)).start()

    def sink_of(self, index: int) -> str:
        """Where the query's twin writes; a result table must know groups by what is selected."""
        sink = SINKS[index % len(SINKS)]
        updates = self.cases[index].query.mode is OutputMode.UPDATE
        return "noop" if sink == "results" and updates else sink

    def _add_file(self, stream: str, rows: list[Any], number: int) -> None:
        place = self._input(stream) / f"{number}.parquet"
        schema = self.renamed.streams[stream].schema
        parquet.write_table(arrow_table(self.renamed.rows(rows), schema), place)
        os.utime(place, (1_700_000_000 + number,) * 2)

    def _input(self, stream: str) -> Path:
        place = self.folder / "in" / stream
        place.mkdir(parents=True, exist_ok=True)
        return place

    def output(self, index: int) -> str:
        return str(self.folder / "out" / str(index))


def live(life: Life) -> int:
    """Live through all epochs and compare; the number of rows that came out."""
    expected = [case.expected() for case in life.cases]
    for number in range(EPOCHS):
        with life.epoch(number) as (hr, handles):
            for index, rows in enumerate(expected):
                context = f"epoch {number} of {life.cases[index]}\nas {life.renamed.sql[index]}"
                found = read_epoch(life.output(index), number + 1)
                assert_same_rows(found, rows[number], context)
                twin = handles[index]
                assert twin.exception() is None
                match life.sink_of(index):
                    case "memory":
                        # Spark finds its views by its own rule of case.
                        view = life.session.table(quoted(twin.name))
                        assert_same_rows(spark_rows(view), rows[number], context)
                    case "results":
                        kept = spark_rows(hr.results(life.respelt(twin.name)))
                        sql = life.cases[index].query.sql
                        if "trailing(" not in sql and "landmark(" not in sql:
                            assert_same_rows(
                                kept, [row for part in rows[: number + 1] for row in part], context
                            )
                    case "foreachBatch":
                        handed = life.handed_over.get((index, number + 1), [])
                        assert_same_rows(handed, rows[number], context)
                    case _:
                        assert (twin.lastProgress or {})["numOutputRows"] == len(rows[number])
    parts = [p for path in (life.folder / "checkpoint").rglob("*") for p in path.parts[-1:]]
    assert all(part.isascii() and len(part) < 255 for part in parts)
    return sum(len(rows) for epochs in expected for rows in epochs)


@pytest.mark.random
@pytest.mark.parametrize(("seed", "executor"), [(1, "buckets"), (4, "spark")])
def test_random_names(seed: int, executor: str, spark: SparkSession, tmp_path: Path) -> None:
    assert live(Life(spark, tmp_path, executor, seed)) > 0


@pytest.mark.slow
@pytest.mark.random
@pytest.mark.parametrize("seed", range(100, 120))
def test_more_random_names(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    live(Life(spark, tmp_path, ("spark", "buckets")[seed % 2], seed))


def test_a_name_keeps_its_case_and_is_found_without_it(spark: SparkSession, tmp_path: Path) -> None:
    """Streams, tables, columns, aliases, queries and what was asked of them, at every place."""
    session = spark.newSession()
    for key, value in QUICK.items():
        session.conf.set(key, value)
    columns = "Auction bigint, Price bigint, Ts timestamp"
    session.sql(
        "SELECT 1L AS Auction, 5L AS Price, TIMESTAMP '2024-01-01 00:00:01' AS Ts UNION ALL "
        "SELECT 2L, 7L, TIMESTAMP '2024-01-01 00:00:12'"
    ).coalesce(1).write.mode("overwrite").parquet(str(tmp_path / "bids"))
    bids = session.readStream.schema(columns).parquet(str(tmp_path / "bids"))
    hr = Headrace(session, str(tmp_path / "checkpoint"))
    hr.stream("Bids", bids, time="TS")
    hr.table("Person", session.createDataFrame([(1, "Ann")], "Id bigint, Name string"))
    for name in ("bids", "BIDS", "person"):
        with pytest.raises(StreamError, match="already; case makes no difference"):
            hr.stream(name, bids, time="Ts")
    query = hr.sql(
        "WITH Seen AS (SELECT B.auction, p.NAME AS Who, b.PRICE, b.ts FROM bids AS B "
        "LEFT JOIN PERSON AS P ON b.AUCTION = p.id) "
        "SELECT WHO, window, SUM(price) AS Total FROM seen GROUP BY who, WINDOW(tS, '10 seconds')"
    )
    assert query.columns == ["WHO", "window", "Total"]
    assert "Source Bids" in query.explanation()
    assert "Table Person" in query.explanation()
    hot = query.writeStream.queryName("Hot").format("results").start()
    with pytest.raises(QueryError, match="a query named 'Hot' already"):
        query.writeStream.queryName("hot").format("noop").start()
    hr.start(availableNow=True)
    hr.awaitTermination()
    assert hot.name == "Hot"
    assert (hot.lastProgress or {})["name"] == "Hot"
    assert list((hr.lastProgress or {})["watermarks"]) == ["Bids"]
    assert hr.streamProgress("BIDS") == hr.streamProgress("Bids") != []
    assert hr.results("HOT").columns == ["WHO", "window", "Total"]
    assert_same_rows(spark_rows(hr.results("hoT")), [("Ann", span(0, 10), 5)])
    assert sorted(os.listdir(tmp_path / "checkpoint" / "ingest")) == ["bids"]
    hot.stop()
    hr.drop("bIDS")
    with pytest.raises(HeadraceError, match="no stream 'Bids'"):
        hr.drop("Bids")


def test_names_that_cannot_work_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    hr = Headrace(spark, str(tmp_path / "checkpoint"))
    clock = spark.readStream.format("rate").load()
    for name in ("", "a b", "a.b", "a/b", "..", "100%", "it's", "`", "a-b", "x" * 256, "\n"):
        with pytest.raises(StreamError, match="is no name for a stream, table or view"):
            hr.stream(name, clock, time="timestamp")
    for name in ("", "a b", "a.b", "../x", "a%b", "`q`", "x" * 256):
        with pytest.raises(QueryError, match="is no name for a query"):
            QueryWriter(hr.read).queryName(name)  # type: ignore[arg-type]
    with pytest.raises(StreamError, match="'value' and 'VALUE'") as twice:
        hr.stream("s", clock.selectExpr("timestamp", "value", "1 AS VALUE"), time="timestamp")
    assert twice.value.condition == "DUPLICATE_COLUMN"
    with pytest.raises(StreamError, match="'Processing_Time' and 'processing_time'"):
        hr.stream("s", clock.selectExpr("value AS Processing_Time"), time="processing")
    hr.stream("s", clock.selectExpr("timestamp", "value AS __new"), time="TIMESTAMP")
    # A column that no query reads is in nobody's way.
    hr.sql("SELECT timestamp FROM s").writeStream.queryName("fine").format("noop").start()
    for sql in ("SELECT `__NEW` AS n FROM s", "SELECT 1 AS __epoch FROM s"):
        with pytest.raises(QueryError, match="names that begin with '__'") as reserved:
            hr.sql(sql).writeStream.queryName("bad").format("noop").start()
        assert reserved.value.condition == "RESERVED_NAME"


def test_a_session_with_case_sensitive_names(spark: SparkSession, tmp_path: Path) -> None:
    """Headrace's own session decides: columns that differ in case only are refused."""
    session = spark.newSession()
    session.conf.set("spark.sql.caseSensitive", "true")
    hr = Headrace(session, str(tmp_path / "checkpoint"))
    both = session.readStream.format("rate").load().selectExpr("timestamp", "1 AS a", "2 AS A")
    with pytest.raises(StreamError, match="'a' and 'A'"):
        hr.stream("s", both, time="timestamp")
    hr.stream("S", both.selectExpr("timestamp", "A AS Price"), time="Timestamp")
    assert hr.sql("SELECT PRICE FROM s").columns == ["PRICE"]


def test_results_that_were_kept_under_the_name_itself() -> None:
    """Earlier versions named the folder and the table of `Hot` as the query, capitals and all."""
    files = [StateFile("results/Hot/0000000001", 1, 3, 10, None, None)]
    record = QueryRecord("plan", 1, None, ("rows-bids",))
    state = Committed(
        queries={"Hot": record, "plain": record},
        arrangements={n: Arrangement(n, files) for n in ("results-Hot", "results-plain")},
        merged={"Hot": "m"},
    )
    take_spellings(state, ["hOT", "plain"])
    assert set(state.queries) == {"hOT", "plain"}
    assert state.merged == {"hOT": "m"}
    assert set(state.arrangements) == {"results-hot", "results-plain"}
    assert state.arrangements["results-hot"].files == files


def test_names_in_paths() -> None:
    """Plain names are stored as they are, others by a name that any file system takes."""
    assert [storage_name(n) for n in ("bids", "a_1", "q-7")] == ["bids", "a_1", "q-7"]
    names = [*WORDS, *ODDITIES, *DOTTED, "a b", "a_b", "a.b", "a/b", "A/B", "..", ".", "a" * 201]
    stored = {folded(name): storage_name(name) for name in names}
    assert len(set(stored.values())) == len(stored)
    for name in stored.values():
        assert re.fullmatch("[a-z0-9_-]{1,200}", name)
