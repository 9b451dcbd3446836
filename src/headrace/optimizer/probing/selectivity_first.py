"""The most selective input next, as in MJoin and GrubJoin (Section 5.2, selectivityFirst).

Selectivity is what it is for joins of tables: the share of the cross product that matches. A probe
from l finds γ μ of the rows of r on the average.

Paper: Multi-Way Joins, Section 5.2.
"""

from __future__ import annotations

from headrace.optimizer.probing.fixed_order import initial_orders
from headrace.optimizer.probing.graph import ProbeSequence
from headrace.optimizer.probing.strategy import Choice, one_after_another
from headrace.stats.probes import Edge, ProbeStatistics

NAME = "selectivity_first"


def orders(choice: Choice) -> dict[int, ProbeSequence]:
    statistics = choice.statistics
    if statistics is None:
        return initial_orders(choice.graph, choice.initial)
    return one_after_another(
        choice.graph,
        choice.initial,
        lambda driver, met, pair: selectivity(statistics, driver, met, pair),
    )


def selectivity(statistics: ProbeStatistics, driver: int, met: int, pair: Edge) -> float | None:
    """The share of a pair's cross product that matches; None while it is unknown."""
    rows = statistics.rows.get(pair[1])
    if rows is None or pair not in statistics.rates or pair not in statistics.means:
        return None
    figures = statistics.figures(pair, driver, met)
    # Of less than one row there is no share, and next to nothing to find.
    return figures.rate * figures.mean / max(rows, 1.0)
