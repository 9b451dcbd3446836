"""The process is killed with SIGKILL at every durable step of an epoch, and started again.

Each run holds an aggregate, a join and a query with two sinks, over two streams. Whatever was lost,
after the restart every file of the streams belongs to one committed epoch, and each epoch of each
output holds just the rows that the oracle gives it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow.parquet as parquet
import pytest

from headrace.plan.nodes import OutputMode, Source
from headrace.plan.types import STRING, TIMESTAMP, Schema
from headrace.sql import plan_query
from tests.conftest import REPOSITORY
from tests.engine.crash_child import QUERIES, STREAMS, TOTALS, TWO_SINKS
from tests.support.compare import arrow_rows, assert_same_rows
from tests.support.oracle import run_epochs
from tests.support.script import Stream, at, read_epoch

pytestmark = [pytest.mark.spark, pytest.mark.crash]

#: The files of the streams, one of each stream in an epoch. Every epoch completes pairs, every one
#: but the first closes windows and has rows that are late.
FILES = [
    {
        "l": [("a", 10 * i), ("b", 10 * i + 2), ("a", 10 * i + 6), ("c", 10 * i - 14)],
        "r": [("a", 10 * i + 1), ("b", 10 * i - 4), ("b", 10 * i + 7), ("c", 10 * i - 14)],
    }
    for i in range(3)
]
#: Stores and sinks that one epoch writes.
STORES = SINKS = 4
#: Every place, in the second epoch, and the epoch that the dead process had committed.
IN_EACH_EPOCH = [
    ("intent.before:2", 1),
    ("intent.after:2", 1),
    *((f"state.after:{STORES + i}", 1) for i in range(1, STORES + 1)),
    *((f"sink.after:{SINKS + i}", 1) for i in range(1, SINKS + 1)),
    ("commit.before:2", 1),
    ("commit.after:2", 2),
    ("publish.after:2", 2),
    ("returned.l:2", 2),
    ("returned.r:2", 2),
]


@dataclass
class Host:
    """A JVM that processes attach to, and that finishes what they left."""

    process: subprocess.Popen[str]
    environment: dict[str, str]

    def finish(self, folder: Path) -> None:
        stdin, stdout = _pipes(self.process)
        stdin.write(f"{folder}\n")
        stdin.flush()
        answer = json.loads(stdout.readline())
        assert answer == "finished", answer


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("host")
    with open(folder / "errors", "w") as errors:
        process = subprocess.Popen(
            _command("host", folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=REPOSITORY,
        )
    stdin, stdout = _pipes(process)
    first = stdout.readline()
    assert first, (folder / "errors").read_text()
    told = json.loads(first)
    lent = {"PYSPARK_GATEWAY_PORT": str(told["port"]), "PYSPARK_GATEWAY_SECRET": told["secret"]}
    yield Host(process, {**os.environ, **lent})
    stdin.close()
    process.wait(60)


def test_every_epoch_has_something_to_lose() -> None:
    expected = oracle([{stream: [number] for stream in STREAMS} for number in range(len(FILES))])
    for name in ("aggregate", "join", "updates"):
        assert all(expected[name][1:]), name


@pytest.mark.parametrize(("place", "committed"), IN_EACH_EPOCH)
def test_killed_in_an_epoch(place: str, committed: int, tmp_path: Path, host: Host) -> None:
    write_streams(tmp_path)
    kill(tmp_path, place, host.environment)
    assert last_commit(tmp_path) == committed
    host.finish(tmp_path)
    check(tmp_path)


@pytest.mark.parametrize("committed", sorted(STREAMS))
def test_killed_between_the_commits_of_two_streams(
    committed: str, tmp_path: Path, host: Host
) -> None:
    """Spark has noted the batch of one stream as done, and not yet that of the other."""
    write_streams(tmp_path)
    kill(tmp_path, "publish.after:2", host.environment)
    for stream in STREAMS:
        commits = tmp_path / "checkpoint" / "ingest" / stream / "commits"
        assert not (commits / "1").exists()
        if stream == committed:
            shutil.copy(commits / "0", commits / "1")
    host.finish(tmp_path)
    check(tmp_path)


def test_killed_twice(tmp_path: Path, host: Host) -> None:
    """The restart itself is killed, while it repeats the epoch."""
    write_streams(tmp_path)
    kill(tmp_path, "commit.before:3", host.environment)
    assert last_commit(tmp_path) == 2
    kill(tmp_path, f"sink.after:{SINKS}", host.environment)
    assert last_commit(tmp_path) == 2
    host.finish(tmp_path)
    check(tmp_path)


def test_killed_with_its_jvm(tmp_path: Path, host: Host) -> None:
    write_streams(tmp_path)
    kill(tmp_path, "returned.r:2", None)
    host.finish(tmp_path)
    check(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("epoch", [1, 3])
@pytest.mark.parametrize("place", [place for place, _ in IN_EACH_EPOCH])
def test_killed_in_the_first_or_the_last_epoch(
    place: str, epoch: int, tmp_path: Path, host: Host
) -> None:
    name, _, count = place.partition(":")
    each = STORES if name in ("state.after", "sink.after") else 1
    write_streams(tmp_path)
    kill(tmp_path, f"{name}:{int(count) + (epoch - 2) * each}", host.environment)
    host.finish(tmp_path)
    check(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("place", [place for place, _ in IN_EACH_EPOCH])
def test_killed_and_restarted_with_jvms_of_their_own(place: str, tmp_path: Path) -> None:
    """Nothing at all of the killed process is left for the next."""
    write_streams(tmp_path)
    kill(tmp_path, place, None)
    finished = subprocess.run(
        _command("finish", tmp_path), cwd=REPOSITORY, capture_output=True, text=True, timeout=300
    )
    assert finished.returncode == 0, finished.stderr
    check(tmp_path)


def write_streams(folder: Path) -> None:
    for name, columns in STREAMS.items():
        stream = Stream(name, columns)
        path = folder / "in" / name
        path.mkdir(parents=True)
        for number, epoch in enumerate(FILES):
            file = path / f"{number:05d}.parquet"
            parquet.write_table(stream.table(epoch[name]), file)
            os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def kill(folder: Path, place: str, environment: dict[str, str] | None) -> None:
    """Run the queries in a process that dies at this place."""
    finished = subprocess.run(
        _command("run", folder),
        cwd=REPOSITORY,
        env={**(environment or os.environ), "HEADRACE_DIE_AT": place},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == -signal.SIGKILL, f"it did not die at {place}: {finished.stderr}"


def last_commit(folder: Path) -> int:
    names = [p.name for p in (folder / "checkpoint" / "epochs").glob("*.commit")]
    return max((int(name.split(".")[0]) for name in names), default=0)


def oracle(epochs: list[dict[str, list[int]]]) -> dict[str, list[list[tuple[Any, ...]]]]:
    """What comes out of each query in each epoch, given the files that the epochs hold."""
    columns = Schema.of([("k", STRING), ("ts", TIMESTAMP)])
    catalog = {name: Source(name, columns, "ts", 0) for name in STREAMS}
    rows = [
        {
            stream: [{"k": k, "ts": at(t)} for file in files for k, t in FILES[file][stream]]
            for stream, files in epoch.items()
        }
        for epoch in epochs
    ]
    return {
        name: run_epochs(
            plan_query(text, catalog).plan,
            rows,
            mode=OutputMode.UPDATE if text == TWO_SINKS else OutputMode.APPEND,
        )
        for name, text in QUERIES.items()
    }


def epochs_of(folder: Path) -> list[dict[str, list[int]]]:
    """The files that each epoch took.

    Mostly one of each stream. But if the process dies after the file source has noted a file and
    before Spark has noted the batch, Spark puts that file and the next one into one batch.
    """
    checkpoint = folder / "checkpoint"
    batches = {stream: spark_batches(checkpoint / "ingest" / stream) for stream in STREAMS}
    epochs = []
    for number in range(1, last_commit(folder) + 1):
        intent = json.loads((checkpoint / "epochs" / f"{number:010d}.intent").read_text())
        epochs.append({s: batches[s][batch] for s, batch in intent["batches"].items()})
    return epochs


def spark_batches(ingest: Path) -> list[list[int]]:
    """The files of each batch, from Spark's own logs."""
    noted: list[tuple[int, int]] = []
    for log in (ingest / "sources" / "0").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            entry = json.loads(line)
            noted.append((int(entry["batchId"]), int(Path(entry["path"]).stem)))
    ends = [
        int(json.loads((ingest / "offsets" / str(batch)).read_text().splitlines()[-1])["logOffset"])
        for batch in range(len(list((ingest / "offsets").glob("[0-9]*"))))
    ]
    begins = [-1, *ends]
    return [
        sorted(file for at_log, file in noted if begin < at_log <= end)
        for begin, end in zip(begins, ends, strict=False)
    ]


def check(folder: Path) -> None:
    """Each epoch of each output holds the oracle's rows, and nothing else lies there."""
    epochs = epochs_of(folder)
    for stream in STREAMS:
        taken = sorted(file for epoch in epochs for file in epoch.get(stream, []))
        assert taken == list(range(len(FILES))), f"each file of {stream} counts once"
    expected = oracle(epochs)
    for name in ("aggregate", "join", "updates"):
        output = folder / "out" / name
        for number, rows in enumerate(expected[name], 1):
            found = read_epoch(str(output), number)
            assert_same_rows(found, rows, f"{name}, epoch {number}")
        epochs = {f"epoch={n}" for n, rows in enumerate(expected[name], 1) if rows}
        assert {p.name for p in output.iterdir()} - {"_headrace"} == epochs
        assert not [p for p in (output / "_headrace").rglob("*") if p.is_file()], "staged files"
    newest = {row[0]: row for rows in expected["totals"] for row in rows}
    assert_same_rows(arrow_rows(parquet.read_table(folder / TOTALS)), newest.values())


def _command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tests.engine.crash_child", *map(str, arguments)]


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout
