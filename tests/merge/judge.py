"""Whether two plans that are called equal are equal: by DuckDB, and row by row with errors."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import duckdb

from headrace.merge.strategies import MeaningMatcher
from headrace.plan.nodes import Filter, Node, Project, Source, Union
from headrace.plan.text import plan_text
from headrace.plan.types import DataType
from tests.merge.generate import EDGES, LEAVES, READINGS, SMALL, rows
from tests.merge.interpreter import RAISED, given_row, runner
from tests.support.compare import difference, plain_rows
from tests.support.duck import connect, fetch, load, quote
from tests.support.oracle_batch import leaf_name, relation

#: Milliseconds for a proof: many, so that a busy machine finds what an idle one does.
PATIENCE = 1_000
#: Overflows, casts that fail, zero divisors.
STOPS = (duckdb.OutOfRangeException, duckdb.ConversionException, duckdb.InvalidInputException)
#: What a plan gives where DuckDB stops.
NO_ANSWER = "no answer"


def matcher(unbounded: bool = False, written_first: bool = False) -> MeaningMatcher:
    return MeaningMatcher(written_first, unbounded, PATIENCE)


def types_of(plan: Node) -> dict[str, DataType]:
    return {field.name: field.type for field in plan.schema}


class Judge:
    """The same random rows for all plans, in DuckDB and for the interpreter."""

    def __init__(self, seed: int = 1, small: int = 90, edges: int = 40) -> None:
        chance = random.Random(seed)
        self.databases = {
            "small": self._loaded(SMALL, small, chance),
            "edges": self._loaded(EDGES, small, chance),
        }
        self.rows = [*rows(READINGS, EDGES, edges, chance), *_corners(chance)]
        self._given = [given_row(row) for row in self.rows]
        self._first: tuple[Node, dict[str, Any]] | None = None

    def _loaded(
        self, values: dict[str, tuple[Any, ...]], count: int, chance: random.Random
    ) -> duckdb.DuckDBPyConnection:
        database = connect()
        for leaf in LEAVES:
            load(database, leaf_name(leaf), rows(leaf, values, count, chance), leaf.schema)
        return database

    def answer(self, plan: Node, database: str) -> list[tuple[Any, ...]] | str:
        """The rows that DuckDB gives, columns by name; an overflow is no answer."""
        connection = self.databases[database]
        columns = ", ".join(map(quote, sorted(plan.schema.names)))
        try:
            return plain_rows(
                fetch(connection, f"SELECT {columns} FROM ({relation(plan, connection)})")
            )
        except STOPS:
            return NO_ANSWER

    def _remembered(self, plan: Node, database: str) -> list[tuple[Any, ...]] | str:
        """The answer of a plan that many others are compared with, one after the other."""
        if self._first is None or self._first[0] is not plan:
            self._first = (plan, {})
        known: dict[str, Any] = self._first[1]
        if database not in known:
            known[database] = self.answer(plan, database)
        answer: list[tuple[Any, ...]] | str = known[database]
        return answer

    def difference(
        self,
        one: Node,
        other: Node,
        exact: bool = True,
        errors: bool = True,
        edges: bool = True,
    ) -> str:
        """How the results of two plans differ; empty where they do not.

        Row by row with ``errors``, or in DuckDB on the ``edges`` of types, in exact arithmetic.
        """
        if types_of(one) != types_of(other):
            return f"columns {one.schema} and {other.schema}"
        by_row = is_by_row(one) and is_by_row(other)
        for database in ("small", "edges") if exact and edges and not by_row else ("small",):
            first, second = self._remembered(one, database), self.answer(other, database)
            if isinstance(first, str) or isinstance(second, str):
                continue
            missing, extra = difference(first, second)
            if missing or extra:
                return f"DuckDB, {database} numbers: {missing[:3]} and {extra[:3]}"
        return self.difference_by_row(one, other, errors) if exact and by_row else ""

    def difference_by_row(self, one: Node, other: Node, errors: bool = True) -> str:
        ours, theirs = runner(one), runner(other)
        for row, given in zip(self.rows, self._given, strict=True):
            first, second = ours(given), theirs(given)
            if first != second and (errors or RAISED not in (first, second)):
                return f"row {row}: {first} and {second}"
        return ""


def _corners(chance: random.Random) -> list[dict[str, Any]]:
    """Rows in which pairs of columns are at the ends of their types, and rows that raise."""
    out = []
    for first, second in product((0, 1, -2, -1), repeat=2):
        (row,) = rows(READINGS, SMALL, 1, chance)
        for one, other, half in (("y", "z", 1 << 7), ("i", "j", 1 << 31), ("l", "m", 1 << 63)):
            ends = (-half, half - 1, -5, 0)
            row |= {one: ends[first], other: ends[second]}
        out.append(row)
    # Divisors of zero and texts that are no numbers, beside one column that is NULL.
    for name in READINGS.schema.names:
        (row,) = rows(READINGS, SMALL, 1, chance)
        row |= {"z": 0, "j": 0, "m": 0, "s": "a", "t": "b"}
        if name != READINGS.time:
            row[name] = None
        out.append(row)
    return out


def is_by_row(plan: Node) -> bool:
    """Whether the interpreter knows it."""
    streams = [node for node in plan.walk() if isinstance(node, Source)]
    return all(s.stream == READINGS.stream for s in streams) and all(
        isinstance(node, Source | Filter | Project | Union) for node in plan.walk()
    )


def shown(one: Node, other: Node) -> str:
    return f"\n{plan_text(one)}\n--- and ---\n{plan_text(other)}"
