"""What people meet: the shell, its scripts, how a service may be started, and the client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import connect
from headrace.cli import main
from headrace.cli.serve import ServeError, _door
from headrace.cli.shell import complete_statements
from headrace.cli.speakers import Speaker
from headrace.cli.sql import _script
from headrace.client import ServiceError
from headrace.service.rights import Role
from headrace.service.tokens import TokenFile
from tests.service.conftest import COLUMNS, PER_MINUTE, Town


def door(tokens: Path | None = None, **more: Any) -> Any:
    given = {"host": "127.0.0.1", "port": 1, "tokens": tokens, "open_to_all": False}
    given |= {"certificate": None, "key": None, "behind_proxy": False}
    return _door(**{**given, **more})


def test_nobody_is_let_in_whom_nobody_has_thought_of(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    with pytest.raises(ServeError, match="nobody has said who may"):
        door()
    with pytest.raises(ServeError, match="has no tokens"):
        door(tokens)
    TokenFile(tokens).create("ann", Role.ADMIN)
    assert door(tokens).tokens is not None
    assert door(open_to_all=True).tokens is None
    for wrong in (
        {"open_to_all": True},
        {"host": "0.0.0.0"},
        {"host": "::"},
        {"host": "example.org"},
        {"certificate": tokens},
        {"certificate": tmp_path / "none", "key": tmp_path / "none"},
    ):
        with pytest.raises(ServeError):
            door(tokens, **wrong)
    with pytest.raises(ServeError, match="this machine alone"):
        door(host="0.0.0.0", open_to_all=True)
    assert door(tokens, host="0.0.0.0", behind_proxy=True).address == "http://0.0.0.0:1"
    secured = door(tokens, host="0.0.0.0", certificate=tokens, key=tokens)
    assert secured.address == "https://0.0.0.0:1"


def test_tokens_are_made_listed_and_revoked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tokens.json"

    def token(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["token", *arguments, "--file", str(file)])
        assert not ended.value.code
        return capsys.readouterr().out

    secret = token("create", "ann", "--role", "admin", "--tenant", "acme").strip()
    caller = TokenFile(file).caller(secret)
    assert caller is not None
    assert (caller.name, caller.role, caller.tenant) == ("ann", Role.ADMIN, "acme")
    shown = token("list")
    assert "ann" in shown
    assert "acme" in shown
    assert secret not in shown
    token("revoke", "ann")
    assert TokenFile(file).caller(secret) is None


@pytest.mark.parametrize(
    ("typed", "complete", "rest"),
    [
        ("", [], ""),
        ("  \n", [], ""),
        ("SHOW QUERIES", [], "SHOW QUERIES"),
        ("SHOW QUERIES;", ["SHOW QUERIES"], ""),
        ("SELECT 1; SELECT\n", ["SELECT 1"], "SELECT\n"),
        ("SELECT ';", [], "SELECT ';"),
        ("SELECT ';';", ["SELECT ';'"], ""),
        ("SELECT 1 -- ;\n;", ["SELECT 1"], ""),
        ("SELECT 1 -- ;", [], "SELECT 1 -- ;"),
        ("SELECT 1 /* ; */; SHOW VIEWS;", ["SELECT 1", "SHOW VIEWS"], ""),
        (";;", [], ""),
    ],
)
def test_statements_are_complete_when_a_semicolon_ends_them(
    typed: str, complete: list[str], rest: str
) -> None:
    assert complete_statements(typed) == (complete, rest)


def test_statements_of_a_script_keep_their_places(tmp_path: Path) -> None:
    file = tmp_path / "script.sql"
    file.write_text("-- two\nSHOW QUERIES;  SHOW VIEWS;\n\n  DROP QUERY q")
    texts = _script(None, file)
    assert texts is not None
    assert [text.lstrip() for text in texts] == ["SHOW QUERIES", "SHOW VIEWS", "DROP QUERY q"]
    assert texts[1] == "\n" + " " * 15 + "SHOW VIEWS"
    assert texts[2].startswith("\n\n\n  DROP")
    assert _script(None, None) is None


class _Actor(Speaker):
    """Answers like a service of one query."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def do(self, text: str) -> dict[str, Any]:
        self.asked.append(text)
        if text.startswith("SHOW RESULTS"):
            window = {"start": "2024-05-01T12:00:00Z", "end": "2024-05-01T12:10:00Z"}
            return {"message": "", "things": [{"window": window, "n": 3}], "text": None}
        if text.startswith("SHOW"):
            query = {"kind": "query", "name": "hot", "state": "running", "owner": "ann", "tags": []}
            return {"message": "", "things": [query], "text": None}
        if text.startswith("EXPLAIN"):
            return {"message": "", "things": [], "text": "== Plan ==\n[a] b"}
        raise ServiceError("no query 'x'", condition="UNKNOWN_QUERY")


