"""The probe orders of a multi-way join for people: what they are, why, and what others cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.cost.cost import Cost, unknown_cost
from headrace.optimizer.probing.graph import ProbeGraph, ProbeSequence
from headrace.optimizer.probing.sequences import sequence_text
from headrace.plan.nodes import Join, Order
from headrace.stats.figure import Estimated
from headrace.stats.probes import Edge, ProbeStatistics

UNIT = "s per million new rows"
#: How many changes of order, and how many pairs, are told in text.
MOST_CHANGES, MOST_PAIRS = 3, 12


@dataclass(frozen=True)
class ProbedOrder:
    """Probe orders of all inputs, and what each costs for a new row; None while that is unknown."""

    sequences: Mapping[int, ProbeSequence]
    costs: Mapping[int, float | None]
    #: Seconds for a new row of whichever input, as often as each has new rows.
    cost: float | None


@dataclass(frozen=True)
class DescribedProbes:
    """A multi-way join: the orders that it has, and those that one order for all would give."""

    join: Join
    names: tuple[str, ...]
    graph: ProbeGraph
    why: str
    running: ProbedOrder
    written: ProbedOrder
    statistics: ProbeStatistics | None
    cycles: int
    changes: tuple[str, ...]
    alternatives: Mapping[Order, ProbedOrder]

    @property
    def text(self) -> str:
        lines = [f"{', '.join(self.names)}: new rows of each probe indexes of the others"]
        lines += [f"   {line}" for line in self._orders()]
        lines.append(f"   {self.why}")
        if self.statistics is not None:
            lines += [f"   {line}" for line in self._figures(self.statistics)]
        if self.changes:
            lines.append("   changed of late")
            lines += [f"      {change}" for change in self.changes[-MOST_CHANGES:]]
        return "\n".join(lines)

    def _orders(self) -> Iterator[str]:
        texts = {d: sequence_text(s, self.names) for d, s in self.running.sequences.items()}
        width = max(map(len, texts.values()))
        for driver, text in texts.items():
            cost = self.running.costs[driver]
            if cost is None:
                yield text
                continue
            was = self.written.sequences[driver]
            instead = ""
            if was != self.running.sequences[driver]:
                instead = (
                    f", as written {sequence_text(was, self.names)} "
                    f"{_per_million(self.written.costs[driver]).figure}"
                )
            yield f"{text.ljust(width)}  {_per_million(cost)}{instead}"

    def _figures(self, statistics: ProbeStatistics) -> Iterator[str]:
        """γ, μ and κ as they are forecast."""
        yield f"forecast from {self.cycles} cycle{'s' if self.cycles != 1 else ''}"
        edges = [edge for edge in self.graph.edges if statistics.knows(edge)]
        rows = [("probe", "found", "rows each", "keys")]
        rows += [self._figure(edge, statistics) for edge in edges[:MOST_PAIRS]]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            yield ("   " + "  ".join(cells)).rstrip()
        if len(edges) > MOST_PAIRS:
            yield f"   … and {len(edges) - MOST_PAIRS} more"

    def _figure(self, edge: Edge, statistics: ProbeStatistics) -> tuple[str, str, str, str]:
        figures = statistics.figures(edge, edge[0], 1 << edge[0])
        return (
            sequence_text((edge,), self.names),
            f"{figures.rate:.0%}",
            f"{figures.mean:.3g}",
            f"{statistics.keys[edge]:,.0f}",
        )

    def to_json(self) -> dict[str, Any]:
        statistics = self.statistics
        edges = (
            []
            if statistics is None
            else [edge for edge in self.graph.edges if statistics.knows(edge)]
        )
        return {
            "inputs": list(self.names),
            "why": self.why,
            "probes": {
                self.names[driver]: [self.names[probed] for _, probed in sequence]
                for driver, sequence in self.running.sequences.items()
            },
            "cost": order_cost(self.running).to_json(),
            "written": order_cost(self.written).to_json(),
            "statistics": [
                {
                    "from": self.names[edge[0]],
                    "to": self.names[edge[1]],
                    "found": statistics.figures(edge, edge[0], 1 << edge[0]).rate,
                    "rows": statistics.figures(edge, edge[0], 1 << edge[0]).mean,
                    "keys": statistics.keys[edge],
                }
                for edge in edges
                if statistics is not None
            ],
            "changes": list(self.changes),
        }


def _per_million(seconds: float | None) -> Cost:
    return unknown_cost(UNIT) if seconds is None else Cost(Estimated(seconds * 1e6), UNIT)


def order_cost(order: ProbedOrder) -> Cost:
    """What probe orders cost, for people and for comparisons."""
    return _per_million(order.cost)
