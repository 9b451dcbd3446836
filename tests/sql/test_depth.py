"""Long and deep queries: what is registered can be walked by every part of the engine, soon."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.errors import HeadraceError
from headrace.optimizer import optimize
from headrace.plan import times
from headrace.plan.depth import MOST_LEVELS, levels
from headrace.plan.expressions import Literal
from headrace.plan.nodes import Join
from headrace.plan.windows import Hopping
from headrace.sql import plan_query
from tests.sql.catalog import CATALOG
from tests.support.registering import registered

FORMS: dict[str, Callable[[int], str]] = {
    "sum": lambda n: f"SELECT {' + '.join(['price'] * n)} AS total FROM bids",
    "or": lambda n: f"SELECT ts FROM bids WHERE {' OR '.join(f'price = {i}' for i in range(n))}",
    "parentheses": lambda n: f"SELECT {'(' * n}price{')' * n} AS p FROM bids",
    "calls": lambda n: f"SELECT {'abs(' * n}price{')' * n} AS p FROM bids",
    "cases": lambda n: f"SELECT {'CASE WHEN price > 1 THEN ' * n}1{' END' * n} AS p FROM bids",
    "queries": lambda n: f"SELECT ts FROM {'(SELECT ts FROM ' * n}bids{')' * n}",
    "union": lambda n: " UNION ALL ".join(["SELECT ts FROM bids"] * n),
}


@pytest.mark.parametrize("form", ["sum", "or"])
def test_a_query_of_as_many_levels_as_may_be_is_registered(form: str) -> None:
    text = FORMS[form](MOST_LEVELS - 6)
    registered(text, CATALOG)
    assert MOST_LEVELS - 10 < levels(plan_query(text, CATALOG).plan) <= MOST_LEVELS


@pytest.mark.parametrize(("form", "size"), [("sum", 160), ("or", 160), *((f, 700) for f in FORMS)])
def test_a_query_that_is_too_deep_is_refused_in_one_line(form: str, size: int) -> None:
    with pytest.raises(HeadraceError, match="nested too deeply") as refused:
        registered(FORMS[form](size), CATALOG)
    assert refused.value.condition == "UNSUPPORTED_SQL"
    assert refused.value.hint is not None
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) FROM bids GROUP BY window(ts, '100001 days')",
        "SELECT count(*) FROM bids GROUP BY window(ts, INTERVAL 99999999999999999999 DAYS)",
        "SELECT count(*) FROM bids GROUP BY session_window(ts, '20000 weeks')",
        "SELECT a.price FROM bids a JOIN bids b ON a.auction = b.auction"
        " AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 99999999999 DAYS",
    ],
)
def test_durations_that_no_clock_holds_are_refused(text: str) -> None:
    with pytest.raises(HeadraceError, match="too long") as refused:
        registered(text, CATALOG)
    assert refused.value.condition == "INVALID_DURATION"


def test_a_query_that_is_no_text_is_refused() -> None:
    with pytest.raises(HeadraceError, match="NoneType, not a string"):
        registered(None, CATALOG)  # type: ignore[arg-type]


def test_each_join_of_a_tree_is_asked_for_its_times_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked again by each join above, it would be two to the power of the joins."""
    joins = " ".join(
        f"JOIN bids b{i} ON b0.auction = b{i}.auction"
        f" AND window(b0.ts, '1 minute') = window(b{i}.ts, '1 minute')"
        for i in range(1, 8)
    )
    asked: list[tuple[Join, object]] = []
    join_times = times._join_times

    def counted(node: Join, grid: Hopping | None) -> times.Times:
        asked.append((node, grid))
        return join_times(node, grid)

    monkeypatch.setattr(times, "_join_times", counted)
    plan_query(f"SELECT b0.ts FROM bids b0 {joins}", CATALOG)
    assert 0 < len(asked) == len({(id(node), grid) for node, grid in asked}) <= 7


def test_many_conditions_are_not_compared_each_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    conditions = " AND ".join(f"price <> {i}" for i in range(60))
    plan = plan_query(f"SELECT ts FROM bids WHERE {conditions}", CATALOG).plan
    compared = 0
    equal = Literal.__eq__

    def counted(one: Literal, other: object) -> bool:
        nonlocal compared
        compared += 1
        return equal(one, other)

    monkeypatch.setattr(Literal, "__eq__", counted)
    optimize(plan)
    assert compared < 60 * 60 * 5
