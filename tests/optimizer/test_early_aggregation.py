"""Early aggregation: the paper's rules and equations, what declines and why, and choices."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.cost.early_aggregation import (
    EarlyModel,
    SetFigures,
    StreamFigures,
    Tuning,
    choices,
    plan_name,
    published_cost,
)
from headrace.errors import PlanError
from headrace.optimizer import optimize
from headrace.optimizer.early.sets import early_sets
from headrace.optimizer.early.shape import (
    AggregationJoin,
    Declined,
    aggregation_join,
    forced_inputs,
)
from headrace.plan.nodes import Aggregate, Source, Table
from headrace.plan.types import BIGINT, DOUBLE, STRING, TIMESTAMP, Schema
from headrace.planner.choices import Choices
from headrace.planner.early_aggregation import (
    SetLoads,
    choose_early_inputs,
    plan_costs,
)
from headrace.planner.policy import PlannerPolicy
from headrace.sql import plan_query
from headrace.stats.load import Load

COLUMNS = [("g", STRING), ("j", BIGINT), ("a", BIGINT), ("d", DOUBLE), ("ts", TIMESTAMP)]
CATALOG: dict[str, Source | Table] = {
    name: Source(name, Schema.of(COLUMNS), "ts") for name in ("s1", "s2", "s3", "s4")
}
CATALOG |= {f"t{i}": Source(f"t{i}", Schema.of(COLUMNS), "ts") for i in range(8)}
CATALOG["p"] = Table("p", Schema.of([("j", BIGINT), ("state", STRING)]))
CATALOG["now"] = Source(
    "now",
    Schema.of([("j", BIGINT), ("processing_time", TIMESTAMP)]),
    "processing_time",
    processing=True,
)
W = "window({}.ts, '10 seconds')"
PAIR = f"s1 JOIN s2 ON s1.j = s2.j AND {W.format('s1')} = {W.format('s2')}"
OVER = f"{W.format('s1')}"


def node_of(sql: str) -> Aggregate:
    plan = optimize(plan_query(sql, CATALOG).plan, frozenset({"early_aggregation"})).plan
    return next(n for n in plan.walk() if isinstance(n, Aggregate))


def shape_of(sql: str) -> AggregationJoin:
    found = aggregation_join(node_of(sql))
    assert isinstance(found, AggregationJoin), found
    return found


def sets_of(sql: str) -> list[tuple[list[str], list[str], bool]]:
    return [
        ([str(g.expr) for g in s.groups], [str(c) for _, c in s.measures], s.counts)
        for s in early_sets(shape_of(sql)).inputs
    ]


# --- Rules 1 and 2 -------------------------------------------------------------------------------


def test_grouping_and_aggregation_attributes_on_one_side() -> None:
    """Figure 3: S1 has both, so S2 is only counted, and nobody needs the number of S1's rows."""
    one, other = sets_of(f"SELECT s1.g, sum(s1.a) FROM {PAIR} GROUP BY s1.g, {OVER}")
    assert one == (["g", "j"], ["sum(a)"], False)
    assert other == (["j"], [], True)


def test_grouping_on_one_side_and_aggregation_on_the_other() -> None:
    one, other = sets_of(f"SELECT s1.g, max(s2.a), avg(s2.d) FROM {PAIR} GROUP BY s1.g, {OVER}")
    assert one == (["g", "j"], [], True)
    assert other == (["j"], ["max(a)", "avg(d)"], False)


def test_both_sides_have_both() -> None:
    """Figure 4: the general case."""
    one, other = sets_of(
        f"SELECT s1.g, s2.g AS h, sum(s1.a) AS x, sum(s2.a) AS y FROM {PAIR} "
        f"GROUP BY s1.g, s2.g, {OVER}"
    )
    assert one == (["g", "j"], ["sum(a)"], True)
    assert other == (["g", "j"], ["sum(a)"], True)


def test_extremes_of_the_other_side_need_no_count() -> None:
    one, other = sets_of(f"SELECT min(s1.a), max(s2.a) FROM {PAIR} GROUP BY {OVER}")
    assert one == (["j"], ["min(a)"], False)
    assert other == (["j"], ["max(a)"], False)


