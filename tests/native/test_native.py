"""Plans as plain Structured Streaming against the oracle, and what is refused.

Spark's results come a micro-batch later and its watermark is one for all, so complete results are
compared: the data ends with rows far in the future, in all streams, that close everything before.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headrace import native
from headrace.plan.nodes import Node, OutputMode, Source
from headrace.sql import plan_query
from tests.support.compare import arrow_rows, assert_same_rows
from tests.support.duck import arrow_table
from tests.support.oracle import run_epochs
from tests.support.streams import BEGIN, BIDS, CLICKS, ITEMS, STOPS, Epochs

CATALOG: dict[str, Any] = {"bids": BIDS, "clicks": CLICKS, "stops": STOPS, "items": ITEMS}
ITEM_ROWS = [{"k": n, "label": "ab"[n % 2], "size": n / 4} for n in range(3)]

FINAL_QUERIES = {
    "tumbling": (
        "SELECT k, window, count(*) AS n, sum(price) AS total, avg(fee) AS fee, "
        "max(amount) AS most, stddev(price) AS spread, count_if(flag) AS flags, "
        "sum(price) FILTER (WHERE flag) AS flagged, percentile(price, 0.5) AS middle "
        "FROM bids GROUP BY k, window(ts, '10 seconds') HAVING count(*) > 1"
    ),
    "many windows": (
        "SELECT k, window, window_id, min(price) AS least FROM bids WHERE price IS NOT NULL "
        "GROUP BY k, windows(window(ts, '5 seconds'), window(ts, '20 seconds', '5 seconds'), "
        "window(ts, '10 seconds', '10 seconds', '3 seconds'))"
    ),
    "session": (
        "SELECT k, session_window, count(*) AS n FROM bids "
        "GROUP BY k, session_window(ts, '2 seconds')"
    ),
    "cascade": (
        "SELECT window, max(n) AS most FROM (SELECT k, window, count(*) AS n FROM bids "
        "GROUP BY k, window(ts, '5 seconds')) GROUP BY window(window_time(window), '20 seconds')"
    ),
    "window of window": (
        "SELECT window, sum(n) AS n FROM (SELECT k, window, count(*) AS n FROM bids "
        "GROUP BY k, window(ts, '5 seconds')) GROUP BY window"
    ),
    "union": (
        "SELECT k, window, count(*) AS n FROM (SELECT k, ts AS at FROM bids "
        "UNION ALL SELECT k, at FROM clicks) GROUP BY k, window(at, '10 seconds')"
    ),
    "interval join": (
        "SELECT a.k, a.price, b.score, a.ts, b.at FROM bids a JOIN clicks b "
        "ON a.k = b.k AND b.at BETWEEN a.ts - INTERVAL 1 SECONDS AND a.ts + INTERVAL 2 SECONDS"
    ),
    "hopping window join": (
        "SELECT a.k, window, a.price, b.score FROM bids a JOIN clicks b ON a.k = b.k "
        "AND window(a.ts, '6 seconds', '2 seconds') = window(b.at, '6 seconds', '2 seconds')"
    ),
    "full outer window join": (
        "SELECT a.k, a.price, b.k AS bk, b.score FROM bids a FULL JOIN clicks b "
        "ON a.k = b.k AND window(a.ts, '2 seconds') = window(b.at, '2 seconds') AND a.price > 0"
    ),
    "aggregate over a join": (
        "SELECT a.k, window, count(*) AS n FROM bids a JOIN clicks b ON a.k = b.k "
        "AND window(a.ts, '5 seconds') = window(b.at, '5 seconds') "
        "GROUP BY a.k, window(a.ts, '10 seconds')"
    ),
    "three-way join": (
        "SELECT a.k, a.ts, b.at, c.ts AS cts FROM bids a "
        "JOIN clicks b ON a.k = b.k AND window(a.ts, '4 seconds') = window(b.at, '4 seconds') "
        "JOIN stops c ON a.k = c.k AND c.ts BETWEEN a.ts AND a.ts + INTERVAL 3 SECONDS"
    ),
    "table join": "SELECT a.k, i.label, a.price FROM bids a LEFT JOIN items i ON a.k = i.k",
    "state-based join": "SELECT a.k, a.price, b.score FROM bids a JOIN clicks b ON a.k = b.k",
}


def _data(seed: int, epochs: int = 2) -> Epochs:
    """Rows out of order but never late; the last is an hour later and closes all before it."""
    chance = random.Random(seed)
    out: Epochs = []
    for number in range(epochs):
        begin = BEGIN + datetime.timedelta(seconds=6 * number)
        out.append(
            {s.stream: [_row(chance, s, begin) for _ in range(20)] for s in (BIDS, CLICKS, STOPS)}
        )
    end = BEGIN + datetime.timedelta(hours=1)
    # A key of their own: the last rows must not join or share a window with anything.
    for source in (BIDS, CLICKS, STOPS):
        row = _row(chance, source, end) | {source.time: end, "k": 99}
        # Spark counts the watermark behind filters, so no filter of these queries may drop it.
        row |= {"price": 30} if source is BIDS else {}
        out[-1][source.stream].append(row)
    return out


def _row(chance: random.Random, source: Source, begin: datetime.datetime) -> dict[str, Any]:
    # Less out of order than the delay; streams without one come in order of epochs.
    spread = 6_000 + source.delay
    time = begin + datetime.timedelta(
        milliseconds=chance.randrange(-source.delay, spread - source.delay)
    )
    values = {
        "k": chance.choice((0, 0, 1, 2, None)),
        "name": chance.choice(("a", "B", None)),
        "price": chance.choice((None, *range(-5, 40))),
        "fee": chance.randrange(0, 40) / 4,
        "ratio": 1.0,
        "amount": None,
        "flag": chance.choice((True, False, None)),
        "score": chance.randrange(0, 9),
        "page": "p",
        "weight": 0.5,
        "code": "c",
    }
    return {n: time if n == source.time else values[n] for n in source.schema.names}


def _write(folder: Path, epochs: Epochs) -> None:
    """A file per stream and epoch, in the order in which Spark shall read them."""
    for number, epoch in enumerate(epochs):
        for source in (BIDS, CLICKS, STOPS):
            path = folder / source.stream / f"{number:03}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(arrow_table(epoch[source.stream], source.schema), path)
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def _read(spark: Any, folder: Path) -> dict[str, Any]:
    streams = {}
    for source in (BIDS, CLICKS, STOPS):
        schema = ", ".join(f"{f.name} {f.type.name}" for f in source.schema)
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        streams[source.stream] = reader.parquet(str(folder / source.stream))
    return streams


def _plan(sql: str) -> Node:
    return plan_query(sql, CATALOG).plan


@pytest.fixture(scope="module")
def narrow(spark: Any) -> Any:
    """A session with one partition: these queries are small and many."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    return session


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Epochs]:
    folder, epochs = tmp_path_factory.mktemp("native"), _data(5)
    _write(folder, epochs)
    return folder, epochs


