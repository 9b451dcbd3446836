"""Aggregates over inner joins, as what they mean: inputs, conditions, groups and aggregates.

Whatever stands between the aggregate and the joins (projections, filters) is carried into the
groups, the aggregates and the conditions, so that all of them speak of the inputs' own columns.

Which queries: inner joins of streams, tables among them, below one aggregate of functions that can
be taken apart. Which not, and why, is what ``Declined`` says; single inputs may be declined too.

Paper: Early Aggregation, Section 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.errors import PlanError
from headrace.names import folded
from headrace.optimizer.early.aggregates import group_by_values, needs_rows
from headrace.optimizer.early.guards import may_fail
from headrace.optimizer.safety import key_can_raise
from headrace.plan.expressions import AggregateCall, Call, Column, Expr, Named, conjuncts
from headrace.plan.join_graph import JoinGraph, Leaf, is_graph, join_graph
from headrace.plan.nodes import (
    WINDOW_COLUMN,
    Aggregate,
    Filter,
    Join,
    JoinKind,
    Node,
    Order,
    Project,
    SameWindow,
    Source,
    Union,
)
from headrace.plan.substitute import definitions, substituted
from headrace.plan.times import event_times, held_back_by
from headrace.plan.windows import (
    Hopping,
    InheritedWindow,
    Landmark,
    Session,
    Trailing,
    Window,
    common_pane,
)

#: Where nothing asks for the time of an input, the pane that its set is cut into.
DAY = Hopping(86_400_000, 86_400_000)
#: Spark gives a sum of decimals ten digits more than they have, up to 38: of longer ones a partial
#: sum may overflow.
MOST_SUMMED_DIGITS = 28
#: Joins of more inputs are left as they are.
MOST_INPUTS = 16


@dataclass(frozen=True)
class Declined:
    """Why an aggregate is computed after its joins."""

    reason: str


@dataclass(frozen=True)
class AggregationJoin:
    """An aggregate over a graph of inner joins.

    ``keys`` and ``aggregates`` read the columns of the graph's inputs; the keys are the query's and
    the values that its aggregates of different values are of. ``anchor`` is the input
    whose time the windows are made of, and ``times`` the time column of each input, empty for a
    table. ``panes`` say to which pane the time of an input can be rounded down without a
    difference; None where its exact time matters. ``per_window`` is the window of a join that
    pairs rows once per common window. ``declined`` are inputs that cannot be aggregated early.
    """

    node: Aggregate
    join: Join
    graph: JoinGraph
    keys: tuple[Named, ...]
    aggregates: tuple[Named, ...]
    anchor: int
    times: tuple[str, ...]
    panes: tuple[Hopping | None, ...]
    per_window: Hopping | None
    declined: Mapping[int, str]
    #: The aggregates of different values, whose values are the last of the keys.
    different: tuple[Named, ...] = ()
    #: The window of each input, where each has its own; None for a table.
    input_windows: tuple[Window | None, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return self.graph.names

    @property
    def eligible(self) -> frozenset[int]:
        return self.graph.everything - frozenset(self.declined)

    def is_table(self, index: int) -> bool:
        return not self.graph.leaves[index].node.streams()

    @property
    def streams(self) -> tuple[int, ...]:
        """The inputs that are streams."""
        return tuple(i for i in range(len(self.graph.leaves)) if not self.is_table(i))

    @property
    def trailing(self) -> Trailing | None:
        """The trailing window of a join that has one."""
        (first, *_) = self.node.windows
        return first if isinstance(first, Trailing) and not self.node.also else None

    @property
    def landmark(self) -> bool:
        return isinstance(self.node.windows[0], Landmark) and not self.node.also

    @property
    def order(self) -> Order | None:
        """The order of the joins that the query asks for, where it is one of all inputs."""
        return self.join.order if len(self.streams) == len(self.graph.leaves) else None

    @property
    def windows(self) -> tuple[Hopping, ...]:
        if self.per_window is not None:
            return (self.per_window,)
        return tuple(w for w in self.node.windows if isinstance(w, Hopping))


def aggregation_join(node: Aggregate) -> AggregationJoin | Declined:
    """An aggregate taken apart, or why it cannot be."""
    below, carried = _carried(node)
    if not isinstance(below, Join):
        return Declined("it aggregates no join")
    if below.kind is not JoinKind.INNER:
        return Declined("rows without a partner come out of an outer join by themselves")
    if not is_graph(below, tables=True):
        return Declined("which rows are one session depends on every single row")
    graph = join_graph(below, tables=True)
    if len(graph.leaves) > MOST_INPUTS:
        return Declined(f"it joins more than {MOST_INPUTS} inputs")
    for named in carried.aggregates:
        reason = needs_rows(named.expr)
        if reason is not None:
            return Declined(reason)
    grouped = group_by_values(carried.keys, carried.aggregates)
    carried = replace(carried, keys=grouped.keys, aggregates=grouped.aggregates)
    return _of_graph(node, below, graph, carried, grouped.different)


@dataclass(frozen=True)
class _Carried:
    """The parts of an aggregate, as expressions over the columns of the join below it."""

    keys: tuple[Named, ...]
    aggregates: tuple[Named, ...]
    time: Expr
    also: tuple[Expr, ...] = ()
    predicates: tuple[Expr, ...] = ()

    def through(self, values: Mapping[str, Expr]) -> _Carried:
        def renamed(columns: tuple[Named, ...]) -> tuple[Named, ...]:
            return tuple(Named(c.name, substituted(c.expr, values)) for c in columns)

        return _Carried(
            renamed(self.keys),
            renamed(self.aggregates),
            substituted(self.time, values),
            tuple(substituted(time, values) for time in self.also),
            tuple(substituted(p, values) for p in self.predicates),
        )


def _carried(node: Aggregate) -> tuple[Node, _Carried]:
    also = tuple(part.time for part in node.also)
    carried = _Carried(node.keys, node.aggregates, node.time, also)
    below = node.input
    while isinstance(below, Filter | Project):
        if isinstance(below, Project):
            carried = carried.through(definitions(below.columns))
        else:
            more = (*carried.predicates, *conjuncts(below.predicate))
            carried = replace(carried, predicates=more)
        below = below.input
    return below, carried


def _of_graph(
    node: Aggregate,
    join: Join,
    graph: JoinGraph,
    carried: _Carried,
    different: tuple[Named, ...],
) -> AggregationJoin | Declined:
    graph = replace(graph, predicates=(*graph.predicates, *carried.predicates))
    if not isinstance(carried.time, Column):
        return Declined("its windows are made of a computed time")
    per_window = _common_window(node, join, graph, carried.time)
    if isinstance(per_window, Declined):
        return per_window
    if isinstance(node.windows[0], Session):
        return Declined("which rows are one session depends on every single row")
    expressions = [n.expr for n in (*carried.keys, *carried.aggregates)] + list(graph.predicates)
    column_names = {name for leaf in graph.leaves for name in leaf.schema.names}
    if any(expr.columns() - column_names for expr in expressions):
        return Declined("it reads the window that the join makes")
    streams = [leaf for leaf in graph.leaves if leaf.node.streams()]
    if isinstance(node.windows[0], Landmark) and len(streams) == 1:
        return Declined("a landmark of one stream takes in each row as it comes")
    untimed = not graph.timed and not node.also and len(streams) > 1
    if untimed and any(leaf.lives for leaf in streams):
        return Declined("rows of a join without a condition on time live for their ttl")
    anchor = 0 if per_window is not None else graph.owner(carried.time.name)
    times = _time_columns(graph, carried, anchor)
    if isinstance(times, Declined):
        return times
    if per_window is None and times[anchor] != carried.time.name:
        return Declined(f"its windows are of {carried.time.name}, its joins of {times[anchor]}")
    if any(held_back_by(leaf.node, leaf.own_name(t)) for leaf, t in _timed(graph, times)):
        return Declined("open sessions hold its input back")
    shape = AggregationJoin(
        node,
        join,
        graph,
        carried.keys,
        carried.aggregates,
        anchor,
        times,
        (),
        per_window,
        {},
        different,
    )
    if node.also:
        columns = (carried.time, *carried.also)
        own = (node.windows[0], *(part.window for part in node.also))
        by_time = {c.name: w for c, w in zip(columns, own, strict=True) if isinstance(c, Column)}
        shape = replace(shape, input_windows=tuple(by_time.get(time) for time in times))
    declined = _exact_times(shape, expressions)
    otherwise = _fails_otherwise(shape)
    if otherwise is not None:
        declined = dict.fromkeys(graph.everything, otherwise)
    panes = tuple(_pane(shape, index, expressions) for index in range(len(graph.leaves)))
    shape = replace(shape, panes=panes, declined=declined)
    if node.also:
        # There is no other way to compute it.
        return shape
    if not shape.eligible - {i for i in shape.graph.everything if shape.is_table(i)}:
        return Declined(next(iter(declined.values()), "no input can be aggregated"))
    return shape


def _time_columns(graph: JoinGraph, carried: _Carried, anchor: int) -> tuple[str, ...] | Declined:
    """The time of each input: the one that conditions and windows use, else its event time."""
    named = {column.name for column in (carried.time, *carried.also) if isinstance(column, Column)}
    times: list[str] = []
    for leaf in graph.leaves:
        own = set(leaf.schema.names)
        wanted = [leaf.time] if leaf.time else sorted(named & own)
        if not wanted:
            carrying = event_times(leaf.node)
            wanted = [n for n in leaf.schema.names if leaf.own_name(n) in carrying]
        if leaf.node.streams() and not wanted:
            return Declined("an input has no event time")
        times.append(wanted[0] if leaf.node.streams() else "")
    return tuple(times)


def with_early(plan: Node, aggregate: Aggregate, early: str) -> Node:
    """The plan with the inputs named that an aggregate of it aggregates early."""
    return plan.transform(lambda n: replace(aggregate, early=early) if n == aggregate else n)


def forced_inputs(shape: AggregationJoin) -> frozenset[int] | None:
    """The inputs that a plan says are aggregated early; None leaves that to the planner."""
    wanted = shape.node.early
    if wanted in ("", "auto"):
        return None
    names = [] if wanted == "none" else [name.strip() for name in wanted.split(",")]
    input_names = [folded(name) for name in shape.names]
    unknown = [name for name in names if folded(name) not in input_names]
    if unknown:
        raise PlanError(
            f"the join has no input {unknown[0]}", hint=f"its inputs are {', '.join(shape.names)}"
        )
    forced = frozenset(input_names.index(folded(name)) for name in names)
    for index in sorted(forced & shape.declined.keys()):
        raise PlanError(f"{shape.names[index]} cannot be aggregated early: {shape.declined[index]}")
    return forced


def _timed(graph: JoinGraph, times: tuple[str, ...]) -> list[tuple[Leaf, str]]:
    return [(leaf, time) for leaf, time in zip(graph.leaves, times, strict=True) if time]


def _common_window(
    node: Aggregate, join: Join, graph: JoinGraph, time: Column
) -> Hopping | Declined | None:
    """The window of a join that pairs rows once per window, by which the query groups."""
    if not isinstance(node.windows[0], InheritedWindow):
        if join.emits_window:
            return Declined("rows are paired once per window, and the query groups otherwise")
        return None
    has_window = join.emits_window and time.name == WINDOW_COLUMN
    if (
        not has_window
        or not isinstance(join.time, SameWindow)
        or len(graph.leaves) != 2
        or join.also
    ):
        return Declined("its windows are those of an input")
    return join.time.window


def _fails_otherwise(shape: AggregationJoin) -> str | None:
    """Why a query might fail with sets and not without them, or the other way round.

    What sets hold never raises, and joined rows are the same; what differs is which rows a key is
    computed for, which joined rows are looked at that no window holds, and what is added to what.
    """
    for edge in shape.graph.keys:
        if key_can_raise(edge.left_key, edge.right_key):
            return f"{edge.left_key} = {edge.right_key} may fail for a row by itself"
    held = [named.expr for named in (*shape.keys, *shape.aggregates)]
    if any(window.slide > window.length for window in shape.windows):
        for expr in filter(may_fail, held):
            return f"{expr} may fail for a row that is in no window"
    for named in shape.aggregates:
        assert isinstance(named.expr, AggregateCall)
        if named.expr.function in ("sum", "avg", "mean"):
            kind = named.expr.arguments[0].type
            if kind.is_decimal and kind.decimal_parameters[0] > MOST_SUMMED_DIGITS:
                return f"{named.expr} may overflow on the way to a total that fits"
    return None


def _exact_times(shape: AggregationJoin, expressions: list[Expr]) -> dict[int, str]:
    """Inputs whose rows must keep their exact times, unless many rows share one anyway."""
    reasons: dict[int, str] = {}
    for index, leaf in enumerate(shape.graph.leaves):
        time = shape.times[index]
        if not time or _pane(shape, index, expressions) is not None:
            continue
        if not shares_instants(leaf.node, leaf.own_name(time)):
            reasons[index] = f"{time} is compared to the millisecond, so rows of a pane differ"
    return reasons


def _pane(shape: AggregationJoin, index: int, expressions: list[Expr]) -> Hopping | None:
    """The longest pane whose rows no window and no condition of the query tells apart by time."""
    time = shape.times[index]
    if not time or any(time in expr.columns() for expr in expressions):
        return None
    if shape.trailing is not None and index == shape.anchor:
        return None
    windows = list(shape.windows) if index == shape.anchor else []
    for edge in shape.graph.times:
        if index not in (edge.left, edge.right):
            continue
        if not isinstance(edge.time, SameWindow) or not edge.bounds:
            return None
        windows.append(edge.time.window)
    if not windows:
        return DAY
    length, offset = common_pane(tuple(windows))
    return Hopping(length, length, offset)


def shares_instants(node: Node, column: str) -> bool:
    """Whether a time column takes few values by its making, so that it may tell groups apart.

    So do the arrival times of a processing-time stream, one per micro-batch, and the last instants
    of windows.
    """
    match node:
        case Source():
            return node.processing and node.time == column
        case Filter():
            return shares_instants(node.input, column)
        case Project():
            expr = definitions(node.columns)[column]
            if isinstance(expr, Call) and expr.function == "window_time":
                return True
            return isinstance(expr, Column) and shares_instants(node.input, expr.name)
        case Union():
            place = node.schema.names.index(column)
            return all(shares_instants(part, part.schema.names[place]) for part in node.parts)
        case _:
            return False
