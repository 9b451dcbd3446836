"""What an epoch tells of the load of a window that moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.operators.epoch import Epoch
from headrace.operators.sets.window_change import WindowChange
from headrace.state.arrangement import span
from headrace.stats.load import Load, SeenSet, TimeSpan, estimated_keys


@dataclass(frozen=True)
class Entered:
    """Rows that were looked at as they entered a window.

    They were of ``groups``, and had so many values in the columns of ``keys``. ``anew`` says that
    it was the whole window.
    """

    rows: float
    groups: float
    keys: Mapping[str, float]
    anew: bool


def window_load(
    epoch: Epoch, change: WindowChange, stored: str, entered: Entered
) -> SeenSet | None:
    """What that tells of an epoch; the window's rows are stored under a name."""
    known_before = change.before is not None
    if entered.rows <= 0 or entered.groups <= 0 or change.before == change.after:
        return None
    if entered.anew and known_before:
        # What came in this epoch cannot be told from what was there.
        return None
    begin = change.now.first
    came = change.before if change.before is not None else _beginning(epoch, stored, change)
    spread = TimeSpan(float(min(came, change.after - 1)), float(change.after))
    groups = min(entered.groups, entered.rows)
    load = Load(entered.rows, spread.last - spread.first, estimated_keys(entered.rows, groups, 1))
    keys = {n: min(seen, entered.rows) for n, seen in entered.keys.items()}
    return SeenSet(entered.rows, groups, load, keys, spread, begin)


def _beginning(epoch: Epoch, stored: str, change: WindowChange) -> int:
    """Where the rows of a window begin: at first it is longer than the stream."""
    stored_span = span(epoch.state.arrangement(stored).files)
    begin = change.now.first
    times = [
        time
        for time in (begin, None if stored_span is None else stored_span[0])
        if time is not None
    ]
    return max(times, default=change.after)