@pytest.mark.parametrize(
    "name",
    [
        name if place % 2 == 0 else pytest.param(name, marks=pytest.mark.slow)
        for place, name in enumerate(FINAL_QUERIES)
    ],
)
def test_complete_results_are_the_oracles(
    narrow: Any, data: tuple[Path, Epochs], tmp_path: Path, name: str
) -> None:
    folder, epochs = data
    plan = _plan(FINAL_QUERIES[name])
    items = narrow.createDataFrame(arrow_table(ITEM_ROWS, ITEMS.schema))
    ran = native.run(
        plan,
        narrow,
        _read(narrow, folder),
        {"items": items},
        checkpoint=str(tmp_path / "state"),
        out_dir=str(tmp_path / "out") if name in ("tumbling", "interval join") else None,
    )
    expected = [row for e in run_epochs(plan, epochs, {"items": ITEM_ROWS}) for row in e]
    assert expected
    assert ran.rows is not None
    assert_same_rows(arrow_rows(ran.rows), expected, name, plan.schema.names)
    assert ran.seconds > 0
    assert len(ran.batches) == len(epochs)
    assert all(0 < milliseconds < 1000 * ran.seconds for milliseconds in ran.batches)


def test_totals_so_far_are_updated(narrow: Any, data: tuple[Path, Epochs], tmp_path: Path) -> None:
    folder, epochs = data
    plan = _plan("SELECT k, count(*) AS n, sum(price) AS total FROM bids GROUP BY k, landmark(ts)")
    ran = native.run(
        plan,
        narrow,
        _read(narrow, folder),
        checkpoint=str(tmp_path / "state"),
        out_dir=str(tmp_path / "out"),
    )
    expected = [row for epoch in run_epochs(plan, epochs) for row in epoch]
    assert ran.rows is not None
    assert_same_rows(arrow_rows(ran.rows), expected)


