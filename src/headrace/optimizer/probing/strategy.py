"""What a strategy is, and what those have in common that take one input after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.cost.probing import ProbeModel, ProbeTuning
from headrace.optimizer.probing.graph import ProbeGraph, ProbeSequence
from headrace.stats.probes import Edge, ProbeStatistics


@dataclass(frozen=True)
class Choice:
    """What is to be chosen, and by what.

    ``initial`` is an order of all inputs: it decides between equals, and alone where nothing is
    known. A pair without statistics is never given a number; it is the last choice.
    """

    graph: ProbeGraph
    statistics: ProbeStatistics | None
    tuning: ProbeTuning
    model: ProbeModel
    initial: tuple[int, ...]


@dataclass(frozen=True)
class ProbeStrategy:
    """A way to choose orders, with the name by which it is asked for.

    ``orders`` gives for every input in which order a new row of it probes the others. Inputs that
    are not all connected are a ``PlanError``.
    """

    name: str
    orders: Callable[[Choice], dict[int, ProbeSequence]]


#: What a pair is worth for a driver's new rows that have met these inputs; None if unknown.
Value = Callable[[int, int, Edge], float | None]


def one_after_another(
    graph: ProbeGraph, initial: tuple[int, ...], value: Value
) -> dict[int, ProbeSequence]:
    """For every driver, always the pair of least value next; where values are unknown or equal, the
    input that comes first in the initial order."""
    require_order(graph, initial)
    return {driver: _next_by_next(graph, driver, initial, value) for driver in range(graph.count)}


def require_order(graph: ProbeGraph, initial: tuple[int, ...]) -> None:
    """An error unless all inputs can be probed and the initial order has each of them once."""
    graph.require_connected()
    if sorted(initial) != list(range(graph.count)):
        raise ValueError(f"not an order of {graph.count} inputs: {initial}")


def _next_by_next(
    graph: ProbeGraph,
    driver: int,
    initial: tuple[int, ...],
    value: Value,
) -> ProbeSequence:
    def rank(pair: Edge) -> tuple[bool, float]:
        figure = value(driver, present, pair)
        return figure is None, figure or 0.0

    present, sequence = 1 << driver, []
    while present != graph.everything:
        candidates = [
            pair
            for right in initial
            if not present >> right & 1
            for pair in graph.pairs(present, driver, right)
        ]
        # The first of equals: candidates come in the initial order.
        best = min(candidates, key=rank)
        sequence.append(best)
        present |= 1 << best[1]
    return tuple(sequence)
