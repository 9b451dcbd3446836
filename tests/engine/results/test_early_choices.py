"""What is aggregated early while the streams change: learnt as fast as it is unlearnt.

The streams follow a script, so that every figure and every choice is the same in each run, and the
epochs run in this process.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from headrace.definitions.definition import column, keep, select
from headrace.engine.execution.executor import Executor
from headrace.operators.sets.watched_keys import GROUPS, take_keys, watch_keys
from headrace.operators.write import Write, Written
from headrace.optimizer import optimize
from headrace.plan.nodes import OutputMode, Source, Table
from headrace.plan.types import BIGINT, TIMESTAMP, Schema
from headrace.sql import plan_query
from headrace.state.arrangement import StateFile
from headrace.stats.key_bits import ENOUGH
from tests.support.compare import assert_same_rows
from tests.support.engine import run_engine, tiny_executor
from tests.support.in_process import in_process_session
from tests.support.oracle import run_epochs
from tests.support.streams import Row

CATALOG: dict[str, Source | Table] = {
    name: Source(name, Schema.of([("k", BIGINT), ("v", BIGINT), ("ts", TIMESTAMP)]), "ts")
    for name in "ab"
}
COMMON = (
    "SELECT a.v, window, count(*) AS n FROM a JOIN b ON a.k = b.k AND "
    "window(a.ts, '10 seconds') = window(b.ts, '10 seconds') "
    "GROUP BY a.v, window(a.ts, '10 seconds')"
)
MOVING = (
    "SELECT a.v, window, count(*) AS n FROM a JOIN b ON a.k = b.k "
    "GROUP BY a.v, trailing(a.ts, '60 seconds'), trailing(b.ts, '60 seconds')"
)
ROWS, SECONDS = 300, 10


@pytest.fixture(scope="module")
def whole() -> Executor:
    """Tasks that cut nothing."""
    settings = {"tasks.rows": "50000"}
    return tiny_executor(in_process_session(), executor="buckets", **settings)


@pytest.fixture(scope="module")
def cut() -> Executor:
    """Tasks that cut even a few rows into parts."""
    return tiny_executor(in_process_session(), executor="buckets", **{"tasks.rows": "40"})


def few(number: int, index: int) -> tuple[int, int]:
    """A row's key and value, of which there are a few."""
    return index % 5, index % 3


def many(number: int, index: int) -> tuple[int, int]:
    """A key and a value that no other row of its stream has."""
    row = number * ROWS + index
    return row, row


def epochs_of(
    kinds: Sequence[Callable[[int, int], tuple[int, int]]], rows: int = ROWS
) -> list[dict[str, list[Row]]]:
    begin = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
    epochs: list[dict[str, list[Row]]] = []
    for number, kind in enumerate(kinds):
        came: list[Row] = []
        for index in range(rows):
            k, v = kind(number, index)
            second = SECONDS * (number + index / rows)
            came.append({"k": k, "v": v, "ts": begin + datetime.timedelta(seconds=second)})
        epochs.append({"a": came, "b": came})
    return epochs


def chosen(
    sql: str,
    kinds: Sequence[Callable[[int, int], tuple[int, int]]],
    executor: Executor,
    folder: Path,
    restart_after: frozenset[int] = frozenset(),
) -> list[str]:
    """What was aggregated early in each epoch, by what the engine tells of its changes."""
    plan = optimize(plan_query(sql, CATALOG).plan).plan
    epochs = epochs_of(kinds)
    run = run_engine(
        executor,
        {"q": (plan, OutputMode.APPEND)},
        CATALOG,
        epochs,
        {},
        folder,
        restart_after=restart_after,
    )
    for actual, wanted in zip(run.rows["q"], run_epochs(plan, epochs), strict=True):
        assert_same_rows(actual, wanted)
    early, choices = "a, b", []
    for report in run.reports:
        for change in report.changes:
            told = re.match(r"early aggregation of (.+?) \(was (.+?), expected", change)
            if told is not None:
                assert told[2] == early
                early = told[1]
        choices.append(early)
    return choices


