"""Outputs of windows that move, kept up to date by what enters and leaves: right, and cheaper.

Queries run by every plan that matters (no input aggregated early, some, all, the choice; joined
anew or kept up to date) over streams with late, duplicate, NULL and skewed rows and empty epochs,
in this process, and are compared with the oracle epoch by epoch.
"""

from __future__ import annotations

import datetime
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sqlglot import exp

from headrace.cost.early_aggregation import Tuning
from headrace.definitions.definition import select
from headrace.engine.execution.executor import Executor
from headrace.operators.epoch import Epoch
from headrace.operators.sets.definition import SetJoin
from headrace.operators.sets.output_set import OutputSet
from headrace.operators.sets.window_pairs import WindowPairs
from headrace.operators.write import Write
from headrace.optimizer import optimize
from headrace.optimizer.early.shape import AggregationJoin, aggregation_join
from headrace.optimizer.early.upkeep import ANEW, KEPT, why_joined_anew
from headrace.plan.nodes import Aggregate, Node, OutputMode, Source, Table
from headrace.plan.types import BIGINT, DOUBLE, STRING, TIMESTAMP, Schema
from headrace.planner.policy import PlannerPolicy
from headrace.sql import plan_query
from tests.support.compare import assert_same_rows
from tests.support.engine import EngineRun, run_engine, task_executor, tiny_executor
from tests.support.in_process import in_process_session, tasks_in_process
from tests.support.oracle import run_epochs
from tests.support.streams import Row
from tests.support.tally import Tally

FIELDS = [
    ("k", BIGINT),
    ("v", BIGINT),
    ("x", DOUBLE),
    ("g", STRING),
    ("t", STRING),
    ("ts", TIMESTAMP),
]
CATALOG: dict[str, Source | Table] = {name: Source(name, Schema.of(FIELDS), "ts") for name in "abc"}
BEGIN = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
SECONDS = 10
QUERIES = (
    "SELECT a.g, window, count(*) AS n, sum(a.v) AS s, avg(b.v) AS m FROM a JOIN b ON a.k = b.k "
    "GROUP BY a.g, trailing(a.ts, '20 seconds'), trailing(b.ts, '35 seconds')",
    "SELECT window, count(b.v) AS n, sum(b.v) FILTER (WHERE b.v > 7) AS s FROM a JOIN b "
    "ON a.k = b.k GROUP BY trailing(a.ts, '20 seconds'), landmark(b.ts)",
    "SELECT a.g, b.v, window, count(a.v) AS n, count_if(c.v > 3) AS z FROM a JOIN b ON a.k = b.k "
    "JOIN c ON a.k = c.k GROUP BY a.g, b.v, trailing(a.ts, '20 seconds'), "
    "trailing(c.ts, '15 seconds'), trailing(b.ts, '30 seconds')",
    "SELECT b.g, window, sum(a.v) AS s, avg(a.v) AS m FROM a JOIN b ON a.k = b.k AND a.v > b.v "
    "GROUP BY b.g, trailing(b.ts, '12 seconds'), landmark(a.ts)",
    # A key that is cast: what is stored of both sides is never equal.
    "SELECT b.g, window, count(*) AS n FROM a JOIN b ON a.t = CAST(b.k AS STRING) "
    "GROUP BY b.g, trailing(b.ts, '12 seconds'), trailing(a.ts, '20 seconds')",
)
#: Windows of other kinds of each input: tumbling ones, and landmarks alone, which are updated.
OF_OTHER_KINDS = (
    "SELECT a.g, window, count(*) AS n, sum(a.v) AS s, avg(b.v) AS m FROM a JOIN b ON a.k = b.k "
    "GROUP BY a.g, window(a.ts, '20 seconds'), window(b.ts, '30 seconds')",
    "SELECT window, b.g, count(*) AS n, min(b.v) AS s FROM a JOIN b ON a.k = b.k JOIN c "
    "ON a.k = c.k GROUP BY b.g, window(a.ts, '15 seconds', '15 seconds', '5 seconds'), "
    "trailing(b.ts, '12 seconds'), landmark(c.ts)",
    "SELECT a.g, count(*) AS n, sum(b.v) AS s, min(a.v) AS x FROM a JOIN b ON a.k = b.k "
    "GROUP BY a.g, landmark(a.ts), landmark(b.ts)",
)