def test_the_shell_shows_answers_and_goes_on_after_errors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from headrace.cli import shell
    from headrace.cli.console import err, out

    monkeypatch.setattr(err, "_file", None)
    monkeypatch.setattr(out, "_file", None)
    lines = iter(["PAUSE x;", "SHOW QUERIES; SHOW", "RESULTS hot;", "EXPLAIN hot;", "EXIT;"])

    def reader(speaker: Speaker) -> Any:
        return lambda prompt: next(lines)

    monkeypatch.setattr(shell, "_reader", reader)
    actor = _Actor()
    shell.run_shell(actor, "a test")
    printed = capsys.readouterr()
    assert actor.asked == ["PAUSE x", "SHOW QUERIES", "SHOW\nRESULTS hot", "EXPLAIN hot"]
    assert "UNKNOWN_QUERY: no query 'x'" in printed.err
    assert "hot" in printed.out
    assert "running" in printed.out
    assert "[a] b" in printed.out
    assert list(lines) == []


@pytest.fixture
def town_over_http(town: Town) -> Iterator[Any]:
    """The service on a socket, with the client of a person in it."""
    import threading
    import time

    import uvicorn

    with town.open():
        app = town.clients["ann"].app
        server = uvicorn.Server(uvicorn.Config(app, port=0, timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.02)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield town, f"http://127.0.0.1:{port}"
        server.should_exit = True
        thread.join()


def test_the_client(
    town_over_http: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    town, url = town_over_http

    def client(who: str) -> Any:
        secret = town.clients[who].headers["Authorization"].removeprefix("Bearer ")
        return connect(url, secret)

    ann, sam = client("ann"), client("sam")
    with pytest.raises(ServiceError) as refused:
        connect(url, "headrace_wrong").streams()
    assert refused.value.condition == "NOT_AUTHENTICATED"
    ann.stream(
        "bids",
        "json",
        str(town.bids),
        time="ts",
        columns=COLUMNS,
        options={"maxFilesPerTrigger": "1"},
    )
    with pytest.raises(ServiceError) as wrong:
        sam.sql("SELECT\n pric, ts FROM bids")
    assert str(wrong.value.position) == "line 2, column 2"
    assert "price" in (wrong.value.hint or "")
    sam.view("dear", "SELECT * FROM bids WHERE price > 4")
    query = sam.sql(PER_MINUTE.replace("bids", "dear"))
    assert query.columns == ("auction", "window", "n", "top")
    query.explain()
    hot = query.start("hot", tags=["a"])
    town.bid((1, 5, 0), (1, 4, 0), (2, 8, 0.5))
    town.bid((1, 7, 1.5), (1, 7, 2.5))
    epochs = hot.results().follow()
    epoch, rows = next(epochs)
    assert sorted((row["auction"], row["n"]) for row in rows) == [(1, 1), (1, 1), (2, 1)]
    town.bid((3, 7, 4))
    later, more = next(epochs)
    assert later > epoch
    found = rows + more
    # Who comes back with the last epoch that it has seen gets the rest, each row once.
    again = next(hot.results().follow(since=epoch))
    assert again == (later, more)
    town.wait_for(lambda: hot.results().toArrow().num_rows >= len(found))
    frame = hot.results().where("auction", "eq", 1).toPandas()
    assert sorted(frame["n"]) == sorted(row["n"] for row in found if row["auction"] == 1)
    assert hot.results().toArrow(limit=1).num_rows == 1
    assert [handle.name for handle in sam.queries] == ["hot"]
    assert hot.isActive
    hot.pause()
    assert not hot.isActive
    hot.resume(from_now=True)
    hot.explain("analyze")
    ann.explain()
    # The same by the shell's scripts.
    monkeypatch.setenv("HEADRACE_TOKEN", sam._token)
    capsys.readouterr()
    script = "SHOW QUERIES; CREATE QUERY two AS SELECT auction, ts FROM bids; DESCRIBE two"
    with pytest.raises(SystemExit) as ended:
        main(["sql", "--url", url, "--json", "-e", script])
    assert not ended.value.code
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [thing["name"] for thing in answers[0]["things"]] == ["hot"]
    assert answers[2]["things"][0]["columns"][0]["name"] == "auction"
    with pytest.raises(SystemExit) as failed:
        main(
            ["sql", "--url", url, "-e", "DROP QUERY two; SELECT nothing FROM bids; DROP QUERY hot"]
        )
    assert failed.value.code == 1
    assert "line 1, column 24" in capsys.readouterr().err
    # What came after the mistake was not done.
    assert [handle.name for handle in sam.queries] == ["hot"]
    epochs.close()
    hot.drop()
    sam.drop("dear")
    with pytest.raises(ServiceError, match="no query"):
        sam.query("hot")