@pytest.mark.parametrize("lasts", [1, 4])
@pytest.mark.parametrize("tasks", ["whole", "cut"])
def test_a_burst_is_believed_for_as_long_as_it_lasts(
    lasts: int, tasks: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The epoch after its first is planned by it, and the second after its last no more."""
    before = 3
    kinds = [few] * before + [many] * lasts + [few] * 4
    choices = chosen(COMMON, kinds, request.getfixturevalue(tasks), tmp_path)
    ends = before + lasts
    assert choices[: before + 1] == ["a, b"] * (before + 1)
    assert choices[before + 1 : ends + 1] == ["nothing"] * lasts
    assert choices[ends + 1 :] == ["a, b"] * 3


def test_a_burst_stays_in_a_window_that_moves(whole: Executor, tmp_path: Path) -> None:
    """Windows of six epochs: the choice follows what they hold, and not what comes alone."""
    before, lasts = 7, 7
    kinds = [few] * before + [many] * lasts + [few] * 9
    choices = chosen(MOVING, kinds, whole, tmp_path)
    ends = before + lasts
    assert choices[before - 1 : before + 1] == ["a, b"] * 2
    assert choices[ends - 1 : ends + 1] == ["nothing"] * 2
    back = choices.index("a, b", ends)
    assert back - ends < 6 + 3
    assert set(choices[back:]) == {"a, b"}


def test_one_odd_epoch_changes_no_window_that_moves(whole: Executor, tmp_path: Path) -> None:
    choices = chosen(MOVING, [few] * 7 + [many] + [few] * 4, whole, tmp_path)
    assert set(choices[6:]) == {"a, b"}


def test_epochs_in_which_nothing_enters_a_window(whole: Executor, tmp_path: Path) -> None:
    """A watermark may move without rows, and rows may come that lie beyond it."""

    def alone(number: int, index: int) -> tuple[int, int]:
        return 1, 1

    plan = optimize(plan_query(MOVING, CATALOG).plan).plan
    for rows in (1, 2):
        epochs = epochs_of([many, alone, alone, many, alone], rows)
        # One stream is ahead of the other, which holds the watermark back.
        for number, epoch in enumerate(epochs[:-1]):
            epoch["b"] = epochs[number + 1]["b"]
        run = run_engine(
            whole, {"q": (plan, OutputMode.APPEND)}, CATALOG, epochs, {}, tmp_path / str(rows)
        )
        for actual, wanted in zip(run.rows["q"], run_epochs(plan, epochs), strict=True):
            assert_same_rows(actual, wanted)


@pytest.mark.parametrize("kind", ["whole", "cut", pytest.param("spark", marks=pytest.mark.spark)])
def test_keys_are_counted_as_they_are_written(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Rows in two files, each key twice; with and without a share of hashes."""
    if kind == "spark":
        executor = tiny_executor(request.getfixturevalue("spark"), executor="spark")
    else:
        executor = request.getfixturevalue(kind)
    schema = Schema.of([("k", BIGINT), ("v", BIGINT)])
    files = []
    for part in range(2):
        keys = [*range(part * 1_000, 2_000 + part * 1_000), None]
        table = pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array([1] * len(keys))})
        path = tmp_path / f"{part}.parquet"
        parquet.write_table(table, path)
        files.append(StateFile(str(path), 1, table.num_rows, path.stat().st_size, None, None))
    stored = select(executor.inputs.bind_files(files, schema), keep(schema.names))
    for rows, error in ((0, 0.03), (8 * ENOUGH, 0.2)):
        counted = {"k": [column("k")], GROUPS: [column("k"), column("v")]}
        watch = watch_keys(counted, rows)
        (written,) = executor.write_all(
            [Write("rows", stored, schema, watch=watch, only_seen=True)]
        )
        assert isinstance(written, Written), written
        found = take_keys(written.seen)
        # No key is no key, but a group of its own.
        assert found["k"] == pytest.approx(3_000, rel=error)
        assert found[GROUPS] == pytest.approx(3_001, rel=error)
        assert not written.seen
