"""Sets of windows as in the evaluation of "Factor Windows" (Algorithm 6): random and sequential.

Seeds and multipliers are the paper's: slides {5, 10, 20}, lengths {2, 5, 10}, up to 50 times.

Paper: Factor Windows, Section V-A, Algorithm 6.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from headrace.plan.windows import Hopping

SEED_SLIDES = (5, 10, 20)
SEED_LENGTHS = (2, 5, 10)
MULTIPLIER = 50
#: A unit of the paper's windows, in milliseconds.
UNIT = 1_000


@dataclass(frozen=True)
class Setup:
    """A row of the paper's tables: R-5-tumbling and its like."""

    sequential: bool
    size: int
    tumbling: bool

    @property
    def name(self) -> str:
        kind = "tumbling" if self.tumbling else "hopping"
        return f"{'S' if self.sequential else 'R'}-{self.size}-{kind}"


SETUPS = tuple(
    Setup(sequential, size, tumbling)
    for size in (5, 10, 15, 20)
    for sequential in (False, True)
    for tumbling in (True, False)
)


def window_set(setup: Setup, seed: int) -> tuple[Hopping, ...]:
    """One window set; the same seed always gives the same."""
    chance = random.Random(f"{setup.name}/{seed}")
    seeds = SEED_LENGTHS if setup.tumbling else SEED_SLIDES
    if setup.sequential:
        first = chance.choice(seeds)
        figures = [first * factor for factor in range(2, setup.size + 2)]
    else:
        figures = []
        while len(figures) < setup.size:
            figure = chance.choice(seeds) * chance.randint(2, MULTIPLIER)
            if figure not in figures:
                figures.append(figure)
    if setup.tumbling:
        return tuple(Hopping(figure * UNIT, figure * UNIT) for figure in figures)
    return tuple(Hopping(2 * figure * UNIT, figure * UNIT) for figure in figures)


def windows_sql(windows: tuple[Hopping, ...]) -> str:
    """The windows as the argument of a GROUP BY."""
    parts = []
    for window in windows:
        slide = "" if window.tumbling else f", '{window.slide} milliseconds'"
        parts.append(f"window(ts, '{window.length} milliseconds'{slide})")
    return f"windows({', '.join(parts)})" if len(parts) > 1 else parts[0]
