"""The search over all factor windows, against an integer program that has every one of them.

The program is written from the definitions of the paper alone: what a window may be computed from
(Theorems 1 and 4), how often it occurs (Equation 1) and how many intervals make one (Theorem 3). It
weighs all windows shorter than the longest one asked for, and shares nothing with the search.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from fractions import Fraction
from math import lcm

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from headrace.cost.factor_windows import PaperCost
from headrace.optimizer.windows import candidates
from headrace.optimizer.windows.candidates import Candidates, factor_candidates
from headrace.optimizer.windows.describe import described
from headrace.optimizer.windows.layout import CostModel, layouts, own_panes
from headrace.optimizer.windows.published import min_cost_graph_with_factors
from headrace.optimizer.windows.steiner import best_graph
from headrace.plan.coverage import Coverage
from headrace.plan.windows import Hopping, tumbling

BOTH = pytest.mark.parametrize("coverage", list(Coverage))
SECOND = 1_000
YEAR = 365 * 24 * 3_600 * SECOND

#: Length, slide and offset.
Triple = tuple[int, int, int]


def may_be_computed_from(coarse: Triple, fine: Triple, coverage: Coverage) -> bool:
    (length, slide, offset), (its_length, its_slide, its_offset) = coarse, fine
    return (
        its_slide <= its_length < length
        and slide % its_slide == 0
        and (length - its_length) % its_slide == 0
        and (offset - its_offset) % its_slide == 0
        and (coverage is Coverage.COVERED or its_slide == its_length)
    )


def cost_of_arc(window: Triple, source: Triple | None, period: int) -> Fraction:
    length, slide, _ = window
    often = 1 + Fraction(period - length, slide)
    return often * (length if source is None else 1 + (length - source[0]) // source[1])


def cheapest_by_program(asked: Sequence[Triple], coverage: Coverage) -> Fraction:
    """The cost of the best graph: each window from one source, each source computed itself."""
    period = lcm(*(length for length, _, _ in asked))
    longest = max(length for length, _, _ in asked)
    every = [
        (length, slide, offset)
        for length in range(1, longest)
        for slide in range(1, length + 1)
        for offset in range(slide)
    ]
    factors = [
        f
        for f in every
        if f not in asked and any(may_be_computed_from(w, f, coverage) for w in asked)
    ]
    nodes = [*asked, *factors]
    arcs: list[tuple[int, int | None]] = []
    for index, window in enumerate(nodes):
        arcs.append((index, None))
        arcs += [
            (index, other)
            for other, source in enumerate(nodes)
            if may_be_computed_from(window, source, coverage)
        ]
    costs = [
        cost_of_arc(nodes[window], None if source is None else nodes[source], period)
        for window, source in arcs
    ]
    # A variable for each arc that is taken, and one for each factor window that is there. Windows
    # asked for have one arc; factor windows one if they are there, and are there if an arc is from
    # them.
    entries: list[tuple[int, int, int]] = []
    least, most = [], []
    for index in range(len(nodes)):
        present = index >= len(asked)
        if present:
            entries.append((index, len(arcs) + index - len(asked), -1))
        least.append(0 if present else 1)
        most.append(0 if present else 1)
    for number, (window, source) in enumerate(arcs):
        entries.append((window, number, 1))
        if source is not None and source >= len(asked):
            entries.append((len(least), number, 1))
            entries.append((len(least), len(arcs) + source - len(asked), -1))
            least.append(-1)
            most.append(0)
    rows, columns, values = zip(*entries, strict=True)
    width = len(arcs) + len(factors)
    matrix = coo_array((values, (rows, columns)), shape=(len(least), width)).tocsr()
    found = milp(
        np.array([*map(float, costs), *([0.0] * len(factors))]),
        constraints=LinearConstraint(matrix, np.array(least), np.array(most)),
        bounds=Bounds(0, 1),
        integrality=np.array([0] * len(arcs) + [1] * len(factors)),
        options={"mip_rel_gap": 0},
    )
    assert found.status == 0, found.message
    # What it took, in fractions: arcs into windows that are there are whole where these are.
    taken = [number for number in range(len(arcs)) if found.x[number] > 0.5]
    assert {arcs[number][0] for number in taken} >= set(range(len(asked)))
    return sum((costs[number] for number in taken), Fraction(0))


def random_windows(seed: int) -> list[Triple]:
    """Tumbling and hopping windows, with slides that do not divide lengths, pauses and offsets."""
    chance = random.Random(seed)
    found: set[Triple] = set()
    for _ in range(chance.randint(2, 5)):
        length = chance.randint(1, 22)
        slide = length
        if chance.random() < 0.5:
            slide = chance.randint(1, max(1, length * 4 // 3))
        elif chance.random() < 0.6:
            slide = max(1, length // chance.randint(1, 4))
            length = length // slide * slide
        offset = chance.randrange(slide) if chance.random() < 0.2 else 0
        found.add((length, slide, offset))
    return sorted(found)


SEEDS = [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 200))]


@BOTH
@pytest.mark.parametrize("seed", SEEDS)
def test_the_search_is_exact(coverage: Coverage, seed: int) -> None:
    asked = random_windows(seed)
    windows = [Hopping(*window) for window in asked]
    found = best_graph(windows, coverage, PaperCost.of(windows))
    assert found.is_best
    assert found.cost == cheapest_by_program(asked, coverage)


@pytest.mark.parametrize("seed", SEEDS)
def test_candidates_that_are_built_up_do_as_well(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if there were too many windows for all of them; it does not say that there are no more."""
    asked = random_windows(seed)
    windows = [Hopping(*window) for window in asked]
    # Less than none, so that even an empty set of them is not all.
    monkeypatch.setattr(candidates, "MOST_WINDOWS", -1)
    found = best_graph(windows, Coverage.COVERED, PaperCost.of(windows))
    assert found.cost == cheapest_by_program(asked, Coverage.COVERED)
    assert found.gap == 0
    if found.candidates:
        assert not found.is_best
        assert found.text.endswith("there are other factor windows")


