"""A service over files, without a socket: its engine runs on the Spark of all tests."""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pyspark.sql import SparkSession

from headrace.service.app import make_app
from headrace.service.caller import Service
from headrace.service.commands import Commands
from headrace.service.limits import Allowed, Limits
from headrace.service.rights import Role
from headrace.service.tokens import TokenFile
from headrace.service.workspace import Workspace, open_workspace
from tests.support.stage import QUICK

BEGIN = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
COLUMNS = "auction INT, price INT, ts TIMESTAMP"
PER_MINUTE = (
    "SELECT auction, window, COUNT(*) AS n, MAX(price) AS top FROM bids "
    "GROUP BY auction, window(ts, '1 minute')"
)


@dataclass
class Town:
    """A folder of bids, a checkpoint, and the people with their tokens."""

    spark: SparkSession
    folder: Path
    clients: dict[str, TestClient] = field(default_factory=dict)
    workspace: Workspace | None = None
    files: int = 0

    def __post_init__(self) -> None:
        self.bids.mkdir()
        self.tokens = TokenFile(self.folder / "tokens.json")
        for name, role, tenant in (
            ("ann", Role.ADMIN, ""),
            ("sam", Role.SUBMIT, ""),
            ("rea", Role.READ, ""),
            ("acme", Role.SUBMIT, "acme"),
            ("initech", Role.SUBMIT, "initech"),
        ):
            secret = self.tokens.create(name, role, tenant)
            self.clients[name] = self._client(secret)
        self.clients["nobody"] = self._client("")

    @property
    def bids(self) -> Path:
        return self.folder / "bids"

    def _client(self, secret: str) -> TestClient:
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        return TestClient(lambda *_: None, headers=headers)  # type: ignore[arg-type]

    @contextmanager
    def open(self, limits: Limits | None = None, checkpoint: str = "checkpoint") -> Iterator[None]:
        session = self.spark.newSession()
        for key, value in QUICK.items():
            session.conf.set(key, value)
        allowed = Allowed(
            formats=frozenset({"json"}),
            paths=(str(self.folder),),
            options=frozenset({"maxFilesPerTrigger"}),
        )
        limits = limits or Limits()
        workspace = self.workspace = open_workspace(
            session, str(self.folder / checkpoint), None, allowed, limits
        )
        commands = Commands(limits.waiting_commands, workspace.life.tick)
        commands.start()
        app = make_app(Service(workspace, commands, self.tokens, limits))
        for name, client in list(self.clients.items()):
            self.clients[name] = TestClient(
                app, headers=dict(client.headers), raise_server_exceptions=False
            )
        try:
            yield
        finally:
            commands.end()
            workspace.close()

    def ask(self, who: str, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """A request that succeeds, and what it is answered."""
        answer = self.clients[who].request(method, path, json=body, **more)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def refused(self, who: str, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """A request that is refused, with its problem details."""
        answer = self.clients[who].request(method, path, json=body)
        assert answer.status_code >= 400, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        found: dict[str, Any] = answer.json()
        assert found["status"] == answer.status_code
        assert "\n" not in found["detail"]
        return found

    def create_bids(self) -> None:
        self.ask(
            "ann",
            "POST",
            "/streams",
            {
                "name": "bids",
                "format": "json",
                "path": str(self.bids),
                "columns": COLUMNS,
                "time": "ts",
                "options": {"maxFilesPerTrigger": "1"},
            },
        )

    def bid(self, *bids: tuple[int, int, float]) -> None:
        """A file of bids: auction, price, and minutes since the beginning."""
        lines = [
            json.dumps(
                {
                    "auction": auction,
                    "price": price,
                    "ts": (BEGIN + datetime.timedelta(minutes=minute)).isoformat(),
                }
            )
            for auction, price, minute in bids
        ]
        self.files += 1
        hidden, final = self.bids / f".{self.files}.json", self.bids / f"{self.files:05d}.json"
        hidden.write_text("\n".join(lines))
        moment = 1_700_000_000 + self.files
        os.utime(hidden, (moment, moment))
        os.replace(hidden, final)

    def rows(self, who: str, name: str, **parameters: Any) -> list[dict[str, Any]]:
        found = self.ask(who, "GET", f"/results/{name}", params=parameters)["rows"]
        assert isinstance(found, list)
        return found

    def counts(self, who: str, name: str) -> list[tuple[int, int, int]]:
        """The result of PER_MINUTE: auction, minute, number."""
        found = []
        for row in self.rows(who, name):
            begin = datetime.datetime.fromisoformat(row["window"]["start"])
            minute = int((begin - BEGIN).total_seconds() // 60)
            found.append((row["auction"], minute, row["n"]))
        return sorted(found)

    def wait_for(self, condition: Callable[[], bool], seconds: float = 90) -> None:
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, "waited in vain"
            time.sleep(0.05)

    def wait_for_count(self, who: str, name: str, *expected: tuple[int, int, int]) -> None:
        wanted = sorted(expected)
        until = time.monotonic() + 90
        while self.counts(who, name) != wanted:
            assert time.monotonic() < until, (self.counts(who, name), wanted)
            time.sleep(0.05)


@pytest.fixture
def town(spark: SparkSession, tmp_path: Path) -> Town:
    return Town(spark, tmp_path)
