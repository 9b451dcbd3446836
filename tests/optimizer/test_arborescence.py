"""The search for the cheapest arborescence, against every set of optional nodes."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.optimizer.windows.arborescence import Arborescence, Arcs, cheapest_tree

TERMINALS = 4


@st.composite
def problems(draw: st.DrawFn) -> list[list[tuple[int, int]]]:
    """Arcs from later nodes to earlier ones, so that there are no cycles, and from the root."""
    count = TERMINALS + draw(st.integers(0, 7))
    costs = st.integers(1, 30)
    order = draw(st.permutations(range(count)))
    arcs: list[list[tuple[int, int]]] = [[(draw(st.integers(5, 60)), count)] for _ in range(count)]
    for place, node in enumerate(order):
        for source in order[:place]:
            if draw(st.booleans()):
                arcs[node].append((draw(costs), source))
    return arcs


def cost(arcs: Arcs, opened: frozenset[int]) -> int:
    present = {*range(TERMINALS), *opened}
    return sum(
        min(c for c, source in arcs[node] if source == len(arcs) or source in present)
        for node in present
    )


def cheapest_of_all(arcs: Arcs) -> int:
    optional = range(TERMINALS, len(arcs))
    return min(
        cost(arcs, frozenset(some))
        for size in range(len(optional) + 1)
        for some in combinations(optional, size)
    )


@settings(deadline=None, max_examples=200)
@given(arcs=problems())
def test_the_tree_is_the_cheapest(arcs: list[list[tuple[int, int]]]) -> None:
    found = cheapest_tree(TERMINALS, arcs)
    assert found.proven
    assert found.cost == cost(arcs, found.opened) == cheapest_of_all(arcs)


@settings(deadline=None)
@given(arcs=problems(), budget=st.integers(0, 300), start=st.sets(st.integers(4, 10)))
def test_the_bound_holds_whenever_the_search_ends(
    arcs: list[list[tuple[int, int]]], budget: int, start: set[int]
) -> None:
    usable = {node for node in start if node < len(arcs)}
    found = cheapest_tree(TERMINALS, arcs, [usable], budget)
    assert found.bound <= cheapest_of_all(arcs) <= found.cost
    assert found.cost == cost(arcs, found.opened)
    assert found.cost <= cost(arcs, frozenset(usable))


@settings(deadline=None)
@given(arcs=problems())
def test_numbers_of_any_size(arcs: list[list[tuple[int, int]]]) -> None:
    huge = 10**400
    larger = [[(cost * huge + 1, source) for cost, source in entering] for entering in arcs]
    assert cheapest_tree(TERMINALS, larger).cost == cheapest_of_all(larger)


@pytest.mark.parametrize(("bound", "proven"), [(7, True), (6, False)])
def test_what_is_proven(bound: int, proven: bool) -> None:
    assert Arborescence(frozenset(), 7, bound).proven is proven
