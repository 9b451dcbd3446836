"""Spark is asked once about what differs in names and constants that decide no type."""

from __future__ import annotations

from unittest import mock

import pytest
from pyspark.sql import SparkSession

from headrace.engine.introspection import check
from headrace.engine.introspection.agreed_shapes import AgreedShapes, shape_of
from headrace.errors import QueryError
from headrace.plan.expressions import OPERATORS, Call, Column
from headrace.plan.nodes import Filter, Project, Source
from headrace.plan.types import BIGINT, TIMESTAMP, DataType, Schema
from headrace.sql import plan_query
from headrace.sql.functions_table import callable_names

COLUMNS = Schema.of(
    (
        ("a", BIGINT),
        ("b", BIGINT),
        ("d", DataType("decimal(10,2)")),
        ("s", DataType("string")),
        ("ts", TIMESTAMP),
    )
)
KNOWN = callable_names() | OPERATORS.keys()
CATALOG = {"t": Source("t", COLUMNS, "ts")}
ALIKE = (
    ("SELECT a FROM t WHERE a > 5", "SELECT b AS x FROM t WHERE b > 7"),
    ("SELECT a + 1 AS x, b FROM t", "SELECT b + 3 AS y, a FROM t"),
    (
        "SELECT a, window, SUM(b) AS n FROM t GROUP BY a, window(ts, '1 minute')",
        "SELECT SUM(a) AS m, window, b FROM t GROUP BY b, window(ts, '1 hour')",
    ),
)
#: What looks alike and is not: other types, one column twice, values that make a type or a meaning.
APART = (
    ("SELECT a FROM t WHERE a > 5", "SELECT a FROM t WHERE d > 5"),
    ("SELECT a + b AS x FROM t", "SELECT a + a AS x FROM t"),
    ("SELECT d + 1 AS x FROM t", "SELECT d + 1000 AS x FROM t"),
    ("SELECT round(d, 1) AS x FROM t", "SELECT round(d, 2) AS x FROM t"),
    ("SELECT date_format(ts, 'yyyy') AS x FROM t", "SELECT date_format(ts, 'MM') AS x FROM t"),
    ("SELECT CAST(s AS INT) AS x FROM t", "SELECT CAST(s AS BIGINT) AS x FROM t"),
)


def shapes(text: str) -> list[object]:
    plan = plan_query(text, CATALOG).plan
    return [
        shape_of(check._expressions(node), KNOWN)
        for node in plan.walk()
        if check._expressions(node)
    ]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_names_and_plain_constants_make_no_shape(one: str, other: str) -> None:
    assert shapes(one)[1:] == shapes(other)[1:]
    assert None not in shapes(one)


@pytest.mark.parametrize(("one", "other"), APART)
def test_other_types_and_meanings_are_other_shapes(one: str, other: str) -> None:
    assert shapes(one) != shapes(other)


def test_what_is_not_of_the_table_has_no_shape() -> None:
    own = Call("mine", (Column("a", BIGINT),), BIGINT)
    assert shape_of([own], KNOWN) is None


def test_spark_is_asked_once_of_each_shape() -> None:
    """And again of what it has not agreed with."""
    agreed, asked = AgreedShapes(callable_names()), []

    def analyzed(session: SparkSession, query: object) -> mock.Mock:
        asked.append(query)
        fields = [mock.Mock(**{"dataType.simpleString.return_value": "bigint"}) for _ in range(2)]
        return mock.Mock(fields=fields)

    def plan(name: str, kind: str = "bigint") -> Project:
        column = Column(name, DataType(kind))
        expr = Call("+", (column, column), DataType(kind))
        source = CATALOG["t"]
        named = plan_query("SELECT a AS x, b AS y FROM t", CATALOG).plan
        assert isinstance(named, Project)
        first, second = named.columns
        return Project(
            Filter(source, Call("=", (expr, expr), DataType("boolean"))),
            (
                type(first)("x", expr),
                type(second)("y", expr),
            ),
        )

    with (
        mock.patch.object(check, "_all_right", return_value=False),
        mock.patch.object(check, "_analyzed", side_effect=analyzed),
    ):
        with pytest.raises(QueryError, match="planned as"):
            check.check_expressions(mock.Mock(), plan("d", "decimal(10,2)"), agreed=agreed)
        before = len(asked)
        with pytest.raises(QueryError, match="planned as"):
            check.check_expressions(mock.Mock(), plan("d", "decimal(10,2)"), agreed=agreed)
        assert len(asked) == 2 * before > 0
    with mock.patch.object(check, "_all_right", return_value=True) as right:
        check.check_expressions(mock.Mock(), plan("a"), agreed=agreed)
        check.check_expressions(mock.Mock(), plan("b"), agreed=agreed)
        assert right.call_count == 1
