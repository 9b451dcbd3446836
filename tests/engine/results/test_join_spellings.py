"""One join, written in many ways, is one plan, and gives the same rows in the same epochs.

The oracle is asked about the join as written with ON; the engine runs the other spellings.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from headrace.engine.execution.executor import Executor
from headrace.optimizer import optimize
from headrace.plan.json import plan_hash
from headrace.plan.nodes import Node
from headrace.sql import Catalog, plan_query, plan_view
from tests.engine.results.test_join_orders import (
    CATALOG,
    PASSES,
    check,
    matching_rows,
    random_query,
)
from tests.support.engine import task_executor
from tests.support.seeds import Seeds
from tests.support.tally import Tally


@pytest.fixture(scope="module")
def executor() -> Executor:
    return task_executor()


def respelled(sql: str, chance: random.Random) -> str:
    """The same inner joins with some or all of their conditions in the WHERE.

    Conditions of one join keep their order; where they stand among others is anybody's guess.
    """
    head, *joins = re.split(r" JOIN ", sql)
    commas = chance.random() < 0.5
    text, where = head, list[list[str]]()
    for join in joins:
        alias, condition = join.split(" ON ")
        parts = condition.split(" AND ")
        first_out = 0 if commas else chance.randrange(len(parts) + 1)
        here, out = parts[:first_out], parts[first_out:]
        where.append([mirrored(part, chance) for part in out])
        if here:
            text += f" JOIN {alias} ON {' AND '.join(here)}"
        else:
            text += chance.choice((f", {alias}", f" CROSS JOIN {alias}", f" JOIN {alias}"))
    conditions = []
    while any(where):
        conditions.append(chance.choice([parts for parts in where if parts]).pop(0))
    if not conditions:
        return text
    return f"{text} WHERE {' AND '.join(conditions)}"


def mirrored(condition: str, chance: random.Random) -> str:
    """An equality may be written from either side, and a condition stand in parentheses."""
    one, equals, other = condition.partition(" = ")
    if equals and chance.random() < 0.5:
        condition = f"{other} = {one}"
    return f"({condition})" if chance.random() < 0.3 else condition


def optimized(sql: str, catalog: Catalog = CATALOG) -> Node:
    return optimize(plan_query(sql, catalog).plan).plan


def test_spellings_have_one_plan(seeds: Seeds) -> None:
    taken = 0
    for seed in seeds.some(0, 40):
        chance = random.Random(f"spellings {seed}")
        sql, plan = random_query(chance, tables=seed % 2 == 0)
        wanted = plan_hash(optimize(plan).plan)
        for _ in range(3):
            other = respelled(sql, chance)
            assert plan_hash(optimized(other)) == wanted, f"seed {seed}: {sql}\n{other}"
            taken += " WHERE " in other
        # A view of all of it is the same query again.
        catalog = {**CATALOG, "joined": plan_view("joined", other, CATALOG)[0]}
        assert plan_hash(optimized("SELECT * FROM joined", catalog)) == wanted, f"seed {seed}"
    assert taken > 80


@pytest.mark.parametrize(
    "place", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 12))]
)
def test_spellings_have_the_same_rows(
    place: int, seeds: Seeds, executor: Executor, tmp_path: Path, tally: Tally
) -> None:
    seed = seeds.one(place)
    chance = random.Random(f"rows of spellings {seed}")
    sql, plan = random_query(chance, tables=False)
    plans = {"with ON": plan}
    for number in range(2):
        plans[f"spelling {number}"] = plan_query(respelled(sql, chance), CATALOG).plan
    epochs, tables = matching_rows(chance, plan)
    context = f"seed {seed}: {sql}"
    tally.add(check(executor, plans, epochs, tables, tmp_path, context, ways=PASSES[:2]))


#: Joins whose WHERE leaves no row without a partner, and a condition that says it of either side.
ON = "ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL 3 SECONDS AND a.ts + INTERVAL 4 SECONDS"
SAID = {"LEFT": "b.v >= 0", "RIGHT": "a.v IS NOT NULL", "FULL": "a.v + b.v < 6"}
SELECTED = {
    "rows": ("SELECT a.k, a.v AS av, b.v AS bv, a.ts AS at", ""),
    "groups": ("SELECT a.k, count(*) AS n", "GROUP BY a.k, window({side}.ts, '6 seconds')"),
}


@pytest.mark.parametrize("shape", SELECTED)
@pytest.mark.parametrize("kind", SAID)
def test_an_outer_join_of_pairs_is_inner(
    kind: str, shape: str, seeds: Seeds, executor: Executor, tmp_path: Path
) -> None:
    select, group = SELECTED[shape]
    # A full join keeps neither time.
    if kind == "FULL" and group:
        pytest.skip("no time of a full join can be grouped by")
    group = group.format(side="b" if kind == "RIGHT" else "a")
    where = f"WHERE {SAID[kind]} {group}"
    outer = plan_query(f"{select} FROM a {kind} JOIN b {ON} {where}", CATALOG).plan
    inner = f"{select} FROM a JOIN b {ON} {where}"
    assert plan_hash(optimize(outer).plan) == plan_hash(optimized(inner))
    epochs, tables = matching_rows(random.Random(f"{kind} {shape} {seeds.one(0)}"), outer)
    plans = {"outer": outer, "inner": plan_query(inner, CATALOG).plan}
    assert check(executor, plans, epochs, tables, tmp_path, kind, ways=PASSES[:1]) > 0
