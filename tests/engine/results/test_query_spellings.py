"""A query over joined streams is one plan, and gives the same rows, however it is written.

Random queries of joins, filters and groups are written with derived tables, CTEs, views, commas
and conditions in the WHERE (``support.spellings``). Their plans must be the same to the letter, and
what the engine makes of them, late rows and all, what the oracle says of the plainest text.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from headrace.engine.execution.executor import Executor
from headrace.errors import SqlError
from headrace.merge.signer import Signer
from headrace.optimizer import optimize
from headrace.plan.json import plan_hash
from headrace.plan.nodes import Node
from headrace.sql import Catalog, plan_query, plan_view
from tests.engine.results.test_join_orders import (
    CATALOG,
    NAMES,
    PASSES,
    check,
    graph_of,
    matching_rows,
    random_condition,
)
from tests.support.engine import task_executor
from tests.support.in_tasks import runs_in_tasks
from tests.support.seeds import Seeds
from tests.support.spellings import Spelling, Written, other_way_round, spelt
from tests.support.tally import Tally

#: So many queries are tried in all, and so many of them run in the default tests.
QUERIES, IN_SHORT = 300, 4


@pytest.fixture(scope="module")
def executor() -> Executor:
    return task_executor()


def random_written(chance: random.Random) -> Written:
    """Joins of two to five streams, bounded by time or not, filtered, and grouped at times."""
    while True:
        aliases = tuple(NAMES[: chance.choice((2, 3, 3, 4, 4, 5))])
        timed = chance.random() < 0.8
        shape = chance.choice(("star", "chain", "any"))
        ties = []
        for position, alias in enumerate(aliases[1:], 1):
            before = aliases[:position]
            partner = {"star": "a", "chain": before[-1], "any": chance.choice(before)}[shape]
            parts = [f"{partner}.k = {alias}.k"]
            if timed:
                parts += random_condition(chance, partner, alias).split(" AND ")
            if chance.random() < 0.2:
                parts.append(f"{partner}.v = {alias}.v")
            ties.append(tuple(parts))
        filters = [f"{chance.choice(aliases)}.v {chance.choice(('>= 0', '< 3', '<> 1'))}"]
        if chance.random() < 0.4:
            filters.append(f"{aliases[0]}.v <= {aliases[-1]}.v")
        one, other = chance.choice(aliases), chance.choice(aliases)
        computed = chance.choice((f"coalesce({one}.v, 7L) % 3", f"{one}.v IS NULL"))
        if timed and chance.random() < 0.3:
            shown = (
                ("a.k", "k"),
                ("count(*)", "n"),
                (f"sum({one}.v)", "total"),
                (f"max({other}.v % 2)", "greatest"),
            )
            groups = f"a.k, window({one}.ts, '{chance.choice((6, 12))} seconds')"
        else:
            columns = [(f"{alias}.{c}", f"{alias}{c}") for alias in aliases for c in ("v", "ts")]
            shown, groups = (("a.k", "k"), *columns, (computed, "computed")), ""
        query = Written(aliases, tuple(ties), tuple(filters[: chance.randrange(3)]), shown, groups)
        try:
            plan = plan_query(query.flat(), CATALOG).plan
        except SqlError as error:
            # Bounds on one side may leave the time of the groups without any.
            if not query.groups or error.condition not in ("NOT_EVENT_TIME", "NO_EVENT_TIME"):
                raise
            continue
        if runs_in_tasks(plan):
            return query


def planned(spelling: Spelling) -> Node:
    catalog: Catalog = dict(CATALOG)
    for name, body in spelling.views.items():
        catalog = {**catalog, name: plan_view(name, body, catalog)[0]}
    return plan_query(spelling.sql, catalog).plan


def turned_spelling(query: Written, chance: random.Random) -> Spelling:
    """The query with its inputs in another order, which is no reason to refuse it."""
    return spelt(other_way_round(query, chance), chance)


def check_plans(seed: int) -> int:
    """One query in several spellings; how many of them are written with a derived table."""
    chance = random.Random(f"query spellings {seed}")
    query = random_written(chance)
    flat = optimize(plan_query(query.flat(), CATALOG).plan).plan
    wanted, derived = plan_hash(flat), 0
    for _ in range(3):
        spelling = spelt(query, chance)
        assert plan_hash(optimize(planned(spelling)).plan) == wanted, (
            f"seed {seed}:\n{query.flat()}\n{spelling.sql}\n{spelling.views}"
        )
        derived += "(SELECT" in spelling.sql or bool(spelling.views)
    # In another order of inputs it means the same, and has as many orders to choose from.
    signer = Signer()
    for _ in range(2):
        turned = turned_spelling(query, chance)
        plan = optimize(planned(turned)).plan
        text = f"seed {seed}:\n{query.flat()}\n{turned.sql}"
        keys = [signer.core(signer.of(p)) for p in (flat, plan)]
        assert keys[0] == keys[1] or query.groups, text
        assert sorted(graph_of(plan).names) == sorted(graph_of(flat).names), text
    return derived


def test_spellings_are_one_plan(seeds: Seeds) -> None:
    assert sum(map(check_plans, seeds.some(0, 40))) > 60


@pytest.mark.slow
def test_spellings_of_hundreds_of_queries_are_one_plan(seeds: Seeds) -> None:
    assert sum(map(check_plans, seeds.some(0, QUERIES))) > QUERIES


def check_rows(seed: int, executor: Executor, folder: Path) -> int:
    chance = random.Random(f"rows of query spellings {seed}")
    query = random_written(chance)
    flat = plan_query(query.flat(), CATALOG).plan
    plans, texts = {"flat": flat}, [query.flat()]
    for number in range(3):
        spelling = spelt(query, chance) if number else turned_spelling(query, chance)
        texts.append(f"{spelling.sql} {spelling.views}")
        plans[f"spelling {number}"] = planned(spelling)
    epochs, tables = matching_rows(chance, flat)
    context = f"seed {seed}:\n" + "\n".join(texts)
    return check(executor, plans, epochs, tables, folder, context, ways=PASSES[:2])


@pytest.mark.parametrize("place", range(IN_SHORT))
def test_spellings_have_the_same_rows(
    place: int, seeds: Seeds, executor: Executor, tmp_path: Path, tally: Tally
) -> None:
    tally.add(check_rows(seeds.one(place), executor, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("place", range(IN_SHORT, QUERIES))
def test_spellings_of_hundreds_of_queries_have_the_same_rows(
    place: int, seeds: Seeds, executor: Executor, tmp_path: Path, tally: Tally
) -> None:
    tally.add(check_rows(seeds.one(place), executor, tmp_path))


# --- Spellings that the generator does not write -------------------------------------------------


def within(one: str, other: str) -> str:
    return f"window({one}, '6 seconds') = window({other}, '6 seconds')"


FLAT = (
    "SELECT a.k AS k, a.v AS x, c.v AS y FROM a "
    f"JOIN b ON a.k = b.k AND {within('a.ts', 'b.ts')} "
    f"JOIN c ON a.k = c.k AND {within('a.ts', 'c.ts')}"
)
SAME = {
    "USING": (
        "SELECT k, a.v AS x, c.v AS y FROM a JOIN b USING (k) JOIN c USING (k) "
        f"WHERE {within('a.ts', 'b.ts')} AND {within('a.ts', 'c.ts')}"
    ),
    "USING, below and above a CTE": (
        "WITH d AS (SELECT k, a.v AS x, a.ts FROM a JOIN b USING (k) "
        f"WHERE {within('a.ts', 'b.ts')}) "
        f"SELECT k, x, c.v AS y FROM d JOIN c USING (k) WHERE {within('d.ts', 'c.ts')}"
    ),
    "NATURAL": (
        "SELECT k, a.x, c.y FROM (SELECT k, v AS x, ts AS t FROM a) a "
        "NATURAL JOIN (SELECT k, ts AS u FROM b) b "
        "NATURAL JOIN (SELECT k, v AS y, ts AS w FROM c) c "
        f"WHERE {within('t', 'u')} AND {within('t', 'w')}"
    ),
    "three derived tables in each other": (
        "SELECT k, x, c.v AS y FROM (SELECT k, x, t FROM (SELECT * FROM (SELECT a.k, a.v AS x, "
        f"a.ts AS t FROM a JOIN b ON a.k = b.k AND {within('a.ts', 'b.ts')}))) d "
        f"JOIN c USING (k) WHERE {within('t', 'c.ts')}"
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_other_spellings_are_one_plan(name: str) -> None:
    plans = [optimize(plan_query(sql, CATALOG).plan).plan for sql in (FLAT, SAME[name])]
    assert plan_hash(plans[0]) == plan_hash(plans[1])


BETWEEN = (
    "SELECT a.v AS x, c.v AS y, i.label FROM a JOIN b ON a.k = b.k AND {ab}{first} "
    "JOIN c ON b.k = c.k AND {bc}{second}"
)


@pytest.mark.parametrize("join", ["JOIN items i ON a.k = i.k", "LEFT JOIN items i ON a.k = i.k"])
def test_a_table_between_joins_is_as_one_after_them(join: str) -> None:
    times = {"ab": within("a.ts", "b.ts"), "bc": within("b.ts", "c.ts")}
    texts = [
        BETWEEN.format(**times, first=f" {join}", second=""),
        BETWEEN.format(**times, first="", second=f" {join}"),
    ]
    between, after = (optimize(plan_query(sql, CATALOG).plan).plan for sql in texts)
    assert plan_hash(between) == plan_hash(after)
    assert graph_of(between).names == ("a", "b", "c")
