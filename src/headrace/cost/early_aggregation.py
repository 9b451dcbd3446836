"""What plans of aggregation joins cost: early, late, and anything in between.

*Published* (Sections 6.3 and 7.1.1 of the paper on aggregation join queries): the time to process
the rows that arrive in a unit of time, row by row. A new row of input k updates its window and, if
k is aggregated early, its set; it is matched with the others one after the other, in their sets or
their windows, and each match updates the output. ``published_cost`` is equations 1 to 4 for any
number of inputs; with ``hash`` or ``nested`` costs of a probe it is equations 5 to 12, and
``SetFigures`` has equations 13 to 22. Equation 6 as printed divides by B_g and B_2 where its mirror
image, equation 7, divides by B_2 and B_g; the form of equation 7 is taken for both.

*This engine's*: an epoch's rows are aggregated together before they are stored, and windows are
joined as they close, set against set, so that a row of an aggregated input is matched as a part of
its group and not by itself. Per millisecond of the streams' time, with r rows of an input, of which
s are stored and n are joined,

    Σ inputs [ UPDATE s + GROUP r if aggregated + PROBE n ] + PAIR (all joined rows)

Paper: Early Aggregation, Section 6.3, Equations 1-4, Section 7.1.1, Equations 5-12,
Equations 13-22, Appendix B.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from math import inf, prod


class EarlyModel(Enum):
    """Which model plans are chosen by."""

    ENGINE = "engine"
    HASH_JOINS = "hash"
    NESTED_LOOPS = "nested"


@dataclass(frozen=True)
class Tuning:
    """Seconds per row, the tuning parameters of the paper as this engine has them.

    ``update`` stores a row (U), ``probe`` matches one (P), and ``group`` finds its group in a set
    and updates it (U_g). A row that comes out of a join is there to be grouped already, which is
    cheaper than for a row that has to be read first: ``pair``, by this engine's model only.
    ``headrace calibrate`` measures them.
    """

    update: float = 0.11e-6
    probe: float = 0.095e-6
    group: float = 0.087e-6
    pair: float = 0.005e-6


# --- as published --------------------------------------------------------------------------------


@dataclass(frozen=True)
class StreamFigures:
    """Rows per second λ, rows in the window w, groups g and join selectivity σ of an input."""

    rate: float
    window: float
    groups: float
    selectivity: float


@dataclass(frozen=True)
class SetFigures:
    """Equations 13 to 22, for one input where an index stands in the paper."""

    streams: tuple[StreamFigures, ...]
    #: The most buckets that a hash table may have (B).
    buckets: float = inf

    def output(self) -> float:
        """α: groups of the output, at most (13)."""
        return prod(min(s.window, s.groups) for s in self.streams)

    def set_size(self, index: int) -> float:
        """α_i: groups of an input's set (14, 15)."""
        stream = self.streams[index]
        return min(stream.window, stream.groups / stream.selectivity)

    def matches_in_window(self, index: int) -> float:
        """m_i (16, 17)."""
        stream = self.streams[index]
        return stream.selectivity * stream.window

    def matches_in_set(self, index: int) -> float:
        """n_i (18, 19)."""
        return min(self.matches_in_window(index), self.streams[index].groups)

    def join_buckets(self, index: int) -> float:
        """B_i (20, 21)."""
        return min(1 / self.streams[index].selectivity, self.buckets)

    def group_buckets(self) -> float:
        """B_g (22)."""
        return min(self.streams[0].groups, self.buckets)


def published_cost(
    derived: SetFigures, early: frozenset[int], tuning: Tuning, nested_loops: bool = False
) -> float:
    """Seconds for the rows of a second; each row comes and leaves again, hence the factor 2."""
    late_update = derived.output() / derived.group_buckets() * tuning.group
    total = 0.0
    for arriving, stream in enumerate(derived.streams):
        cost = tuning.update
        if arriving in early:
            own = derived.set_size(arriving) / derived.join_buckets(arriving)
            cost += own * tuning.group
        matched = 1.0
        for index in range(len(derived.streams)):
            if index == arriving:
                continue
            is_set = index in early
            size = derived.set_size(index) if is_set else derived.streams[index].window
            looked_at = size if nested_loops else size / derived.join_buckets(index)
            cost += matched * looked_at * tuning.probe
            matched *= derived.matches_in_set(index) if is_set else derived.matches_in_window(index)
        cost += matched * late_update
        total += 2 * stream.rate * cost
    return total


# --- this engine's -------------------------------------------------------------------------------


@dataclass(frozen=True)
class InputFlow:
    """Rows of an input per millisecond: those that come, and for either way to take them, those
    that are stored and those that a join reads."""

    rows: float
    stored_late: float
    stored_early: float
    joined_late: float
    joined_early: float

    def stored(self, early: bool) -> float:
        return self.stored_early if early else self.stored_late

    def joined(self, early: bool) -> float:
        return self.joined_early if early else self.joined_late


def engine_cost(
    flows: Sequence[InputFlow], early: frozenset[int], joined: float, tuning: Tuning
) -> float:
    """Seconds per millisecond of the streams' time; ``joined`` are the rows that come out of the
    joins, between them included."""
    total = tuning.pair * joined
    for index, flow in enumerate(flows):
        aggregated = index in early
        total += tuning.update * flow.stored(aggregated) + tuning.probe * flow.joined(aggregated)
        total += tuning.group * flow.rows if aggregated else 0.0
    return total


# --- which plans there are -----------------------------------------------------------------------

#: Up to this many inputs every choice of them is looked at.
MOST_LISTED = 6


def choices(inputs: frozenset[int]) -> Iterator[frozenset[int]]:
    """All subsets of inputs that may be aggregated early, fewest first: 2^m plans.

    >>> [sorted(choice) for choice in choices(frozenset({0, 1}))]
    [[], [0], [1], [0, 1]]
    """
    ordered = sorted(inputs)
    for count in range(len(ordered) + 1):
        for chosen in combinations(ordered, count):
            yield frozenset(chosen)


def plan_name(early: frozenset[int], inputs: int) -> str:
    """A plan as the paper names it.

    >>> plan_name(frozenset({0}), 2), plan_name(frozenset(), 2)
    ('EAP10', 'LAP')
    """
    bits = "".join("1" if index in early else "0" for index in range(inputs))
    return f"EAP{bits}" if early else "LAP"
