"""The initial order, whatever is observed: the baseline of Section 5.2 (fixedOrder).

Paper: Multi-Way Joins, Section 5.2.
"""

from __future__ import annotations

from headrace.optimizer.probing.graph import ProbeGraph, ProbeSequence
from headrace.optimizer.probing.strategy import Choice, one_after_another

NAME = "fixed_order"


def orders(choice: Choice) -> dict[int, ProbeSequence]:
    return initial_orders(choice.graph, choice.initial)


def initial_orders(graph: ProbeGraph, initial: tuple[int, ...]) -> dict[int, ProbeSequence]:
    """For each driver the others as given; one that shares no key with those before it waits."""
    return one_after_another(graph, initial, lambda driver, met, pair: None)