LATE_QUERIES = {
    "hopping": (
        "SELECT k, window, count(*) AS n FROM bids GROUP BY k, window(ts, '6 seconds', '2 seconds')"
    ),
    "session": (
        "SELECT k, window, count(*) AS n FROM bids GROUP BY k, session_window(ts, '1 second')"
    ),
}


@pytest.mark.parametrize("name", list(LATE_QUERIES))
def test_late_rows_are_late_in_both(narrow: Any, tmp_path: Path, name: str) -> None:
    """An epoch per run: Spark then settles its watermark before the next rows, as Headrace does."""
    plan = _plan(LATE_QUERIES[name])
    chance = random.Random(7)
    steps = (0, 9, 3, 30)  # the third epoch is mostly late
    epochs: Epochs = [
        {
            s.stream: [_row(chance, s, BEGIN + datetime.timedelta(seconds=step)) for _ in range(12)]
            for s in (BIDS, CLICKS, STOPS)
        }
        for step in steps
    ]
    expected = run_epochs(plan, epochs)
    everything = [{name: [r for e in epochs for r in e[name]] for name in epochs[0]}]
    on_time = [row for epoch in run_epochs(plan, everything) for row in epoch]
    assert sorted(map(repr, on_time)) != sorted(repr(r) for e in expected for r in e), "none late"
    folder = tmp_path / "in"
    seen = 0
    for number in range(len(epochs)):
        _write(folder, epochs[: number + 1])
        ran = native.run(
            plan,
            narrow,
            _read(narrow, folder),
            checkpoint=str(tmp_path / "state"),
            out_dir=str(tmp_path / "out"),
        )
        assert ran.rows is not None
        so_far = [row for epoch in expected[: number + 1] for row in epoch]
        assert_same_rows(arrow_rows(ran.rows), so_far, f"{name}, epoch {number}")
        seen = ran.rows.num_rows
    assert seen


def test_the_users_session_is_left_alone(spark: Any, data: tuple[Path, Epochs]) -> None:
    reuse = "spark.sql.exchange.reuse"
    before = dict(spark.conf.getAll)
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        frame = native.stream_plan(_plan(FINAL_QUERIES["many windows"]), _read(spark, data[0]))
        assert frame.isStreaming
        assert frame.sparkSession.conf.get(reuse) == "false"
        assert frame.sparkSession.conf.get("spark.sql.shuffle.partitions") == "3"
        assert spark.conf.get(reuse) == "true"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before["spark.sql.shuffle.partitions"])
    assert dict(spark.conf.getAll) == before
    assert frame.schema.names == ["k", "window", "window_id", "least"]


REFUSED = {
    "SELECT k, count(DISTINCT name) AS n FROM bids GROUP BY k, window(ts, '1 second')": "DISTINCT",
    "SELECT k, count(*) AS n FROM bids GROUP BY k, trailing(ts, '1 second')": "at the watermark",
    "SELECT k, count(*) AS n FROM bids GROUP BY k, window(ts, '1 second', '2 seconds')": "slide",
    "SELECT count(*) AS n FROM bids GROUP BY session_window(ts, '1 second')": "grouping key",
    (
        "SELECT a.k FROM bids a JOIN clicks b ON a.k = b.k "
        "AND session_window(a.ts, '1 second') = session_window(b.at, '1 second')"
    ): "session",
}


@pytest.mark.parametrize("sql", list(REFUSED))
def test_what_spark_cannot_do_is_refused(sql: str) -> None:
    with pytest.raises(native.NativeUnsupported, match=REFUSED[sql]):
        native.require_supported(_plan(sql))


def test_a_ttl_is_refused() -> None:
    plan = plan_query(
        "SELECT a.k FROM bids a JOIN clicks b ON a.k = b.k",
        {**CATALOG, "bids": dataclasses.replace(BIDS, ttl=1000)},
    ).plan
    with pytest.raises(native.NativeUnsupported, match="ttl"):
        native.require_supported(plan)


@pytest.mark.parametrize("name", ["many windows", "cascade", "session", "aggregate over a join"])
def test_update_mode_is_for_one_operator(name: str) -> None:
    plan = _plan(FINAL_QUERIES[name])
    native.require_supported(plan)
    with pytest.raises(native.NativeUnsupported, match=r"append mode|update mode"):
        native.require_supported(plan, OutputMode.UPDATE)
