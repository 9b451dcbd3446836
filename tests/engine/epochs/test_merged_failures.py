"""What merged queries must not do to each other: lose rows, fail together, forget who they are.

Queries that share a result, a join, a store or a micro-batch are to behave as if each ran alone.
Here one of them breaks, joins late, or wants its rows elsewhere, and the others do not notice.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from tests.support.compare import assert_same_rows, spark_rows
from tests.support.script import (
    AddData,
    Advance,
    Check,
    CheckAnswer,
    CheckEpochs,
    CheckNewAnswer,
    ExpectError,
    Restart,
    Run,
    Stage,
    StartQuery,
    Stop,
    Stream,
    WaitUntil,
    play,
    span,
)

BIDS = Stream("bids", "k string, v bigint, w int, ts timestamp")
ASKS = Stream("asks", "k string, p bigint, ts timestamp")
BY_WINDOW = "GROUP BY k, window(ts, '10 seconds')"
COUNT = f"SELECT k, window, COUNT(*) AS n FROM bids {BY_WINDOW}"


def check_health(stage: Stage, failed: set[str]) -> None:
    """These queries have failed, all others have not."""
    for name, handle in stage.handles.items():
        assert (handle.exception() is not None) == (name in failed), f"{name}: {handle.exception()}"
        assert handle.isActive == (name not in failed), name


def one_result(stage: Stage) -> bool:
    """Whether one operator feeds the sinks of all queries."""
    runner = stage.hr._engine._runner
    assert runner is not None
    return len(runner.physical.output_operators()) == 1


@pytest.mark.parametrize("executor", ["auto", "spark"])
@pytest.mark.parametrize("broken", [["first"], ["first", "second"]], ids=["one", "two"])
def test_a_broken_folder_of_one_of_equal_queries(
    spark: SparkSession, tmp_path: Path, broken: list[str], executor: str
) -> None:
    """The rows of all are written to the first one's folder; who is left must not depend on it."""
    text = "SELECT k, v FROM bids WHERE v > 1"

    def break_folders(stage: Stage) -> None:
        for name in broken:
            shutil.rmtree(stage.output(name))
            Path(stage.output(name)).write_text("a file in the way")

    def mend_folders(stage: Stage) -> None:
        for name in broken:
            Path(stage.output(name)).unlink()

    def only_broken_wait(stage: Stage) -> bool:
        check_health(stage, set())
        return {n for n, h in stage.handles.items() if "waitingForSink" in h.status} == set(broken)

    def nobody_waits(stage: Stage) -> bool:
        return not any("waitingForSink" in handle.status for handle in stage.handles.values())

    names = ["first", "second", "third"]
    play(
        spark,
        tmp_path,
        [BIDS],
        *(StartQuery(name, text) for name in names),
        Run(),
        AddData("bids", ("a", 5, 1, 1)),
        Advance(),
        Check("one result for all", one_result),
        Check("break folders", break_folders),
        AddData("bids", ("a", 6, 1, 2), ("a", 1, 1, 2)),
        Advance(),
        Check("only their rows wait", only_broken_wait),
        AddData("bids", ("b", 7, 1, 3)),
        Advance(),
        Check("the others go on", only_broken_wait),
        *(
            CheckEpochs(name, [("a", 5)], [("a", 6)], [("b", 7)])
            for name in names
            if name not in broken
        ),
        Check("mend folders", mend_folders),
        WaitUntil("all rows are delivered", nobody_waits),
        *(CheckAnswer(name, ("a", 6), ("b", 7)) for name in broken),
        settings={"spark.headrace.executor": executor},
    )


