"""Two hundred queries run merged while a hundred leave and a hundred come; also with a SIGKILL.

The default run has a part of them, with the SIGKILL: forty, of which some leave and come.

Every query's output, epoch by epoch, is what the oracle gives to it alone over what it was entitled
to: everything to those that were there from the start, and to those that joined late what is whole
since they did (``docs/semantics.md``, queries that join a running engine).
"""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.plan.nodes import Node, OutputMode
from headrace.plan.types import TIMESTAMP, WINDOW
from tests.conftest import REPOSITORY
from tests.engine.crashes.churn_child import (
    CUT_AT,
    CUT_SHORT,
    GAP,
    MERGED_FILES,
    STREAMS,
    Planned,
    Player,
    Plot,
    make_plot,
)
from tests.support.compare import assert_same_rows
from tests.support.oracle import run_epochs
from tests.support.oracle_epochs import stream_watermarks
from tests.support.script import read_epoch
from tests.support.tally import Tally

Rows = list[tuple[Any, ...]]
#: How many queries run, and into how many jobs they fit.
SIZES = [(60, 30), (200, 40)]
MILLISECOND = datetime.timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("queries", "most_jobs"),
    [pytest.param(n, most, marks=pytest.mark.slow) for n, most in SIZES],
)
def test_many_queries_while_half_of_them_leave_and_as_many_come(
    queries: int, most_jobs: int, spark: SparkSession, tmp_path: Path, tally: Tally
) -> None:
    changes = dict.fromkeys((2, 3, 4, 5, 7), (queries // 10, queries // 10))
    plot = make_plot(1, queries, changes, epochs=11)
    assert Counter(len(plot.live(epoch)) for epoch in range(plot.epochs)) == {queries: plot.epochs}
    player = Player.on(spark, tmp_path, plot, MERGED_FILES)
    player.begin(plot.live(0))
    player.run(range(1, plot.epochs + 1))
    jobs = [int(epoch["jobs"]) for epoch in player.stage.hr.recentProgress]
    player.stage.hr.stop()
    check(player, plot, tally)
    # Results that each have a job of their own would be as many.
    assert max(jobs) <= most_jobs, jobs


@pytest.mark.crash
@pytest.mark.parametrize(
    "place",
    [
        "sink.after:12",
        *(
            pytest.param(place, marks=pytest.mark.slow)
            for place in (
                *("intent.after:1", "state.after:2", "commit.before:1"),
                *("commit.after:1", "publish.after:1"),
            )
        ),
    ],
)
def test_queries_that_come_and_go_and_a_process_that_is_killed(
    spark: SparkSession, tmp_path: Path, place: str, tally: Tally
) -> None:
    killed = subprocess.run(
        [sys.executable, "-m", "tests.engine.crashes.churn_child", str(tmp_path), place],
        cwd=REPOSITORY,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2_000:]
    player = Player.on(spark, tmp_path, CUT_SHORT, MERGED_FILES)
    committed = place.startswith(("commit.after", "publish"))
    assert player.stage.last_epoch() == (CUT_AT if committed else CUT_AT - 1)
    player.begin(CUT_SHORT.live(CUT_AT - 1))
    # An epoch that was committed is not done again, and tells nothing.
    player.run(range(CUT_AT + committed, CUT_SHORT.epochs + 1))
    player.stage.hr.stop()
    check(player, CUT_SHORT, tally)


def check(player: Player, plot: Plot, tally: Tally) -> None:
    """Compare every epoch of every query, and nothing may have come out of any other epoch."""
    epochs = [
        {s.name: s.table(plot.files[s.name][n]).to_pylist() for s in STREAMS}
        for n in range(plot.epochs)
    ]
    oracle = Oracle(player, epochs)
    some_rows: Counter[str] = Counter()
    for query in plot.queries:
        expected = oracle.owed(query)
        tally.add(sum(map(len, expected.values())))
        path = player.stage.output(query.folder)
        for number in range(1, plot.epochs + 1):
            found = read_epoch(path, number)
            told = f"{query.folder} (after epoch {query.joins_after}), epoch {number}: {query.text}"
            assert_same_rows(found, expected.get(number, []), told)
            some_rows[query.meaning.name] += len(found)
        handle = player.handles.get(query.number)
        if handle is not None:
            assert handle.exception() is None
            assert handle.status.get("from") == oracle.whole_from(query), query
    # What is compared is not nothing, but for the one that asks for the impossible.
    assert {name for name, rows in some_rows.items() if not rows} <= {"f_none"}


class Oracle:
    """What each query is owed."""

    def __init__(self, player: Player, epochs: Sequence[Mapping[str, Any]]) -> None:
        self._engine = player.stage.hr
        self._epochs = epochs
        self._answers = lru_cache(self._answer)

    def owed(self, query: Planned) -> dict[int, Rows]:
        """The rows of each epoch in which a query takes part."""
        numbers = range(query.joins_after + 1, query.leaves_after + 1)
        since = query.joins_after if query.meaning.owed == "sums" else 0
        answer = self._answers(query.text, query.meaning.mode, since)
        wanted = self._wanted(query)
        return {number: [row for row in answer[number - 1] if wanted(row)] for number in numbers}

    def whole_from(self, query: Planned) -> str | None:
        """From when on its results are whole, as its status says."""
        if not query.joins_after:
            return None
        moment = self._joined_at(query) + query.meaning.warm_up * MILLISECOND
        if query.meaning.owed == "sessions":
            moment += datetime.timedelta(seconds=GAP)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1_000:03d}Z"

    def _answer(self, text: str, mode: str, since: int) -> list[Rows]:
        plan = self._plan(text)
        # A landmark counts what comes; the streams' watermarks are whose they were.
        epochs = [{} if number < since else rows for number, rows in enumerate(self._epochs)]
        marks = stream_watermarks(plan, self._epochs)
        return run_epochs(plan, epochs, mode=OutputMode(mode), watermarks=marks)

    def _plan(self, text: str) -> Node:
        return self._engine.sql(text).plan

    def _joined_at(self, query: Planned) -> datetime.datetime:
        """The least time after everything that its streams had shown before it joined."""
        shown = [
            row["ts"]
            for epoch in self._epochs[: query.joins_after]
            for stream in query.meaning.streams
            for row in epoch[stream]
            if row["ts"] is not None
        ]
        greatest: datetime.datetime = max(shown)
        return greatest.replace(microsecond=greatest.microsecond // 1_000 * 1_000) + MILLISECOND

    def _wanted(self, query: Planned) -> Callable[[tuple[Any, ...]], bool]:
        if not query.joins_after or query.meaning.owed in ("rows", "sums"):
            return lambda row: True
        schema = self._plan(query.text).schema
        joined = self._joined_at(query)
        if query.meaning.owed == "pairs":
            times = [i for i, f in enumerate(schema) if f.type == TIMESTAMP]
            assert len(times) == 2
            return lambda row: all(row[i] >= joined for i in times)
        whole = joined + query.meaning.warm_up * MILLISECOND
        if query.meaning.owed == "sessions":
            whole += datetime.timedelta(seconds=GAP)
        (window,) = [i for i, f in enumerate(schema) if f.type == WINDOW]
        return lambda row: bool(row[window][0] >= whole)
