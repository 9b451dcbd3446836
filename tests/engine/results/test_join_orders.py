"""Joins in every order, in one pass and in terms, put out in each epoch what the oracle says."""

from __future__ import annotations

import datetime
import random
from dataclasses import replace
from functools import partial
from itertools import permutations
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.joins.join_queries import QUERIES, SETTINGS
from headrace.engine.execution.executor import Executor
from headrace.errors import SqlError
from headrace.optimizer.joins.steps import InvalidOrder, steps_of
from headrace.plan.join_graph import JoinGraph, join_graph, left_deep, topmost_joins, with_order
from headrace.plan.nodes import Node, Order, OutputMode, Source, Table
from headrace.plan.types import BIGINT, STRING, TIMESTAMP, Schema
from headrace.planner.policy import PlannerPolicy
from headrace.sql import plan_query
from tests.support.compare import assert_same_rows
from tests.support.engine import run_engine, task_executor, tiny_executor
from tests.support.oracle import run_epochs
from tests.support.oracle_batch import run_batch
from tests.support.seeds import Seeds, some_and_slow
from tests.support.streams import (
    Epochs,
    Habits,
    Row,
    dense_habits,
    random_epochs,
    random_tables,
    whole,
)
from tests.support.tally import Tally

BEGIN = datetime.datetime(2024, 3, 1, 12, tzinfo=datetime.UTC)
COLUMNS = Schema.of((("k", BIGINT), ("v", BIGINT), ("ts", TIMESTAMP)))
NAMES = "abcdef"
SOURCES = tuple(Source(name, COLUMNS, "ts", 2_000 * i) for i, name in enumerate(NAMES))
ITEMS = Table("items", Schema.of((("k", BIGINT), ("label", STRING))))
CATALOG: dict[str, Source | Table] = {**{s.stream: s for s in SOURCES}, "items": ITEMS}
#: Plans that alternate between the epochs: in one pass, in terms, and whichever costs less.
PASSES = tuple(PlannerPolicy(join_passes=p) for p in ("whole", "terms", "auto"))


@pytest.fixture(scope="module")
def executor() -> Executor:
    return task_executor()


@pytest.fixture(scope="module")
def on_spark(spark: SparkSession) -> Executor:
    return tiny_executor(spark)


def graph_of(plan: Node) -> JoinGraph:
    return join_graph(next(topmost_joins(plan)))


def forced(plan: Node, order: Order) -> Node:
    return with_order(plan, next(topmost_joins(plan)), order)


def check(
    executor: Executor,
    plans: dict[str, Node],
    epochs: Epochs,
    tables: dict[str, list[Row]],
    folder: Path,
    context: str,
    ways: tuple[PlannerPolicy, ...] = PASSES,
) -> int:
    """All plans mean the same: what each puts out, against the first one by the oracle."""
    run = run_engine(
        executor,
        {name: (plan, OutputMode.APPEND) for name, plan in plans.items()},
        CATALOG,
        epochs,
        tables,
        folder,
        restart_after=frozenset({1}),
        plans=ways,
    )
    expected = run_epochs(next(iter(plans.values())), epochs, tables)
    for name in plans:
        for number, (actual, wanted) in enumerate(zip(run.rows[name], expected, strict=True)):
            assert_same_rows(actual, wanted, context=f"epoch {number} of {name}: {context}")
    return sum(map(len, expected))


# --- The paper's queries -------------------------------------------------------------------------


def paper_rows(chance: random.Random, setting: str, hours: int) -> Epochs:
    """Rows of two keys at the paper's rates, in epochs that cut through windows."""
    cuts = [0, hours * 35, hours * 60]
    epochs: Epochs = [{} for _ in cuts[1:]]
    for name, rate in SETTINGS[setting].items():
        times = sorted(chance.uniform(0, hours * 60) for _ in range(2 * rate * hours))
        for index, epoch in enumerate(epochs):
            epoch[name] = [
                {
                    "k": chance.randrange(2),
                    "v": chance.randrange(-50, 50),
                    "ts": BEGIN + datetime.timedelta(minutes=minute),
                }
                for minute in times
                if cuts[index] <= minute < cuts[index + 1]
            ]
    return epochs


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if i % 3 == 0 else pytest.mark.slow) for i, n in enumerate(QUERIES)],
)
def test_every_order_of_the_papers_queries(name: str, executor: Executor, tmp_path: Path) -> None:
    query = QUERIES[name]
    plan = plan_query(query.sql, CATALOG).plan
    count = len(query.streams)
    chance = random.Random(name)
    sequences = list(permutations(range(count)))
    # Exchanging the sides of a first join makes no other order of it: one of them will do.
    orders = [left_deep(s) for s in sequences if s[0] < s[1] or s == (1, 0, 2)]
    if count > 3:
        orders = [*chance.sample(orders, 8), ((0, 1), ((2, 3), 4)), ((0, (1, 2)), (3, 4))]
    plans = {"written": plan}
    plans |= {f"order {order}": forced(plan, order) for order in orders}
    # Equal rates for three streams: at the others hardly a row of c would find a partner.
    epochs = paper_rows(chance, "S1" if count == 3 else "S4", 2 if count == 3 else 1)
    assert check(executor, plans, epochs, {"items": []}, tmp_path, name, ways=PASSES[:2]) > 0


