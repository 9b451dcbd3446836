"""What probes of a multi-way join found, cycle by cycle, and what the next cycle may find.

After Section 4.3 of the paper on multi-way stream joins. A pair (l, r) stands for probes that
look a row's key, the one it has of input l, up among the rows of input r. Counts of a cycle give
the rate γ at which probes find anything (Eq. 9) and the mean number μ of rows that they then find
(Eq. 10); κ is the number of different keys (Eq. 11, kept by whoever keeps the rows). A pair that
was never probed has no figures: nothing is made up for it.

Paper: Multi-Way Joins, Section 4.3, Equation 9, Equation 10, Equation 11.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headrace.stats.forecast import damped, holt

#: The probing input and the probed input.
Edge = tuple[int, int]

K = TypeVar("K")


@dataclass(frozen=True)
class EdgeCounts:
    """Probes of one pair: how many, how many of them found rows, and how many rows in all.

    >>> counts = EdgeCounts(8, 2, 10) + EdgeCounts(2, 0, 0)
    >>> counts.rate, counts.mean
    (0.2, 5.0)
    """

    queries: int = 0
    matches: int = 0
    rows: int = 0

    def __add__(self, other: EdgeCounts) -> EdgeCounts:
        return EdgeCounts(
            self.queries + other.queries, self.matches + other.matches, self.rows + other.rows
        )

    @property
    def rate(self) -> float | None:
        """The share of probes that found rows (γ, Eq. 9)."""
        return self.matches / self.queries if self.queries else None

    @property
    def mean(self) -> float | None:
        """How many rows a probe found that found any (μ, Eq. 10)."""
        return self.rows / self.matches if self.matches else None


@dataclass(frozen=True)
class Cycle:
    """What one cycle saw.

    ``keys`` counts the different keys by which the probing input of a pair looks the probed one up,
    ``rows`` the rows held of each input, both at the cycle's end; ``arrivals`` are new rows.
    """

    edges: Mapping[Edge, EdgeCounts] = field(default_factory=dict)
    keys: Mapping[Edge, float] = field(default_factory=dict)
    rows: Mapping[int, float] = field(default_factory=dict)
    arrivals: Mapping[int, int] = field(default_factory=dict)

    @property
    def queries(self) -> int:
        return sum(counts.queries for counts in self.edges.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "edges": [[*e, c.queries, c.matches, c.rows] for e, c in self.edges.items()],
            "keys": [[*edge, count] for edge, count in self.keys.items()],
            "rows": list(self.rows.items()),
            "arrivals": list(self.arrivals.items()),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Cycle:
        return cls(
            {(one, other): EdgeCounts(*counts) for one, other, *counts in value["edges"]},
            {(one, other): count for one, other, count in value["keys"]},
            dict(value["rows"]),
            dict(value["arrivals"]),
        )

    def then(self, later: Cycle) -> Cycle:
        """This cycle, gone on with: counts add up, what is held is what is held last."""
        return Cycle(
            {
                edge: self.edges.get(edge, NO_PROBES) + later.edges.get(edge, NO_PROBES)
                for edge in {**self.edges, **later.edges}
            },
            {**self.keys, **later.keys},
            {**self.rows, **later.rows},
            {
                index: self.arrivals.get(index, 0) + later.arrivals.get(index, 0)
                for index in {**self.arrivals, **later.arrivals}
            },
        )


NO_PROBES = EdgeCounts()
NOTHING_SEEN = Cycle()


@dataclass(frozen=True)
class ProbeStatistics:
    """Figures by which orders of probes are chosen: γ, μ and κ by pair, rows by input."""

    rates: Mapping[Edge, float]
    means: Mapping[Edge, float]
    keys: Mapping[Edge, float]
    rows: Mapping[int, float]

    def knows(self, edge: Edge) -> bool:
        """Whether a probe of this pair has a cost."""
        return edge in self.rates and edge in self.means and edge in self.keys


#: A pair jumps if its probes find this many times more or fewer rows than was forecast, counted
#: from a few rows in a hundred probes on, and told by enough probes to be no accident.
JUMP, LEAST_FOUND, LEAST_QUERIES = 1.5, 0.05, 30
#: So many cycles are kept over a restart.
KEPT_CYCLES = 3
#: A jump is believed at once if the pair has not jumped for so many cycles.
STEADY = 4


class ProbeHistory:
    """The last cycles of a join, and the one that runs.

    Smoothing follows a trend and keeps noise out, but it follows a jump only halfway. So a pair
    that was steady and jumps begins its history anew, and one that jumps again and again, as noise
    does, is smoothed.
    """

    def __init__(self, length: int, past: Sequence[Cycle] = ()) -> None:
        if length < 1:
            raise ValueError("a history has room for one cycle or more")
        self.length = length
        self._closed: deque[Cycle] = deque(past, maxlen=length)
        self._running = NOTHING_SEEN
        self._count = len(self._closed)
        #: By pair: the number of the cycle that its history begins with, and of its last jump.
        self._since: dict[Edge, int] = {}
        self._jumped: dict[Edge, int] = {}

    def to_json(self) -> dict[str, Any]:
        """The last cycles: enough to go on with, and little to write in every epoch."""
        recent = list(self._closed)[-KEPT_CYCLES:]
        return {"length": self.length, "cycles": [cycle.to_json() for cycle in recent]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ProbeHistory:
        return cls(value["length"], [Cycle.from_json(cycle) for cycle in value["cycles"]])

    @property
    def cycles(self) -> tuple[Cycle, ...]:
        """Closed cycles, the oldest first."""
        return tuple(self._closed)

    def add(
        self,
        edges: Mapping[Edge, EdgeCounts],
        keys: Mapping[Edge, float],
        rows: Mapping[int, float],
        arrivals: Mapping[int, int],
    ) -> None:
        """One more epoch of the running cycle."""
        self._running = self._running.then(Cycle(edges, keys, rows, arrivals))

    def close(self) -> Cycle | None:
        """End the running cycle and give it back; None if it probed nothing and so says nothing."""
        ended, self._running = self._running, NOTHING_SEEN
        if not ended.queries:
            return None
        self._notice_jumps(ended)
        self._closed.append(ended)
        self._count += 1
        return ended

    def _notice_jumps(self, ended: Cycle) -> None:
        forecast = self.forecast()
        if forecast is None:
            return
        for edge, counts in ended.edges.items():
            if edge not in forecast.rates or counts.queries < LEAST_QUERIES:
                continue
            found = counts.rows / counts.queries + LEAST_FOUND
            expected = forecast.rates[edge] * forecast.means[edge] + LEAST_FOUND
            if max(found / expected, expected / found) < JUMP:
                continue
            if self._count - self._jumped.get(edge, -STEADY) >= STEADY:
                self._since[edge] = self._count
            self._jumped[edge] = self._count

    def forecast(self, smooth: bool = True) -> ProbeStatistics | None:
        """Figures for the next cycle; None while no cycle is closed.

        Without smoothing these are the last known ones, as in the paper's ablation (Section 5.3).
        """
        if not self._closed:
            return None
        counts = [
            {e: c for e, c in cycle.edges.items() if number >= self._since.get(e, 0)}
            for number, cycle in enumerate(self._closed, self._count - len(self._closed))
        ]
        rates = _series([_known(edges, lambda c: c.rate) for edges in counts])
        means = _series([_known(edges, lambda c: c.mean) for edges in counts])
        keys = _series([cycle.keys for cycle in self._closed])
        rows = _series([cycle.rows for cycle in self._closed])
        trend, ending = (holt, damped) if smooth else (_last, _last)
        return ProbeStatistics(
            rates={edge: min(max(ending(h), 0.0), 1.0) for edge, h in rates.items()},
            # Who never found a row has a rate of zero, and whatever stands here is multiplied by
            # it; where there was a match, it had one row or more.
            means={edge: max(trend(means.get(edge, [1.0])), 1.0) for edge in rates},
            keys={edge: max(trend(h), 1.0) for edge, h in keys.items()},
            rows={index: max(trend(h), 0.0) for index, h in rows.items()},
        )


def _known(
    edges: Mapping[Edge, EdgeCounts], figure: Callable[[EdgeCounts], float | None]
) -> dict[Edge, float]:
    found = {edge: figure(counts) for edge, counts in edges.items()}
    return {edge: value for edge, value in found.items() if value is not None}


def _series(cycles: Sequence[Mapping[K, float]]) -> dict[K, list[float]]:
    """For each key its values in those cycles that have one."""
    found: dict[K, list[float]] = {}
    for cycle in cycles:
        for key, value in cycle.items():
            found.setdefault(key, []).append(value)
    return found


def _last(history: Sequence[float]) -> float:
    return float(history[-1])
