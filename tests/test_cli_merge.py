"""``headrace merge``: what queries share, told without running them and mostly without Spark."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.cli.console import err
from headrace.cli.merge import ScopeName, StrategyName
from headrace.merge import MergeStrategy, Scope

Run = Callable[..., tuple[int, str, str]]

PIPELINE = """\
checkpoint: state
streams:
  - name: bids
    format: json
    path: bids
    schema: auction INT, price INT, ts TIMESTAMP
    time: ts
    delay: 10 seconds
queries:
  - name: dear
    sql: SELECT auction, price FROM bids WHERE price > 5
  - name: dear_too
    sql: SELECT price AS p, auction AS a FROM bids WHERE NOT price <= 5
  - name: counts
    sql: |
      SELECT auction, window, COUNT(*) AS n
      FROM bids
      WHERE price >= 6
      GROUP BY auction, window(ts, '10 minutes')
"""
#: The same as `dear` where sums do not overflow.
SHIFTED = "SELECT auction, price\nFROM bids\nWHERE price - 1 > 4\n"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line; gives exit code, standard output and standard error."""

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


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for Spark fails the test; another test's Spark may run in this process."""

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("Spark is not needed here")

    monkeypatch.setattr("headrace.cli.spark.spark_session", refuse)


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    return file


def test_the_choices_are_those_of_merging() -> None:
    assert [name.value for name in StrategyName] == [strategy.value for strategy in MergeStrategy]
    assert [name.value for name in ScopeName] == [scope.value for scope in Scope]


@pytest.mark.usefixtures("no_spark")
def test_it_tells_groups_shared_operators_efficiency_and_time(cli: Run, pipeline: Path) -> None:
    code, out, error = cli("merge", pipeline)
    assert code == 0, error
    assert re.match(r"planned in [\d.]+ m?s, merged in [\d.]+ m?s\n\n== Sharing ==\n", out)
    assert "\n3 queries: 13 operators alone, 8 merged, 38.5% fewer\n" in out
    assert "\nequal: dear, dear_too\nshare parts: counts\n" in out
    assert "r0 := Filter price > 5  (dear, dear_too, counts; saves 2)\n" in out
    assert not (pipeline.parent / "state").exists(), "nothing runs"


@pytest.mark.usefixtures("no_spark")
def test_for_programs(cli: Run, pipeline: Path) -> None:
    code, out, _ = cli("merge", pipeline, "--json")
    assert code == 0
    told = json.loads(out)
    assert told["files"] == [str(pipeline)]
    assert (told["strategy"], told["scope"], told["arithmetic"]) == ("sm+", "partial", "exact")
    assert told["operators"] == {"alone": 13, "merged": 8, "percent_saved": 38.46}
    assert told["seconds"]["merging"] >= 0
    assert told["plans"][0]["equal"] == [["dear", "dear_too"]]
    code, dot, _ = cli("merge", pipeline, "--mode", "dot")
    assert code == 0
    assert dot.startswith("digraph plan {\n")
    assert "planned in" not in dot


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("options", "merged"),
    [
        (("--strategy", "none"), 13),
        (("--strategy", "hb"), 10),
        (("--strategy", "sm"), 8),
        (("--scope", "complete"), 10),
        (("--arithmetic", "unbounded"), 8),
    ],
)
def test_options_say_how_sharing_is_found(
    cli: Run, pipeline: Path, options: tuple[str, ...], merged: int
) -> None:
    code, out, error = cli("merge", pipeline, "--json", *options)
    assert code == 0, error
    assert json.loads(out)["operators"]["merged"] == merged


@pytest.mark.usefixtures("no_spark")
def test_settings_of_the_pipeline_count_unless_told_otherwise(cli: Run, pipeline: Path) -> None:
    pipeline.write_text(f"settings: {{spark.headrace.merge.strategy: none}}\n{PIPELINE}")
    assert json.loads(cli("merge", pipeline, "--json")[1])["strategy"] == "none"
    told = json.loads(cli("merge", pipeline, "--json", "--strategy", "sm")[1])
    assert told["strategy"] == "sm"


