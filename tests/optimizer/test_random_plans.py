"""The optimizer on random plans: it ends, keeps columns and times, and changes no result."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.optimizer import RULES, optimize
from headrace.plan.nodes import Node
from headrace.plan.text import plan_text
from headrace.plan.times import event_times
from tests.support import plans as shapes
from tests.support.oracle import assert_same_rows, run_batch
from tests.support.plans import STREAMS, TABLES, plans
from tests.support.rows import random_tables, reading_all_columns

LEAVES = (*STREAMS, *TABLES)


SHAPES = {
    "stateless": (shapes.stateless_plans(), 20),
    "union": (shapes.union_plans(), 40),
    "aggregate": (shapes.aggregate_plans(), 60),
    "stacked aggregate": (shapes.stacked_aggregate_plans(), 20),
    "join": (shapes.join_plans(), 150),
    "state join": (shapes.state_join_plans(), 20),
    "table join": (shapes.table_join_plans(), 60),
    "joined aggregate": (shapes.joined_aggregate_plans(), 20),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_no_rule_changes_a_result(shape: str) -> None:
    strategy, examples = SHAPES[shape]

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(strategy, st.integers(0, 2**16))
    def unchanged(plan: Node, seed: int) -> None:
        assert_results_stay(plan, seed)

    unchanged()


def assert_results_stay(plan: Node, seed: int) -> None:
    optimized = optimize(plan).plan
    if optimized == plan:
        return
    tables = random_tables(LEAVES, 60, random.Random(seed))
    context = f"before:\n{plan_text(plan)}\nafter:\n{plan_text(optimized)}"
    assert_same_rows(
        run_batch(reading_all_columns(optimized, LEAVES), tables),
        run_batch(reading_all_columns(plan, LEAVES), tables),
        context,
        plan.schema.names,
    )


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(plans())
def test_it_ends_and_there_is_nothing_left_to_do(plan: Node) -> None:
    once = optimize(plan).plan
    assert once.schema == plan.schema
    assert event_times(plan).keys() <= event_times(once).keys()
    assert optimize(once).plan == once


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(plans(), st.sampled_from(sorted(RULES)))
def test_a_rule_that_is_turned_off_does_not_fire(plan: Node, name: str) -> None:
    trace = optimize(plan, disabled=frozenset({name})).trace
    assert name not in {step.rule for step in trace.steps}


def test_an_unknown_rule_cannot_be_turned_off() -> None:
    with pytest.raises(Exception, match="no rule is named push_filters"):
        optimize(STREAMS[0], disabled=frozenset({"push_filters"}))
