"""Event time through a plan: which columns carry it, and how far behind the watermark they lag.

The watermark of an operator is the least of its streams' watermarks, ``W``. A row that a source
hands on has a time at or above ``W`` unless it is late. A join may complete a pair whose older
row lies further back; ``lag`` says how far: every row that an operator will still emit has a time
at or above ``W - lag``. An aggregate above closes its windows at ``W - lag``.

Rows that share a window of a set that does not overlap lie in the same cell of its *grid*, however
long the window is. A row that comes out of such a join is not older than the beginning of the cell
that holds ``W - lag``. So for windows that end where cells end, the reach of the join counts
nothing: asked for times on a grid, ``event_times`` leaves it out.

A session may be arbitrarily long, so no lag bounds the times that come out of a session join. There
the least time of all open sessions takes the place of the watermark where it is lower: the sessions
that ``held_back_by`` finds have clocks of their own.

Paper: Window Join Reordering, Section 2.2.
"""

from __future__ import annotations

from headrace.errors import PlanError
from headrace.plan.expressions import Call, Column, Expr
from headrace.plan.join_graph import JoinGraph, has_table, is_graph, join_graph
from headrace.plan.nodes import (
    WINDOW_COLUMN,
    Aggregate,
    Filter,
    IntervalBound,
    Join,
    JoinKind,
    Node,
    Project,
    SameSession,
    SameWindow,
    Sink,
    Source,
    Table,
    Union,
)
from headrace.plan.one_tree import looked_through
from headrace.plan.windows import (
    Hopping,
    InheritedWindow,
    Landmark,
    ends_on,
    grids_of,
    stays_in_cells,
)

#: Columns that carry event time, with their lag in milliseconds.
Times = dict[str, int]


def event_times(node: Node, grid: Hopping | None = None) -> Times:
    """The event-time columns of a node's output (window columns included) and their lags.

    On a ``grid`` a lag says that every row that is still to come is at or above the beginning of
    the cell that holds ``W - lag``.
    """
    by_grid = node.times_by_grid
    if grid not in by_grid:
        by_grid[grid] = _event_times(node, grid)
    return dict(by_grid[grid])


def _event_times(node: Node, grid: Hopping | None) -> Times:
    match node:
        case Source():
            return {node.time: 0}
        case Table():
            return {}
        case Filter() | Sink():
            return event_times(node.input, grid)
        case Project():
            below = event_times(node.input, grid)
            lags = {c.name: _lag_of(c.expr, below) for c in node.columns}
            return {name: lag for name, lag in lags.items() if lag is not None}
        case Aggregate():
            if isinstance(node.windows[0], Landmark):
                return {}
            return {WINDOW_COLUMN: aggregate_lag(node)}
        case Union():
            parts = [event_times(part, grid) for part in node.parts]
            by_position = [
                [times.get(name) for times, name in zip(parts, names, strict=True)]
                for names in zip(*(part.schema.names for part in node.parts), strict=True)
            ]
            return {
                name: max(lag for lag in lags if lag is not None)
                for name, lags in zip(node.schema.names, by_position, strict=True)
                if all(lag is not None for lag in lags)
            }
        case Join():
            flat = looked_through(node)
            return _join_times(node, grid) if flat is None else event_times(flat, grid)
        case _:
            raise PlanError(f"no event time is defined for {type(node).__name__}")


def aggregate_lag(node: Aggregate) -> int:
    """How far behind the watermark this aggregate closes its windows."""
    if node.also:
        # Each input's window ends at the watermark of all of them.
        return 0
    times = event_times(node.input)
    if node.time.name not in times:
        what = (
            "a window of the input"
            if isinstance(node.windows[0], InheritedWindow)
            else "an event time"
        )
        raise PlanError(
            f"{node.time.name} is not {what}, so its windows could never be closed",
            hint=f"use one of {', '.join(times)}" if times else None,
        )
    lag = times[node.time.name]
    for grid in _grids_below(node.input) if lag else ():
        if all(isinstance(window, Hopping) and ends_on(window, grid) for window in node.windows):
            lag = min(lag, event_times(node.input, grid)[node.time.name])
    return lag


def closes_on_grid(node: Aggregate) -> bool:
    """Whether its windows close earlier than the lag of its time would have them close."""
    if node.also or isinstance(node.windows[0], Landmark):
        return False
    return aggregate_lag(node) < event_times(node.input)[node.time.name]


def join_lag(node: Join) -> int:
    """How far behind the watermark rows still arrive at this join."""
    return _lag_between(node, *side_times(node))