# --- Random graphs of joins ----------------------------------------------------------------------


def random_condition(chance: random.Random, one: str, other: str) -> str:
    """A sliding, tumbling or interval condition, of unequal and one-sided bounds too."""
    kind = chance.choice(("tumbling", "tumbling", "sliding", "sampling", "interval", "interval"))
    length, slide = chance.choice((4, 6, 12)), chance.choice((2, 3, 5))
    low, high = chance.choice((0, 3, 8)), chance.choice((0, 4, 9))
    match kind:
        case "tumbling":
            spec = f"'{length} seconds'"
        case "sliding":
            spec = f"'{length + 3} seconds', '{slide} seconds', '{chance.choice((0, 1))} seconds'"
        case "sampling":
            spec = f"'{length} seconds', '{length + slide} seconds'"
        case _:
            bounds = [
                f"{other}.ts >= {one}.ts - INTERVAL {low} SECONDS",
                f"{other}.ts <= {one}.ts + INTERVAL {high} SECONDS",
            ]
            return " AND ".join(bounds if chance.random() < 0.8 else bounds[:1])
    return f"window({one}.ts, {spec}) = window({other}.ts, {spec})"


def random_join(chance: random.Random, tables: bool) -> str:
    """A chain, a star or anything between, of two to six streams, and maybe a table."""
    count = chance.choice((2, 3, 3, 4, 4, 5, 6))
    aliases = list(NAMES[:count])
    shape = chance.choice(("star", "chain", "any"))
    items = tables and chance.random() < 0.6
    columns = ", ".join(f"{a}.v AS {a}v, {a}.ts AS {a}t" for a in aliases)
    text = f"SELECT a.k, {columns}{', i.label' if items else ''} FROM a"
    if items:
        text += " JOIN items i ON a.k = i.k"
    for position, alias in enumerate(aliases[1:], 1):
        before = aliases[:position]
        partner = {"star": "a", "chain": before[-1], "any": chance.choice(before)}[shape]
        on = f"{partner}.k = {alias}.k AND {random_condition(chance, partner, alias)}"
        if chance.random() < 0.2:
            on += f" AND {partner}.v = {alias}.v"
        if chance.random() < 0.2:
            on += f" AND {chance.choice(before)}.v <= {alias}.v"
        text += f" JOIN {alias} ON {on}"
    return text


def random_query(chance: random.Random, tables: bool) -> tuple[str, Node]:
    """A join whose times stay bounded far enough for all of its conditions."""
    while True:
        sql = random_join(chance, tables)
        try:
            return sql, plan_query(sql, CATALOG).plan
        except SqlError as error:
            if error.condition not in ("NOT_EVENT_TIME", "NO_EVENT_TIME"):
                raise


def random_order(chance: random.Random, graph: JoinGraph) -> Order:
    """A valid order, bushy or not."""
    while True:
        parts: list[Order] = list(range(len(graph.leaves)))
        while len(parts) > 1:
            one, other = chance.sample(parts, 2)
            parts = [part for part in parts if part not in (one, other)] + [(one, other)]
        if not isinstance(steps_of(graph, parts[0]), InvalidOrder):
            return parts[0]


def matching_rows(chance: random.Random, plan: Node) -> tuple[Epochs, dict[str, list[Row]]]:
    """Rows of which some match: more and more, until there are results, and not too many."""
    sources = [source for source in SOURCES if source.stream in plan.streams()]
    epochs: Epochs = []
    tables: dict[str, list[Row]] = {}
    for rows in (4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20):
        dense = partial(crowded_habits, rows=rows)
        tables = random_tables(chance, [ITEMS])
        epochs = random_epochs(chance, sources, epochs=3, habits_of=dense)
        for row in (row for epoch in epochs for some in epoch.values() for row in some):
            # Some joins are by this as well.
            row["v"] = row["v"] and row["v"] % 4
        if any(run_epochs(plan, epochs, tables)):
            break
    return epochs, tables


def crowded_habits(chance: random.Random, step: int, rows: int) -> Habits:
    """Streams of one pace, with so many rows of few keys."""
    return replace(dense_habits(chance, step), rows=rows, keys=2, null_value=0.05, late=0.1)


@pytest.mark.parametrize("place", some_and_slow(range(8), 3))
def test_random_joins(
    place: int, seeds: Seeds, executor: Executor, tmp_path: Path, tally: Tally
) -> None:
    tally.add(check_joins(seeds.one(place), executor, tmp_path))


