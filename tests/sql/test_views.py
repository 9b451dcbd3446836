"""Views are read like streams, mean what a WITH would mean, and point to the right text."""

from __future__ import annotations

import pytest

from headrace.builder import QueryBuilder
from headrace.errors import Position, SqlError
from headrace.explain import Explanation, explain
from headrace.optimizer import optimize
from headrace.plan.json import plan_hash
from headrace.registration import check_plan
from headrace.sql import Catalog, ParsedQuery, View, plan_query, plan_view
from headrace.sql.views import names_read, reading_order
from tests.sql.catalog import CATALOG

HIGH = "SELECT auction, price, ts FROM bids WHERE price > 100"
COUNTS = "SELECT auction, window, COUNT(*) AS n FROM high GROUP BY auction, window(ts, '1 hour')"
HERE = "SELECT id AS bidder, city FROM person WHERE city = 'here'"


def with_views(**texts: str) -> Catalog:
    catalog = dict(CATALOG)
    for name, text in texts.items():
        catalog[name] = plan_view(name, text, catalog)[0]
    return catalog


VIEWS = with_views(High=HIGH, counts=COUNTS, here=HERE)


@pytest.mark.parametrize(
    ("over_views", "written_out"),
    [
        ("SELECT * FROM high", HIGH),
        ("SELECT * FROM counts", COUNTS.replace("high", f"({HIGH})")),
        (
            "SELECT MAX(h.price) AS top FROM HIGH AS h GROUP BY window(h.ts, '1 hour')",
            "SELECT MAX(price) AS top FROM bids WHERE price > 100 GROUP BY window(ts, '1 hour')",
        ),
        (
            "SELECT c.n, d.n AS m FROM counts c JOIN counts d ON c.auction = d.auction "
            "AND c.window = d.window",
            f"WITH high AS ({HIGH}), counts AS ({COUNTS}) SELECT c.n, d.n AS m "
            "FROM counts c JOIN counts d ON c.auction = d.auction AND c.window = d.window",
        ),
        (
            "SELECT b.price, p.city FROM bids b JOIN here p ON b.bidder = p.bidder",
            f"SELECT b.price, p.city FROM bids b JOIN ({HERE}) p ON b.bidder = p.bidder",
        ),
        (
            "SELECT t.x FROM high AS t(x, y, z)",
            f"SELECT t.x FROM ({HIGH}) AS t(x, y, z)",
        ),
        # A query of the WITH hides the view of its name, but not in its own text.
        (
            "WITH high AS (SELECT auction FROM high) SELECT * FROM high",
            "SELECT auction FROM bids WHERE price > 100",
        ),
    ],
)
def test_a_view_means_what_its_text_means(over_views: str, written_out: str) -> None:
    one = optimize(plan_query(over_views, VIEWS).plan).plan
    other = optimize(plan_query(written_out, CATALOG).plan).plan
    assert plan_hash(one) == plan_hash(other)
    check_plan(one)


def test_the_builder_reads_views() -> None:
    found: list[tuple[View, ...]] = []

    def made(plan: object, views: tuple[View, ...]) -> object:
        found.append(views)
        return plan

    built = QueryBuilder.read("COUNTS", VIEWS, made).where("n > 3")
    assert built.query() == plan_query("SELECT * FROM counts WHERE n > 3", VIEWS).plan
    assert [view.name for view in found[0]] == ["High", "counts"]


def test_a_query_knows_the_views_below_it() -> None:
    query = plan_query("SELECT auction FROM counts UNION ALL SELECT auction FROM high", VIEWS)
    assert [view.name for view in query.views] == ["High", "counts"]
    assert plan_query("SELECT auction FROM bids", VIEWS).views == ()


def _explained(query: ParsedQuery, mode: str) -> str:
    return explain(Explanation(query.plan, optimize(query.plan), views=query.views), mode)


def test_explain_shows_views() -> None:
    query = plan_query("SELECT * FROM counts", VIEWS)
    shown = f"== Views ==\nHigh\n  {HIGH}\ncounts\n  {COUNTS}\n\n"
    assert _explained(query, "simple").startswith(shown + "== Plan ==\n")
    assert _explained(query, "extended").startswith(shown + "== As written ==\n")
    assert '"reads": [\n        "High"' in _explained(query, "json")
    assert "Views" not in _explained(plan_query(HIGH, VIEWS), "simple")


def test_errors_point_to_the_text_that_is_wrong() -> None:
    with pytest.raises(SqlError) as in_view:
        plan_view("v", "SELECT ts,\n  prise FROM bids", CATALOG)
    assert in_view.value.position == Position(2, 3)
    with pytest.raises(SqlError) as in_query:
        plan_query("SELECT auction,\n    prise FROM high", VIEWS)
    assert (in_query.value.condition, in_query.value.position) == ("UNKNOWN_COLUMN", Position(2, 5))
    assert "did you mean 'price'" in str(in_query.value)
    with pytest.raises(SqlError, match="did you mean 'counts'"):
        plan_query("SELECT 1 FROM count", VIEWS)


def test_what_a_view_brings_has_the_place_of_the_query() -> None:
    """A part of the view has no place in the query's text, wherever it stands in its own."""
    view, places = plan_view("v", "\n\nSELECT auction % 2 AS half FROM bids", CATALOG)
    query = plan_query("SELECT\nhalf FROM v", {**CATALOG, "v": view})
    halves = list(view.plan.columns[0].expr.walk())  # type: ignore[attr-defined]
    assert places.of(halves[0]) == Position(3, 8)
    assert query.places.of(halves[0]) == Position(1, 1)


def test_a_view_of_tables_is_joined_with_streams() -> None:
    with pytest.raises(SqlError) as alone:
        plan_query("SELECT * FROM here", VIEWS)
    assert alone.value.condition == "NO_STREAM"


def test_a_view_does_not_read_itself() -> None:
    with pytest.raises(SqlError) as cycle:
        plan_view("V", "SELECT * FROM bids JOIN v ON v.x = bids.auction", CATALOG)
    assert cycle.value.condition == "VIEW_CYCLE"
    # Nor does it where the name is that of a WITH.
    assert plan_view("v", "WITH v AS (SELECT auction FROM bids) SELECT * FROM v", CATALOG)


def test_names_that_a_query_reads() -> None:
    found = names_read(
        "WITH a AS (SELECT * FROM x), x AS (SELECT * FROM a)\n"
        "SELECT * FROM x JOIN y ON x.k = y.k JOIN (SELECT k FROM\n Z UNION ALL SELECT k FROM a) u "
        "ON u.k = x.k WHERE u.k IN (SELECT k FROM w)"
    )
    assert list(found) == ["w", "x", "y", "z"]
    assert found["x"] == Position(1, 26)
    assert found["z"] == Position(3, 2)


def test_reading_order() -> None:
    reads = {"a": ["b", "c"], "b": ["s"], "c": ["b", "d"], "d": []}
    assert reading_order(reads) == ["b", "d", "c", "a"]
    assert reading_order({**reads, "d": ["c"]}) == ("c", "d")
    assert reading_order({"a": ["b"], "b": ["b"]}) == ("b",)
    deep = {str(n): [str(n + 1)] for n in range(5_000)}
    assert reading_order(deep)[0] == "4999"
