"""Queries that share state, by other times, clocks and moments: each gives what it gives alone.

Every case was a loss once, or is the neighbour of one. What is right comes from the oracle, which
knows of one query at a time.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.compiler.physical_plan import PhysicalPlan
from headrace.compiler.planning import plan_all
from headrace.engine.execution.executor import Executor
from headrace.operators.rows.row_store import Retention
from headrace.optimizer import optimize
from headrace.plan.nodes import OutputMode, Sink, Source, Table
from headrace.plan.types import BIGINT, TIMESTAMP, Schema
from headrace.planner.live_query import LiveQuery
from headrace.settings import read_settings
from headrace.sql import plan_query
from tests.support.compare import assert_same_rows
from tests.support.engine import run_engine, task_executor, tiny_executor
from tests.support.in_process import in_process_session
from tests.support.oracle import run_epochs
from tests.support.stepped_engine import Circumstances, Member, Streams, run_members
from tests.support.streams import Row

BEGIN = datetime.datetime(2024, 3, 1, tzinfo=datetime.UTC)
COLUMNS = Schema.of((("k", BIGINT), ("v", BIGINT), ("ts", TIMESTAMP)))


def catalog(delay: int = 0, **ttls: int) -> dict[str, Source | Table]:
    lives = {name: ttls.get(name) for name in "abcd"}
    return {
        n: Source(n, COLUMNS, "ts", delay * 1_000, ttl and ttl * 1_000) for n, ttl in lives.items()
    }


def rows(*values: tuple[int, int, float]) -> list[Row]:
    return [{"k": k, "v": v, "ts": BEGIN + datetime.timedelta(seconds=at)} for k, v, at in values]


def check(
    executor: Executor,
    folder: Path,
    queries: Mapping[str, str],
    streams: dict[str, Source | Table],
    epochs: list[dict[str, list[Row]]],
) -> None:
    """All queries together, in the order given and in the opposite one, against the oracle."""
    planned = {name: plan_query(sql, streams).plan for name, sql in queries.items()}
    expected = {name: run_epochs(plan, epochs) for name, plan in planned.items()}
    assert all(any(of_query) for of_query in expected.values()), "a query puts nothing out"
    for turn, names in enumerate((list(planned), list(reversed(planned)))):
        plans = {name: (planned[name], OutputMode.APPEND) for name in names}
        run = run_engine(executor, plans, streams, epochs, {}, folder / str(turn))
        for name, of_query in expected.items():
            for number, wanted in enumerate(of_query):
                context = f"epoch {number} of {name} among {names}"
                assert_same_rows(run.rows[name][number], wanted, context=context)


@pytest.fixture(
    params=["tasks", pytest.param("spark", marks=[pytest.mark.slow, pytest.mark.spark])]
)
def executor(request: pytest.FixtureRequest) -> Executor:
    if request.param == "tasks":
        return task_executor()
    return tiny_executor(request.getfixturevalue("spark"), executor="spark")


PAIRS = """
    WITH p AS (
        SELECT a.k, a.v AS av, b.v AS bv, a.ts AS at, b.ts AS bt
        FROM a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL 90 SECONDS AND a.ts
    )