def test_a_count_of_pairs_needs_all_counts() -> None:
    one, other = sets_of(f"SELECT count(*) FROM {PAIR} GROUP BY {OVER}")
    assert one == (["j"], [], True)
    assert other == (["j"], [], True)


def test_a_grouping_expression_is_one_attribute_and_conditions_are_attributes() -> None:
    one, other = sets_of(
        f"SELECT s1.a % 10, count(*) FROM {PAIR} WHERE s1.d < s2.d GROUP BY s1.a % 10, {OVER}"
    )
    assert one[0] == ["d", "j", "a % 10"]
    assert other[0] == ["d", "j"]


# --- what may fail for a row that meets nobody ---------------------------------------------------


def test_what_may_fail_is_computed_where_it_does_not() -> None:
    """Rows that are sound are one group, the others are told apart by what is computed of them."""
    one, other = sets_of(f"SELECT s1.g, sum(100 / s1.a) FROM {PAIR} GROUP BY s1.g, {OVER}")
    sound = "coalesce(a <> 0L, TRUE)"
    assert one[0] == ["g", "j", sound, f"CASE WHEN {sound} THEN NULL ELSE a END"]
    assert one[1] == [f"sum(CASE WHEN {sound} THEN 100 / a END)"]
    assert one[2], "a row of an unsound group counts as often as there are such rows"
    assert other == (["j"], [], True)


def test_a_group_that_may_fail_is_computed_where_it_does_not() -> None:
    one, _ = sets_of(f"SELECT 10 % s1.a AS r, count(*) FROM {PAIR} GROUP BY 10 % s1.a, {OVER}")
    sound = "coalesce(a <> 0L, TRUE)"
    assert one[0] == [
        "j",
        f"CASE WHEN {sound} THEN 10 % a END",
        sound,
        f"CASE WHEN {sound} THEN NULL ELSE a END",
    ]


def test_columns_stay_where_nothing_tells_what_fails() -> None:
    """Of a text that is no number Spark's own cast fails, and nothing is known of it beforehand."""
    one, other = sets_of(f"SELECT sum(s1.g), max(s1.a) FROM {PAIR} GROUP BY {OVER}")
    assert one == (["g", "j"], ["max(a)"], True)
    assert other == (["j"], [], True)


def test_what_cannot_fail_is_left_alone() -> None:
    one, _ = sets_of(
        f"SELECT sum(s1.a), sum(s1.d / 2), min(s1.a % 7) FROM {PAIR} GROUP BY s1.a div 60, {OVER}"
    )
    assert one[0] == ["j", "a DIV 60"]
    assert one[1] == ["sum(a)", "sum(d / 2)", "min(a % 7)"]


# --- what declines -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT count(*) FROM s1 GROUP BY window(ts, '1 minute')", "no join"),
        (f"SELECT median(s1.a) FROM {PAIR} GROUP BY {OVER}", "joined rows themselves"),
        (
            f"SELECT count(*) FROM {PAIR.replace('JOIN', 'LEFT JOIN')} GROUP BY {OVER}",
            "outer join",
        ),
        (f"SELECT count(*) FROM {PAIR} GROUP BY session_window(s1.ts, '5 seconds')", "session"),
        (
            "SELECT count(*) FROM s1 JOIN s2 ON s1.j = s2.j AND s2.ts BETWEEN s1.ts AND s1.ts + "
            f"INTERVAL 5 SECONDS GROUP BY {OVER}",
            "to the millisecond",
        ),
        (
            f"SELECT count(*) FROM {PAIR.replace('s1.j = s2.j', 's1.g = s2.j')} GROUP BY {OVER}",
            "by itself",
        ),
        (
            f"SELECT sum(100 / s1.a) FROM {PAIR} GROUP BY window(s1.ts, '5 seconds', '20 seconds')",
            "in no window",
        ),
        (
            f"SELECT sum(CAST(s1.a AS DECIMAL(38, 0))) FROM {PAIR} GROUP BY {OVER}",
            "on the way to a total",
        ),
    ],
)
def test_what_declines_says_why(sql: str, reason: str) -> None:
    found = aggregation_join(node_of(sql))
    assert isinstance(found, Declined)
    assert reason in found.reason


