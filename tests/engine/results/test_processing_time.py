"""Joins in processing time in every order: the engine puts out in each epoch what the oracle says
of the query as it is written. Tasks run in this process."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from headrace.engine.execution.executor import Executor
from headrace.optimizer import optimize
from headrace.optimizer.joins.largest_window import ONLY
from headrace.optimizer.joins.steps import InvalidOrder, steps_of
from headrace.plan.join_graph import join_graph, left_deep, topmost_joins, with_order
from headrace.plan.nodes import Node, OutputMode
from headrace.planner.policy import PlannerPolicy
from tests.support.arrivals import CATALOG, chain_with_rows
from tests.support.compare import assert_same_rows
from tests.support.engine import run_engine, tiny_executor
from tests.support.in_process import in_process_session
from tests.support.tally import Tally

CHAINS, PER_TEST = 16, 4
PASSES = tuple(PlannerPolicy(join_passes=p) for p in ("whole", "terms", "auto"))


@pytest.fixture(scope="module")
def executor() -> Executor:
    return tiny_executor(in_process_session())


def with_orders(plan: Node, chance: random.Random) -> dict[str, Node]:
    """The plan as it is planned, and with other orders of its largest tree of joins."""
    join = max(topmost_joins(plan), key=lambda join: len(join_graph(join).leaves))
    graph = join_graph(join)
    plans = {"as_planned": plan}
    for number in range(2):
        order = left_deep(chance.sample(range(len(graph.leaves)), len(graph.leaves)))
        assert not isinstance(steps_of(graph, order), InvalidOrder)
        plans[f"order_{number}"] = with_order(plan, join, order)
    return plans


@pytest.mark.random
@pytest.mark.parametrize("first", range(0, CHAINS, PER_TEST))
def test_chains_of_joins(first: int, executor: Executor, tmp_path: Path, tally: Tally) -> None:
    for seed in range(first, first + PER_TEST):
        chance = random.Random(f"arrivals in the engine {seed}")
        chain = chain_with_rows(chance, lambda plan: True)
        optimized = optimize(chain.plan)
        plans = {"as_written": chain.plan}
        if ONLY in optimized.trace.fired:
            plans |= with_orders(optimized.plan, chance)
        tally.add(sum(map(len, chain.expected)))
        run = run_engine(
            executor,
            {name: (each, OutputMode.APPEND) for name, each in plans.items()},
            CATALOG,
            chain.epochs,
            {},
            tmp_path / str(seed),
            restart_after=frozenset({2}),
            plans=PASSES,
            as_given=frozenset(plans),
            idle=chain.idle,
        )
        for name in plans:
            for epoch, (ours, theirs) in enumerate(
                zip(run.rows[name], chain.expected, strict=True)
            ):
                context = f"seed {seed}, {name}, epoch {epoch}: {chain.sql}"
                assert_same_rows(ours, theirs, context=context)
        # Rows that arrive are never below a watermark.
        assert sum(sum(report.late.values()) for report in run.reports) == 0
