"""Rows that came out of joins: what is made of them, and what orders are held to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import pytest

from headrace.cost.join_load import JoinLoad
from headrace.cost.join_sizes import mask_of
from headrace.engine.execution.duckdb.join_profile import (
    begin_counting,
    end_counting,
    joined_rows,
    rows_of_steps,
)
from headrace.optimizer.joins.describe import DescribedJoin, describe_joins
from headrace.optimizer.joins.search import join_cost
from headrace.plan.join_graph import join_graph, topmost_joins
from headrace.plan.json import plan_hash
from headrace.plan.nodes import Order, Source
from headrace.plan.types import BIGINT, TIMESTAMP, Schema
from headrace.planner.choices import Choices
from headrace.planner.join_order import InputCardinality, choose_join_orders
from headrace.planner.joined_rows import JoinRun, learn_joins
from headrace.planner.policy import PlannerPolicy
from headrace.planner.statistics import Match, RuntimeStatistics
from headrace.sql import plan_query

ROWS = Schema.of((("k", BIGINT), ("ts", TIMESTAMP)))
SQL = (
    "SELECT a.k FROM a "
    "JOIN b ON a.k = b.k AND window(a.ts, '1 minutes') = window(b.ts, '1 minutes') "
    "JOIN c ON a.k = c.k AND window(a.ts, '1 minutes') = window(c.ts, '1 minutes')"
)
PLAN = plan_query(SQL, {name: Source(name, ROWS, "ts", 0) for name in "abc"}).plan
JOIN = next(topmost_joins(PLAN))
GRAPH, HASH = join_graph(JOIN), plan_hash(JOIN)
HOUR = 3_600_000.0
AB, AC, BC, ALL = (frozenset(inputs) for inputs in ((0, 1), (0, 2), (1, 2), (0, 1, 2)))
#: A row a second of each, and a hundred keys: in an hour 2,160 pairs, and 1,296 triples.
LOAD = JoinLoad((0.001,) * 3, {(index, 0): 100.0 for index in range(3)}, HOUR)


def run(order: Order, found: dict[frozenset[int], int], load: JoinLoad = LOAD) -> JoinRun:
    return JoinRun(HASH, GRAPH, None, order, GRAPH.written, load, True, found)


# --- What is seen --------------------------------------------------------------------------------


def test_rows_of_steps_are_those_that_duckdb_counts() -> None:
    """Ten rows of each of five keys on either side: 500 pairs, each with one partner."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE one AS SELECT range % 5 AS k, range AS v FROM range(50)")
    begin_counting(connection)
    connection.execute(f"CREATE TABLE joined AS {two_steps('v // 5 * 5 + k')}")
    found = joined_rows(connection)
    connection.execute("SELECT count(*) FROM joined").fetchall()
    assert joined_rows(connection) == {}
    # Where it is all of plain columns, DuckDB joins in an order of its own.
    connection.execute(f"CREATE OR REPLACE TABLE joined AS {two_steps('v')}")
    moved = joined_rows(connection)
    end_counting(connection)
    assert found == {("j3", (0, 1)): 500, ("j3", (0, 1, 2)): 500}
    assert moved == {}


def two_steps(key: str) -> str:
    """Rows joined with themselves, and then with single rows of them by the key."""
    sides = ", ".join(
        f"(SELECT *, k AS __{side}_j3_0_1 FROM one) AS {side[0]}" for side in ("left", "right")
    )
    pairs = f"SELECT l.v, l.k FROM {sides} WHERE __left_j3_0_1 = __right_j3_0_1"
    return (
        f"SELECT l.v, r.w FROM (SELECT *, {key} AS __left_j3_0_1_2 FROM ({pairs})) AS l "
        "JOIN (SELECT v AS w, v AS __right_j3_0_1_2 FROM one) AS r "
        "ON __left_j3_0_1_2 = __right_j3_0_1_2"
    )


def joining(step: str, rows: int, *children: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "HASH_JOIN",
        "intermediate_rows": rows,
        "extra_info": {"Join Type": "INNER", "Conditions": f"__left_{step} = __right_{step}"},
        "children": list(children),
    }


