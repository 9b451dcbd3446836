"""Layouts of panes that did not keep their promise are left for the written one."""

from __future__ import annotations

import pytest

from headrace.optimizer import optimize
from headrace.optimizer.windows.layout import CostModel, PaneLayout
from headrace.plan.nodes import Node
from headrace.plan.windows import tumbling
from headrace.planner.choices import Choices
from headrace.planner.pane_layout import Generation, PanePlan, plan_pane_layouts
from headrace.planner.policy import PlannerPolicy
from headrace.planner.statistics import RuntimeStatistics
from headrace.planner.stored_panes import learn_layouts
from headrace.sql import plan_query
from headrace.stats.load import (
    REMEMBERED,
    Load,
    SeenLength,
    SeenPanes,
    load_of_panes,
)
from tests.support.plans import BIDS

SECOND = 1_000
ROWS, SPAN = 1_000_000, 180 * SECOND
#: Pairs of windows of which each pair shares a pane.
SHARED = PaneLayout.of(
    {tumbling(w * SECOND): tumbling(p * SECOND) for w, p in ((2, 1), (3, 1), (60, 30), (90, 30))}
)
OWN = PaneLayout.of({tumbling(w * SECOND): tumbling(w * SECOND) for w in (2, 3, 60, 90)})
#: Of hundred keys there are few groups in panes of any length.
USUAL = Load(
    ROWS,
    SPAN,
    100,
    tuple(SeenLength(s * SECOND, 100 * SPAN / (s * SECOND) / ROWS) for s in (1, 2, 3, 60, 90)),
)


def plan() -> Node:
    windows = ", ".join(f"window(ts, '{s} seconds')" for s in (2, 3, 60, 90))
    sql = f"SELECT COUNT(*) AS n FROM bids GROUP BY auction, windows({windows})"
    return optimize(plan_query(sql, {"bids": BIDS}).plan).plan


def running(node: Node) -> tuple[str, PanePlan]:
    first, _ = plan_pane_layouts([node], PanePlan(), {}, PlannerPolicy())
    (family,) = first.generations
    return family, PanePlan({family: (Generation(1, SHARED),)})


def came(groups_of_thirty: float) -> Load:
    load = load_of_panes(
        [
            SeenPanes(SECOND, ROWS, 100 * 180, SPAN),
            SeenPanes(30 * SECOND, ROWS, groups_of_thirty, SPAN),
        ]
    )
    assert load is not None
    return load


def test_a_layout_that_takes_more_than_the_written_one_is_left() -> None:
    node = plan()
    family, panes = running(node)
    statistics, choices, policy = RuntimeStatistics(), Choices(), PlannerPolicy()
    statistics.loads[family] = USUAL
    choices.laid_out_for[family] = USUAL
    # Nothing to be told of an epoch like the others.
    assert not learn_layouts(panes.running, {family: came(600)}, statistics, choices, policy)
    stays, changes = plan_pane_layouts(
        [node], panes, statistics.loads, PlannerPolicy(least_gain=1.0), statistics.regrets
    )
    assert stays.generations[family][-1].layout == SHARED
    assert not changes
    # As many keys in a second and in a minute as ever, and yet each row of half a minute is a
    # group: no count of keys has told so.
    statistics.loads[family] = USUAL
    assert learn_layouts(panes.running, {family: came(ROWS)}, statistics, choices, policy)
    left, (change,) = plan_pane_layouts(
        [node], panes, statistics.loads, PlannerPolicy(least_gain=1.0), statistics.regrets
    )
    assert left.generations[family][-1].layout != SHARED
    assert left.generations[family][-1].number == 2
    assert "times the work that was predicted, and" in change.text
    assert change.text.startswith(f"{family}: panes of 1 second, 30 seconds -> ")
    # It outlasts a restart, and the same figures do not bring it back.
    again = RuntimeStatistics.from_json(statistics.to_json())
    assert again.regrets == statistics.regrets
    assert again.loads == statistics.loads
    for _ in range(30):
        back, changes = plan_pane_layouts([node], left, {family: USUAL}, policy, again.regrets)
        assert back.generations[family][-1].layout != SHARED
        panes = back
        learn_layouts(panes.running, {family: USUAL}, again, choices, policy)


def test_published_models_are_left_as_they_are() -> None:
    node = plan()
    family, panes = running(node)
    statistics, policy = RuntimeStatistics(), PlannerPolicy(window_cost_model=CostModel.PAPER)
    statistics.loads[family] = USUAL
    assert not learn_layouts(panes.running, {family: came(ROWS)}, statistics, Choices(), policy)
    assert statistics.regrets.known == {}


def test_the_written_layout_is_never_regretted() -> None:
    node = plan()
    family, panes = running(node)
    panes = PanePlan({family: (Generation(1, OWN),)})
    statistics = RuntimeStatistics()
    statistics.loads[family] = USUAL
    learn_layouts(panes.running, {family: came(ROWS)}, statistics, Choices(), PlannerPolicy())
    assert statistics.regrets.known == {}


def test_an_epoch_that_is_unlike_the_others_begins_a_new_past() -> None:
    few, many = Load(10_000, SPAN, 10), Load(10_000, SPAN, 5_000)
    few, many = (
        Load(ROWS, SPAN, load.keys, (SeenLength(SECOND, load.stored(SECOND) / load.rows),))
        for load in (few, many)
    )
    statistics = RuntimeStatistics()
    assert not statistics.note_load("s", few)
    assert not statistics.note_load("s", few)
    assert statistics.note_load("s", many)
    assert statistics.loads["s"] == many
    # Whoever goes to and fro is smoothed,
    assert not statistics.note_load("s", few)
    assert statistics.loads["s"].keys == pytest.approx((10 + 5_000) / 2)
    # until two epochs agree.
    assert statistics.note_load("s", few)
    assert statistics.loads["s"] == few


def test_what_was_seen_of_a_length_is_forgotten_at_last() -> None:
    load = USUAL
    fresh = came(600)
    for _ in range(REMEMBERED):
        load = load.then(fresh)
    assert [one.length for one in load.seen] == [SECOND, 30 * SECOND]


def test_lengths_between_those_that_were_seen() -> None:
    """Keys that stay for ten seconds: a second and a minute are known."""
    load = Load(ROWS, SPAN, 100, (SeenLength(SECOND, 0.018), SeenLength(60 * SECOND, 0.003)))
    assert load.stored(SECOND) == pytest.approx(18_000)
    assert load.stored(60 * SECOND) == pytest.approx(3_000)
    assert 100 < load.groups(10 * SECOND) < load.groups(60 * SECOND)
    assert load.groups(60 * SECOND) == pytest.approx(1_000, rel=0.01)
    # There are no more groups than rows.
    assert Load(10, SPAN, 100, (SeenLength(SECOND, 1.0),)).stored(10 * SPAN) <= 10
