"""In which order the inputs of a FROM are joined, so that each is bounded in time if it can be.

``a JOIN b ON a.k = b.k JOIN c ON a.k = c.k AND <times of a and c> AND <times of b and c>`` bounds
all three inputs, and is one tree whichever of them the text names first. Read from left to right,
its first join would be one without a condition on time, which is another kind of join: it keeps
rows for their ``ttl``, and hands on no times. So inputs that conditions on time tie, directly or
through others, are joined with each other before all else, and what remains is joined without.

That is right where all joins of the FROM are inner: then its conditions are those of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from headrace.plan.expressions import Column, Expr
from headrace.plan.nodes import Order
from headrace.plan.types import WINDOW
from headrace.plan.windows import Session
from headrace.sql.time_bounds import time_bound
from headrace.sql.where_ties import Input, tie_between
from headrace.sql.windows import WindowCall

#: The places of two inputs.
_Ends = frozenset[int]


def timed_order(inputs: Sequence[Input], parts: Sequence[Expr]) -> Order | None:
    """An order in which each input is bounded by one before it if conditions on time tie them;
    None where from left to right is such an order, or a session depends on what is joined."""
    calls = (inner for part in parts for inner in part.walk() if isinstance(inner, WindowCall))
    if any(isinstance(window, Session) for call in calls for window in call.windows):
        return None
    ties = [(part, tie) for part in parts if (tie := tie_between(part, inputs)) is not None]
    timed = {tie.inputs for part, tie in ties if tie.timed and _bounds(part, inputs, tie.inputs)}
    streams = [place for place, one in enumerate(inputs) if one.streaming]
    edges = [ends for ends in timed if ends <= set(streams)]
    groups: list[list[int]] = []
    for first in streams:
        if not any(first in group for group in groups):
            groups.append(_tied_with(first, streams, edges))
    if _is_left_to_right(streams, edges, groups):
        return None
    tables = [[place] for place, one in enumerate(inputs) if not one.streaming]
    pieces = _one_after_the_other([*groups, *tables], [tie.inputs for _, tie in ties])
    order: Order | None = None
    for piece in pieces:
        inner: Order = piece[0]
        for place in piece[1:]:
            inner = inner, place
        order = inner if order is None else (order, inner)
    return order


def _bounds(part: Expr, inputs: Sequence[Input], ends: _Ends) -> bool:
    """Whether a comparison of times says how far they may lie apart."""
    left, right = (inputs[place] for place in sorted(ends))
    sides = part.children
    return (
        time_bound(part, left.times, right.times) is not None
        or any(isinstance(side, WindowCall) for side in sides)
        or all(isinstance(side, Column) and side.type == WINDOW for side in sides)
    )


def _tied_with(first: int, streams: Sequence[int], edges: Sequence[_Ends]) -> list[int]:
    group = [first]
    while True:
        tied = [s for s in streams if s not in group and _meets(s, group, edges)]
        if not tied:
            return group
        group.append(tied[0])


def _meets(place: int, group: Iterable[int], edges: Sequence[_Ends]) -> bool:
    return any(place in ends and ends & set(group) - {place} for ends in edges)


def _is_left_to_right(
    streams: Sequence[int], edges: Sequence[_Ends], groups: Sequence[list[int]]
) -> bool:
    """Whether the text begins with one group, in order, and all others are single inputs."""
    first, *others = groups or [[]]
    begins = streams[: len(first)]
    return (
        all(len(group) == 1 for group in others)
        and set(begins) == set(first)
        and all(_meets(place, begins[:i], edges) for i, place in enumerate(begins) if i)
    )


def _one_after_the_other(pieces: list[list[int]], ties: Sequence[_Ends]) -> Iterator[list[int]]:
    """Each after one that something ties it to, as near to the text as that allows."""
    joined: set[int] = set()
    left = sorted(pieces[1:], key=min)
    piece = pieces[0]
    while True:
        joined |= set(piece)
        yield piece
        if not left:
            return
        tied = [one for one in left if any(t & joined and t & set(one) for t in ties)]
        piece = (tied or left)[0]
        left.remove(piece)
