"""``headrace run`` and ``headrace explain``: two streams, a table and three queries in one file.

They run in this process, on the Spark of the tests; one test starts a process as a user would.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headrace import redaction
from headrace.cli import main
from headrace.cli.console import err
from tests.conftest import SOURCES

Run = Callable[..., tuple[int, str, str]]
START = datetime(2024, 1, 1, tzinfo=UTC)

PIPELINE = """\
checkpoint: state
settings: {spark.sql.session.timeZone: UTC, spark.headrace.progress.retained: 7}
streams:
  - name: bids
    format: json
    path: bids
    schema: auction BIGINT, price BIGINT, ts TIMESTAMP
    time: ts
    delay: 2 seconds
    options: {maxFilesPerTrigger: 1}
  - name: clicks
    format: json
    path: clicks
    schema: auction BIGINT, page STRING, ts TIMESTAMP
    time: ts
    options: {maxFilesPerTrigger: 1}
tables:
  - {name: auctions, format: json, path: auctions}
queries:
  - name: per_auction
    sql: |
      SELECT auction, window, COUNT(*) AS n, MAX(price) AS top
      FROM bids
      GROUP BY auction, window(ts, '10 seconds')
    sink: {format: parquet, path: out/per_auction}
  - name: titled
    sql: |
      SELECT a.title, b.price
      FROM bids AS b JOIN auctions AS a ON b.auction = a.auction
      WHERE b.price >= 38
    sink: {format: parquet, path: out/titled}
  - name: clicked
    sql: |
      SELECT b.auction, c.page, b.price
      FROM bids AS b JOIN clicks AS c
        ON b.auction = c.auction AND b.ts BETWEEN c.ts AND c.ts + INTERVAL 1 SECOND
    sink: {format: parquet, path: out/clicked}
