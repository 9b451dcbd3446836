"""How definitions can be cut into parts, on small ones that can be checked by eye and by DuckDB."""

from __future__ import annotations

import random

import duckdb
import pytest
from sqlglot import exp, parse_one

from headrace.engine.execution.duckdb.splits import Cut, cuts
from headrace.plan.types import BIGINT, DOUBLE, STRING, Schema

SCHEMAS = {
    "a": Schema.of([("k", BIGINT), ("x", BIGINT), ("s", STRING)]),
    "b": Schema.of([("j", BIGINT), ("y", BIGINT), ("d", DOUBLE)]),
}


def found(sql: str, partial: bool = False) -> list[Cut]:
    return cuts(parse_one(sql, dialect="spark"), SCHEMAS.__getitem__, partial)


def columns(sql: str, partial: bool = False) -> set[tuple[str, ...]]:
    """The ways to cut, each as the columns of the inputs in their order."""
    return {tuple(column or "*" for _, column in cut.columns) for cut in found(sql, partial)}


@pytest.mark.parametrize(
    ("sql", "ways"),
    [
        ("SELECT * FROM a WHERE x > 1", {("*",), ("k",), ("x",), ("s",)}),
        ("SELECT k AS g, count(*) AS n FROM a GROUP BY k", {("k",)}),
        ("SELECT k AS g, s AS t, count(*) AS n FROM a GROUP BY 1, 2", {("k",), ("s",)}),
        ("SELECT x % 2 AS g, count(*) AS n FROM a GROUP BY 1", set()),
        ("SELECT count(*) AS n FROM a", set()),
        ("SELECT k AS k, sum(x) OVER (PARTITION BY s) AS t FROM a", {("s",)}),
        ("SELECT k AS k, sum(x) OVER (ORDER BY s) AS t FROM a", set()),
        ("SELECT * FROM (SELECT * FROM a) AS l JOIN (SELECT * FROM b) AS r ON k = j", {("k", "j")}),
        ("SELECT * FROM (SELECT * FROM a) AS l JOIN (SELECT * FROM b) AS r ON k < j", set()),
        ("SELECT * FROM (SELECT * FROM a) AS l CROSS JOIN (SELECT * FROM b) AS r", set()),
        # Doubles are never cut by: a NaN is a NaN, but no bit pattern of it need be another's.
        ("SELECT d AS d, count(*) AS n FROM b GROUP BY d", set()),
    ],
)
def test_ways_to_cut(sql: str, ways: set[tuple[str, ...]]) -> None:
    assert columns(sql) == ways


def test_groups_that_may_come_in_parts_need_no_column() -> None:
    sql = "SELECT x % 2 AS g, count(*) AS n FROM a GROUP BY 1"
    assert ("*",) in columns(sql, partial=True)
    # Only the outermost groups are merged by whoever reads them.
    nested = f"SELECT g AS g, max(n) AS m FROM ({sql}) GROUP BY g"
    assert columns(nested, partial=True) == set()


def test_a_side_without_partner_does_not_carry_the_other_sides_key() -> None:
    """Rows of a left join without partner have NULL in j: a group by j would be torn apart."""
    joined = "SELECT * FROM (SELECT * FROM a) AS l LEFT JOIN (SELECT * FROM b) AS r ON k = j"
    assert columns(joined) == {("k", "j")}
    assert columns(f"SELECT k AS k, count(*) AS n FROM ({joined}) GROUP BY k") == {("k", "j")}
    assert columns(f"SELECT j AS j, count(*) AS n FROM ({joined}) GROUP BY j") == set()


def test_a_union_is_cut_by_what_both_branches_show() -> None:
    union = "SELECT k AS v FROM a UNION ALL SELECT j AS w FROM b"
    grouped = f"SELECT v AS v, count(*) AS n FROM ({union}) GROUP BY v"
    assert columns(grouped) == {("k", "j")}


QUERIES = [
    "SELECT k AS k, count(*) AS n, sum(x) AS t FROM a GROUP BY k",
    "SELECT * FROM (SELECT * FROM a) AS l JOIN (SELECT * FROM b) AS r ON k = j AND x > y",
    "SELECT * FROM (SELECT * FROM a) AS l LEFT JOIN (SELECT * FROM b) AS r ON k = j",
    "SELECT * FROM (SELECT * FROM a) AS l FULL JOIN (SELECT * FROM b) AS r ON k = j",
    "SELECT k AS k, x AS x, max(x) OVER (PARTITION BY k, s) AS m FROM a",
    "SELECT k AS k, count(*) AS n FROM (SELECT k AS k FROM a UNION ALL SELECT j AS k FROM b) "
    "GROUP BY k",
    "SELECT k AS k, max(n) AS m FROM (SELECT k AS k, s AS s, count(*) AS n FROM a GROUP BY k, s) "
    "GROUP BY k",
    "SELECT k AS k, x AS x FROM a WHERE x > 2",
]


@pytest.mark.parametrize("sql", QUERIES)
def test_parts_make_the_whole(sql: str) -> None:
    """Whatever way it is cut, the parts together are what the definition gives on all rows."""
    chance = random.Random(sql)
    with duckdb.connect() as database:
        for name, schema in SCHEMAS.items():
            fields = ", ".join(
                f"{f.name} {'VARCHAR' if f.type == STRING else f.type.name}" for f in schema
            )
            database.execute(f"CREATE TABLE {name}_all ({fields})")
            for _ in range(60):
                row = [None if chance.random() < 0.15 else str(chance.randrange(6)) for _ in schema]
                database.execute(f"INSERT INTO {name}_all VALUES (?, ?, ?)", row)
        query = parse_one(sql, dialect="spark")
        ways = cuts(query, SCHEMAS.__getitem__)
        assert ways
        for cut in ways:
            parts = []
            for part in range(3):
                for name, column in cut.columns:
                    where = f"hash({column or 'rowid'}) % 3 = {part}"
                    database.execute(
                        f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM {name}_all WHERE {where}"
                    )
                parts += database.execute(_duckdb(query)).fetchall()
            for name in SCHEMAS:
                database.execute(f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM {name}_all")
            whole = database.execute(_duckdb(query)).fetchall()
            assert sorted(parts, key=repr) == sorted(whole, key=repr), cut


def _duckdb(query: exp.Expression) -> str:
    return query.sql(dialect="duckdb")
