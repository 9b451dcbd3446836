"""Multi-way joins that probe indexes put out in each epoch what the oracle says.

Random graphs of joins over random arrivals: late and repeated rows, hot keys, keys that one stream
alone has, NULLs, streams that are empty or stop, rows that expire; with restarts, merged files, and
strategies that change between the epochs.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.engine.execution.duckdb.probe_kernel import MOST_ROWS
from headrace.engine.execution.executor import Executor
from headrace.optimizer.probing.strategies import STRATEGIES
from headrace.plan.nodes import Node, OutputMode, Source, Table
from headrace.plan.types import BIGINT, DATE, INT, STRING, TIMESTAMP, Schema
from headrace.planner.policy import PlannerPolicy, ProbeCycle
from headrace.sql import plan_query
from tests.support.compare import assert_same_rows
from tests.support.engine import run_engine, task_executor, tiny_executor
from tests.support.oracle import run_epochs
from tests.support.seeds import Seeds
from tests.support.streams import Epochs, Row
from tests.support.tally import Tally

BEGIN = datetime.datetime(2024, 3, 1, 12, tzinfo=datetime.UTC)
COLUMNS = Schema.of(
    (("k", BIGINT), ("j", INT), ("s", STRING), ("d", DATE), ("v", BIGINT), ("ts", TIMESTAMP))
)
NAMES = "abcdef"
CATALOG: dict[str, Source | Table] = {
    name: Source(name, COLUMNS, "ts", 2_000 * i) for i, name in enumerate(NAMES)
}
#: Columns that may be equal: whole numbers of two widths, texts, and days.
KEYS = (("k", "k"), ("k", "k"), ("k", "j"), ("j", "j"), ("s", "s"), ("d", "d"), ("k", "v"))


def plans_of(**policy: Any) -> PlannerPolicy:
    return PlannerPolicy(probe_cycle=ProbeCycle(epochs=1), **policy)


#: Every strategy, and the delta join that reads all rows.
STRATEGY_PLANS = (
    *(plans_of(probe_strategy=name, least_gain=0.0) for name in STRATEGIES),
    plans_of(probe_use="never"),
)


@pytest.fixture(scope="module")
def executor() -> Executor:
    return task_executor()


# --- Random joins and arrivals -------------------------------------------------------------------


def random_graph(chance: random.Random, names: str) -> str:
    """A connected graph as SQL: a star, a chain, a cycle, or anything in between."""
    shape = chance.choice(("star", "chain", "cycle", "any"))
    parts = []
    for position, name in enumerate(names):
        if position == 0:
            parts.append(f"FROM {name}")
            continue
        partner = {"star": 0, "any": chance.randrange(position)}.get(shape, position - 1)
        on = equalities(chance, names[partner], name)
        if position == len(names) - 1 and position > 1 and shape == "cycle":
            on += equalities(chance, names[0], name)
        if chance.random() < 0.15:
            on.append(f"{names[partner]}.v {chance.choice(('<', '<=', '<>'))} {name}.v + 1")
        parts.append(f"JOIN {name} ON {' AND '.join(on)}")
    columns = ", ".join(
        f"{name}.{column} AS {name}{column}" for name in names for column in ("k", "v", "s")
    )
    where = f" WHERE {names[0]}.v > -3" if chance.random() < 0.2 else ""
    return f"SELECT {columns} {' '.join(parts)}{where}"


def matching_graph(
    chance: random.Random, size: int, catalog: dict[str, Source | Table], epochs: Epochs
) -> str:
    """One of several graphs, of which rows are expected if that is so of any."""
    sql = ""
    for _ in range(6):
        sql = random_graph(chance, "".join(chance.sample(NAMES, size)))
        if any(run_epochs(plan_query(sql, catalog).plan, epochs, {})):
            break
    return sql


def equalities(chance: random.Random, one: str, other: str) -> list[str]:
    chosen = chance.sample(KEYS, chance.choice((1, 1, 2)))
    return [f"{one}.{ours} = {other}.{theirs}" for ours, theirs in chosen]


def random_rows(chance: random.Random, epochs: int, names: str, domain: int) -> Epochs:
    found: Epochs = []
    empty = chance.choice(names) if chance.random() < 0.15 else None
    stops = chance.choice(names) if chance.random() < 0.5 else None
    only = {name: chance.choice((0, 0, 2)) for name in names}
    hot = chance.choice((0.0, 0.0, 0.4))
    for number in range(epochs):
        found.append({})
        for name in names:
            if name == empty or (name == stops and number > 1) or chance.random() < 0.1:
                continue
            rows = [
                random_row(chance, number, domain, hot, only[name])
                for _ in range(chance.choice((2, 6, 10)))
            ]
            if rows and chance.random() < 0.3:
                rows.append(dict(chance.choice(rows)))
            found[-1][name] = rows
    return found


def random_row(chance: random.Random, epoch: int, domain: int, hot: float, only: int) -> Row:
    def number() -> int | None:
        if chance.random() < 0.07:
            return None
        # A stream with keys of its own has them beyond everybody else's.
        return 0 if chance.random() < hot else chance.randrange(domain + only) - 1

    late = 30 if chance.random() < 0.1 else 0
    seconds = epoch * 10 + chance.uniform(0, 10) - late
    day = number()
    return {
        "k": number(),
        "j": number(),
        "s": None if chance.random() < 0.1 else chance.choice(("", "a", "é", "it's", "b")),
        "d": None if day is None else datetime.date(2024, 1, 10) + datetime.timedelta(days=day),
        "v": number(),
        "ts": BEGIN + datetime.timedelta(seconds=seconds),
    }


def check(
    executor: Executor,
    queries: dict[str, str],
    epochs: Epochs,
    folder: Path,
    plans: tuple[PlannerPolicy, ...],
    catalog: dict[str, Source | Table] = CATALOG,
    restart_after: frozenset[int] = frozenset(),
) -> dict[str, int]:
    """Compare all epochs of all queries with the oracle; how many results each has."""
    planned: dict[str, Node] = {n: plan_query(sql, catalog).plan for n, sql in queries.items()}
    run = run_engine(
        executor,
        {name: (plan, OutputMode.APPEND) for name, plan in planned.items()},
        catalog,
        epochs,
        {},
        folder,
        restart_after=restart_after,
        compaction=3,
        plans=plans,
    )
    results = dict.fromkeys(planned, 0)
    for name, plan in planned.items():
        expected = run_epochs(plan, epochs, {})
        for number, (actual, wanted) in enumerate(zip(run.rows[name], expected, strict=True)):
            assert_same_rows(actual, wanted, context=f"epoch {number} of {queries[name]}")
            results[name] += len(wanted)
    return results


@pytest.mark.parametrize(
    "place", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 12))]
)
def test_random_graphs_of_two_to_six_streams(
    place: int, seeds: Seeds, executor: Executor, tmp_path: Path, tally: Tally
) -> None:
    seed = seeds.one(place)
    chance = random.Random(f"probe joins {seed}")
    ttl = [chance.choice((None, 0, 8_000, 25_000)) for _ in NAMES]
    catalog: dict[str, Source | Table] = {
        name: replace(source, ttl=ttl[i])
        for i, (name, source) in enumerate(CATALOG.items())
        if isinstance(source, Source)
    }
    # More streams need more keys, or there would be millions of results.
    epochs = random_rows(chance, 5, NAMES, domain=chance.choice((4, 7)))
    queries = {}
    for number in range(4):
        size = (2, 3, 4, 5, 6, 3)[(seed + number) % 6]
        queries[f"q{number}"] = matching_graph(chance, size, catalog, epochs)
    plans = tuple(chance.sample(STRATEGY_PLANS, 3))
    restart = frozenset({2}) if chance.random() < 0.5 else frozenset()
    for results in check(executor, queries, epochs, tmp_path, plans, catalog, restart).values():
        tally.add(results)


# --- What must not depend on chance --------------------------------------------------------------

STAR = "SELECT a.k, a.v AS av, b.v AS bv, c.v AS cv FROM a JOIN b ON a.k = b.k JOIN c ON a.k = c.k"


def rows_of(count: int, key: Callable[[int], int | None], epoch: int = 0) -> list[Row]:
    return [
        {
            "k": key(i),
            "j": i % 7,
            "s": str(i % 5),
            "d": None,
            "v": i,
            "ts": BEGIN + datetime.timedelta(seconds=10 * epoch, milliseconds=i),
        }
        for i in range(count)
    ]


def test_a_hot_key_is_joined_in_pieces(executor: Executor, tmp_path: Path) -> None:
    """One key has nearly all rows, and more results than are ever held at once."""
    epochs = [{name: rows_of(45, lambda i: 0 if i else 1, e) for name in "abc"} for e in range(2)]
    assert sum(check(executor, {"q": STAR}, epochs, tmp_path, (plans_of(),)).values()) > MOST_ROWS


def test_keys_of_one_side_and_streams_that_stop(executor: Executor, tmp_path: Path) -> None:
    epochs: Epochs = [
        {"a": rows_of(9, lambda i: i), "b": rows_of(9, lambda i: i + 100)},
        {"c": rows_of(9, lambda i: i, 1)},
        {"a": rows_of(3, lambda i: i + 100, 2), "c": rows_of(3, lambda i: i + 101, 2)},
        {},
        {"c": rows_of(9, lambda i: i + 99, 4)},
    ]
    assert sum(check(executor, {"q": STAR}, epochs, tmp_path, (plans_of(),)).values()) > 0


def test_several_queries_share_one_probe(executor: Executor, tmp_path: Path) -> None:
    """Two sinks read the same join, with other columns; a third one has a filter of its own."""
    queries = {
        "all": STAR,
        "few": STAR.replace("SELECT a.k, ", "SELECT "),
        "filtered": f"{STAR} WHERE a.v > 3",
        "text": STAR.replace(".k", ".s"),
    }
    epochs = [{name: rows_of(20, lambda i: i % 6, e) for name in "abc"} for e in range(3)]
    check(executor, queries, epochs, tmp_path, (plans_of(),))


def test_windows_and_intervals_beside_equal_keys(executor: Executor, tmp_path: Path) -> None:
    """Asked to, joins with conditions on time are probed as well."""
    within = "b.ts BETWEEN a.ts - INTERVAL 4 SECONDS AND a.ts + INTERVAL 6 SECONDS"
    same = "window(a.ts, '8 seconds') = window(c.ts, '8 seconds')"
    queries = {
        "interval": f"SELECT a.k, a.v, b.v AS bv FROM a JOIN b ON a.k = b.k AND {within}",
        "both": f"SELECT a.k, a.v, b.v AS bv, c.v AS cv FROM a JOIN b ON a.k = b.k AND {within} "
        f"JOIN c ON a.k = c.k AND {same}",
        # Rows of the state join are the input of a window join, and the other way round.
        "above": "SELECT s.k, s.av, c.v FROM (SELECT a.k, a.v AS av, a.ts FROM a JOIN b "
        "ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 5 SECONDS) s JOIN c ON s.k = c.k",
    }
    epochs = [{name: rows_of(10, lambda i: i % 4, e) for name in "abc"} for e in range(4)]
    plans = (plans_of(probe_use="always"), plans_of(probe_use="auto"))
    assert (
        sum(
            check(executor, queries, epochs, tmp_path, plans, restart_after=frozenset({1})).values()
        )
        > 0
    )


def test_an_input_that_has_two_keys_of_one_class(executor: Executor, tmp_path: Path) -> None:
    """From a.k = b.k and a.v = b.k follows a.k = a.v."""
    queries = {
        "two": "SELECT a.k, a.v, b.v AS bv FROM a JOIN b ON a.k = b.k AND a.v = b.k",
        "three": "SELECT a.k, c.v FROM a JOIN b ON a.k = b.k JOIN c ON b.k = c.k AND a.k = c.j",
    }
    epochs = [{name: rows_of(14, lambda i: i % 9, e) for name in "abc"} for e in range(2)]
    assert (
        sum(
            check(
                executor, queries, epochs, tmp_path, (plans_of(), plans_of(probe_use="never"))
            ).values()
        )
        > 0
    )


#: Equalities that no index holds as they are, each beside others that tie the inputs together.
BESIDE_OTHERS = {
    "fractions": "a.v / 2.0e0 = c.v / 2.0e0",
    "fractions that are missing": "nullif(a.v, 3) * 0.5e0 = nullif(c.v, 3) * 0.5e0",
    "two fractions": "a.v * 0.5e0 = b.v * 0.5e0 AND b.v * 0.5e0 = c.v * 0.5e0",
    "decimals": "CAST(a.j AS DECIMAL(12,2)) = CAST(c.j AS DECIMAL(14,3))",
    "a text in capitals": "upper(a.s) = upper(c.s)",
    "a choice": "coalesce(a.s, 'none') = coalesce(c.s, 'none')",
    "another choice": "CASE WHEN a.v > 3 THEN a.k ELSE a.v END = coalesce(c.k, c.v, 0)",
    "NULLs as well": "a.s <=> c.s",
}


@pytest.mark.parametrize("name", BESIDE_OTHERS)
def test_keys_that_no_index_holds_are_conditions(
    name: str, executor: Executor, tmp_path: Path
) -> None:
    """Without Spark: a condition on one pair of inputs does not keep tasks from the whole join."""
    text = BESIDE_OTHERS[name]
    queries = {
        "more": f"{STAR} AND {text}",
        "chain": f"{STAR.replace('a.k = c.k', 'b.j = c.j')} AND {text}",
    }
    epochs: Epochs = [
        {n: rows_of(9, lambda i: i % 4 if i % 5 else None, e) for n in "abc"} for e in range(3)
    ]
    plans = (plans_of(), plans_of(probe_use="never"), plans_of(probe_strategy="fixed_order"))
    results = check(executor, queries, epochs, tmp_path, plans, restart_after=frozenset({1}))
    assert all(results.values())


def test_nulls_are_equal_where_the_query_says_so(executor: Executor, tmp_path: Path) -> None:
    """``<=>`` is a key, also of ``CROSS JOIN`` and commas with a WHERE."""
    queries = {
        "numbers": STAR.replace(" = ", " <=> "),
        "texts": STAR.replace(".k = ", ".s <=> ").replace("c.k", "c.s").replace("b.k", "b.s"),
        "days, all of them missing": "SELECT a.k, b.k AS bk FROM a, b WHERE b.d <=> a.d",
        "one of two": "SELECT a.k, b.k AS bk FROM a CROSS JOIN b WHERE a.j = b.j AND a.k <=> b.k",
    }
    epochs: Epochs = [
        {n: rows_of(5, lambda i: i if i % 3 else None, e) for n in "abc"} for e in range(2)
    ]
    plans = (plans_of(), plans_of(probe_use="never"))
    assert all(check(executor, queries, epochs, tmp_path, plans).values())


def test_spark_runs_what_tasks_cannot(spark: SparkSession, tmp_path: Path) -> None:
    """Keys that are fractions, and results that Spark alone can compute."""
    executor = tiny_executor(spark, executor="auto")
    queries = {
        "fractions": STAR.replace(".k", ".k / 2.0e0").replace("SELECT a.k / 2.0e0", "SELECT a.k"),
        "function": STAR.replace("a.k,", "initcap(a.s) AS k,"),
    }
    epochs: Epochs = [{"a": rows_of(8, lambda i: i % 4), "c": rows_of(3, lambda i: i)}]
    epochs += [{name: rows_of(8, lambda i: i % 4, e) for name in "abc"} for e in (1, 2)]
    assert sum(check(executor, queries, epochs, tmp_path, (plans_of(),)).values()) > 0
    assert executor.chosen["function"] == "Spark, because of the function initcap"
    assert executor.chosen["fractions"] == "Spark, because of fractions as keys of a join"
