"""What docs/walkthrough.md shows: one query, a few rows, and all that the engine made of them."""

from __future__ import annotations

import datetime
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import sqlglot
from pyspark.sql import SparkSession

from headrace import Headrace
from headrace.engine.execution.executor import Executor, ddl
from headrace.operators.write import Write, Written
from headrace.plan.nodes import Source
from headrace.plan.types import DOUBLE, INT, STRING, TIMESTAMP, Schema
from headrace.settings import read_settings
from tests.support.compare import spark_rows
from tests.support.duck import arrow_table
from tests.support.engine import forced

SQL = """\
SELECT auction, window, COUNT(*) AS n, AVG(price) AS mean
FROM bids
WHERE price > 0
GROUP BY auction, window(ts, '10 minutes', '5 minutes')
"""
BIDS = Source(
    "bids",
    Schema.of([("auction", INT), ("bidder", STRING), ("price", DOUBLE), ("ts", TIMESTAMP)]),
    "ts",
    delay=10_000,
)
EPOCHS = (
    [(1, "ann", 5.0, "12:01:00"), (1, "bo", 9.0, "12:07:00"), (2, "ann", 0.0, "12:08:00")],
    [(1, "cy", 4.0, "12:06:30"), (2, "bo", 3.0, "12:11:00")],
)


class Watching(Executor):
    """Remembers the definitions it runs, epoch by epoch."""

    def __init__(self, spark: SparkSession) -> None:
        self.epochs: list[list[str]] = []
        super().__init__(spark, read_settings({}))

    def begin_epoch(self) -> None:
        self.epochs.append([])
        super().begin_epoch()

    def write_all(self, writes: Sequence[Write]) -> list[Written | Exception]:
        self.epochs[-1] += [
            write.query.sql(dialect="spark", normalize_functions=False)
            for write in writes
            # Counting a stream's rows is a step beside the query's own.
            if not write.only_seen
        ]
        return super().write_all(writes)


def walk(spark: SparkSession, folder: Path) -> dict[str, str]:
    """Run the query over two files, an epoch each; the parts of the walk-through, by name."""
    _write_files(folder / "in")
    reader = spark.readStream.schema(ddl(BIDS.schema)).option("maxFilesPerTrigger", 1)
    with forced(spark, "auto"):
        hr = Headrace(spark, checkpoint=str(folder / "state"))
    executor = hr._engine.executor = Watching(spark)
    hr.stream("bids", reader.parquet(str(folder / "in")), time="ts", delay="10 seconds")
    query = hr.sql(SQL)
    query.writeStream.queryName("means").option("path", str(folder / "out")).start()
    hr.start(availableNow=True)
    hr.awaitTermination()
    _, (append, emit) = (ran for ran in executor.epochs if ran)
    out = spark.read.parquet(str(folder / "out")).orderBy("window", "auction")
    return {
        "sql": _block("sql", SQL),
        "written": _block("text", str(query)),
        "explain": _block("text", query.explanation()),
        "append": _block("sql", _readable(append)),
        "emit": _block("sql", _readable(emit)),
        "intent": _block("json", _without_digest(_file(folder, "0000000002.intent"))),
        "commit": _block("json", _shortened(_file(folder, "0000000002.commit"), folder)),
        "files": _block("text", _tree(folder)),
        "out": _block("text", out._show_string(20, False).rstrip("\n")),  # type: ignore[operator]
    }


def result_rows(spark: SparkSession, folder: Path) -> list[tuple[Any, ...]]:
    return spark_rows(spark.read.parquet(str(folder / "out")).drop("epoch"))


def input_rows() -> list[list[Mapping[str, Any]]]:
    return [[_row(values) for values in rows] for rows in EPOCHS]


def _row(values: tuple[Any, ...]) -> dict[str, Any]:
    *rest, clock = values
    moment = datetime.datetime.fromisoformat(f"2024-05-01T{clock}+00:00")
    return dict(zip(BIDS.schema.names, (*rest, moment), strict=True))


def _write_files(folder: Path) -> None:
    """A file per epoch; Spark takes files in the order of their times."""
    folder.mkdir()
    for number, rows in enumerate(EPOCHS, 1):
        file = folder / f"{number}.parquet"
        parquet.write_table(arrow_table([_row(values) for values in rows], BIDS.schema), file)
        os.utime(file, (number, number))


def _block(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```\n"


def _readable(sql: str) -> str:
    """Formatted, with the hashes in column names cut short."""
    text = sqlglot.parse_one(sql, dialect="spark").sql(dialect="spark", pretty=True)
    return re.sub(r"`(__\w+?_[0-9a-f]{4})[0-9a-f]{8}`", r"`\1`", text)


def _file(folder: Path, name: str) -> str:
    return (folder / "state" / "epochs" / name).read_text(encoding="utf-8")


def _shortened(text: str, folder: Path) -> str:
    """The commit without what differs from machine to machine."""
    commit = json.loads(text)
    for name in ("identity", "previous", "checksum"):
        commit[name] = "…"
    for record in commit["queries"].values():
        record["plan"] = record["plan"][:12] + "…"
    for arrangement in commit["arrangements"].values():
        for file in arrangement["files"]:
            file["size"] = "…"
    shown = json.dumps(commit, indent=1, ensure_ascii=False).replace(str(folder), "…")
    return _without_marks(shown)


def _without_digest(text: str) -> str:
    return re.sub(r"[0-9a-f]{52}\"", '…"', text)


def _without_marks(text: str) -> str:
    """Without what is random in names: of files that tasks write, and of the engine."""
    text = re.sub(r"-[0-9a-f]{8}(-t\d+\"|\.parquet)", r"-…\1", text)
    return re.sub(r"-[0-9a-f]{12}\.parquet", "-….parquet", text)


def _tree(folder: Path) -> str:
    """The files of a run; Spark's own checkpoint of the stream in one line."""
    names = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    shown = [re.sub(r"part-\d+-[0-9a-f-]+", "part-…", n) for n in names if not n.endswith(".crc")]
    shown = [re.sub(r"ingest/bids/.*", "ingest/bids/…", name) for name in shown]
    shown = [_without_marks(name) for name in shown]
    return "\n".join(dict.fromkeys(shown))
