"""The service as its users see it: requests, and what they are answered."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest

from headrace.errors import CheckpointError
from tests.service.conftest import PER_MINUTE, Town


def test_a_query_is_created_read_paused_resumed_and_dropped(town: Town) -> None:
    with town.open():
        town.create_bids()
        made = town.ask(
            "sam", "POST", "/queries", {"name": "hot", "sql": PER_MINUTE, "tags": ["demo"]}
        )
        assert made["owner"] == "sam"
        town.bid((1, 5, 0), (1, 7, 0.5), (2, 1, 0.2))
        town.bid((1, 9, 1), (1, 9, 2.5))
        town.wait_for_count("rea", "hot", (1, 0, 2), (2, 0, 1), (1, 1, 1))
        told = town.ask("rea", "GET", "/queries/hot")
        assert told["state"] == "running"
        assert [column["name"] for column in told["columns"]] == ["auction", "window", "n", "top"]
        assert told["progress"]["totalOutputRows"] == 3
        # Another joins while it runs, and sees what comes from then on.
        town.ask("sam", "POST", "/queries", {"name": "late", "sql": PER_MINUTE})
        town.ask("sam", "POST", "/queries/hot/pause")
        assert town.ask("rea", "GET", "/queries/hot")["state"] == "paused"
        town.bid((3, 3, 3), (3, 3, 4))
        town.bid((3, 3, 5), (3, 3, 6.1))
        town.wait_for_count("rea", "late", (3, 3, 1), (3, 4, 1), (3, 5, 1))
        assert len(town.rows("rea", "hot")) == 3
        town.ask("sam", "POST", "/queries/hot/resume")
        town.wait_for(lambda: len(town.rows("rea", "hot")) == 7)
        bids = (1, 0, 2), (2, 0, 1), (1, 1, 1), (1, 2, 1), (3, 3, 1), (3, 4, 1), (3, 5, 1)
        town.wait_for_count("rea", "hot", *bids)
        town.ask("sam", "DELETE", "/queries/late")
        assert town.refused("sam", "GET", "/results/late")["status"] == 404
        names = [query["name"] for query in town.ask("rea", "GET", "/queries")["queries"]]
        assert names == ["hot"]
        # Its name is free at once, and nothing of the old one comes back.
        town.ask("sam", "POST", "/queries", {"name": "late", "sql": PER_MINUTE})
        assert town.rows("rea", "late") == []
        _read_in_all_ways(town)
        _look_at_plans(town)


def _read_in_all_ways(town: Town) -> None:
    """Pages, filters, Arrow and events give the same rows."""
    every = town.rows("rea", "hot")
    page, paged = None, []
    while True:
        parameters = {"limit": 3} | ({} if page is None else {"page": page})
        body = town.ask("rea", "GET", "/results/hot", params=parameters)
        paged += body["rows"]
        page = body["next"]
        if page is None:
            break
    assert paged == every
    dear = town.rows("rea", "hot", filter=["top:ge:5", "auction:eq:1"])
    assert dear == [row for row in every if row["top"] >= 5 and row["auction"] == 1]
    arrow = town.clients["rea"].get(
        "/results/hot", headers={"Accept": "application/vnd.apache.arrow.stream"}
    )
    table = pa.ipc.open_stream(io.BytesIO(arrow.content)).read_all()
    assert table.column("n").to_pylist() == [row["n"] for row in every]
    since = town.ask("rea", "GET", "/results/hot")["epoch"]
    assert town.rows("rea", "hot", since=since) == []
    problem = town.refused("rea", "GET", "/results/hot?filter=pric:ge:1")
    assert problem["condition"] == "INVALID_FILTER"
    assert town.refused("rea", "GET", "/results/hot?filter=n:ge:x")["status"] == 400
    # What looks like SQL is a value, or the name of no column.
    assert town.refused("rea", "GET", "/results/hot?filter=n:eq:1%20OR%201=1")["status"] == 400
    assert town.refused("rea", "GET", '/results/hot?filter=n"--:eq:1')["status"] == 400
    assert town.refused("rea", "GET", "/results/hot?page=1")["status"] == 400


def _look_at_plans(town: Town) -> None:
    plan = town.ask("ann", "GET", "/plan")["plan"]
    # Who was paused goes on by itself, and is part of no shared plan.
    assert plan["queries"] == 1
    cost = town.ask("sam", "POST", "/explain", {"sql": PER_MINUTE, "mode": "cost"})["plan"]
    assert "Aggregate" in cost
    told = town.ask("sam", "GET", "/queries/hot/plan", params={"mode": "analyze"})["plan"]
    assert "== Observed ==" in told
    texts = [PER_MINUTE, "SELECT pric FROM bids", "SELECT * FROM bids ORDER BY price"] * 5
    body = town.ask("sam", "POST", "/validate", {"queries": texts})
    assert body["valid"] == 5
    wrong = body["queries"][1]["error"]
    assert wrong["position"] == {"line": 1, "column": 8}
    assert "price" in wrong["advice"]
    metrics = town.clients["rea"].get("/metrics").text
    assert 'headrace_query_total_output_rows_total{query="hot",owner="sam"} 7' in metrics
    assert "headrace_engine_running 1" in metrics


def test_definitions_outlive_the_service(town: Town) -> None:
    with town.open():
        town.create_bids()
        town.ask(
            "sam", "POST", "/views", {"name": "dear", "sql": "SELECT * FROM bids WHERE price > 4"}
        )
        over_view = PER_MINUTE.replace("FROM bids", "FROM dear")
        town.ask("sam", "POST", "/queries", {"name": "hot", "sql": over_view})
        town.ask("sam", "POST", "/queries", {"name": "still", "sql": PER_MINUTE})
        town.ask("sam", "POST", "/queries", {"name": "gone", "sql": PER_MINUTE})
        town.bid((1, 5, 0), (2, 1, 0.2), (1, 5, 1.1))
        town.wait_for_count("rea", "hot", (1, 0, 1))
        town.ask("sam", "POST", "/queries/still/pause")
        town.ask("sam", "DELETE", "/queries/gone")
    town.bid((1, 6, 1.5), (1, 8, 2.1))
    with town.open():
        names = {q["name"]: q["state"] for q in town.ask("rea", "GET", "/queries")["queries"]}
        assert names.keys() == {"hot", "still"}
        # The row of the first life is part of the window that ends in the second.
        town.wait_for_count("rea", "hot", (1, 0, 1), (1, 1, 2))
        assert town.ask("rea", "GET", "/queries/still")["state"] == "paused"
        # Queries hold what their views meant; a stream is needed as long as anybody reads it.
        assert "is read by" in town.refused("ann", "DELETE", "/streams/bids")["message"]
        town.ask("sam", "POST", "/queries/still/resume")
        town.wait_for_count("rea", "still", (1, 0, 1), (2, 0, 1), (1, 1, 2))
        for name in ("hot", "still"):
            town.ask("sam", "DELETE", f"/queries/{name}")
    with town.open():
        assert town.ask("rea", "GET", "/queries")["queries"] == []
        assert [s["name"] for s in town.ask("rea", "GET", "/streams")["streams"]] == ["bids"]
        town.ask("sam", "POST", "/queries", {"name": "hot", "sql": PER_MINUTE})


def test_only_one_service_has_a_checkpoint(town: Town) -> None:
    with town.open(), pytest.raises(CheckpointError, match="in use"), town.open():
        pass
