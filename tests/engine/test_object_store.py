"""A checkpoint and a sink on an S3-compatible server, through Spark's own connector.

Needs the package moto, and the connector from a repository or a cache of one.
"""

from __future__ import annotations

import io
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
from tests.support.compare import arrow_rows, assert_same_rows
from tests.support.script import Stream, at

moto_server = pytest.importorskip(
    "moto.server", reason="moto is not installed: pip install headrace[object-stores]"
)
boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.crash]

BIDS = Stream("bids", "k string, v bigint, ts timestamp")
FILES = [[("a", 10 * i, 10 * i), ("b", 10 * i + 1, 10 * i + 1)] for i in range(4)]


class Store:
    """The server, and what is in its bucket."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=endpoint,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            region_name="us-east-1",
        )

    def keys(self, prefix: str) -> list[str]:
        listed = self.client.list_objects_v2(Bucket="bucket", Prefix=prefix)
        return [entry["Key"] for entry in listed.get("Contents", [])]

    def rows(self, key: str) -> list[tuple[Any, ...]]:
        body = self.client.get_object(Bucket="bucket", Key=key)["Body"].read()
        return arrow_rows(parquet.ParquetFile(io.BytesIO(body)).read())


@pytest.fixture
def store() -> Iterator[Store]:
    server = moto_server.ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    found = Store(f"http://{host.replace('0.0.0.0', '127.0.0.1')}:{port}")
    found.client.create_bucket(Bucket="bucket")
    yield found
    server.stop()


def child(store: Store, folder: Path, command: str, **environment: str) -> str:
    finished = subprocess.run(
        [
            *(sys.executable, "-m", "tests.engine.object_store_child"),
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
    expected = -signal.SIGKILL if environment else 0
    assert finished.returncode == expected, finished.stderr
    return finished.stdout


def test_file_operations(store: Store, tmp_path: Path) -> None:
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


def test_a_race_that_is_killed_again_and_again(store: Store, tmp_path: Path) -> None:
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