@pytest.mark.usefixtures("no_spark")
def test_a_query_of_its_own_is_set_beside_those_of_a_pipeline(cli: Run, pipeline: Path) -> None:
    sql = pipeline.parent / "shifted.sql"
    sql.write_text(SHIFTED)
    exact = json.loads(cli("merge", pipeline, sql, "--json")[1])
    assert exact["plans"][0]["equal"] == [["dear", "dear_too"]]
    # Where the least number has no predecessor, `price - 1` stops the query.
    assert exact["plans"][0]["reading"] == ["shifted"]
    unbounded = json.loads(cli("merge", sql, pipeline, "--json", "--arithmetic", "unbounded")[1])
    assert unbounded["plans"][0]["equal"] == [["dear", "dear_too", "shifted"]]


@pytest.mark.usefixtures("no_spark")
def test_several_pipelines_are_taken_together(cli: Run, pipeline: Path) -> None:
    other = pipeline.parent / "other.yaml"
    other.write_text(PIPELINE)
    code, out, error = cli("merge", pipeline, other, "--json")
    assert code == 0, error
    told = json.loads(out)
    assert told["queries"] == 6
    assert told["plans"][0]["equal"] == [
        ["dear", "dear_too", "other/dear", "other/dear_too"],
        ["counts", "other/counts"],
    ]


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("COUNT(*)", "COUNT(*", ["SYNTAX_ERROR", "pipeline.yaml: line 1"]),
        ("FROM bids\n", "FROM bid\n", ["'bid'", "line 17, column 12", "did you mean 'bids'"]),
        ("streams:", "streems:", ["streems", "line 2, column 1"]),
    ],
)
def test_mistakes_are_one_line_with_a_place_in_the_file(
    cli: Run, pipeline: Path, old: str, new: str, words: list[str]
) -> None:
    assert old in PIPELINE
    pipeline.write_text(PIPELINE.replace(old, new, 1))
    code, out, error = cli("merge", pipeline)
    assert (code, out) == (1, "")
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    for word in words:
        assert word in error


@pytest.mark.usefixtures("no_spark")
def test_files_that_do_not_fit_together_are_refused(cli: Run, pipeline: Path) -> None:
    other = pipeline.parent / "other.yaml"
    other.write_text(PIPELINE.replace("10 seconds", "20 seconds"))
    code, _, error = cli("merge", pipeline, other)
    assert code == 1
    assert re.fullmatch(
        r"error: INVALID_PIPELINE: 'bids' is not the 'bids' of \S+/pipeline\.yaml "
        r"\(\S+/other\.yaml: line 3, column 11\) - .*\n",
        error,
    )
    sql = pipeline.parent / "alone.sql"
    sql.write_text(SHIFTED)
    code, _, error = cli("merge", sql)
    assert code == 1
    assert "no file says what the streams are" in error
    code, _, error = cli("merge", pipeline, pipeline.parent / "missing.sql")
    assert code == 1
    assert "cannot read" in error
    sql.write_text("SELECT auction\nFROM bid")
    code, _, error = cli("merge", pipeline, sql)
    assert code == 1
    assert f"{sql}: line 2, column 6" in error


def test_wrong_usage_is_exit_code_2(cli: Run, pipeline: Path) -> None:
    for arguments in (("merge",), ("merge", pipeline, "--strategy", "magic")):
        code, out, error = cli(*arguments)
        assert (code, out) == (2, "")
        assert "Usage: headrace" in error


