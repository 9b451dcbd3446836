"""Time propagation (Section 5.3, Algorithm 1): which window belongs to which pair of streams.

A join of AB with C that looks at a.ts is a condition on (A, C). Whatever the order, that pair is
joined by that window. A pair that no join looks at, such as (B, C), inherits all windows on the
way between its streams; it has a window of its own only if those are nested (``largest_window``).

Paper: Window Join Reordering, Section 5.3, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.optimizer.joins import boundary_swap
from headrace.plan.nodes import JoinTime

NAME = "time_propagation"


@dataclass(frozen=True)
class WindowJoin:
    """A join of the query as written: what it adds, by which window, and by whose time.

    ``handed`` is the stream of the left side whose time the join looks at.
    """

    handed: str
    added: str
    time: JoinTime


Pair = tuple[str, str]


def all_window_permutations(joins: Sequence[WindowJoin]) -> Mapping[Pair, tuple[JoinTime, ...]]:
    """For every ordered pair of streams the windows that may join it (Algorithm 1).

    One window is an assignment; more are a list from which only nested windows can be chosen.
    """
    assigned: dict[Pair, tuple[JoinTime, ...]] = {}
    present = [joins[0].handed]
    for position, join in enumerate(joins):
        for stream in present:
            if stream == join.handed:
                windows: tuple[JoinTime, ...] = (join.time,)
            else:
                windows = tuple(j.time for j in joins[: position + 1])
            assigned[stream, join.added] = windows
            assigned[join.added, stream] = tuple(map(boundary_swap.swapped, windows))
        present.append(join.added)
    return assigned
