"""Bounds on time hold over the whole of a tree of joins, in whatever order its inputs are written.

Random queries have bounds on one side and on both, windows, several conditions of one input and
inputs that nothing bounds. Written in other orders they must mean the same, keep rows as long, and
put out what the oracle says of them, late rows and all.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from headrace.engine.execution.executor import Executor
from headrace.errors import SqlError
from headrace.merge.signer import Signer
from headrace.optimizer import optimize
from headrace.plan.join_graph import JoinGraph, join_graph, topmost_joins
from headrace.plan.nodes import Join, Node
from headrace.plan.reach import Reach
from headrace.sql import plan_query
from tests.engine.results.test_join_orders import CATALOG, NAMES, PASSES, check, matching_rows
from tests.support.compare import assert_same_rows
from tests.support.engine import task_executor
from tests.support.oracle import run_epochs
from tests.support.seeds import Seeds
from tests.support.spellings import Written, other_way_round
from tests.support.tally import Tally

QUERIES, IN_SHORT, ROWS_IN_SHORT = 400, 60, 3


@pytest.fixture(scope="module")
def executor() -> Executor:
    return task_executor()


def random_tie(
    chance: random.Random, one: str, other: str, strict: bool = False
) -> tuple[str, ...]:
    """A window, or bounds on one side more often than on both."""
    low, high = chance.choice((0, 3, 8)), chance.choice((0, 4, 9))
    bounds = (
        f"{other}.ts >= {one}.ts - INTERVAL {low} SECONDS",
        f"{other}.ts {'<' if strict else '<='} {one}.ts + INTERVAL {high} SECONDS",
    )
    kind = chance.choice(("window", "lower", "lower", "upper", "upper", "both"))
    match kind:
        case "window":
            return (f"window({one}.ts, '6 seconds') = window({other}.ts, '6 seconds')",)
        case "lower":
            return bounds[:1]
        case "upper":
            return bounds[1:]
        case _:
            return bounds


def random_written(chance: random.Random, unbounded: float, strict: float = 0.0) -> Written:
    """Joins of three or four inputs; of so many nothing is said of the times."""
    aliases = tuple(NAMES[: chance.choice((3, 3, 4))])
    ties = []
    for position, alias in enumerate(aliases[1:], 1):
        before = aliases[:position]
        parts = [f"{chance.choice(before)}.k = {alias}.k"]
        if chance.random() >= unbounded:
            for partner in chance.sample(before, min(position, chance.choice((1, 1, 2)))):
                parts += random_tie(chance, partner, alias, chance.random() < strict)
        ties.append(tuple(parts))
    shown = tuple((f"{alias}.{c}", f"{alias}{c}") for alias in aliases for c in ("v", "ts"))
    return Written(aliases, tuple(ties), (), shown)


def kept(plan: Node) -> list[dict[tuple[str, str], Reach]]:
    """For each tree that is bounded in time how far rows of its inputs may lie apart, by names."""
    graphs = [join_graph(join) for join in topmost_joins(plan)]
    return sorted((reaches_of(graph) for graph in graphs if graph.timed), key=sorted)


def reaches_of(graph: JoinGraph) -> dict[tuple[str, str], Reach]:
    return {
        (graph.names[one], graph.names[other]): reach
        for one, reaches in enumerate(graph.reaches)
        for other, reach in reaches.items()
    }


def planned(query: Written) -> Node | None:
    """Its plan; None where a tree that hands on no time is to be joined by keys alone."""
    try:
        return optimize(plan_query(query.flat(), CATALOG).plan).plan
    except SqlError as error:
        if error.condition != "JOIN_WITHOUT_EVENT_TIME":
            raise
        return None


def check_orders(seed: int) -> int:
    """One query in several orders; how many of those bound what left to right would not."""
    chance = random.Random(f"bounds in any order {seed}")
    query = random_written(chance, unbounded=chance.choice((0.0, 0.3)))
    orders = [other_way_round(query, chance) for _ in range(3)]
    flat = planned(query)
    if flat is None:
        assert [planned(turned) for turned in orders] == [None] * 3, f"seed {seed}: {query.flat()}"
        return 0
    signer, turned_about = Signer(), 0
    for turned in orders:
        text = f"seed {seed}:\n{query.flat()}\n{turned.flat()}"
        plan = planned(turned)
        assert plan is not None, text
        keys = [signer.core(signer.of(p)) for p in (flat, plan)]
        assert keys[0] == keys[1], text
        assert kept(flat) == kept(plan), text
        turned_about += any(not any(".ts" in part for part in some) for some in turned.ties)
    return turned_about


def test_orders_of_inputs_are_one_meaning(seeds: Seeds) -> None:
    assert sum(map(check_orders, seeds.some(0, IN_SHORT))) > IN_SHORT / 4


@pytest.mark.slow
def test_orders_of_inputs_of_hundreds_of_queries_are_one_meaning(seeds: Seeds) -> None:
    assert sum(map(check_orders, seeds.some(0, QUERIES))) > QUERIES / 4


def check_rows(seed: int, executor: Executor, folder: Path) -> int:
    chance = random.Random(f"rows of bounds in any order {seed}")
    unbounded = chance.choice((0.0, 0.0, 0.3))
    query = random_written(chance, unbounded, strict=0.3)
    while planned(query) is None:
        query = random_written(chance, unbounded, strict=0.3)
    orders = [query, other_way_round(query, chance), other_way_round(query, chance)]
    plans = {f"order {n}": plan_query(q.flat(), CATALOG).plan for n, q in enumerate(orders)}
    epochs, tables = matching_rows(chance, plans["order 0"])
    context = f"seed {seed}:\n" + "\n".join(q.flat() for q in orders)
    expected = run_epochs(plans["order 0"], epochs, tables)
    for plan in (plans["order 1"], plans["order 2"]):
        for rows, wanted in zip(run_epochs(plan, epochs, tables), expected, strict=True):
            assert_same_rows(rows, wanted, context=f"the oracle of {context}")
    return check(executor, plans, epochs, tables, folder, context, ways=PASSES[:2])


@pytest.mark.parametrize(
    "place",
    [pytest.param(n, marks=[] if n < ROWS_IN_SHORT else pytest.mark.slow) for n in range(60)],
)
def test_orders_of_inputs_have_the_same_rows(
    place: int, seeds: Seeds, executor: Executor, tmp_path: Path, tally: Tally
) -> None:
    tally.add(check_rows(seeds.one(place), executor, tmp_path))


# --- What is bounded, and what is not ------------------------------------------------------------

NOT_LATER = "{1}.ts >= {0}.ts - INTERVAL 5 SECONDS"
NOT_EARLIER = "{1}.ts <= {0}.ts + INTERVAL 5 SECONDS"


@pytest.mark.parametrize(
    "sql",
    [
        "FROM a JOIN b ON a.k = b.k AND {ab} JOIN c ON a.k = c.k AND {bc} AND {ca}",
        "FROM a JOIN c ON a.k = c.k AND {ca} JOIN b ON a.k = b.k AND {ab} AND {bc}",
        "FROM c JOIN b ON c.k = b.k AND {bc} JOIN a ON a.k = b.k AND {ab} AND {ca}",
        "FROM a, b, c WHERE a.k = b.k AND a.k = c.k AND {ca} AND {bc} AND {ab}",
    ],
)
def test_bounds_on_one_side_bound_a_pair_through_other_inputs(sql: str) -> None:
    """b is at most 5 seconds before a, c before b, and a before c: around the circle, each is at
    most 10 seconds after another."""
    ties = {two: NOT_LATER.format(*two) for two in ("ab", "bc", "ca")}
    (reaches,) = kept(plan_query(f"SELECT a.v {sql.format(**ties)}", CATALOG).plan)
    for one, other in ("ab", "bc", "ca"):
        assert reaches[one, other] == Reach(5_000, 10_000)


@pytest.mark.parametrize(
    "sql",
    [
        "FROM a JOIN b ON a.k = b.k JOIN c ON a.k = c.k AND {ac}",
        "FROM a JOIN c ON a.k = c.k AND {ac} JOIN b ON a.k = b.k",
        "FROM b JOIN a ON a.k = b.k JOIN c ON a.k = c.k AND {ac}",
        "FROM b, c, a WHERE a.k = c.k AND {ac} AND a.k = b.k",
    ],
)
def test_an_input_that_nothing_bounds_is_joined_by_its_key_to_what_is_bounded(sql: str) -> None:
    plan = plan_query(f"SELECT a.v {sql.format(ac=NOT_EARLIER.format(*'ac'))}", CATALOG).plan
    joins = [node for node in plan.walk() if isinstance(node, Join)]
    assert sorted((join.time is not None, sorted(join.streams())) for join in joins) == [
        (False, ["a", "b", "c"]),
        (True, ["a", "c"]),
    ]


AB, BC = NOT_LATER.format(*"ab"), NOT_EARLIER.format(*"bc")
WINDOWS = "window({0}.ts, '6 seconds') = window({1}.ts, '6 seconds')"
ALIKE = {
    "a table that ties": (
        f"FROM a JOIN b ON a.k = b.k AND {AB} JOIN items i ON b.k = i.k JOIN c ON c.k = b.k "
        f"AND {BC}",
        "FROM a JOIN items i ON a.k = i.k JOIN c ON a.k = c.k JOIN b ON a.k = b.k AND b.k = i.k "
        f"AND {AB} AND {BC}",
    ),
    "two pairs": (
        f"FROM a JOIN b ON a.k = b.k AND {AB} JOIN (c JOIN d ON c.k = d.k AND c.ts = d.ts) "
        "ON b.k = c.k",
        f"FROM a JOIN c ON a.k = c.k JOIN d ON c.k = d.k AND c.ts = d.ts JOIN b ON c.k = b.k "
        f"AND a.k = b.k AND {AB}",
    ),
    "several windows": (
        f"FROM a JOIN b ON a.k = b.k AND {WINDOWS.format(*'ab')} JOIN c ON b.k = c.k "
        f"AND {WINDOWS.format(*'bc')}",
        f"FROM a JOIN c ON a.k = c.k JOIN b ON b.k = c.k AND {WINDOWS.format(*'ab')} "
        f"AND {WINDOWS.format(*'bc')}",
    ),
}


@pytest.mark.parametrize("name", ALIKE)
def test_orders_of_other_forms(name: str) -> None:
    texts = [f"SELECT a.v AS x, c.v AS y {sql}" for sql in ALIKE[name]]
    one, other = (optimize(plan_query(text, CATALOG).plan).plan for text in texts)
    assert kept(one) == kept(other)
    assert kept(one)
    signer = Signer()
    # Which key a table goes by makes a difference to the plan.
    assert "table" in name or signer.core(signer.of(one)) == signer.core(signer.of(other))


def test_a_key_that_can_raise_ties_what_nothing_else_ties() -> None:
    plan = plan_query(
        f"SELECT a.v FROM a, c, b WHERE a.k + 1 = c.k AND a.k = b.k AND {AB}", CATALOG
    ).plan
    joins = [node for node in plan.walk() if isinstance(node, Join)]
    assert sorted((join.time is not None, len(join.keys)) for join in joins) == [
        (False, 1),
        (True, 1),
    ]
