"""Queries that are paused and go on, or are forgotten, while others run."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from headrace.engine.changes import What
from headrace.engine.ingest.micro_batch import Batch
from headrace.errors import HeadraceError
from headrace.plan.nodes import Source
from headrace.plan.types import BIGINT, TIMESTAMP, DataType, Field, Schema
from headrace.settings import FailedQueries, read_settings
from headrace.state.store_names import results_of_query
from tests.support import stepped_engine as stepped
from tests.support.compare import assert_same_rows
from tests.support.stepped_engine import Answer, Member, Streams
from tests.support.streams import Row

SUM = "SELECT k, window, SUM(v) AS n FROM a GROUP BY k, window(ts, '10 seconds')"
JOIN = (
    "SELECT a.k, a.v, b.v AS w FROM a JOIN b ON a.k = b.k "
    "AND b.ts BETWEEN a.ts - INTERVAL 15 SECONDS AND a.ts"
)
OTHER = "SELECT k, window, MAX(v) AS n FROM a GROUP BY k, window(ts, '10 seconds')"
COUNT = "SELECT k, window, COUNT(*) AS n FROM b GROUP BY k, window(ts, '20 seconds')"
ALL = {"sum": SUM, "join": JOIN, "other": OTHER, "count": COUNT}

Wishes = Mapping[int, list[tuple[str, What]]]


def catalog() -> dict[str, Source]:
    columns = Schema((Field("k", DataType("string")), Field("v", BIGINT), Field("ts", TIMESTAMP)))
    return {name: Source(name, columns, "ts", 2_000) for name in "ab"}


def rows_of(number: int) -> dict[str, list[Row]]:
    """Some rows of an epoch: keys that meet, one that is late, and an epoch without any."""

    def row(key: str, value: int, second: float) -> Row:
        return {"k": key, "v": value, "ts": datetime.fromtimestamp(1_700_000_000 + second)}

    if number == 5:
        return {"a": [], "b": []}
    at = 7 * number
    a = [row("xyz"[i % 3], number * 10 + i, at + i) for i in range(5)]
    b = [row("xyz"[(i + number) % 3], number * 100 + i, at + i / 2) for i in range(4)]
    if number == 6:
        a.append(row("x", 999, at - 30))
    return {"a": a, "b": b}


EPOCHS = [rows_of(number) for number in range(1, 13)]


class Play:
    """An engine whose queries are asked things after some of its epochs, and restarted."""

    def __init__(self, spark: SparkSession, folder: Path, queries: Mapping[str, str]) -> None:
        self.streams = Streams(catalog(), EPOCHS)
        self.members = {name: Member(name, sql) for name, sql in queries.items()}
        self.out: dict[str, dict[int, Answer]] = {name: {} for name in queries}
        self.spark, self.folder = spark, folder
        self.files = stepped._write_files(folder / "in", self.streams)
        self.open()

    def open(self) -> None:
        settings = read_settings({"spark.headrace.executor": "buckets"})
        self.hr = stepped._opened(self.spark, self.folder, self.streams, settings)
        self.hr.ask_failed_queries = lambda: FailedQueries(others="wait")
        stepped._start(
            self.hr, list(self.members.values()), self.streams, self.out, lambda engine: None
        )

    def restart(self) -> None:
        self.hr.stop()
        self.open()

    def ask(self, name: str, what: What) -> Future[None]:
        """Ask, and let the engine come to it between two epochs; true with the next commit."""
        asked = self.hr.change_query(name, what)
        self.hr._between_epochs()
        runner = self.hr.runner
        assert runner is not None
        while runner.replay():
            pass
        return asked

    def run(self, first: int, last: int) -> None:
        for number in range(first, last + 1):
            coordinator = cast(stepped._Steps, self.hr._coordinator)
            batches = {
                name: Batch(
                    stepped._frame(self.hr, rows, self.streams.catalog[name]),
                    number - 1,
                    self.files[name, number],
                )
                for name, rows in EPOCHS[number - 1].items()
            }
            assert not coordinator.step(batches).failures

    def rows(self, name: str) -> Answer:
        return [row for _, rows in sorted(self.out[name].items()) for row in rows]


@pytest.fixture(scope="module")
def undisturbed(
    near_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[int, Answer]]:
    """What each query puts out in each epoch when it runs alone, and nobody asks it anything."""
    out = {}
    for name, sql in ALL.items():
        play = Play(near_spark, tmp_path_factory.mktemp(name), {name: sql})
        play.run(1, 12)
        out |= play.out
    assert all(sum(map(len, epochs.values())) > 10 for epochs in out.values())
    return out


QUICK = {("sum", 1, True), ("join", 4, False), ("other", 0, True)}
CASES = [
    pytest.param(*case, marks=[] if case in QUICK else pytest.mark.slow)
    for case in itertools.product(ALL, (0, 1, 4), (False, True))
]


@pytest.mark.parametrize(("name", "paused_at", "restarts"), CASES)
def test_a_paused_query_goes_on_as_if_nothing_had_happened(
    near_spark: SparkSession,
    tmp_path: Path,
    undisturbed: dict[str, dict[int, Answer]],
    name: str,
    paused_at: int,
    restarts: bool,
) -> None:
    play = Play(near_spark, tmp_path, ALL)
    play.run(1, paused_at)
    asked = play.ask(name, "pause")
    assert not asked.done()
    play.run(paused_at + 1, 6)
    asked.result(timeout=0)
    assert set(play.out[name]) <= set(range(paused_at + 1))
    if restarts:
        play.restart()
        play.run(7, 7)
        play.restart()
    play.run(8 if restarts else 7, 8)
    resumed = play.ask(name, "retry")
    play.run(9, 10)
    resumed.result(timeout=0)
    # Once more, now that it is on a state of its own.
    play.ask(name, "pause").done()
    if restarts:
        play.run(11, 11)
        play.restart()
    play.ask(name, "retry")
    play.run(12 if restarts else 11, 12)
    for each, epochs in undisturbed.items():
        for number, rows in epochs.items():
            got = play.out[each].get(number, [])
            assert_same_rows(got, rows, context=f"epoch {number} of {each}")


def test_a_query_that_goes_on_from_now_sees_what_comes(
    near_spark: SparkSession, tmp_path: Path
) -> None:
    play = Play(near_spark, tmp_path, ALL)
    play.run(1, 4)
    play.ask("sum", "pause")
    play.run(5, 8)
    before = play.rows("sum")
    play.ask("sum", "skip")
    play.run(9, 12)
    after = play.rows("sum")[len(before) :]
    # Rows up to 60 s were seen before; windows from 70 s on are whole, of which two have ended.
    seconds = {row[1][0].timestamp() - 1_700_000_000 for row in after}
    assert seconds
    assert min(seconds) > 8 * 7


def test_a_query_is_forgotten_with_all_that_is_its_own(
    near_spark: SparkSession, tmp_path: Path
) -> None:
    play = Play(near_spark, tmp_path, ALL)
    play.run(1, 3)
    play.ask("join", "pause")
    play.run(4, 4)
    for name in ("join", "sum"):
        asked = play.ask(name, "forget")
        del play.members[name]
        play.run(5 if name == "join" else 6, 5 if name == "join" else 6)
        asked.result(timeout=0)
    state = play.hr.state()
    assert set(state.queries) == {"other", "count"}
    assert not state.branches
    assert results_of_query("sum") not in state.arrangements
    # The name is free again, and a start asks for nothing.
    play.restart()
    play.run(7, 7)


def test_what_is_asked_while_nothing_runs_is_done_at_the_start(
    near_spark: SparkSession, tmp_path: Path
) -> None:
    play = Play(near_spark, tmp_path, ALL)
    play.run(1, 3)
    play.ask("sum", "pause")
    play.run(4, 4)
    play.hr.stop()
    with pytest.raises(HeadraceError, match="does not run"):
        play.hr.change_query("count", "pause")
    play.hr.stop()
    settings = play.hr.settings
    play.hr = stepped._opened(near_spark, play.folder, play.streams, settings)
    play.hr.ask_failed_queries = lambda: FailedQueries(others="wait")
    gone, resumed = play.hr.change_query("join", "forget"), play.hr.change_query("sum", "retry")
    del play.members["join"]
    stepped._start(
        play.hr, list(play.members.values()), play.streams, play.out, lambda engine: None
    )
    runner = play.hr.runner
    assert runner is not None
    assert runner.replay() is not None
    play.run(5, 5)
    gone.result(timeout=0)
    resumed.result(timeout=0)
    assert set(play.hr.state().branches) == {"sum"}


@pytest.mark.parametrize(
    ("what", "message"),
    [("pause", "does not run"), ("retry", "neither paused nor failed"), ("skip", "neither")],
)
def test_what_makes_no_sense_is_refused(
    near_spark: SparkSession, tmp_path: Path, what: What, message: str
) -> None:
    play = Play(near_spark, tmp_path, {"sum": SUM, "count": COUNT})
    play.run(1, 1)
    if what == "pause":
        play.ask("sum", "pause")
        play.run(2, 2)
    with pytest.raises(HeadraceError, match=message):
        play.ask("sum", what).result(timeout=0)
    with pytest.raises(HeadraceError, match="no query"):
        play.ask("nobody", what).result(timeout=0)
