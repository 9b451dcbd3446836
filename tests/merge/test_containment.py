"""Queries that read another one's rows through a filter: which do, and that they get their own."""

from __future__ import annotations

import random
from functools import lru_cache

import pytest

from headrace.merge.rewriting import Merging
from headrace.merge.strategies import MergeStrategy
from headrace.optimizer import optimize
from headrace.plan.nodes import Aggregate, Join, Node, OutputMode, Sink
from tests.merge.judge import PATIENCE, Judge
from tests.merge.pairs import plan_of
from tests.support.compare import difference

_WINDOW = "window(ts, '10 seconds')"


@lru_cache
def judge() -> Judge:
    return Judge()


def groups(condition: str = "true", calls: str = "count(*) AS n, min(d) AS least") -> str:
    return f"SELECT i, s, window, {calls} FROM readings WHERE {condition} GROUP BY i, s, {_WINDOW}"


def pairs(condition: str = "true", columns: str = "a.i AS x, b.i AS y, a.s, b.d") -> str:
    return (
        f"SELECT {columns} FROM readings a JOIN events b ON a.l = b.l "
        f"AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 10 SECONDS WHERE {condition}"
    )


def sink(name: str, sql: str) -> Sink:
    return Sink(optimize(plan_of(sql)).plan, name, "memory", OutputMode.APPEND)


def merged(*queries: str, unbounded: bool = False, apart: tuple[str, ...] = ()) -> list[Sink]:
    """The plans that queries run that come one after the other: q0, q1, …"""
    merging = Merging(MergeStrategy.SM_PLUS, unbounded, solver_steps=PATIENCE)
    sinks: dict[str, Sink] = {}
    for number, sql in enumerate(queries):
        sinks[f"q{number}"] = sink(f"q{number}", sql)
        merging.update(sinks, apart=apart)
    return list(merging.update(sinks).values())


def computed(plan: Node) -> Node:
    """The join or aggregate of a plan."""
    return next(node for node in plan.walk() if isinstance(node, Join | Aggregate))


def assert_same_results(running: Sink, sql: str) -> None:
    own = sink("own", sql).input
    assert running.input.schema == own.schema
    for database in judge().databases:
        expected = judge().answer(own, database)
        found = judge().answer(running.input, database)
        assert not isinstance(expected, str)
        assert not isinstance(found, str)
        missing, extra = difference(expected, found)
        assert not missing, f"{sql}: {missing[:3]}"
        assert not extra, f"{sql}: {extra[:3]}"


WITHIN = {
    "one key": (groups(), groups("i = 3")),
    "an expression of a key": (groups(), groups("length(s) = 1")),
    "both keys": (groups(), groups("i > 0 OR s = 'a'")),
    "keys that are NULL": (groups(), groups("i IS NULL AND s IS NOT NULL")),
    "fewer columns": (groups(), groups("i > 1", "count(*) AS how_many")),
    "all groups, fewer columns": (groups(), groups("true", "min(d) AS x")),
    "a filter that both have": (groups("b"), groups("b AND i = 3")),
    "a stronger bound": (groups("b AND i > 0"), groups("b AND i > 2")),
    "a proof": (groups("i > 0 OR s = 'a'"), groups("i > 3")),
    "a filter above the groups": (groups(), f"SELECT * FROM ({groups()}) WHERE i = 3"),
    "other names": (
        groups(),
        "SELECT x AS y, z, n, window AS slot FROM (SELECT u AS x, w AS z, window, count(*) AS n "
        f"FROM (SELECT i AS u, s AS w, ts FROM readings) WHERE u < 2 GROUP BY u, w, {_WINDOW})",
    ),
    "sessions": (
        groups().replace(_WINDOW, "session_window(ts, '3 seconds')"),
        groups("i = 2").replace(_WINDOW, "session_window(ts, '3 seconds')"),
    ),
    "sums that cannot overflow": (
        groups(calls="sum(i) AS t, avg(d) AS m, max(s) AS u"),
        groups("i = 3", calls="max(s) AS u, sum(i) AS t"),
    ),
    "a filter of an aggregate": (
        groups(calls="count(*) FILTER (WHERE b) AS n, count(*) AS m"),
        groups("i = 3", calls="count(*) FILTER (WHERE b) AS n"),
    ),
    "pairs of a side": (pairs(), pairs("a.i > 2")),
    "pairs of both sides": (pairs(), pairs("a.i > 2 AND b.d < 1.5D AND a.i <> b.i")),
    "pairs with fewer columns": (pairs(), pairs("true", "a.s AS t")),
    "pairs in other words": (pairs("a.i >= 1"), pairs("NOT a.i <= 1")),
}


@pytest.mark.parametrize("case", WITHIN)
def test_what_is_within_another_reads_it(case: str) -> None:
    wide, narrow = WITHIN[case]
    first, second = merged(wide, narrow)
    assert computed(second) is computed(first)
    assert_same_results(second, narrow)
    # Without the other, it is computed by itself.
    assert computed(merged(narrow)[0]) != computed(first)


