"""The worked examples of docs/semantics.md: through the oracle, and through the engine.

The oracle runs all of them. The engine runs those that say what only it can say (late rows) in the
default run, and all of them with ``-m slow``, which is also what writes them anew:
``pytest tests/docs -m slow --update-golden``.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.plan.nodes import Source
from tests.docs.examples import (
    Example,
    document,
    read_examples,
    rows_text,
    time_text,
    watermark_text,
    write_examples,
)
from tests.support.compare import spark_rows
from tests.support.oracle import run_epochs
from tests.support.oracle_epochs import stream_watermarks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEMANTICS = document("semantics.md")
EXAMPLES = read_examples(SEMANTICS)
FROM_THE_START = [e for e in EXAMPLES if e.joins_in == 1]
JOINING = [e for e in EXAMPLES if e.joins_in > 1]
ABOUT_LATENESS = [
    e for e in FROM_THE_START if any({"late", "no time"} & e.said.keys() for e in e.epochs)
]

Said = list[dict[str, str]]


def _name(example: Example) -> str:
    return f"line {example.line}"


def test_there_are_examples_of_everything() -> None:
    text = " ".join(e.sql + e.mode.value for e in EXAMPLES)
    for word in ("window(", "windows(", "session_window(", "trailing(", "landmark(", "update"):
        assert word in text
    assert len(EXAMPLES) >= 20
    assert JOINING
    assert len(ABOUT_LATENESS) >= 4
    assert any(any(example.idle()) for example in EXAMPLES)


@pytest.mark.parametrize("example", FROM_THE_START, ids=_name)
def test_the_oracle_agrees(example: Example) -> None:
    out = run_epochs(
        example.plan, example.batches(), example.tables, example.mode, idle=example.idle()
    )
    said = [epoch.said["out"] for epoch in example.epochs]
    assert [rows_text(rows) for rows in out] == said
    marks = stream_watermarks(example.plan, example.batches())
    after: list[dict[str, int | None]] = [
        {stream: pairs[number][1] for stream, pairs in marks.items()}
        for number in range(len(example.epochs))
    ]
    known = [{s: m // 1_000 for s, m in marks.items() if m is not None} for marks in after]
    assert [_watermarks(m) for m in known] == [e.said["watermark"] for e in example.epochs]


@pytest.mark.parametrize("example", ABOUT_LATENESS, ids=_name)
def test_the_engine_agrees(example: Example, spark: SparkSession, tmp_path: Path) -> None:
    assert _through_engine(example, spark, tmp_path) == _said_in(example)


@pytest.mark.parametrize("example", JOINING, ids=_name)
def test_a_query_joins_a_running_engine(
    example: Example, spark: SparkSession, tmp_path: Path
) -> None:
    assert _through_session(example, spark, tmp_path) == _said_in(example)


@pytest.mark.slow
def test_all_examples(spark: SparkSession, tmp_path: Path, update_golden: bool) -> None:
    found: list[Said] = []
    for number, example in enumerate(EXAMPLES):
        folder = tmp_path / f"example-{number}"
        folder.mkdir()
        run = _through_engine if example.joins_in == 1 else _through_session
        found.append(run(example, spark, folder))
    if update_golden:
        blocks = [e.text(said) for e, said in zip(EXAMPLES, found, strict=True)]
        write_examples(SEMANTICS, blocks)
        return
    for example, said in zip(EXAMPLES, found, strict=True):
        assert said == _said_in(example), _name(example)


def _said_in(example: Example) -> Said:
    return [dict(epoch.said) for epoch in example.epochs]


def _through_engine(example: Example, spark: SparkSession, folder: Path) -> Said:
    from tests.support.engine import run_engine, tiny_executor

    queries = {"q": (example.plan, example.mode)}
    run = run_engine(
        tiny_executor(spark),
        queries,
        example.catalog,
        example.batches(),
        example.tables,
        folder,
        idle=example.idle(),
    )
    return [
        _said(
            _watermarks(report.watermarks),
            sum(report.late.values()),
            sum(report.null_times.values()),
            rows,
        )
        for report, rows in zip(run.reports, run.rows["q"], strict=True)
    ]


def _through_session(example: Example, spark: SparkSession, folder: Path) -> Said:
    """Each epoch is a file; a companion query runs from the start, so the engine has seen rows."""
    from headrace import Headrace

    (stream,) = (s for s in example.catalog.values() if isinstance(s, Source))
    (folder / "in").mkdir()
    columns = ", ".join(f"{f.name} {f.type}" for f in stream.schema)
    hr = Headrace(spark, checkpoint=str(folder / "state"))
    frame = (
        spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    )
    hr.stream(stream.stream, frame, time="ts")
    out: dict[int, list[tuple[Any, ...]]] = {}

    def take(rows: DataFrame, epoch: int) -> None:
        out[epoch] = spark_rows(rows)

    hr.read(stream.stream).writeStream.queryName("companion").format("memory").start()
    _add_files(example, stream, folder / "in", range(1, example.joins_in))
    hr.start(availableNow=True)
    hr.awaitTermination()
    handle = hr.sql(example.sql).writeStream.queryName("q").foreachBatch(take).start()
    _add_files(example, stream, folder / "in", range(example.joins_in, len(example.epochs) + 1))
    hr.start(availableNow=True)
    hr.awaitTermination()
    assert "from" in handle.status
    return [
        _said(
            f"{stream.stream} {_clock(report['watermarks'][stream.stream])}",
            0,
            0,
            out.get(report["epoch"], []),
        )
        for report in hr.recentProgress
    ]


def _add_files(example: Example, stream: Source, folder: Path, epochs: range) -> None:
    import pyarrow.parquet as parquet

    from tests.support.duck import arrow_table

    for number in epochs:
        rows = example.batches()[number - 1][stream.stream]
        file = folder / f"{number}.parquet"
        parquet.write_table(arrow_table(rows, stream.schema), file)
        # Spark takes files in the order of their times.
        os.utime(file, (number, number))


def _clock(stamp: str) -> str:
    return time_text(datetime.datetime.fromisoformat(stamp))


def _watermarks(marks: dict[str, int]) -> str:
    return ", ".join(f"{s} {watermark_text(m)}" for s, m in sorted(marks.items())) or "none yet"


def _said(watermark: str, late: int, no_time: int, rows: Sequence[Sequence[Any]]) -> dict[str, str]:
    said = {"watermark": watermark}
    if late:
        said["late"] = str(late)
    if no_time:
        said["no time"] = str(no_time)
    return {**said, "out": rows_text(rows)}
