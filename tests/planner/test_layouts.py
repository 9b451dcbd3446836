"""Layouts of panes: who shares with whom, when a layout changes, and that it survives a restart."""

from __future__ import annotations

import json

from headrace.compiler.planning import PlanState, plan_all
from headrace.operators.panes.pane_store import PaneStore
from headrace.optimizer import optimize
from headrace.optimizer.windows.layout import CostModel, PaneLayout, Sharing, layouts
from headrace.plan.nodes import Aggregate, Node, OutputMode, Sink
from headrace.plan.windows import Hopping, tumbling
from headrace.planner.decision import PlannedQuery
from headrace.planner.grouping import Grouping
from headrace.planner.live_query import LiveQuery
from headrace.planner.pane_layout import (
    Generation,
    PanePlan,
    describe,
    forced_sharings,
    plan_pane_layouts,
)
from headrace.planner.policy import PlannerPolicy
from headrace.sql import plan_query
from headrace.stats.load import Load, observed_load
from tests.support.plans import BIDS

MINUTE = 60_000
#: A thousand rows a second of 200 keys, a million rows an epoch.
DENSE = Load(1_000_000, 1_000_000, 200)
#: The same rows of so many keys that a second has hardly two of the same.
SPARSE = Load(1_000_000, 1_000_000, 1_000_000)


def plan(sql: str) -> Node:
    return optimize(plan_query(sql, {"bids": BIDS}).plan).plan


def counts(*minutes: int, keys: str = "auction", what: str = "COUNT(*)", where: str = "") -> Node:
    windows = ", ".join(f"window(ts, '{m} minutes')" for m in minutes)
    if len(minutes) > 1:
        windows = f"windows({windows})"
    grouping = f"{keys}, {windows}" if keys else windows
    return plan(f"SELECT {what} AS x FROM bids {where} GROUP BY {grouping}")


def aggregate(node: Node) -> Aggregate:
    return next(n for n in node.walk() if isinstance(n, Aggregate))