NOT_WITHIN = {
    "a filter of what is no key": (groups(), groups("b")),
    "a key and another column": (groups(), groups("i > j")),
    "another window": (groups(), groups("i = 3").replace("10 seconds", "20 seconds")),
    "other keys": (
        groups(),
        f"SELECT i, window, count(*) AS n FROM readings WHERE i = 3 GROUP BY i, {_WINDOW}",
    ),
    "a column that is not there": (groups(), groups("i = 3", "max(d) AS most")),
    "a weaker condition": (groups("i > 2"), groups("i > 0 AND s = 'a'")),
    "another filter of an aggregate": (
        groups(calls="count(*) FILTER (WHERE b) AS n"),
        groups("i = 3", calls="count(*) FILTER (WHERE c) AS n"),
    ),
    # The sum of groups that the other does not want might overflow.
    "a sum that may overflow": (groups(calls="sum(l) AS t"), groups("i = 3", "sum(l) AS t")),
    "an argument that may raise": (
        groups(calls="max(i div j) AS t"),
        groups("i = 3", "max(i div j) AS t"),
    ),
    # 0.0 and -0.0 are one group, and their texts are two.
    "a key that stands for others": (
        f"SELECT d, window, count(*) AS n FROM readings GROUP BY d, {_WINDOW}",
        "SELECT d, window, count(*) AS n FROM readings WHERE CAST(d AS STRING) = '-0.0' "
        f"GROUP BY d, {_WINDOW}",
    ),
    "pairs without a column": (pairs(), pairs("a.j > 2")),
    "pairs of a stream with itself": (
        pairs().replace("events", "readings"),
        pairs("a.i > 2").replace("events", "readings"),
    ),
    "pairs whose filter may raise": (
        pairs(),
        pairs().replace("readings a", "(SELECT * FROM readings WHERE 10 div i > 2) a"),
    ),
}


@pytest.mark.parametrize("case", NOT_WITHIN)
def test_what_is_not_known_to_be_within_another_is_computed_by_itself(case: str) -> None:
    wide, narrow = NOT_WITHIN[case]
    first, second = merged(wide, narrow)
    assert computed(second) != computed(first)
    assert second.input == sink("own", narrow).input


def test_sums_that_are_taken_not_to_overflow() -> None:
    wide, narrow = NOT_WITHIN["a sum that may overflow"]
    first, second = merged(wide, narrow, unbounded=True)
    assert computed(second) is computed(first)


def test_those_that_come_together_come_widest_first() -> None:
    merging = Merging(MergeStrategy.SM_PLUS)
    narrow, wide = merging.update(
        {"narrow": sink("narrow", groups("i = 3")), "wide": sink("wide", groups())}
    ).values()
    assert computed(narrow) is computed(wide)


def test_one_that_equals_another_is_that_one() -> None:
    """Though a wider one is there, too."""
    alone, _, third = merged(groups("i = 3"), groups(), groups("NOT i <> 3"))
    assert computed(third) is computed(alone)


def test_one_that_stays_apart_computes_no_more_than_it_needs() -> None:
    first, second = merged(groups(), groups("i = 3"), apart=("q1",))
    assert computed(second) != computed(first)


def test_one_that_left_is_read_by_no_newcomer() -> None:
    merging = Merging(MergeStrategy.SM_PLUS)
    wide, narrow = sink("wide", groups()), sink("narrow", groups("i = 3"))
    merging.update({"wide": wide})
    merging.update({})
    running = merging.update({"narrow": narrow})["narrow"]
    assert running.input == narrow.input


def test_only_what_pays() -> None:
    costs = {"reads another": 100.0, "alone": 1.0}

    def cost(plan: Node) -> float:
        own = any(isinstance(n, Aggregate) and "i = 3" in str(n.input) for n in plan.walk())
        return costs["alone"] if own else costs["reads another"] * len(list(plan.walk()))

    merging = Merging(MergeStrategy.SM_PLUS, cost=cost)
    sinks = {"wide": sink("wide", groups()), "narrow": sink("narrow", groups("i = 3"))}
    wide, narrow = merging.update(sinks).values()
    assert computed(narrow) != computed(wide)


@pytest.mark.random
def test_random_conditions() -> None:
    """Whatever is read from another gives what it would have given by itself."""
    parts = [
        *("i > 0", "i >= 2", "i <> 1", "i IS NULL", "s = 'a'", "s IN ('a', 'b')", "s LIKE 'a%'"),
        *("NOT i < 3", "i = 3 OR s = 'b'", "b", "j > 1", "length(s) < 2", "i BETWEEN 0 AND 3"),
    ]
    read = 0
    for seed in range(60):
        chance = random.Random(seed)
        queries = [
            groups(" AND ".join(chance.sample(parts, chance.randint(0, 3))) or "true")
            for _ in range(5)
        ]
        running = merged(*queries)
        for one, sql in zip(running, queries, strict=True):
            assert_same_results(one, sql)
        own = {sink("own", sql).input for sql in queries}
        read += len(own) - len({id(computed(one)) for one in running})
    assert read >= 24
