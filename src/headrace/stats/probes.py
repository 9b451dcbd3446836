"""What probes of a multi-way join found, cycle by cycle, and what the next cycle may find.

After Section 4.3 of the paper on multi-way stream joins. A pair (l, r) stands for probes that
look a row's key, the one it has of input l, up among the rows of input r. Counts of a cycle give
the rate γ at which probes find anything (Eq. 9) and the mean number μ of rows that they then find
(Eq. 10); κ is the number of different keys (Eq. 11, kept by whoever keeps the rows). A pair that
was never probed has no figures: nothing is made up for it.

A pair finds one thing for all rows of its probing input, and another for those that other probes
have left or multiplied: keys are skewed, and depend on each other. So there are figures of *steps*
too: a pair as it is probed for new rows of one input once these have met others. Samples tell those
of many steps, and the orders that run tell exactly what theirs found.

Paper: Multi-Way Joins, Section 4.3, Equation 9, Equation 10, Equation 11.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar

from headrace.stats.forecast import damped, holt

#: The probing input and the probed input.
Edge = tuple[int, int]
#: Whose new rows they are, the inputs that they have met (bits, with itself), and the next pair.
ProbeStep = tuple[int, int, Edge]

K = TypeVar("K")

Forecast = Callable[[Sequence[float]], float]


@dataclass(frozen=True)
class EdgeCounts:
    """Probes of one pair: how many, how many of them found rows, and how many rows in all.

    Rows count that have not expired and meet all conditions that can then be decided; those that
    were found by their keys in vain are ``wasted``.

    >>> counts = EdgeCounts(8, 2, 10) + EdgeCounts(2, 0, 0)
    >>> counts.rate, counts.mean
    (0.2, 5.0)
    """

    queries: int = 0
    matches: int = 0
    rows: int = 0
    wasted: int = 0

    def __add__(self, other: EdgeCounts) -> EdgeCounts:
        return EdgeCounts(
            self.queries + other.queries,
            self.matches + other.matches,
            self.rows + other.rows,
            self.wasted + other.wasted,
        )

    @property
    def rate(self) -> float | None:
        """The share of probes that found rows (γ, Eq. 9)."""
        return self.matches / self.queries if self.queries else None

    @property
    def mean(self) -> float | None:
        """How many rows a probe found that found any (μ, Eq. 10)."""
        return self.rows / self.matches if self.matches else None

    @property
    def waste(self) -> float | None:
        """How many rows a probe found in vain."""
        return self.wasted / self.queries if self.queries else None

    def to_json(self) -> list[int]:
        return [self.queries, self.matches, self.rows, self.wasted]


@dataclass(frozen=True)
class Cycle:
    """What one cycle saw.

    ``keys`` counts the different keys by which the probing input of a pair looks the probed one up,
    ``rows`` the rows held of each input, both at the cycle's end; ``arrivals`` are new rows.
    ``sampled`` are steps that a sample took, and ``observed`` those of the orders that ran.
    """

    edges: Mapping[Edge, EdgeCounts] = field(default_factory=dict)
    keys: Mapping[Edge, float] = field(default_factory=dict)
    rows: Mapping[int, float] = field(default_factory=dict)
    arrivals: Mapping[int, int] = field(default_factory=dict)
    sampled: Mapping[ProbeStep, EdgeCounts] = field(default_factory=dict)
    observed: Mapping[ProbeStep, EdgeCounts] = field(default_factory=dict)

    @cached_property
    def steps(self) -> dict[ProbeStep, EdgeCounts]:
        """What is known of steps: what was observed, and samples corrected by it; and what may be
        missing by chance."""
        return with_rare(fed_back(self.sampled, self.observed))

    @cached_property
    def drivers(self) -> frozenset[int]:
        """The inputs of whose new rows steps are known."""
        return frozenset(driver for driver, _, _ in self.steps)

    @property
    def queries(self) -> int:
        return sum(counts.queries for counts in self.edges.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "edges": [[*e, *counts.to_json()] for e, counts in self.edges.items()],
            "keys": [[*edge, count] for edge, count in self.keys.items()],
            "rows": list(self.rows.items()),
            "arrivals": list(self.arrivals.items()),
            "sampled": _steps_to_json(self.sampled),
            "observed": _steps_to_json(self.observed),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Cycle:
        return cls(
            {(one, other): EdgeCounts(*counts) for one, other, *counts in value["edges"]},
            {(one, other): count for one, other, count in value["keys"]},
            dict(value["rows"]),
            dict(value["arrivals"]),
            _steps_from_json(value["sampled"]),
            _steps_from_json(value["observed"]),
        )

    def then(self, later: Cycle) -> Cycle:
        """This cycle, gone on with: counts add up, what is held is what is held last."""
        return Cycle(
            _added(self.edges, later.edges),
            {**self.keys, **later.keys},
            {**self.rows, **later.rows},
            {
                index: self.arrivals.get(index, 0) + later.arrivals.get(index, 0)
                for index in {**self.arrivals, **later.arrivals}
            },
            _added(self.sampled, later.sampled),
            _added(self.observed, later.observed),
        )


NO_PROBES = EdgeCounts()
NOTHING_SEEN = Cycle()
NO_STEPS: Mapping[ProbeStep, EdgeCounts] = {}


def _added(one: Mapping[K, EdgeCounts], other: Mapping[K, EdgeCounts]) -> dict[K, EdgeCounts]:
    return {key: one.get(key, NO_PROBES) + other.get(key, NO_PROBES) for key in {**one, **other}}


def _steps_to_json(steps: Mapping[ProbeStep, EdgeCounts]) -> list[list[int]]:
    return [[d, met, *pair, *counts.to_json()] for (d, met, pair), counts in steps.items()]


def _steps_from_json(value: Sequence[Sequence[int]]) -> dict[ProbeStep, EdgeCounts]:
    return {(d, met, (one, other)): EdgeCounts(*c) for d, met, one, other, *c in value}


#: A sample of fewer rows says nothing of a step.
LEAST_SAMPLED = 16


def fed_back(
    sampled: Mapping[ProbeStep, EdgeCounts], observed: Mapping[ProbeStep, EdgeCounts]
) -> dict[ProbeStep, EdgeCounts]:
    """Steps as they were observed, and the others as sampled, corrected by what was observed.

    A sample misses keys that few rows have, and some of these find very many rows. What it missed
    in one step to an input, it is taken to have missed in all of them: each order leads to each
    input once, so every cycle tells this of every input anew. That less was found than a sample
    had told is not carried over: it may be so only for rows that have met what these had.
    """
    reliable = {step: c for step, c in sampled.items() if c.queries >= LEAST_SAMPLED}
    corrected = dict(observed)
    corrections = {
        (driver, pair[1]): (reliable[driver, met, pair], counts)
        for (driver, met, pair), counts in observed.items()
        if (driver, met, pair) in reliable and counts.queries >= LEAST_QUERIES
    }
    for step, counts in reliable.items():
        if step in corrected:
            continue
        correction = corrections.get((step[0], step[2][1]))
        corrected[step] = counts if correction is None else _corrected(counts, *correction)
    return corrected


def with_rare(steps: Mapping[ProbeStep, EdgeCounts]) -> dict[ProbeStep, EdgeCounts]:
    """Steps with what their rows may have missed by chance.

    Keys that few rows have may find very many. Where only some rows get to a step, none of these
    may have been among them in one cycle, and some will be in the next. If a share h of the rows
    found something before they met others, then n of them all miss it with a probability of
    (1 - h)^n, if what they met makes no difference; so much of the difference is put back. Of what
    many rows find, nothing is.
    """
    corrected = dict(steps)
    widest: dict[tuple[int, Edge], EdgeCounts] = {}
    for (driver, met, pair), counts in sorted(steps.items(), key=lambda item: item[0][1]):
        base = widest.setdefault((driver, pair), counts)
        if base is counts or not base.queries or not base.matches or not counts.queries:
            continue
        missed = (1 - base.matches / base.queries) ** counts.queries
        more = missed * (base.rows / base.queries * counts.queries - counts.rows)
        if more >= 1:
            rows = counts.rows + round(more)
            matches = min(counts.queries, max(1, counts.matches))
            corrected[driver, met, pair] = replace(counts, matches=matches, rows=rows)
    return corrected


def _corrected(counts: EdgeCounts, promised: EdgeCounts, true: EdgeCounts) -> EdgeCounts:
    def share(figure: Callable[[EdgeCounts], int]) -> float:
        ours, theirs, right = (
            figure(one) / one.queries + LEAST_FOUND for one in (counts, promised, true)
        )
        return ours * max(1.0, right / theirs) - LEAST_FOUND

    # Shares of many probes, so that a rate which few of them would not show is not rounded away.
    queries = max(counts.queries, true.queries)
    rows = round(queries * share(lambda one: one.rows))
    matches = min(queries, rows, max(1, round(queries * share(lambda one: one.matches))))
    return EdgeCounts(queries, matches, rows, round(queries * share(lambda one: one.wasted)))


@dataclass(frozen=True)
class Figures:
    """Of a probe: γ, μ, and how many rows it finds in vain."""

    rate: float
    mean: float
    wasted: float = 0.0


@dataclass(frozen=True)
class ProbeStatistics:
    """Figures by which orders of probes are chosen: γ, μ and κ by pair, rows by input.

    ``wasted`` are the rows that a probe of a pair finds in vain, where it finds such.
    """

    rates: Mapping[Edge, float]
    means: Mapping[Edge, float]
    keys: Mapping[Edge, float]
    rows: Mapping[int, float]
    wasted: Mapping[Edge, float] = field(default_factory=dict)
    steps: Mapping[ProbeStep, Figures] = field(default_factory=dict)

    def figures(self, edge: Edge, driver: int, met: int) -> Figures:
        """Of a pair that is known, for new rows of an input that have met these inputs.

        If nothing is known of just this step, what holds where they had met most of these; or else
        what holds for all rows of the probing input.
        """
        steps = self._by_pair.get((driver, edge), {})
        if met in steps:
            return steps[met]
        within = [met_before for met_before in steps if not met_before & ~met]
        if within:
            return steps[max(within, key=lambda met_before: (met_before.bit_count(), met_before))]
        return Figures(self.rates[edge], self.means[edge], self.wasted.get(edge, 0.0))

    @cached_property
    def _by_pair(self) -> dict[tuple[int, Edge], dict[int, Figures]]:
        by_pair: dict[tuple[int, Edge], dict[int, Figures]] = {}
        for (driver, met, edge), figures in self.steps.items():
            by_pair.setdefault((driver, edge), {})[met] = figures
        return by_pair

    @cached_property
    def drivers(self) -> frozenset[int]:
        """The inputs of whose new rows steps are known."""
        return frozenset(driver for driver, _, _ in self.steps)

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
#: From how many cycles steps are forecast: there are many, and older ones hardly count.
STEP_CYCLES = 8


class ProbeHistory:
    """The last cycles of a join, and the one that runs.

    Smoothing follows a trend and keeps noise out, but it follows a jump only halfway. So a pair
    that was steady and jumps begins its history anew, and one that jumps again and again, as noise
    does, is smoothed, until two cycles agree that it is elsewhere.
    """

    def __init__(self, length: int, past: Sequence[Cycle] = ()) -> None:
        if length < 1:
            raise ValueError("a history has room for one cycle or more")
        self.length = length
        self._closed: deque[Cycle] = deque(past, maxlen=length)
        self._running = NOTHING_SEEN
        self._count = len(self._closed)
        #: By pair: the number of the cycle that its history begins with, and of its last jump.
        self._since: dict[Edge | ProbeStep, int] = {}
        self._jumped: dict[Edge | ProbeStep, int] = {}

    def to_json(self) -> dict[str, Any]:
        """The last cycles, and steps of the last one: enough to go on with, and little to write in
        every epoch."""
        recent = list(self._closed)[-KEPT_CYCLES:]
        slim = [replace(cycle, sampled={}, observed={}) for cycle in recent[:-1]] + recent[-1:]
        return {"length": self.length, "cycles": [cycle.to_json() for cycle in slim]}

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
        sampled: Mapping[ProbeStep, EdgeCounts] = NO_STEPS,
        observed: Mapping[ProbeStep, EdgeCounts] = NO_STEPS,
    ) -> None:
        """One more epoch of the running cycle."""
        self._running = self._running.then(Cycle(edges, keys, rows, arrivals, sampled, observed))

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
        expected: dict[Edge | ProbeStep, float] = {
            edge: rate * forecast.means[edge] for edge, rate in forecast.rates.items()
        }
        expected |= {step: figures.rate * figures.mean for step, figures in forecast.steps.items()}
        last = self._closed[-1]
        before: dict[Any, EdgeCounts] = {**last.edges, **last.steps}
        for probes, counts in chain[tuple[Any, EdgeCounts]](
            ended.edges.items(), ended.steps.items()
        ):
            if probes not in expected or counts.queries < LEAST_QUERIES:
                continue
            mean = counts.rows / counts.queries
            if not _differ(mean, expected[probes]):
                continue
            same = before.get(probes, NO_PROBES)
            if same.queries and not _differ(mean, same.rows / same.queries):
                # Twice the same is no noise, and a trend that leads away from it is none.
                self._since[probes] = self._count - 1
                continue
            if self._count - self._jumped.get(probes, -STEADY) >= STEADY:
                self._since[probes] = self._count
            self._jumped[probes] = self._count

    def forecast(self, smooth: bool = True) -> ProbeStatistics | None:
        """Figures for the next cycle; None while no cycle is closed.

        Without smoothing these are the last known ones, as in the paper's ablation (Section 5.3).
        """
        if not self._closed:
            return None
        numbered = list(enumerate(self._closed, self._count - len(self._closed)))
        trend, ending = (holt, damped) if smooth else (_last, _last)
        edges = _figures(
            [self._believed(cycle.edges, number) for number, cycle in numbered], trend, ending
        )
        keys = _series([cycle.keys for cycle in self._closed])
        rows = _series([cycle.rows for cycle in self._closed])
        return ProbeStatistics(
            rates={edge: figures.rate for edge, figures in edges.items()},
            means={edge: figures.mean for edge, figures in edges.items()},
            keys={edge: max(trend(h), 1.0) for edge, h in keys.items()},
            rows={index: max(trend(h), 0.0) for index, h in rows.items()},
            wasted={edge: figures.wasted for edge, figures in edges.items() if figures.wasted},
            steps=self._steps(trend, ending),
        )

    def _steps(self, trend: Forecast, ending: Forecast) -> dict[ProbeStep, Figures]:
        """Of steps that were seen when their driver had new rows last, from the cycles up to then
        that saw them; what is before a gap is from another time."""
        seen: dict[int, list[tuple[int, Cycle]]] = {}
        for number in reversed(range(len(self._closed))):
            cycle = self._closed[number]
            for driver in cycle.drivers:
                cycles = seen.setdefault(driver, [])
                if len(cycles) < STEP_CYCLES:
                    cycles.append((number + self._count - len(self._closed), cycle))
        by_age: list[dict[ProbeStep, EdgeCounts]] = [{} for _ in range(STEP_CYCLES)]
        for driver, cycles in seen.items():
            going_on = {step for step in cycles[0][1].steps if step[0] == driver}
            for age, (number, cycle) in enumerate(cycles):
                going_on = {
                    step
                    for step in going_on
                    if step in cycle.steps and number >= self._since.get(step, 0)
                }
                by_age[age] |= {step: cycle.steps[step] for step in going_on}
        return _figures(by_age[::-1], trend, ending)

    def _believed(self, counts: Mapping[K, EdgeCounts], number: int) -> dict[K, EdgeCounts]:
        since: Mapping[Any, int] = self._since
        return {key: c for key, c in counts.items() if number >= since.get(key, 0)}

    def sample(self) -> ProbeStatistics | None:
        """What the last cycle would make one expect by its sample alone, without what the orders
        that ran have found: to see afterwards whether such expectations are to be trusted."""
        if not self._closed:
            return None
        last = ProbeHistory(1, [replace(self._closed[-1], observed={})])
        return last.forecast(smooth=False)


def _figures(
    cycles: Sequence[Mapping[K, EdgeCounts]], trend: Forecast, ending: Forecast
) -> dict[K, Figures]:
    rates = _series([_known(counts, lambda c: c.rate) for counts in cycles])
    means = _series([_known(counts, lambda c: c.mean) for counts in cycles])
    waste = _series([_known(counts, lambda c: c.waste) for counts in cycles])
    return {
        key: Figures(
            min(max(ending(history), 0.0), 1.0),
            # Who never found a row has a rate of zero, and whatever stands here is multiplied by
            # it; where there was a match, it had one row or more.
            max(trend(means.get(key, [1.0])), 1.0),
            max(trend(waste[key]), 0.0),
        )
        for key, history in rates.items()
    }


def _known(
    counts: Mapping[K, EdgeCounts], figure: Callable[[EdgeCounts], float | None]
) -> dict[K, float]:
    figures = {key: figure(one) for key, one in counts.items()}
    return {key: value for key, value in figures.items() if value is not None}


def _differ(one: float, other: float) -> bool:
    """Whether these are two different numbers of rows that a probe finds."""
    ratio = (one + LEAST_FOUND) / (other + LEAST_FOUND)
    return max(ratio, 1 / ratio) >= JUMP


def _series(cycles: Sequence[Mapping[K, float]]) -> dict[K, list[float]]:
    """For each key its values in those cycles that have one."""
    series: dict[K, list[float]] = {}
    for cycle in cycles:
        for key, value in cycle.items():
            series.setdefault(key, []).append(value)
    return series


def _last(history: Sequence[float]) -> float:
    return float(history[-1])
