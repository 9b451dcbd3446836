"""Every bench, at a scale that says nothing about speed: that it runs, and that results are equal.

What the benches compare is real, so this is also a comparison of Headrace with plain Spark.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from benchmarks import BENCHES, BenchError, find_bench
from benchmarks.engine.soak import growth
from benchmarks.harness.parts import CASES_VARIABLE, chosen_parts
from benchmarks.harness.report import SCALES, Setup
from benchmarks.probing.counted import FIGURES
from benchmarks.probing.probe_order import PARTS
from benchmarks.probing.runs import CONTESTANTS
from benchmarks.windows.factor_windows import ALTERNATIVES
from headrace.native.compare import Case

pytestmark = pytest.mark.spark


def run_tiny(name: str, spark: SparkSession, work: Path) -> tuple[dict[str, Any], float]:
    """The report as a program reads it, and the share of the work that the bench told of."""
    done: list[float] = []
    report = find_bench(name).load().run(Setup("tiny", spark, work, advance=done.append))
    report.require_equal()
    read: dict[str, Any] = json.loads(json.dumps(report.to_json()))
    return read, sum(done)


@pytest.mark.slow
def test_ingest_runs(spark: SparkSession, tmp_path: Path) -> None:
    report, done = run_tiny("ingest", spark, tmp_path)
    (case,) = report["cases"]
    assert case["rows"] == 20_000
    assert set(case["seconds"]) == {"native", "headrace"}
    assert len(case["notes"]["series"]["lines"]["headrace"]) == 4
    assert set(report["summary"]) == {"native/headrace", "headrace events/s", "native events/s"}
    assert done == pytest.approx(1.0)


@pytest.mark.slow
def test_latency_runs(spark: SparkSession, tmp_path: Path) -> None:
    report, done = run_tiny("latency", spark, tmp_path)
    one, five, long = report["cases"]
    for case in (one, five):
        assert set(case["ratio"]) == {"native/headrace", "native/headrace wall"}
        assert set(case["notes"]["wall seconds per micro-batch"]) == {"native", "headrace"}
    assert set(long["ratio"]) == {"late/early", "late/early wall", "late/early epoch"}
    assert len(long["notes"]["series"]["lines"]["headrace"]) == 5
    assert 0.6 <= done <= 1.001


@pytest.mark.slow
def test_factor_windows_runs(spark: SparkSession, tmp_path: Path) -> None:
    report, done = run_tiny("factor-windows", spark, tmp_path)
    published, *others = report["cases"]
    assert set(published["ratio"]) == {"native/headrace"}
    limits = [case for case in others if case["notes"].get("limit")]
    choices = [case for case in others if case["notes"].get("choice")]
    assert (len(limits), len(choices)) == (2, 2)
    for case in choices:
        assert set(case["seconds"]) == {*ALTERNATIVES, "headrace"}
    summary = report["summary"]
    # The search beyond the paper is never worse, and proves how good it is.
    for name in ("R-20-tumbling", "R-20-hopping", "S-20-tumbling", "S-20-hopping"):
        published_least = summary[f"{name} planned cost, none/published least"]
        assert summary[f"{name} planned cost, none/searched least"] >= published_least
        assert summary[f"{name} greatest gap to the bound"] < 0.1
    assert done == pytest.approx(1.0)


@pytest.mark.slow
def test_join_order_runs(spark: SparkSession, tmp_path: Path) -> None:
    report, done = run_tiny("join-order", spark, tmp_path)
    orders, native, rates = report["cases"]
    assert set(orders["seconds"]) == {"chosen", "(a ⋈ b) ⋈ c", "(a ⋈ c) ⋈ b", "(b ⋈ c) ⋈ a"}
    assert orders["notes"]["results"] == native["notes"]["results"] > 0
    assert set(native["ratio"]) == {
        "native, as written/headrace",
        "native, best order/headrace",
    }
    assert rates["notes"]["rates"] == {"a": 1, "b": 20, "c": 79}
    assert report["summary"]["planning eight streams, seconds"] < 1
    assert done == pytest.approx(1.0)


@pytest.mark.slow
def test_probe_order_runs(spark: SparkSession, tmp_path: Path) -> None:
    report, done = run_tiny("probe-order", spark, tmp_path)
    tpcds, cycles, histories, *counted, drift, even, filtered, state = report["cases"]
    assert [case["case"] for case in counted] == [f"counted/{f}/synthetic" for f in FIGURES]
    assert set(tpcds["seconds"]) == set(CONTESTANTS)
    assert tpcds["notes"]["results"] > 0
    for clock in ("run", "join phase"):
        assert f"TPC-DS reduction vs fixed_order mean ({clock})" in report["summary"]
    for case in (cycles, histories):
        series = case["notes"]["series"]
        assert {len(line) for line in series["lines"].values()} == {len(series["at"])}
    assert len([name for name in drift["seconds"] if name.startswith("fixed")]) == 6
    assert {"dp_pick/oracle (run)", "dp_pick/oracle (join phase)"} <= set(drift["ratio"])
    for case in (even, filtered):
        # The same rows once, and those that two joins of a cascade hand on.
        assert case["notes"]["state rows"]["headrace"] == case["rows"]
        assert case["notes"]["state rows"]["native, a b c d"] > case["rows"]
    assert state["notes"]["results"] > 0
    assert report["summary"]["dp_pick of eight inputs, milliseconds (target < 50)"] < 1_000
    assert done == pytest.approx(1.0)
    assert len(tpcds["notes"]["bars"]) == 4


def test_one_part_of_probe_order_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CASES_VARIABLE, "state")
    report, done = run_tiny("probe-order", spark, tmp_path)
    (case,) = report["cases"]
    assert set(case["ratio"]) == {"state 5/2 (epoch)", "state 5/2 (join phase)"}
    assert len(case["notes"]["series"]["lines"]["epoch"]) == 7
    assert done == pytest.approx(1.0)


def test_parts_of_probe_order_are_chosen_by_name() -> None:
    assert chosen_parts("probe-order", PARTS, "") == list(PARTS)
    assert chosen_parts("probe-order", PARTS, "search, tpcds") == ["tpcds", "search"]
    with pytest.raises(BenchError, match="no part 'drfit'"):
        chosen_parts("probe-order", PARTS, "drfit")


@pytest.mark.slow
def test_merging_runs(spark: SparkSession, tmp_path: Path) -> None:
    report, done = run_tiny("merging", spark, tmp_path)
    *planned, ran, many = report["cases"]
    assert many["case"] == "many/12 queries in 4 groups"
    assert many["notes"]["many"]["median epoch while they come, seconds"] > 0
    assert many["notes"]["planning"]["adding one, ms"] > 0
    parts = {case["case"].split("/")[0] for case in planned}
    # The published sets are not on every machine.
    assert parts | {"sets"} == {"sets", "queries", "sources", "distinct", "overlap", "churn"}
    contestants = {"alone", "merged", "native 2", "native 4", "unmerged 2", "unmerged 4"}
    assert set(ran["seconds"]) == set(ran["notes"]["noop"]) == set(ran["notes"]["Parquet"])
    assert set(ran["seconds"]) == contestants
    figures = ran["notes"]["noop"]
    assert all(one["CPU seconds"] > 0 for one in figures.values())
    # Three of the four streams are read: once each, or by each query that needs two of them.
    assert figures["merged"]["source rows"] == figures["unmerged 4"]["source rows"] == 3 * 3 * 100
    assert figures["native 4"]["source rows"] == 4 * 2 * 3 * 100
    assert ran["ratio"]["source rows, 6 native/merged"] == 4
    assert ran["notes"]["lines"]["native, CPU"]["measured"].keys() == {"2", "4"}
    assert all(rows > 0 for rows in ran["notes"]["results of each group"].values())
    assert done == pytest.approx(1.0)


@pytest.mark.slow
def test_early_aggregation_runs(spark: SparkSession, tmp_path: Path) -> None:
    report, done = run_tiny("early-aggregation", spark, tmp_path)
    cases = {case["case"]: case for case in report["cases"]}
    assert done == pytest.approx(1.0)
    two = next(case for name, case in cases.items() if name.startswith("two-way"))
    three = next(case for name, case in cases.items() if name.startswith("three-way"))
    assert set(two["seconds"]) == {"LAP", "EAP10", "EAP01", "EAP11"}
    assert len(three["seconds"]) == 8
    assert two["notes"]["predicted"] in two["seconds"]
    assert set(two["notes"]["costs"]) == set(two["seconds"])
    assert "series" in two["notes"]
    assert {"late", "chosen"} == set(cases["default/two-way/2,000 rows"]["seconds"])
    assert {"native", "chosen"} == set(cases["native/three-way/2,000 rows"]["seconds"])


@pytest.mark.slow
def test_soak_runs(spark: SparkSession, tmp_path: Path) -> None:
    threads = threading.active_count()
    report, done = run_tiny("soak", spark, tmp_path)
    (case,) = report["cases"]
    series = case["notes"]["series"]
    assert set(series["lines"]) == {"heap after collection", "java resident", "python resident"}
    for line in series["lines"].values():
        assert len(line) == len(series["at"])
        assert min(line) > 10
    assert case["rows"] == 16 * 5_000
    assert case["notes"]["epochs"] >= 2
    assert done == pytest.approx(0.9)
    assert threading.active_count() <= threads + 1, "the sampling thread has ended"


@pytest.mark.slow
def test_choices_are_timed_on_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CASES_VARIABLE, "early,timed")
    report, done = run_tiny("choices", spark, tmp_path)
    *counted, timed = report["cases"]
    assert len(counted) >= 1
    assert all(case["case"].startswith("early/") for case in counted)
    assert timed["case"].startswith("timed/")
    assert set(timed["seconds"]) == {"chosen", "least work", "most work"}
    assert timed["notes"]["CPU"]["chosen"] > 0
    assert done == pytest.approx(1.0)


def test_growth_leaves_the_first_quarter_out() -> None:
    early, late = [10.0, 10.0, 99.0], [11.0, 99.0, 11.0]
    assert growth([1.0, 1.0, 1.0, *early, 50.0, 50.0, 50.0, *late]) == pytest.approx(1.1)
    with pytest.raises(BenchError, match="too short"):
        growth([1, 1, 1])


def test_every_bench_knows_every_scale() -> None:
    for name in BENCHES:
        module = find_bench(name).load()
        sizes = [
            value for value in vars(module).values()
            if isinstance(value, dict) and set(value) == set(SCALES)
        ]  # fmt: skip
        assert sizes, name


def test_a_case_is_read_by_programs_as_it_is_written() -> None:
    case = Case("c", True, 1, {"a": 1.23456}, {"a/b": 2.0}, {"target": "t"})
    assert json.loads(json.dumps(case.to_json()))["seconds"] == {"a": 1.235}
