"""What tasks tell of the probes of a join: counted by hand over a few rows, without Spark."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.plan.nodes import OutputMode, Source, Table
from headrace.plan.types import BIGINT, TIMESTAMP, Schema
from headrace.planner.policy import PlannerPolicy
from headrace.planner.probe_order import ProbeOrders, Switch
from headrace.sql import plan_query
from tests.support.engine import run_engine, tiny_executor
from tests.support.in_process import in_process_session
from tests.support.streams import Row

BEGIN = datetime.datetime(2024, 3, 1, 12, tzinfo=datetime.UTC)
COLUMNS = Schema.of((("k", BIGINT), ("j", BIGINT), ("v", BIGINT), ("ts", TIMESTAMP)))
CATALOG: dict[str, Source | Table] = {name: Source(name, COLUMNS, "ts", 0) for name in "abcd"}
#: A snowflake: b is found by the key of a, and c by that of b.
SNOWFLAKE = "SELECT a.v, c.v AS cv FROM a JOIN b ON a.k = b.k JOIN c ON b.j = c.j"
PAIR = "SELECT a.v, b.v AS bv FROM a JOIN b ON a.k = b.k"
A, B, C = range(3)

Epoch = dict[str, list[Row]]
Told = Sequence[Mapping[str, Any]]


def rows(*values: tuple[int, int, int], second: int = 0) -> list[Row]:
    at = BEGIN + datetime.timedelta(seconds=second)
    return [{"k": k, "j": j, "v": v, "ts": at} for k, j, v in values]


def told(
    sql: str,
    epochs: list[Epoch],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    catalog: Mapping[str, Source | Table] = CATALOG,
    parts: bool = False,
    strategy: str = "fixed_order",
) -> tuple[list[Told], ProbeOrders]:
    """What the parts of the join told in each epoch, and what is known in the end."""
    seen: list[Told] = []
    known: list[ProbeOrders] = []
    learn = ProbeOrders.learn

    def watched(orders: ProbeOrders, epoch: int, observed: Told) -> list[Switch]:
        seen.append(list(observed))
        known.append(orders)
        return learn(orders, epoch, observed)

    monkeypatch.setattr(ProbeOrders, "learn", watched)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(folder))
    cut = {"tasks.rows": "2", "tasks.buckets": "4"} if parts else {"tasks.rows": "1000000"}
    run_engine(
        tiny_executor(in_process_session(), executor="buckets", **cut),
        {"q": (plan_query(sql, catalog).plan, OutputMode.APPEND)},
        catalog,
        epochs,
        {},
        folder / "run",
        plans=(PlannerPolicy(probe_strategy=strategy),),
    )
    return seen, known[-1]


def counts(parts: Told) -> dict[tuple[int, int], tuple[int, ...]]:
    (part,) = parts
    return {(one, other): tuple(found) for one, other, *found in part["counts"]}


def steps(parts: Told, kind: str) -> dict[tuple[int, int, int, int], tuple[int, ...]]:
    (part,) = parts
    return {(d, met, one, other): tuple(found) for d, met, one, other, *found in part[kind]}


def test_a_prober_without_new_rows_is_sampled_from_what_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of four rows of b find something in c, two rows each; a has new rows alone."""
    load: Epoch = {
        "b": rows(*((k, j, 0) for k, j in enumerate((0, 1, 2, 9)))),
        "c": rows(*((0, j, v) for j in range(3) for v in range(2))),
    }
    seen, known = told(
        SNOWFLAKE,
        [load, {"a": rows(*((k, 0, k) for k in range(8)))}],
        tmp_path,
        monkeypatch,
    )
    found = counts(seen[-1])
    assert found[B, C] == (4, 3, 6, 0)
    assert found[C, B] == (6, 6, 6, 0)
    # Half of the new rows, and each of the rows that b holds.
    assert found[A, B] == (8, 4, 4, 0)
    assert found[B, A] == (4, 4, 4, 0)
    assert known.statistics is not None
    assert known.statistics.rates[B, C] == 0.75


def test_steps_are_told_as_they_ran_and_as_they_could_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a meet only those of b that find nothing in c, or two rows, as their key has it."""
    load: Epoch = {
        "b": rows(*((k, k % 2, 0) for k in range(40))),
        "c": rows((0, 1, 0), (0, 1, 1)),
    }
    # Forty rows that find a row of b with two of c each, and sixty that find nothing.
    keys = [2 * (i % 20) + 1 if i < 40 else 1_000 + i for i in range(100)]
    seen, _ = told(
        SNOWFLAKE, [load, {"a": rows(*((k, 0, 0) for k in keys))}], tmp_path, monkeypatch
    )
    observed = steps(seen[-1], "observed")
    assert observed == {(A, 1, A, B): (100, 40, 40, 0), (A, 3, B, C): (40, 40, 80, 0)}
    # A sample of all rows says the same; half of the rows of b, by themselves, find something.
    assert steps(seen[-1], "sampled") == observed
    assert counts(seen[-1])[B, C] == (40, 20, 40, 0)
    (part,) = seen[-1]
    assert (part["looked_up"], part["found"]) == (140, 120)


def test_all_segments_count_and_new_rows_among_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first epoch, too, something is known; and later of every epoch together."""
    epochs: list[Epoch] = [
        {"a": rows((1, 0, 0), (2, 0, 0)), "b": rows((1, 0, 0))},
        {"a": rows((1, 0, 0), (2, 0, 0)), "b": rows((2, 0, 0), (1, 0, 1))},
    ]
    seen, _ = told(PAIR, epochs, tmp_path, monkeypatch)
    assert counts(seen[0])[A, B] == (2, 1, 1, 0)
    # Four rows of a are held: two find two rows, and two find one.
    assert counts(seen[1])[A, B] == (4, 4, 6, 0)


