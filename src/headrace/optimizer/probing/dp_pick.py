"""dpPick: for each driver the cheapest sequence of probes (Algorithm 3).

Published, it lists all sequences and remembers the costs of their tails; of n inputs that all share
keys these are n ((n - 1)!)², 200 million for eight. But what a tail costs depends only on which
inputs are present and on the driver, who decides between pairs of equal keys (``graph.pairs``), and
a cheaper tail makes the whole cheaper, as no step has a negative weight. So the best tail of each
set of inputs is found once: 2ⁿ⁻¹ sets for a driver, with the same result as the full list.

Above ``MOST_EXACT`` inputs a beam keeps the ``WIDTH`` most promising sets of each size. It may miss
the best, but is never worse than the initial and the greedy order.

Paper: Multi-Way Joins, Section 4.2, Algorithm 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headrace.cost.probing import ProbeCost, probe_cost, sequence_rank
from headrace.optimizer.probing import cost_greedy
from headrace.optimizer.probing.fixed_order import initial_orders
from headrace.optimizer.probing.graph import ProbeGraph, ProbeSequence
from headrace.optimizer.probing.strategy import Choice, require_order
from headrace.stats.probes import Edge

NAME = "dp_pick"
#: Above this many inputs the search is a beam: sets are then too many to look at.
MOST_EXACT = 10
#: Sets of one size that the beam keeps.
WIDTH = 32

#: What a pair costs a driver's new rows that have met a set of inputs.
Costs = Callable[[int, int, Edge], ProbeCost | None]
#: Inputs whose keys are equal, and by the bit of each its pair.
_Way = tuple[int, dict[int, Edge]]


def orders(choice: Choice) -> dict[int, ProbeSequence]:
    graph, statistics, initial = choice.graph, choice.statistics, choice.initial
    require_order(graph, initial)
    if statistics is None:
        return initial_orders(graph, initial)
    by = choice.tuning, choice.model
    general = {edge: probe_cost(statistics, edge, *by) for edge in graph.edges}

    def costs(driver: int, present: int, edge: Edge) -> ProbeCost | None:
        if driver not in statistics.drivers:
            return general[edge]
        return probe_cost(statistics, edge, *by, (driver, present))

    drivers = range(graph.count)
    if graph.count <= MOST_EXACT:
        return {driver: _exact(_search(graph, driver, initial, costs)) for driver in drivers}
    sequences = {driver: _beam(_search(graph, driver, initial, costs)) for driver in drivers}
    simple = initial_orders(graph, initial), cost_greedy.orders(choice)
    return {
        driver: min(
            (sequence, *(others[driver] for others in simple)),
            key=lambda candidate: sequence_rank(candidate, statistics, *by),
        )
        for driver, sequence in sequences.items()
    }


@dataclass(frozen=True)
class _Search:
    """One driver's probes, prepared: a search asks for them thousands of times.

    ``options`` are the other inputs in the initial order, each by its bit with the ways to it.
    """

    driver: int
    everything: int
    options: tuple[tuple[int, tuple[_Way, ...]], ...]
    costs: Costs

    def steps(self, present: int) -> Iterator[tuple[int, Edge, ProbeCost | None]]:
        """What can be probed from a set: the set with it, the pair, and the pair's cost."""
        for bit, ways in self.options:
            if not present & bit:
                for way, pairs in ways:
                    able = way & present
                    if able:
                        pair = pairs[able & -able]
                        yield present | bit, pair, self.costs(self.driver, present, pair)


def _search(graph: ProbeGraph, driver: int, initial: tuple[int, ...], costs: Costs) -> _Search:
    def pairs(way: int, right: int) -> dict[int, Edge]:
        return {1 << left: (left, right) for left in range(graph.count) if way >> left & 1}

    options = tuple(
        (1 << right, tuple((way, pairs(way, right)) for way in graph.ways(driver, right)))
        for right in initial
        if right != driver
    )
    return _Search(driver, graph.everything, options, costs)


def _exact(search: _Search) -> ProbeSequence:
    # The best tail after each set: unknown pairs, seconds, and the pair that it begins with.
    tails: dict[int, tuple[int, float, Edge]] = {}

    def tail(present: int) -> tuple[int, float]:
        if present == search.everything:
            return 0, 0.0
        remembered = tails.get(present)
        if remembered is not None:
            return remembered[:2]
        best: tuple[int, float, Edge] | None = None
        for after, pair, cost in search.steps(present):
            unknown, seconds = tail(after)
            if cost is None:
                unknown += 1
            else:
                seconds = cost.then(seconds)
            # The first of equals: steps come in the initial order.
            if best is None or (unknown, seconds) < best[:2]:
                best = unknown, seconds, pair
        assert best is not None, "the graph is connected"
        tails[present] = best
        return best[:2]

    present, sequence = 1 << search.driver, []
    tail(present)
    while present != search.everything:
        pair = tails[present][2]
        sequence.append(pair)
        present |= 1 << pair[1]
    return tuple(sequence)


@dataclass(frozen=True)
class _Head:
    """The beginning of a sequence: its cost, and how many rows a new row has become after it."""

    unknown: int
    seconds: float
    rows: float
    sequence: ProbeSequence

    def then(self, pair: Edge, cost: ProbeCost | None) -> _Head:
        sequence = (*self.sequence, pair)
        if cost is None:
            return _Head(self.unknown + 1, self.seconds, self.rows, sequence)
        seconds = self.seconds + self.rows * cost.own
        return _Head(self.unknown, seconds, self.rows * cost.onward, sequence)

    def rank(self, missing: float) -> tuple[int, float]:
        """As if each row now at hand met what is missing once, at these costs together."""
        return self.unknown, self.seconds + self.rows * missing


def _beam(search: _Search) -> ProbeSequence:
    least = {bit: _least_cost(search, bit, ways) for bit, ways in search.options}
    heads = {1 << search.driver: _Head(0, 0.0, 1.0, ())}
    for _ in search.options:
        ranked: dict[int, tuple[tuple[int, float], _Head]] = {}
        for present, head in heads.items():
            for after, pair, cost in search.steps(present):
                longer = head.then(pair, cost)
                missing = sum(seconds for bit, seconds in least.items() if not after & bit)
                rank = longer.rank(missing)
                if after not in ranked or rank < ranked[after][0]:
                    ranked[after] = rank, longer
        best = sorted(ranked.items(), key=lambda item: item[1][0])[:WIDTH]
        heads = {after: longer for after, (_, longer) in best}
    return heads[search.everything].sequence


def _least_cost(search: _Search, bit: int, ways: tuple[_Way, ...]) -> float:
    others = search.everything & ~bit
    costs = [search.costs(search.driver, others, p) for _, pairs in ways for p in pairs.values()]
    return min((cost.own for cost in costs if cost is not None), default=0.0)
