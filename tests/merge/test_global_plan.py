"""The global plan: what is shared, by which strategy; who uses what; and nothing left behind."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from headrace.errors import HeadraceError, QueryError
from headrace.merge import GlobalPlan, MergeStrategy, Scope
from headrace.merge.global_plan import SharedOperator
from headrace.merge.strategies import MeaningMatcher
from headrace.plan.expressions import Column, Expr
from headrace.plan.nodes import (
    Filter,
    Join,
    JoinKind,
    Node,
    OutputMode,
    Project,
    SameWindow,
    Sink,
)
from headrace.plan.types import BIGINT, BOOLEAN, INT, TIMESTAMP
from headrace.plan.windows import tumbling
from tests.merge.generate import EVENTS, READINGS, small_plan, truth, whole
from tests.merge.rewrites import Rewriter
from tests.support.build import select

COUNT, OTHER = Column("i", INT), Column("j", INT)
LARGE, FLAG = Column("l", BIGINT), Column("b", BOOLEAN)


def query(name: str, plan: Node) -> Sink:
    return Sink(plan, name, "memory", OutputMode.APPEND)


def above(number: int) -> Expr:
    return truth(">", COUNT, whole(number))


def narrow(node: Node) -> Project:
    return select(node, "i", "s")


#: Milliseconds for a proof: many, so that a busy machine finds what an idle one does.
PATIENCE = 1_000


def filled(strategy: MergeStrategy, scope: Scope, *sinks: Sink, **options: Any) -> GlobalPlan:
    plan = GlobalPlan(strategy, scope, solver_steps=PATIENCE, **options)
    for sink in sinks:
        plan.add(sink)
    return plan


# --- operators counted by hand -------------------------------------------------------------------

#: One meaning in four spellings; sink, projection, one or two filters, source: 4 + 4 + 4 + 5 = 17.
SPELLINGS = (
    query("as it is", narrow(Filter(READINGS, truth("and", above(3), FLAG)))),
    query("the same", narrow(Filter(READINGS, truth("and", above(3), FLAG)))),
    query(
        "sides turned", narrow(Filter(READINGS, truth("and", FLAG, truth("<", whole(3), COUNT))))
    ),
    query("in two steps", narrow(Filter(Filter(READINGS, FLAG), above(3)))),
)
PARTIAL_SIZES = {
    MergeStrategy.NONE: 17,
    # The second adds its sink; the third and the fourth share the source alone.
    MergeStrategy.HB: 4 + 1 + 3 + 4,
    MergeStrategy.STRUCTURAL: 4 + 1 + 3 + 4,
    # Sorted operands make the third the same.
    MergeStrategy.HB_PLUS: 4 + 1 + 1 + 4,
    MergeStrategy.SM: 4 + 1 + 1 + 1,
    MergeStrategy.SM_PLUS: 4 + 1 + 1 + 1,
    # From the source up, the fourth leaves the others with its first filter.
    MergeStrategy.SM_BU: 4 + 1 + 1 + 4,
}
COMPLETE_SIZES = {
    MergeStrategy.NONE: 17,
    MergeStrategy.HB: 4 + 1 + 4 + 5,
    MergeStrategy.STRUCTURAL: 4 + 1 + 4 + 5,
    MergeStrategy.HB_PLUS: 4 + 1 + 1 + 5,
    MergeStrategy.SM: 4 + 1 + 1 + 1,
    MergeStrategy.SM_PLUS: 4 + 1 + 1 + 1,
    MergeStrategy.SM_BU: 4 + 1 + 1 + 1,
}


@pytest.mark.parametrize("strategy", MergeStrategy)
def test_parts_are_shared(strategy: MergeStrategy) -> None:
    plan = filled(strategy, Scope.PARTIAL, *SPELLINGS)
    assert plan.total == 17
    assert plan.size == PARTIAL_SIZES[strategy]
    assert plan.sharing_efficiency == pytest.approx(100 * (17 - plan.size) / 17)


@pytest.mark.parametrize("strategy", MergeStrategy)
def test_whole_queries_are_shared(strategy: MergeStrategy) -> None:
    plan = filled(strategy, Scope.COMPLETE, *SPELLINGS)
    assert (plan.total, plan.size) == (17, COMPLETE_SIZES[strategy])


def joined(swapped: bool) -> Join:
    sides = [(READINGS, "a"), (EVENTS, "b")]
    (left, one), (right, other) = reversed(sides) if swapped else sides
    keys = ((Column(f"{one}.l", BIGINT), Column(f"{other}.l", BIGINT)),)
    times = (Column(f"{one}.ts", TIMESTAMP), Column(f"{other}.ts", TIMESTAMP))
    return Join(left, right, JoinKind.INNER, one, other, keys, SameWindow(*times, tumbling(10_000)))


@pytest.mark.parametrize("strategy", MergeStrategy)
def test_sides_of_a_join(strategy: MergeStrategy) -> None:
    sizes = {
        MergeStrategy.NONE: 8,
        # The sources are shared, the joins of the same numbers in another order are not.
        MergeStrategy.HB: 6,
        MergeStrategy.SM_BU: 6,
    }
    plan = filled(strategy, Scope.PARTIAL, query("p", joined(False)), query("q", joined(True)))
    assert plan.size == sizes.get(strategy, 5)


@pytest.mark.parametrize("strategy", [s for s in MergeStrategy if s is not MergeStrategy.NONE])
def test_a_part_of_another_query(strategy: MergeStrategy) -> None:
    plan = GlobalPlan(strategy)
    lower = Filter(READINGS, above(3))
    assert not plan.add(query("upper", narrow(Filter(lower, FLAG)))).complete
    placed = plan.add(query("lower", lower))
    assert (placed.operators, placed.shared, placed.complete) == (3, 2, True)
    # Sources, two filters, a projection, two sinks.
    assert plan.size == 6
    assert plan.root("lower") in list(plan.root("upper").walk())


def test_two_queries_without_anything_in_common() -> None:
    plan = filled(MergeStrategy.SM, Scope.PARTIAL, query("p", READINGS), query("q", EVENTS))
    assert (plan.total, plan.size, plan.sharing_efficiency) == (4, 4, 0)
    assert len(plan.plans) == 2


def test_an_empty_plan_shares_nothing() -> None:
    plan = GlobalPlan()
    assert (len(plan), plan.size, plan.total, plan.sharing_efficiency) == (0, 0, 0, 0)


def test_strategies_have_the_names_of_the_paper() -> None:
    assert [MergeStrategy.named(s.value.upper()) for s in MergeStrategy] == list(MergeStrategy)
    with pytest.raises(HeadraceError) as error:
        MergeStrategy.named("magic")
    assert error.value.condition == "UNKNOWN_STRATEGY"
    assert "sm-bu" in str(error.value)


# --- who uses what -------------------------------------------------------------------------------


def test_operators_go_with_the_last_of_their_users() -> None:
    plan = filled(MergeStrategy.SM, Scope.PARTIAL, *SPELLINGS[:3])
    root = plan.root("as it is")
    (lower,) = root.inputs
    assert plan.root("the same") is plan.root("sides turned") is root
    assert (root.users, lower.users) == (3, 1)
    plan.remove("as it is")
    plan.remove("sides turned")
    assert (root.users, plan.size, plan.total) == (1, 4, 4)
    assert plan.root("the same") is root
    plan.remove("the same")
    assert (root.users, lower.users, plan.size, plan.total, plan.plans) == (0, 0, 0, 0, ())


def test_a_stream_that_is_joined_with_itself_has_two_users() -> None:
    keys = ((Column("a.l", BIGINT), Column("b.l", BIGINT)),)
    join = Join(EVENTS, EVENTS, JoinKind.INNER, "a", "b", keys)
    plan = filled(MergeStrategy.SM, Scope.PARTIAL, query("q", join))
    left, right = plan.root("q").inputs
    assert left is right
    assert left.users == 2
    plan.remove("q")
    assert (left.users, plan.size) == (0, 0)


def test_a_filter_that_says_nothing() -> None:
    """It means the same as what it reads; both go when they are no longer used."""
    plan = GlobalPlan(MergeStrategy.SM)
    plan.add(query("q", Filter(READINGS, truth("=", whole(1), whole(1)))))
    assert plan.add(query("p", READINGS)).complete
    plan.remove("q")
    plan.remove("p")
    assert (plan.size, plan.plans) == (0, ())


@pytest.mark.parametrize("use_source_index", [True, False])
@pytest.mark.parametrize("strategy", MergeStrategy)
def test_tenants_share_nothing(strategy: MergeStrategy, use_source_index: bool) -> None:
    plan = GlobalPlan(strategy, use_source_index=use_source_index)
    for number, tenant in enumerate((None, "one", "other")):
        assert plan.add(query(f"q{number}", SPELLINGS[0].input), tenant).shared == 0
    assert (plan.total, plan.size) == (12, 12)
    shared = plan.add(query("again", SPELLINGS[0].input), "one").shared
    assert shared == (0 if strategy is MergeStrategy.NONE else 3)
    for name in ("q1", "again"):
        plan.remove(name)
    assert {found.key.tenant for found in plan.plans} == {None, "other"}


def test_without_the_source_index_there_is_one_plan() -> None:
    sinks = (query("p", READINGS), query("q", EVENTS))
    assert len(filled(MergeStrategy.SM, Scope.PARTIAL, *sinks, use_source_index=False).plans) == 1
    assert len(filled(MergeStrategy.SM, Scope.PARTIAL, *sinks).plans) == 2


# --- batches and mistakes ------------------------------------------------------------------------


def test_a_batch_removes_before_it_adds() -> None:
    plan = filled(MergeStrategy.SM, Scope.PARTIAL, SPELLINGS[0], query("rest", EVENTS))
    replaced = query("as it is", narrow(READINGS))
    placed = plan.change([replaced, SPELLINGS[1]], ["as it is"], {"the same": "one"})
    assert [p.name for p in placed] == ["as it is", "the same"]
    # Nothing was merged with what left, and the second belongs to somebody else.
    assert [p.shared for p in placed] == [0, 0]
    assert len(plan) == 3
    assert "rest" in plan
    assert plan.total == 2 + 3 + 4
    assert plan.change() == []


def test_names_are_used_once() -> None:
    plan = filled(MergeStrategy.SM, Scope.PARTIAL, SPELLINGS[0])
    with pytest.raises(QueryError) as error:
        plan.add(query("as it is", EVENTS))
    assert error.value.condition == "DUPLICATE_QUERY"
    # Not even another tenant's.
    with pytest.raises(QueryError):
        plan.add(query("as it is", EVENTS), "one")
    assert (len(plan), plan.size, len(plan.plans)) == (1, 4, 1)


def test_what_is_not_there_cannot_be_removed() -> None:
    plan = filled(MergeStrategy.SM, Scope.PARTIAL, SPELLINGS[0])
    with pytest.raises(QueryError) as error:
        plan.remove("the same")
    assert error.value.condition == "UNKNOWN_QUERY"
    with pytest.raises(QueryError):
        plan.change([SPELLINGS[1]], ["the same"])
    assert (len(plan), plan.size) == (1, 4)
    assert "the same" not in plan


# --- a life of additions and removals ------------------------------------------------------------


def pool(chance: random.Random, spellings: int) -> list[Node]:
    """Plans, each in some spellings; with one spelling each, equal operators are written alike."""
    bases = [_layers(chance) for _ in range(12)]
    if spellings == 1:
        return bases
    bases += [small_plan(chance) for _ in range(6)]
    return [Rewriter(chance).plan(base) for base in bases for _ in range(spellings)]


def _layers(chance: random.Random) -> Node:
    """Filters in a fixed order below a projection, so that queries share lower parts."""
    node: Node = chance.choice((READINGS, EVENTS))
    for step in (
        above(chance.choice((1, 2))),
        truth("<", LARGE, whole(chance.choice((5, 6)))),
        FLAG,
    ):
        if chance.random() < 0.7:
            node = Filter(node, step)
    return narrow(node) if chance.random() < 0.6 else node


def lived(plan: GlobalPlan, chance: random.Random, plans: list[Node], steps: int) -> list[Sink]:
    """Random additions and removals, each checked; the queries that are left."""
    live: dict[str, Sink] = {}
    for step in range(steps):
        if live and chance.random() < 0.45:
            plan.remove(live.pop(chance.choice(list(live))).name)
        else:
            sink = query(f"q{step}", chance.choice(plans))
            live[sink.name] = sink
            plan.add(sink)
    return list(live.values())


def assert_counts_are_right(plan: GlobalPlan, live: list[Sink]) -> None:
    """Users and sizes are those of the operators that can be reached from the live queries."""
    users: Counter[SharedOperator] = Counter()
    reached: dict[SharedOperator, None] = {}
    waiting = [plan.root(sink.name) for sink in live]
    users.update(waiting)
    while waiting:
        operator = waiting.pop()
        if operator not in reached:
            reached[operator] = None
            users.update(operator.inputs)
            waiting += operator.inputs
    assert all(operator.users == users[operator] for operator in reached)
    assert plan.size == len(reached) + len(live)
    assert plan.total == sum(sum(1 for _ in sink.walk()) for sink in live)
    kept = {operator for shared in plan.plans for operator in shared.operators.values()}
    assert kept <= reached.keys()


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("strategy", MergeStrategy)
def test_nothing_is_left_of_queries_that_left(strategy: MergeStrategy, scope: Scope) -> None:
    chance = random.Random(11)
    plan = filled(strategy, scope)
    live = lived(plan, chance, pool(chance, 3), 120)
    assert_counts_are_right(plan, live)
    for number, sink in enumerate(chance.sample(live, len(live))):
        plan.remove(sink.name)
        if number % 5 == 0:
            left = [s for s in live if s.name in plan]
            assert_counts_are_right(plan, left)
    assert (len(plan), plan.size, plan.total, plan.plans) == (0, 0, 0, ())


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("strategy", MergeStrategy)
def test_the_past_does_not_matter(strategy: MergeStrategy, scope: Scope) -> None:
    """The plan is as large as one of the live queries alone, where equals are written alike.

    Otherwise what is left of a query may be written as one that left wrote it, in more steps.
    """
    for seed in range(5):
        chance = random.Random(seed)
        plan = filled(strategy, scope)
        live = lived(plan, chance, pool(chance, 1), 100)
        fresh = filled(strategy, scope, *live)
        assert (plan.size, plan.total) == (fresh.size, fresh.total)
        assert len(plan.plans) == len(fresh.plans)


def test_looking_upwards_shares_no_more() -> None:
    for seed in range(8):
        chance = random.Random(seed)
        plans = pool(chance, 3)
        sinks = [query(f"q{n}", chance.choice(plans)) for n in range(40)]
        down = filled(MergeStrategy.SM, Scope.PARTIAL, *sinks)
        up = filled(MergeStrategy.SM_BU, Scope.PARTIAL, *sinks)
        whole_ones = filled(MergeStrategy.SM, Scope.COMPLETE, *sinks)
        nothing = filled(MergeStrategy.NONE, Scope.PARTIAL, *sinks)
        assert down.size <= up.size <= nothing.size == nothing.total
        assert down.size <= whole_ones.size


def test_by_meaning_shares_at_least_what_the_writing_tells() -> None:
    for seed in range(8):
        chance = random.Random(seed)
        plans = pool(chance, 3)
        sinks = [query(f"q{n}", chance.choice(plans)) for n in range(40)]
        sizes = {s: filled(s, Scope.PARTIAL, *sinks).size for s in MergeStrategy}
        assert sizes[MergeStrategy.SM] <= sizes[MergeStrategy.HB] <= sizes[MergeStrategy.NONE]
        assert sizes[MergeStrategy.SM_PLUS] == sizes[MergeStrategy.SM]


def test_meanings_of_queries_that_left_are_forgotten() -> None:
    plan = GlobalPlan(MergeStrategy.SM)
    kept = [query(f"kept {n}", narrow(Filter(READINGS, above(n)))) for n in range(5)]
    plan.change(kept)
    plan.add(query("theirs", kept[0].input), "one")
    first = plan._matcher
    for number in range(1_001):
        plan.add(query("passing", narrow(Filter(READINGS, above(1_000 + number)))))
        plan.remove("passing")
    assert plan._matcher is not first
    assert isinstance(plan._matcher, MeaningMatcher)
    assert len(plan._matcher.equality.signer.terms.forms) < 200
    # The live queries are as they were, and go on sharing.
    assert [sink.name in plan for sink in kept] == [True] * 5
    assert (plan.total, plan.size) == (24, 4 + 4 * 3 + 4)
    assert plan.add(query("again", kept[3].input)).complete
    assert plan.add(query("theirs again", kept[0].input), "one").complete
    assert_counts_are_right(
        plan, [*kept, *(query(n, kept[0].input) for n in ("theirs", "again", "theirs again"))]
    )


# --- how much work -------------------------------------------------------------------------------


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """How many functions of the merger are called."""
    calls = [0]

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and "/headrace/merge/" in frame.f_code.co_filename:
            calls[0] += 1

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def calls_of(step: Callable[[], object]) -> int:
    with counted_calls() as calls:
        step()
    return calls[0]


def easy(number: int) -> Node:
    """A filter that its spelling decides; some have a partner, most do not."""
    return narrow(Filter(READINGS, above(number // 2)))


def hard(number: int) -> Node:
    """A filter that its spelling does not decide."""
    low = truth("<", COUNT, OTHER)
    return narrow(Filter(READINGS, truth("and", low, truth(">", LARGE, whole(number)))))


@pytest.mark.parametrize(
    "strategy", [MergeStrategy.HB, MergeStrategy.HB_PLUS, MergeStrategy.SM, MergeStrategy.SM_PLUS]
)
def test_ten_thousand_queries_take_no_more_work_each_than_one_hundred(
    strategy: MergeStrategy,
) -> None:
    plan = GlobalPlan(strategy)
    work: list[int] = []
    for number in range(10_000):
        sink = query(f"q{number}", easy(number))
        if number < 100 or number >= 9_900:
            work.append(calls_of(lambda sink=sink: plan.add(sink)))  # type: ignore[misc]
        else:
            plan.add(sink)
    assert max(work[100:]) <= max(work[:100]) < 600
    assert plan.size == 10_000 + 2 * 5_000 + 1
    order = random.Random(1).sample(range(10_000), 5_000)
    removals = [calls_of(lambda n=n: plan.remove(f"q{n}")) for n in order]  # type: ignore[misc]
    assert max(removals) < 50
    assert len(plan) == 5_000


def test_what_is_begun_anew_is_less_than_what_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Now and then the live queries are added again: rarely enough that it costs little."""
    plan = GlobalPlan(MergeStrategy.SM)
    for number in range(3_000):
        plan.add(query(f"q{number}", easy(number)))
    again = Counter[str]()
    add = GlobalPlan.add

    def counted(self: GlobalPlan, sink: Sink, tenant: str | None = None) -> Any:
        again[sink.name] += 1
        return add(self, sink, tenant)

    monkeypatch.setattr(GlobalPlan, "add", counted)
    for number in random.Random(2).sample(range(3_000), 3_000):
        plan.remove(f"q{number}")
    assert 0 < again.total() <= 3_000 / 4
    assert (plan.size, plan.total, plan.plans) == (0, 0, ())


def test_queries_that_may_take_a_proof_take_no_more_work_each() -> None:
    plan = GlobalPlan(MergeStrategy.SM)
    early, late = [], []
    for number in range(300):
        sink = query(f"q{number}", hard(number))
        if number in range(40, 50) or number in range(290, 300):
            work = calls_of(lambda sink=sink: plan.add(sink))  # type: ignore[misc]
            (early if number < 100 else late).append(work)
        else:
            plan.add(sink)
    assert max(late) <= 2 * max(early)
