"""A service that is killed at its durable steps: what it said yes to is there when it is back."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace import HeadraceError
from headrace.client import Connection, connect
from headrace.failpoints import VARIABLE
from headrace.service.rights import Role
from headrace.service.tokens import TokenFile
from tests.service.conftest import PER_MINUTE, Town

pytestmark = [pytest.mark.slow, pytest.mark.crash]

#: What the first life is killed at, and what was not answered when it died.
PLACES = ["definition.before:4", "definition.after:4", "dropping.after:1", "dropped.before:1"]


@pytest.mark.parametrize("place", PLACES)
def test_what_was_acknowledged_outlives_a_kill(
    spark: SparkSession, spark_processes: None, tmp_path: Path, place: str
) -> None:
    town = Town(spark, tmp_path)
    with _service(town, place) as (process, service):
        service.stream(
            "bids",
            "json",
            str(town.bids),
            time="ts",
            columns="auction INT, price INT, ts TIMESTAMP",
            options={"maxFilesPerTrigger": "1"},
        )
        query = service.sql(PER_MINUTE)
        query.start("hot", tags=["kept"])
        query.start("gone")
        town.bid((1, 5, 0), (2, 1, 0.2), (1, 5, 1.1))
        _wait_for(service, "hot", 2)
        service.query("hot").pause()
        town.bid((1, 6, 1.5), (1, 8, 2.1))
        _wait_for(service, "gone", 3)
        with suppress(HeadraceError, OSError):
            query.start("third")
            service.query("gone").drop()
        assert process.wait(60) == -9
    with _service(town, "") as (process, service):
        names = {handle.name: handle.status["state"] for handle in service.queries}
        acknowledged = {"hot"} if "definition" not in place else {"hot", "gone"}
        in_doubt = {"gone", "third"}
        assert acknowledged <= names.keys() <= acknowledged | in_doubt
        assert ("third" in names) == (place != "definition.before:4")
        assert ("gone" in names) == ("definition" in place)
        assert names["hot"] == "paused"
        assert service.query("hot").status["tags"] == ["kept"]
        assert service.results("hot").toArrow().num_rows == 2
        service.query("hot").resume()
        table = _wait_for(service, "hot", 3)
        assert sorted(table.column("n").to_pylist()) == [1, 1, 2]
        # The name of what was dropped is free, and nothing of the old query comes back.
        if "gone" not in names:
            _until_free(service)
            town.bid((9, 9, 30))
            town.bid((9, 9, 40))
            fresh = _wait_for(service, "gone", 1)
            assert fresh.column("auction").to_pylist() == [9]
        assert service.results("hot").where("auction", "eq", 2).toPandas().shape[0] == 1
        process.terminate()
        assert process.wait(90) in (143, 75)


def _until_free(service: Connection) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            service.sql(PER_MINUTE).start("gone")
            return
        except HeadraceError as error:
            if error.condition != "DUPLICATE_QUERY" or time.monotonic() > until:
                raise
            time.sleep(0.2)


def _wait_for(service: Connection, name: str, rows: int) -> pa.Table:
    until = time.monotonic() + 120
    while True:
        table = service.results(name).toArrow()
        if table.num_rows >= rows:
            assert table.num_rows == rows
            return table
        assert time.monotonic() < until, (table.num_rows, service.query(name).status)
        time.sleep(0.1)


@contextmanager
def _service(town: Town, die_at: str) -> Iterator[tuple[subprocess.Popen[bytes], Connection]]:
    tokens = TokenFile(town.folder / "own-tokens.json")
    if tokens.all():
        tokens.revoke("ann")
    secret = tokens.create("ann", Role.ADMIN)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "headrace",
        "serve",
        "--checkpoint",
        str(town.folder / "state"),
    ]
    command += ["--port", str(port), "--tokens", str(tokens.path)]
    command += ["--allow-format", "json", "--allow-path", str(town.folder)]
    command += ["--allow-option", "maxFilesPerTrigger"]
    environment = {**os.environ, "MASTER": "local[1]"}
    environment |= {VARIABLE: die_at} if die_at else {}
    log = (town.folder / "service.log").open("ab")
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        service = connect(f"http://127.0.0.1:{port}", secret)
        until = time.monotonic() + 120
        while True:
            try:
                service.streams()
                break
            except HeadraceError:
                assert process.poll() is None, (town.folder / "service.log").read_text()
                assert time.monotonic() < until
                time.sleep(0.2)
        yield process, service
    finally:
        process.kill()
        process.wait()
        log.close()