def minutes(plan: PanePlan) -> list[list[int]]:
    """The stored panes of each grouping's present layout."""
    return [
        [pane.length // MINUTE for pane in generations[-1].layout.panes]
        for generations in plan.generations.values()
    ]


def active_stores(*plans: Node, panes: PanePlan | None = None) -> list[str]:
    queries = [
        LiveQuery(Sink(p, f"q{i}", "memory", OutputMode.APPEND), None) for i, p in enumerate(plans)
    ]
    state = PlanState() if panes is None else PlanState(panes, settled=True)
    stores = plan_all(queries, state).stores
    return [s.name for s in stores if isinstance(s, PaneStore) and s.active]


def test_windows_of_one_query_share_their_common_pane() -> None:
    decided, changes = plan_pane_layouts([counts(20, 30, 40)], PanePlan(), {}, PlannerPolicy())
    assert minutes(decided) == [[10]]
    assert not changes


def test_queries_share_whatever_columns_they_aggregate() -> None:
    one, two = counts(20), counts(30, what="SUM(price)")
    assert Grouping.of(aggregate(one)).family == Grouping.of(aggregate(two)).family
    decided, _ = plan_pane_layouts([one, two], PanePlan(), {}, PlannerPolicy())
    assert minutes(decided) == [[10]]
    assert len(active_stores(one, two, panes=decided)) == 1


def test_another_filter_or_key_is_another_grouping() -> None:
    plain = counts(20)
    filtered = counts(20, where="WHERE price > 3")
    other = counts(20, keys="bidder")
    families = {Grouping.of(aggregate(p)).family for p in (plain, filtered, other)}
    assert len(families) == 3


def test_a_coarser_grouping_takes_the_panes_of_a_finer_one() -> None:
    finer, coarser, total = counts(20, keys="auction, bidder"), counts(30), counts(40, keys="")
    decided, _ = plan_pane_layouts([total, coarser, finer], PanePlan(), {}, PlannerPolicy())
    assert len(decided.hosts) == 2
    assert minutes(decided) == [[10]]
    assert len(active_stores(total, coarser, finer, panes=decided)) == 1


def test_the_order_of_keys_makes_no_other_grouping() -> None:
    one, two = counts(20, keys="auction, bidder"), counts(30, keys="bidder, auction")
    decided, _ = plan_pane_layouts([one, two], PanePlan(), {}, PlannerPolicy())
    assert len(active_stores(one, two, panes=decided)) == 1


def test_explain_tells_of_the_panes_that_others_made_necessary() -> None:
    mine, other = counts(20), counts(30, keys="auction, bidder")
    decided, _ = plan_pane_layouts([other, mine], PanePlan(), {}, PlannerPolicy())
    (windows,) = describe(PlannedQuery(mine, mine, decided))
    assert windows.title == "auction of bids, from panes by auction, bidder"
    assert windows.graph.factors == (tumbling(10 * MINUTE),)


def test_a_grouping_keeps_its_host_when_the_finer_query_leaves() -> None:
    finer, coarser = counts(20, keys="auction, bidder"), counts(30)
    both, _ = plan_pane_layouts([finer, coarser], PanePlan(), {}, PlannerPolicy())
    alone, changes = plan_pane_layouts([coarser], both, {}, PlannerPolicy())
    assert alone.hosts == both.hosts
    assert not changes
    # The host's other key is still read, or its panes could not be made.
    queries = [LiveQuery(Sink(coarser, "q", "memory", OutputMode.APPEND), None)]
    assert "bidder" in plan_all(queries, PlanState(alone, settled=True)).sources["bids"].schema


def test_a_grouping_that_has_panes_of_its_own_takes_no_host() -> None:
    finer, coarser = counts(20, keys="auction, bidder"), counts(30)
    first, _ = plan_pane_layouts([coarser], PanePlan(), {}, PlannerPolicy())
    both, _ = plan_pane_layouts([finer, coarser], first, {}, PlannerPolicy())
    assert not both.hosts


def test_a_host_that_saves_nothing_is_none() -> None:
    finer, coarser = counts(20, keys="auction, bidder"), counts(30)
    first, _ = plan_pane_layouts([finer], PanePlan(), {}, PlannerPolicy())
    (family,) = first.generations
    sparse = Load(1_000_000, 1_000_000, 10_000_000)
    both, _ = plan_pane_layouts([finer, coarser], first, {family: sparse}, PlannerPolicy())
    assert not both.hosts


def test_a_window_that_needs_another_pane_begins_a_generation() -> None:
    first, _ = plan_pane_layouts([counts(20)], PanePlan(), {}, PlannerPolicy())
    second, changes = plan_pane_layouts([counts(20), counts(30)], first, {}, PlannerPolicy())
    (generations,) = second.generations.values()
    assert [g.number for g in generations] == [1, 2]
    assert "windows that need it" in changes[0].text
    # The window that was open reads both; the new one only knows the second.
    stored = [set(g.layout.pane_of) for g in generations]
    assert stored == [{tumbling(20 * MINUTE)}, {tumbling(20 * MINUTE), tumbling(30 * MINUTE)}]


def test_a_window_that_fits_the_panes_changes_nothing() -> None:
    first, _ = plan_pane_layouts([counts(20, 30)], PanePlan(), {}, PlannerPolicy())
    second, changes = plan_pane_layouts([counts(20, 30), counts(50)], first, {}, PlannerPolicy())
    assert not changes
    assert minutes(second) == [[10]]


def test_a_layout_changes_only_for_a_gain() -> None:
    """Windows of 60 and 61 seconds: a common pane of a second pays if it holds many rows each."""
    node = plan(
        "SELECT COUNT(*) AS n FROM bids GROUP BY auction, "
        "windows(window(ts, '60 seconds'), window(ts, '61 seconds'))"
    )
    first, _ = plan_pane_layouts([node], PanePlan(), {}, PlannerPolicy())
    (family,) = first.generations
    (generation,) = first.generations[family]
    assert [p.length for p in generation.layout.panes] == [1_000]
    few_rows_each = Load(1_000_000, 1_000_000, 1_000)
    kept, _ = plan_pane_layouts(
        [node], first, {family: few_rows_each}, PlannerPolicy(least_gain=0.99)
    )
    assert len(kept.generations[family]) == 1
    changed, changes = plan_pane_layouts([node], first, {family: few_rows_each}, PlannerPolicy())
    assert [p.length for p in changed.generations[family][-1].layout.panes] == [60_000, 61_000]
    assert "expected to save" in changes[0].text


def test_a_plan_survives_json() -> None:
    decided, _ = plan_pane_layouts(
        [counts(20, keys="auction, bidder"), counts(30)], PanePlan(), {}, PlannerPolicy()
    )
    again = PanePlan.from_json(json.loads(json.dumps(decided.to_json())))
    assert again == decided
    layout = PaneLayout.of({Hopping(20, 10, 5): Hopping(5, 5)})
    assert Generation.from_json(Generation(3, layout).to_json()) == Generation(3, layout)


def test_sharing_can_be_limited() -> None:
    windows = [tumbling(m * MINUTE) for m in (20, 30, 40)]

    def panes(sharing: Sharing, model: CostModel = CostModel.ENGINE) -> list[int]:
        best = layouts(windows, None, sharing, model)[0].layout
        return [pane.length // MINUTE for pane in best.panes]

    assert panes(Sharing.NONE) == [20, 30, 40]
    assert panes(Sharing.WINDOWS) == [20, 30]
    assert panes(Sharing.FACTORS) == [10]
    assert panes(Sharing.FACTORS, CostModel.PAPER) == [10]


def test_with_many_keys_windows_are_not_forced_together() -> None:
    windows = [Hopping(s * 1_000, s * 1_000) for s in (60, 61)]
    dense, sparse = layouts(windows, DENSE)[0], layouts(windows, Load(10**6, 10**6, 1_000))[0]
    assert len(dense.layout.panes) == 1
    assert len(sparse.layout.panes) == 2


def test_the_plan_of_twenty_windows_is_found_in_time() -> None:
    """Counted in steps elsewhere; here only that nothing explodes."""
    windows = [tumbling(s * 1_000) for s in range(40, 440, 20)]
    assert layouts(windows, SPARSE)[0].cost.known


def test_alternatives_name_each_way_to_share() -> None:
    forced = forced_sharings(counts(20, 30, 40), {})
    assert [f.sharing for f in forced] == [Sharing.FACTORS, Sharing.WINDOWS, Sharing.NONE]
    assert aggregate(forced[-1].plan).sharing == "none"
    assert forced_sharings(counts(20), {}) == []


def test_keys_are_told_from_groups() -> None:
    load = observed_load(rows=10_000, groups=1_987, milliseconds=10_000, pane=1_000)
    assert load is not None
    assert 190 < load.keys < 210
    assert observed_load(0, 0, 1_000, 1_000) is None
