"""The command line without Spark: help at once, one-line errors, the demo's feed and screen."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import BENCHES
from headrace.cli import main
from headrace.cli.console import err
from headrace.cli.feed import Feed
from headrace.cli.progress import Glance, query_table
from headrace.cli.screen import Moment, Newest, Screen, draw, plain
from headrace.cli.spark import JavaError, spark_session
from headrace.pipeline import PipelineError

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line; gives exit code, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        # Rich took hold of the real standard error when it was imported.
        monkeypatch.setattr(err, "_file", None)
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        captured = capsys.readouterr()
        code = exit_.value.code
        return (code if isinstance(code, int) else 0), captured.out, captured.err

    return run


def test_help_names_all_commands_and_loads_no_spark() -> None:
    script = "\n".join(
        [
            "import sys",
            "from headrace.cli import main",
            "try: main(['--help'])",
            "except SystemExit: pass",
            "print('pyspark' in sys.modules, 'pyarrow' in sys.modules, file=sys.stderr)",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    for name in ("demo", "run", "serve", "sql", "token", "explain", "merge", "bench", "--debug"):
        assert name in done.stdout
    assert done.stderr.split() == ["False", "False"]


@pytest.mark.parametrize("command", ["run", "explain"])
def test_a_bad_pipeline_is_one_red_line(cli: Run, tmp_path: Path, command: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("checkpoint: x\nstreems: []\n")
    code, out, error = cli(command, str(file))
    assert code == 1
    assert out == ""
    assert error == (
        f"error: INVALID_PIPELINE: a pipeline has no key 'streems' ({file}: line 2, column 1)"
        " - did you mean 'streams'?\n"
    )


@pytest.mark.parametrize("arguments", [("--debug", "run"), ("run", "--debug")])
def test_debug_shows_the_traceback(arguments: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(PipelineError):
        main([*arguments, str(tmp_path / "nothing.yaml")])


def test_a_mistake_of_our_own_is_not_made_pretty(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Path) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(sys.modules["headrace.cli.run"], "load_pipeline", broken)
    with pytest.raises(ZeroDivisionError):
        main(["run", "p.yaml"])


def test_an_unknown_bench_is_one_line(cli: Run) -> None:
    code, _, error = cli("bench", "latncy")
    assert code == 1
    assert error == "error: BENCH_FAILED: no bench 'latncy' - did you mean 'latency'?\n"


def test_bench_without_a_name_lists_them(cli: Run) -> None:
    code, out, _ = cli("bench")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == list(BENCHES)


@pytest.mark.parametrize("home", [None, "/no/such/java"])
def test_a_missing_java_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str | None
) -> None:
    # Another test's Spark may run in this process, and would be used instead of a new one.
    monkeypatch.setattr("headrace.cli.spark._session_of_running_spark", lambda settings: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if home:
        monkeypatch.setenv("JAVA_HOME", home)
    with pytest.raises(JavaError, match=r"java.*install Java 17 or 21"), spark_session("test"):
        pass


def test_the_feed_writes_whole_files_and_closes_all_windows(tmp_path: Path) -> None:
    feed = Feed(tmp_path, bids_per_second=200, clicks_per_second=100, every=0.05)
    feed.start()
    feed.stop()
    feed.close_windows()
    rows = {
        name: [
            json.loads(line)
            for file in sorted((tmp_path / name).glob("*.json"))
            for line in file.read_text().splitlines()
        ]
        for name in ("bids", "clicks")
    }
    assert (len(rows["bids"]), len(rows["clicks"])) == (feed.bids, feed.clicks)
    assert all(
        list(row) == ["auction", "bidder", "category", "price", "ts"] for row in rows["bids"]
    )
    for stream in rows.values():
        *before, last = [datetime.fromisoformat(row["ts"]) for row in stream]
        assert last > max(before) + timedelta(minutes=30)
        assert min(before) > datetime.now(UTC) - timedelta(minutes=1)


MOMENT = Moment(
    elapsed=10.0,
    total=60.0,
    streams={"bids": (4_000, 400.0), "clicks": (2_000, 200.0)},
    queries=[
        Glance("busy", "running", 9, 400, 120, 3, 0.61, "2024-01-01T10:00:08.250Z"),
        Glance("broken", "failed", error="SINK_FAILED: no [room] left"),
    ],
    kinds={"busy": "window", "broken": "stateless"},
    newest=Newest(
        "busy", ("auction", "window"), [("3", "10:00:00 - 10:00:10")], "SELECT 1", "Source bids"
    ),
)


def drawn(moment: Moment, width: int, lines: int) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(draw(moment, width, lines))
    return console.export_text()


def test_the_screen_shows_rates_states_plans_and_results() -> None:
    text = drawn(MOMENT, 110, 50)
    for words in ("4,000 rows, 400/s", "busy", "window", "0.61 s", "10:00:08", "120"):
        assert words in text
    for words in ("no [room] left", "SELECT 1", "Source bids", "10:00:00 - 10:00:10"):
        assert words in text


def test_the_screen_fits_a_small_terminal() -> None:
    text = drawn(MOMENT, 80, 24)
    assert len(text.splitlines()) <= 24
    assert "Source bids" not in text, "there is no room for plans"
    for words in ("4,000 rows", "busy", "0.61 s", "10:00:08", "120", "10:00:00 - 10:00:10"):
        assert words in text
    for heading in ("query", "epoch", "rows in", "took", "watermark", "late", "results", "state"):
        assert heading in text


def test_before_the_first_epoch_the_screen_says_what_takes_so_long() -> None:
    waiting = replace(MOMENT, queries=[Glance("busy", "running")], newest=None)
    assert "the first epoch compiles all plans" in drawn(waiting, 80, 24)


def test_without_a_terminal_there_are_plain_lines() -> None:
    assert plain(MOMENT) == (
        "  10 s  bids 4,000 rows (400/s), clicks 2,000 rows (200/s); "
        "epoch 9 (0.61 s); results: busy 120, broken failed: SINK_FAILED: no [room] left"
    )
    written = io.StringIO()
    with Screen(Console(file=written, width=40)) as screen:
        screen.show(MOMENT)
        screen.show(MOMENT)
    assert written.getvalue() == plain(MOMENT) + "\n", "one line, however often it is drawn"


def test_the_version_names_what_a_bug_report_needs(cli: Run) -> None:
    code, out, _ = cli("--version")
    assert code == 0
    assert re.fullmatch(r"headrace \d+\.\d+\.\d+ \(PySpark 4\.\S+, Python 3\.\S+\)\n", out)


@pytest.mark.parametrize(
    "arguments", [("run",), ("bench", "ingest", "--scale", "huge"), ("demo", "--seconds", "1")]
)
def test_wrong_usage_is_exit_code_2(cli: Run, arguments: tuple[str, ...]) -> None:
    code, out, error = cli(*arguments)
    assert code == 2
    assert out == ""
    assert "Usage: headrace" in error


def test_a_table_of_80_columns_has_whole_states() -> None:
    console = Console(file=io.StringIO(), width=80)
    at = "2024-01-01T10:00:08.250Z"
    console.print(query_table([Glance("clicks_before_bids", "finished", 1, 18, 6, 0, 37.57, at)]))
    (row,) = console.file.getvalue().splitlines()[-2:-1]  # type: ignore[attr-defined]
    assert row.split() == [
        "clicks_before_bids",
        "1",
        "18",
        "37.57",
        "s",
        "10:00:08",
        "6",
        "finished",
    ]