def _lag_between(node: Join, left: Times, right: Times) -> int:
    if node.time is None:
        return max([0, *left.values(), *right.values()])
    times = node.time.left.name, node.time.right.name
    lags = [side[name] for side, name in zip((left, right), times, strict=True) if name in side]
    if len(lags) < len(times):
        # A time that only the tree itself may use: its rows are judged where they enter the tree.
        flat = looked_through(node)
        join = node if flat is None else flat.input
        assert isinstance(join, Join)
        lags.append(graph_lag(join_graph(join)))
    return max(lags)


def times_to_join_by(node: Node) -> frozenset[str]:
    """The time columns of a relation by which a further inner join may go.

    A tree of inner joins that are bounded by time is one operator, and what joins it becomes a
    part of it. So that join may go by the time of any input, whether or not the joins below hand it
    on: a bound on one side lets rows grow old in the tree, and an operator above it could not say
    when it has seen them all, but the tree itself judges each row where it comes in.
    """
    match node:
        case Filter():
            return times_to_join_by(node.input)
        case Project():
            below = dict.fromkeys(times_to_join_by(node.input), 0)
            return frozenset(c.name for c in node.columns if _lag_of(c.expr, below) is not None)
        case Join():
            return _times_to_join_by(node)
        case _:
            return frozenset(event_times(node))


def _times_to_join_by(node: Join) -> frozenset[str]:
    flat = looked_through(node)
    if flat is not None:
        return times_to_join_by(flat)
    own = frozenset(event_times(node))
    if has_table(node):
        for side, schema in ((node.left, node.left_schema), (node.right, node.right_schema)):
            if side.streams():
                below = times_to_join_by(side)
                names = zip(side.schema.names, schema.names, strict=True)
                own |= {outer for inner, outer in names if inner in below}
        return own
    inner = node.kind is JoinKind.INNER and not node.emits_window
    if inner and isinstance(node.time, IntervalBound | SameWindow):
        own |= {leaf.time for leaf in join_graph(node).leaves}
    return own


def goes_by_event_times(node: Join) -> bool:
    """Whether the times that a join of streams goes by are event times of what enters its tree."""
    if node.time is None:
        return True
    if not is_graph(node):
        left, right = side_times(node)
        return node.time.left.name in left and node.time.right.name in right
    flat = looked_through(node)
    if flat is not None:
        assert isinstance(flat.input, Join)
        return goes_by_event_times(flat.input)
    leaves = join_graph(node).leaves
    return all(leaf.own_name(leaf.time) in event_times(leaf.node) for leaf in leaves if leaf.time)


def untimed_inputs(node: Join) -> tuple[str, ...]:
    """The inputs of a join of streams that have no event time, so that their rows could never be
    forgotten."""
    if not is_graph(node):
        return ()
    flat = looked_through(node)
    if flat is not None:
        assert isinstance(flat.input, Join)
        return untimed_inputs(flat.input)
    return tuple(
        leaf.name
        for leaf in join_graph(node).leaves
        if not leaf.time and not event_times(leaf.node)
    )


def side_times(node: Join, grid: Hopping | None = None) -> tuple[Times, Times]:
    """Event times of both inputs, named as the join names them."""

    def rename(side: Node, alias: str | None) -> Times:
        prefix = "" if alias is None else f"{alias}."
        return {f"{prefix}{name}": lag for name, lag in event_times(side, grid).items()}

    return rename(node.left, node.left_alias), rename(node.right, node.right_alias)


def _join_times(node: Join, grid: Hopping | None) -> Times:
    """A pair comes out when its later row arrives; the earlier one may be a reach older.

    Rows that wait for the end of an outer join come out within the same bound. A session hands
    on times that its open sessions hold back. A state-based join may match rows of any age (within
    ``ttl``): its raw times have no usable watermark and are not handed on.
    """
    if isinstance(node.right, Table) or not node.right.streams():
        return side_times(node, grid)[0]
    if not node.left.streams():
        return side_times(node, grid)[1]
    # Both sides are asked once: asked again at each join, a chain of joins would take twice the
    # time with every further one.
    left, right = side_times(node)
    lag = _lag_between(node, left, right)
    times: Times = {}
    if isinstance(node.time, IntervalBound | SameWindow):
        times |= _graph_times(join_graph(node), grid)
        # Times that the join sets equal are as old as each other, such as the windows of two
        # aggregates: the later row brings nothing older than itself.
        for one, other in node.keys:
            if not isinstance(one, Column) or not isinstance(other, Column):
                continue
            if one.name in left and other.name in right:
                times[one.name] = times[other.name] = max(lag, left[one.name], right[other.name])
    if isinstance(node.time, SameSession):
        times[node.time.left.name] = times[node.time.right.name] = lag
    if node.emits_window:
        times[WINDOW_COLUMN] = lag
    return times