def test_windows_whose_slides_do_not_divide_their_lengths() -> None:
    """Over a period of 154: 76.5 of (3, 2) from rows and 72.5 of (11, 2) from 5 of these each,
    50 2/3 of (5, 3) from rows and 47 2/3 of (14, 3) from 4 of these each."""
    windows = [Hopping(11, 2), Hopping(14, 3)]
    costs = PaperCost.of(windows)
    covered = best_graph(windows, Coverage.COVERED, costs)
    assert covered.graph.factors == (Hopping(3, 2), Hopping(5, 3))
    parts = Fraction("76.5") * 3, Fraction("72.5") * 5, Fraction(152, 3) * 5, Fraction(143, 3) * 4
    assert covered.cost == sum(parts) == 1036
    assert covered.is_best
    assert covered.text == "no graph costs less"
    partitioned = best_graph(windows, Coverage.PARTITIONED, costs)
    assert partitioned.cost == sum(costs.step(window, None) for window in windows)
    assert partitioned.is_best


def test_a_window_that_pauses_cannot_be_computed_from_a_pane_as_long_as_itself() -> None:
    """The pane that both have in common is one of them but for its pauses; half of it serves both.

    Over a period of 30: 6 of (5, 5) from 5 rows, 2 of (10, 20) from 2 and one of (30, 10) from 6.
    """
    windows = [Hopping(10, 20), Hopping(30, 10)]
    found = best_graph(windows, Coverage.PARTITIONED, PaperCost.of(windows))
    assert found.graph.factors == (Hopping(5, 5),)
    assert found.cost == 30 + 4 + 6
    assert found.is_best


# What is said of the answer


