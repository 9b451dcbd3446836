"""Conditions on the times of two rows, exact, and the time buckets that make them cheap.

A join on the key alone compares all rows of a key. Both sides get a bucket of time as a further
equal key; where a match may lie in a neighbour bucket, one side is repeated there. The exact
condition decides in the end.

Paper: Window Join Reordering, Section 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from headrace.definitions.definition import (
    Sql,
    call,
    column,
    floor_to,
    micros,
    millis,
    named,
    number,
)
from headrace.plan.nodes import IntervalBound, JoinTime, SameWindow
from headrace.plan.reach import Reach
from headrace.plan.windows import Hopping


def exact_condition(time: JoinTime) -> list[Sql]:
    """The condition as written, to the microsecond."""
    match time:
        case IntervalBound(left=left, right=right, lower=lower, upper=upper):
            a, b = micros(column(left.name)), micros(column(right.name))
            bounds: list[Sql] = []
            if lower is not None:
                bounds.append(b >= a + number(lower * 1_000))
            if upper is not None:
                bounds.append(b.copy() <= a.copy() + number(upper * 1_000))
            return bounds
        case SameWindow(left=left, right=right, window=window):
            return [_share_window(window, millis(column(left.name)), millis(column(right.name)))]
        case _:
            raise AssertionError(f"no pairwise condition for {time}")


def _share_window(window: Hopping, left: Sql, right: Sql) -> Sql:
    """At least one window holds both: the latest that begins before the earlier one does."""
    earlier, later = call("least", left, right), call("greatest", left.copy(), right.copy())
    start = floor_to(earlier, window.slide, window.offset)
    return later < exp.paren(start) + number(window.length)


@dataclass(frozen=True)
class Buckets:
    """Bucket columns for the rows that are there already and for those that are added."""

    present: Sql
    added: Sql
    repeats: bool


def buckets(time: JoinTime, present: str, added: str, reach: Reach) -> Buckets | None:
    """Buckets for a join of ``present`` rows with ``added`` ones; reach is from the former.

    None where a side is unbounded. Windows that do not overlap are their own buckets.
    """
    here, there = millis(column(present)), millis(column(added))
    if isinstance(time, SameWindow) and time.window.overlap == 1:
        window = time.window
        return Buckets(
            floor_to(here, window.slide, window.offset),
            floor_to(there, window.slide, window.offset),
            repeats=False,
        )
    if reach.before is None or reach.after is None:
        return None
    # Two neighbours suffice if a bucket is as long as the whole reach; a millisecond on either
    # side makes up for the microseconds that are cut off.
    length = max(reach.before + reach.after + 3, 1)
    low = floor_to(exp.paren(here - number(reach.before + 1)), length, 0)
    high = floor_to(exp.paren(here.copy() + number(reach.after + 1)), length, 0)
    both = exp.Case(
        ifs=[exp.If(this=exp.EQ(this=low, expression=high), true=call("array", low.copy()))],
        default=call("array", low.copy(), high.copy()),
    )
    return Buckets(both, floor_to(there, length, 0), repeats=True)


def with_bucket(query: exp.Select, bucket: Sql, name: str, repeats: bool) -> exp.Select:
    """Add a bucket column; a row that may match in two buckets comes once for each."""
    value = call("explode", bucket) if repeats else bucket
    return query.select(named(value, name), copy=False)
