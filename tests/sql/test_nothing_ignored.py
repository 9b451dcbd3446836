"""No part of a query is passed over: each argument of each node changes the plan or is refused.

sqlglot itself says which arguments its nodes may have. Each of them is set at a query that has such
a node; a plan that stays the same would mean that somebody's SQL was ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlglot import exp

from headrace.errors import HeadraceError, SqlError
from headrace.plan.nodes import Node
from headrace.sql.dialect import parse_query
from headrace.sql.query import QueryBinder
from headrace.sql.reading import WITHOUT_MEANING
from tests.sql.catalog import CATALOG
from tests.sql.test_plans import _cases
from tests.sql.test_types_against_spark import OTHER_EXPRESSIONS

QUERIES = [query for _, query, _ in _cases()] + [
    f"SELECT {expression} AS x FROM typed"
    for expression in (
        *OTHER_EXPRESSIONS,
        "r'raw' || X'1F'",
        "position('a' IN s) + overlay(s PLACING 'x' FROM 2 FOR 3)::int",
        "i div 2 - l % 3 | 4 & 5 ^ 6",
        "i >> 1",
        "s ILIKE 'a'",
        "i <=> l OR i != l OR i <= l OR i > l",
        "CAST(st AS STRUCT<x: BIGINT, y: STRING>)",
        "CAST(m AS MAP<STRING, BIGINT>)",
        "INTERVAL '1 02:03:04' DAY TO SECOND",
        "'a' 'b'",
    )
]

#: Values that mean what was there before, for each of these.
NO_CHANGE = {
    ("ILike", "negate"),
    ("Union", "distinct"),
}
#: The only values that the parser gives these; others are nothing to it.
ONLY: dict[tuple[str, str], type] = {
    ("Table", "db"): exp.Expr,
    ("Table", "catalog"): exp.Expr,
    ("Join", "side"): str,
    ("Join", "kind"): str,
    ("Boolean", "this"): bool,
}


def _bound(tree: exp.Expr) -> Node | None:
    """The plan; None if it is refused, or if the value makes no sense to anybody."""
    try:
        return QueryBinder(CATALOG, time_zone="UTC").bind(tree)
    except HeadraceError:
        return None
    except (TypeError, AttributeError, ValueError, KeyError, IndexError, AssertionError):
        # The values are not such as the parser makes them; a crash is not silence.
        return None


def _values() -> list[Any]:
    return [
        True,
        "ZZ",
        exp.Literal.number(7),
        exp.to_identifier("zz"),
        [exp.to_identifier("zz")],
        [exp.Literal.string("zz")],
    ]


def _places() -> Iterator[tuple[str, str, str, int]]:
    """A query for each class of node that plans are made of, and where the node is in it."""
    seen: set[str] = set()
    for query in QUERIES:
        for index, node in enumerate(parse_query(query).walk()):
            name = type(node).__name__
            if name not in seen:
                seen.add(name)
                for argument in type(node).arg_types:
                    yield name, argument, query, index


PLACES = list(_places())


def test_the_queries_hold_every_kind_of_node() -> None:
    names = {name for name, *_ in PLACES}
    assert len(names) > 50
    wanted = "Select Table Join Subquery With CTE Union Group Star Column Cast In Between Filter"
    assert set(wanted.split()) <= names


@pytest.mark.parametrize("name", sorted({name for name, *_ in PLACES}))
def test_each_argument_is_read_or_refused(name: str) -> None:
    ignored = []
    for _, argument, query, index in (place for place in PLACES if place[0] == name):
        node = _node(query, index)
        without_meaning = argument in WITHOUT_MEANING.get(type(node), frozenset())
        if without_meaning or (name, argument) in NO_CHANGE:
            continue
        before = _bound(parse_query(query))
        assert before is not None
        for value in _values():
            if not isinstance(value, ONLY.get((name, argument), object)):
                continue
            tree = parse_query(query)
            target = list(tree.walk())[index]
            if target.args.get(argument) == value:
                continue
            target.set(argument, value)
            if _bound(tree) == before:
                ignored.append(f"{name}.{argument} = {value!r} in {query}")
    assert not ignored, "\n".join(ignored)


def _node(query: str, index: int) -> exp.Expr:
    return list(parse_query(query).walk())[index]


def test_an_argument_of_a_later_release_is_refused() -> None:
    for name, query, index in sorted({(name, query, index) for name, _, query, index in PLACES}):
        tree = parse_query(query)
        list(tree.walk())[index].args["brand_new"] = True
        with pytest.raises(SqlError) as caught:
            QueryBinder(CATALOG).bind(tree)
        assert caught.value.condition == "NOT_UNDERSTOOD"
        assert caught.value.message.startswith(f"BRAND NEW of {name}")
        assert caught.value.position is not None


def test_refusing_says_where_the_argument_stands() -> None:
    with pytest.raises(SqlError, match=r"line 2, column 11.*versionAsOf"):
        QueryBinder(CATALOG).bind(parse_query("SELECT ts\nFROM bids VERSION AS OF 3"))
