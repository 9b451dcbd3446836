"""Who may what, and what requests may name: without Spark, but for the last test."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from headrace.errors import HeadraceError, Position
from headrace.pipeline import QuerySpec, SinkSpec, StreamSpec
from headrace.service.gatekeeper import LOOPBACK_NAMES, Gatekeeper
from headrace.service.limits import Allowed, is_below
from headrace.service.rights import Caller, NotAllowed, Role
from headrace.service.tokens import TokenError, TokenFile
from tests.service.conftest import PER_MINUTE, Town

HERE = Position(1, 1)


def stream(path: str | None, format: str = "json", **options: str) -> StreamSpec:
    return StreamSpec("s", format, path, None, options, "ts", None, None, None, HERE)


def query(format: str, path: str | None = None, **options: str) -> QuerySpec:
    return QuerySpec("q", "SELECT 1", None, SinkSpec(format, path, options), HERE, HERE, False)


def test_tokens_are_kept_as_digests_and_told_apart(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "deep" / "tokens.json")
    assert file.caller("headrace_x") is None
    secret = file.create("ann", Role.ADMIN)
    other = file.create("bob", Role.READ, "acme")
    text = file.path.read_text()
    assert secret not in text
    assert secret.removeprefix("headrace_") not in text
    assert stat.S_IMODE(os.stat(file.path).st_mode) == 0o600
    # Another process reads it, also after it has changed.
    reader = TokenFile(file.path)
    assert reader.caller(secret) == Caller("ann", Role.ADMIN, "")
    assert reader.caller(other) == Caller("bob", Role.READ, "acme")
    for wrong in ("", "headrace_", secret[:-1], secret + "x", secret.upper()):
        assert reader.caller(wrong) is None
    file.revoke("ann")
    assert reader.caller(secret) is None
    assert reader.caller(other) is not None
    file.path.write_text("{")
    with pytest.raises(TokenError):
        reader.caller(other)
    file.path.unlink()
    assert reader.caller(other) is None


@pytest.mark.parametrize("name", ["", "a b", "A", "../x", "a.b", "x" * 61])
def test_names_of_tokens_and_tenants(tmp_path: Path, name: str) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    with pytest.raises(TokenError):
        file.create(name, Role.READ)
    if name:
        with pytest.raises(TokenError):
            file.create("x", Role.READ, name)


def test_paths_are_compared_as_they_are_on_disk(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    (inside / "sub").mkdir()
    assert is_below(str(inside), str(inside))
    assert is_below(f"{inside}/sub/../sub".replace("../sub", ""), str(inside))
    assert is_below(f"file://{inside}/sub", str(inside))
    assert is_below(f"{inside}/not-there-yet/x.json", str(inside))
    assert is_below(f"{inside}/*.json", f"{inside}/")
    for path in (
        str(outside),
        f"{inside}/../out",
        f"{inside}/link",
        f"{inside}/link/*.json",
        f"{inside}-not",
        f"{tmp_path}/i?",
        f"{tmp_path}/{{in,out}}",
        f"{inside}/{{sub,../../out}}",
        "in",
        "",
        "/",
        f"{inside}/sub\0",
        f"s3a://bucket{inside}",
        f"file://host{inside}",
        f"file:{outside}",
        f"file:///{str(inside)[1:]}/%2e%2e/out",
        f"hdfs:{inside}",
    ):
        assert not is_below(path, str(inside)), path


def test_nothing_reaches_spark_that_was_not_allowed() -> None:
    allowed = Allowed(
        frozenset({"json", "kafka"}), ("/data/in",), ("/data/out",), frozenset({"header"})
    )
    allowed.check(stream("/data/in/x", header="true"))
    allowed.check(stream(None, "kafka", Header="true"))
    allowed.check(query("results"))
    allowed.check(query("noop"))
    allowed.check(query("parquet", "/data/out/q"))
    for spec in (
        stream("/data/in/x", "parquet"),
        stream("/data/in/x", "com.example.Source"),
        stream("/etc"),
        stream(None),
        stream("/data/in/x", mode="PERMISSIVE"),
        stream(None, "kafka", Path="/etc"),
        stream(None, "kafka", **{"kafka.sasl.jaas.config": "x"}),
        query("parquet", "/data/in/q"),
        query("console"),
        query("memory"),
        query("foreachBatch"),
        query("results", header="x", path="y"),
        query("results", other="x"),
    ):
        with pytest.raises(NotAllowed):
            allowed.check(spec)
    # An option that looks like a secret is refused even where it is allowed by name.
    with pytest.raises(NotAllowed, match="written down"):
        Allowed(frozenset({"jdbc"}), options=frozenset({"password"})).check(
            stream(None, "jdbc", password="x")
        )


def test_what_the_gatekeeper_lets_through() -> None:
    app = FastAPI()

    @app.post("/")
    async def echo(body: list[int]) -> int:
        return len(body)

    @app.get("/")
    async def look() -> str:
        return "here"

    app.add_middleware(Gatekeeper, most_bytes=100, hosts=LOOPBACK_NAMES)
    client = TestClient(app)
    assert client.post("/", json=[1, 2]).json() == 2
    assert client.get("/").status_code == 200
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 403
    assert client.get("/", headers={"Host": "localhost:8090"}).status_code == 200
    assert client.post("/", json=[1] * 100).status_code == 413
    # One that says nothing of its length is cut off as well.
    parts = iter([b"[1", *[b",1"] * 100, b"]"])
    json_type = {"Content-Type": "application/json"}
    assert client.post("/", content=parts, headers=json_type).status_code == 413
    assert client.post("/", data={"a": "b"}).status_code == 415
    assert (
        client.post("/", content=b"[1]", headers={"Content-Type": "text/plain"}).status_code == 415
    )
    crossing = {"Sec-Fetch-Site": "cross-site"}
    assert client.post("/", json=[1], headers=crossing).status_code == 403
    assert client.post("/", content=b"{", headers=json_type).status_code == 422


def test_roles_and_tenants(town: Town) -> None:
    with town.open():
        for path in ("/queries", "/streams", "/plan", "/metrics", "/results/x", "/queries/x"):
            problem = town.refused("nobody", "GET", path)
            assert (problem["status"], problem["condition"]) == (401, "NOT_AUTHENTICATED")
        assert town.ask("nobody", "GET", "/health") == {"status": "ok"}
        assert town.ask("nobody", "GET", "/ready")["ready"]
        assert town.clients["nobody"].get("/docs").status_code == 404
        body = {"name": "x", "format": "json", "path": str(town.bids), "time": "ts"}
        for who in ("sam", "rea", "acme"):
            assert town.refused(who, "POST", "/streams", body)["status"] == 403
        for change in ({"path": "/etc"}, {"format": "text"}, {"options": {"mode": "x"}}):
            refused = town.refused("ann", "POST", "/streams", {**body, **change})
            assert refused["condition"] == "NOT_ALLOWED"
        town.create_bids()
        hot = {"name": "hot", "sql": PER_MINUTE}
        assert town.refused("rea", "POST", "/queries", hot)["status"] == 403
        # The same name for three tenants, each with its own query.
        for who, price in (("sam", 0), ("acme", 10), ("initech", 20)):
            sql = PER_MINUTE.replace("bids", f"bids WHERE price > {price}")
            town.ask(who, "POST", "/queries", {**hot, "sql": sql})
        secret = "SELECT auction AS acmes_secret, ts FROM bids"
        town.ask("acme", "POST", "/queries", {"name": "acmes", "sql": secret})
        town.ask("acme", "POST", "/views", {"name": "own", "sql": "SELECT * FROM bids"})
        town.bid((1, 5, 0), (1, 15, 0), (1, 25, 0))
        town.bid((1, 5, 2.5))
        for who, number in (("sam", 3), ("acme", 2), ("initech", 1)):
            town.wait_for_count(who, "hot", (1, 0, number))
        seen = {
            who: [query["name"] for query in town.ask(who, "GET", "/queries")["queries"]]
            for who in ("ann", "sam", "acme", "initech")
        }
        assert seen["sam"] == seen["initech"] == ["hot"]
        assert seen["acme"] == ["hot", "acmes"]
        assert seen["ann"] == ["hot", "acme.hot", "initech.hot", "acme.acmes"]
        # What is another tenant's is not there, in the same words as what nobody has.
        unknown = town.refused("initech", "GET", "/queries/nothing")["message"]
        for path in (
            "/queries/acmes",
            "/results/acmes",
            "/queries/acmes/plan",
            "/results/acmes/events",
        ):
            problem = town.refused("initech", "GET", path)
            assert problem["status"] == 404
            assert problem["message"] == unknown.replace("nothing", "acmes")
            assert problem["advice"] is None
        for name in ("acmes", "acme.acmes", "acme.hot", ".hot"):
            assert town.refused("initech", "DELETE", f"/queries/{name}")["status"] == 404
            assert town.refused("sam", "POST", f"/queries/{name}/pause", {})["status"] == 404
        assert town.refused(
            "initech", "POST", "/queries", {"name": "v", "sql": "SELECT * FROM own"}
        )
        assert town.ask("initech", "GET", "/views")["views"] == []
        assert town.refused("acme", "GET", "/plan")["status"] == 403
        for who in ("initech", "sam"):
            for mode in ("simple", "extended", "cost", "json", "analyze"):
                plan = town.ask(who, "GET", "/queries/hot/plan", params={"mode": mode})["plan"]
                assert "acme" not in plan
            for path in ("/metrics", "/queries", "/queries/hot"):
                assert "acme" not in town.clients[who].get(path).text
        assert town.ask("ann", "GET", "/results/acme.acmes")["rows"]
        problem = town.refused(
            "ann", "POST", "/streams", {**body, "name": "own", "columns": "ts TIMESTAMP"}
        )
        assert problem["condition"] == "DUPLICATE_NAME"
        _no_classes(town)
        _no_strange_bodies(town)


def _no_classes(town: Town) -> None:
    """Functions of Spark's that call a class, or read a file."""
    for call in (
        "reflect('java.lang.System', 'getProperty', 'user.home')",
        "java_method('java.lang.System', 'exit', 3)",
        "try_reflect('java.lang.System', 'getProperty', 'user.home')",
    ):
        sql = f"SELECT auction, ts, {call} AS x FROM bids"
        problem = town.refused("sam", "POST", "/queries", {"name": "bad", "sql": sql})
        assert problem["status"] in (400, 403), problem
    for text in ("SELECT * FROM json.`/etc`", "SELECT * FROM read_files('/etc')"):
        assert (
            town.refused("sam", "POST", "/queries", {"name": "bad", "sql": text})["status"] == 400
        )


