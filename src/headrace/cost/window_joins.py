"""What orders of window joins cost.

*Published* (Section 6.1 of the paper on window join reordering): the sum of the rates of all
intermediate results. The rate of a join's output is the next join's input rate; the formula as
printed multiplies raw rates under the last window's factor only, which ranks Q7 the wrong way
round. With Δt = 60 the chained form gives the paper's Table 3.

*This engine's*: a pair comes out once, however many windows hold it, so rates are smaller, and the
rows of a set of inputs are the same in whatever order it is joined (``join_sizes``). A join of L
and R costs

    MOVE (rows(L) · repeats + rows(R)) + PAIR · compared + MAKE · rows(L ∪ R)

where rows that may match in two buckets of time are repeated, and rows of a bucket are compared.

Paper: Window Join Reordering, Section 6.1, Table 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from headrace.cost.join_load import JoinLoad as JoinLoad
from headrace.cost.join_sizes import JoinSizes
from headrace.plan.join_graph import JoinGraph
from headrace.plan.nodes import IntervalBound, JoinTime, SameWindow

#: Seconds for a row that changes places and is sorted, for two rows that are compared, and for a
#: row that comes out of a join. Only their ratios matter.
MOVE = 0.6e-6
PAIR = 0.03e-6
MAKE = 0.12e-6


def time_span(time: JoinTime) -> float | None:
    """The mean stretch of the other input's time that one row meets; None without bound."""
    match time:
        case IntervalBound(lower=int(lower), upper=int(upper)):
            return float(upper - lower + 1)
        case SameWindow(window=window):
            length, slide = window.length, window.slide
            return 2.0 * length - slide if slide <= length else length * length / slide
        case _:
            return None


# --- as published --------------------------------------------------------------------------------


def window_factor(time: JoinTime, unit: float) -> float:
    """Pairs per unit of time for two streams of one row per unit."""
    match time:
        case SameWindow(window=window):
            return (window.length / unit) ** 2 * (unit / window.slide)
        case IntervalBound(lower=int(lower), upper=int(upper)):
            return (upper - lower) / unit
        case _:
            raise ValueError(f"no factor for {time}")


def published_rates(
    rates: Sequence[float],
    windows: Sequence[JoinTime],
    unit: float,
    selectivities: Sequence[float] | None = None,
) -> list[float]:
    """Rates of the intermediate results of one stream after the other, chained."""
    shares = selectivities or [1.0] * len(windows)
    rate, rates_of_steps = rates[0], []
    for joined, window, share in zip(rates[1:], windows, shares, strict=True):
        rate = rate * joined * share * window_factor(window, unit)
        rates_of_steps.append(rate)
    return rates_of_steps


def published_cost(
    rates: Sequence[float],
    windows: Sequence[JoinTime],
    unit: float,
    selectivities: Sequence[float] | None = None,
) -> float:
    return sum(published_rates(rates, windows, unit, selectivities))


# --- this engine's -------------------------------------------------------------------------------


@dataclass
class JoinCost:
    """Costs of joins under one load, in seconds per millisecond of the streams' time.

    Sets of inputs are masks of bits here: a search asks for thousands of them.
    """

    graph: JoinGraph
    load: JoinLoad
    spans: Mapping[tuple[int, int], float | None]
    windows: frozenset[tuple[int, int]]

    @cached_property
    def sizes(self) -> JoinSizes:
        return JoinSizes(self.graph, self.load, self.spans)

    @cached_property
    def _sharing_windows(self) -> list[int]:
        """For each input the mask of those that it shares a window with that does not overlap."""
        partners = [0] * len(self.graph.leaves)
        for one, other in self.windows:
            partners[one] |= 1 << other
            partners[other] |= 1 << one
        return partners

    def rows(self, mask: int) -> float:
        """Rows per millisecond that come out of joining a set of inputs."""
        return self.sizes.rows(mask)

    def key_share(self, members: Sequence[int]) -> float:
        """The share of combinations of rows whose keys are equal."""
        return self.sizes.key_share(members)

    def join(self, left: int, right: int) -> float:
        """Joining two sets, the cheaper way round."""
        one, other, out = self.rows(left), self.rows(right), self.rows(left | right)
        bucketed = any(
            sharing & right
            for index, sharing in enumerate(self._sharing_windows)
            if left >> index & 1
        )
        # A bucket of a window holds just the rows of that window; any other bucket is as long as
        # the bound, and a row is compared with those of two.
        compared = out if bucketed else 2 * out
        moved = one + other + (0.0 if bucketed else min(one, other))
        return MOVE * moved + PAIR * compared + MAKE * out