def test_windows_of_each_input_need_no_early_aggregation() -> None:
    """There is no other way to compute these, so all of their inputs may decline."""
    shape = shape_of(
        "SELECT count(*) FROM s1 JOIN s2 ON s1.j = s2.g "
        "GROUP BY trailing(s1.ts, '1 minute'), landmark(s2.ts)"
    )
    assert not shape.eligible


def test_an_input_that_declines_cannot_be_forced() -> None:
    shape = shape_of(
        "SELECT count(*) FROM now JOIN s2 ON now.j = s2.j AND s2.ts BETWEEN "
        "now.processing_time - INTERVAL 5 SECONDS AND now.processing_time "
        "GROUP BY window(now.processing_time, '10 seconds')"
    )
    forced = aggregation_join(replace(shape.node, early="s2"))
    assert isinstance(forced, AggregationJoin)
    with pytest.raises(PlanError, match="s2 cannot be aggregated early"):
        forced_inputs(forced)


# --- aggregates over several inputs, and of different values -------------------------------------


def factors_of(sql: str) -> list[list[str]]:
    return [[str(call) for _, _, call in s.factors] for s in early_sets(shape_of(sql)).inputs]


def test_a_product_of_doubles_is_made_of_sums_and_extremes() -> None:
    sql = f"SELECT sum(s1.d * s2.d) FROM {PAIR} GROUP BY {OVER}"
    assert sets_of(sql) == [(["j"], [], False), (["j"], [], False)]
    assert factors_of(sql) == [["sum(d)", "min(d)", "max(d)"]] * 2


def test_a_sum_of_doubles_needs_counts_of_values_and_no_extremes() -> None:
    sql = f"SELECT sum(s1.d - s2.d + 1) FROM {PAIR} GROUP BY {OVER}"
    one, other = factors_of(sql)
    assert one == ["sum(d + CAST(1 AS double))", "count(d + CAST(1 AS double))"]
    assert other == ["sum(-d)", "count(-d)"]


def test_a_covariance_of_two_sides_is_made_of_spreads() -> None:
    sql = f"SELECT corr(s1.d, s2.a) FROM {PAIR} GROUP BY {OVER}"
    assert factors_of(sql) == [["var_pop(d)"], ["var_pop(CAST(a AS double))"]]


def test_an_input_without_a_factor_is_counted() -> None:
    three = f"{PAIR} JOIN s3 ON s1.j = s3.j AND {W.format('s1')} = {W.format('s3')}"
    sets = sets_of(f"SELECT sum(s1.d * s2.d) FROM {three} GROUP BY {OVER}")
    assert [counts for _, _, counts in sets] == [False, False, True]


def test_what_has_no_factors_tells_rows_apart() -> None:
    sql = f"SELECT min(s1.a - s2.a), sum(s1.d * s2.d - s1.d) FROM {PAIR} GROUP BY {OVER}"
    assert factors_of(sql) == [[], []]
    assert sets_of(sql) == [(["a", "d", "j"], [], True)] * 2


def test_different_values_are_grouped_by() -> None:
    shape = shape_of(
        f"SELECT s1.g, count(DISTINCT s2.a), sum(DISTINCT s2.a + 1), count(DISTINCT s1.g) "
        f"FROM {PAIR} GROUP BY s1.g, {OVER}"
    )
    assert [str(key.expr) for key in shape.keys] == ["s1.g", "s2.a", "s2.a + 1"]
    assert [str(named.expr) for named in shape.different] == [
        "count(DISTINCT __key1)",
        "sum(DISTINCT __key2)",
        "count(DISTINCT __key0)",
    ]


def test_an_interval_is_exact_where_rows_share_their_instants() -> None:
    shape = shape_of(
        "SELECT count(*) FROM now JOIN s2 ON now.j = s2.j AND s2.ts BETWEEN "
        "now.processing_time - INTERVAL 5 SECONDS AND now.processing_time "
        "GROUP BY window(now.processing_time, '10 seconds')"
    )
    assert shape.eligible == {0}


