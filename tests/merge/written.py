"""Pairs of queries as text, over streams with columns of all plain types.

``sales`` has whole numbers (i, j int; l, m bigint), doubles (d, e), decimals (p, q), texts (s, t),
flags (b, c), a date and two timestamps; ``visits`` and ``returns`` have some of them, and the table
``shops`` a few. ``same.txt`` has pairs that mean the same, with the reasons of those that merging
does not find; ``same_rewritten.txt`` and ``near_misses.txt`` are made by ``make_pairs``.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import permutations
from pathlib import Path
from typing import Any

import duckdb
import sqlglot

from headrace.merge.rewriting import Merging
from headrace.merge.solver import SOLVER_STEPS
from headrace.merge.strategies import Matcher, MergeStrategy, make_matcher
from headrace.optimizer import optimize
from headrace.plan.expressions import Column
from headrace.plan.nodes import Node, OutputMode, Project, Sink, Source, Table
from headrace.plan.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    DataType,
    Schema,
    decimal,
)
from headrace.sql import plan_query
from tests.support.compare import difference, plain_rows
from tests.support.duck import connect, fetch, load, quote
from tests.support.oracle_batch import leaf_name, relation

FIXTURES = Path(__file__).parent.parent / "fixtures" / "merge"
_MONEY = decimal(10, 2)
_COLUMNS: dict[str, DataType] = {
    "i": INT,
    "j": INT,
    "l": BIGINT,
    "m": BIGINT,
    "d": DOUBLE,
    "e": DOUBLE,
    "p": _MONEY,
    "q": _MONEY,
    "s": STRING,
    "t": STRING,
    "b": BOOLEAN,
    "c": BOOLEAN,
    "day": DATE,
    "at": TIMESTAMP,
    "ts": TIMESTAMP,
}


def _schema(names: str) -> Schema:
    return Schema.of([(name, _COLUMNS[name]) for name in names.split()])


CATALOG: dict[str, Source | Table] = {
    "sales": Source("sales", _schema(" ".join(_COLUMNS)), "ts", delay=5_000),
    "visits": Source("visits", _schema("i l d s b ts"), "ts"),
    "returns": Source("returns", _schema("i l d s b ts"), "ts"),
    "shops": Table("shops", _schema("l s i")),
}

_AMOUNTS = (
    "-1.00 0.00 1.00 1.09 1.10 1.50 2.20 2.21 2.25 3.00 3.01 4.00 4.99 5.00 5.24 5.25 5.26 5.50 "
    "5.51 6.00"
)
START = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
#: Values near those that the queries name, so that a bound moved by one is seen.
VALUES: dict[str, tuple[Any, ...]] = {
    "int": (*range(-2, 11), 2, 3, 4, 5, 6),
    "bigint": (*range(-1, 9), 2, 3, 86_400, 86_401),
    "double": (-1.0, -0.5, 0.0, -0.0, 0.5, 1.0, 1.25, 1.5, 2.0, 2.5, 7.5, 100.0, float("nan")),
    _MONEY.name: tuple(map(Decimal, _AMOUNTS.split())),
    "string": ("", "a", "b", "ab", "A", "aab", "ba", " a ", "aXb", "c"),
    "boolean": (True, False),
    "date": tuple(datetime.date(2024, 4, 29) + datetime.timedelta(days=n) for n in range(7)),
    "timestamp": tuple(START + datetime.timedelta(seconds=n) for n in (*range(12), 30, 61)),
}


@dataclass(frozen=True)
class WrittenPair:
    """Two queries, and why they are not found to be one, where they are not."""

    name: str
    one: str
    other: str
    reason: str = ""


@lru_cache
def pairs_of(file: str) -> tuple[WrittenPair, ...]:
    return tuple(_read((FIXTURES / file).read_text()))


@lru_cache
def rewritten_pairs(file: str) -> tuple[tuple[str, str], ...]:
    """Queries, each with those that stand indented below it."""
    pairs, seed = [], ""
    for line in (FIXTURES / file).read_text().splitlines():
        if line.startswith("    "):
            pairs.append((seed, line.strip()))
        elif not line.startswith("#"):
            seed = line
    return tuple(pairs)


def _read(text: str) -> Iterator[WrittenPair]:
    name, lines = "", []
    for line in [*text.splitlines(), ""]:
        if line.startswith("    "):
            lines.append(line.strip())
            continue
        if lines:
            one, other, *reason = lines
            yield WrittenPair(name, one, other, "".join(reason).removeprefix("not found: "))
            lines = []
        if line and not line.startswith("#"):
            name = line


@lru_cache(maxsize=10_000)
def planned(sql: str) -> Node:
    """The plan of a query, as it comes to be merged."""
    return optimize(plan_query(sql, CATALOG, time_zone="UTC").plan).plan


def run_beside(*queries: str) -> list[Node]:
    """What queries run that come one after the other."""
    merging = Merging(MergeStrategy.SM_PLUS)
    sinks: dict[str, Sink] = {}
    for number, sql in enumerate(queries):
        sinks[f"q{number}"] = Sink(planned(sql), f"q{number}", "memory", OutputMode.APPEND)
        merging.update(sinks)
    return [sink.input for sink in merging.update(sinks).values()]


def are_one(one: str, other: str) -> bool:
    """Whether the two are one computation: but for names and the order of columns.

    They mean the same, and what they run is the same, below the projections that rename.
    """
    merger = by_meaning()
    if merger.root(planned(one)) != merger.root(planned(other)):
        return False
    first, second = map(_computation, run_beside(one, other))
    return first == second


def by_meaning() -> Matcher:
    """Finds out what is one, as an engine does."""
    return make_matcher(MergeStrategy.SM_PLUS, False, SOLVER_STEPS, named=False)


def _computation(plan: Node) -> Node:
    while isinstance(plan, Project) and all(isinstance(c.expr, Column) for c in plan.columns):
        plan = plan.input
    return plan


# --- what they give ------------------------------------------------------------------------------


def random_rows(leaf: Source | Table, count: int, chance: random.Random) -> list[dict[str, Any]]:
    time = leaf.time if isinstance(leaf, Source) else None
    return [
        {
            f.name: None
            if f.name != time and chance.random() < 0.1
            else chance.choice(VALUES[f.type.name])
            for f in leaf.schema
        }
        for _ in range(count)
    ]


@lru_cache
def databases() -> tuple[duckdb.DuckDBPyConnection, ...]:
    """Small and larger sets of rows, and no rows at all."""
    made = []
    for seed, count in enumerate((0, 4, 40, 40, 160)):
        chance = random.Random(seed)
        database = connect()
        for leaf in CATALOG.values():
            load(database, leaf_name(leaf), random_rows(leaf, count, chance), leaf.schema)
        made.append(database)
    return tuple(made)


def told_apart(one: str, other: str) -> str:
    """How the results of two queries differ on some rows; empty where they do not.

    The oracle says what a plan gives. Functions that it lacks are left to DuckDB, which then runs
    the text of the query itself.
    """
    kinds = [sorted(f.type.name for f in planned(sql).schema) for sql in (one, other)]
    if kinds[0] != kinds[1]:
        return f"columns of other types: {kinds[0]} and {kinds[1]}"
    for number, database in enumerate(databases()):
        ours, theirs = answer(one, database), answer(other, database)
        missing, extra = difference(ours, theirs)
        if (missing or extra) and not _agree_in_some_order(ours, theirs):
            return f"rows {number}: {missing[:3]} and {extra[:3]}"
    return ""


@lru_cache(maxsize=2_000)
def answer(sql: str, database: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    plan = planned(sql)
    columns = ", ".join(map(quote, plan.schema.names))
    try:
        text = f"SELECT {columns} FROM ({relation(plan, database)})"
    except NotImplementedError:
        (text,) = sqlglot.transpile(sql, read="spark", write="duckdb")
        return plain_rows(database.execute(text).fetchall())
    return plain_rows(fetch(database, text))


def _agree_in_some_order(ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> bool:
    """Whether they are the same rows with their columns in another order."""
    if len(ours) != len(theirs):
        return False
    return any(
        not any(difference(ours, [tuple(row[place] for place in order) for row in theirs]))
        for order in permutations(range(len(ours[0])))
    )