def test_rows_held_beside_a_join_that_fails(spark: SparkSession, tmp_path: Path) -> None:
    """What is held later in an epoch must not take the place of what was held before."""
    join = (
        "FROM bids b JOIN asks a ON b.k = a.k "
        "AND window(b.ts, '10 seconds') = window(a.ts, '10 seconds')"
    )
    # Held in a second round, once the aggregate below it has its rows.
    largest = (
        f"SELECT k, window, MAX(n){{}} AS m FROM ({COUNT}) "
        "GROUP BY k, window(window_time(window), '10 seconds')"
    )
    # Two readers of each, so that all of them are held.
    texts = {
        "divided": f"SELECT b.k, b.v, a.p {join} AND 10 DIV b.v > a.p",
        "divided_too": f"SELECT b.k, b.v + 1 AS v, a.p + 1 AS p {join} AND 10 DIV b.v > a.p",
        "pairs": f"SELECT b.k, b.v, a.p {join}",
        "pairs_too": f"SELECT b.k, b.v + 1 AS v, a.p + 1 AS p {join}",
        "largest": largest.format(""),
        "largest_too": largest.format(" + 1"),
    }
    play(
        spark,
        tmp_path,
        [BIDS, ASKS],
        *(StartQuery(name, text) for name, text in texts.items()),
        AddData("bids", ("a", 5, 1, 1)),
        AddData("asks", ("a", 1, 1)),
        Advance(),
        Check("all is well", lambda stage: check_health(stage, set())),
        AddData("bids", ("a", 0, 1, 12), ("a", 7, 1, 30)),
        AddData("asks", ("a", 1, 12), ("a", 2, 30)),
        ExpectError(Advance(), "QUERY_FAILED", "DIVIDE_BY_ZERO"),
        Check("two fail", lambda stage: check_health(stage, {"divided", "divided_too"})),
        CheckEpochs("pairs", [("a", 5, 1)], [("a", 0, 1), ("a", 7, 2)]),
        CheckEpochs("pairs_too", [("a", 6, 2)], [("a", 1, 2), ("a", 8, 3)]),
        CheckEpochs("largest", [], [("a", span(0, 10), 1), ("a", span(10, 20), 1)]),
        CheckEpochs("largest_too", [], [("a", span(0, 10), 2), ("a", span(10, 20), 2)]),
        settings={
            "spark.headrace.executor": "spark",
            "spark.headrace.merge.sharedRows": "0",
        },
    )


def test_a_checkpoint_names_stores_as_if_nothing_were_folded(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Whether filters share a store may change; what a query needs to resume does not."""
    halves = {
        name: f"SELECT k, window, COUNT(*) AS n FROM bids WHERE {condition} {BY_WINDOW}"
        for name, condition in {"of_v": "v > 1", "of_w": "w > 1"}.items()
    }

    def recorded(stage: Stage) -> set[str]:
        return {
            store for record in stage.commit()["queries"].values() for store in record["stores"]
        }

    apart = play(
        spark,
        tmp_path / "apart",
        [BIDS],
        *(StartQuery(name, text) for name, text in halves.items()),
        AddData("bids", ("a", 5, 5, 1)),
        Advance(),
    )
    expected = recorded(apart)
    assert len(expected) == 2
    play(
        spark,
        tmp_path / "together",
        [BIDS],
        StartQuery("both", " UNION ALL ".join(halves.values())),
        AddData("bids", ("a", 5, 5, 1)),
        Advance(),
        Check("the same stores", lambda stage: recorded(stage) == expected),
        Restart(),
        AddData("bids", ("a", 5, 1, 2), ("a", 5, 1, 21)),
        Advance(),
        CheckAnswer("both", ("a", span(0, 10), 2), ("a", span(0, 10), 1)),
        Check("the same after a restart", lambda stage: recorded(stage) == expected),
    )


def test_texts_that_are_no_numbers_behind_another_filter(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A deviation casts texts, and must not meet those that its own filter keeps away from it."""
    notes = Stream("notes", "k string, v string, ts timestamp")
    text = f"SELECT k, window, {{}} AS m FROM notes WHERE k = '{{}}' {BY_WINDOW}"
    play(
        spark,
        tmp_path,
        [notes],
        StartQuery("deviation", text.format("STDDEV(v)", "n")),
        StartQuery("texts", text.format("COUNT(*)", "s")),
        AddData("notes", ("n", "5", 1), ("n", "7", 2), ("s", "abc", 3)),
        AddData("notes", ("n", "5", 21)),
        Advance(),
        Check("neither fails", lambda stage: check_health(stage, set())),
        CheckEpochs("deviation", [], [("n", span(0, 10), 2**0.5)]),
        CheckEpochs("texts", [], [("s", span(0, 10), 1)]),
    )


def test_a_late_joiner_before_1970(spark: SparkSession, tmp_path: Path) -> None:
    """Times are negative there, and one who joined late is still the later one."""
    begin = -1_800_000_000  # in December 1966, at the start of a window of both lengths
    text = (
        f"SELECT k, window, SUM(n) AS m FROM ({COUNT}) "
        "GROUP BY k, window(window_time(window), '40 seconds')"
    )

    def bids(*seconds: int) -> AddData:
        return AddData("bids", *(("a", 1, 1, begin + second) for second in seconds))

    def total(start: int, rows: int) -> tuple[Any, ...]:
        return "a", span(begin + start, begin + start + 40), rows

    play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("first", text),
        Run(),
        bids(1, 12),
        Advance(),
        StartQuery("late", text),
        bids(13, 22),
        Advance(),
        bids(31, 45),
        Advance(),
        bids(60, 95, 140),
        Advance(),
        Stop(),
        CheckAnswer("first", total(0, 5), total(40, 2), total(80, 1)),
        CheckAnswer("late", total(40, 2), total(80, 1)),
    )