def _no_strange_bodies(town: Town) -> None:
    for body in (
        {},
        [],
        {"name": "x"},
        {"name": "x", "sql": 3},
        {"name": "a/b", "sql": PER_MINUTE},
        {"name": "a.b", "sql": PER_MINUTE},
        {"name": "x", "sql": PER_MINUTE, "sink": {"format": "parquet"}},
        {"name": "x", "sql": PER_MINUTE, "sink": {"format": "parquet", "path": "/etc/x"}},
        {"name": "x", "sql": PER_MINUTE, "sink": {"format": "console"}},
        {"name": "x", "sql": PER_MINUTE, "sink": {"format": "my.Class"}},
        {"name": "x", "sql": PER_MINUTE, "extra": 1},
        {"name": "x", "sql": "SELECT '" + "x" * 300_000 + "'"},
        {"name": "x", "sql": "SELECT 1; DROP QUERY hot"},
        {"name": "x", "sql": "(" * 5_000},
    ):
        assert town.refused("sam", "POST", "/queries", body)["status"] in (400, 403, 422, 429)
    assert [q["name"] for q in town.ask("sam", "GET", "/queries")["queries"]] == ["hot"]
    with pytest.raises(HeadraceError):
        Caller("x", Role.READ).require(Role.SUBMIT, "do it")