@pytest.mark.parametrize("place", some_and_slow(range(18), 1))
def test_random_joins_on_spark(
    place: int, seeds: Seeds, on_spark: Executor, tmp_path: Path, tally: Tally
) -> None:
    tally.add(check_joins(seeds.one(place), on_spark, tmp_path, tables=True))


def check_joins(seed: int, executor: Executor, folder: Path, tables: bool = False) -> int:
    """A join in three orders; how many rows are expected. Tables are Spark's."""
    chance = random.Random(f"joins {seed}")
    sql, plan = random_query(chance, tables)
    graph = graph_of(plan)
    plans = {"as planned": plan}
    for number in range(2):
        plans[f"order {number}"] = forced(plan, random_order(chance, graph))
    epochs, items = matching_rows(chance, plan)
    return check(executor, plans, epochs, items, folder, f"seed {seed}: {sql}")


# --- What else a join may stand on ---------------------------------------------------------------

FORMS = {
    "the end of a window handed on": (
        "SELECT p.k, p.av, c.v AS cv FROM "
        "(SELECT a.k, a.v AS av, window_time(window) AS t FROM a JOIN b ON a.k = b.k "
        "AND window(a.ts, '6 seconds', '3 seconds') = window(b.ts, '6 seconds', '3 seconds')) p "
        "JOIN c ON p.k = c.k AND window(p.t, '10 seconds') = window(c.ts, '10 seconds')"
    ),
    "no condition on time": (
        "SELECT a.k, b.v AS bv, c.v AS cv FROM a JOIN b ON a.k = b.k JOIN c ON b.v = c.v"
    ),
    "aggregated": (
        "SELECT a.k, window, count(*) AS n, sum(c.v) AS total FROM a "
        "JOIN b ON a.k = b.k AND window(a.ts, '6 seconds') = window(b.ts, '6 seconds') "
        "JOIN c ON a.k = c.k AND c.ts BETWEEN a.ts - INTERVAL 3 SECONDS AND a.ts "
        "GROUP BY a.k, window(b.ts, '12 seconds')"
    ),
    "a table in the middle": (
        "SELECT a.k, i.label, c.v AS cv FROM a "
        "JOIN b ON a.k = b.k AND window(a.ts, '6 seconds') = window(b.ts, '6 seconds') "
        "LEFT JOIN items i ON b.v = i.k "
        "JOIN c ON a.k = c.k AND window(a.ts, '9 seconds') = window(c.ts, '9 seconds')"
    ),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_forms(name: str, seed: int, on_spark: Executor, tmp_path: Path) -> None:
    chance = random.Random(f"{name} {seed}")
    plan = plan_query(FORMS[name], CATALOG).plan
    epochs = random_epochs(chance, SOURCES[:4], epochs=4)
    tables = random_tables(chance, [ITEMS])
    check(on_spark, {"as planned": plan}, epochs, tables, tmp_path, f"{name}, seed {seed}")


ABOVE_SESSIONS = {
    "a window": (
        "SELECT a.k, window, count(*) AS n FROM a JOIN b ON a.k = b.k "
        "AND session_window(a.ts, '2 minutes') = session_window(b.ts, '2 minutes') "
        "GROUP BY a.k, window(b.ts, '10 minutes')"
    ),
    "an interval": (
        "SELECT a.k, a.v AS av, c.v AS cv FROM a JOIN b ON a.k = b.k "
        "AND session_window(a.ts, '2 minutes') = session_window(b.ts, '2 minutes') "
        "JOIN c ON a.k = c.k AND c.ts BETWEEN a.ts - INTERVAL 3 MINUTES AND a.ts"
    ),
    "sessions": (
        "SELECT a.k, a.v AS av, c.v AS cv FROM a JOIN b ON a.k = b.k "
        "AND session_window(a.ts, '2 minutes') = session_window(b.ts, '2 minutes') "
        "JOIN c ON b.k = c.k "
        "AND session_window(b.ts, '1 minutes') = session_window(c.ts, '1 minutes')"
    ),
}


@pytest.mark.parametrize("name", ABOVE_SESSIONS)
def test_times_that_sessions_hand_on(name: str, executor: Executor, tmp_path: Path) -> None:
    """Rows of a session come out when it closes, however old they are: none of them is late."""
    plan = plan_query(ABOVE_SESSIONS[name], CATALOG).plan
    epochs = paper_rows(random.Random(name), "S1", 2)
    end: Row = {"k": 99, "v": 0, "ts": BEGIN + datetime.timedelta(days=2)}
    epochs.append({stream: [end] for stream in "abc"})
    run = run_engine(
        executor,
        {"q": (plan, OutputMode.APPEND)},
        CATALOG,
        epochs,
        {"items": []},
        tmp_path,
        restart_after=frozenset({1}),
    )
    found = [row for rows in run.rows["q"] for row in rows if row[0] != 99]
    expected = [row for row in run_batch(plan, whole(epochs)) if row[0] != 99]
    assert len(expected) > 10
    assert_same_rows(found, expected, context=name)
    assert sum(sum(report.late.values()) for report in run.reports) == 0
