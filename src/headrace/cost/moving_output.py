"""What the output of windows that move costs: joined anew, or kept up to date.

Joined anew, the windows (or their sets) are read and all of their joined rows grouped. Kept up to
date, what moved of each input meets the windows of the others, as many changes are written as there
are groups among these joined rows, and the output is read to come out:

    Σ inputs k [ PROBE (moved k + Σ others held) + PAIR (rows joined by what moved of k) ]
      + UPDATE changed + PROBE (groups + LOGGED changed) + SECONDS_TO_KEEP

The joined rows make the difference. Where sets are small there are few, and to join them anew is
less than to read what is known of the output; where rows are joined, and where groups are many,
most of the pairs of a window are those that it had before.

Paper: Early Aggregation, Section 6.1, Figure 5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.cost.early_aggregation import Tuning

#: An epoch's changes are read by about so many epochs before files are merged.
LOGGED = 4.0

#: What one more set to write and to read takes in an epoch, however little there is of it.
SECONDS_TO_KEEP = 0.05

Rates = tuple[float, ...]


def upkeep_cost(
    held: Sequence[float],
    moved: Sequence[float],
    joined: Callable[[Rates], float],
    groups: float,
    epochs: float,
    tuning: Tuning,
) -> float:
    """Seconds per millisecond of the streams' time, as all arguments are.

    ``held`` is read of each input, ``moved`` enters or leaves it (nothing does of a table),
    ``joined`` says how many rows are made of so many of each, ``groups`` come out, and there are
    so many ``epochs``.
    """
    total, changed = SECONDS_TO_KEEP * epochs, 0.0
    for driver, moving in enumerate(moved):
        if not moving:
            continue
        others = sum(rows for index, rows in enumerate(held) if index != driver)
        pairs = joined((*held[:driver], moving, *held[driver + 1 :]))
        total += tuning.probe * (moving + others) + tuning.pair * pairs
        changed += pairs
    changed = min(changed, groups)
    return total + tuning.update * changed + tuning.probe * (groups + LOGGED * changed)
