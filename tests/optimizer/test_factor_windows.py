"""Algorithms 1 to 5 of "Factor Windows" on the paper's examples, and the search beyond them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.cost.factor_windows import PaperCost
from headrace.errors import PlanError
from headrace.optimizer.windows.candidates import factor_candidates
from headrace.optimizer.windows.published import (
    Target,
    benefit,
    best_covering_factor,
    best_partitioning_factor,
    coverage_graph,
    is_beneficial,
    min_cost_graph,
    min_cost_graph_with_factors,
    partitioning_candidates,
    targets,
)
from headrace.optimizer.windows.steiner import best_graph
from headrace.plan.coverage import Coverage, is_derived_from
from headrace.plan.window_graph import WindowGraph, WindowSource, graph_cluster, graph_text
from headrace.plan.windows import Hopping, common_pane

BOTH = pytest.mark.parametrize("coverage", list(Coverage))


def tumbling(*lengths: int) -> list[Hopping]:
    return [Hopping(length, length) for length in lengths]


def unshared(windows: Iterable[Hopping], costs: PaperCost) -> Fraction:
    return sum((costs.step(window, None) for window in windows), Fraction(0))


# The paper's examples


@BOTH
def test_example_6_from_480_to_150(coverage: Coverage) -> None:
    windows = tumbling(10, 20, 30, 40)
    costs = PaperCost.of(windows)
    assert costs.period == 120
    assert unshared(windows, costs) == 480
    graph = min_cost_graph(windows, coverage, costs)
    assert costs.total(graph) == 150
    assert [costs.windows(graph)[w] for w in windows] == [120, 12, 12, 6]
    # Figure 6(b).
    ten, twenty, thirty, forty = windows
    assert graph.sources == {ten: None, twenty: ten, thirty: ten, forty: twenty}


@BOTH
def test_example_7_from_360_over_246_to_150(coverage: Coverage) -> None:
    windows = tumbling(20, 30, 40)
    costs = PaperCost.of(windows)
    assert unshared(windows, costs) == 360
    assert costs.total(min_cost_graph(windows, coverage, costs)) == 246
    graph = min_cost_graph_with_factors(windows, coverage, costs)
    assert costs.total(graph) == 150
    assert graph.factors == (Hopping(10, 10),)


def test_example_8_the_candidates_and_the_best() -> None:
    windows = tumbling(20, 30, 40)
    costs = PaperCost.of(windows)
    root = targets(windows, Coverage.PARTITIONED, costs)[0]
    assert root.virtual
    assert root.downstream == tuple(tumbling(20, 30))
    assert partitioning_candidates(root, costs) == tumbling(10, 5, 2)
    assert best_partitioning_factor(root, costs) == Hopping(10, 10)


def test_mutually_prime_windows_share_nothing_among_themselves() -> None:
    windows = tumbling(15, 17, 19)
    costs = PaperCost.of(windows)
    graph = min_cost_graph(windows, Coverage.PARTITIONED, costs)
    assert graph.roots == tuple(windows)


def test_recurrence_count_of_figure_5() -> None:
    """A period of 40 holds 4 occurrences of (10, 10) and 7 of (10, 5)."""
    costs = PaperCost(40)
    assert costs.occurrences(Hopping(10, 10)) == 4
    assert costs.occurrences(Hopping(10, 5)) == 7


# Properties

window_sets = st.lists(
    st.builds(
        lambda slide, k, offset: Hopping(slide * k, slide, offset),
        st.integers(1, 12),
        st.integers(1, 4),
        st.sampled_from([0, 0, 0, 1, 2, 6]),
    ),
    min_size=1,
    max_size=6,
    unique=True,
)
any_windows = st.lists(
    st.builds(Hopping, st.integers(1, 30), st.integers(1, 30), st.integers(0, 10)),
    min_size=1,
    max_size=6,
    unique=True,
)


@BOTH
@settings(deadline=None)
@given(windows=any_windows)
def test_theorem_7_a_forest_that_only_uses_what_covers(
    coverage: Coverage, windows: list[Hopping]
) -> None:
    costs = PaperCost.of(windows)
    for graph in (
        min_cost_graph(windows, coverage, costs),
        min_cost_graph_with_factors(windows, coverage, costs),
        best_graph(windows, coverage, costs).graph,
    ):
        assert graph.asked == frozenset(windows)
        # Each window once, with one source at most; the WindowGraph itself refuses cycles,
        # because a source is strictly shorter.
        assert len({edge.window for edge in graph.edges}) == len(graph.edges)
        for edge in graph.edges:
            if edge.source is not None:
                assert edge.source.length < edge.window.length
                assert is_derived_from(edge.window, edge.source, coverage)


@BOTH
@settings(deadline=None)
@given(windows=any_windows)
def test_each_step_is_never_worse(coverage: Coverage, windows: list[Hopping]) -> None:
    costs = PaperCost.of(windows)
    shared = costs.total(min_cost_graph(windows, coverage, costs))
    factored = costs.total(min_cost_graph_with_factors(windows, coverage, costs))
    found = best_graph(windows, coverage, costs)
    assert shared <= unshared(windows, costs)
    assert factored <= shared
    assert found.cost <= factored
    assert found.bound <= found.cost
    assert found.cost == costs.total(found.graph)


@given(windows=window_sets)
def test_algorithm_4_agrees_with_the_benefit(windows: list[Hopping]) -> None:
    """Theorem 8, for tumbling targets and factor windows."""
    windows = [Hopping(w.length, w.slide) for w in windows]
    windows = list(dict.fromkeys(windows))
    costs = PaperCost.of(windows)
    for target in targets(windows, Coverage.PARTITIONED, costs):
        pane, offset = common_pane(target.downstream)
        for length in range(1, pane + 1):
            factor = Hopping(length, length, offset)
            if factor == target.window or pane % length or length % target.window.length:
                continue
            assert is_beneficial(factor, target, costs) == (benefit(factor, target, costs) >= 0)


@settings(deadline=None)
@given(windows=any_windows, rate=st.sampled_from([1, 3, 3.5]), unit=st.sampled_from([1, 2, 6]))
def test_no_loss_is_called_a_benefit(windows: list[Hopping], rate: float, unit: int) -> None:
    """Also where windows pause, and where a unit of time has few rows or many."""
    costs = PaperCost.of(windows, rate, unit)
    for target in targets(windows, Coverage.PARTITIONED, costs):
        for factor in partitioning_candidates(target, costs):
            assert benefit(factor, target, costs) >= 0
        best = best_partitioning_factor(target, costs)
        assert best is None or benefit(best, target, costs) > 0
    for target in targets(windows, Coverage.COVERED, costs):
        best = best_covering_factor(target, costs)
        assert best is None or benefit(best, target, costs) > 0


def test_a_factor_window_of_two_windows_that_pause_is_a_loss() -> None:
    """Over a period of 12: 1.2 of (4, 40) and 1.15 of (6, 40), of 4.8 and 6.9 rows. For (2, 2)
    alone 12 rows are read."""
    windows = [Hopping(4, 40), Hopping(6, 40)]
    costs = PaperCost.of(windows)
    (root,) = targets(windows, Coverage.PARTITIONED, costs)
    pane = Hopping(2, 2)
    lost = 12 + Fraction("1.2") * 2 + Fraction("1.15") * 3 - Fraction("11.7")
    assert benefit(pane, Target(Hopping(1, 1), root.downstream, True), costs) == -lost
    assert not is_beneficial(pane, Target(Hopping(1, 1), root.downstream, True), costs)
    assert not min_cost_graph_with_factors(windows, Coverage.PARTITIONED, costs).factors


@given(windows=window_sets)
def test_the_shortest_and_the_longest_are_enough(windows: list[Hopping]) -> None:
    """Algorithm 2 as published tries every length; the best of them is found all the same."""
    windows = list(dict.fromkeys(Hopping(w.length, w.slide) for w in windows))
    costs = PaperCost.of(windows)
    for target in targets(windows, Coverage.COVERED, costs):
        shortest = min(w.length for w in target.downstream)
        every = [
            benefit(factor, target, costs)
            for slide in range(1, shortest + 1)
            for length in range(slide, shortest + 1, slide)
            if (factor := Hopping(length, slide)) != target.window
            and factor not in target.downstream
            and is_derived_from(factor, target.window, Coverage.COVERED)
            and all(is_derived_from(w, factor, Coverage.COVERED) for w in target.downstream)
        ]
        most = max([Fraction(0), *every])
        best = best_covering_factor(target, costs)
        found = Fraction(0) if best is None else benefit(best, target, costs)
        assert found == most


# The search beyond the paper


def cheapest_of_all(
    windows: list[Hopping], factors: list[Hopping], coverage: Coverage, costs: PaperCost
) -> Fraction:
    """Every set of factor windows in turn, each with Algorithm 1: slow and sure."""
    best = unshared(windows, costs)
    for count in range(min(len(factors), 4) + 1):
        for chosen in itertools.combinations(factors, count):
            nodes = [*windows, *chosen]
            sources = coverage_graph(nodes, coverage)
            total = sum(min(costs.step(w, s) for s in (None, *sources[w])) for w in nodes)
            best = min(best, total)
    return best


@BOTH
@pytest.mark.parametrize("seed", range(12))
def test_the_bound_is_below_every_tree_and_the_tree_is_the_best(
    coverage: Coverage, seed: int
) -> None:
    """Against all sets of up to four factor windows, also ones that are no candidates."""
    chance = random.Random(seed)
    pick = (2, 3, 4, 6, 8, 9, 10, 12, 15, 18, 20, 24)
    windows = list({Hopping(s * chance.choice((1, 1, 2)), s) for s in chance.sample(pick, 4)})
    costs = PaperCost.of(windows)
    longest = max(w.length for w in windows)
    every = [
        Hopping(length, slide)
        for slide in range(1, longest + 1)
        for length in range(slide, longest + 1, slide)
        if coverage is Coverage.COVERED or length == slide
    ]
    useful = [
        f
        for f in every
        if f not in windows and sum(is_derived_from(w, f, coverage) for w in windows) >= 1
    ]
    chance.shuffle(useful)
    found = best_graph(windows, coverage, costs)
    candidates = factor_candidates(windows, coverage, costs)
    # The candidates alone, exhaustively; and a sample of the others beside them.
    sample = list(dict.fromkeys([*candidates.windows[:9], *useful[:4]]))
    brute = cheapest_of_all(windows, sample, coverage, costs)
    assert found.bound <= brute
    assert found.cost <= brute


def test_the_search_finds_what_the_paper_says_it_leaves_out() -> None:
    """Footnote 3: a factor window of a part of the windows, here 15 for (30, 45) beside 20, 28."""
    windows = tumbling(30, 45, 75, 20, 28)
    costs = PaperCost.of(windows)
    published = min_cost_graph_with_factors(windows, Coverage.PARTITIONED, costs)
    found = best_graph(windows, Coverage.PARTITIONED, costs)
    assert Hopping(15, 15) in found.graph.factors
    assert found.cost < costs.total(published)
    assert found.gap == 0


def test_algorithm_5_respects_slides() -> None:
    """The common length of (20, 10) and (20, 5) is 20, but only 5 partitions both."""
    target = Target(Hopping(1, 1), (Hopping(20, 10), Hopping(20, 5)), True)
    assert best_partitioning_factor(target, PaperCost(20)) == Hopping(5, 5)


# Graphs as values


def test_a_graph_refuses_what_is_not_one() -> None:
    ten, twenty = tumbling(10, 20)
    with pytest.raises(PlanError, match="not covered"):
        WindowGraph.of([ten, twenty], {ten: twenty, twenty: None})
    with pytest.raises(PlanError, match="does not compute"):
        WindowGraph.of([ten, twenty], {twenty: None})
    with pytest.raises(PlanError, match="does not compute"):
        WindowGraph(frozenset([twenty]), (WindowSource(twenty, ten),))


def test_the_graph_as_text_and_as_a_picture() -> None:
    minute = 60_000
    windows = tumbling(20 * minute, 30 * minute, 40 * minute)
    costs = PaperCost.of(windows, unit=minute)
    graph = min_cost_graph_with_factors(windows, Coverage.PARTITIONED, costs)
    assert graph_text(graph, costs.windows(graph)) == (
        "rows\n"
        "└─ 10 minutes *factor window*, cost 120\n"
        "   └─ 20 minutes from 2 each, cost 12\n"
        "      └─ 40 minutes from 2 each, cost 6\n"
        "   └─ 30 minutes from 3 each, cost 12"
    )
    dot = graph_cluster(graph, "g", "k of events")
    (factor,) = [line for line in dot if 'label="10 minutes"' in line]
    assert "dashed" in factor
    assert sum("->" in line for line in dot) == 4
