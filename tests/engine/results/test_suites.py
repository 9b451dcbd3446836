"""Cases of Spark's and Flink's suites: what these expect, the oracle says, and the engine does.

Where a rule of Headrace differs, the case says so and has both expectations; the document of the
meaning of results lists these rules with their cases.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.errors import HeadraceError
from tests.docs.examples import document
from tests.support.engine import FORCED_EXECUTOR, run_engine, tiny_executor
from tests.support.oracle_epochs import run_epochs, stream_watermarks
from tests.support.streams import Row
from tests.support.suites import FOLDER, Case, read_suites

CASES = read_suites()
TAKEN = [case for case in CASES if case.refused is None]
REFUSED = [case for case in CASES if case.refused is not None]
SUITES = sorted({case.suite for case in CASES})
#: These change the executor in the default run too.
SMALL = {"spark-MultiStatefulOperatorsSuite", "spark-StreamingDeduplicationSuite"}
#: Steps in one part each; other tests cut them.
WHOLE = {"tasks.rows": "100000", "tasks.buckets": "1"}


def test_there_are_cases_of_every_suite() -> None:
    assert len({str(case) for case in CASES}) == len(CASES)
    assert {case.suite for case in TAKEN} == {file.stem for file in FOLDER.iterdir()}
    assert len(TAKEN) >= 120
    assert all(case.expected() for case in TAKEN)


@pytest.mark.parametrize("case", TAKEN, ids=str)
def test_the_oracle_agrees(case: Case) -> None:
    batches = case.input.batches
    assert case.as_said(run_epochs(case.plan, batches, mode=case.mode)) == case.expected()
    marks = stream_watermarks(case.plan, batches)
    after = [
        {stream: _milliseconds(pairs[number][1]) for stream, pairs in marks.items()}
        for number in range(len(batches))
    ]
    assert case.watermarks_as_said(after) == case.expected("watermark")


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_what_is_refused(case: Case) -> None:
    with pytest.raises(HeadraceError) as error:
        _ = case.plan
    assert error.value.condition == case.refused


@pytest.mark.parametrize("suite", SUITES)
def test_the_engine_agrees(suite: str, near_spark: SparkSession, tmp_path: Path) -> None:
    _run_suite(suite, ("buckets", "spark" if suite in SMALL else "buckets"), near_spark, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES)
def test_either_executor_goes_on(suite: str, spark: SparkSession, tmp_path: Path) -> None:
    _run_suite(suite, ("spark", "buckets"), spark, tmp_path)


def _run_suite(suite: str, names: tuple[str, str], spark: SparkSession, folder: Path) -> None:
    """All cases of a suite in one run, which goes on with the second executor after a restart."""
    if FORCED_EXECUTOR != "auto":
        names = (FORCED_EXECUTOR, FORCED_EXECUTOR)
    first, second = (tiny_executor(spark, executor=name, **WHOLE) for name in names)
    cases = {f"q{number}": case for number, case in enumerate(TAKEN) if case.suite == suite}
    run = run_engine(
        first,
        {name: (case.plan, case.mode) for name, case in cases.items()},
        {s.stream: s for case in cases.values() for s in case.input.streams.values()},
        _side_by_side(list(cases.values())),
        {},
        folder / "state",
        restart_after=frozenset({1}),
        then=second,
    )
    wrong = {}
    for name, case in cases.items():
        length = len(case.said)
        assert not any(run.rows[name][length:]), f"{case}: rows after its last epoch"
        actual = case.as_said(run.rows[name][:length])
        if actual != case.expected():
            wrong[str(case)] = actual, case.expected()
        marks = [report.watermarks for report in run.reports[:length]]
        assert case.watermarks_as_said(marks) == case.expected("watermark"), str(case)
    assert wrong == {}


def _side_by_side(cases: list[Case]) -> list[dict[str, list[Row]]]:
    """The first epochs of all cases together, the second, and so on."""
    inputs = [case.input.batches for case in cases]
    return [
        dict(chain.from_iterable(batches[n].items() for batches in inputs if n < len(batches)))
        for n in range(max(map(len, inputs)))
    ]


def _milliseconds(microseconds: int | None) -> int | None:
    return None if microseconds is None else microseconds // 1_000


def test_what_differs_says_how() -> None:
    """A case with other rows or watermarks than its suite's names a rule, and no other does."""
    for case in TAKEN:
        pairs = [
            (said[ours], said[theirs])
            for said in case.said
            for ours, theirs in (("out", "suite"), ("watermark", "suite watermark"))
            if theirs in said
        ]
        assert bool(pairs) == bool(case.differs), str(case)
        assert all(ours != theirs for ours, theirs in pairs), str(case)
        assert all(case.differs.values()), str(case)


def test_the_document_lists_what_differs() -> None:
    """The table of rules in docs/semantics.md names all cases of each rule, and no others."""
    rules: dict[str, set[str]] = {}
    for case in TAKEN:
        for rule in case.differs:
            rules.setdefault(rule, set()).add(case.name)
    assert _rules_of_the_document() == rules


def _rules_of_the_document() -> Mapping[str, set[str]]:
    text = document("semantics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \|.*\| ([^|]*) \|$", text, flags=re.MULTILINE)
    return {rule: set(re.findall(r"`([^`]+)`", cases)) for rule, cases in rows}
