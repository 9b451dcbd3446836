"""Each rule on its fixtures: the plan's text before and after, and the same rows from both."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.optimizer import RULES, STAGES, Stage, optimize
from headrace.optimizer.driver import run_stages
from headrace.plan.nodes import Node, Source
from headrace.plan.text import plan_text
from headrace.plan.types import BIGINT, TIMESTAMP, Schema
from headrace.sql import plan_query
from tests.support.fixtures import UNCHANGED, Case, fixture_text, read_fixture
from tests.support.oracle import assert_same_rows, run_batch
from tests.support.plans import BIDS, CLICKS, ITEMS
from tests.support.rows import random_tables, reading_all_columns

FOLDER = Path(__file__).parent.parent / "fixtures" / "optimizer"
FILES = sorted(FOLDER.glob("*.txt"))
#: Streams whose rows go by the time at which they arrive.
ARRIVALS = tuple(
    Source(
        name,
        Schema.of((("k", BIGINT), (value, BIGINT), ("processing_time", TIMESTAMP))),
        "processing_time",
        processing=True,
    )
    for name, value in (("doors", "door"), ("lights", "light"), ("sounds", "sound"))
)
LEAVES = (BIDS, CLICKS, ITEMS, *ARRIVALS)
CATALOG = {"bids": BIDS, "clicks": CLICKS, "items": ITEMS} | {a.stream: a for a in ARRIVALS}
#: Fixtures of this name run all stages together.
WHOLE = "all_rules"
SEEDS = range(4)


def rewritten(name: str, plan: Node) -> Node:
    if name == WHOLE:
        return optimize(plan).plan
    return run_stages(plan, (Stage(name, "one rule alone", (RULES[name],)),)).plan


def actual(name: str, case: Case) -> tuple[Case, Node, Node]:
    plan = plan_query(case.query, CATALOG).plan
    for earlier in read_fixture(FOLDER / f"{name}.txt").rules_before:
        plan = rewritten(earlier, plan)
    after = rewritten(name, plan)
    text = UNCHANGED if after == plan else plan_text(after)
    return replace(case, before=plan_text(plan), after=text), plan, after


def all_cases() -> list[object]:
    return [
        pytest.param(path.stem, case, id=f"{path.stem}-{case.title}")
        for path in FILES
        for case in read_fixture(path).cases
    ]


@pytest.fixture(scope="module", autouse=True)
def _golden_files_are_written_when_asked(update_golden: bool) -> None:
    if update_golden:
        for path in FILES:
            fixture = read_fixture(path)
            cases = tuple(actual(path.stem, case)[0] for case in fixture.cases)
            path.write_text(fixture_text(replace(fixture, cases=cases)), encoding="utf-8")


@pytest.mark.parametrize(("name", "case"), all_cases())
def test_plan(name: str, case: Case, update_golden: bool) -> None:
    if update_golden:
        pytest.skip("the expected texts are being written")
    found, _, _ = actual(name, case)
    assert found.before == case.before
    assert found.after == case.after


@pytest.mark.parametrize(("name", "case"), all_cases())
def test_rows(name: str, case: Case) -> None:
    _, before, after = actual(name, case)
    if before == after:
        return
    found_some = False
    for seed in SEEDS:
        tables = random_tables(LEAVES, 120, random.Random(seed))
        expected = run_batch(reading_all_columns(before, LEAVES), tables)
        found = run_batch(reading_all_columns(after, LEAVES), tables)
        assert_same_rows(found, expected, f"seed {seed}\n{case.query}", before.schema.names)
        found_some = found_some or bool(expected)
    # Two empty results would be equal whatever the rule did.
    assert found_some or "no rows" in case.title


def test_every_rule_has_fixtures_that_fire_and_that_refuse() -> None:
    fixtures = {path.stem: read_fixture(path).cases for path in FILES}
    assert set(RULES) | {WHOLE} == set(fixtures)
    for name, cases in fixtures.items():
        assert any(case.after != UNCHANGED for case in cases), f"{name} never fires"
        assert any(case.after == UNCHANGED for case in cases), f"{name} is never refused"


def test_fixture_files_are_as_the_runner_writes_them() -> None:
    for path in FILES:
        assert path.read_text(encoding="utf-8") == fixture_text(read_fixture(path)), path


def test_stages_name_each_rule_like_its_module() -> None:
    for stage in STAGES:
        for rule in stage.rules:
            assert rule.rewrite.__module__ == f"headrace.optimizer.rules.{rule.name}"
            assert rule.rewrite.__name__ == rule.name
