"""A query that asks for more than those that run takes them in, once it sees what they see."""

from __future__ import annotations

import datetime
import random
from pathlib import Path

import pytest

from headrace.engine.engine import Engine
from headrace.merge.rewriting import Merging
from headrace.merge.strategies import MergeStrategy
from headrace.optimizer import optimize
from headrace.plan.nodes import Aggregate, Join, Node, OutputMode, Sink, Source, Table
from headrace.plan.types import BIGINT, STRING, TIMESTAMP, Schema
from headrace.settings import read_settings
from headrace.sql import plan_query
from tests.support.compare import assert_same_rows
from tests.support.in_process import in_process_session
from tests.support.oracle import run_epochs
from tests.support.stepped_engine import Circumstances, Member, Streams, run_members
from tests.support.streams import Row

BEGIN = datetime.datetime(2024, 3, 1, tzinfo=datetime.UTC)
COLUMNS = Schema.of((("k", BIGINT), ("s", STRING), ("v", BIGINT), ("ts", TIMESTAMP)))
CATALOG: dict[str, Source | Table] = {
    name: Source(name, COLUMNS, "ts", delay=2_000) for name in ("a", "b")
}
CALLS = "COUNT(*) AS n, MIN(v) AS least"


def groups(condition: str = "true", calls: str = CALLS) -> str:
    return f"SELECT k, s, window, {calls} FROM a WHERE {condition} GROUP BY k, s, {WINDOW}"


WINDOW = "window(ts, '10 seconds', '5 seconds')"


def pairs(condition: str = "true", columns: str = "a.k, a.s, a.v, b.v AS w") -> str:
    return (
        f"SELECT {columns} FROM a JOIN b ON a.k = b.k "
        f"AND b.ts BETWEEN a.ts - INTERVAL 4 SECONDS AND a.ts WHERE {condition}"
    )


#: Those that run, the one that comes later, and whether it holds all of theirs.
CASES: dict[str, tuple[tuple[str, ...], str, bool]] = {
    "groups of some keys": ((groups("k = 1"), groups("s = 'x'", "MIN(v) AS l")), groups(), True),
    "groups of fewer keys": ((groups("k = 1 AND v > 2"),), groups("v > 2"), True),
    "equal ones": ((groups("k > 1"), groups("NOT k <= 1"), groups("k >= 2")), groups(), True),
    "pairs of a join": ((pairs("a.v > 3"), pairs("a.s = 'x'", "a.k")), pairs(), True),
    "other rows in the groups": ((groups("v > 2"),), groups(), False),
    "a column that is not there": ((groups("k = 1", "MAX(v) AS m"),), groups(), False),
    "narrower itself": ((groups(),), groups("k = 1"), False),
}


def sink(name: str, sql: str) -> Sink:
    return Sink(optimize(plan_query(sql, CATALOG).plan).plan, name, "memory", OutputMode.APPEND)


def computed(plan: Node) -> Node:
    """The join or aggregate that a query runs."""
    return next(node for node in plan.walk() if isinstance(node, Join | Aggregate))


@pytest.mark.parametrize("case", CASES)
def test_who_is_taken_in(case: str) -> None:
    """Not before it has caught up, and not by one that is apart for good."""
    narrow, wide, holds = CASES[case]
    merging = Merging(MergeStrategy.SM_PLUS)
    sinks = {f"q{number}": sink(f"q{number}", sql) for number, sql in enumerate(narrow)}
    before = merging.update(sinks)
    sinks["wide"] = sink("wide", wide)
    while_late = merging.update(sinks, late=["wide"])
    assert all(while_late[name] is own for name, own in before.items())
    after = merging.update(sinks)
    whole = computed(after["wide"].input)
    reading = [name for name in before if computed(after[name].input) == whole]
    assert reading == (list(before) if holds else [n for n in before if case == "narrower itself"])
    for name, own in sinks.items():
        assert after[name].schema == own.schema
    # Nothing is left behind: all of them go, and so does every operator.
    merging.update({})
    assert merging.global_plan.size == 0
    # And a restart finds the plans that ran.
    again = Merging(MergeStrategy.SM_PLUS)
    ran = {name: own.input for name, own in after.items()}
    assert {n: s.input for n, s in again.update(sinks, ran).items()} == ran


def rows(chance: random.Random, begin: int, count: int) -> list[Row]:
    """Rows of some seconds, in no order, a few of them late."""
    return [
        {
            "k": chance.choice((1, 1, 2, 3, None)),
            "s": chance.choice(("x", "y", None)),
            "v": chance.randint(0, 9),
            "ts": BEGIN
            + datetime.timedelta(
                milliseconds=chance.randrange(500 * 2 * (begin + 4))
                if chance.random() < 0.1
                else 1_000 * begin + chance.randrange(4_000)
            ),
        }
        for _ in range(count)
    ]


@pytest.mark.parametrize("case", [case for case, (*_, holds) in CASES.items() if holds])
@pytest.mark.parametrize(
    "restarts",
    [pytest.param(frozenset[int](), marks=pytest.mark.slow), frozenset({13, 15})],
    ids=["once", "restarts"],
)
def test_those_that_are_taken_in_give_what_they_give_alone(
    case: str, restarts: frozenset[int], tmp_path: Path
) -> None:
    """While it joins, when it has caught up, and when it has left again."""
    narrow, wide, _ = CASES[case]
    chance = random.Random(case)
    epochs = [{name: rows(chance, 4 * n, 25) for name in ("a", "b")} for n in range(22)]
    members = [Member(f"q{number}", sql) for number, sql in enumerate(narrow)]
    members.append(Member("wide", wide, joins_after=3, leaves_after=18))
    shared: dict[int, int] = {}

    def look(engine: Engine) -> None:
        # It is called before the first start, too.
        queries = {} if engine.runner is None else engine.runner.plan.queries
        if engine.runner is not None and "wide" in queries:
            whole = computed(queries["wide"].sink.input)
            taken = [n for n, q in queries.items() if computed(q.sink.input) == whole]
            shared[engine.runner.state.epoch] = len(taken) - 1

    around = Circumstances((read_settings({"spark.headrace.executor": "buckets"}),), restarts)
    out = run_members(
        in_process_session(), members, Streams(CATALOG, epochs), tmp_path, around, look
    )
    # At first it is apart, and then all of them read it.
    assert shared[min(shared)] == 0
    assert shared[max(shared)] == len(narrow)
    for member, sql in zip(members, narrow, strict=False):
        expected = run_epochs(plan_query(sql, CATALOG).plan, epochs)
        assert sum(map(len, expected)) > 20
        for number, wanted in enumerate(expected, start=1):
            found = out[member.key].get(number, [])
            assert_same_rows(found, wanted, context=f"epoch {number} of {member.key}")
