"""What it costs to probe the inputs of a multi-way join one after the other.

After Sections 3.2 and 4.1 of the paper on multi-way stream joins. A new row of one input is
looked up in a second one, what is found in a third, and so on: a sequence of pairs (l, r), each a
probe into input r by a key of input l. With a query's cost C_q, the rate γ of probes that find
anything and the cost C_m of taking over what they find, a probe and all that follow it cost

    C(i) = C_q + γ (C_m + C(i+1))                 Eq. 1, C = 0 after the last (2), all from C(1) (3)
    C_q  = α_q f(κ)                               Eq. 4, κ the number of keys
    f(κ) = c + κ / 2m                             Eq. 5, for a hash table of m slots
    C_m  = α_m μ                                  Eq. 7, μ the rows that a match finds
    C(i) = α_q f(κ) + γ (α_m μ + C(i+1))          Eq. 8

Eq. 6 is for states that are sorted arrays, in which a key is found by halving. Indexes here have
slots, so it has no use.

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
- Rows that are found by their keys and then turned down, by a condition or because they have
  expired, are not matches, but each costs α_m all the same.
- γ and μ of a pair are those of the rows that get there, where something is known of these: of the
  new rows of one input that have met certain others (``ProbeStatistics.figures``).
- A pair without statistics has no cost. ``sequence_rank`` counts such pairs first.

Paper: Multi-Way Joins, Section 3.2, Equations 1-3, Section 4.1, Equations 4-8, Section 5.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import ceil, log2

from headrace.stats.probes import Edge, Figures, ProbeStatistics


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


def key_factor(keys: float, tuning: ProbeTuning) -> float:
    """f(κ), Eq. 5.

    >>> key_factor(8, ProbeTuning()), key_factor(9, ProbeTuning())
    (1.25, 1.140625)
    """
    keys = max(keys, 1.0)
    slots = 2.0 ** ceil(log2(keys * tuning.slots))
    far = max(0.0, log2(keys / tuning.near))
    return tuning.base + keys / (2.0 * slots) + tuning.miss * far


def query_cost(keys: float, tuning: ProbeTuning) -> float:
    """Seconds to look one key up among this many (Eq. 4)."""
    return tuning.query * key_factor(keys, tuning)


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
    model: ProbeModel,
    at: tuple[int, int] | None = None,
) -> ProbeCost | None:
    """The cost of probing a pair; None while its statistics are unknown.

    ``at`` says for new rows of which input, and which inputs these have met; without it, it is for
    all rows of the probing input.
    """
    if not statistics.knows(edge):
        return None
    if at is None:
        figures = Figures(
            statistics.rates[edge], statistics.means[edge], statistics.wasted.get(edge, 0.0)
        )
    else:
        figures = statistics.figures(edge, *at)
    factors = replace(tuning, miss=0.0) if model is ProbeModel.PAPER else tuning
    query = query_cost(statistics.keys[edge], factors) + tuning.match * figures.wasted
    if model is ProbeModel.PAPER:
        return ProbeCost(query, figures.rate, tuning.match * figures.mean)
    return ProbeCost(query, figures.rate * figures.mean, tuning.match)


def costs_of(
    sequence: Sequence[Edge], statistics: ProbeStatistics, tuning: ProbeTuning, model: ProbeModel
) -> list[ProbeCost | None]:
    """The cost of each probe of a sequence, for the rows that get there."""
    if not sequence:
        return []
    driver = sequence[0][0]
    met, costs = 1 << driver, []
    for edge in sequence:
        costs.append(probe_cost(statistics, edge, tuning, model, (driver, met)))
        met |= 1 << edge[1]
    return costs


def sequence_cost(
    sequence: Sequence[Edge],
    statistics: ProbeStatistics,
    tuning: ProbeTuning,
    model: ProbeModel,
) -> float:
    """Seconds for one new row of the first pair's probing input (Eqs. 1 to 3)."""
    seconds = 0.0
    costs = costs_of(sequence, statistics, tuning, model)
    for edge, cost in reversed([*zip(sequence, costs, strict=True)]):
        if cost is None:
            raise ValueError(f"nothing is known of probes from input {edge[0]} to input {edge[1]}")
        seconds = cost.then(seconds)
    return seconds


def sequence_rank(
    sequence: Sequence[Edge],
    statistics: ProbeStatistics,
    tuning: ProbeTuning,
    model: ProbeModel,
) -> tuple[int, float]:
    """By which sequences compare: pairs of which nothing is known, then seconds of the others."""
    unknown, rest = 0, 0.0
    for cost in reversed(costs_of(sequence, statistics, tuning, model)):
        if cost is None:
            unknown += 1
        else:
            rest = cost.then(rest)
    return unknown, rest