"""


@pytest.fixture
def cli(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(err, "_file", None)
        code: object = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as exit_:
            code = exit_.code
        captured = capsys.readouterr()
        return (code if isinstance(code, int) else 0), captured.out, captured.err

    return run


def write_stream(folder: Path, rows_per_file: list[list[dict[str, Any]]]) -> None:
    """Files with modification times a second apart, the order in which Spark takes them."""
    folder.mkdir()
    for number, rows in enumerate(rows_per_file):
        file = folder / f"{number}.json"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    """Forty bids, one a second, on two auctions in turn; a click on each auction at second 20."""
    bids = [{"auction": i % 2, "price": i, "ts": at(i)} for i in range(40)]
    write_stream(tmp_path / "bids", [bids[:20], bids[20:]])
    clicks = [{"auction": a, "page": f"page {a}", "ts": at(20)} for a in (0, 1)]
    write_stream(tmp_path / "clicks", [clicks])
    titles = [{"auction": 0, "title": "a clock"}, {"auction": 1, "title": "a chair"}]
    write_stream(tmp_path / "auctions", [titles])
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    return file


def results(folder: Path) -> list[tuple[Any, ...]]:
    # As a single file, because the folder would come out as a column.
    files = [pq.ParquetFile(file).read() for file in folder.glob("epoch=*/*.parquet")]
    rows = [tuple(row.values()) for file in files for row in file.to_pylist()]
    return sorted(rows, key=str)


def check_results(folder: Path) -> None:
    # The watermark ends at 39 - 2 seconds, so three windows of each auction have closed.
    windows = [(a, start, 5, start + 8 + a) for a in (0, 1) for start in (0, 10, 20)]
    found = [
        (auction, (window["start"] - START).total_seconds(), n, top)
        for auction, window, n, top in results(folder / "per_auction")
    ]
    assert sorted(found) == windows
    assert results(folder / "titled") == [("a chair", 39), ("a clock", 38)]
    # Bids within a second after the click on their auction.
    assert results(folder / "clicked") == [(0, "page 0", 20), (1, "page 1", 21)]


def test_run_does_what_the_file_says(cli: Run, spark: SparkSession, pipeline: Path) -> None:
    before = dict(spark.conf.getAll)
    code, out, error = cli("run", pipeline, "--json")
    assert code == 0, error
    queries = {query["name"]: query for query in json.loads(out)["queries"]}
    assert {name: query["rows_out"] for name, query in queries.items()} == {
        "per_auction": 6,
        "titled": 2,
        "clicked": 2,
    }
    assert {query["state"] for query in queries.values()} == {"finished"}
    assert all(query["error"] is None and query["late_rows"] == 0 for query in queries.values())
    check_results(pipeline.parent / "out")
    assert dict(spark.conf.getAll) == before, "a Spark that ran before keeps its settings"

    # A second run finds nothing new, and says so for people this time.
    code, out, _ = cli("run", pipeline)
    assert code == 0
    check_results(pipeline.parent / "out")


def test_names_of_every_kind(cli: Run, pipeline: Path) -> None:
    """A name keeps its case, is read without it, and may be written otherwise the next time."""
    names = {
        "name: bids": "name: Größe",
        # The sharp s has no capital of its own.
        "FROM bids": "FROM gRÖßE",
        "name: auctions": "name: ORDER",
        "JOIN auctions": "JOIN `Order`",
        "name: per_auction": "name: Per-Auction",
        "name: titled": f"name: {'T' * 200}",
    }
    text = PIPELINE
    for plain, odd in names.items():
        assert plain in text
        text = text.replace(plain, odd)
    pipeline.write_text(text)
    code, out, error = cli("run", pipeline, "--json")
    assert code == 0, error
    assert {q["name"]: q["rows_out"] for q in json.loads(out)["queries"]} == {
        "Per-Auction": 6,
        "T" * 200: 2,
        "clicked": 2,
    }
    check_results(pipeline.parent / "out")
    pipeline.write_text(text.replace("name: Größe", "name: größe").replace("Per-A", "PER-a"))
    for command in (("run", pipeline), ("explain", pipeline), ("merge", pipeline)):
        code, out, error = cli(*command)
        assert code == 0, error
        assert command[0] == "run" or "PER-auction" in out
    check_results(pipeline.parent / "out")


@pytest.fixture
def nothing_concealed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_concealed", set())
    monkeypatch.setattr(redaction, "_pattern", None)


@pytest.mark.usefixtures("nothing_concealed")
def test_secrets_are_used_and_never_shown(
    cli: Run, pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path, an option, a setting and a part of the SQL; in all that is printed or written."""
    for name, value in {"IN": "clicks", "TOKEN": "tok-4711", "LEAST": "'3' || '8'"}.items():
        monkeypatch.setenv(f"HEADRACE_TEST_{name}", value)
    text = (
        PIPELINE.replace("path: clicks", "path: ${HEADRACE_TEST_IN}")
        .replace("price >= 38", "price >= CAST(${HEADRACE_TEST_LEAST} AS BIGINT)")
        .replace("options: {max", "options: {accessToken: '${HEADRACE_TEST_TOKEN}', max", 1)
        .replace("settings: {", "settings: {spark.warehouse.password: hunter2, ")
        .replace("out/titled}", "out/titled, options: {apiPassword: hunter3}}")
    )
    pipeline.write_text(text)
    printed = []
    modes = [("explain", pipeline, "--mode", mode) for mode in ("extended", "json", "dot")]
    shared = [("merge", pipeline, "--mode", mode) for mode in ("simple", "json")]
    for command in (*modes, *shared, ("run", pipeline, "--json")):
        code, out, error = cli(*command)
        assert code == 0, error
        assert "json" not in command or json.loads(out)
        printed += [out, error]
    check_results(pipeline.parent / "out")
    secrets = re.compile("tok-4711|hunter2|hunter3")
    assert not secrets.search("".join(printed))
    assert not re.search("'3' [|][|] '8'", "".join(printed))
    for file in (*(pipeline.parent / "state").rglob("*"), *pipeline.parent.rglob("owner.json")):
        if file.is_file():
            assert not secrets.search(file.read_bytes().decode("latin-1")), file

    # Spark quotes the path that it does not find.
    monkeypatch.setenv("HEADRACE_TEST_IN", "no-such-place")
    pipeline.write_text(text.replace("    schema: auction BIGINT, page STRING, ts TIMESTAMP\n", ""))
    for command in (("run", pipeline), ("explain", pipeline)):
        code, out, error = cli(*command)
        assert code == 1
        assert "***" in error
        assert "no-such-place" not in out + error


