"""A checkpoint and a sink on an S3-compatible server, through Spark's own connector.

Needs the package moto, and the connector from a repository or a cache of one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from tests.conftest import REPOSITORY
from tests.support.compare import assert_same_rows
from tests.support.script import Stream, at

pytest.importorskip(
    "moto.server", reason="moto is not installed: pip install headrace[object-stores]"
)
object_store = pytest.importorskip("tests.support.object_store")

pytestmark = [pytest.mark.slow, pytest.mark.crash, pytest.mark.usefixtures("spark_processes")]

BIDS = Stream("bids", "k string, v bigint, ts timestamp")
FILES = [[("a", 10 * i, 10 * i), ("b", 10 * i + 1, 10 * i + 1)] for i in range(4)]


@pytest.fixture
def store() -> Iterator[Any]:
    with object_store.serving() as found:
        yield found


def child(store: Any, folder: Path, command: str, **environment: str) -> str:
    """What a process says; one that is told where to die must."""
    finished = subprocess.run(
        [
            *(sys.executable, "-m", "tests.engine.checkpoint.object_store_child"),
            *(command, store.endpoint, str(folder)),
        ],
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=900,
    )
    if finished.returncode == 77:
        pytest.skip(finished.stdout)
    expected = -signal.SIGKILL if "HEADRACE_DIE_AT" in environment else 0
    assert finished.returncode == expected, finished.stderr
    return finished.stdout


def test_file_operations(store: Any, tmp_path: Path) -> None:
    answers = json.loads(child(store, tmp_path, "files").splitlines()[-1])
    assert answers == {
        "first": True,
        "second": False,
        "the same again": True,
        "read": "first",
        "winners": [True, 1],
        "overwritten": "22",
        "moved over another": ["222", False],
        "names": ["contested", "moved", "one"],
        "nothing there": [],
        "no bucket": "STORAGE_NOT_WRITABLE",
    }


def test_a_engine_that_is_killed_again_and_again(store: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, rows in enumerate(FILES):
        file = tmp_path / "in" / f"{number}.parquet"
        parquet.write_table(BIDS.table(rows), file)
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
    for place in ("commit.before:1", "commit.after:1", "publish.after:1"):
        child(store, tmp_path, "run", HEADRACE_DIE_AT=place)
    child(store, tmp_path, "run")
    published = [key for key in store.keys("out/") if "/_headrace/" not in key]
    found = [row for key in published if key.endswith(".parquet") for row in store.rows(key)]
    assert_same_rows(found, [(k, v, at(t)) for rows in FILES for k, v, t in rows])
    assert {key.split("/")[1] for key in published} == {f"epoch={i}" for i in range(1, 5)}
    assert not [key for key in store.keys("out/_headrace/") if key.endswith(".parquet")]
    totals = json.loads((tmp_path / "totals.json").read_text())
    assert totals == [["a", 0 + 10 + 20 + 30], ["b", 1 + 11 + 21 + 31]]


def put_inputs(store: Any, folder: Path) -> None:
    """The same streams on local disks and on the server, in files whose order their names tell."""
    for stream in ("a", "b"):
        (folder / "in" / stream).mkdir(parents=True)
        for number in range(5):
            rows = [(f"k{i % 3}", 100 * number + i, 20 * number + i) for i in range(20)]
            table = BIDS.table(rows if stream == "a" else rows[::2])
            file = folder / "in" / stream / f"file {number}.parquet"
            parquet.write_table(table, file)
            os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
            store.put(f"in/{stream}/file {number}.parquet", table)


def test_tasks_reach_the_store_themselves(store: Any, tmp_path: Path) -> None:
    put_inputs(store, tmp_path)
    said = json.loads(child(store, tmp_path, "tasks").splitlines()[-1])
    assert said["remote"]["rows"] == said["local"]["rows"]
    assert all(len(rows) > 20 for rows in said["local"]["rows"].values())
    # In every one of several epochs, and for every definition.
    assert said["remote"]["epochs"] >= 5
    labels = {label for label, _ in said["remote"]["ran"]}
    assert labels == {label for label, _ in said["local"]["ran"]}
    assert {"totals", "pairs", "probed"} <= labels
    fallbacks = [how for how in said["remote"]["ran"] if not how[1].startswith("DuckDB")]
    assert not fallbacks
    for name, after in said["remote"]["after"].items():
        assert after == said["local"]["after"][name]
        assert all(": DuckDB in " in line for line in after)
        stores = STORES if name == "pairs" else STORES[:1]
        untried = [f"{store}: tasks try to reach it when they first need it" for store in stores]
        assert said["remote"]["before"][name] == after + untried
    assert not said["remote"]["logged"]
    # Nothing is left of what tasks tried, and of their attempts.
    everything = [*store.keys(""), *store.keys("", "other")]
    assert not [key for key in everything if "probe-" in key or "attempts" in key]
    assert_no_secrets(store, said)


STORES = ("s3a://bucket", "s3a://other")


def assert_no_secrets(store: Any, said: object) -> None:
    words = (object_store.ACCESS_KEY, object_store.SECRET_KEY)
    assert not [word for word in words if word in json.dumps(said)]
    for bucket in object_store.BUCKETS:
        for key in store.keys("", bucket):
            text = store.bytes(key, bucket)
            assert not [word for word in words if word.encode() in text], key


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("other provider", "credentials of SystemPropertyCredentialsProvider, which pyarrow"),
        ("unknown host", "AWS Error"),
    ],
)
def test_stores_that_tasks_cannot_reach_are_sparks(
    case: str, reason: str, store: Any, tmp_path: Path
) -> None:
    put_inputs(store, tmp_path)
    said = json.loads(child(store, tmp_path, "tasks", HEADRACE_CASE=case).splitlines()[-1])
    assert said["remote"]["rows"] == said["local"]["rows"]
    ran = said["remote"]["ran"]
    assert ran
    assert all("which tasks cannot reach: " in how and reason in how for _, how in ran), ran
    for lines in said["remote"]["after"].values():
        assert lines
        assert all(": Spark, because of s3a://" in line and reason in line for line in lines)
    # Said once for each store, in the log and in the progress.
    for store_name in STORES:
        told = f"Spark runs what reads or writes {store_name}, because tasks cannot reach it: "
        assert len([line for line in said["remote"]["logged"] if line.startswith(told)]) == 1
        changes = [line for changes in said["remote"]["changes"] for line in changes]
        assert len([line for line in changes if line.startswith(told)]) == 1
    # No task went there: what Spark ran it ran because of this reason, from the first epoch on.
    assert said["remote"]["epochs"] >= 5
    assert_no_secrets(store, said)
