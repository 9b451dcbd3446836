"""Random aggregates over joins: every choice of inputs to aggregate early gives the same rows.

All 2^m plans of a query, the one that chooses for itself and the one that aggregates late run as
queries of one engine, over streams with late, duplicate, NULL, empty and skewed input, and are
compared with the oracle epoch by epoch. The engine forgets everything but its checkpoint in the
middle, and merges its files early.

Most groups hold queries that tasks can run, and run them in this process; the others hold any
query, and some of these go on with Spark's operators. ``python -m
tests.engine.results.test_early_aggregation SEED`` runs a group again, ``tasks SEED`` one of tasks.
"""

from __future__ import annotations

import datetime
import math
import random
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from pyspark.sql import SparkSession

from headrace.cost.early_aggregation import choices
from headrace.engine.execution.executor import Executor
from headrace.operators.epoch import Epoch
from headrace.operators.sets.table_set import TableSet
from headrace.operators.sets.trailing_set import TrailingSet
from headrace.optimizer import optimize
from headrace.optimizer.early.shape import AggregationJoin, aggregation_join
from headrace.optimizer.early.upkeep import KEPT
from headrace.plan.nodes import Aggregate, Node, OutputMode, Source, Table
from headrace.plan.types import BIGINT, DOUBLE, STRING, TIMESTAMP, Schema
from headrace.sql import plan_query
from tests.support.compare import assert_same_rows
from tests.support.engine import FORCED_EXECUTOR, run_engine, task_executor, tiny_executor
from tests.support.in_process import in_process_session
from tests.support.in_tasks import fitting
from tests.support.oracle import run_epochs
from tests.support.queries import Case, productive, random_case, random_query
from tests.support.seeds import Seeds, some_and_slow
from tests.support.streams import dense_habits, random_epochs
from tests.support.tally import Tally

#: So many queries in a group, which has several plans of each.
TOGETHER = 4
#: Groups of tasks, and those on Spark: first those of the default run.
TASK_GROUPS, MORE_TASK_GROUPS, PER_TEST = 4, 4, 4
SPARK_GROUPS, MORE_SPARK_GROUPS, PER_SPARK_TEST = 1, 49, 1
#: Every so many-th group is cut into parts, and one on Spark goes on with its operators after the
#: restart; the others stay whole and with tasks, which is much faster with so many small queries.
CHANGES_EXECUTOR = 4
EPOCHS = 3
FORM = {"aggregation_join": 2.0, "moving_join": 1.0}

Executors = tuple[Executor, Executor, Executor]


def cases_of(seed: int, fits: bool = False) -> list[Case]:
    """Some queries over the same streams and rows; with ``fits`` such as tasks can run."""
    case = random_case(seed, FORM)
    more = random.Random(f"early {seed}")
    sources = [node for node in case.catalog.values() if isinstance(node, Source)]
    # The windows of its inputs take the place of a ttl, where a join has them.
    catalog = case.catalog | {s.stream: replace(s, ttl=None) for s in sources}  # type: ignore[operator]
    rows = random_epochs(more, sources, EPOCHS, dense_habits)
    first = replace(case, catalog=catalog, epochs=rows)
    others = [replace(first, query=random_query(more, FORM)) for _ in range(TOGETHER - 1)]
    if not fits:
        return [productive(case, more) for case in (first, *others)]
    return [
        productive(case, more, lambda one: fitting(one, more, FORM)) for case in (first, *others)
    ]


def shape_of(plan: Node) -> AggregationJoin | None:
    for node in plan.walk():
        if isinstance(node, Aggregate):
            shape = aggregation_join(node)
            if isinstance(shape, AggregationJoin):
                return shape
    return None


def all_plans(plan: Node) -> dict[str, Node]:
    """The plan as it is chosen, with each choice of inputs forced, and aggregated late."""
    chosen = optimize(plan).plan
    plans = {"auto": chosen, "late": optimize(plan, frozenset({"early_aggregation"})).plan}
    shape = shape_of(chosen)
    if shape is not None:
        for choice in choices(shape.eligible) if len(shape.eligible) < 4 else some_choices(shape):
            names = ", ".join(shape.names[index] for index in sorted(choice)) or "none"
            plans[names] = chosen.transform(lambda node, names=names: _forced(node, names))  # type: ignore[misc]
        if shape.input_windows is not None:
            # Every other plan keeps its output up to date, where that is possible.
            for names in [*plans][::2]:
                plans[f"{names}, output kept"] = plans[names].transform(_with_output_kept)
    return plans