@pytest.mark.usefixtures("spark_processes")
def test_run_as_a_process_of_its_own(pipeline: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "run", str(pipeline)],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=pipeline.parent,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "per_auction" in done.stdout
    assert "finished" in done.stdout
    assert "WARN" not in done.stderr, "Spark's log stays out of the way"
    check_results(pipeline.parent / "out")


def test_explain_shows_every_query(cli: Run, pipeline: Path) -> None:
    code, out, error = cli("explain", pipeline)
    assert code == 0, error
    parts = out.split("-- ")
    assert [part.splitlines()[0] for part in parts[1:]] == ["per_auction", "titled", "clicked"]
    assert "over window(ts, '10 seconds')" in parts[1]
    assert "Table auctions" in parts[2]
    assert "Join inner" in parts[3]
    assert not (pipeline.parent / "state").exists(), "explaining runs nothing"


def test_explain_for_programs(cli: Run, pipeline: Path) -> None:
    code, out, _ = cli("explain", pipeline, "--json")
    assert code == 0
    plans = json.loads(out)
    assert list(plans) == ["per_auction", "titled", "clicked"]
    code, dot, _ = cli("explain", pipeline, "--mode", "dot")
    assert code == 0
    assert dot.count("digraph") == 3


@pytest.mark.parametrize("command", ["run", "explain"])
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        # The place is that of the wrong word in the pipeline file, not in the SQL.
        ("MAX(price)", "MAX(prise)", ["prise", "line 22, column", "price"]),
        ("FROM bids\n", "FROM bid\n", ["bid", "line 23, column"]),
        ("time: ts\n    delay", "time: when\n    delay", ["'when'", "line 4, column"]),
        ("path: auctions", "path: nothing", ["nothing", "line 18, column"]),
        ("BIGINT, price", "BIGNT, price", ["BIGNT", "line 4, column"]),
    ],
)
def test_mistakes_are_one_line_with_a_place_in_the_file(
    cli: Run, pipeline: Path, command: str, old: str, new: str, words: list[str]
) -> None:
    assert old in PIPELINE
    pipeline.write_text(PIPELINE.replace(old, new, 1))
    code, out, error = cli(command, pipeline)
    assert code == 1
    assert out == ""
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    for word in words:
        assert word in error


def test_a_query_that_fails_is_told_and_the_others_finish(cli: Run, pipeline: Path) -> None:
    """Dividing by zero is an error of the one query, in the middle of an epoch."""
    broken = PIPELINE.replace(
        "SELECT a.title, b.price", "SELECT a.title, 1 DIV (b.price - 39) AS x"
    )
    pipeline.write_text(broken)
    code, out, _ = cli("run", pipeline, "--json")
    assert code == 1
    queries = {query["name"]: query for query in json.loads(out)["queries"]}
    assert queries["titled"]["state"] == "failed"
    assert "zero" in queries["titled"]["error"].lower()
    assert queries["per_auction"]["state"] == "finished"
    assert queries["per_auction"]["rows_out"] == 6


def test_a_checkpoint_of_other_queries_is_refused(cli: Run, pipeline: Path) -> None:
    assert cli("run", pipeline)[0] == 0
    pipeline.write_text(PIPELINE.replace("'10 seconds'", "'20 seconds'"))
    code, _, error = cli("run", pipeline)
    assert code == 1
    assert error.count("\n") == 1
    assert "CHECKPOINT_QUERIES" in error
    assert "per_auction" in error
