"""The plans of every form of SQL, as text.

``plans.txt`` holds queries and their plans; ``pytest --update-golden`` writes the plans anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.plan.text import plan_text
from headrace.sql import AskedFunction, Hint, plan_query
from tests.sql.catalog import CATALOG
from tests.support.registering import registered

GOLDEN = Path(__file__).with_name("plans.txt")


def _cases() -> list[tuple[str, str, str]]:
    cases = []
    for block in GOLDEN.read_text(encoding="utf-8").split("\n-- ")[1:]:
        title, _, rest = block.partition("\n")
        query, _, plan = rest.partition("\n\n")
        cases.append((title.strip(), query.strip(), plan.strip("\n")))
    return cases


def _plan(query: str) -> str:
    # Every plan must also be one that the engine can run.
    return plan_text(registered(query, CATALOG))


@pytest.mark.parametrize("title", [title for title, _, _ in _cases()])
def test_plan(title: str, update_golden: bool) -> None:
    if update_golden:
        pytest.skip("written by test_update")
    query, expected = next((q, p) for t, q, p in _cases() if t == title)
    assert _plan(query) == expected


def test_update(update_golden: bool) -> None:
    cases = _cases()
    assert len({title for title, _, _ in cases}) == len(cases)
    if not update_golden:
        return
    header = GOLDEN.read_text(encoding="utf-8").split("\n-- ")[0]
    blocks = [f"-- {title}\n{query}\n\n{_plan(query)}\n" for title, query, _ in cases]
    GOLDEN.write_text(header + "\n" + "\n".join(blocks), encoding="utf-8")


def test_equal_queries_have_equal_plans() -> None:
    one = (
        "SELECT auction a, sum(price) s FROM bids WHERE price > 1 GROUP BY 1, window(ts, '1 hour')"
    )
    other = (
        "select BIDS.auction AS a, SUM(price) as s from bids where (price > 1) "
        "group by Auction, window(ts, interval 60 minutes, '60 minutes', '0 seconds')"
    )
    assert plan_query(one, CATALOG).plan == plan_query(other, CATALOG).plan


def test_hints_are_kept() -> None:
    parsed = plan_query(
        "SELECT /*+ JOIN_ORDER(A, c, b) */ page FROM bids b JOIN auctions a ON b.auction = a.id "
        "JOIN clicks c ON c.auction = a.id",
        CATALOG,
    )
    assert parsed.hints == (Hint("JOIN_ORDER", ("a", "c", "b")),)
    assert plan_query("SELECT ts FROM bids", CATALOG).hints == ()


def test_timestamps_take_the_time_zone_of_the_session() -> None:
    query = "SELECT ts FROM bids WHERE ts > TIMESTAMP '2024-01-01 00:00:00{}'"
    berlin = plan_query(query.format(""), CATALOG, time_zone="Europe/Berlin").plan
    assert berlin == plan_query(query.format("+01:00"), CATALOG, time_zone="UTC").plan
    assert berlin != plan_query(query.format(""), CATALOG, time_zone="UTC").plan


def test_unknown_functions_are_asked_for() -> None:
    from headrace.plan.types import BIGINT, DOUBLE, STRING, DataType

    asked: list[tuple[str, tuple[DataType, ...]]] = []

    def function_type(name: str, arguments: tuple[DataType, ...]) -> AskedFunction | None:
        asked.append((name, arguments))
        return AskedFunction(DOUBLE)

    plan = plan_query("SELECT my_score(name, auction) AS x FROM bids", CATALOG, function_type).plan
    assert asked == [("my_score", (STRING, BIGINT))]
    assert plan.schema["x"].type == DOUBLE
