"""The relational definition of joins in an order, over whatever rows its inputs are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from headrace.cost.window_joins import time_span
from headrace.definitions.definition import Sql, all_of, column, held, named, select, sql_of
from headrace.definitions.join_conditions import buckets, with_bucket
from headrace.definitions.join_shape import JoinShape, key_condition
from headrace.optimizer.joins.boundary_swap import swapped
from headrace.optimizer.joins.containment import implied_time
from headrace.plan.nodes import JoinTime, Order, SameWindow
from headrace.plan.reach import reach_of


@dataclass(frozen=True)
class Part:
    """Some inputs, joined, and the positions of the conditions that were checked."""

    query: exp.Select
    inputs: frozenset[int]
    columns: frozenset[str]
    checked: frozenset[int] = frozenset()


_LEFT, _RIGHT, _WATCHED = "__left_", "__right_", "j"


def is_watched(text: str) -> bool:
    """Whether the text of a definition has a join in it whose steps are watched."""
    return f"{_LEFT}{_WATCHED}" in text


def join_in_order(
    shape: JoinShape,
    order: Order,
    inputs: Mapping[int, exp.Select],
    size: Callable[[frozenset[int]], float],
    label: str = "",
) -> exp.Select:
    """All inputs joined. ``size`` estimates the rows of a set of inputs, on any scale.

    With a ``label`` the buckets of time, or keys where there are none, are named by it and by the
    inputs that a step joins, so that who runs the definition can tell how many rows came out of it.
    """

    def part(of: Order) -> Part:
        if isinstance(of, int):
            names = frozenset(shape.graph.leaves[of].schema.names)
            return Part(inputs[of], frozenset((of,)), names)
        left, right = part(of[0]), part(of[1])
        # Where rows must be repeated in a neighbour bucket, it is those of the smaller side.
        if size(left.inputs) > size(right.inputs):
            left, right = right, left
        return _joined(shape, left, right, label)

    joined, last = part(order).query, shape.last
    return joined if last is None else select(held(joined, "__pairs"), None, [last])


def _joined(shape: JoinShape, left: Part, right: Part, label: str) -> Part:
    both = left.columns | right.columns
    before = left.checked | right.checked
    now = [
        position
        for position, condition in enumerate(shape.conditions)
        if position not in before and condition.columns <= both and not condition.raises
    ]
    on = [shape.conditions[position].sql.copy() for position in now]
    ours_query, theirs_query, bucket = _bucketed(shape, left, right, label)
    named_key = bool(label) and bucket is None
    for members in shape.graph.key_classes:
        ours = next((key for index, key in members if index in left.inputs), None)
        theirs = next((key for index, key in members if index in right.inputs), None)
        if ours is None or theirs is None:
            continue
        if named_key:
            # A join without a bucket is told by the name of a key.
            named_key, name = False, _step_name(left, right, label)
            ours_query = select(ours_query, None).select(
                named(sql_of(ours), f"{_LEFT}{name}"), copy=False
            )
            theirs_query = select(theirs_query, None).select(
                named(sql_of(theirs), f"{_RIGHT}{name}"), copy=False
            )
            on.insert(
                0, exp.EQ(this=column(f"{_LEFT}{name}"), expression=column(f"{_RIGHT}{name}"))
            )
            continue
        on.insert(0, key_condition(ours, theirs))
    if bucket is not None:
        on.insert(0, bucket)
    joined = (
        exp.Select(expressions=[exp.Star()])
        .from_(ours_query.subquery("l", copy=False), copy=False)
        .join(
            theirs_query.subquery("r", copy=False),
            on=all_of(on),
            join_type="inner" if on else "cross",
            copy=False,
        )
    )
    return Part(joined, left.inputs | right.inputs, both, before.union(now))


def _step_name(left: Part, right: Part, label: str) -> str:
    name = "_".join(map(str, sorted(left.inputs | right.inputs)))
    return f"{label}_{name}" if label else name


def _bucketed(
    shape: JoinShape, left: Part, right: Part, label: str
) -> tuple[exp.Select, exp.Select, Sql | None]:
    """Give both sides a bucket of time, by the condition that leaves the fewest rows in one."""
    for time in sorted(_conditions(shape, left, right), key=_coarseness):
        time_buckets = buckets(time, time.left.name, time.right.name, reach_of(time))
        if time_buckets is None:
            continue
        name = _step_name(left, right, label)
        ours, theirs = f"{_LEFT}{name}", f"{_RIGHT}{name}"
        return (
            with_bucket(select(left.query, None), time_buckets.present, ours, time_buckets.repeats),
            with_bucket(select(right.query, None), time_buckets.added, theirs, False),
            exp.EQ(this=column(ours), expression=column(theirs)),
        )
    return left.query, right.query, None


def _conditions(shape: JoinShape, left: Part, right: Part) -> list[JoinTime]:
    """Conditions on time between two parts, written or implied, read from the left."""
    graph = shape.graph
    conditions = [
        edge.time if edge.left in left.inputs else swapped(edge.time)
        for edge in graph.times
        if edge.joins(left.inputs, right.inputs)
    ]
    for ours in sorted(left.inputs) if shape.implies else ():
        for theirs in sorted(right.inputs):
            implied = implied_time(graph, ours, theirs)
            if implied is not None:
                conditions.append(implied)
    return conditions


def _coarseness(time: JoinTime) -> tuple[bool, float]:
    """Windows that do not overlap are buckets by themselves, and nothing is repeated for them."""
    is_window = isinstance(time, SameWindow) and time.window.overlap == 1
    span = time_span(time)
    return not is_window, float("inf") if span is None else span