"""


def test_rows_of_one_join_are_kept_by_either_of_its_times(
    executor: Executor, tmp_path: Path
) -> None:
    """The second row of ``a`` completes a pair whose ``b`` is far older than its ``a``."""
    by_a, by_b = (
        f"{PAIRS} SELECT p.k, av, bv, at, bt, d.v AS dv FROM p JOIN d "
        f"ON p.k = d.k AND d.ts BETWEEN p.{time} - INTERVAL {back} SECONDS AND p.{time}"
        for time, back in (("at", 85), ("bt", 15))
    )
    epochs = [
        {"a": rows((1, 1, 95)), "b": rows((1, 5, 20)), "d": rows((1, 7, 10))},
        {"a": rows((1, 2, 100)), "b": rows((2, 6, 100)), "d": rows((2, 8, 100))},
    ]
    check(executor, tmp_path, {"by_a": by_a, "by_b": by_b}, catalog(delay=120), epochs)


@pytest.mark.parametrize(
    ("columns", "windows"),
    [
        ("COUNT(DISTINCT av) AS n", "window({0}, '10 seconds')"),
        ("median(bv) AS n", "window({0}, '10 seconds')"),
        ("SUM(av + bv) AS n", "trailing({0}, '40 seconds')"),
    ],
)
def test_windows_of_one_join_by_either_of_its_times(
    columns: str, windows: str, executor: Executor, tmp_path: Path
) -> None:
    """Both read both times, so that after pruning they still share one subplan."""
    queries = {
        time: f"{PAIRS} SELECT window, {columns}, MAX(at) AS last_a, MAX(bt) AS last_b FROM p "
        f"GROUP BY {windows.format(time)}"
        for time in ("at", "bt")
    }
    epochs = [
        {"a": rows((1, 1, 95), (1, 2, 60)), "b": rows((1, 5, 20))},
        {"a": rows((1, 3, 100)), "b": rows((1, 6, 61), (1, 7, 99))},
        {"a": rows((1, 4, 150)), "b": rows((1, 8, 90), (1, 9, 140))},
        {"a": rows((1, 5, 290)), "b": rows((1, 8, 290))},
        {"a": rows((1, 6, 400)), "b": rows((1, 8, 400))},
    ]
    check(executor, tmp_path, queries, catalog(delay=50), epochs)


def test_an_index_forgets_by_the_watermark_of_its_own_join(
    executor: Executor, tmp_path: Path
) -> None:
    """``c`` is far behind: what is dead for the join with ``b`` still meets rows of ``c``."""
    queries = {
        "ab": "SELECT a.k, a.v AS av, b.v AS bv FROM a JOIN b ON a.k = b.k",
        "ac": "SELECT a.k, a.v AS av, c.v AS cv FROM a JOIN c ON a.k = c.k",
    }
    epochs = [
        {"a": rows((1, 1, 0)), "b": rows((1, 5, 0)), "c": rows((1, 7, 0))},
        {"a": rows((2, 2, 1000)), "b": rows((2, 6, 1000)), "c": rows((2, 8, 1))},
        {"a": rows((2, 3, 1001)), "b": rows((2, 6, 1001)), "c": rows((1, 9, 2))},
        {"a": rows((3, 4, 1002)), "b": rows((1, 7, 1002)), "c": rows((1, 10, 3))},
    ]
    check(executor, tmp_path, queries, catalog(a=100), epochs)


def test_a_column_computed_from_the_time_is_not_the_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Times less an hour are Spark's."""
    windows = "x JOIN c ON x.k = c.k GROUP BY x.v, trailing(x.ts, '60 seconds'), landmark(c.ts)"
    columns = ("k, v, ts, ts - INTERVAL 1 HOUR AS m", "k, ts - INTERVAL 1 HOUR AS m, v, ts")
    queries = {
        f"q{i}": f"SELECT x.v, MAX(x.m) AS mm, COUNT(*) AS n FROM (SELECT {c} FROM a) {windows}"
        for i, c in enumerate(columns)
    }
    epochs = [
        {"a": rows((1, 1, 7200), (1, 1, 7210)), "c": rows((1, 7, 7205), (1, 8, 7210))},
        {"a": rows((1, 2, 7230)), "c": rows((1, 9, 7230))},
    ]
    check(tiny_executor(spark), tmp_path, queries, catalog(), epochs)


def test_a_joined_row_lives_as_long_as_all_of_its_rows(executor: Executor, tmp_path: Path) -> None:
    """Whichever of its times comes first, and whether one of the streams has a ttl or both."""
    pairs = "FROM a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL 60 SECONDS AND a.ts"
    queries = {
        f"q{i}": f"SELECT p.av, p.bv, c.v AS cv FROM (SELECT {columns} {pairs}) p "
        "JOIN c ON p.k = c.k"
        for i, columns in enumerate(
            (
                "a.k, a.v AS av, b.v AS bv, a.ts AS at, b.ts AS bt",
                "a.k, b.ts AS bt, a.v AS av, b.v AS bv, a.ts AS at",
            )
        )
    }
    epochs = [
        {"a": rows((1, 1, 50), (1, 2, 10)), "b": rows((1, 5, 5)), "c": rows((1, 7, 0))},
        {"a": rows((1, 3, 64)), "b": rows((1, 6, 64)), "c": rows((1, 8, 64))},
        {"a": rows((2, 4, 104)), "b": rows((2, 6, 104)), "c": rows((1, 9, 104))},
        {"a": rows((2, 4, 135)), "b": rows((2, 6, 135)), "c": rows((1, 10, 135))},
        {"a": rows((2, 4, 300)), "b": rows((2, 6, 300)), "c": rows((1, 11, 300))},
    ]
    for number, ttls in enumerate(({"a": 40, "b": 90}, {"a": 40}, {"b": 90}, {"c": 30}, {})):
        check(executor, tmp_path / str(number), queries, catalog(**ttls), epochs)


def test_groups_in_a_join_by_keys_live_for_ever(executor: Executor, tmp_path: Path) -> None:
    sql = (
        "SELECT x.n, b.v FROM (SELECT k, window, COUNT(*) AS n FROM a "
        "GROUP BY k, window(ts, '10 seconds')) x JOIN b ON x.k = b.k"
    )
    epochs = [
        {"a": rows((1, 1, 5), (1, 2, 6), (1, 3, 12)), "b": rows((1, 7, 12))},
        {"a": rows((1, 4, 500)), "b": rows((1, 8, 500))},
        {"a": rows((1, 5, 505)), "b": rows((1, 9, 505))},
    ]
    check(executor, tmp_path, {"q": sql}, catalog(a=20, b=300), epochs)


# --- Queries that come and go ---------------------------------------------------------------------

