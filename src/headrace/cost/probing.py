"""What it costs to probe the inputs of a multi-way join one after the other.

After Sections 3.2 and 4.1 of the paper on multi-way stream joins. A new row of one input is
looked up in a second one, what is found in a third, and so on: a sequence of pairs (l, r), each a
probe into input r by a key of input l. With a query's cost C_q, the rate γ of probes that find
anything and the cost C_m of taking over what they find, a probe and all that follow it cost

    C(i) = C_q + γ (C_m + C(i+1))                 Eq. 1, C = 0 after the last (2), all from C(1) (3)
    C_q  = α_q f(κ)                               Eq. 4, κ the number of keys
    f(κ) = c + κ / 2m                             Eq. 5, for a hash table of m slots
    f(κ) = log κ                                  Eq. 6, for a sorted array
    C_m  = α_m μ                                  Eq. 7, μ the rows that a match finds
    C(i) = α_q f(κ) + γ (α_m μ + C(i+1))          Eq. 8

What is ours:

- Eq. 8 counts what follows a match once, however many rows it found. Here each row that was found
  is probed on with by itself, so what follows happens γ μ times for each probe:

      C(i) = α_q f(κ) + γ μ (α_m + C(i+1))

  The two agree where no match has more than one row. Both are kept (``ProbeModel``).
- A table grows with its keys: m is the least power of two that leaves ``slots`` slots for each key,
  so that with two of them κ / 2m is between 1/8 and 1/4.
- A table that outgrows the processor's caches answers later. Measured: 13 ns up to 100,000 keys, 27
  for a million, 34 for four million; so f grows by ``miss`` with each doubling of the keys beyond
  ``near``. The published model is left without it.
- The logarithm is that of a binary search, in halvings.
- A pair without statistics has no cost. ``sequence_rank`` counts such pairs first.

Both models take γ and μ of a pair for the same whatever was probed before.

Paper: Multi-Way Joins, Section 3.2, Equations 1-3, Section 4.1, Equations 4-8, Section 5.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import ceil, log2

from headrace.stats.probes import Edge, ProbeStatistics


class StateKind(Enum):
    """How the rows of an input are found by a key."""

    HASH = "hash"
    SORTED = "sorted"


class ProbeModel(Enum):
    """How often that happens which follows a match: for each row it found, or once."""

    ENGINE = "engine"
    PAPER = "paper"


@dataclass(frozen=True)
class ProbeTuning:
    """Seconds of a query (α_q) and of a row that is taken over (α_m), and constants of f.

    ``base`` is the share of a query that does not depend on the keys (c), ``slots`` the least
    number of slots that a hash table has for each key, ``miss`` what f gains with each doubling of
    the keys beyond ``near``.
    """

    query: float = 45e-9
    match: float = 15e-9
    base: float = 1.0
    slots: float = 2.0
    miss: float = 0.3
    near: float = 1e5


def query_only(tuning: ProbeTuning) -> ProbeTuning:
    """The model without costs of matches (Section 5.3)."""
    return replace(tuning, match=0.0)


def match_only(tuning: ProbeTuning) -> ProbeTuning:
    """The model without costs of queries (Section 5.3)."""
    return replace(tuning, query=0.0)


def key_factor(keys: float, tuning: ProbeTuning, kind: StateKind) -> float:
    """f(κ), Eqs. 5 and 6.

    >>> key_factor(8, ProbeTuning(), StateKind.HASH), key_factor(8, ProbeTuning(), StateKind.SORTED)
    (1.25, 3.0)
    """
    if kind is StateKind.SORTED:
        return log2(max(keys, 2.0))
    keys = max(keys, 1.0)
    slots = 2.0 ** ceil(log2(keys * tuning.slots))
    far = max(0.0, log2(keys / tuning.near))
    return tuning.base + keys / (2.0 * slots) + tuning.miss * far


def query_cost(keys: float, tuning: ProbeTuning, kind: StateKind) -> float:
    """Seconds to look one key up among this many (Eq. 4)."""
    return tuning.query * key_factor(keys, tuning, kind)


@dataclass(frozen=True)
class ProbeCost:
    """A probe as three numbers, in which both models have one form.

    ``query`` is paid in any case; ``match`` and what follows are paid ``onward`` times.
    """

    query: float
    onward: float
    match: float

    def then(self, rest: float) -> float:
        """Seconds of this probe and of what follows it."""
        return self.query + self.onward * (self.match + rest)

    @property
    def own(self) -> float:
        """Seconds of this probe alone, the same in both models."""
        return self.then(0.0)


def probe_cost(
    statistics: ProbeStatistics,
    edge: Edge,
    tuning: ProbeTuning,
    kind: StateKind,
    model: ProbeModel,
) -> ProbeCost | None:
    """The cost of probing a pair; None while its statistics are unknown."""
    if not statistics.knows(edge):
        return None
    rate, mean = statistics.rates[edge], statistics.means[edge]
    if model is ProbeModel.PAPER:
        query = query_cost(statistics.keys[edge], replace(tuning, miss=0.0), kind)
        return ProbeCost(query, rate, tuning.match * mean)
    query = query_cost(statistics.keys[edge], tuning, kind)
    return ProbeCost(query, rate * mean, tuning.match)


def probe_step(
    statistics: ProbeStatistics,
    edge: Edge,
    rest: float,
    tuning: ProbeTuning,
    kind: StateKind,
    model: ProbeModel,
) -> float:
    """Seconds of a probe, given those of what follows it (Eqs. 1 and 8)."""
    cost = probe_cost(statistics, edge, tuning, kind, model)
    if cost is None:
        raise ValueError(f"nothing is known of probes from input {edge[0]} to input {edge[1]}")
    return cost.then(rest)


def sequence_cost(
    sequence: Sequence[Edge],
    statistics: ProbeStatistics,
    tuning: ProbeTuning,
    kind: StateKind,
    model: ProbeModel,
) -> float:
    """Seconds for one new row of the first pair's probing input (Eqs. 1 to 3)."""
    if not sequence:
        return 0.0
    rest = sequence_cost(sequence[1:], statistics, tuning, kind, model)
    return probe_step(statistics, sequence[0], rest, tuning, kind, model)


def sequence_rank(
    sequence: Sequence[Edge],
    statistics: ProbeStatistics,
    tuning: ProbeTuning,
    kind: StateKind,
    model: ProbeModel,
) -> tuple[int, float]:
    """By which sequences compare: pairs of which nothing is known, then seconds of the others."""
    unknown, rest = 0, 0.0
    for edge in reversed(sequence):
        cost = probe_cost(statistics, edge, tuning, kind, model)
        if cost is None:
            unknown += 1
        else:
            rest = cost.then(rest)
    return unknown, rest
