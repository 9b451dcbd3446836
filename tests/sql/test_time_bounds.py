"""Interval joins in any shape: what the join's time and residual say is what the text said."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import SqlError
from headrace.plan.expressions import Call, Column, Expr, Literal, conjuncts
from headrace.plan.nodes import IntervalBound, Join, Project
from headrace.sql import plan_query
from headrace.sql.literals import interval_microseconds
from tests.sql.catalog import CATALOG

MICROSECONDS = st.one_of(
    st.integers(-5, 5), st.integers(-5, 5).map(lambda n: n * 1000), st.just(1500), st.just(-1500)
)
OPERATORS = st.sampled_from(["<", "<=", ">", ">=", "="])


def _interval(micros: int) -> str:
    return f"INTERVAL {micros} MICROSECONDS"


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    """A comparison of a.ts and b.ts that leaves a bound on their difference."""
    first, second = draw(st.permutations(["a.ts", "b.ts"]))
    one, other = _interval(draw(MICROSECONDS)), _interval(draw(MICROSECONDS))
    operator = draw(OPERATORS)
    shapes = [
        f"{first} {operator} {second}",
        f"{first} {operator} {second} + {one}",
        f"{first} + {one} {operator} {second} - {other}",
        f"{one} + {first} {operator} {second}",
        f"{first} - {second} {operator} {one}",
        f"{one} {operator} {first} - {second}",
        f"{first} - ({second} - {one}) {operator} {other}",
        f"-({second} - {first}) {operator} {one}",
        f"{first} - {one} - {other} {operator} {second}",
    ]
    return draw(st.sampled_from(shapes))


def _value(expr: Expr, times: dict[str, int]) -> int | bool:
    """The expression over times that are plain microseconds."""
    match expr:
        case Column(name=name):
            return times[name]
        case Literal():
            return interval_microseconds(expr)
        case Call(function="negative", arguments=(argument,)):
            return -_value(argument, times)
        case Call(function=function, arguments=(left, right)):
            one, other = _value(left, times), _value(right, times)
            answers = {
                "+": one + other,
                "-": one - other,
                "<": one < other,
                "<=": one <= other,
                ">": one > other,
                ">=": one >= other,
                "=": one == other,
            }
            return answers[function]
        case _:
            raise AssertionError(expr)


def _holds(join: Join, left: int, right: int) -> bool:
    """Whether the join's time and residual let this pair through."""
    assert isinstance(join.time, IntervalBound)
    lower, upper = join.time.lower, join.time.upper
    times = {"a.ts": left, "b.ts": right}
    within = (lower is None or right - left >= lower * 1000) and (
        upper is None or right - left <= upper * 1000
    )
    return within and all(_value(part, times) for part in conjuncts(join.residual))


def _meant(text: str, left: int, right: int) -> bool:
    """What the text says, worked out by Python itself."""
    python = text.replace("INTERVAL ", "").replace(" MICROSECONDS", "").replace(" = ", " == ")
    python = python.replace("a.ts", f"({left})").replace("b.ts", f"({right})")
    return bool(eval(python))


@settings(max_examples=300, deadline=None)
@given(st.lists(comparisons(), min_size=1, max_size=3), st.lists(st.integers(-9, 9), min_size=6))
def test_the_join_means_what_the_text_says(texts: list[str], differences: list[int]) -> None:
    condition = " AND ".join(texts)
    sql = f"SELECT a.id FROM auctions a JOIN bids b ON a.id = b.auction AND {condition}"
    pairs = [(0, d * scale + odd) for d in differences for scale in (1, 1000) for odd in (0, 500)]
    try:
        plan = plan_query(sql, CATALOG).plan
    except SqlError as error:
        # Bounds that contradict each other are refused, so no pair may satisfy them.
        if error.condition != "EMPTY_INTERVAL":
            raise
        assert not any(all(_meant(t, *pair) for t in texts) for pair in pairs)
        return
    assert isinstance(plan, Project)
    assert isinstance(plan.input, Join)
    for pair in pairs:
        assert _holds(plan.input, *pair) == all(_meant(t, *pair) for t in texts), (sql, pair)


def test_exact_bounds_leave_no_residual() -> None:
    sql = (
        "SELECT a.id FROM auctions a JOIN bids b ON a.id = b.auction "
        "AND b.ts BETWEEN a.ts - INTERVAL 5 MINUTES AND a.ts + INTERVAL 1 HOUR"
    )
    plan = plan_query(sql, CATALOG).plan
    assert isinstance(plan, Project)
    assert isinstance(plan.input, Join)
    assert plan.input.residual is None
    assert isinstance(plan.input.time, IntervalBound)
    assert (plan.input.time.lower, plan.input.time.upper) == (-300_000, 3_600_000)
