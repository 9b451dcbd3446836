"""``headrace run`` and real signals: processes of their own, which are asked to end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headrace.cli.run import ABANDONED
from tests.conftest import QUICK_JAVA, SOURCES

pytestmark = pytest.mark.usefixtures("spark_processes")

#: One epoch of which takes seconds: some pairs of rows that Spark takes long to compare.
PIPELINE = f"""\
checkpoint: state
settings:
  spark.sql.session.timeZone: UTC
  spark.driver.extraJavaOptions: "{QUICK_JAVA}"
streams:
  - name: bids
    format: json
    path: bids
    schema: k STRING, v BIGINT, ts TIMESTAMP
    time: ts
    options: {{maxFilesPerTrigger: 1}}
queries:
  - name: rows
    sql: SELECT k, v FROM bids
    sink: {{format: parquet, path: out}}
  - name: heavy
    sql: |
      SELECT COUNT(*) AS n FROM bids
      WHERE levenshtein(repeat(k, SIZE), repeat(concat(k, v), SIZE)) = 7 GROUP BY landmark(ts)
    outputMode: update
    sink: {{format: noop}}
"""
QUICK, SECONDS, AGES = 10, 3_000, 100_000
ROWS = [[file * 10 + i for i in range(8)] for file in range(4)]


def write_pipeline(folder: Path, size: int) -> None:
    (folder / "pipeline.yaml").write_text(PIPELINE.replace("SIZE", str(size)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bids").mkdir()
    for number, values in enumerate(ROWS):
        file = tmp_path / "bids" / f"{number}.json"
        rows = [{"k": "a", "v": v, "ts": f"2024-01-01T00:{v:02d}:00Z"} for v in values]
        file.write_text("\n".join(map(json.dumps, rows)))
        os.utime(file, (1_700_000_000 + number,) * 2)
    return tmp_path


@dataclass
class Command:
    """A ``headrace run`` that goes on beside the test."""

    process: subprocess.Popen[str]
    folder: Path

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait_for(self, what: Callable[[], bool]) -> None:
        until = time.monotonic() + 180
        while not what():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < until
            time.sleep(0.05)

    def wait_for_epoch(self, number: int) -> None:
        self.wait_for((self.folder / f"state/epochs/{number:010d}.intent").exists)
        # In the midst of it.
        time.sleep(0.5)

    def end(self) -> tuple[int, dict[str, Any], str]:
        out, error = self.process.communicate(timeout=120)
        return self.process.returncode, json.loads(out), error


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Command]:
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "run", "pipeline.yaml", "--json", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        # A terminal sends Ctrl-C to all of a group.
        start_new_session=True,
    )
    try:
        yield Command(process, folder)
    finally:
        process.kill()


def commits(folder: Path) -> int:
    return len(list((folder / "state" / "epochs").glob("*.commit")))


def released(folder: Path) -> bool:
    newest = max((folder / "state" / "leases").glob("*.lease"))
    return bool(json.loads(newest.read_text())["released"])


def values(folder: Path) -> Counter[int]:
    files = (folder / "out").glob("epoch=*/*.parquet")
    return Counter(v for file in files for v in pq.ParquetFile(file).read()["v"].to_pylist())


def finish(folder: Path) -> None:
    """Run what is left, quickly; all rows have then come out once."""
    with running(folder) as command:
        code, outcome, error = command.end()
    assert code == 0, error
    assert outcome["ended"] == "finished"
    assert values(folder) == Counter(v for rows in ROWS for v in rows)


def test_one_signal_ends_the_run_after_the_epoch(folder: Path) -> None:
    """Ctrl-C, as a terminal sends it: to the command and all that it has started."""
    write_pipeline(folder, SECONDS)
    with running(folder, "--stop-timeout", "120") as command:
        command.wait_for_epoch(1)
        assert commits(folder) == 0
        os.killpg(command.process.pid, signal.SIGINT)
        code, outcome, error = command.end()
    assert code == 128 + signal.SIGINT, error
    assert outcome["ended"] == "stopped"
    assert {(q["state"], q["epoch"], q["error"]) for q in outcome["queries"]} == {
        ("stopped", 1, None)
    }
    assert commits(folder) == 1
    assert values(folder) == Counter(ROWS[0])
    assert released(folder)
    assert error.count("stopping after the epoch") == 1
    check_calm(error)


def test_a_second_signal_abandons_the_epoch(folder: Path) -> None:
    write_pipeline(folder, AGES)
    with running(folder) as command:
        command.wait_for_epoch(1)
        command.send(signal.SIGTERM)
        time.sleep(0.5)
        assert command.process.poll() is None
        command.send(signal.SIGTERM)
        code, outcome, error = command.end()
    assert code == ABANDONED, error
    assert outcome["ended"] == "abandoned"
    assert all(query["error"] is None for query in outcome["queries"])
    assert commits(folder) == 0
    assert released(folder)
    check_calm(error)


def check_calm(error: str) -> None:
    for word in ("Traceback", "ERROR", "Exception", "\tat "):
        assert word not in error, error


@pytest.mark.slow
def test_an_epoch_that_takes_too_long_is_abandoned(folder: Path) -> None:
    """One signal and the time it leaves; the next run does the epoch again."""
    write_pipeline(folder, QUICK)
    (folder / "bids" / "3.json").rename(folder / "3.json")
    with running(folder) as command:
        assert command.end()[0] == 0
    assert commits(folder) == 3
    # The rows that a query holds back are not its meaning: only the last epoch is a heavy one.
    heavy = json.dumps({"k": "a" * 50_000, "v": 38, "ts": "2024-01-01T00:38:00Z"})
    whole = (folder / "3.json").read_text()
    (folder / "3.json").write_text(f"{whole}\n{heavy}")
    (folder / "3.json").rename(folder / "bids" / "3.json")
    began = time.monotonic()
    with running(folder, "--stop-timeout", "1") as command:
        command.wait_for_epoch(4)
        command.send(signal.SIGTERM)
        code, outcome, error = command.end()
    assert code == ABANDONED, error
    assert outcome["ended"] == "abandoned"
    assert commits(folder) == 3
    assert time.monotonic() - began < 60
    check_calm(error)


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 4.0])
def test_a_signal_while_it_starts(folder: Path, delay: float) -> None:
    """Before anything runs there is nothing to finish; Spark is ended in good order."""
    write_pipeline(folder, SECONDS)
    with running(folder) as command:
        children = Path(f"/proc/{command.process.pid}/task/{command.process.pid}/children")
        if not children.exists():
            pytest.skip("this system does not tell when Java was started")
        threads = children.parent.parent
        command.wait_for(lambda: any(f.read_text() for f in threads.glob("*/children")))
        time.sleep(delay)
        command.send(signal.SIGINT)
        code, outcome, error = command.end()
    assert code == 128 + signal.SIGINT, error
    assert outcome["ended"] == "stopped"
    check_calm(error)
    finish(folder)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_again_and_again_nothing_is_lost(folder: Path, number: signal.Signals) -> None:
    write_pipeline(folder, SECONDS)
    for epoch in (1, 2):
        with running(folder) as command:
            command.wait_for_epoch(epoch)
            command.send(number)
            if epoch == 2:
                command.send(number)
                time.sleep(0.2)
                command.send(number)
            code, outcome, error = command.end()
        assert code == (128 + number if epoch == 1 else ABANDONED), (outcome, error)
        check_calm(error)
    finish(folder)


@pytest.mark.slow
def test_a_run_that_goes_on_ends_when_it_is_asked(folder: Path) -> None:
    """Between two epochs there is nothing to wait for."""
    write_pipeline(folder, QUICK)
    file = folder / "pipeline.yaml"
    file.write_text(f"trigger: {{processingTime: 1 second}}\n{file.read_text()}")
    with running(folder) as command:
        command.wait_for(lambda: values(folder).total() == sum(map(len, ROWS)))
        time.sleep(1)
        command.send(signal.SIGTERM)
        code, outcome, error = command.end()
    assert code == 128 + signal.SIGTERM, error
    assert {query["state"] for query in outcome["queries"]} == {"stopped"}
    check_calm(error)
