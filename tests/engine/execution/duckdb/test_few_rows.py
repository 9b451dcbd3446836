"""Few rows need no job: the driver's process runs what tasks would, and tasks what fails there."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.execution.duckdb import kernel
from headrace.plan.nodes import OutputMode, Source
from headrace.plan.types import BIGINT, TIMESTAMP, Schema
from headrace.sql import plan_query
from tests.support.compare import assert_same_rows
from tests.support.engine import run_engine, task_executor
from tests.support.oracle import run_epochs
from tests.support.streams import BEGIN, Row

BIDS = Source("bids", Schema.of([("k", BIGINT), ("v", BIGINT), ("ts", TIMESTAMP)]), "ts")
SQL = "SELECT k, window, SUM(v) AS total FROM bids GROUP BY k, window(ts, '10 seconds')"


class Jobs:
    """Counts the jobs of a session whose tasks run in this process."""

    def __init__(self, context: Any) -> None:
        self.count = 0
        self._parallelize: Callable[..., Any] = context.parallelize
        context.parallelize = self._counted

    def _counted(self, rows: Sequence[Any], parts: int) -> Any:
        self.count += 1
        return self._parallelize(rows, parts)


def epochs_of(rows: int) -> list[dict[str, list[Row]]]:
    second = datetime.timedelta(seconds=1)
    return [
        {
            "bids": [
                {"k": i % 3, "v": i, "ts": BEGIN + (20 * epoch + i % 20) * second}
                for i in range(rows)
            ]
        }
        for epoch in range(3)
    ]


def run(tmp_path: Path, least: int, rows: int = 40) -> int:
    """The jobs of three epochs, whose results are those of the oracle."""
    executor = task_executor(**{"tasks.leastRows": str(least)})
    jobs = Jobs(executor.session.sparkContext)
    plan, epochs = plan_query(SQL, {"bids": BIDS}).plan, epochs_of(rows)
    ran = run_engine(
        executor, {"q": (plan, OutputMode.APPEND)}, {"bids": BIDS}, epochs, {}, tmp_path
    )
    expected = run_epochs(plan, epochs)
    assert sum(map(len, expected)) >= 12
    for actual, wanted in zip(ran.rows["q"], expected, strict=True):
        assert_same_rows(actual, wanted)
    return jobs.count


def test_few_rows_start_no_job(tmp_path: Path) -> None:
    assert run(tmp_path, 1_000) == 0


def test_more_rows_are_for_tasks(tmp_path: Path) -> None:
    assert run(tmp_path, 0) >= 3
    assert run(tmp_path / "many", 30) >= 3


def test_what_fails_in_the_driver_is_done_by_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the reason, and without a file of the first try left behind."""
    run_task, refused = kernel.run_task, []

    def refusing(spec: dict[str, Any]) -> dict[str, Any]:
        answers = run_task(spec)
        if "folder" in spec:
            refused.append(spec)
            # The last piece of each write fails, which leaves no file of its own.
            last = {answer["write"]: place for place, answer in enumerate(answers["answers"])}
            for write, place in last.items():
                for file in answers["answers"][place]["files"]:
                    Path(file[0]).unlink()
                answers["answers"][place] = {"write": write, "error": "as if it failed here"}
        return answers

    assert run(tmp_path / "tasks", 0) >= 3
    monkeypatch.setattr(kernel, "run_task", refusing)
    assert run(tmp_path / "refused", 1_000) >= 3
    assert refused
    written = [
        len(list((tmp_path / folder / "state").rglob("*.parquet")))
        for folder in ("tasks", "refused")
    ]
    assert written[0] == written[1] > 0