def test_steps_of_other_joins_are_told_apart_and_moved_ones_left_out() -> None:
    profile = {
        "operator": [
            joining("j0_0_1_2", 7, joining("j0_0_1", 5), joining("j1_3_4", 6)),
            joining("j2_0_1", 9, joining("j2_0_1_2", 8)),
            joining("j1_3_4", 10),
        ]
    }
    assert rows_of_steps(profile) == {
        ("j0", (0, 1, 2)): 7,
        ("j0", (0, 1)): 5,
        ("j1", (3, 4)): 16,
    }


# --- What is made of it --------------------------------------------------------------------------


def test_a_share_holds_for_epochs_of_more_rows() -> None:
    statistics = RuntimeStatistics(joins={HASH: LOAD})
    learn_joins([run(((0, 1), 2), {AB: 4_320, ALL: 100})], 1, statistics, Choices())
    shares = {step: match.share for step, match in statistics.matches[HASH].items()}
    # A row meets 60 of another: 216,000 pairs, of which one in fifty came out.
    assert shares[AB] == pytest.approx(0.02)
    assert statistics.joins[HASH].seen[AB] * HOUR == pytest.approx(4_320)
    keys = dict.fromkeys(LOAD.keys)
    twice = InputCardinality((7_200,) * 3, (0,) * 3, keys, HOUR, {}, shares).completed(GRAPH)
    costs = join_cost(GRAPH, twice.load())
    assert costs.rows(mask_of(AB)) * HOUR == pytest.approx(4 * 4_320)
    assert costs.rows(mask_of(ALL)) * HOUR == pytest.approx(8 * 100)


def test_what_was_seen_of_other_steps_ends_with_a_change_of_the_data() -> None:
    statistics, choices = RuntimeStatistics(joins={HASH: LOAD}), Choices()
    learn_joins([run(((0, 2), 1), {AC: 2_160, ALL: 1_296})], 1, statistics, choices)
    learn_joins([run(((0, 1), 2), {AB: 2_200, ALL: 1_300})], 2, statistics, choices)
    assert statistics.matches[HASH].keys() == {AB, AC, ALL}
    assert not choices.surprised
    learn_joins([run(((0, 1), 2), {AB: 9_000, ALL: 1_300})], 3, statistics, choices)
    assert statistics.matches[HASH].keys() == {AB, ALL}
    assert choices.surprised == {HASH}


def test_what_is_seen_is_forgotten_when_it_is_old() -> None:
    statistics = RuntimeStatistics(matches={HASH: {AC: Match(0.5, 1), BC: Match(0.5, 10)}})
    learn_joins([run(((0, 1), 2), {AB: 2_160, ALL: 1_296})], 20, statistics, Choices())
    assert statistics.matches[HASH].keys() == {AB, BC, ALL}


def test_few_rows_are_no_surprise() -> None:
    few = replace(LOAD, stretch=10_000.0)
    statistics, choices = RuntimeStatistics(), Choices()
    # Six pairs are estimated.
    learn_joins([run(((0, 1), 2), {AB: 13, ALL: 0}, few)], 1, statistics, choices)
    assert not choices.surprised
    assert statistics.matches[HASH][ALL].share > 0


def test_statistics_of_joins_survive_a_restart() -> None:
    load = replace(LOAD, frequent={(0, 0): {"7": 0.25}}, seen={AB: 0.5})
    statistics = RuntimeStatistics(
        joins={HASH: load},
        matches={HASH: {AB: Match(0.02, 3)}},
        frequent={("rows-a", "k"): {"7": 0.25}},
    )
    assert RuntimeStatistics.from_json(statistics.to_json()) == statistics
    older = statistics.to_json()
    for later in ("matches", "frequent", "regrets"):
        del older[later]
    for name in ("shares", "frequent", "seen"):
        del older["joins"][HASH][name]
    assert RuntimeStatistics.from_json(older) == RuntimeStatistics(joins={HASH: LOAD})