def test_a_match_meets_the_conditions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load: Epoch = {"b": rows(*((k, 0, v) for k in range(4) for v in range(3)))}
    epochs = [load, {"a": rows((0, 0, 0), (1, 0, 1), (2, 0, 2), (3, 0, 3), (9, 0, 0))}]
    seen, known = told(f"{PAIR} AND a.v < b.v", epochs, tmp_path, monkeypatch)
    # Less than 1 and 2; than 2; than none. Nine pairs are found in vain.
    assert counts(seen[-1])[A, B] == (5, 2, 3, 9)
    assert steps(seen[-1], "observed") == {(A, 1, A, B): (5, 2, 3, 9)}
    assert known.statistics is not None
    assert known.statistics.wasted[A, B] == pytest.approx(9 / 5)


def test_what_has_expired_is_no_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = {
        name: replace(source, ttl=10_000)
        for name, source in CATALOG.items()
        if isinstance(source, Source)
    }
    epochs: list[Epoch] = [
        {"a": rows((1, 0, 0)), "b": rows((1, 0, 0), (2, 0, 0))},
        {"a": rows((1, 0, 0), second=60), "b": rows((3, 0, 0), second=60)},
        {"a": rows((1, 0, 0), (2, 0, 0), (3, 0, 0), second=61)},
    ]
    seen, _ = told(PAIR, epochs, tmp_path, monkeypatch, catalog)
    # Of the rows of a that live, one finds what lives in b; of those of b, one is left to look.
    queries, matches, found, _ = counts(seen[-1])[A, B]
    assert (queries, matches, found) == (4, 1, 1)
    assert counts(seen[-1])[B, A][:3] == (1, 1, 1)


def test_what_every_part_holds_whole_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """a and b are cut by their key, and all of c is in every part."""
    load: Epoch = {
        "b": rows(*((k, k % 5, 0) for k in range(40))),
        "c": rows(*((0, j, 0) for j in range(5))),
    }
    news: Epoch = {
        "a": rows(*((k, 0, 0) for k in range(40))),
        "c": rows((0, 7, 0), (0, 8, 0)),
    }
    seen, known = told(SNOWFLAKE, [load, news], tmp_path, monkeypatch, parts=True)
    assert len(seen[-1]) == 4
    assert all(part["whole"] == [False, False, True] for part in seen[-1])
    cycle = known.history.cycles[-1]
    assert cycle.rows == {A: 40, B: 40, C: 7}
    assert cycle.arrivals == {A: 40, B: 0, C: 2}
    assert cycle.keys[B, C] == 7
    assert cycle.keys[A, B] == 40


def test_a_snowflake_that_was_loaded_first_is_probed_as_it_is_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """b leads to twenty rows of c, which it never probes by itself after the first epoch; d leaves
    six in ten. So c comes last, as it is written."""
    sql = (
        "SELECT a.v, c.v AS cv, d.v AS dv FROM a JOIN b ON a.k = b.k JOIN d ON a.j = d.j "
        "JOIN c ON b.j = c.j"
    )
    load: Epoch = {
        "a": rows((-1, -1, 0)),
        "b": rows(*((k, k % 10, 0) for k in range(100))),
        "c": rows(*((0, j % 10, j) for j in range(200))),
        "d": rows(*((0, j, 0) for j in range(60))),
    }
    facts: list[Epoch] = [
        {"a": rows(*((7 * i % 200, 3 * i % 100, i) for i in range(300)), second=second)}
        for second in range(1, 4)
    ]
    taken = {}
    for strategy in ("fixed_order", "dp_pick", "cost_greedy"):
        with monkeypatch.context() as patched:
            folder = tmp_path / strategy
            folder.mkdir()
            seen, known = told(sql, [load, *facts], folder, patched, strategy=strategy)
        taken[strategy] = [part["looked_up"] + part["found"] for parts in seen for part in parts]
        assert known.names[known.orders[A][-1][1]] == "c"
    assert taken["dp_pick"] == taken["fixed_order"]
    assert max(taken["cost_greedy"]) <= 1.2 * max(taken["fixed_order"])
