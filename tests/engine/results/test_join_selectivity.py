"""Filters on the inputs of joins go into their orders, though others keep what they drop."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from collections.abc import Sequence
from math import prod
from pathlib import Path

import pytest

from headrace.engine.epochs import attempt
from headrace.optimizer import optimize
from headrace.plan.join_graph import inputs_of
from headrace.plan.nodes import OutputMode, Source, Table
from headrace.plan.types import BIGINT, TIMESTAMP, Schema
from headrace.planner.choices import Choices
from headrace.planner.joined_rows import JoinRun
from headrace.planner.policy import PlannerPolicy
from headrace.planner.statistics import RuntimeStatistics
from headrace.sql import plan_query
from tests.support.compare import assert_same_rows
from tests.support.engine import run_engine, task_executor
from tests.support.oracle import run_epochs
from tests.support.streams import Row

BEGIN = datetime.datetime(2024, 3, 1, 12, tzinfo=datetime.UTC)
COLUMNS = Schema.of([("k", BIGINT), ("v", BIGINT), ("ts", TIMESTAMP)])
CATALOG: dict[str, Source | Table] = {name: Source(name, COLUMNS, "ts", 0) for name in "abc"}
MINUTE = "window({}.ts, '1 minutes') = window({}.ts, '1 minutes')"
JOINED = (
    "SELECT a.v AS av, b.v AS bv, c.v AS cv FROM a "
    f"JOIN b ON a.k = b.k AND {MINUTE.format('a', 'b')} "
    f"JOIN c ON a.k = c.k AND {MINUTE.format('a', 'c')}"
)
ROWS, VALUES, KEYS = 300, 50, 20


def epochs_of(count: int) -> list[dict[str, list[Row]]]:
    chance = random.Random("selectivity")
    epochs = []
    for number in range(count):
        at = BEGIN + datetime.timedelta(minutes=3 * number)
        epochs.append(
            {
                name: [
                    {
                        "k": chance.randrange(KEYS),
                        "v": place % VALUES,
                        "ts": at + datetime.timedelta(seconds=chance.randrange(60)),
                    }
                    for place in range(ROWS)
                ]
                for name in "abc"
            }
        )
    return epochs


@pytest.mark.parametrize("beside_others", [False, True], ids=["alone", "beside others"])
def test_a_filtered_input_comes_early(
    beside_others: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in fifty rows of c is wanted. Beside a query that wants all of them they are stored, and
    the order is the same as alone."""
    seen: list[JoinRun] = []
    learn = attempt.learn_joins

    def learn_joins(
        runs: Sequence[JoinRun], number: int, statistics: RuntimeStatistics, choices: Choices
    ) -> None:
        learn(runs, number, statistics, choices)
        seen.extend(runs)

    monkeypatch.setattr(attempt, "learn_joins", learn_joins)
    queries = {"few": plan_query(f"{JOINED} WHERE c.v = 7", CATALOG).plan}
    if beside_others:
        # Of another window: the one is not read from the other.
        every = JOINED.replace("1 minutes", "2 minutes")
        queries["all"] = plan_query(every, CATALOG).plan
    epochs = epochs_of(3)
    ran = run_engine(
        task_executor(),
        {name: (plan, OutputMode.APPEND) for name, plan in queries.items()},
        CATALOG,
        epochs,
        {},
        tmp_path,
        plans=(PlannerPolicy(join_passes="whole"),),
    )
    for name, plan in queries.items():
        for actual, wanted in zip(
            ran.rows[name], run_epochs(optimize(plan).plan, epochs), strict=True
        ):
            assert_same_rows(actual, wanted)
            assert actual
    # The leaves of the filtered join are known by their rates.
    filtered = [run for run in seen if min(run.load.rates) < max(run.load.rates) / 10]
    assert len(filtered) == len(epochs)
    for run, epoch in zip(filtered, epochs, strict=True):
        (few,) = [i for i, rate in enumerate(run.load.rates) if rate == min(run.load.rates)]
        assert run.load.rates[few] == pytest.approx(max(run.load.rates) / VALUES)
        first = run.steps[0]
        assert few in first
        assert isinstance(run.order, tuple)
        assert len(inputs_of(run.order)) == 3
        # So the first step gives a fiftieth of the pairs that it would have without.
        partner = next(iter(first - {few}))
        assert run.found[first] == pairs(epoch, "abc"[partner])


def pairs(epoch: dict[str, list[Row]], partner: str) -> int:
    wanted = Counter(row["k"] for row in epoch["c"] if row["v"] == 7)
    others = Counter(row["k"] for row in epoch[partner])
    return sum(prod((count, others[key])) for key, count in wanted.items())


def test_shares_are_followed() -> None:
    statistics = RuntimeStatistics()
    assert statistics.share_of("rows-a", "p") == 1.0
    statistics.note_share("rows-a", "p", 10, 1_000)
    assert statistics.share_of("rows-a", "p") == 0.01
    statistics.note_share("rows-a", "p", 14, 1_000)
    assert statistics.share_of("rows-a", "p") == pytest.approx(0.012)
    # What is quite different is believed at once, but not of a few rows.
    statistics.note_share("rows-a", "p", 500, 1_000)
    assert statistics.share_of("rows-a", "p") == 0.5
    statistics.note_share("rows-a", "p", 0, 4)
    assert statistics.share_of("rows-a", "p") == pytest.approx((0.5 + 0.125) / 2)
    statistics.note_share("rows-a", "p", 0, 0)
    again = RuntimeStatistics.from_json(statistics.to_json())
    assert again.shares == statistics.shares
    again.forget_all_but(())
    assert again.shares == {}