TRIPLES = (
    "SELECT window, {} FROM ("
    "  SELECT p.k, p.at AS ts, p.av, d.v AS dv FROM ("
    "    SELECT a.k, a.v AS av, a.ts AS at, b.ts AS bt FROM a JOIN b"
    "    ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL 20 SECONDS AND a.ts"
    "  ) p JOIN d ON p.k = d.k AND d.ts BETWEEN p.at AND p.at + INTERVAL 20 SECONDS"
    ") GROUP BY window(ts, '10 seconds')"
)


def test_who_leaves_takes_no_state_of_a_late_joiner_along(tmp_path: Path) -> None:
    """Both aggregate the same joined rows. The rows of the inner join are stored, and those from
    before the first query leaves are part of what the second puts out after that."""

    def of_all(*values: tuple[int, int, float]) -> dict[str, list[Row]]:
        return {name: rows(*values) for name in "abd"}

    epochs = [
        of_all((1, 1, 90)),
        of_all((1, 2, 140)),
        {"a": rows((1, 3, 141)), "b": rows((1, 3, 141)), "d": rows((1, 3, 140.5))},
        # The pairs of a and b at 140 and 141 are met by a row of d that comes only now.
        {"d": rows((1, 4, 149))},
        of_all((1, 5, 300)),
        of_all((1, 6, 400)),
    ]
    members = [
        Member("first", TRIPLES.format("MAX(av) AS n"), leaves_after=3),
        Member("late", TRIPLES.format("SUM(av) AS s"), joins_after=1),
    ]
    around = Circumstances((read_settings({"spark.headrace.executor": "buckets"}),))
    streams = Streams(catalog(), epochs)
    out = run_members(in_process_session(), members, streams, tmp_path, around)

    def window(begin: int) -> dict[str, datetime.datetime]:
        first, length = datetime.timedelta(seconds=begin), datetime.timedelta(seconds=10)
        return {"start": BEGIN + first, "end": BEGIN + first + length}

    answer = [row for epoch in out["late"].values() for row in epoch]
    # Pairs (a, b) of 140..149 that d meets within 20 s: a=140: b=140, d in {140, 140.5, 149};
    # a=141: b in {140, 141}, d in {149}. So 3 * 2 + 2 * 3 = 12; and 300 with itself: 5.
    assert_same_rows(answer, [(window(140), 12), (window(300), 5)])


def compiled(queries: Sequence[tuple[str, int | None]]) -> PhysicalPlan:
    """Queries with the moments from which they see rows."""
    live = []
    for number, (sql, starts_at) in enumerate(queries):
        plan = optimize(plan_query(sql, catalog()).plan).plan
        sink = Sink(plan, f"q{number}", "memory", OutputMode.APPEND)
        live.append(LiveQuery(sink, starts_at))
    return plan_all(live)


@pytest.mark.parametrize("first", [None, 50_000])
@pytest.mark.parametrize(
    "late",
    [
        TRIPLES.format("SUM(av) AS s"),
        "SELECT window, COUNT(*) AS n FROM (SELECT k, window, SUM(v) AS s FROM a "
        "GROUP BY k, window(ts, '10 seconds')) GROUP BY window",
        "SELECT k, session_window(ts, '5 seconds') AS s, COUNT(*) AS n FROM a "
        "GROUP BY k, session_window(ts, '5 seconds')",
        f"{PAIRS} SELECT window, median(av) AS m FROM p GROUP BY trailing(at, '10 seconds')",
    ],
)
def test_state_of_a_late_joiner_is_its_own_whoever_else_runs(late: str, first: int | None) -> None:
    """Were it another's, it would begin anew when that query leaves."""
    beside = compiled([(late, first), (late, 90_000)])
    alone = compiled([(late, 90_000)])
    of_late = {store.name for store in beside.stores_of(beside.outputs["q1"].operator)}
    assert of_late == {store.name for store in alone.stores_of(alone.outputs["q0"].operator)}


def test_a_late_joiner_stays_apart_while_others_keep_less() -> None:
    """State that others have dropped is no substitute for one's own."""
    shorter, longer = (
        f"{PAIRS} SELECT window, median(av) AS m FROM p GROUP BY window(at, '{length} seconds')"
        for length in (10, 60)
    )

    of_shorter, of_longer = (
        {store.name: store for store in compiled([(sql, None)]).stores} for sql in (shorter, longer)
    )
    shared = of_shorter.keys() & of_longer.keys()
    joined = [name for name in shared if name not in ("rows-a", "rows-b")]
    assert len(joined) == 1
    assert of_longer[joined[0]].serves(of_shorter[joined[0]])
    assert not of_shorter[joined[0]].serves(of_longer[joined[0]])


def test_what_one_retention_keeps_for_another() -> None:
    ab, a = frozenset("ab"), frozenset("a")
    assert Retention(ab, 10).covers(Retention(ab, 10))
    assert not Retention(ab, 10).covers(Retention(a, 10))
    assert not Retention(a, 10).covers(Retention(ab, 10))
    assert Retention(a, None).covers(Retention(a, 10))
    assert not Retention(a, 10).covers(Retention(a, None))
    assert not Retention(a, 10).covers(Retention(a, 11))
    assert not Retention(a, 10).covers(Retention(a, 10, sessions="sessions-x"))
