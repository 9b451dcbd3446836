"""Joins in processing time as one tree: the same rows in each epoch, whatever the order."""

from __future__ import annotations

import random

import pytest

from headrace.optimizer import optimize
from headrace.optimizer.joins.largest_window import ONLY
from headrace.optimizer.joins.rewrite import reordered
from headrace.optimizer.joins.steps import InvalidOrder, steps_of
from headrace.plan.join_graph import join_graph, left_deep, topmost_joins
from headrace.plan.nodes import Node
from headrace.sql import plan_query
from tests.support.arrivals import CATALOG, chain_with_rows
from tests.support.compare import assert_same_rows
from tests.support.oracle import run_epochs
from tests.support.tally import Tally

CHAINS, PER_TEST = 40, 10


def becomes_one_tree(plan: Node) -> bool:
    return ONLY in optimize(plan).trace.fired


def orders_of(plan: Node, chance: random.Random) -> list[Node]:
    """The plan with some other orders of its largest tree of joins."""
    join = max(topmost_joins(plan), key=lambda join: len(join_graph(join).leaves))
    graph = join_graph(join)
    found = []
    for _ in range(2):
        order = left_deep(chance.sample(range(len(graph.leaves)), len(graph.leaves)))
        assert not isinstance(steps_of(graph, order), InvalidOrder)
        moved = reordered(join, order)
        found.append(plan.transform(lambda n, old=join, new=moved: new if n == old else n))  # type: ignore[misc]
    return found


@pytest.mark.random
@pytest.mark.parametrize("first", range(0, CHAINS, PER_TEST))
def test_one_tree_gives_what_the_chain_gave(first: int, tally: Tally) -> None:
    for seed in range(first, first + PER_TEST):
        chance = random.Random(f"arrivals {seed}")
        chain = chain_with_rows(chance, becomes_one_tree)
        tally.add(sum(map(len, chain.expected)))
        optimized = optimize(chain.plan).plan
        for number, other in enumerate((optimized, *orders_of(optimized, chance))):
            found = run_epochs(other, chain.epochs, idle=chain.idle)
            for epoch, (ours, theirs) in enumerate(zip(found, chain.expected, strict=True)):
                context = f"seed {seed}, plan {number}, epoch {epoch}: {chain.sql}"
                assert_same_rows(ours, theirs, context=context)


def test_the_rule_can_be_turned_off() -> None:
    chain = chain_with_rows(random.Random(1), becomes_one_tree)
    assert ONLY not in optimize(chain.plan, frozenset((ONLY,))).trace.fired


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        ("'10 seconds', '5 seconds'", "'10 seconds', '5 seconds'"),
        ("'20 seconds'", "'15 seconds'"),
        ("'30 seconds'", "'5 seconds', '30 seconds'"),
    ],
)
def test_what_the_paper_refuses_stays_as_written(inner: str, outer: str) -> None:
    """Cases A1 and A3, windows that cross, and windows whose ends are never the same."""
    sql = (
        "SELECT p.k, c.v FROM (SELECT a.k, window_time(window) AS seen FROM a JOIN b ON a.k = b.k "
        f"AND window(a.processing_time, {inner}) = window(b.processing_time, {inner})) p "
        f"JOIN c ON p.k = c.k AND window(p.seen, {outer}) = window(c.processing_time, {outer})"
    )
    assert ONLY not in optimize(plan_query(sql, CATALOG).plan).trace.fired