def optimized(sql: str) -> Node:
    return optimize(plan_query(sql, CATALOG).plan).plan


def planned(plan: Node, early: str, output: str) -> Node:
    return plan.transform(
        lambda n: replace(n, early=early, output=output) if isinstance(n, Aggregate) else n
    )


def shape_of(sql: str) -> AggregationJoin:
    node = next(n for n in optimized(sql).walk() if isinstance(n, Aggregate))
    shape = aggregation_join(node)
    assert isinstance(shape, AggregationJoin)
    return shape


def at(second: float) -> datetime.datetime:
    return BEGIN + datetime.timedelta(seconds=second)


def random_rows(chance: random.Random, epoch: int, count: int) -> list[Row]:
    """A fifth of them late, some twice, most with the same key, some without."""
    rows: list[Row] = []
    for _ in range(count):
        second = SECONDS * (epoch + chance.random())
        if chance.random() < 0.2:
            second -= chance.random() * 25
        key = chance.choice((None, 0, 0, 0, 0, 1, 2, 3))
        value = chance.choice((None, -3, 5, 8, 2**40, -(2**45), chance.randrange(10)))
        text = chance.choice(("x", "y", None))
        row = {"k": key, "v": value, "x": 0.5, "g": text, "ts": at(second)}
        rows.append({**row, "t": None if key is None else f"{key}"})
        if chance.random() < 0.1:
            rows.append(rows[-1])
    return rows


def random_streams(chance: random.Random, epochs: int, most: int) -> list[dict[str, list[Row]]]:
    return [
        {
            stream: random_rows(chance, epoch, chance.choice((0, 2, most, most, most, most)))
            for stream in "abc"
        }
        if epoch
        else {stream: random_rows(chance, epoch, most) for stream in "abc"}
        for epoch in range(epochs)
    ]


@pytest.fixture(scope="module")
def executors() -> tuple[Executor, Executor]:
    """Tasks that cut nothing, and tasks that cut everything."""
    whole = tiny_executor(in_process_session(), executor="buckets", **{"tasks.rows": "50000"})
    return whole, task_executor()


