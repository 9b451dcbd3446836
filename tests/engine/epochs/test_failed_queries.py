"""Queries that fail beside others: their place is kept, and at a restart somebody decides."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.script import (
    AddData,
    Advance,
    Check,
    CheckAnswer,
    CheckEpochs,
    ExpectError,
    Restart,
    Run,
    Stage,
    StartQuery,
    Step,
    Stop,
    Stream,
    check_error,
    play,
    refused,
    span,
)

BIDS = Stream("bids", "k string, v bigint, ts timestamp")
ASKS = Stream("asks", "k string, p bigint, ts timestamp")
ROWS = "SELECT k, v FROM bids"
BY_WINDOW = "GROUP BY k, window(ts, '10 seconds')"
#: The same panes, of which one query makes more than it can.
SUM = f"SELECT k, window, SUM(v) AS n FROM bids {BY_WINDOW}"
SHARE = f"SELECT k, window, 100 DIV SUM(v) AS n FROM bids {BY_WINDOW}"
MENDED = f"SELECT k, window, 100 DIV NULLIF(SUM(v), 0) AS n FROM bids {BY_WINDOW}"
JOIN = (
    "SELECT b.k, {} AS n FROM bids b JOIN asks a ON b.k = a.k "
    "AND a.ts BETWEEN b.ts - INTERVAL 5 SECONDS AND b.ts + INTERVAL 5 SECONDS"
)


def decide(text: str) -> Restart:
    return Restart((("spark.headrace.failedQueries", text),))


def change(name: str, sql: str) -> Step:
    def do(stage: Stage) -> None:
        stage.queries[name] = replace(stage.queries[name], sql=sql)

    return Check(f"{name} is changed", do)


def fails(*words: str) -> Step:
    return ExpectError(Advance(), "QUERY_FAILED", *(words or ("DIVIDE_BY_ZERO",)))


def first_rows() -> list[Step]:
    """Windows up to 30; the one from 10 has a sum of nothing, and closes in epoch 3."""
    return [
        AddData("bids", ("a", 5, 1)),
        AddData("bids", ("a", 0, 11)),
        AddData("bids", ("a", 4, 21)),
        AddData("bids", ("a", 10, 31)),
    ]


def test_the_start_is_refused_until_somebody_decides(spark: SparkSession, tmp_path: Path) -> None:
    stage = play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("sums", SUM, format="results"),
        StartQuery("shares", SHARE, format="results"),
        *first_rows(),
        fails(),
        CheckAnswer("shares", ("a", span(0, 10), 20)),
        Restart(),
        ExpectError(
            Advance(),
            "QUERY_FAILED_BEFORE",
            "query 'shares' failed in epoch 3",
        ),
        # Nothing was decided by the refusal, and nothing deleted.
        CheckAnswer("shares", ("a", span(0, 10), 20)),
        CheckAnswer("sums", ("a", span(0, 10), 5), ("a", span(10, 20), 0), ("a", span(20, 30), 4)),
    )
    text = str(refused(lambda: stage.hr.start(availableNow=True)))
    for word in ("shares=retry", "shares=skip", "shares=drop", "spark.headrace.failedQueries"):
        assert word in text
    del stage.queries["shares"]
    stage.open()
    check_error(refused(lambda: stage.hr.start()), "QUERY_FAILED_BEFORE", "drop")


@pytest.mark.parametrize("format", ["results", "parquet"])
def test_a_mended_query_goes_on_from_the_failed_epoch(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    later = [AddData("bids", ("a", 8, 41)), AddData("bids", ("a", 2, 51))]
    stage = play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("sums", SUM, format=format),
        StartQuery("shares", SHARE, format=format),
        *first_rows(),
        fails(),
        change("shares", MENDED),
        decide("shares=retry"),
        later[0],
        Advance(),
        Check("it is whole", lambda stage: check_shares(stage, 4)),
        # It goes on by itself, also after a restart that says nothing of it.
        Restart(),
        later[1],
        Advance(),
        Check("it goes on", lambda stage: check_shares(stage, 5)),
        CheckAnswer(
            "sums",
            *[
                ("a", span(t, t + 10), n)
                for t, n in zip(range(0, 50, 10), (5, 0, 4, 10, 8), strict=True)
            ],
        ),
    )
    assert stage.commit()["branches"]["shares"]["missed"] == []


def check_shares(stage: Stage, windows: int) -> None:
    sums = (5, 0, 4, 10, 8)[:windows]
    expected = [
        ("a", span(10 * i, 10 * i + 10), 100 // n if n else None) for i, n in enumerate(sums)
    ]
    CheckAnswer("shares", *expected).play(stage)


def test_output_comes_under_the_numbers_of_its_own_epochs(
    spark: SparkSession, tmp_path: Path
) -> None:
    play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("rows", ROWS),
        StartQuery("shares", "SELECT k, 10 DIV v AS n FROM bids"),
        AddData("bids", ("a", 1, 1)),
        AddData("bids", ("b", 0, 2)),
        AddData("bids", ("c", 5, 3)),
        fails(),
        change("shares", "SELECT k, 10 DIV NULLIF(v, 0) AS n FROM bids"),
        decide("retry"),
        AddData("bids", ("d", 2, 4)),
        Advance(),
        CheckEpochs("shares", [("a", 10)], [("b", None)], [("c", 2)], [("d", 5)], of_batches=True),
        CheckEpochs("rows", [("a", 1)], [("b", 0)], [("c", 5)], [("d", 2)], of_batches=True),
    )


def test_it_goes_on_from_now(spark: SparkSession, tmp_path: Path) -> None:
    play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("rows", ROWS),
        StartQuery("shares", "SELECT k, 10 DIV v AS n FROM bids", format="results"),
        AddData("bids", ("a", 1, 1)),
        AddData("bids", ("b", 0, 2)),
        fails(),
        decide("shares=skip"),
        AddData("bids", ("c", 5, 3)),
        Advance(),
        CheckAnswer("shares", ("a", 10), ("c", 2)),
        Restart(),
        AddData("bids", ("d", 2, 4)),
        Advance(),
        CheckAnswer("shares", ("a", 10), ("c", 2), ("d", 5)),
    )


def test_it_is_forgotten(spark: SparkSession, tmp_path: Path) -> None:
    def leave_out(stage: Stage) -> None:
        del stage.queries["shares"]

    stage = play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("sums", SUM),
        StartQuery("shares", SHARE, format="results"),
        *first_rows(),
        fails(),
        Check("it is left out", leave_out),
        decide("shares=drop"),
        Advance(),
        Restart(),
        AddData("bids", ("a", 1, 41)),
        AddData("bids", ("a", 1, 51)),
        AddData("bids", ("a", 1, 61)),
        Advance(),
    )
    assert stage.commit()["branches"] == {}
    assert not any("missed" in name for name in stage.state_files())


def test_it_fails_again_and_keeps_its_new_place(spark: SparkSession, tmp_path: Path) -> None:
    text = "SELECT k, {} AS n FROM bids"
    play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("rows", ROWS),
        StartQuery("shares", text.format("10 DIV v")),
        AddData("bids", ("a", 1, 1)),
        AddData("bids", ("b", 0, 2)),
        AddData("bids", ("c", 7, 3)),
        AddData("bids", ("d", 5, 4)),
        fails(),
        change(
            "shares", text.format("10 DIV (CASE WHEN v = 0 THEN 1 WHEN v = 7 THEN 0 ELSE v END)")
        ),
        decide("shares=retry"),
        fails(),
        Restart(),
        ExpectError(Advance(), "QUERY_FAILED_BEFORE", "failed in epoch 3"),
        AddData("bids", ("e", 2, 5)),
        change("shares", text.format("10 DIV (CASE WHEN v = 0 THEN 1 ELSE v END)")),
        decide("shares=retry"),
        Advance(),
        CheckAnswer("shares", ("a", 10), ("b", 10), ("c", 1), ("d", 2), ("e", 5)),
    )


def test_a_join_repeats_what_it_missed_of_both_streams(spark: SparkSession, tmp_path: Path) -> None:
    """Its rows of before are in state that it shared, which others have let go of meanwhile."""
    steps: list[Step] = [
        AddData("bids", ("a", 1, 1)),
        AddData("asks", ("a", 1, 2)),
        AddData("bids", ("a", 0, 4)),
        AddData("asks", ("b", 5, 5)),
        AddData("bids", ("b", 5, 8), ("a", 2, 9)),
        AddData("asks", ("a", 7, 10), ("a", 8, 60)),
        AddData("bids", ("z", 1, 61)),
    ]
    play(
        spark,
        tmp_path,
        [BIDS, ASKS],
        StartQuery("pairs", JOIN.format("b.v + a.p")),
        StartQuery("shares", JOIN.format("10 DIV b.v")),
        *steps,
        fails(),
        CheckAnswer("pairs", ("a", 2), ("a", 1), ("b", 10), ("a", 9)),
        change("shares", JOIN.format("10 DIV NULLIF(b.v, 0)")),
        decide("shares=retry"),
        Advance(),
        CheckAnswer("shares", ("a", 10), ("a", None), ("b", 2), ("a", 5)),
    )


def test_it_reads_what_was_not_kept(spark: SparkSession, tmp_path: Path) -> None:
    play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("rows", "SELECT v FROM bids"),
        StartQuery("shares", "SELECT 10 DIV v AS n FROM bids"),
        AddData("bids", ("a", 1, 1)),
        AddData("bids", ("b", 0, 2)),
        fails(),
        change("shares", "SELECT 10 DIV NULLIF(v + length(k), 0) AS n FROM bids"),
        decide("shares=retry"),
        ExpectError(Advance(), "QUERY_FAILED_BEFORE", "bids.k"),
        change("shares", "SELECT 10 / v AS n FROM bids"),
        decide("shares=retry"),
        ExpectError(Advance(), "QUERY_FAILED_BEFORE", "n bigint"),
    )


def test_too_many_rows_to_keep(spark: SparkSession, tmp_path: Path) -> None:
    stage = play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("rows", ROWS),
        StartQuery("shares", SHARE, format="results"),
        *first_rows(),
        AddData("bids", ("a", 1, 41)),
        fails(),
        decide("shares=retry"),
        ExpectError(Advance(), "QUERY_FAILED_BEFORE", "no longer kept"),
        decide("shares=skip"),
        AddData("bids", ("a", 5, 51)),
        AddData("bids", ("a", 1, 61)),
        AddData("bids", ("a", 1, 71)),
        Advance(),
        CheckAnswer(
            "shares", ("a", span(0, 10), 20), ("a", span(50, 60), 20), ("a", span(60, 70), 100)
        ),
        settings={"spark.headrace.failedQueries.keptRows": "1"},
    )
    assert not any("missed" in name for name in stage.state_files())


def test_while_the_engine_runs_its_name_is_taken(spark: SparkSession, tmp_path: Path) -> None:
    def start_again(stage: Stage) -> None:
        error = refused(lambda: stage.start_query(stage.queries["shares"]))
        check_error(error, "QUERY_FAILED_BEFORE", "choose another queryName")

    play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("rows", ROWS),
        StartQuery("shares", "SELECT k, 10 DIV v AS n FROM bids"),
        Run(),
        AddData("bids", ("a", 0, 1)),
        Advance(),
        Check("its name is taken", start_again),
        Stop(),
    )


def test_a_damaged_state_file_stops_everybody(spark: SparkSession, tmp_path: Path) -> None:
    """It is the fault of no query; with the file restored all go on, and nothing is lost."""
    whole: dict[Path, bytes] = {}

    def damage(stage: Stage) -> None:
        for name in stage.state_files():
            if name.startswith("rows-"):
                path = stage.checkpoint / "state" / name
                whole[path] = path.read_bytes()
                path.write_bytes(whole[path][:40])
        assert whole

    def restore(_: Stage) -> None:
        for path, content in whole.items():
            path.write_bytes(content)

    join = JOIN.format("b.v + a.p")
    play(
        spark,
        tmp_path,
        [BIDS, ASKS],
        StartQuery("rows", ROWS),
        StartQuery("pairs", join),
        AddData("bids", ("a", 1, 1)),
        AddData("asks", ("x", 1, 1)),
        Advance(),
        Check("state is damaged", damage),
        AddData("asks", ("a", 1, 2)),
        ExpectError(Advance(), "INVALID_CHECKPOINT", ".parquet is damaged or gone"),
        Check("it is restored", restore),
        Restart(),
        Advance(),
        CheckAnswer("pairs", ("a", 2)),
        CheckAnswer("rows", ("a", 1)),
    )


def test_rows_that_were_kept_are_damaged(spark: SparkSession, tmp_path: Path) -> None:
    """It is the fault of no query and of no stream; with the file restored it goes on."""
    whole: dict[Path, bytes] = {}

    def damage(stage: Stage) -> None:
        (name,) = (name for name in stage.state_files() if name.startswith("missed-"))
        path = stage.checkpoint / "state" / name
        whole[path] = path.read_bytes()
        path.write_bytes(whole[path][:40])

    def restore(_: Stage) -> None:
        for path, content in whole.items():
            path.write_bytes(content)

    play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("rows", ROWS),
        StartQuery("shares", "SELECT k, 10 DIV v AS n FROM bids", format="results"),
        AddData("bids", ("a", 1, 1)),
        AddData("bids", ("b", 0, 2)),
        fails(),
        change("shares", "SELECT k, 10 DIV NULLIF(v, 0) AS n FROM bids"),
        Check("what was kept is damaged", damage),
        decide("shares=retry"),
        ExpectError(
            Advance(),
            "INVALID_CHECKPOINT",
            "rows that are kept for query 'shares' are damaged or gone",
        ),
        Check("it is restored", restore),
        decide("shares=retry"),
        Advance(),
        CheckAnswer("shares", ("a", 10), ("b", None)),
    )


def test_nothing_outlives_its_use(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that were kept, and state that only the failed query held, are deleted in time."""
    stage = play(
        spark,
        tmp_path,
        [BIDS],
        StartQuery("rows", ROWS),
        StartQuery("shares", SHARE),
        *first_rows(),
        fails(),
        change("shares", MENDED),
        decide("shares=retry"),
        AddData("bids", ("a", 1, 101)),
        Advance(),
        AddData("bids", ("a", 1, 201)),
        Advance(),
        AddData("bids", ("a", 1, 301)),
        Advance(),
    )
    named = json.dumps(stage.commit())
    for name in stage.state_files():
        assert name in named, f"{name} belongs to nobody"
    assert not any(name.startswith("missed") for name in stage.state_files())