def test_panes_are_as_long_as_windows_and_conditions_allow() -> None:
    shape = shape_of(
        "SELECT count(*) FROM s1 JOIN s2 ON s1.j = s2.j AND window(s1.ts, '12 seconds') = "
        "window(s2.ts, '12 seconds') GROUP BY window(s1.ts, '20 seconds', '10 seconds')"
    )
    assert [pane and pane.length for pane in shape.panes] == [2_000, 12_000]


def test_tables_are_inputs() -> None:
    shape = shape_of(
        "SELECT p.state, count(*) FROM s1 JOIN p ON s1.j = p.j "
        "GROUP BY p.state, window(s1.ts, '10 seconds')"
    )
    assert [shape.is_table(index) for index in (0, 1)] == [False, True]
    assert shape.eligible == {0, 1}


# --- equations -----------------------------------------------------------------------------------

FIGURES = st.builds(
    StreamFigures,
    rate=st.floats(1, 1000),
    window=st.floats(10, 10_000),
    groups=st.floats(1, 20_000),
    selectivity=st.floats(0.0005, 0.5),
)
TUNING = Tuning(update=3e-6, probe=5e-6, group=7e-6)


def test_the_default_setting_by_equations_13_to_22() -> None:
    """λ 300, w 5000, g1 150, g2 1 and σ 0.1, with the hash tables of Figure 6."""
    derived = SetFigures(
        (StreamFigures(300, 5000, 150, 0.1), StreamFigures(300, 5000, 1, 0.1)), 1021
    )
    assert derived.output() == 150
    assert (derived.set_size(0), derived.set_size(1)) == (1500, 10)
    assert (derived.matches_in_window(0), derived.matches_in_window(1)) == (500, 500)
    assert (derived.matches_in_set(0), derived.matches_in_set(1)) == (150, 1)
    assert (derived.join_buckets(0), derived.group_buckets()) == (10, 150)


@settings(max_examples=60, deadline=None)
@given(FIGURES, FIGURES, st.booleans())
def test_two_streams_cost_what_equations_5_to_12_say(
    s1: StreamFigures, s2: StreamFigures, nested: bool
) -> None:
    d = SetFigures((s1, s2), 1021)
    u, p, g = TUNING.update, TUNING.probe, TUNING.group
    a, a1, a2 = d.output(), d.set_size(0), d.set_size(1)
    b1, b2, bg = d.join_buckets(0), d.join_buckets(1), d.group_buckets()
    m1, m2, n1, n2 = (
        d.matches_in_window(0),
        d.matches_in_window(1),
        d.matches_in_set(0),
        d.matches_in_set(1),
    )
    c1, c2 = (1.0, 1.0) if nested else (b1, b2)
    w1, w2, l1, l2 = s1.window, s2.window, s1.rate, s2.rate
    late = a / bg * g
    expected = {
        "LAP": l1 * 2 * (w2 / c2 * p + u + m2 * late) + l2 * 2 * (w1 / c1 * p + u + m1 * late),
        "EAP10": l1 * 2 * (w2 / c2 * p + u + a1 / b1 * g + m2 * late)
        + l2 * 2 * (a1 / c1 * p + u + n1 * late),
        "EAP01": l1 * 2 * (a2 / c2 * p + u + n2 * late)
        + l2 * 2 * (w1 / c1 * p + u + a2 / b2 * g + m1 * late),
        "EAP11": l1 * 2 * (a2 / c2 * p + u + a1 / b1 * g + n2 * late)
        + l2 * 2 * (a1 / c1 * p + u + a2 / b2 * g + n1 * late),
    }
    for choice in choices(frozenset({0, 1})):
        found = published_cost(d, choice, TUNING, nested_loops=nested)
        assert found == pytest.approx(expected[plan_name(choice, 2)])


def published(groups: tuple[float, float], selectivity: float, window: float) -> str:
    d = SetFigures(tuple(StreamFigures(300, window, g, selectivity) for g in groups))
    costs = {c: published_cost(d, c, TUNING, True) for c in choices(frozenset({0, 1}))}
    return plan_name(min(costs, key=lambda c: costs[c]), 2)


def test_the_published_model_has_the_winners_of_figure_10() -> None:
    assert published((1500, 1500), 0.01, 500) == "LAP"
    assert published((1, 1500), 0.01, 500) == "EAP10"
    assert published((1500, 1), 0.01, 500) == "EAP01"
    assert published((150, 150), 0.1, 2000) == "EAP11"


