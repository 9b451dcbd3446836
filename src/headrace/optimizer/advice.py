"""What a user could change about a query, found in its optimized plan and the statistics.

Each piece says what was seen and what to do. Nothing here changes a plan.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.optimizer.safety import can_raise
from headrace.plan.durations import format_duration
from headrace.plan.expressions import conjuncts
from headrace.plan.nodes import Aggregate, Filter, IntervalBound, Join, Node, Source
from headrace.plan.windows import Landmark
from headrace.stats.catalog import NO_STATISTICS, Statistics


def advise(plan: Node, statistics: Statistics = NO_STATISTICS) -> tuple[str, ...]:
    """Advice on a plan, each piece once, outermost first."""
    texts: dict[str, None] = {}
    for node in plan.walk():
        for text in _about(node, statistics):
            texts.setdefault(text)
    return tuple(texts)


def _about(node: Node, statistics: Statistics) -> Iterator[str]:
    match node:
        case Join():
            yield from _about_join(node)
        case Aggregate() if any(isinstance(window, Landmark) for window in node.windows):
            yield (
                "landmark() keeps every group for ever; if old groups do not matter, "
                "use trailing() or a window"
            )
        case Filter(input=Join() | Aggregate() | Filter()):
            yield from _about_filter(node)
        case Source():
            yield from _about_source(node, statistics)
        case _:
            return


def _endless(node: Node) -> frozenset[str]:
    """The streams whose rows never expire: they have no ttl, or were made into groups."""
    if isinstance(node, Source):
        return frozenset({node.shown} if node.ttl is None else ())
    if isinstance(node, Aggregate):
        return frozenset(n.shown for n in node.walk() if isinstance(n, Source))
    return frozenset().union(*(_endless(below) for below in node.inputs))


def _about_join(node: Join) -> Iterator[str]:
    if not (node.left.streams() and node.right.streams()):
        return
    sides = f"{node.left_alias or 'left'} and {node.right_alias or 'right'}"
    if node.time is None:
        endless = sorted(_endless(node))
        if endless:
            yield (
                f"the join of {sides} has no condition on time and keeps the rows of "
                f"{', '.join(endless)} for ever; add one, such as "
                "window(…) = window(…), or give the streams a ttl"
            )
    elif isinstance(node.time, IntervalBound) and (
        node.time.lower is None or node.time.upper is None
    ):
        yield (
            f"the join of {sides} is bounded on one side of time only and keeps rows for ever; "
            "write BETWEEN with both bounds"
        )


def _about_filter(node: Filter) -> Iterator[str]:
    below = node.input
    for part in conjuncts(node.predicate):
        if not can_raise(part):
            continue
        if isinstance(below, Filter) or _could_go_lower(part.columns(), below):
            yield (
                f"{part} stays where it is, because it may fail on rows it does not see now; "
                "with try_cast, try_divide or the like it can be evaluated earlier"
            )


def _could_go_lower(columns: frozenset[str], below: Node) -> bool:
    if isinstance(below, Join):
        of_rows = {*below.left_schema.names, *below.right_schema.names}
        return bool(columns) and columns <= of_rows
    keys = {key.name for key in below.keys} if isinstance(below, Aggregate) else set()
    return bool(columns) and columns <= keys


def _about_source(node: Source, statistics: Statistics) -> Iterator[str]:
    seen = statistics.of_stream(node.stream)
    late, nulls = seen.late_rows.number, seen.null_times.number
    if late:
        yield (
            f"{seen.late_rows} rows of {node.shown} came too late for some window or join; "
            f"its delay is {format_duration(node.delay)}, a longer one would wait for them"
        )
    if nulls:
        yield f"{seen.null_times} rows of {node.shown} had no {node.time} and were dropped"
