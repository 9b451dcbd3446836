"""When windows over joins close: as soon as no row of theirs can come any more, and no earlier.

A pair of a join on windows that do not overlap lies in one of them, so an aggregate whose windows
end where they end need not wait for the reach of the join.
"""

from __future__ import annotations

import datetime
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.plan.durations import SECOND
from headrace.plan.nodes import Aggregate, Node, OutputMode, Source, Table
from headrace.plan.times import aggregate_lag
from headrace.sql import plan_query
from tests.support.compare import assert_same_rows
from tests.support.engine import FORCED_EXECUTOR, run_engine, tiny_executor
from tests.support.oracle import run_batch, run_epochs
from tests.support.oracle_epochs import stream_watermarks
from tests.support.seeds import Seeds
from tests.support.streams import (
    BEGIN,
    BIDS,
    CLICKS,
    ITEMS,
    SOURCES,
    STOPS,
    Epochs,
    dense_habits,
    random_epochs,
    random_tables,
    whole,
)

CATALOG: dict[str, Source | Table] = {
    "bids": BIDS,
    "clicks": CLICKS,
    "stops": STOPS,
    "items": ITEMS,
}


def on(left: str, right: str, window: str = "'10 seconds'") -> str:
    keys = f"{left.split('.')[0]}.k = {right.split('.')[0]}.k"
    return f"ON {keys} AND window({left}, {window}) = window({right}, {window})"


def counted(source: str, window: str, more: str = "") -> str:
    return f"SELECT {more}window, count(*) AS n, sum(a.price) AS p FROM {source} GROUP BY {window}"


PAIR = f"bids a JOIN clicks b {on('a.ts', 'b.at')}"
TRIPLE = f"{PAIR} JOIN stops c {on('b.at', 'c.ts')}"
SHIFTED = "'10 seconds', '10 seconds', '3 seconds'"
PAUSES = "'4 seconds', '10 seconds'"
OVERLAPPING, FIVE, SEVEN = "'10 seconds', '5 seconds'", "'5 seconds'", "'7 seconds'"
SAME = "window(a.ts, '10 seconds')"