def test_early_aggregation_gains_more_with_more_inputs() -> None:
    """Section 7.2.2, on three-way joins."""
    stream = StreamFigures(200, 300, 1, 0.1)
    gains = []
    for count in (2, 3):
        d = SetFigures((replace(stream, groups=20), *(stream,) * (count - 1)))
        late = published_cost(d, frozenset(), TUNING)
        gains.append(late / published_cost(d, frozenset(range(count)), TUNING))
    assert gains[1] > gains[0] > 1


# --- choices -------------------------------------------------------------------------------------


def loads(shape: AggregationJoin, keys: dict[int, float], values: float = 10.0) -> SetLoads:
    sets = {i: Load(10_000, 10_000, keys[i]) for i in shape.streams}
    counted = {
        (i, position): values
        for position, members in enumerate(shape.graph.key_classes)
        for i, _ in members
    }
    return SetLoads(sets, {}, counted)


SQL = f"SELECT s1.g, s2.g AS h, count(*) FROM {PAIR} GROUP BY s1.g, s2.g, {OVER}"


def test_few_groups_are_aggregated_and_many_are_not() -> None:
    shape = shape_of(SQL)
    for keys, best in (
        ({0: 20.0, 1: 20.0}, {0, 1}),
        ({0: 20.0, 1: 1e9}, {0}),
        ({0: 1e9, 1: 20.0}, {1}),
        ({0: 1e9, 1: 1e9}, set()),
    ):
        costs = plan_costs(shape, loads(shape, keys, 10_000.0), Tuning())
        assert min(costs, key=lambda c: costs[c]) == best
        assert len(costs) == 4


def test_a_choice_changes_when_that_saves_enough_and_is_told() -> None:
    shape, choices = shape_of(SQL), Choices()
    few, many = loads(shape, {0: 20.0, 1: 20.0}), loads(shape, {0: 1e9, 1: 1e9}, 10_000.0)

    def chosen(epoch: int, known: SetLoads | None, gain: float = 0.1) -> frozenset[int]:
        policy = PlannerPolicy(least_gain=gain)
        return choose_early_inputs(shape, "q", epoch, known, policy, choices)

    assert chosen(1, None) == {0, 1}
    assert chosen(2, few) == {0, 1}
    assert choices.changes == []
    assert chosen(3, many, gain=0.99) == {0, 1}
    assert chosen(4, many) == frozenset()
    assert "early aggregation of nothing (was s1, s2" in choices.changes[0]
    # Within an epoch it stays what it is.
    assert chosen(4, few) == frozenset()


def test_the_published_model_can_be_asked_instead() -> None:
    """The same streams by the paper's equations, which a row by row engine would follow."""
    shape = shape_of(SQL)
    known = loads(shape, {0: 1_500.0, 1: 100.0}, 10.0)
    for model, nested in ((EarlyModel.HASH_JOINS, False), (EarlyModel.NESTED_LOOPS, True)):
        costs = plan_costs(shape, known, TUNING, model)
        figures = SetFigures(
            (StreamFigures(1_000, 10_000, 150, 0.1), StreamFigures(1_000, 10_000, 10, 0.1))
        )
        for choice, cost in costs.items():
            wanted = published_cost(figures, choice, TUNING, nested)
            assert cost * 1_000 == pytest.approx(wanted)


def test_above_six_inputs_the_search_is_pruned() -> None:
    joins = " ".join(
        f"JOIN t{i} ON t0.j = t{i}.j AND {W.format('t0')} = {W.format(f't{i}')}"
        for i in range(1, 8)
    )
    shape = shape_of(f"SELECT t0.g, count(*) FROM t0 {joins} GROUP BY t0.g, {W.format('t0')}")
    chance = random.Random(3)
    for _ in range(5):
        keys = {i: chance.choice((5.0, 1e9)) for i in range(8)}
        costs = plan_costs(shape, loads(shape, keys, 10_000.0), Tuning())
        assert len(costs) < 2**8
        assert min(costs, key=lambda c: costs[c]) == {i for i, k in keys.items() if k < 10}