def test_a_late_joiner_says_from_when_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    """It is merged with the others by then, and what it put out still begins where it began."""

    def is_apart(stage: Stage) -> bool:
        return "late" in stage.hr._engine.apart

    def says_from_when(stage: Stage) -> None:
        assert stage.handles["late"].status["from"] == "2024-01-01T00:00:01.001Z"
        assert "from" not in stage.handles["first"].status

    play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("first", COUNT),
        Run(),
        AddData("bids", ("a", 1, 1, 1)),
        Advance(),
        StartQuery("late", COUNT),
        AddData("bids", ("a", 1, 1, 11)),
        Advance(),
        Check("apart at first", is_apart),
        Check("at once", says_from_when),
        AddData("bids", ("a", 1, 1, 61)),
        Advance(),
        AddData("bids", ("a", 1, 1, 62)),
        Advance(),
        Check("it has caught up", lambda stage: not is_apart(stage)),
        Check("caught up", says_from_when),
        CheckNewAnswer("late", ("a", span(10, 20), 1)),
        Restart(),
        Run(),
        AddData("bids", ("a", 1, 1, 71)),
        Advance(),
        Check("it need not catch up again", lambda stage: not is_apart(stage)),
        Check("after a restart", says_from_when),
        CheckNewAnswer("late", ("a", span(60, 70), 2)),
    )


def test_one_result_for_sinks_of_all_kinds(spark: SparkSession, tmp_path: Path) -> None:
    """Also of a stream that gives other rows when it is read again: each row is tagged at random.

    So the tags tell whether all sinks were given one and the same reading of a micro-batch.
    """
    taken: dict[int, list[tuple[Any, ...]]] = {}

    def take(frame: DataFrame, epoch: int) -> None:
        taken[epoch] = spark_rows(frame)

    def connect(stage: Stage) -> None:
        reader = stage.session.readStream.schema(BIDS.columns).option("maxFilesPerTrigger", 1)
        tag = functions.expr("reflect('java.util.UUID', 'randomUUID')")
        frame = reader.parquet(str(tmp_path / "in" / "bids")).withColumn("tag", tag)
        stage.hr.stream("tagged", frame, time="ts")

    words = {
        "memory": ["v > 1", "NOT v <= 1"],
        "results": ["v >= 2", "1 < v"],
        "parquet": ["NOT (v < 2)", "v > 1 AND v > 0"],
    }
    queries = [
        StartQuery(f"{kind}_{number}", f"SELECT k, v, tag FROM tagged WHERE {condition}", kind)
        for kind, conditions in words.items()
        for number, condition in enumerate(conditions)
    ]
    stage = play(
        spark,
        tmp_path,
        [BIDS],
        Check("connect", connect),
        *queries,
        StartQuery(
            "function",
            "SELECT k, v, tag FROM tagged WHERE 2 <= v",
            format="foreachBatch",
            function=take,
        ),
        AddData("bids", ("a", 2, 1, 1), ("b", 1, 1, 2)),
        AddData("bids", ("c", 3, 1, 3), ("d", 4, 1, 4)),
        Advance(),
        Check("one result for all", one_result),
        Check("none fails", lambda stage: check_health(stage, set())),
    )
    assert {epoch: len(rows) for epoch, rows in taken.items()} == {1: 1, 2: 2}
    expected = [*taken[1], *taken[2]]
    assert sorted(row[:2] for row in expected) == [("a", 2), ("c", 3), ("d", 4)]
    for query in queries:
        assert_same_rows(stage.answer(query.name), expected, query.name)