#: Queries, and by how many milliseconds their windows close after their end.
SHAPES: dict[str, tuple[str, int]] = {
    "same": (counted(PAIR, SAME), 0),
    "other side": (counted(PAIR, "a.k, window(b.at, '10 seconds')", "a.k, "), 0),
    "longer": (counted(PAIR, "window(a.ts, '30 seconds')"), 0),
    "hopping": (counted(PAIR, "window(b.at, '20 seconds', '10 seconds')"), 0),
    "ends alone": (counted(PAIR, "window(a.ts, '15 seconds', '10 seconds', '5 seconds')"), 0),
    "several": (
        "SELECT window, window_id, count(*) AS n FROM "
        f"{PAIR} GROUP BY windows(window(a.ts, '10 seconds'), window(a.ts, '20 seconds'))",
        0,
    ),
    "one not": (
        "SELECT window, window_id, count(*) AS n FROM "
        f"{PAIR} GROUP BY windows(window(a.ts, '10 seconds'), window(a.ts, '5 seconds'))",
        9_999,
    ),
    "shorter": (counted(PAIR, "window(a.ts, '5 seconds')"), 9_999),
    "beside": (counted(PAIR, f"window(a.ts, {SHIFTED})"), 9_999),
    "shifted": (
        counted(f"bids a JOIN clicks b {on('a.ts', 'b.at', SHIFTED)}", f"window(a.ts, {SHIFTED})"),
        0,
    ),
    "pauses": (
        counted(f"bids a JOIN clicks b {on('a.ts', 'b.at', PAUSES)}", f"window(b.at, {PAUSES})"),
        0,
    ),
    "overlapping join": (
        counted(
            f"bids a JOIN clicks b {on('a.ts', 'b.at', OVERLAPPING)}",
            SAME,
        ),
        9_999,
    ),
    "left": (
        counted(f"bids a LEFT JOIN clicks b {on('a.ts', 'b.at')}", SAME),
        0,
    ),
    "right": (
        counted(f"clicks b RIGHT JOIN bids a {on('b.at', 'a.ts')}", "window(a.ts, '20 seconds')"),
        0,
    ),
    "derived": (
        "SELECT window, k, count(*) AS n, max(s) AS s FROM (SELECT a.ts AS t, a.k, b.score AS s "
        f"FROM {PAIR} WHERE a.price + b.score > 3) AS d GROUP BY k, window(t, '10 seconds')",
        0,
    ),
    "three": (counted(TRIPLE, "window(c.ts, '10 seconds')"), 0),
    "finer": (
        counted(f"{PAIR} JOIN stops c {on('b.at', 'c.ts', FIVE)}", SAME),
        0,
    ),
    "other grid": (
        counted(f"{PAIR} JOIN stops c {on('b.at', 'c.ts', SEVEN)}", SAME),
        6_999,
    ),
    "interval beside": (
        counted(
            f"{PAIR} JOIN stops c ON a.k = c.k AND c.ts BETWEEN b.at AND b.at + INTERVAL 3 SECONDS",
            SAME,
        ),
        3_000,
    ),
    "interval": (
        counted(
            "bids a JOIN stops c ON a.k = c.k AND c.ts BETWEEN a.ts AND a.ts + INTERVAL 3 SECONDS",
            SAME,
        ),
        3_000,
    ),
    "union": (
        f"SELECT window, count(*) AS n FROM (SELECT a.ts AS t FROM {PAIR} UNION ALL "
        "SELECT ts AS t FROM stops) AS u GROUP BY window(t, '10 seconds')",
        0,
    ),
    "distinct": (
        f"SELECT window, count(DISTINCT b.score) AS n FROM {PAIR} GROUP BY {SAME}",
        0,
    ),
    "table": (
        counted(
            f"{PAIR} LEFT JOIN items i ON b.k = i.k",
            "i.label, window(a.ts, '10 seconds')",
            "i.label, ",
        ),
        0,
    ),
    "joined windows": (
        "SELECT window, count(*) AS n FROM (SELECT window, a.price AS p "
        f"FROM {PAIR}) AS d GROUP BY window",
        0,
    ),
    "early": (
        "SELECT /*+ EARLY_AGGREGATION(a, b) */ window, a.k, sum(a.price) AS p, count(b.k) AS n "
        f"FROM {PAIR} GROUP BY a.k, window(a.ts, '10 seconds')",
        0,
    ),
    "late": (
        "SELECT /*+ LATE_AGGREGATION */ window, a.k, sum(a.price) AS p, count(b.score) AS n "
        f"FROM {PAIR} GROUP BY a.k, window(a.ts, '10 seconds')",
        0,
    ),
    "session above": (
        f"SELECT window, count(*) AS n FROM {PAIR} GROUP BY session_window(a.ts, '5 seconds')",
        9_999,
    ),
    "trailing above": (
        f"SELECT window, count(*) AS n FROM {PAIR} GROUP BY trailing(a.ts, '10 seconds')",
        9_999,
    ),
}
#: A window over windows of an aggregate waits for them, and no longer.
CASCADE = (
    "SELECT window, max(n) AS most FROM (SELECT a.k, window, count(*) AS n "
    f"FROM {PAIR} GROUP BY a.k, window(a.ts, '10 seconds')) AS d "
    "GROUP BY window(window_time(window), '20 seconds')"
)


def planned(name: str) -> Node:
    return plan_query(SHAPES[name][0], CATALOG).plan


def the_aggregate(plan: Node) -> Aggregate:
    return next(node for node in plan.walk() if isinstance(node, Aggregate))


@pytest.mark.parametrize("name", SHAPES)
def test_lags(name: str) -> None:
    assert aggregate_lag(the_aggregate(planned(name))) == SHAPES[name][1]


def test_a_window_over_windows_of_a_join() -> None:
    aggregates = [n for n in plan_query(CASCADE, CATALOG).plan.walk() if isinstance(n, Aggregate)]
    assert [aggregate_lag(node) for node in aggregates] == [0, 0]


