"""Joins that are one operator, and joins that are two: what is late differs, so they are unequal.

A join with a table does not part a tree of joins (``docs/semantics.md``, trees of joins), unless it
goes by several inputs and a join above reads the table. What is below it then has a watermark of
its own, and the oracle gives different rows.
"""

from __future__ import annotations

from typing import Any

import pytest

from headrace.merge.rewriting import Merging
from headrace.merge.strategies import MergeStrategy
from headrace.optimizer import optimize
from headrace.plan.join_graph import join_graph, topmost_joins
from headrace.plan.nodes import Node, OutputMode, Sink, Source, Table
from headrace.plan.types import INT, TIMESTAMP, Schema
from headrace.sql import plan_query
from tests.merge.judge import matcher
from tests.support.compare import difference
from tests.support.oracle import run_epochs
from tests.support.stage import at

_STREAM = Schema.of([("k", INT), ("v", INT), ("ts", TIMESTAMP)])
CATALOG: dict[str, Source | Table] = {
    **{name: Source(name, _STREAM, "ts") for name in "abc"},
    "t": Table("t", Schema.of([("k", INT), ("w", INT)])),
}
TABLES = {"t": [{"k": 1, "w": 5}]}
#: The second row of b is late where a and b are joined apart, but not where c is joined with them.
EPOCHS: list[dict[str, list[dict[str, Any]]]] = [
    {"a": [{"k": 1, "v": 1, "ts": at(1)}], "b": [{"k": 1, "v": 2, "ts": at(2)}]},
    {"a": [{"k": 2, "v": 3, "ts": at(20)}], "b": [{"k": 2, "v": 4, "ts": at(20)}]},
    {"b": [{"k": 1, "v": 9, "ts": at(3)}], "c": [{"k": 1, "v": 7, "ts": at(3)}]},
]


def window(left: str, right: str, seconds: int = 10) -> str:
    return (
        f"{left}.k = {right}.k AND window({left}.ts, '{seconds} seconds') "
        f"= window({right}.ts, '{seconds} seconds')"
    )


def plan_of(sql: str) -> Node:
    return optimize(plan_query(sql, CATALOG).plan).plan


_COLUMNS = "SELECT a.v AS x, b.v AS y, t.w, c.v AS z"
TABLE_LAST = (
    f"{_COLUMNS} FROM a JOIN b ON {window('a', 'b')} JOIN c ON {window('a', 'c')} "
    "JOIN t ON a.k = t.k"
)
TABLE_BETWEEN = (
    f"{_COLUMNS} FROM a JOIN b ON {window('a', 'b')} JOIN t ON a.k = t.k "
    f"JOIN c ON {window('a', 'c')}"
)
TABLE_FIRST = (
    f"{_COLUMNS} FROM a JOIN t ON a.k = t.k JOIN b ON {window('a', 'b')} "
    f"JOIN c ON {window('a', 'c')}"
)


def answer(plan: Node) -> list[tuple[Any, ...]]:
    return [row for rows in run_epochs(plan, EPOCHS, TABLES) for row in rows]


def differ(one: Node, other: Node) -> bool:
    return any(difference(answer(one), answer(other)))


#: A table that is joined by columns of two inputs, and read by the join with c.
TABLE_FOR_TWO = (
    f"{_COLUMNS} FROM a JOIN b ON {window('a', 'b')} JOIN t ON a.k = t.k AND b.k = t.k "
    f"JOIN c ON {window('a', 'c').replace('a.k', 't.k')}"
)
#: The same rows, but for late ones.
TABLE_FOR_ONE = TABLE_FOR_TWO.replace(" AND b.k = t.k", "")


def test_a_table_between_joins_parts_no_tree() -> None:
    between, last, first = map(plan_of, (TABLE_BETWEEN, TABLE_LAST, TABLE_FIRST))
    assert between == last
    assert not differ(first, last)
    assert trees(first) == trees(between) == [3]
    assert trees(plan_of(TABLE_FOR_ONE)) == [3]


def test_a_table_that_two_inputs_and_a_join_above_need_parts_a_tree() -> None:
    two, one = plan_of(TABLE_FOR_TWO), plan_of(TABLE_FOR_ONE)
    assert trees(two) == [2, 2]
    assert differ(two, one)
    merger = matcher()
    assert merger.root(two) != merger.root(one)


def test_what_the_oracle_says_of_a_table_between_joins() -> None:
    """It reads the plans as they are written."""
    for sql in (TABLE_BETWEEN, TABLE_FIRST, TABLE_FOR_ONE, TABLE_FOR_TWO):
        assert not differ(plan_query(sql, CATALOG).plan, plan_of(sql)), sql


def test_a_table_joined_before_or_after_a_tree() -> None:
    first, last = plan_of(TABLE_FIRST), plan_of(TABLE_LAST)
    merger = matcher()
    assert merger.root(first) == merger.root(last)


WITHIN_A = (
    f"{_COLUMNS} FROM a JOIN (SELECT b.k, b.v, b.ts, t.w FROM b JOIN t ON b.k = t.k) b "
    f"ON {window('a', 'b')} JOIN c ON {window('a', 'c')}"
).replace("t.w, c.v", "b.w, c.v")


SPELLINGS = (WITHIN_A, TABLE_FIRST, TABLE_LAST, TABLE_BETWEEN, TABLE_FOR_TWO)


@pytest.mark.parametrize("first", SPELLINGS)
@pytest.mark.parametrize("second", SPELLINGS)
def test_what_runs_has_the_same_trees(first: str, second: str) -> None:
    """Parts are exchanged for equal ones, but a join's inputs stay inputs or parts of it."""
    merging = Merging(MergeStrategy.SM_PLUS)
    sinks = {
        name: Sink(plan_of(sql), name, "memory", OutputMode.APPEND)
        for name, sql in (("one", first), ("two", second))
    }
    for name, running in merging.update(sinks).items():
        assert trees(running.input) == trees(sinks[name].input)
        assert not differ(running.input, sinks[name].input)


def trees(plan: Node) -> list[int]:
    """How many inputs each tree of joins has."""
    return sorted(len(join_graph(join).leaves) for join in topmost_joins(plan))


def test_trees_are_told() -> None:
    assert trees(plan_of(TABLE_LAST)) == [3]
    assert trees(plan_of(TABLE_FOR_TWO)) == [2, 2]
    assert trees(plan_of(TABLE_FIRST)) == trees(plan_of(WITHIN_A)) == [3]