def _with_output_kept(node: Node) -> Node:
    return replace(node, output=KEPT) if isinstance(node, Aggregate) and node.also else node


def some_choices(shape: AggregationJoin) -> list[frozenset[int]]:
    """Eight of the sixteen choices of four inputs: none, all, and others."""
    everything = list(choices(shape.eligible))
    return [everything[0], *everything[1::3], everything[-1]]


def _forced(node: Node, names: str) -> Node:
    return replace(node, early=names) if isinstance(node, Aggregate) and node.early else node


def check(seed: int, executors: Executors, folder: Path, fits: bool = False) -> Tally:
    """Run the queries of one seed, by every plan; what was tried."""
    cases = cases_of(seed, fits)
    queries: dict[str, tuple[Node, OutputMode]] = {}
    for number, case in enumerate(cases):
        for count, plan in enumerate(all_plans(case.plan).values()):
            queries[f"q{number}-{count}"] = plan, case.query.mode
    first = cases[0]
    cut, other, whole = executors
    begun_on, then = (cut, other) if seed % CHANGES_EXECUTOR == 0 else (whole, whole)
    run = run_engine(
        begun_on,
        queries,
        first.catalog,
        first.epochs,
        first.tables,
        folder,
        restart_after=frozenset({len(first.epochs) // 2}),
        then=then,
        as_given=frozenset(queries),
    )
    tally = Tally(sets=1)
    for number, case in enumerate(cases):
        expected = case.expected()
        for count, name in enumerate(all_plans(case.plan)):
            for epoch, wanted in enumerate(expected):
                actual = run.rows[f"q{number}-{count}"][epoch]
                assert_same_rows(actual, wanted, context=f"plan {name}, epoch {epoch}: {case}")
        tally.add(case.rows)
    return tally


@pytest.fixture(scope="module")
def on_spark(spark: SparkSession) -> Executors:
    return executors_on(spark)


def executors_on(spark: SparkSession) -> Executors:
    """One that cuts everything, one to go on with, and one that cuts nothing."""
    chosen = {"auto": ("buckets", "spark")}.get(FORCED_EXECUTOR, (FORCED_EXECUTOR,) * 2)
    return three_executors(spark, chosen)


def executors_of_tasks() -> Executors:
    return three_executors(in_process_session(), ("buckets", "buckets"))


def three_executors(spark: SparkSession, chosen: tuple[str, str]) -> Executors:
    whole = tiny_executor(spark, executor=chosen[0], **{"tasks.rows": "50000"})
    return (*(tiny_executor(spark, executor=name) for name in chosen), whole)


@pytest.fixture
def executor() -> Executor:
    """For what tasks can run."""
    return task_executor()


@pytest.mark.parametrize(
    "first", some_and_slow(range(0, TASK_GROUPS + MORE_TASK_GROUPS, PER_TEST), TASK_GROUPS)
)
def test_all_plans_agree_in_tasks(first: int, seeds: Seeds, tmp_path: Path, tally: Tally) -> None:
    for seed in seeds.some(first, PER_TEST):
        found = check(seed, executors_of_tasks(), tmp_path / f"group{seed}", fits=True)
        tally.include(found)


@pytest.mark.parametrize(
    "first", some_and_slow(range(0, SPARK_GROUPS + MORE_SPARK_GROUPS, PER_SPARK_TEST), SPARK_GROUPS)
)
def test_all_plans_agree(
    first: int, seeds: Seeds, on_spark: Executors, tmp_path: Path, tally: Tally
) -> None:
    for seed in seeds.some(first, PER_SPARK_TEST):
        tally.include(check(seed, on_spark, tmp_path / f"group{seed}"))


def test_most_queries_have_plans_to_compare() -> None:
    cases = [case for seed in range(12) for case in cases_of(seed)]
    early = [case for case in cases if shape_of(optimize(case.plan).plan) is not None]
    assert len(early) >= 0.75 * len(cases)


def test_the_choice_may_change_in_every_epoch(
    on_spark: Executors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another subset of the inputs in each epoch, and the oracle's rows all the same."""
    taken: set[tuple[int, frozenset[int]]] = set()

    def another(shape: AggregationJoin, identity: str, epoch: int, *_: object) -> frozenset[int]:
        subsets = list(choices(shape.eligible))
        chosen = subsets[(epoch * 5 + len(subsets) // 2) % len(subsets)]
        taken.add((epoch, chosen))
        return chosen

    monkeypatch.setattr("headrace.planner.early_aggregation.choose_early_inputs", another)
    for seed in (1, 2, 16, 23):
        for case in cases_of(seed)[:2]:
            plans = {"auto": (optimize(case.plan).plan, case.query.mode)}
            folder = tmp_path / f"{seed}-{case.query.sql.__hash__()}"
            run = run_engine(on_spark[0], plans, case.catalog, case.epochs, case.tables, folder)
            for actual, wanted in zip(run.rows["auto"], case.expected(), strict=True):
                assert_same_rows(actual, wanted, context=str(case))
    assert len({chosen for _, chosen in taken}) > 2


def test_groups_as_many_as_rows_are_not_worth_it(executor: Executor, tmp_path: Path) -> None:
    """All inputs are aggregated early until the rows have shown that this saves nothing."""
    catalog = sources(k="bigint", v="bigint", ts="timestamp")
    sql = (
        "SELECT a.v, b.v AS w, window, count(*) AS n FROM a JOIN b ON a.k = b.k "
        "AND window(a.ts, '10 seconds') = window(b.ts, '10 seconds') "
        "GROUP BY a.v, b.v, window(a.ts, '10 seconds')"
    )
    plan = optimize(plan_query(sql, catalog).plan).plan

    def rows(epoch: int) -> list[dict[str, object]]:
        numbers = range(epoch * 200, epoch * 200 + 200)
        return [{"k": n % 150, "v": n, "ts": at(n / 10)} for n in numbers]

    epochs = [{"a": rows(epoch), "b": rows(epoch)} for epoch in range(4)]
    run = run_engine(executor, {"q": (plan, OutputMode.APPEND)}, catalog, epochs, {}, tmp_path)
    changes = [change for report in run.reports for change in report.changes]
    assert ["early aggregation of nothing (was a, b" in change for change in changes] == [True]
    for actual, wanted in zip(run.rows["q"], run_epochs(plan, epochs), strict=True):
        assert_same_rows(actual, wanted)


def sources(**columns: str) -> dict[str, Source | Table]:
    kinds = {"bigint": BIGINT, "double": DOUBLE, "timestamp": TIMESTAMP}
    fields = [(name, kinds[kind]) for name, kind in columns.items()]
    return {name: Source(name, Schema.of(fields), "ts") for name in "ab"}


def at(second: float) -> datetime.datetime:
    return datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC) + datetime.timedelta(
        seconds=second
    )


def test_extremes_are_computed_again_only_when_they_leave(
    executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Definition 4: a row that leaves is no reason to look again unless it was the least."""
    again: list[int] = []
    compute = TrailingSet._again

    def counted(self: TrailingSet, epoch: Epoch, rows: object) -> object:
        again.append(epoch.number)
        return compute(self, epoch, rows)  # type: ignore[arg-type]

    monkeypatch.setattr(TrailingSet, "_again", counted)
    catalog = sources(k="bigint", v="bigint", ts="timestamp")
    sql = (
        "SELECT window, min(a.v) AS least, count(*) AS n FROM a JOIN b ON a.k = b.k "
        "GROUP BY trailing(a.ts, '10 seconds'), landmark(b.ts)"
    )
    plan = optimize(plan_query(sql, catalog).plan).plan
    plan = plan.transform(lambda node: _forced(node, "a, b"))

    def row(value: int, second: float) -> dict[str, object]:
        return {"k": 1, "v": value, "ts": at(second)}

    # 9 leaves in the third epoch and is not the least; 2 leaves in the fourth, and it was. The
    # last row of each epoch is at the watermark, and so not yet in the window.
    values = [[(9, 0), (2, 3), (8, 4)], [(5, 9)], [(7, 12)], [(8, 16)]]
    epochs = [
        {"a": [row(v, s) for v, s in some], "b": [row(0, 0), row(0, some[-1][1])]}
        for some in values
    ]
    run = run_engine(executor, {"q": (plan, OutputMode.APPEND)}, catalog, epochs, {}, tmp_path)
    assert [[r[1] for r in rows] for rows in run.rows["q"]] == [[2], [2], [2], [5]]
    assert again == [4]
    for actual, wanted in zip(run.rows["q"], run_epochs(plan, epochs), strict=True):
        assert_same_rows(actual, wanted)


def test_a_group_that_was_empty_forgets_its_extremes(executor: Executor, tmp_path: Path) -> None:
    catalog = sources(k="bigint", v="bigint", ts="timestamp")
    sql = (
        "SELECT a.k, window, min(a.v) AS least, max(a.v) AS most FROM a JOIN b ON a.k = b.k "
        "GROUP BY a.k, trailing(a.ts, '10 seconds'), landmark(b.ts)"
    )
    plan = optimize(plan_query(sql, catalog).plan).plan
    plan = plan.transform(lambda node: _forced(node, "a, b"))
    # The group 1 has no row in its window at 30, and one again at 35.
    values = [[(1, 0, 0), (1, 9, 1), (2, 5, 2)], [(2, 5, 30)], [(1, 4, 31), (2, 5, 35)]]
    epochs = [
        {
            "a": [{"k": k, "v": v, "ts": at(s)} for k, v, s in some],
            "b": [{"k": k, "v": 0, "ts": at(s)} for k in (1, 2) for s in (0, some[-1][2])],
        }
        for some in values
    ]
    run = run_engine(executor, {"q": (plan, OutputMode.APPEND)}, catalog, epochs, {}, tmp_path)
    for actual, wanted in zip(run.rows["q"], run_epochs(plan, epochs), strict=True):
        assert_same_rows(actual, wanted)
    assert [(r[0], *r[2:]) for r in run.rows["q"][-1] if r[0] == 1] == [(1, 4, 4)]


def test_infinity_leaves_a_trailing_sum(executor: Executor, tmp_path: Path) -> None:
    catalog = sources(k="bigint", v="double", ts="timestamp")
    sql = (
        "SELECT window, sum(a.v) AS total FROM a JOIN b ON a.k = b.k "
        "GROUP BY trailing(a.ts, '10 seconds'), trailing(b.ts, '100 seconds')"
    )
    plan = optimize(plan_query(sql, catalog).plan).plan
    plan = plan.transform(lambda node: _forced(node, "a, b"))
    values = [[(float("inf"), 0), (0.1, 5)], [(0.2, 8)], [(0.3, 14)], [(0.4, 21)]]
    epochs = [
        {
            "a": [{"k": 1, "v": v, "ts": at(s)} for v, s in some],
            "b": [{"k": 1, "v": 0.0, "ts": at(s)} for s in (0, some[-1][1])],
        }
        for some in values
    ]
    run = run_engine(executor, {"q": (plan, OutputMode.APPEND)}, catalog, epochs, {}, tmp_path)
    for actual, wanted in zip(run.rows["q"], run_epochs(plan, epochs), strict=True):
        assert_same_rows(actual, wanted)
    totals = [r[1] for rows in run.rows["q"] for r in rows]
    assert any(math.isinf(total) for total in totals)
    assert math.isfinite(totals[-1])


def test_the_set_of_a_table_is_computed_once_in_a_run(
    on_spark: Executors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    compute = TableSet._forget

    def counted(self: TableSet, epoch: Epoch, files: object) -> None:
        written.append(epoch.number)
        compute(self, epoch, files)  # type: ignore[arg-type]

    monkeypatch.setattr(TableSet, "_forget", counted)
    catalog = sources(k="bigint", v="bigint", ts="timestamp")
    catalog["items"] = Table("items", Schema.of([("k", BIGINT), ("label", STRING)]))
    sql = (
        "SELECT i.label, window, sum(a.v) AS v FROM a JOIN items i ON a.k = i.k "
        "GROUP BY i.label, window(a.ts, '5 seconds')"
    )
    plan = optimize(plan_query(sql, catalog).plan).plan
    tables = {"items": [{"k": 1, "label": "x"}, {"k": 1, "label": "y"}, {"k": 2, "label": "x"}]}
    epochs = [{"a": [{"k": n % 3, "v": n, "ts": at(4 * n)}]} for n in range(5)]
    run = run_engine(
        on_spark[0],
        {"q": (plan, OutputMode.APPEND)},
        catalog,
        epochs,
        tables,
        tmp_path,
        restart_after=frozenset({2}),
    )
    assert written == [1, 4]
    for actual, wanted in zip(run.rows["q"], run_epochs(plan, epochs, tables), strict=True):
        assert_same_rows(actual, wanted)


def main(arguments: list[str]) -> None:
    """Run groups again."""
    fits = "tasks" in arguments
    if fits:
        three = executors_of_tasks()
    else:
        session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        session = session.config("spark.sql.session.timeZone", "UTC")
        three = executors_on(session.getOrCreate())
    for argument in arguments:
        if argument != "tasks":
            with TemporaryDirectory() as place:
                print(argument, check(int(argument), three, Path(place) / "group", fits))


if __name__ == "__main__":
    main(sys.argv[1:])
