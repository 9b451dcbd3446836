"""The queries of the SQL reference are queries, and the builder's are the same as in SQL."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from headrace.builder import QueryBuilder
from headrace.plan.nodes import Node
from headrace.sql import plan_query
from tests.docs.examples import document
from tests.sql.catalog import CATALOG
from tests.support.registering import registered

TEXT = document("sql.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"^```sql\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
BUILT = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
SAME_IN_SQL = (
    "SELECT auction, window, COUNT(*) AS n, AVG(price) AS mean FROM bids WHERE price > 5 "
    "GROUP BY auction, window(ts, '1 hour', '10 minutes')",
    "SELECT b.auction, b.price, a.seller FROM bids b JOIN auctions a ON b.auction = a.id "
    "AND window(b.ts, '10 minutes') = window(a.ts, '10 minutes')",
)


@pytest.mark.parametrize("sql", QUERIES)
def test_queries_can_be_planned(sql: str) -> None:
    assert registered(sql, CATALOG).streams()


def test_every_window_form_is_shown() -> None:
    shown = " ".join(QUERIES).lower()
    for form in ("window(", "windows(", "session_window(", "trailing(", "landmark(", "left join"):
        assert form in shown


@pytest.mark.parametrize(("code", "sql"), list(zip(BUILT, SAME_IN_SQL, strict=True)))
def test_builders_mean_the_same_as_sql(code: str, sql: str) -> None:
    def read(name: str) -> QueryBuilder:
        return QueryBuilder.read(name, CATALOG, lambda plan, views: plan)

    names: dict[str, object] = {"hr": SimpleNamespace(read=read)}
    exec(code, names)
    query = names["query"]
    assert isinstance(query, Node)
    assert query == plan_query(sql, CATALOG).plan
