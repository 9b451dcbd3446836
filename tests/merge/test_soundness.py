"""What merging calls equal is equal: thousands of random pairs, mutants, and pairs written out.

Random pairs are run in DuckDB on rows with NULL, zeros, negative numbers and the borders of types,
and row by row in an interpreter that knows which rows raise. Every test of pairs also says how many
it must have found, so that a merger that calls nothing equal fails. The default run has a quarter
of them, and all of those that are written out.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import pytest

from headrace.merge.strategies import MeaningMatcher, MergeStrategy, make_matcher
from headrace.optimizer import optimize
from headrace.plan.expressions import Call, Column, Expr, Literal, Named
from headrace.plan.nodes import Aggregate, Filter, Node, Project
from headrace.plan.types import BIGINT, DOUBLE, INT
from tests.merge.generate import (
    READINGS,
    WORDS,
    arithmetic,
    atom,
    row_plan,
    small_plan,
    structured_plan,
    truth,
    whole,
)
from tests.merge.judge import PATIENCE, Judge, matcher, shown, types_of
from tests.merge.mutations import mutants
from tests.merge.pairs import (
    CATALOG,
    DIFFERENT,
    DIFFERENT_BY_ERRORS,
    DIFFERENT_IF_EXACT,
    DIFFERENT_UNSEEN,
    SAME,
    by_window,
    plan_of,
    where,
)
from tests.merge.rewrites import Rewriter

pytestmark = pytest.mark.random
#: How much of the random pairs and mutants is tried.
SHARES = pytest.mark.parametrize(
    "share", [0.25, pytest.param(1.0, marks=pytest.mark.slow)], ids=["some", "all"]
)
EXACT = {"exact": True, "unbounded": False}


@lru_cache
def judge() -> Judge:
    return Judge()


def are_equal(one: Node, other: Node, merger: MeaningMatcher) -> bool:
    return merger.root(one) == merger.root(other)


# --- pairs that are called equal -----------------------------------------------------------------


@SHARES
@pytest.mark.parametrize("arithmetic", EXACT)
def test_rows_of_plans_that_were_written_otherwise(arithmetic: str, share: float) -> None:
    assert found_equal(row_plan, int(700 * share), arithmetic) >= 450 * share


@SHARES
@pytest.mark.parametrize("arithmetic", EXACT)
def test_windows_joins_and_unions_that_were_written_otherwise(
    arithmetic: str, share: float
) -> None:
    assert found_equal(structured_plan, int(180 * share), arithmetic) >= 100 * share


@SHARES
@pytest.mark.parametrize("arithmetic", EXACT)
def test_plans_that_are_looked_up_by_how_they_are_written(arithmetic: str, share: float) -> None:
    assert found_equal(row_plan, int(150 * share), arithmetic, written_first=True) >= 90 * share


def found_equal(
    made: Callable[[random.Random], Node],
    count: int,
    arithmetic: str,
    written_first: bool = False,
) -> int:
    """How many pairs of a plan and the same written otherwise were found, and are, equal."""
    exact = EXACT[arithmetic]
    found = 0
    for seed in range(count):
        chance = random.Random(seed)
        plan = made(chance)
        other = Rewriter(chance, exact).plan(plan)
        if plan != other and are_equal(plan, other, matcher(not exact, written_first)):
            found += 1
            told = judge().difference(plan, other, exact)
            assert not told, f"seed {seed}: {told}{shown(plan, other)}"
    return found


@pytest.mark.parametrize(
    ("arithmetic", "count", "least"),
    [
        ("exact", 600, 120),
        pytest.param("exact", 1_900, 600, marks=pytest.mark.slow),
        pytest.param("unbounded", 1_000, 300, marks=pytest.mark.slow),
    ],
)
def test_small_plans_that_meet_by_chance(arithmetic: str, count: int, least: int) -> None:
    exact = EXACT[arithmetic]
    chance, merger = random.Random(7), matcher(not exact)
    classes: dict[int, dict[Node, None]] = defaultdict(dict)
    for _ in range(count):
        plan = small_plan(chance)
        classes[merger.root(plan)][plan] = None
    checked = 0
    for first, *others in classes.values():
        for other in others:
            told = judge().difference(first, other, exact)
            assert not told, told + shown(first, other)
            checked += 1
    assert checked >= least
    # And most are told apart.
    assert len(classes) >= count * 0.4


@SHARES
def test_conditions_that_raise_stay_behind_their_guards(share: float) -> None:
    """Conjunctions in random orders, of which some parts raise and some need a proof."""
    for seed in range(int(300 * share)):
        chance = random.Random(seed)
        parts: list[Expr] = [atom(chance, WORDS) for _ in range(3)]
        columns = [Column(name, READINGS.schema[name].type) for name in "ij"]
        parts.append(truth("<", *chance.sample(columns, 2)))
        parts.append(truth("<", arithmetic("+", columns[0], whole(1)), columns[1]))
        plans = [conjunction_of(chance.sample(parts, len(parts))) for _ in range(2)]
        if are_equal(*plans, matcher()):
            told = judge().difference_by_row(*plans)
            assert not told, f"seed {seed}: {told}{shown(*plans)}"


def conjunction_of(parts: list[Expr]) -> Node:
    node: Node = READINGS
    for part in parts:
        node = Filter(node, part)
    return Project(node, (Named("i", Column("i", INT)),))


# --- mutants -------------------------------------------------------------------------------------

#: Makers of plans, with how many plans and how many mutants of each.
SHAPES: dict[str, tuple[Callable[[random.Random], Node], int, int]] = {
    "rows": (row_plan, 24, 60),
    "windows, joins and unions": (structured_plan, 32, 40),
    "small": (small_plan, 30, 50),
}


@lru_cache
def some_mutants(shape: str, share: float) -> list[tuple[Node, Node]]:
    """Plans, each with one of its mutants."""
    made, count, most = SHAPES[shape]
    pairs = []
    for seed in range(int(count * share)):
        chance = random.Random(f"mutants {seed}")
        plan = made(chance)
        found = list(mutants(plan))
        pairs += [(plan, mutant) for mutant in chance.sample(found, min(most, len(found)))]
    return pairs


@lru_cache
def merged_mutants(
    shape: str, arithmetic: str, share: float, written_first: bool = False
) -> list[tuple[Node, Node]]:
    """Those that are called equal to their plan."""
    merger = matcher(not EXACT[arithmetic], written_first)
    return [pair for pair in some_mutants(shape, share) if are_equal(*pair, merger)]


@SHARES
@pytest.mark.parametrize("arithmetic", EXACT)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_mutant_that_is_merged_gives_the_same_rows(
    shape: str, arithmetic: str, share: float
) -> None:
    merged, tried = merged_mutants(shape, arithmetic, share), len(some_mutants(shape, share))
    assert tried >= 1_000 * share
    # Most mutants matter, and must be told apart.
    assert len(merged) <= tried * 0.4
    assert_same_rows_of(merged, EXACT[arithmetic])


def assert_same_rows_of(merged: list[tuple[Node, Node]], exact: bool) -> None:
    for plan, mutant in merged:
        if types_of(plan) == types_of(mutant):
            told = judge().difference(plan, mutant, exact, errors=False, edges=False)
            assert not told, told + shown(plan, mutant)


@SHARES
def test_a_mutant_that_is_looked_up_as_written_gives_the_same_rows(share: float) -> None:
    shape = "windows, joins and unions"
    assert_same_rows_of(merged_mutants(shape, "exact", share, written_first=True), exact=True)


@SHARES
def test_a_mutant_that_is_merged_has_the_same_types(share: float) -> None:
    for shape in SHAPES:
        for plan, mutant in merged_mutants(shape, "exact", share):
            assert types_of(plan) == types_of(mutant), shown(plan, mutant)


@SHARES
def test_a_mutant_that_is_merged_raises_for_the_same_rows(share: float) -> None:
    for shape in ("rows", "small"):
        for plan, mutant in merged_mutants(shape, "exact", share):
            if types_of(plan) == types_of(mutant):
                told = judge().difference_by_row(plan, mutant)
                assert not told, told + shown(plan, mutant)


# --- pairs written out ---------------------------------------------------------------------------


@pytest.mark.parametrize("written_first", [False, True], ids=["sm", "sm+"])
@pytest.mark.parametrize("arithmetic", EXACT)
@pytest.mark.parametrize("pair", SAME)
def test_the_same(pair: str, arithmetic: str, written_first: bool) -> None:
    one, other = map(plan_of, SAME[pair])
    assert are_equal(one, other, matcher(not EXACT[arithmetic], written_first))


@pytest.mark.parametrize("pair", SAME)
def test_the_same_gives_the_same(pair: str) -> None:
    one, other = map(plan_of, SAME[pair])
    assert not judge().difference(one, other)


@pytest.mark.parametrize("arithmetic", EXACT)
@pytest.mark.parametrize("pair", DIFFERENT | DIFFERENT_BY_ERRORS)
def test_near_misses(pair: str, arithmetic: str) -> None:
    one, other = map(plan_of, (DIFFERENT | DIFFERENT_BY_ERRORS)[pair])
    assert not are_equal(one, other, matcher(not EXACT[arithmetic]))


@pytest.mark.parametrize("strategy", [s for s in MergeStrategy if s is not MergeStrategy.NONE])
@pytest.mark.parametrize("pair", DIFFERENT_UNSEEN)
def test_near_misses_by_what_spark_would_do(pair: str, strategy: MergeStrategy) -> None:
    one, other = map(plan_of, DIFFERENT_UNSEEN[pair])
    merger = make_matcher(strategy, unbounded=False, solver_steps=PATIENCE)
    assert merger.root(one) != merger.root(other)


@pytest.mark.parametrize("pair", DIFFERENT | DIFFERENT_BY_ERRORS | DIFFERENT_IF_EXACT)
def test_near_misses_can_be_told_apart(pair: str) -> None:
    one, other = map(plan_of, (DIFFERENT | DIFFERENT_BY_ERRORS | DIFFERENT_IF_EXACT)[pair])
    assert judge().difference(one, other)


@pytest.mark.parametrize("pair", DIFFERENT_IF_EXACT)
def test_overflows_are_minded_unless_they_are_ruled_out(pair: str) -> None:
    one, other = map(plan_of, DIFFERENT_IF_EXACT[pair])
    assert not are_equal(one, other, matcher())
    assert are_equal(one, other, matcher(unbounded=True))


@pytest.mark.parametrize("pair", DIFFERENT | DIFFERENT_BY_ERRORS | DIFFERENT_IF_EXACT)
def test_near_misses_that_are_looked_up_as_written(pair: str) -> None:
    one, other = map(plan_of, (DIFFERENT | DIFFERENT_BY_ERRORS | DIFFERENT_IF_EXACT)[pair])
    assert not are_equal(one, other, matcher(written_first=True))


@pytest.mark.parametrize(
    "strategy", [MergeStrategy.HB, MergeStrategy.STRUCTURAL, MergeStrategy.HB_PLUS]
)
@pytest.mark.parametrize("pair", DIFFERENT | DIFFERENT_BY_ERRORS | DIFFERENT_IF_EXACT)
def test_near_misses_of_strategies_that_go_by_the_writing(
    pair: str, strategy: MergeStrategy
) -> None:
    one, other = map(plan_of, (DIFFERENT | DIFFERENT_BY_ERRORS | DIFFERENT_IF_EXACT)[pair])
    merger = make_matcher(strategy, unbounded=False, solver_steps=0)
    assert merger.root(one) != merger.root(other)


@pytest.mark.parametrize(
    "strategy",
    [
        MergeStrategy.SM,
        MergeStrategy.SM_PLUS,
        MergeStrategy.HB,
        MergeStrategy.HB_PLUS,
        MergeStrategy.STRUCTURAL,
    ],
)
def test_zero_and_minus_zero(strategy: MergeStrategy) -> None:
    """``d + 0.0`` is 0.0 where ``d`` is -0.0, and ``d + -0.0`` is not."""
    merger = make_matcher(strategy, unbounded=False, solver_steps=0)
    plans = [
        Project(READINGS, (Named("x", Call("+", (Column("d", DOUBLE), zero), DOUBLE)),))
        for zero in (Literal(0.0, DOUBLE), Literal(-0.0, DOUBLE))
    ]
    assert judge().difference_by_row(*plans)
    assert merger.root(plans[0]) != merger.root(plans[1])


def test_a_comparison_that_raises_and_is_else_always_true() -> None:
    one, other = where("i < j AND l > 90000"), where("i < j AND l > 90001 AND m div 2 = m div 2")
    assert not are_equal(plan_of(one), plan_of(other), matcher())


def forced() -> tuple[Node, Node]:
    """An aggregate, and the same whose windows must not share work."""
    plan = plan_of(by_window("sum(l)"))

    def force(node: Node) -> Node:
        return replace(node, sharing="none") if isinstance(node, Aggregate) else node

    return plan, plan.transform(force)


@pytest.mark.parametrize("written_first", [False, True], ids=["sm", "sm+"])
def test_a_forced_plan_stays_as_it_is(written_first: bool) -> None:
    assert not are_equal(*forced(), matcher(written_first=written_first))


def test_a_stream_with_another_delay_is_another() -> None:
    assert not are_equal(READINGS, replace(READINGS, delay=0), matcher())


def test_there_are_enough_pairs() -> None:
    assert len(SAME) >= 30
    assert len(DIFFERENT) >= 40


# --- the example of the paper --------------------------------------------------------------------

#: Listing 1: red cars above 100 mph. The first query maps, filters and groups; the second filters,
#: maps, groups by a sliding window as long as its slide, and filters again.
LISTING = (
    "SELECT color, window, max(speed) AS top FROM "
    "(SELECT color, speed * 0.62D AS speed, ts FROM cars) WHERE color = 'red' AND speed > 100 "
    "GROUP BY color, window(ts, '5 minutes')",
    "SELECT * FROM (SELECT color, window, max(speed) AS top FROM "
    "(SELECT color, speed * 0.62D AS speed, ts FROM cars WHERE speed * 0.62D > 100) "
    "GROUP BY color, window(ts, '5 minutes', '5 minutes')) WHERE color = 'red'",
)


@pytest.mark.parametrize("arithmetic", EXACT)
def test_the_queries_of_the_paper_are_merged_once_they_are_optimized(arithmetic: str) -> None:
    assert CATALOG["cars"].schema["speed"].type != BIGINT
    one, other = (optimize(plan_of(sql)).plan for sql in LISTING)
    assert are_equal(one, other, matcher(not EXACT[arithmetic]))


def test_near_misses_of_the_queries_of_the_paper() -> None:
    one = optimize(plan_of(LISTING[0])).plan
    for changed in (
        LISTING[1].replace("> 100", ">= 100"),
        LISTING[1].replace("'red'", "'blue'"),
        LISTING[1].replace("'5 minutes', '5 minutes'", "'5 minutes', '1 minute'"),
        LISTING[1].replace("max(", "min("),
        LISTING[1].replace("0.62D AS", "0.6D AS"),
    ):
        assert changed != LISTING[1]
        assert not are_equal(one, optimize(plan_of(changed)).plan, matcher())