def test_a_search_that_ends_early_says_how_far_it_may_be() -> None:
    lengths = (12, 18, 20, 30, 42, 45, 50, 70, 75, 105)
    windows = [Hopping(length, slide) for length in lengths for slide in (5, length // 3)]
    costs = PaperCost.of(windows)
    short = best_graph(windows, Coverage.COVERED, costs, budget=1)
    long = best_graph(windows, Coverage.COVERED, costs)
    assert short.bound < short.cost
    assert short.gap > 0
    assert not short.is_best
    assert "may cost up to" in short.text
    assert short.bound <= long.bound <= long.cost <= short.cost
    assert long.gap == 0


@BOTH
@pytest.mark.parametrize("seed", range(20))
def test_more_candidates_are_never_dearer(
    coverage: Coverage, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From no factor windows but the published ones to all of them, one by one."""
    windows = [Hopping(*window) for window in random_windows(seed)]
    costs = PaperCost.of(windows)
    every = factor_candidates(windows, coverage, costs).windows
    order = random.Random(seed).sample(every, len(every))
    before = costs.total(min_cost_graph_with_factors(windows, coverage, costs))
    for count in range(0, len(order) + 1, 1 + len(order) // 6):
        some = Candidates(tuple(order[:count]), False)
        monkeypatch.setattr(
            "headrace.optimizer.windows.steiner.factor_candidates", lambda *_, some=some: some
        )
        found = best_graph(windows, coverage, costs)
        assert found.cost <= before
        before = found.cost


@pytest.mark.parametrize("seed", range(30))
def test_aggregates_that_may_count_twice_are_never_dearer(seed: int) -> None:
    windows = [Hopping(*window) for window in random_windows(seed)]
    costs = PaperCost.of(windows)
    covered = best_graph(windows, Coverage.COVERED, costs)
    assert covered.cost <= best_graph(windows, Coverage.PARTITIONED, costs).cost


# Sizes


def test_costs_of_any_size_are_exact() -> None:
    """A second beside years and 200 primes: the period is longer than a float can hold."""
    primes = [n for n in range(2, 1_224) if all(n % d for d in range(2, n))]
    windows = [tumbling(prime * SECOND) for prime in primes]
    windows += [tumbling(SECOND), Hopping(10 * YEAR, SECOND), Hopping(YEAR, 1)]
    costs = PaperCost.of(windows, unit=SECOND)
    assert costs.period > 10**400
    graph = min_cost_graph_with_factors(windows, Coverage.PARTITIONED, costs)
    # Of all that tumble, each from the window of a second: as many of these as it is long.
    assert costs.windows(graph)[tumbling(7 * SECOND)] == Fraction(costs.period, SECOND)
    one_more = PaperCost(costs.period + 1, unit=SECOND)
    assert one_more.total(graph) > costs.total(graph)


def test_explaining_costs_of_any_size() -> None:
    primes = [n for n in range(2, 1_224) if all(n % d for d in range(2, n))]
    windows = [tumbling(prime * SECOND) for prime in primes]
    text = described("primes", own_panes(windows), Coverage.PARTITIONED, None).text
    (items,) = [line for line in text.splitlines() if "items in" in line]
    assert "e+" in items
    assert len(items) < 120
    json.dumps(float(described("two", own_panes(windows[:2]), Coverage.COVERED, None).items_after))


# What is stored


def test_the_best_graph_is_among_the_layouts() -> None:
    """5 for (15, 20, ...) and 28 by itself; published factor windows are those of all together."""
    windows = [tumbling(length * SECOND) for length in (30, 45, 75, 20, 28)]
    costs = PaperCost.of(windows, unit=SECOND)
    roots = set(best_graph(windows, Coverage.PARTITIONED, costs).graph.roots)
    assert roots == {tumbling(5 * SECOND), tumbling(28 * SECOND)}
    ranked = {entry.name: entry.layout for entry in layouts(windows, None)}
    assert set(ranked["best factor windows"].panes) == roots
    by_paper = layouts(windows, None, model=CostModel.PAPER)[0]
    assert by_paper.name == "best factor windows"
