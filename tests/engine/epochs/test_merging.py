"""Queries that run merged: one result for many, parts in common, filters in one store."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.cost.jobs import ROWS_PER_JOB
from tests.support.compare import assert_same_rows
from tests.support.oracle import run_epochs
from tests.support.script import (
    AddData,
    Advance,
    Check,
    CheckNewAnswer,
    Crash,
    Restart,
    Run,
    Stage,
    StartQuery,
    Step,
    StopQuery,
    Stream,
    play,
    read_epoch,
    span,
)

BIDS = Stream("bids", "k string, v bigint, w int, ts timestamp")
ASKS = Stream("asks", "k string, p bigint, ts timestamp")

TOTAL = (
    "SELECT k, window, SUM(v) AS total FROM bids WHERE v > 1 AND w < 9 "
    "GROUP BY k, window(ts, '10 seconds')"
)
SAME_TOTAL = (
    "SELECT SUM(x) AS s, window AS slot, who FROM "
    "(SELECT k AS who, v AS x, w, ts FROM bids WHERE 9 > w) WHERE NOT x < 2 "
    "GROUP BY who, window(ts, '10 seconds', '10 seconds')"
)


def operators(stage: Stage) -> dict[str, int]:
    """By query, which operator feeds its sink."""
    runner = stage.hr._engine._runner
    assert runner is not None
    return {name: id(output.operator) for name, output in runner.physical.outputs.items()}


def stores(stage: Stage) -> list[str]:
    runner = stage.hr._engine._runner
    assert runner is not None
    return sorted(store.name for store in runner.physical.stores)


def base(stage: Stage, name: str) -> int:
    """The operator below the projections that only rename."""
    runner = stage.hr._engine._runner
    assert runner is not None
    operator = runner.physical.outputs[name].operator
    while operator.inputs and not operator.stores:
        operator = operator.inputs[0]
    return id(operator)


def held_files(stage: Stage) -> list[Path]:
    return [f for f in stage.folder.rglob("shared-*/*") if not f.name.startswith(".")]


def test_queries_that_mean_the_same_are_computed_once(spark: SparkSession, tmp_path: Path) -> None:
    """Also when the one whose plan runs has left, and after a restart and a crash."""
    play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("first", TOTAL),
        StartQuery("second", SAME_TOTAL),
        StartQuery("third", TOTAL),
        Run(),
        AddData("bids", ("a", 5, 1, 1), ("a", 1, 1, 2), ("b", 7, 9, 3), ("a", 2, 2, 4)),
        Advance(),
        Check("one aggregate", lambda s: len({base(s, n) for n in s.handles}) == 1),
        Check("one result", lambda s: operators(s)["first"] == operators(s)["third"]),
        StopQuery("first"),
        AddData("bids", ("a", 3, 3, 8), ("b", 4, 4, 11)),
        Advance(),
        CheckNewAnswer("second", (10, span(0, 10), "a")),
        CheckNewAnswer("third", ("a", span(0, 10), 10)),
        AddData("bids", ("b", 6, 6, 12)),
        Advance(),
        Restart(),
        AddData("bids", ("b", 8, 8, 13)),
        Advance(),
        Crash("commit"),
        AddData("bids", ("b", 1, 1, 22)),
        Advance(),
        CheckNewAnswer("second", (18, span(10, 20), "b")),
        CheckNewAnswer("third", ("b", span(10, 20), 18)),
    )


FILTERED = {
    "small": "v < 3",
    "large": "v >= 3",
    "none": "v > 1000",
    "odd": "w IN (1, 3, 5) OR v IS NULL",
    "all": "true",
    "named": "k = 'a'",
}
ROWS = [
    [("a", 1, 1, 0), ("a", 5, 2, 1), ("b", None, 3, 2), ("c", 2, 4, 14)],
    [("a", 4, 5, 12), ("b", 9, 6, 3), ("b", 1, None, 16), (None, 3, 3, 25)],
    [("c", 2, 1, 26), ("a", 8, 8, 24), ("c", 7, 1, 9), ("b", 2, 2, 41)],
    [("a", 1, 1, 60)],
]


@pytest.mark.parametrize("mode", ["append", "update"])
def test_filters_share_one_store(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    """Groups in which a query has no row do not come out, nor as changed when others' rows do."""
    texts = {
        name: f"SELECT k, window, COUNT(*) AS n, SUM(v) AS s, MIN(w) AS least, AVG(v) AS mean "
        f"FROM bids WHERE {condition} GROUP BY k, window(ts, '20 seconds', '10 seconds')"
        for name, condition in FILTERED.items()
    }
    steps: list[Step] = [StartQuery(n, text, mode=mode) for n, text in texts.items()]
    for number, rows in enumerate(ROWS):
        steps += [AddData("bids", *rows), Advance()]
        if number == 1:
            steps.append(Restart())
    stage = play(spark, tmp_path, [BIDS], *steps, Check("one store", lambda s: len(stores(s)) == 1))
    assert_as_the_oracle(stage, texts)
    late = {n: sum(p["lateRows"] for p in h.recentProgress) for n, h in stage.handles.items()}
    assert late["none"] == 0


KEYED = {
    "everyone": "true",
    "one_key": "k = 'a'",
    "other_keys": "NOT k = 'a'",
    "no_key": "k IS NULL",
    "of_some_rows": "w < 4",
    "one_key_of_some_rows": "w < 4 AND k IN ('a', 'b')",
}