def test_frequent_values_are_those_above_the_usual() -> None:
    statistics = RuntimeStatistics(keys={("s", "k"): 50.0})
    counted = [("1", 30), ("2", 300), ("3", 45), ("2", 100), ("4", 21)]
    statistics.note_frequent("s", "k", counted, 1_000)
    # The usual value has 20 rows; parts of "2" are added up.
    assert statistics.frequent["s", "k"] == {"2": 0.4, "3": 0.045}


# --- What orders are held to ---------------------------------------------------------------------


def plan_epoch(statistics: RuntimeStatistics, choices: Choices, rows: int = 36_000) -> Order:
    """The order of an epoch in which c has few rows, so that it should come first."""
    keys: dict[tuple[int, int], float | None] = {(index, 0): 100.0 for index in range(3)}
    shares = {step: match.share for step, match in statistics.matches.get(HASH, {}).items()}
    counted = InputCardinality((rows, rows, 360), (0, 0, 0), keys, HOUR, {}, shares)
    passes = choose_join_orders(
        GRAPH,
        HASH,
        None,
        counted.completed(GRAPH),
        PlannerPolicy(join_passes="whole"),
        statistics,
        choices,
    )
    assert passes.whole is not None
    return passes.whole.order


def test_an_order_that_breaks_its_promise_is_left_until_things_have_changed() -> None:
    statistics, choices = RuntimeStatistics(), Choices()
    order = plan_epoch(statistics, choices)
    assert order != GRAPH.written
    first = next(step for step in (AC, BC) if step != AB and step == frozenset(_first(order)))
    # Ten million came out instead of two thousand; and as many results as were expected.
    ran = run(order, {first: 10_000_000, ALL: 13_000}, statistics.joins[HASH])
    choices.take_changes()
    learn_joins([ran], 1, statistics, choices)
    (told,) = choices.changes
    assert "(a ⋈ b) ⋈ c (was" in told
    assert "times the work that was predicted" in told
    # What was seen is forgotten, as if it were old; the lesson is not, and the written order takes
    # just what is predicted.
    for epoch in range(2, 10):
        statistics.matches.clear()
        assert plan_epoch(statistics, choices) == GRAPH.written
        written = run(GRAPH.written, {AB: 216_000, ALL: 12_960}, statistics.joins[HASH])
        learn_joins([written], epoch, statistics, choices)
    # With twenty times the rows of a and b, the written order is another matter.
    assert plan_epoch(statistics, choices, 720_000) != GRAPH.written


def _first(order: Order) -> tuple[int, ...]:
    while not isinstance(order, int):
        pair = order
        order = pair[0] if not isinstance(pair[0], int) else pair[1]
    return tuple(side for side in pair if isinstance(side, int))


def test_many_results_are_no_orders_fault() -> None:
    statistics, choices = RuntimeStatistics(), Choices()
    order = plan_epoch(statistics, choices)
    choices.take_changes()
    first = frozenset(_first(order))
    found = {first: 2_160, ALL: 5_000_000}
    learn_joins([run(order, found, statistics.joins[HASH])], 1, statistics, choices)
    assert not choices.changes
    assert not statistics.regrets.known


# --- What is told --------------------------------------------------------------------------------


def test_seen_rows_are_told_beside_estimated_ones() -> None:
    load = replace(LOAD, seen={AB: 5_000 / HOUR})
    (told,) = describe_joins(PLAN, {HASH: load}, {HASH: ((0, 1), 2)}, frozenset(), True)
    assert isinstance(told, DescribedJoin)
    assert "gives ~2,160 rows per hour; seen: ~5,000 rows per hour" in told.text
    one, other = told.to_json()["joins"]
    assert (one["rows"]["value"], one["seen"]["value"]) == pytest.approx((2_160, 5_000))
    # The whole is put right by what was seen of its part.
    assert other["rows"]["value"] == pytest.approx(1_296 * 5_000 / 2_160)
    assert other["seen"]["value"] is None
