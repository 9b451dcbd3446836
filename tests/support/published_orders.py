"""Window join reordering as published: Algorithms 1 and 2 of the paper, to compare orders with.

The optimizer finds the best of more orders in less time; whatever Algorithm 2 calls valid must be
among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from headrace.optimizer.joins import boundary_swap, largest_window
from headrace.optimizer.joins.properties import HandedOn, Level, classify
from headrace.plan.nodes import JoinTime, SameWindow


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


@dataclass(frozen=True)
class PublishedOrder:
    """A valid order, and for each of its joins the window that Algorithm 2 assigns."""

    streams: tuple[str, ...]
    windows: tuple[JoinTime, ...]


def streams_of(joins: Sequence[WindowJoin]) -> tuple[str, ...]:
    return (joins[0].handed, *(join.added for join in joins))


def window_join_orders(
    joins: Sequence[WindowJoin], handed: HandedOn = HandedOn.LEFT
) -> list[PublishedOrder]:
    """All valid orders. ``handed`` only tells event time from processing time here."""
    times = [join.time for join in joins]
    level = classify(times, handed)
    first, second, *rest = streams_of(joins)
    if level is Level.COMMUTATIVE:
        return [
            PublishedOrder((first, second, *rest), tuple(times)),
            PublishedOrder((second, first, *rest), tuple(times)),
        ]
    if handed is HandedOn.WINDOW_END:
        only = largest_window.only_window(t.window for t in times if isinstance(t, SameWindow))
        assert only is not None
        same = tuple(SameWindow(time.left, time.right, only) for time in times)
        return [PublishedOrder(order, same) for order in permutations(streams_of(joins))]
    assigned = all_window_permutations(joins)
    found = []
    for order in permutations(streams_of(joins)):
        windows = [
            _window([assigned[before, added] for before in order[:position]])
            for position, added in enumerate(order)
            if position
        ]
        if all(window is not None for window in windows):
            found.append(PublishedOrder(order, tuple(w for w in windows if w is not None)))
    return found


def _window(choices: Sequence[Sequence[JoinTime]]) -> JoinTime | None:
    """The window that joins a stream to those before it: an assigned one, else the largest."""
    own = [windows[0] for windows in choices if len(windows) == 1]
    if own:
        return own[0]
    for windows in choices:
        sliding = [time for time in windows if isinstance(time, SameWindow)]
        if len(sliding) == len(windows) and largest_window.is_nesting(t.window for t in sliding):
            return max(sliding, key=lambda t: (t.window.length, t.window.slide))
    return None
