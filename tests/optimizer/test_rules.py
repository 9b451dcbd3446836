"""What fixtures cannot write as SQL: refusals for expressions that SQL refuses, and the driver."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.errors import PlanError
from headrace.optimizer import STAGES, Rule, Stage, optimize
from headrace.optimizer.advice import advise
from headrace.optimizer.driver import apply_rule, run_stages
from headrace.optimizer.rules.merge_filters import merge_filters
from headrace.optimizer.rules.merge_projections import merge_projections
from headrace.optimizer.rules.push_filter_through_project import push_filter_through_project
from headrace.optimizer.rules.push_filter_through_union import push_filter_through_union
from headrace.optimizer.safety import can_raise, is_deterministic
from headrace.plan.expressions import AggregateCall, Call, Column, Expr, Literal
from headrace.plan.nodes import Filter, IntervalBound, Node, Project, Source, Union
from headrace.plan.types import (
    BIGINT,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    decimal,
)
from headrace.plan.windows import Landmark, tumbling
from headrace.stats import NO_STATISTICS, Observation
from tests.support.build import call, cast, col, count, group, join, lit, select, where
from tests.support.plans import BIDS, CLICKS

PRICE, FEE, CHANNEL = col(BIDS, "price"), col(BIDS, "fee"), col(BIDS, "channel")
CHEAP = call("<", PRICE, 5)
RANDOM = call("rand", kind=DOUBLE)


@pytest.mark.parametrize(
    ("expr", "raises"),
    [
        (call("+", PRICE, 1, kind=INT), True),
        (call("+", FEE, 1.0, kind=DOUBLE), False),
        (call("/", FEE, FEE, kind=DOUBLE), True),
        (call("/", FEE, 2.0, kind=DOUBLE), False),
        (call("/", FEE, 0.0, kind=DOUBLE), True),
        (call("%", PRICE, PRICE, kind=INT), True),
        (call("%", PRICE, 2, kind=INT), False),
        (call("%", PRICE, 0, kind=INT), True),
        (call("div", PRICE, 2, kind=BIGINT), False),
        (call("div", PRICE, -1, kind=BIGINT), True),
        (call("/", Column("d", decimal(38, 2)), 2, kind=decimal(38, 6)), True),
        (call("=", PRICE, lit("a")), True),
        (call("=", PRICE, Literal(1, BIGINT)), False),
        (call("coalesce", PRICE, lit("a"), kind=STRING), True),
        (Call("coalesce", (PRICE, Literal(None, INT)), INT), False),
        (call("case", CHEAP, 1, 2, kind=INT), False),
        (call("case", CHEAP, 1, "x", kind=STRING), True),
        (call("case", call("=", call("/", 1, PRICE, kind=DOUBLE), 1.0), 1, 2, kind=INT), True),
        (cast(PRICE, BIGINT), False),
        (cast(PRICE, DOUBLE), False),
        (cast(PRICE, STRING), False),
        (cast(Column("n", BIGINT), INT), True),
        (cast(CHANNEL, INT), True),
        (cast(CHANNEL, INT, safe=True), False),
        (cast(PRICE, decimal(5, 2)), True),
        (cast(Column("t", TIMESTAMP), DATE), False),
        (call("hour", Column("t", TIMESTAMP), kind=INT), False),
        (call("hour", CHANNEL, kind=INT), True),
        (call("like", CHANNEL, "a%"), False),
        (call("like", CHANNEL, "a\\x"), True),
        (call("like", CHANNEL, CHANNEL), True),
        (call("upper", CHANNEL, kind=STRING), False),
        (call("a_function_nobody_knows", CHANNEL, kind=STRING), True),
        (call("item", Column("xs", INT), 0, kind=INT), True),
    ],
    ids=str,
)
def test_what_can_raise(expr: Expr, raises: bool) -> None:
    assert can_raise(expr) is raises


def test_what_is_random_or_depends_on_the_clock_is_never_moved() -> None:
    assert not is_deterministic(call("+", RANDOM, 1.0, kind=DOUBLE))
    assert not is_deterministic(call("now", kind=TIMESTAMP))
    assert is_deterministic(PRICE)
    chance = call("<", RANDOM, 0.5)
    assert merge_filters(where(where(BIDS, CHEAP), chance)) is None
    assert merge_filters(where(where(BIDS, chance), CHEAP)) is None
    drawn = select(BIDS, ("r", RANDOM), "price", "ts")
    assert merge_projections(select(drawn, "r")) is None
    assert push_filter_through_project(where(drawn, call("<", col(drawn, "r"), 0.5))) is None
    assert push_filter_through_union(where(Union((BIDS, BIDS)), chance)) is None


def test_a_random_condition_stays_above_a_projection_and_keeps_what_may_need_its_guard() -> None:
    drawn = select(BIDS, ("r", RANDOM), "price", "ts")
    chance = call("<", col(drawn, "r"), 0.5)
    division = call(">", call("/", 1, PRICE, kind=DOUBLE), 1.0)
    after = push_filter_through_project(where(drawn, chance, CHEAP, division))
    assert after == where(Project(where(BIDS, CHEAP), drawn.columns), chance, division)


def test_a_chain_of_projections_does_not_blow_up() -> None:
    node: Node = select(BIDS, ("x", call("upper", CHANNEL, kind=STRING)), "ts")
    for _ in range(12):
        double = call("||", col(node, "x"), col(node, "x"), kind=STRING)
        node = select(node, ("x", double), "ts")
    after = optimize(node).plan
    size = sum(
        len(list(c.expr.walk())) for n in after.walk() if isinstance(n, Project) for c in n.columns
    )
    assert size < 100


# --- the driver ----------------------------------------------------------------------------------


def test_a_rule_that_changes_the_columns_is_caught() -> None:
    bad = Rule(
        "bad", lambda n: select(n, "ts") if isinstance(n, Source) and len(n.schema) > 1 else None
    )
    with pytest.raises(PlanError, match="the rule bad changed the columns"):
        apply_rule(where(BIDS, CHEAP), bad)


def test_a_rule_that_changes_a_type_is_caught() -> None:
    def widen(node: Node) -> Node | None:
        if not isinstance(node, Filter):
            return None
        columns = [(n, col(BIDS, n)) for n in BIDS.schema.names]
        columns[2] = ("price", cast(PRICE, BIGINT))
        return select(node, *columns)

    with pytest.raises(PlanError, match="changed the columns"):
        apply_rule(where(BIDS, CHEAP), Rule("widen", widen))


def test_a_rule_that_loses_an_event_time_is_caught() -> None:
    def blur(node: Node) -> Node | None:
        if not isinstance(node, Filter):
            return None
        columns = [(n, col(BIDS, n)) for n in BIDS.schema.names]
        columns[-1] = ("ts", call("coalesce", col(BIDS, "ts"), col(BIDS, "ts"), kind=TIMESTAMP))
        return select(node, *columns)

    with pytest.raises(PlanError, match="the rule blur lost the event time of ts"):
        apply_rule(where(BIDS, CHEAP), Rule("blur", blur))


def test_rules_that_undo_each_other_are_caught() -> None:
    def turn(node: Node) -> Node | None:
        return Union(node.parts[::-1]) if isinstance(node, Union) else None

    swinging = Union((where(BIDS, CHEAP), BIDS))
    with pytest.raises(PlanError, match="do not come to an end"):
        run_stages(swinging, (Stage("swing", "for a test", (Rule("turn", turn),)),))


def test_a_shared_subplan_is_rewritten_once() -> None:
    twice = where(where(BIDS, CHEAP), call(">", PRICE, 1))
    after, firings = apply_rule(Union((twice, twice)), Rule("merge_filters", merge_filters))
    assert len(firings) == 1
    assert after == Union((where(BIDS, CHEAP, call(">", PRICE, 1)),) * 2)


def test_the_trace_tells_what_fired_where() -> None:
    plan = where(where(BIDS, CHEAP), call("=", lit(1), lit(1)))
    optimized = optimize(plan)
    assert optimized.plan == where(BIDS, CHEAP)
    assert optimized.trace.start == plan
    assert optimized.trace.fired == {"fold_constants": 1}
    first = optimized.trace.steps[0]
    assert (first.stage, first.rule, first.number) == ("normalise", "fold_constants", 1)
    assert first.firings[0].before == plan
    assert first.firings[0].after == where(BIDS, CHEAP)
    assert all(not step.changed for step in optimized.trace.steps[1:])


def test_stages_say_why_they_stand_where_they_do() -> None:
    assert [stage.name for stage in STAGES][:2] == ["normalise", "push filters and columns down"]
    assert all(stage.why for stage in STAGES)


# --- advice --------------------------------------------------------------------------------------


def test_no_advice_on_a_plain_query() -> None:
    assert advise(where(BIDS, CHEAP)) == ()


def test_joins_that_keep_rows_for_ever() -> None:
    (text,) = advise(join(BIDS, CLICKS, ("auction", "auction")))
    assert "keeps the rows of bids, clicks for ever" in text
    bounded = [replace(s, ttl=1000) for s in (BIDS, CLICKS)]
    assert advise(join(bounded[0], bounded[1], ("auction", "auction"))) == ()
    pairs = join(BIDS, CLICKS, ("auction", "auction"))
    one_sided = IntervalBound(col(pairs, "a.ts"), col(pairs, "b.at"), 0, None)
    (text,) = advise(join(BIDS, CLICKS, ("auction", "auction"), one_sided))
    assert "one side of time only" in text


def test_landmarks_late_rows_null_times_and_conditions_that_stay() -> None:
    (text,) = advise(group(BIDS, ("auction",), "ts", Landmark(), n=count()))
    assert "landmark() keeps every group" in text
    seen = NO_STATISTICS.observe_stream("bids", Observation(10, 0, 5, null_times=2, late_rows=3))
    late, nulls = advise(BIDS, seen)
    assert "3 rows of bids came too late" in late
    assert "its delay is 10 seconds" in late
    assert nulls == "2 rows of bids had no ts and were dropped"
    counts = group(BIDS, ("price",), "ts", tumbling(1000), n=count())
    stuck = where(counts, call(">", call("/", 1, col(counts, "price"), kind=DOUBLE), 1.0))
    (text,) = advise(stuck)
    assert text.startswith("1 / price > 1.0D stays where it is")


def test_no_advice_on_what_could_not_go_lower_anyway() -> None:
    total = AggregateCall("sum", (PRICE,), BIGINT)
    counts = group(BIDS, ("price",), "ts", tumbling(1000), s=total)
    average = call(">", call("/", col(counts, "s"), 2, kind=DOUBLE), 1.0)
    assert advise(where(counts, average)) == ()
