"""What joins take from a WHERE, and what they leave there."""

from __future__ import annotations

from headrace.plan.nodes import Filter, Join, Node
from headrace.sql import plan_query
from tests.sql.catalog import CATALOG


def joined(sql: str) -> tuple[Join, tuple[Node, ...]]:
    """The one join of a query, and the filters above it."""
    plan = plan_query(sql, CATALOG).plan
    (join,) = (node for node in plan.walk() if isinstance(node, Join))
    return join, tuple(node for node in plan.walk() if isinstance(node, Filter))


def test_an_equality_that_can_raise_stays_where_others_guard_it() -> None:
    join, filters = joined(
        "SELECT 1 AS one FROM bids b JOIN auctions a ON b.auction = a.id "
        "WHERE b.bidder <> a.seller AND b.bidder + 1 = a.seller"
    )
    assert len(join.keys) == 1
    assert len(filters) == 1
    # Where nothing else ties the inputs it is the key, as in an ON.
    join, filters = joined("SELECT 1 AS one FROM bids b, auctions a WHERE b.bidder + 1 = a.seller")
    assert len(join.keys) == 1
    assert not filters


def test_conditions_under_an_outer_join_stay() -> None:
    """Above a left join they are about its NULLs too."""
    join, filters = joined(
        "SELECT 1 AS one FROM bids b LEFT JOIN person p ON b.bidder = p.id WHERE b.auction = p.id"
    )
    assert len(join.keys) == 1
    assert len(filters) == 1


def test_windows_of_each_input_leave_bounds_to_the_where() -> None:
    """Such an aggregate is over pairs of any distance, of which the WHERE leaves some out."""
    sql = (
        "SELECT b.auction, count(*) AS n FROM bids b, auctions a WHERE b.auction = a.id "
        "AND a.ts BETWEEN b.ts AND b.ts + INTERVAL 1 MINUTE "
        "GROUP BY b.auction, trailing(b.ts, '1 hour'), landmark(a.ts)"
    )
    join, filters = joined(sql)
    assert join.time is None
    assert len(join.keys) == len(filters) == 1


def test_half_a_condition_is_none() -> None:
    """``BETWEEN`` is taken wholly or not at all."""
    join, filters = joined(
        "SELECT 1 AS one FROM bids b JOIN auctions a ON b.auction = a.id "
        "WHERE a.ts BETWEEN b.ts AND TIMESTAMP '2024-01-01 00:00:00'"
    )
    assert join.time is None
    assert len(filters) == 1