def test_it_loads_no_spark(pipeline: Path) -> None:
    script = "\n".join(
        [
            "import sys",
            "from headrace.cli import main",
            f"try: main(['merge', {str(pipeline)!r}])",
            "except SystemExit: pass",
            "print('pyspark' in sys.modules, file=sys.stderr)",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "== Sharing ==" in done.stdout
    assert done.stderr.split() == ["False"]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("WHERE price > 5", "WHERE levenshtein('a', 'b') < price AND price > 5"),
        ("price INT,", "price INT, tags ARRAY<STRING>,"),
    ],
)
def test_functions_and_types_that_only_spark_knows(
    cli: Run, pipeline: Path, old: str, new: str
) -> None:
    assert old in PIPELINE
    (pipeline.parent / "bids").mkdir()
    pipeline.write_text(PIPELINE.replace(old, new, 1))
    code, out, error = cli("merge", pipeline, "--json")
    assert code == 0, error
    assert json.loads(out)["queries"] == 3


@pytest.mark.usefixtures("spark")
def test_columns_that_only_the_data_tells(cli: Run, pipeline: Path) -> None:
    pipeline.write_text(PIPELINE.replace("    schema: auction INT, price INT, ts TIMESTAMP\n", ""))
    folder = pipeline.parent / "bids"
    folder.mkdir()
    (folder / "0.json").write_text('{"auction": 1, "price": 2, "ts": "2024-01-01T00:00:00Z"}\n')
    code, out, error = cli("merge", pipeline)
    assert (code, out) == (1, "")
    # Spark takes a time in JSON for a string, and this is said as `headrace explain` says it.
    assert "the time column 'ts' of stream 'bids' is string, not timestamp" in error
    assert "line 3, column 11" in error


VIEWS = """\
views:
  - name: very_dear
    sql: SELECT * FROM high WHERE price > 50
  - name: high
    sql: |
      SELECT auction, price
      FROM bids
      WHERE price > 5
queries:
  - name: by_view
    sql: SELECT price, auction FROM high
  - name: twice
    sql: SELECT * FROM very_dear
"""


@pytest.mark.usefixtures("no_spark")
def test_views_are_read_in_any_order(cli: Run, pipeline: Path) -> None:
    pipeline.write_text(PIPELINE.replace("queries:\n", VIEWS))
    code, out, error = cli("merge", pipeline)
    assert code == 0, error
    assert re.search(r"by_view.*dear|dear.*by_view", out)


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "price > 5\n",
            "price > 5 LIMIT 3\n",
            "LIMIT over a stream has no first rows (FILE: line 16,",
        ),
        ("FROM high WHERE", "FROM hih WHERE", "'hih' (FILE: line 11, column 10)"),
        (
            "auction FROM high",
            "x FROM hgh",
            "no stream, table or view 'hgh' (FILE: line 19, column",
        ),
        (
            "FROM bids\n",
            "FROM very_dear\n",
            "VIEW_CYCLE: the view very_dear would read itself by way of high (FILE: line 11,",
        ),
        (
            "FROM bids\n",
            "FROM HIGH\n",
            "VIEW_CYCLE: the view high would read itself (FILE: line 15, column 12)",
        ),
    ],
)
def test_errors_of_views_are_placed_in_the_file(
    cli: Run, pipeline: Path, old: str, new: str, message: str
) -> None:
    assert old in VIEWS
    pipeline.write_text(PIPELINE.replace("queries:\n", VIEWS.replace(old, new, 1)))
    code, out, error = cli("merge", pipeline)
    assert (code, out) == (1, "")
    assert message.replace("FILE", str(pipeline)) in error


@pytest.mark.usefixtures("no_spark")
def test_views_of_several_files(cli: Run, pipeline: Path) -> None:
    pipeline.write_text(PIPELINE.replace("queries:\n", VIEWS))
    other = pipeline.parent / "other.yaml"
    other.write_text(pipeline.read_text())
    assert cli("merge", pipeline, other)[0] == 0
    other.write_text(PIPELINE.replace("queries:\n", VIEWS.replace("price > 5\n", "price > 6\n")))
    code, _, error = cli("merge", pipeline, other)
    assert code == 1
    assert "'high' is not the 'high' of" in error
    other.write_text(PIPELINE.replace("name: bids", "name: high").replace("FROM bids", "FROM high"))
    code, _, error = cli("merge", pipeline, other)
    assert code == 1
    assert "the view 'high' is a stream or table of another file" in error
