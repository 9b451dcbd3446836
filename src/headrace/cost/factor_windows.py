"""What a window graph costs by the model of "Factor Windows", Section III-B.

Counted are the items that aggregates take in over one period, the least common multiple of the
lengths: rows where a window is computed from rows, and results of other windows where it is not.

    n = 1 + (period - length) / slide      how often a window occurs in the period
    from rows                              n * rate * length
    from a window W'                       n * M(W, W')

The paper assumes that slides divide lengths, so that ``n`` is whole. Where they do not, ``n`` is
a fraction here, which ranks plans as well.

All figures are fractions of whole numbers, of any size. The period of windows of a second beside
windows of years, or of many lengths without a common divisor, has more digits than a float can
tell apart, and may be larger than any float.

Paper: Factor Windows, Section III-B, Equation 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from headrace.plan.coverage import covering_multiplier
from headrace.plan.window_graph import WindowGraph
from headrace.plan.windows import Hopping


@dataclass(frozen=True)
class PaperCost:
    """Costs over one period. ``rate`` is in rows per unit of time, and at least one."""

    period: int
    rate: Fraction = Fraction(1)
    unit: int = 1

    @classmethod
    def of(cls, windows: Iterable[Hopping], rate: Fraction | float = 1, unit: int = 1) -> PaperCost:
        period = lcm(*(window.length for window in windows))
        return cls(period, max(Fraction(rate), Fraction(1)), unit)

    def occurrences(self, window: Hopping) -> Fraction:
        """The recurrence count of Equation 1."""
        return 1 + Fraction(self.period - window.length, window.slide)

    def items(self, window: Hopping, source: Hopping | None) -> Fraction:
        """What one interval of a window takes in, from another window or from rows."""
        if source is None:
            return self.rate * window.length / self.unit
        return Fraction(covering_multiplier(window, source))

    def step(self, window: Hopping, source: Hopping | None) -> Fraction:
        """The cost of one window, computed from another one or from rows."""
        return self.occurrences(window) * self.items(window, source)

    def windows(self, graph: WindowGraph) -> dict[Hopping, Fraction]:
        return {edge.window: self.step(edge.window, edge.source) for edge in graph.edges}

    def total(self, graph: WindowGraph) -> Fraction:
        return sum(self.windows(graph).values(), Fraction(0))
