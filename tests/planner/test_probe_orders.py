"""Probe orders while joins run: they follow the data, not its noise, and everybody can see it."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.cost.probing import ProbeModel
from headrace.plan.join_graph import join_graph, topmost_joins, with_order
from headrace.plan.nodes import Join, Node, Source
from headrace.plan.types import BIGINT, TIMESTAMP, Schema
from headrace.planner.policy import PlannerPolicy, ProbeCycle
from headrace.planner.probe_order import ProbeOrders, Switch
from headrace.planner.regret import Subject
from headrace.planner.statistics import RuntimeStatistics
from headrace.sql import plan_query
from tests.support.script import (
    AddData,
    Advance,
    Check,
    CheckAnswer,
    Run,
    Stage,
    StartQuery,
    Step,
    Stop,
    Stream,
    at,
    play,
)

COLUMNS = Schema.of((("k", BIGINT), ("x", BIGINT), ("y", BIGINT), ("ts", TIMESTAMP)))
CATALOG = {name: Source(name, COLUMNS, "ts", 0) for name in "abc"}
#: Rows of a can go on to b or to c: by keys of their own, so the two are not alike.
SQL = "SELECT a.k FROM a JOIN b ON a.x = b.k JOIN c ON a.y = c.k"
A, B, C = range(3)


def memory(plan: Node | None = None, **policy: Any) -> ProbeOrders:
    plan = plan_query(SQL, CATALOG).plan if plan is None else plan
    join = next(topmost_joins(plan))
    chosen = PlannerPolicy(**policy)
    return ProbeOrders.begin(join, join_graph(join), chosen, RuntimeStatistics())


def seen(rates: Mapping[tuple[int, int], float], rows: float = 10.0) -> list[Mapping[str, Any]]:
    """What two parts of an epoch tell: the share of probes of a pair that found something."""
    part = {
        "counts": [
            (one, other, 500, round(500 * rate), round(500 * rate * rows))
            for (one, other), rate in rates.items()
        ],
        "keys": [(one, other, 1_000.0) for one, other in rates],
        "sampled": [],
        "observed": [],
        "whole": [False] * 3,
        "rows": [10_000] * 3,
        "arrivals": [500] * 3,
        "looked_up": 3_000,
        "found": 2_000,
        "seconds": {"statistics": 0.001, "all": 1.0},
    }
    return [part, part]


def found(to_b: float, to_c: float) -> dict[tuple[int, int], float]:
    return {(A, B): to_b, (A, C): to_c, (B, A): 0.5, (C, A): 0.5}


def lived(join: ProbeOrders, epochs: Sequence[list[Mapping[str, Any]]]) -> list[Switch]:
    return [s for number, epoch in enumerate(epochs) for s in join.learn(number, epoch)]


def test_the_order_follows_what_matches_rarely() -> None:
    join = memory()
    assert join.orders[A] == ((A, B), (A, C))
    (switch,) = lived(join, [seen(found(0.9, 0.1))])
    assert (switch.driver, switch.after) == (A, ((A, C), (A, B)))
    assert switch.gain > 0.5
    assert switch.text("abc") == (f"probe order a → c → b (was a → b → c, saves {switch.gain:.0%})")
    assert join.orders[A] == switch.after


def test_three_changes_of_the_data_are_three_changes_of_order() -> None:
    join = memory()
    rare_b, rare_c = found(0.05, 0.9), found(0.9, 0.05)
    phases = [rare_c] * 8 + [rare_b] * 8 + [rare_c] * 8 + [rare_b] * 8
    switches = lived(join, [seen(phase) for phase in phases])
    assert [s.after[0] for s in switches] == [(A, C), (A, B), (A, C), (A, B)]
    # A change is believed at once, as nothing had changed for long: epochs begin with 0.
    assert [s.epoch for s in switches] == [0, 8, 16, 24]


@pytest.mark.parametrize("smooth", [True, False])
def test_noise_does_not_make_it_change_for_ever(smooth: bool) -> None:
    """Two orders cost about the same, and in every other cycle the other one seems cheaper."""
    chance = random.Random("noise")
    join = memory(probe_smoothing=smooth)
    epochs = [
        seen(found(0.5 + (0.02 if i % 2 else -0.02) + chance.uniform(-0.01, 0.01), 0.5))
        for i in range(100)
    ]
    assert len(lived(join, epochs)) <= 1


def test_a_stream_that_alternates_wildly_is_smoothed() -> None:
    """Each cycle is the opposite of the one before it: no order is right, and none is chased."""
    epochs = [seen(found(0.9, 0.1) if i % 2 else found(0.1, 0.9)) for i in range(60)]
    chased = len(lived(memory(probe_smoothing=False), epochs))
    calm = len(lived(memory(probe_smoothing=True, least_gain=0.6), epochs))
    assert chased >= 55
    assert calm <= 6


def test_a_gain_that_is_too_small_changes_nothing() -> None:
    epochs = [seen(found(0.52, 0.48))] * 5
    assert lived(memory(least_gain=0.2), epochs) == []
    assert len(lived(memory(least_gain=0.0), epochs)) == 1


def test_cycles_are_as_long_as_asked() -> None:
    epochs = [seen(found(0.9, 0.1))] * 5
    assert [s.epoch for s in lived(memory(probe_cycle=ProbeCycle(epochs=4)), epochs)] == [3]
    assert lived(memory(probe_cycle=ProbeCycle(milliseconds=3_600_000)), epochs) == []
    assert [s.epoch for s in lived(memory(probe_cycle=ProbeCycle(milliseconds=0)), epochs)] == [0]


def test_who_asks_for_an_order_gets_it() -> None:
    plan = plan_query(SQL, CATALOG).plan
    forced = with_order(plan, next(topmost_joins(plan)), ((0, 1), 2))
    join = memory(forced)
    assert lived(join, [seen(found(0.9, 0.01))] * 5) == []
    described = join.describe(_join(forced), [])
    assert "as asked for" in described.text
    # What it costs is told all the same.
    assert described.running.cost is not None


def _join(plan: Node) -> Join:
    return next(topmost_joins(plan))


def test_an_epoch_that_tells_nothing_changes_nothing() -> None:
    join = memory()
    assert join.learn(1, []) == []
    nothing = [{**part, "counts": []} for part in seen(found(0.9, 0.1))]
    assert join.learn(2, nothing) == []
    assert join.statistics is None
    assert (
        "until something is known" in join.describe(_join(plan_query(SQL, CATALOG).plan), []).text
    )


def test_the_published_model_can_be_chosen_by() -> None:
    """Half of the probes of b match, with four rows each; nearly all of c, with one.

    By equation 8 the fewer matches come first; but two rows go on from b for each probe, and from
    c not one.
    """
    epoch = [
        {
            **part,
            "counts": [
                (one, other, queries, matches, matches * (4 if (one, other) == (A, B) else 1))
                for one, other, queries, matches, _ in part["counts"]
            ],
        }
        for part in seen({(A, B): 0.5, (A, C): 0.9, (B, A): 0.5, (C, A): 0.5})
    ]
    published = memory(probe_cost_model=ProbeModel.PAPER, least_gain=0.0)
    ours = memory(probe_cost_model=ProbeModel.ENGINE, least_gain=0.0)
    lived(published, [epoch])
    lived(ours, [epoch])
    assert published.orders[A] == ((A, B), (A, C))
    assert ours.orders[A] == ((A, C), (A, B))


def deceived(rows: int = 0) -> list[Mapping[str, Any]]:
    """The sample finds hardly anything in c, and the probes of it find so many rows each."""
    (part, _) = seen(found(0.9, 0.01), 1.0)
    first = [(A, 1, A, B, 200, 180, 180, 0), (A, 1, A, C, 200, 2, 2, 0)]
    order = [(A, 1, A, C, 2_000, 20, 2_000 * rows, 0), (A, 5, A, B, 2_000 * rows, 1, 1, 0)]
    then = [(A, 5, A, B, 200, 180, 180, 0)]
    return [{**part, "sampled": first + then, "observed": order if rows else []}]


def test_an_order_that_does_not_keep_its_promise_is_left_and_not_believed_again() -> None:
    join = memory()
    (switch,) = lived(join, [deceived()])
    assert switch.after == ((A, C), (A, B))
    (back,) = lived(join, [deceived(rows=50)])
    assert back.after == ((A, B), (A, C))
    text = back.text("abc")
    assert text.startswith("probe order a → b → c again (a → c → b took ")
    assert text.endswith(" times that of the written plan)")
    # The samples go on as before, and so does what a → b → c finds: no evidence.
    part = deceived()[0]
    written = [(A, 1, A, B, 2_000, 1_800, 1_800, 0), (A, 3, A, C, 1_800, 18, 18, 0)]
    assert lived(join, [[{**part, "observed": written}]] * 20) == []
    assert join.regrets.of(Subject("probe_order", join.identity, "0")).lessons.keys() == {"0-2 0-1"}


@pytest.mark.parametrize(
    "policy",
    [{"probe_strategy": "query_cost_only"}, {"probe_cost_model": ProbeModel.PAPER}],
    ids=["ablation", "published model"],
)
def test_what_is_there_for_comparison_is_left_alone(policy: dict[str, Any]) -> None:
    join = memory(**policy)
    lived(join, [deceived(), deceived(rows=50)])
    assert join.regrets.known == {}


# --- In an engine ---------------------------------------------------------------------------------

STREAMS = [Stream(name, "k bigint, v bigint, ts timestamp") for name in "abc"]
STAR = "SELECT a.v AS av, b.v AS bv, c.v AS cv FROM a JOIN b ON a.k = b.k JOIN c ON a.k = c.k"
STRINGENT = {"spark.headrace.probe.cycle": "1", "spark.headrace.executor": "buckets"}


def epochs_of(chance: random.Random, count: int) -> list[Step]:
    """b has a row for every key many times over, c hardly for any."""
    steps: list[Step] = []
    for epoch in range(count):
        for name, keys in (("a", 20), ("b", 20), ("c", 400)):
            rows = [(chance.randrange(keys), i, epoch * 10 + i / 100) for i in range(60)]
            steps.append(AddData(name, *rows))
    return steps


def test_changes_are_seen_in_progress_and_in_explain(spark: SparkSession, tmp_path: Path) -> None:
    def told(stage: Stage) -> None:
        changes = [c for epoch in stage.hr.recentProgress for c in epoch["planChanges"]]
        assert any("probe order a → c → b (was a → b → c" in change for change in changes)
        query = stage.hr.sql(STAR)
        text = query.explanation()
        assert "a → c → b" in text
        assert "by dp_pick with the cost model 'engine'" in text
        assert "forecast from" in text
        assert "probe order" in text.split("changed of late")[1]
        assert "results: DuckDB in tasks" in text
        probes = json.loads(query.explanation("json"))["joins"][0]
        assert probes["probes"]["a"] == ["c", "b"]
        assert {"from": "a", "to": "c"}.items() <= probes["statistics"][1].items()
        orders = [p for p in query.alternatives() if p.info.rule == "probe_order"]
        assert len(orders) == 6
        costs = {p.info.name: p.info.cost.figure.number for p in orders}
        assert costs["probe order a, c, b"] < costs["probe order a, b, c"]
        forced = query.using(next(p for p in orders if p.info.name == "probe order b, a, c"))
        assert "as asked for" in forced.explanation()

    play(
        spark,
        tmp_path,
        STREAMS,
        StartQuery("q", STAR),
        *epochs_of(random.Random(3), 3),
        Advance(),
        Check("what is told", told),
        settings=STRINGENT,
    )


def test_old_rows_are_looked_up_and_not_read(spark: SparkSession, tmp_path: Path) -> None:
    """The state's files are gone, and the next epoch still finds all rows of before: what it does
    follows the new rows, not the state."""

    def lose_files(stage: Stage) -> None:
        files = list((stage.checkpoint / "state").rglob("*.parquet"))
        assert len(files) >= 3
        (tmp_path / "aside").mkdir()
        for number, file in enumerate(files):
            shutil.move(file, tmp_path / "aside" / str(number))

    play(
        spark,
        tmp_path,
        STREAMS,
        StartQuery("q", STAR),
        AddData("a", (1, 10, 1), (2, 20, 1)),
        AddData("b", (1, 11, 1), (2, 21, 1)),
        AddData("c", (1, 12, 1)),
        Run(),
        Advance(),
        # One more epoch, with which what the first one brought has become old.
        AddData("a", (3, 30, 2)),
        AddData("b", (3, 31, 2)),
        AddData("c", (3, 32, 2)),
        Advance(),
        AddData("a", (9, 90, 3)),
        AddData("b", (9, 91, 3)),
        AddData("c", (9, 92, 3)),
        Advance(),
        Check("the files are gone", lose_files),
        AddData("a", (1, 100, 4)),
        AddData("b", (8, 0, 4)),
        AddData("c", (2, 22, 4)),
        Advance(),
        CheckAnswer(
            "q",
            (10, 11, 12),
            (30, 31, 32),
            (90, 91, 92),
            (100, 11, 12),
            (20, 21, 22),
        ),
        Stop(),
        settings=STRINGENT,
    )


def test_the_order_of_the_text_where_joins_are_not_reordered(
    spark: SparkSession, tmp_path: Path
) -> None:
    def told(stage: Stage) -> None:
        assert not any(epoch["planChanges"] for epoch in stage.hr.recentProgress)
        assert "as written" in stage.hr.sql(STAR).explanation()

    play(
        spark,
        tmp_path,
        STREAMS,
        StartQuery("q", STAR, format="noop"),
        *epochs_of(random.Random(3), 2),
        Advance(),
        Check("what is told", told),
        settings={**STRINGENT, "spark.headrace.joins.reorder": "false"},
    )


def test_nowhere_counts_what_it_takes(spark: SparkSession, tmp_path: Path) -> None:
    def counted(stage: Stage) -> None:
        last = stage.handles["q"].lastProgress
        assert last is not None
        assert last["totalOutputRows"] == 2

    play(
        spark,
        tmp_path,
        STREAMS[:1],
        StartQuery("q", "SELECT v FROM a WHERE k > 1", format="noop"),
        AddData("a", (1, 1, at(1)), (2, 1, at(1)), (3, 1, at(1))),
        Advance(),
        Check("the count", counted),
    )
