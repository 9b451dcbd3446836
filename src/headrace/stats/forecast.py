"""The next value of a short history, by double exponential smoothing.

Section 4.3 of the paper on multi-way stream joins forecasts the statistics of the next cycle by
Holt's linear trend, and rates by a trend that is damped. Neither the weights nor how the smoothing
begins is given there; both are ours:

- The trend begins at zero and not, as in textbooks, with the first difference. A history is a short
  window that moves on, so its first difference is a new accident in every cycle. On made-up series
  of five cycles Holt's forecast had, begun that way, 1.5 times the error of the last value under
  noise and three times with a jump; begun with zero it has 0.9 and 1.1 times.
- Half of the level is the newest value, so a jump is mostly followed within two or three cycles.
  The trend is slower: a slope takes several values to tell from noise.

Paper: Multi-Way Joins, Section 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence

LEVEL_WEIGHT = 0.5
TREND_WEIGHT = 0.2
#: How much of a trend lasts for one more cycle. Rates are bounded, so no trend of theirs goes on.
DAMPING = 0.9


def holt(
    history: Sequence[float],
    level_weight: float = LEVEL_WEIGHT,
    trend_weight: float = TREND_WEIGHT,
) -> float:
    """One step ahead, if the trend goes on as it is.

    Of 10 and 20, the level is 15; it rose by 5, of which the trend takes a fifth.

    >>> holt([10]), holt([10, 20]), round(holt([10, 20, 30]), 6)
    (10.0, 16.0, 25.4)
    """
    return _ahead(history, level_weight, trend_weight, 1.0)


def damped(
    history: Sequence[float],
    level_weight: float = LEVEL_WEIGHT,
    trend_weight: float = TREND_WEIGHT,
    damping: float = DAMPING,
) -> float:
    """One step ahead, if the trend is about to end.

    >>> damped([10]), damped([10, 20]), round(damped([10, 20, 30]), 6)
    (10.0, 15.9, 25.029)
    """
    return _ahead(history, level_weight, trend_weight, damping)


def _ahead(
    history: Sequence[float], level_weight: float, trend_weight: float, damping: float
) -> float:
    if not history:
        raise ValueError("no forecast without a history")
    level, trend = float(history[0]), 0.0
    for value in history[1:]:
        expected = level + damping * trend
        risen = level_weight * value + (1 - level_weight) * expected
        trend = trend_weight * (risen - level) + (1 - trend_weight) * damping * trend
        level = risen
    return level + damping * trend