def graph_lag(graph: JoinGraph) -> int:
    """How far behind the watermark rows still arrive at the inputs of a graph of joins."""
    lags = [
        event_times(leaf.node).get(leaf.own_name(leaf.time), 0)
        for leaf in graph.leaves
        if leaf.time
    ]
    return max(lags, default=0)


def _graph_times(graph: JoinGraph, grid: Hopping | None) -> Times:
    """A result comes out when its last row arrives, at W - lag or later; each of its other times
    is at most a reach older. On a grid it is the reach of the nearest time in the same cell."""
    lag = graph_lag(graph)
    times: Times = {}
    for index, leaf in enumerate(graph.leaves):
        cell = _in_one_cell(graph, index, grid)
        reaches = [_nearest(graph, other, cell) for other in graph.everything - cell]
        bounded = [before for before in reaches if before is not None]
        if leaf.time and len(bounded) == len(reaches):
            times[leaf.time] = lag + max([0, *bounded])
    return times


def _nearest(graph: JoinGraph, start: int, inputs: set[int]) -> int | None:
    """How far before a row of an input the nearest of some others' partners may lie."""
    before = [graph.reaches[start][index].before for index in inputs]
    return min((b for b in before if b is not None), default=None)


def _in_one_cell(graph: JoinGraph, index: int, grid: Hopping | None) -> set[int]:
    """The inputs whose rows lie in the same cell of a grid as those of an input they come with."""
    cell = {index}
    windows = [
        ({edge.left, edge.right}, edge.time.window)
        for edge in graph.times
        if grid is not None and edge.bounds and isinstance(edge.time, SameWindow)
    ]
    for _ in graph.leaves:
        for ends, window in windows:
            if grid is not None and cell & ends and stays_in_cells(window, grid):
                cell |= ends
    return cell


def _grids_below(node: Node) -> set[Hopping]:
    """The grids of all joins on windows that do not overlap."""
    times = (time for join in node.walk() if isinstance(join, Join) for time in join.times)
    windows = {time.window for time in times if isinstance(time, SameWindow)}
    return {grid for window in windows if window.overlap == 1 for grid in grids_of(window)}


def input_times(node: Node) -> dict[str, frozenset[str]] | None:
    """The event times of the streams of an inner join without a condition on time, by the name of
    the stream's place in the join; None where the node is no such join."""
    while isinstance(node, Filter):
        node = node.input
    if not isinstance(node, Join) or not is_graph(node, tables=True):
        return None
    graph = join_graph(node, tables=True)
    if node.kind is not JoinKind.INNER or graph.timed:
        return None
    times: dict[str, frozenset[str]] = {}
    for leaf in graph.leaves:
        if leaf.node.streams():
            own = event_times(leaf.node)
            times[leaf.name] = frozenset(n for n in leaf.schema.names if leaf.own_name(n) in own)
    return times


def held_back_by(node: Node, column: str) -> frozenset[Join]:
    """The session joins whose open sessions hold back a time column of a node's output."""
    match node:
        case Filter() | Sink():
            return held_back_by(node.input, column)
        case Project():
            expr = next(c.expr for c in node.columns if c.name == column)
            return frozenset().union(*(held_back_by(node.input, name) for name in expr.columns()))
        case Aggregate():
            return held_back_by(node.input, node.time.name)
        case Union():
            place = node.schema.names.index(column)
            parts = (held_back_by(part, part.schema.names[place]) for part in node.parts)
            return frozenset().union(*parts)
        case Join():
            return _held_back_by_join(node, column)
        case _:
            return frozenset()


def _held_back_by_join(node: Join, column: str) -> frozenset[Join]:
    joins: frozenset[Join] = frozenset()
    # Whatever the column, a pair comes out no earlier than both of its rows.
    for side, schema, time in (
        (node.left, node.left_schema, node.time and node.time.left.name),
        (node.right, node.right_schema, node.time and node.time.right.name),
    ):
        for name in {column, time} & set(schema.names):
            joins |= held_back_by(side, side.schema.names[schema.names.index(name)])
    is_window = node.emits_window and column == WINDOW_COLUMN
    if isinstance(node.time, SameSession) and not is_window:
        joins |= {node}
    return joins


def _lag_of(expr: Expr, below: Times) -> int | None:
    match expr:
        case Column(name=name):
            return below.get(name)
        case Call(function="window_time", arguments=(Column(name=name),)):
            return below.get(name)
        case _:
            return None