@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=[] if n < 1 else pytest.mark.slow) for n in range(20)]
)
def test_outputs_that_are_kept_are_right(
    seed: int,
    executors: tuple[Executor, Executor],
    tmp_path: Path,
    tally: Tally,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Restarts, merged files and changes of the executor's parts show in nothing."""
    used = counted(monkeypatch)
    chance = random.Random(seed)
    epochs = random_streams(chance, 5, 12)
    chosen = QUERIES if seed >= 2 else QUERIES[seed::2]
    queries: dict[str, tuple[Node, OutputMode]] = {}
    for number, sql in enumerate(chosen):
        for early, output in (("none", KEPT), ("a", KEPT), ("auto", KEPT)):
            plan = planned(optimized(sql), early, output)
            queries[f"q{number}-{early}-{output}"] = plan, OutputMode.APPEND
    run = run_engine(
        executors[seed % 2],
        queries,
        CATALOG,
        epochs,
        {},
        tmp_path,
        restart_after=frozenset({2}) if seed % 2 else frozenset(),
        compaction=3,
        as_given=frozenset(queries),
    )
    for number, sql in enumerate(chosen):
        expected = run_epochs(optimized(sql), epochs)
        for name in queries:
            if name.startswith(f"q{number}-"):
                for rows, wanted in zip(run.rows[name], expected, strict=True):
                    assert_same_rows(rows, wanted, context=f"{name}: {sql}")
        tally.add(sum(map(len, expected)))
    assert used["changed"] >= 2 * len(chosen)
    assert used["groups"] >= 2 * len(chosen)


def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often joined rows were looked at as changes, and outputs read as they were kept."""
    used: Counter[str] = Counter()
    changed, groups = WindowPairs.changed, OutputSet.groups

    def note_changed(self: WindowPairs, epoch: Epoch) -> exp.Query | None:
        used["changed"] += 1
        return changed(self, epoch)

    def note_groups(self: OutputSet, epoch: Epoch) -> exp.Query | None:
        used["groups"] += 1
        return groups(self, epoch)

    monkeypatch.setattr(WindowPairs, "changed", note_changed)
    monkeypatch.setattr(OutputSet, "groups", note_groups)
    return used


@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=[] if n < 1 else pytest.mark.slow) for n in range(8)]
)
def test_windows_of_other_kinds_of_each_input(
    seed: int, executors: tuple[Executor, Executor], tmp_path: Path, tally: Tally
) -> None:
    epochs = random_streams(random.Random(seed), 5, 12)
    queries: dict[str, tuple[Node, OutputMode]] = {}
    for number, sql in enumerate(OF_OTHER_KINDS):
        mode = OutputMode.APPEND if "window" in sql else OutputMode.UPDATE
        for early, output in (("none", KEPT), ("a", ANEW)):
            queries[f"q{number}-{early}"] = planned(optimized(sql), early, output), mode
    run = run_engine(
        executors[seed % 2],
        queries,
        CATALOG,
        epochs,
        {},
        tmp_path,
        restart_after=frozenset({2}),
        as_given=frozenset(queries),
    )
    for number, sql in enumerate(OF_OTHER_KINDS):
        _, mode = queries[f"q{number}-none"]
        expected = run_epochs(optimized(sql), epochs, mode=mode)
        for name in queries:
            if name.startswith(f"q{number}-"):
                for rows, wanted in zip(run.rows[name], expected, strict=True):
                    assert_same_rows(rows, wanted, context=f"{name}: {sql}")
        tally.add(sum(map(len, expected)))


STEADY = (
    "SELECT a.v, window, count(*) AS n, sum(b.v) AS s FROM a JOIN b ON a.k = b.k "
    "GROUP BY a.v, trailing(a.ts, '50 seconds'), trailing(b.ts, '50 seconds')"
)


def steady(epochs: int, rows: int, keys: int, values: int) -> list[dict[str, list[Row]]]:
    """As many rows in each epoch, with so many different keys and values."""
    streams: list[dict[str, list[Row]]] = []
    for epoch in range(epochs):
        numbers = range(epoch * rows, (epoch + 1) * rows)
        both = [
            [
                {
                    "k": n * 7 % keys,
                    "v": n * step % values,
                    "x": 0.5,
                    "g": None,
                    "t": None,
                    "ts": at(n * SECONDS / rows),
                }
                for n in numbers
            ]
            for step in (5, 11)
        ]
        streams.append(dict(zip("ab", both, strict=True)))
    return streams


def run_steady(
    executor: Executor,
    plans: Mapping[str, Node],
    epochs: list[dict[str, list[Row]]],
    folder: Path,
    policy: PlannerPolicy | None = None,
) -> EngineRun:
    queries = {name: (plan, OutputMode.APPEND) for name, plan in plans.items()}
    given = frozenset(queries)
    run = run_engine(
        executor,
        queries,
        CATALOG,
        epochs,
        {},
        folder,
        plans=[policy or PlannerPolicy()],
        as_given=given,
    )
    for name, plan in plans.items():
        for rows, wanted in zip(run.rows[name], run_epochs(plan, epochs), strict=True):
            assert_same_rows(rows, wanted, context=name)
    return run


def test_an_epoch_joins_what_moved(
    executors: tuple[Executor, Executor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What moved of five epochs, and not whatever is in their windows."""
    joined: list[int] = []
    late = SetJoin.late

    def count_joined(
        self: SetJoin, rows: exp.Select, place: Mapping[str, exp.Expr], marked: bool
    ) -> exp.Select:
        counting = select(rows, {"n": exp.Count(this=exp.Star())})
        (answer,) = executors[0].write_all([Write("n", counting, Schema.of([("n", BIGINT)]))])
        assert not isinstance(answer, Exception)
        assert answer.table is not None
        joined[-1] += answer.table.to_pydict()["n"][0]
        return late(self, rows, place, marked)

    monkeypatch.setattr(SetJoin, "late", count_joined)
    monkeypatch.setattr(Epoch, "before", note_epochs(joined))
    work: dict[str, list[int]] = {}
    for output in (ANEW, KEPT):
        joined.clear()
        plan = {"q": planned(optimized(STEADY), "none", output)}
        run_steady(executors[0], plan, steady(8, 30, 3, 10**9), tmp_path / output)
        work[output] = joined[6:]
    # 150 rows in each window, of three keys; an epoch brings 30 and takes 30.
    assert all(count == pytest.approx(150 * 150 / 3, rel=0.05) for count in work[ANEW])
    # Those of a differ in their values; those of b are a few groups by what is read of them.
    assert all(count <= 1.1 * (60 + 3) * 150 / 3 for count in work[KEPT])
    assert min(work[KEPT]) > 0


def note_epochs(joined: list[int]):  # type: ignore[no-untyped-def]
    """An entry for each epoch, made when it first asks for the watermark."""
    before = Epoch.before

    def noted(self: Epoch, streams: object) -> int | None:
        while len(joined) < self.number:
            joined.append(0)
        return before(self, streams)  # type: ignore[arg-type]

    return noted


def test_the_cheaper_way_is_chosen_and_told(
    executors: tuple[Executor, Executor], tmp_path: Path
) -> None:
    """Rows that all differ are joined by what moves; a few groups are joined anew."""
    sql = (
        "SELECT a.g, window, count(*) AS n FROM a JOIN b ON a.k = b.k AND a.v > b.v "
        "GROUP BY a.g, trailing(a.ts, '100 seconds'), trailing(b.ts, '100 seconds')"
    )
    # So that this many rows are worth it.
    policy = PlannerPolicy(early_tuning=Tuning(pair=2e-5))
    told: dict[str, list[str]] = {}
    for name, values in (("many", 10**9), ("few", 2)):
        plan, streams = {"q": optimized(sql)}, steady(9, 25, 1, values)
        run = run_steady(executors[0], plan, streams, tmp_path / name, policy)
        told[name] = [c for report in run.reports for c in report.changes if "output" in c]
    assert [change.split(" (")[0] for change in told["many"]] == [
        "output of a, b kept up to date by what enters and leaves the windows"
    ]
    assert told["few"] == []


def test_the_decision_can_be_turned_off(
    executors: tuple[Executor, Executor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = counted(monkeypatch)
    policy = PlannerPolicy(disabled=frozenset({"incremental_output"}))
    plans = {"q": planned(optimized(STEADY), "none", KEPT)}
    run_steady(executors[0], plans, steady(4, 20, 3, 10**9), tmp_path, policy)
    assert not used


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("min(a.v)", "min(a.v) cannot be told from what leaves a window"),
        ("sum(a.x)", "sum(a.x) cannot be told from what leaves a window"),
        ("avg(a.x)", "avg(a.x) cannot be told from what leaves a window"),
        ("sum(a.v / b.v)", None),
        ("avg(a.v)", None),
        ("count(a.x)", None),
    ],
)
def test_what_cannot_be_subtracted_is_joined_anew(call: str, reason: str | None) -> None:
    sql = STEADY.replace("sum(b.v)", call)
    if call == "sum(a.v / b.v)":
        assert why_joined_anew(shape_of(sql)) is not None
        return
    assert why_joined_anew(shape_of(sql)) == reason


def test_what_may_fail_is_computed_of_pairs_that_were(
    executors: tuple[Executor, Executor], tmp_path: Path
) -> None:
    """A row of a divisor 0 enters when the only row that it could meet has left."""
    sql = (
        "SELECT window, count(*) AS n, sum(a.v % b.v) AS s FROM a JOIN b ON a.k = b.k "
        "GROUP BY trailing(a.ts, '10 seconds'), trailing(b.ts, '10 seconds')"
    )
    assert "may fail" in (why_joined_anew(shape_of(sql)) or "")

    def row(value: int, second: float) -> Row:
        return {"k": 1, "v": value, "x": 0.0, "g": None, "t": None, "ts": at(second)}

    epochs = [
        {"a": [row(5, 0), row(6, 9)], "b": [row(2, 1), row(3, 9)]},
        {"a": [row(9, 40)], "b": [row(0, 25), row(1, 40)]},
    ]
    plans = {"q": planned(optimized(sql), "none", KEPT)}
    run_steady(executors[0], plans, epochs, tmp_path)


def test_an_output_of_tables_begins_anew_in_each_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table may be another one then, and with it what rows that leave were joined to."""
    begun: list[int] = []
    whole = WindowPairs.whole

    def note_whole(
        self: WindowPairs, epoch: Epoch, early: frozenset[int] | None = None
    ) -> exp.Select | None:
        begun.append(epoch.number)
        return whole(self, epoch, early)

    monkeypatch.setattr(WindowPairs, "whole", note_whole)
    catalog = {**CATALOG, "items": Table("items", Schema.of([("k", BIGINT), ("label", STRING)]))}
    sql = (
        "SELECT i.label, window, count(*) AS n, sum(a.v) AS s FROM a JOIN b ON a.k = b.k "
        "JOIN items i ON b.k = i.k "
        "GROUP BY i.label, trailing(b.ts, '30 seconds'), trailing(a.ts, '20 seconds')"
    )
    plan = planned(optimize(plan_query(sql, catalog).plan).plan, "none", KEPT)
    tables = {"items": [{"k": n % 2, "label": text} for n, text in enumerate(("p", "q", "p"))]}
    epochs = steady(6, 8, 3, 5)
    run = run_engine(
        tiny_executor(tasks_in_process(spark), executor="buckets", **{"tasks.rows": "50000"}),
        {"q": (plan, OutputMode.APPEND)},
        catalog,
        epochs,
        tables,
        tmp_path,
        restart_after=frozenset({3}),
        as_given=frozenset({"q"}),
    )
    for rows, wanted in zip(run.rows["q"], run_epochs(plan, epochs, tables), strict=True):
        assert_same_rows(rows, wanted)
    assert begun == [1, 5]


def test_a_window_moves_on_from_the_first_instant_of_1970(
    executors: tuple[Executor, Executor], tmp_path: Path
) -> None:
    """A watermark of 0 is one like any other: what was below it has entered already."""
    sql = (
        "SELECT window, count(*) AS n, sum(a.v) AS s FROM a JOIN b ON a.k = b.k "
        "GROUP BY trailing(a.ts, '10 seconds'), trailing(b.ts, '8 seconds')"
    )
    first = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

    def rows(*seconds: int) -> list[Row]:
        times = [first + datetime.timedelta(seconds=second) for second in seconds]
        return [{"k": 1, "v": 5, "x": 0.0, "g": None, "t": None, "ts": time} for time in times]

    epochs = [
        {"a": rows(-3, 0), "b": rows(-2, 0)},
        {"a": rows(2), "b": rows(3)},
        {"a": rows(4), "b": rows(4)},
    ]
    plan = optimized(sql)
    ways = (("none", KEPT), ("a", KEPT), ("a, b", ANEW))
    plans = {f"{early} {output}": planned(plan, early, output) for early, output in ways}
    run_steady(executors[0], plans, epochs, tmp_path)
