"""The table of decisions: what it names exists, and each can be turned off by its name."""

from __future__ import annotations

from dataclasses import fields

import pytest

from headrace.compiler.planning import plan_all
from headrace.engine.policy import planner_policy
from headrace.errors import SettingError
from headrace.merge import MergeStrategy
from headrace.optimizer import JOIN_RULES, RULES, optimize
from headrace.optimizer.windows.layout import Sharing
from headrace.plan.nodes import OutputMode, Sink
from headrace.planner import DECISIONS
from headrace.planner.live_query import LiveQuery
from headrace.planner.names import DECISION_NAMES
from headrace.planner.policy import PlannerPolicy
from headrace.planner.shared_rows import pays_to_share
from headrace.planner.statistics import RuntimeStatistics
from headrace.settings import SETTINGS, read_settings
from headrace.sql import plan_query
from tests.sql.catalog import CATALOG


def without(*names: str) -> PlannerPolicy:
    """What is asked of the planner where these are turned off."""
    key = "spark.headrace.optimizer.disabledRules"
    return planner_policy(read_settings({key: ", ".join(names)}))


def test_decisions_are_named_once_and_in_their_order() -> None:
    assert tuple(decision.name for decision in DECISIONS) == DECISION_NAMES
    assert len(set(DECISION_NAMES)) == len(DECISION_NAMES)


@pytest.mark.parametrize("decision", DECISIONS, ids=DECISION_NAMES)
def test_what_a_decision_reads_and_is_set_by_exists(decision) -> None:  # type: ignore[no-untyped-def]
    known = {field.name for field in fields(RuntimeStatistics)}
    assert set(decision.reads) <= known
    assert set(decision.settings) <= {setting.key for setting in SETTINGS}
    assert callable(decision.decide)


#: Rules that are part of what a query means: which late rows count depends on them.
ALWAYS = [name for name, rule in RULES.items() if rule.always]


@pytest.mark.parametrize(
    "name", [name for name in (*RULES, *JOIN_RULES, *DECISION_NAMES) if name not in ALWAYS]
)
def test_everything_can_be_turned_off_by_name(name: str) -> None:
    assert name in without(name).disabled


@pytest.mark.parametrize("name", ALWAYS)
def test_what_decides_the_meaning_cannot_be_turned_off(name: str) -> None:
    with pytest.raises(SettingError, match="INVALID_SETTING"):
        without(name)


def test_a_name_that_nothing_has_is_refused_with_what_was_meant() -> None:
    with pytest.raises(SettingError, match="'join_ordr' may be 'join_order'"):
        without("join_ordr")


def test_what_is_turned_off_is_left_as_it_is_written() -> None:
    assert without("merging").merge_strategy is MergeStrategy.NONE
    assert without("pane_layout").window_sharing is Sharing.NONE
    assert not without("filter_sharing").shares_filters
    assert not without("join_order").reorder_joins
    assert without("probe_order").probe_strategy == "fixed_order"
    assert without("join_order").probe_strategy == "fixed_order"
    assert not pays_to_share(100, 10**9, without("shared_rows"))
    assert pays_to_share(2, 200_000, PlannerPolicy())
    assert not pays_to_share(2, 199_999, PlannerPolicy())


def test_an_aggregate_is_late_where_early_aggregation_is_turned_off() -> None:
    sql = (
        "SELECT b.auction, count(*) AS n FROM bids b JOIN clicks c ON b.auction = c.auction "
        "AND window(b.ts, '1 minute') = window(c.ts, '1 minute') "
        "GROUP BY b.auction, window(b.ts, '1 minute')"
    )
    policy = without("early_aggregation")
    for disabled, choices in ((frozenset[str](), 1), (policy.disabled, 0)):
        plan = optimize(plan_query(sql, CATALOG).plan, disabled).plan
        query = LiveQuery(Sink(plan, "q", "memory", OutputMode.APPEND), None)
        assert len(plan_all([query]).early_choices) == choices
