"""The process is killed with SIGKILL at every durable step of an epoch, and started again.

Each run holds an aggregate, a join and a query with two sinks, over two streams. Whatever was lost,
after the restart every file of the streams belongs to one committed epoch, and each epoch of each
output holds just the rows that the oracle gives it.
"""

from __future__ import annotations

import itertools
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
from tests.engine.crashes.crash_child import ASLEEP, QUERIES, STREAMS, TOTALS, TWO_SINKS
from tests.support.compare import arrow_rows, assert_same_rows
from tests.support.oracle import run_epochs
from tests.support.script import Stream, at, read_epoch, span
from tests.support.seeds import Seeds

pytestmark = pytest.mark.crash

#: The files of the streams, one of each stream in an epoch. Every epoch completes pairs, every one
#: but the first closes windows and has rows that are late.
FILES = [
    {
        "l": [("a", 10 * i), ("b", 10 * i + 2), ("a", 10 * i + 6), ("c", 10 * i - 14)],
        "r": [("a", 10 * i + 1), ("b", 10 * i - 4), ("b", 10 * i + 7), ("c", 10 * i - 14)],
    }
    for i in range(14)
]
#: Stores and sinks that one epoch writes.
STORES = SINKS = 4
#: The places of an epoch up to its commit: a process that dies there has done nothing that counts.
BEFORE = [
    "intent.before:1",
    "intent.after:1",
    *(f"state.after:{i}" for i in range(1, STORES + 1)),
    *(f"sink.after:{i}" for i in range(1, SINKS + 1)),
    "commit.before:1",
    "flush.after:1",
]
#: One of each kind; the default run takes a part of them, others every day.
SOME_BEFORE = [
    "intent.before:1",
    "intent.after:1",
    "state.after:3",
    "sink.after:2",
    "commit.before:1",
    "flush.after:1",
]
#: The places after it, and the streams whose batch Spark had noted as done by then, if it matters.
AFTER: list[tuple[str, str | None]] = [
    ("commit.after:1", None),
    ("publish.after:1", None),
    ("returned.l:1", None),
    ("returned.r:1", None),
    ("publish.after:1", "l"),
    ("publish.after:1", "r"),
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
def host(tmp_path_factory: pytest.TempPathFactory, spark_processes: None) -> Iterator[Host]:
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
    for name in ("aggregate", "join", "probes", "updates"):
        assert all(expected[name][1:]), name


@pytest.mark.parametrize("share", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_again_and_again(share: int, seeds: Seeds, tmp_path: Path, host: Host) -> None:
    """Each epoch is begun by a process that dies before its commit, at another place each time,
    and done again by one that dies after it."""
    places = BEFORE if share == 1 else seeds.every(share, SOME_BEFORE)
    places_after = itertools.cycle(seeds.every(share, AFTER))
    write_streams(tmp_path, len(places) + 2)
    for number, before in enumerate(places):
        kill(tmp_path, before, host.environment)
        assert last_commit(tmp_path) == number, before
        after, noted = next(places_after)
        kill(tmp_path, after, host.environment)
        assert last_commit(tmp_path) == number + 1, after
        if noted is not None:
            note_as_done(tmp_path, noted, number)
        check(tmp_path, number, f"killed at {before} and {after}")
    host.finish(tmp_path)
    check_whole(tmp_path, len(places) + 2)


def test_killed_with_its_jvm(tmp_path: Path, host: Host) -> None:
    write_streams(tmp_path, 3)
    kill(tmp_path, "returned.r:2", None)
    host.finish(tmp_path)
    check_whole(tmp_path, 3)


def test_killed_while_a_stream_is_idle(tmp_path: Path, host: Host) -> None:
    """That a stream is idle was found out by the clock of a process that is dead. The next one,
    whose run would never find it, does the epoch again as it was."""
    # r stops at 7, while l is at 25.
    files = {"l": [("a", 1), ("b", 12), ("a", 25)], "r": [("a", 3), ("b", 7)]}
    write_streams(tmp_path, 1, [files])
    (tmp_path / ASLEEP).touch()
    for place in ("intent.after:2", "commit.before:1"):
        kill(tmp_path, place, host.environment, "sleep")
        assert last_commit(tmp_path) == 1, place
    host.finish(tmp_path)
    epochs = tmp_path / "checkpoint" / "epochs"
    intents = [json.loads((epochs / f"{n:010d}.intent").read_text()) for n in (1, 2)]
    assert [intent["batches"] for intent in intents] == [{"l": 0, "r": 0}, {}]
    assert intents[1]["idle"] == ["r"]
    output = str(tmp_path / "out" / "held")
    assert not read_epoch(output, 1)
    windows = [("a", span(0, 10), 2), ("b", span(0, 10), 1), ("b", span(10, 20), 1)]
    assert_same_rows(read_epoch(output, 2), windows)
    assert last_commit(tmp_path) == 2


@pytest.mark.slow
@pytest.mark.parametrize("epoch", [1, 2, 3])
@pytest.mark.parametrize("place", [*BEFORE, *(place for place, noted in AFTER if noted is None)])
def test_killed_once(place: str, epoch: int, tmp_path: Path, host: Host) -> None:
    name, _, count = place.partition(":")
    each = STORES if name in ("state.after", "sink.after") else 1
    write_streams(tmp_path, 3)
    kill(tmp_path, f"{name}:{int(count) + (epoch - 1) * each}", host.environment)
    host.finish(tmp_path)
    check_whole(tmp_path, 3)


@pytest.mark.slow
@pytest.mark.usefixtures("spark_processes")
@pytest.mark.parametrize("place", [*BEFORE, *(place for place, noted in AFTER if noted is None)])
def test_killed_and_restarted_with_jvms_of_their_own(place: str, tmp_path: Path) -> None:
    """Nothing at all of the killed process is left for the next."""
    write_streams(tmp_path, 3)
    kill(tmp_path, place, None)
    finished = subprocess.run(
        _command("finish", tmp_path), cwd=REPOSITORY, capture_output=True, text=True, timeout=300
    )
    assert finished.returncode == 0, finished.stderr
    check_whole(tmp_path, 3)


def write_streams(
    folder: Path, files: int, given: list[dict[str, list[tuple[str, int]]]] = FILES
) -> None:
    for name, columns in STREAMS.items():
        stream = Stream(name, columns)
        path = folder / "in" / name
        path.mkdir(parents=True)
        for number, epoch in enumerate(given[:files]):
            file = path / f"{number:05d}.parquet"
            parquet.write_table(stream.table(epoch[name]), file)
            os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def kill(
    folder: Path, place: str, environment: dict[str, str] | None, command: str = "run"
) -> None:
    """Run the queries in a process that dies at this place."""
    finished = subprocess.run(
        _command(command, folder),
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
    # Every tenth log repeats those before it.
    noted: set[tuple[int, int]] = set()
    for log in (ingest / "sources" / "0").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            entry = json.loads(line)
            noted.add((int(entry["batchId"]), int(Path(entry["path"]).stem)))
    ends = [
        int(json.loads((ingest / "offsets" / str(batch)).read_text().splitlines()[-1])["logOffset"])
        for batch in range(len(list((ingest / "offsets").glob("[0-9]*"))))
    ]
    begins = [-1, *ends]
    return [
        sorted(file for at_log, file in noted if begin < at_log <= end)
        for begin, end in zip(begins, ends, strict=False)
    ]


def check(folder: Path, epochs: int, context: str = "") -> None:
    """Each of the first epochs of each output holds the oracle's rows, and no file more."""
    expected = oracle(epochs_of(folder)[:epochs])
    for name in ("aggregate", "join", "probes", "updates"):
        output = folder / "out" / name
        for number, rows in enumerate(expected[name], 1):
            found = read_epoch(str(output), number)
            assert_same_rows(found, rows, f"{name}, epoch {number} {context}")
            assert (output / f"epoch={number}").exists() == bool(rows)


def check_whole(folder: Path, files: int) -> None:
    """Every file belongs to one epoch, the outputs are whole, and nothing else lies about."""
    epochs = epochs_of(folder)
    for stream in STREAMS:
        taken = sorted(file for epoch in epochs for file in epoch.get(stream, []))
        assert taken == list(range(files)), f"each file of {stream} counts once"
    check(folder, len(epochs))
    for name in ("aggregate", "join", "probes", "updates"):
        output = folder / "out" / name
        assert len([p for p in output.iterdir() if p.name != "_headrace"]) <= len(epochs)
        left = [p.name for p in (output / "_headrace").rglob("*") if p.is_file()]
        assert left == ["owner.json"], "staged files"
    newest = {row[0]: row for rows in oracle(epochs)["totals"] for row in rows}
    assert_same_rows(arrow_rows(parquet.read_table(folder / TOTALS)), newest.values())


def note_as_done(folder: Path, stream: str, batch: int) -> None:
    """What Spark does after a batch; the process died before it did so for the other stream."""
    for name in STREAMS:
        commits = folder / "checkpoint" / "ingest" / name / "commits"
        assert not (commits / str(batch)).exists()
        if name == stream:
            shutil.copy(commits / str(batch - 1), commits / str(batch))


def _command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tests.engine.crashes.crash_child", *map(str, arguments)]


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout
