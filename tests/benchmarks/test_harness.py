"""The bench harness: the one JSON shape, honest ratios, and failure when results differ."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from benchmarks import BENCHES, BenchError, find_bench
from benchmarks.harness.plots import write_plots
from benchmarks.harness.report import Report, Setup, as_table
from headrace.native.compare import Case, ContestantRun, compare

MACHINE: dict[str, int | str] = {"cores": 2, "memory_gb": 24, "spark": "4.3.0", "java": "17"}


def contestant(times: list[float], rows: list[dict[str, object]]) -> Callable[[], ContestantRun]:
    """Take the given times one after the other, and always give the same rows."""
    left = iter(times)
    return lambda: ContestantRun(next(left), {"q": pa.Table.from_pylist(rows)}, [0.5, 0.25])


def report(case: Case) -> Report:
    return Report("ingest", "small", MACHINE, [case], {"mean": 2.0 / 3.0})


def test_the_json_has_exactly_the_one_shape(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"k": 1, "n": 2}]
    case = compare(
        "one window",
        10,
        {"native": contestant([9, 4, 6, 5], rows), "headrace": contestant([9, 2, 3, 2.5], rows)},
        notes={"target": "at least 1"},
    )
    file = tmp_path / "deep" / "out.json"
    report(case).write(file)
    assert json.loads(file.read_text()) == {
        "bench": "ingest",
        "scale": "small",
        "machine": {"cores": 2, "memory_gb": 24, "spark": "4.3.0", "java": "17"},
        "cases": [
            {
                "case": "one window",
                "equal": True,
                "rows": 10,
                "seconds": {"native": 5.0, "headrace": 2.5},
                "ratio": {"native/headrace": 2.0},
                "notes": {
                    "runs": {"native": [4.0, 6.0, 5.0], "headrace": [2.0, 3.0, 2.5]},
                    "series": {
                        "x": "micro-batch",
                        "y": "seconds",
                        "lines": {"native": [0.5, 0.25], "headrace": [0.5, 0.25]},
                    },
                    # Each run was one of two micro-batches.
                    "wall seconds per micro-batch": {"native": 2.5, "headrace": 1.25},
                    "target": "at least 1",
                },
            }
        ],
        "summary": {"mean": 0.6667},
    }


def test_progress_adds_up_to_the_whole(tmp_path: Path) -> None:
    done: list[float] = []
    setup = Setup("small", None, tmp_path, advance=done.append)  # type: ignore[arg-type]
    compare(
        "c",
        1,
        {"a": contestant([1] * 4, [{"k": 1}]), "b": contestant([1] * 4, [{"k": 1}])},
        advance=setup.part(0.5),
    )
    assert len(done) == 8
    assert sum(done) == pytest.approx(0.5)


def test_different_results_fail_the_bench_and_say_how() -> None:
    case = compare(
        "c",
        3,
        {
            "native": contestant([1] * 4, [{"k": 1}, {"k": 1}, {"k": 2}]),
            "headrace": contestant([1] * 4, [{"k": 1}, {"k": 2}, {"k": 3}]),
        },
    )
    assert not case.equal
    with pytest.raises(BenchError, match=r"results differ in c: headrace .* 1 rows missing, 1 not"):
        report(case).require_equal()


def test_people_see_ratios_before_seconds() -> None:
    case = Case("c", True, 10, {"native": 4.0, "headrace": 2.0}, {"native/headrace": 2.0})
    table = as_table(report(case))
    headers = [str(column.header) for column in table.columns]
    assert headers.index("ratio") < headers.index("seconds")
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(table)
    text = console.export_text()
    assert "2 cores, 24 GB, Spark 4.3.0, Java 17" in text
    assert "native/headrace 2.00" in text


def test_plots_stand_beside_the_json(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    series = {"x": "micro-batch", "y": "seconds", "lines": {"native": [1, 2], "headrace": [1, 1]}}
    case = Case("one/two", True, 1, {"native": 2.0, "headrace": 1.0}, {}, {"series": series})
    written = write_plots(report(case), tmp_path / "out.json")
    assert [file.name for file in written] == ["out-seconds.png", "out-one-two.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in written)


def test_benches_are_found_by_name() -> None:
    assert {"ingest", "latency", "soak"} <= set(BENCHES)
    with pytest.raises(BenchError, match=r"no bench 'latncy'.*did you mean 'latency'"):
        find_bench("latncy")