@pytest.mark.parametrize("mode", ["append", "update"])
def test_groups_of_another_query_are_read_there(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    texts = {
        name: f"SELECT k, window, COUNT(*) AS n, SUM(w) AS s, MIN(v) AS least "
        f"FROM bids WHERE {condition} GROUP BY k, window(ts, '20 seconds', '10 seconds')"
        for name, condition in KEYED.items()
    }
    texts["fewer_columns"] = (
        "SELECT window, MIN(v) AS m, k FROM bids WHERE k < 'c' "
        "GROUP BY k, window(ts, '20 seconds', '10 seconds')"
    )
    steps: list[Step] = [StartQuery(n, text, mode=mode) for n, text in texts.items()]
    for number, rows in enumerate(ROWS):
        steps += [AddData("bids", *rows), Advance()]
        if number == 1:
            steps += [Restart()]
    all_groups = ("one_key", "other_keys", "no_key", "fewer_columns")
    stage = play(
        spark,
        tmp_path,
        [BIDS],
        *steps,
        Check("read there", lambda s: all(base(s, n) == base(s, "everyone") for n in all_groups)),
        Check("also", lambda s: base(s, "one_key_of_some_rows") == base(s, "of_some_rows")),
        Check("apart", lambda s: base(s, "of_some_rows") != base(s, "everyone")),
    )
    assert_as_the_oracle(stage, texts)


def assert_as_the_oracle(stage: Stage, texts: dict[str, str]) -> None:
    """Every epoch of every query is what the oracle has for it alone."""
    epochs = [{"bids": BIDS.table(rows).to_pylist()} for rows in ROWS]
    for name, text in texts.items():
        query = stage.hr.sql(text)
        expected = run_epochs(query.plan, epochs, mode=stage.handles[name]._sink.mode)
        for number, rows in enumerate(expected, 1):
            found = read_epoch(stage.output(name), number)
            assert_same_rows(found, rows, f"epoch {number} of {name}")


def test_a_late_joiner_is_merged_once_it_has_caught_up(spark: SparkSession, tmp_path: Path) -> None:
    play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("first", TOTAL),
        Run(),
        AddData("bids", ("a", 5, 1, 1), ("a", 5, 1, 12)),
        Advance(),
        CheckNewAnswer("first", ("a", span(0, 10), 5)),
        StartQuery("second", SAME_TOTAL),
        AddData("bids", ("a", 5, 1, 13), ("a", 2, 1, 21)),
        Advance(),
        Check("apart at first", lambda s: base(s, "first") != base(s, "second")),
        CheckNewAnswer("first", ("a", span(10, 20), 10)),
        CheckNewAnswer("second"),
        AddData("bids", ("a", 5, 1, 38), ("b", 2, 1, 45)),
        Advance(),
        CheckNewAnswer("first", ("a", span(20, 30), 2), ("a", span(30, 40), 5)),
        CheckNewAnswer("second", (2, span(20, 30), "a"), (5, span(30, 40), "a")),
        Check(
            "its status still says from when",
            lambda s: s.handles["second"].status["from"] == "2024-01-01T00:00:12.001Z",
        ),
        AddData("bids", ("b", 5, 1, 46), ("b", 2, 1, 61)),
        Advance(),
        Check("together now", lambda s: base(s, "first") == base(s, "second")),
        CheckNewAnswer("first", ("b", span(40, 50), 7)),
        CheckNewAnswer("second", (7, span(40, 50), "b")),
    )


@pytest.mark.parametrize("shared_rows", [0, ROWS_PER_JOB])
def test_joins_in_common(spark: SparkSession, tmp_path: Path, shared_rows: int) -> None:
    """Queries over the same join that differ in what follows share it, held or not."""
    join = (
        "FROM bids b JOIN asks a ON b.k = a.k "
        "AND window(b.ts, '10 seconds') = window(a.ts, '10 seconds')"
    )
    swapped = (
        "FROM asks x JOIN bids y ON x.k = y.k "
        "AND window(x.ts, '10 seconds') = window(y.ts, '10 seconds')"
    )
    texts = {
        "pairs": f"SELECT b.k, b.v, a.p {join}",
        "pairs_swapped": f"SELECT y.k AS kk, y.v AS vv, x.p AS pp {swapped}",
        "few": f"SELECT b.k, b.v {join} WHERE a.p > 3",
        "positive": f"SELECT b.k, a.p {join} WHERE b.v > 0",
        "more": f"SELECT b.k, b.w, a.p {join} WHERE b.v > 0",
        "counted": f"SELECT b.k, window, COUNT(*) AS n {join} "
        "GROUP BY b.k, window(b.ts, '10 seconds')",
    }
    bids = [[("a", i, i, 6 * i), ("b", i, i, 6 * i + 1)] for i in range(6)]
    asks = [[("a", i, 6 * i + 2), ("b", i, 6 * i)] for i in range(6)]
    steps: list[Step] = [StartQuery(name, text) for name, text in texts.items()]
    for ours, theirs in zip(bids, asks, strict=True):
        steps += [AddData("bids", *ours), AddData("asks", *theirs), Advance()]
    stage = play(
        spark,
        tmp_path,
        [BIDS, ASKS],
        *steps,
        Check("one join", lambda s: base(s, "pairs") == base(s, "pairs_swapped")),
        Check("within it", lambda s: base(s, "pairs") == base(s, "few") == base(s, "positive")),
        Check("held for an epoch", lambda s: bool(held_files(s)) == (shared_rows == 0)),
        settings={"spark.headrace.merge.sharedRows": str(shared_rows)},
    )
    epochs = [
        {"bids": BIDS.table(ours).to_pylist(), "asks": ASKS.table(theirs).to_pylist()}
        for ours, theirs in zip(bids, asks, strict=True)
    ]
    for name, text in texts.items():
        expected = run_epochs(stage.hr.sql(text).plan, epochs)
        assert any(expected)
        for number, rows in enumerate(expected, 1):
            found = read_epoch(stage.output(name), number)
            assert_same_rows(found, rows, f"epoch {number} of {name}")
