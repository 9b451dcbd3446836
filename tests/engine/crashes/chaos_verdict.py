"""What has come of chaos: every row once, in order, and nothing of anybody else's touched."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet

from tests.engine.crashes.chaos_plot import QUERIES, Data, Row, Standing, expected, newest
from tests.support.compare import arrow_rows, difference, plain_rows
from tests.support.script import read_epoch

PRINTED = [query.name for query in QUERIES if query.format == "foreachBatch"]
FOLDERS = [query.name for query in QUERIES if query.format == "parquet"]


@dataclass
class Tallies:
    """What has happened, and what came of it."""

    kills: int = 0
    refused: int = 0
    sink_failures: int = 0
    failed_queries: int = 0
    rows: int = 0
    lost: int = 0
    duplicated: int = 0
    deleted: int = 0
    #: Lives that did not come to the place where they were to die.
    places_missed: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.refused} refused starts, {self.sink_failures} sink "
            f"failures, {self.failed_queries} failed queries, rows expected {self.rows}, lost "
            f"{self.lost}, duplicated {self.duplicated}, deleted {self.deleted}"
        )


def judge(
    tallies: Tallies,
    folder: Path,
    data: Data,
    files: Mapping[str, int],
    planted: Mapping[Path, bytes],
    commit: Mapping[str, Any],
) -> None:
    """Note all that is wrong at the end; the last of the ``files`` of a stream closes windows."""
    _judge_rows(tallies, folder, data, files)
    _judge_order(tallies, folder)
    _judge_rest(tallies, folder, commit)
    for path, content in planted.items():
        if not path.is_file() or path.read_bytes() != content:
            tallies.deleted += 1
            tallies.problems.append(f"{path} is gone or changed")


def _judge_rows(tallies: Tallies, folder: Path, data: Data, files: Mapping[str, int]) -> None:
    rows = {
        stream: [data.rows(stream, number) for number in range(count - 1)]
        + [data.last_rows(stream, count - 1)]
        for stream, count in files.items()
    }
    one_each = [
        {stream: [n] for stream, count in files.items() if n < count}
        for n in range(max(files.values()))
    ]
    wanted = expected(rows, one_each)
    for query in QUERIES:
        missing, extra = difference(_answer(folder, query), plain_rows(wanted[query.name]))
        tallies.rows += len(wanted[query.name])
        tallies.lost += len(missing)
        tallies.duplicated += len(extra)
        if missing or extra:
            tallies.problems.append(
                f"{query.name}: {len(missing)} rows lost, {len(extra)} too many; "
                f"lost {missing[:5]}, too many {extra[:5]}"
            )


def _answer(folder: Path, query: Standing) -> list[Row]:
    out = folder / "out" / query.name
    if query.format == "results":
        return arrow_rows(parquet.read_table(f"{out}.parquet"))
    if query.format == "foreachBatch":
        files = {int(path.stem): path for path in out.glob("[0-9]*.parquet")}
        epochs = [arrow_rows(parquet.ParquetFile(files[n]).read()) for n in sorted(files)]
    else:
        numbers = sorted(int(p.name.removeprefix("epoch=")) for p in out.glob("epoch=*"))
        epochs = [read_epoch(str(out), number) for number in numbers]
    return newest(query, epochs)


def _judge_order(tallies: Tallies, folder: Path) -> None:
    """A function gets its epochs in order; only those that it had before come again."""
    for name in PRINTED:
        calls = [int(n) for n in (folder / "out" / name / "calls").read_text().split()]
        first_calls = list(dict.fromkeys(calls))
        if first_calls != sorted(first_calls):
            tallies.problems.append(f"{name} was called out of order: {calls}")


def _judge_rest(tallies: Tallies, folder: Path, commit: Mapping[str, Any]) -> None:
    """Nothing waits any more, and nothing lies about that nobody needs."""
    for name, branch in commit["branches"].items():
        if branch["failure"] or branch["missed"]:
            tallies.problems.append(f"query {name} stands still, or has missed epochs")
    for state in (commit, *(branch["state"] for branch in commit["branches"].values())):
        for name, arrangement in state["arrangements"].items():
            if name.startswith("outbox-") and arrangement["files"]:
                tallies.problems.append(f"rows wait in {name}")
    text = json.dumps(commit)
    committed = folder / "checkpoint" / "epochs" / f"{commit['epoch']:010d}.commit"
    for area in ("state", "results"):
        for path in (folder / "checkpoint" / area).rglob("*.parquet"):
            entry = path.relative_to(folder / "checkpoint").parts[:3]
            # Files that were merged after the last commit wait for the next one.
            is_late = path.stat().st_mtime > committed.stat().st_mtime
            if "/".join(entry) not in text and not is_late:
                tallies.problems.append(f"{path} belongs to nobody")
    for name in FOLDERS:
        for path in (folder / "out" / name / "_headrace").rglob("*.parquet"):
            tallies.problems.append(f"{path} was left staged")