def punctual(seed: int) -> Epochs:
    """Rows out of order by less than their delay, so that none is late, at times on the borders of
    windows, just before them and between."""
    chance = random.Random(seed)
    epochs: Epochs = []
    for number in range(24):
        epochs.append({})
        for source in SOURCES:
            begin = BEGIN + datetime.timedelta(seconds=number + chance.choice((0, 0, 0.5)))
            times = [chance.randrange(0, 20) * 250 + chance.choice((0, 0, -1)) for _ in range(4)]
            row = {f.name: None for f in source.schema}
            epochs[-1][source.stream] = [
                row
                | {"k": chance.randrange(2), "price": chance.randrange(9), "score": 1}
                | {source.time: begin + datetime.timedelta(milliseconds=max(time, 0))}
                for time in times
            ]
    return [
        {s.stream: [{n: row[n] for n in s.schema.names} for row in e[s.stream]] for s in SOURCES}
        for e in epochs
    ]


def end_of(row: tuple[Any, ...], names: tuple[str, ...]) -> datetime.datetime:
    end: datetime.datetime = row[names.index("window")][1]
    return end.replace(tzinfo=datetime.UTC)


@pytest.mark.random
@pytest.mark.parametrize("name", [name for name in SHAPES if "above" not in name])
def test_nothing_is_lost_and_nothing_waits(name: str) -> None:
    """By the rule of the documents every window comes out whole, in the very epoch in which the
    watermark passes its end and the lag. One that closed any earlier would lose rows."""
    punctually = {
        n: replace(node, delay=5 * SECOND) if isinstance(node, Source) else node
        for n, node in CATALOG.items()
    }
    plan = plan_query(SHAPES[name][0], punctually).plan
    lag = datetime.timedelta(milliseconds=SHAPES[name][1])
    rows = 0
    for seed in range(2):
        epochs, tables = punctual(seed), random_tables(random.Random(seed))
        marks = stream_watermarks(plan, epochs)
        last = {s: [*m[:-1], (m[-1][0], 10**18)] for s, m in marks.items()}
        out = run_epochs(plan, epochs, tables, watermarks=last)
        everything = run_batch(plan, {**whole(epochs), **tables})
        assert_same_rows([row for epoch in out for row in epoch], everything, f"seed {seed}")
        for number, found in enumerate(out):
            before, after = zip(*(m[number] for m in last.values()), strict=True)
            for row in found:
                due = int((end_of(row, plan.schema.names) + lag).timestamp() * 1_000_000)
                assert all(w is not None and w >= due for w in after)
                assert any(w is None or w < due for w in before), f"seed {seed}: {row} came late"
        rows += len(everything)
    assert rows > 3


@pytest.mark.random
@pytest.mark.parametrize(
    ("seed", "share"), [(1, 6), *(pytest.param(n, 1, marks=pytest.mark.slow) for n in (1, 2))]
)
def test_engine_and_oracle_agree_in_each_epoch(
    seed: int, share: int, seeds: Seeds, spark: SparkSession, tmp_path: Path
) -> None:
    """Shapes together, over streams with late, double and missing rows, with a restart; a sixth
    of them each day."""
    chosen = {"auto": ("buckets", "spark")}.get(FORCED_EXECUTOR, (FORCED_EXECUTOR,) * 2)
    executors = [tiny_executor(spark, executor=name) for name in chosen]
    chance = random.Random(seed)
    catalog = {
        name: replace(node, delay=chance.choice((0, 2, 5)) * SECOND)
        if isinstance(node, Source)
        else node
        for name, node in CATALOG.items()
    }
    sources = [node for node in catalog.values() if isinstance(node, Source)]
    epochs = random_epochs(chance, sources, 4, dense_habits)
    tables = random_tables(chance)
    sql = {**{name: text for name, (text, _) in SHAPES.items()}, "cascade": CASCADE}
    plans = {
        name: (plan_query(sql[name], catalog).plan, OutputMode.APPEND)
        for name in seeds.every(share, sql)
    }
    plans["update"] = (plan_query(sql["same"], catalog).plan, OutputMode.UPDATE)
    run = run_engine(
        executors[seed % 2],
        plans,
        catalog,
        epochs,
        tables,
        tmp_path / "group",
        restart_after=frozenset({1}),
        then=executors[1 - seed % 2],
    )
    productive = 0
    for name, (plan, mode) in plans.items():
        expected = run_epochs(plan, epochs, tables, mode)
        productive += any(expected)
        for number, (found, wanted) in enumerate(zip(run.rows[name], expected, strict=True)):
            assert_same_rows(found, wanted, f"seed {seed}, epoch {number} of {name}: {plan}")
    assert productive > len(plans) * 0.8
