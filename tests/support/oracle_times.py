"""How far times lag behind the watermark, for the oracle: from docs/semantics.md alone.

"Event time after a join" says it: a pair comes out when its later row arrives, so its older row
lies back by up to the reach of the conditions between them. For windows that end where windows of
the joins do, inputs that are held together in such windows count as one.

None of this is taken from the planner, which says the same in its own way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

from headrace.plan.expressions import Call, Column
from headrace.plan.nodes import (
    Aggregate,
    Filter,
    IntervalBound,
    Join,
    JoinKind,
    JoinTime,
    Node,
    Project,
    SameSession,
    SameWindow,
    Sink,
    Source,
    Union,
)
from headrace.plan.windows import Hopping, Landmark

Lags = dict[str, int]


@dataclass(frozen=True)
class Input:
    """What a tree of joins reads: its plan, and its columns as the tree names them."""

    node: Node
    names: tuple[str, ...]

    def own(self, name: str) -> str:
        return self.node.schema.names[self.names.index(name)]


@dataclass(frozen=True)
class Tree:
    """The inputs of a tree of joins that is one operator, and its conditions on time.

    ``names`` are the columns of its topmost join as the tree names them: what a derived table in
    between calls otherwise is the same column, and what it computes is none.
    """

    inputs: tuple[Input, ...]
    times: tuple[JoinTime, ...]
    names: Mapping[str, str]

    @classmethod
    def of(cls, join: Join) -> Tree:
        inputs: list[Input] = []
        times: list[JoinTime] = []
        names: dict[str, str] = {}
        for child, schema, mark in (
            (join.left, join.left_schema, "<"),
            (join.right, join.right_schema, ">"),
        ):
            inner = joined_below(join, child)
            if inner is None:
                inputs.append(Input(child, schema.names))
                names |= {name: name for name in schema.names}
                continue
            # A derived table may use an alias that is used around it as well.
            tree = cls.of(inner).marked(mark if below_filters(child) is not inner else "")
            inputs += tree.inputs
            times += tree.times
            for outer, own in zip(schema.names, child.schema.names, strict=True):
                column = handed_on(child, own, inner)
                if column in tree.names:
                    names[outer] = tree.names[column]
        for time in join.times:
            left, right = (replace(c, name=names[c.name]) for c in (time.left, time.right))
            times.append(replace(time, left=left, right=right))
        return cls(tuple(inputs), tuple(times), names)

    def marked(self, mark: str) -> Tree:
        """The same with names of its own."""

        def own(time: JoinTime) -> JoinTime:
            left, right = (replace(c, name=mark + c.name) for c in (time.left, time.right))
            return replace(time, left=left, right=right)

        return Tree(
            tuple(Input(one.node, tuple(mark + name for name in one.names)) for one in self.inputs),
            tuple(map(own, self.times)),
            {name: mark + inner for name, inner in self.names.items()},
        )

    def time_of(self, index: int) -> str | None:
        """The column of an input by which the conditions go."""
        named = (c.name for time in self.times for c in (time.left, time.right))
        return next((name for name in named if name in self.inputs[index].names), None)

    def ends(self, time: JoinTime) -> tuple[int, int] | None:
        """The inputs that a condition is between, where it is about the times they go by."""
        found = []
        for column in (time.left, time.right):
            index = next(i for i, one in enumerate(self.inputs) if column.name in one.names)
            if self.time_of(index) != column.name:
                return None
            found.append(index)
        return found[0], found[1]

    @property
    def lag(self) -> int:
        """The greatest lag with which rows come in."""
        lags = [0]
        for index, one in enumerate(self.inputs):
            name = self.time_of(index)
            if name is not None:
                lags.append(lags_of(one.node).get(one.own(name), 0))
        return max(lags)

    def distances(self) -> list[list[float]]:
        """By how much a row of the second input may be older than one of the first."""
        size = len(self.inputs)
        far = [[0.0 if x == y else inf for y in range(size)] for x in range(size)]
        for time in self.times:
            ends = self.ends(time)
            if ends is None:
                continue
            left, right = ends
            match time:
                case SameWindow(window=window):
                    to_right = to_left = float(window.length - 1)
                case IntervalBound(lower=lower, upper=upper):
                    to_right = inf if lower is None else -float(lower)
                    to_left = inf if upper is None else float(upper)
                case _:
                    continue
            far[left][right] = min(far[left][right], to_right)
            far[right][left] = min(far[right][left], to_left)
        for middle in range(size):
            for x in range(size):
                for y in range(size):
                    far[x][y] = min(far[x][y], far[x][middle] + far[middle][y])
        return far

    def held_together(self, index: int, borders: Hopping) -> set[int]:
        """The inputs whose rows are in one stretch between borders with those of an input."""
        together = {index}
        while True:
            more = set(together)
            for time in self.times:
                ends = self.ends(time)
                if ends is None or not isinstance(time, SameWindow):
                    continue
                if set(ends) & together and no_border_inside(time.window, borders):
                    more |= set(ends)
            if more == together:
                return together
            together = more

    def age(self, index: int, together: set[int]) -> int | None:
        """How far the rows of an input lag, if those held together with it count as one."""
        far = self.distances()
        reach = [
            0.0 if x in together else min(far[x][y] for y in together)
            for x in range(len(self.inputs))
        ]
        greatest = max(0.0, *reach)
        return None if greatest == inf else self.lag + int(greatest)


def borders_of(window: Hopping) -> Iterator[Hopping]:
    """Where the windows of a set begin, and where they end, if none overlaps another."""
    if window.slide >= window.length:
        yield Hopping(window.slide, window.slide, window.offset)
        yield Hopping(window.slide, window.slide, window.offset + window.length)


def no_border_inside(window: Hopping, borders: Hopping) -> bool:
    """Tried border by border over a stretch in which everything comes around again."""
    if window.slide < window.length or borders.slide % window.slide:
        return False
    starts = range(window.offset, window.offset + borders.slide, window.slide)
    return not any(
        (place - borders.offset) % borders.slide == 0
        for start in starts
        for place in _inner(start, start + window.length, borders)
    )


def _inner(start: int, end: int, borders: Hopping) -> range:
    """The last border before the end, if it lies after the start."""
    last = (end - 1) - (end - 1 - borders.offset) % borders.slide
    return range(last, last + 1) if last > start else range(0)


def ends_at_borders(window: Hopping, borders: Hopping) -> bool:
    return all(
        (window.offset + number * window.slide + window.length - borders.offset) % borders.slide
        == 0
        for number in range(borders.slide // window.slide + 2)
    )


def closing_lag(node: Aggregate) -> int:
    """How far behind the watermark the windows of an aggregate close."""
    if isinstance(node.windows[0], Landmark) or node.also:
        return 0
    lags = [lags_of(node.input)[node.time.name]]
    if all(isinstance(window, Hopping) for window in node.windows):
        for borders in _borders_below(node.input):
            if all(ends_at_borders(w, borders) for w in node.windows if isinstance(w, Hopping)):
                lag = lags_of(node.input, borders).get(node.time.name)
                lags += [] if lag is None else [lag]
    return min(lags)


def _borders_below(node: Node) -> set[Hopping]:
    joins = [n for n in node.walk() if isinstance(n, Join)]
    windows = [t.window for j in joins for t in j.times if isinstance(t, SameWindow)]
    return {borders for window in windows for borders in borders_of(window)}


def lags_of(node: Node, borders: Hopping | None = None) -> Lags:
    """The columns of a node that carry event time, with their lags; ``borders`` asks for those that
    count for windows that end there."""
    match node:
        case Source():
            return {node.time: 0}
        case Filter() | Sink():
            return lags_of(node.input, borders)
        case Project():
            below = lags_of(node.input, borders)
            found: Lags = {}
            for column in node.columns:
                expr = column.expr
                if isinstance(expr, Call) and expr.function == "window_time":
                    expr = expr.arguments[0]
                if isinstance(expr, Column) and expr.name in below:
                    found[column.name] = below[expr.name]
            return found
        case Union():
            parts = [
                [lags_of(part, borders).get(name) for name in part.schema.names]
                for part in node.parts
            ]
            columns = zip(node.schema.names, zip(*parts, strict=True), strict=True)
            return {n: max(lags) for n, lags in columns if None not in lags}  # type: ignore[type-var]
        case Aggregate():
            landmark = isinstance(node.windows[0], Landmark)
            return {} if landmark else {"window": closing_lag(node)}
        case Join():
            return _join_lags(node, borders)
        case _:
            return {}


def _join_lags(node: Join, borders: Hopping | None) -> Lags:
    for side, other, schema in (
        (node.left, node.right, node.left_schema),
        (node.right, node.left, node.right_schema),
    ):
        if not other.streams():
            below = lags_of(side, borders)
            names = zip(schema.names, side.schema.names, strict=True)
            return {name: below[own] for name, own in names if own in below}
    found: Lags = {}
    if isinstance(node.time, IntervalBound | SameWindow):
        tree = Tree.of(node)
        for index in range(len(tree.inputs)):
            name = tree.time_of(index)
            together = {index} if borders is None else tree.held_together(index, borders)
            age = tree.age(index, together)
            if name is not None and age is not None:
                found |= {outer: age for outer, own in tree.names.items() if own == name}
        left, right = side_lags(node)
        for one, other_key in node.keys:
            names = [key.name if isinstance(key, Column) else "" for key in (one, other_key)]
            if names[0] in left and names[1] in right:
                greatest = max(join_lag(node), left[names[0]], right[names[1]])
                found[names[0]] = found[names[1]] = greatest
    elif isinstance(node.time, SameSession):
        found[node.time.left.name] = found[node.time.right.name] = join_lag(node)
    if node.emits_window:
        found["window"] = join_lag(node)
    return found


def side_lags(node: Join) -> tuple[Lags, Lags]:
    """The lags of both inputs by the names that the join gives them."""
    sides = []
    for side, schema in ((node.left, node.left_schema), (node.right, node.right_schema)):
        below = lags_of(side)
        names = zip(schema.names, side.schema.names, strict=True)
        sides.append({name: below[own] for name, own in names if own in below})
    return sides[0], sides[1]


def join_lag(node: Join) -> int:
    """How far behind the watermark rows still come to a join."""
    left, right = side_lags(node)
    if node.time is None:
        return max([0, *left.values(), *right.values()])
    if isinstance(node.time, SameWindow | IntervalBound) and len(Tree.of(node).inputs) > 2:
        # Its inputs' rows come into the tree, and may grow as old there as they like.
        lags = [left.get(node.time.left.name), right.get(node.time.right.name), Tree.of(node).lag]
        return max(lag for lag in lags if lag is not None)
    return max(left[node.time.left.name], right[node.time.right.name])


def below_filters(node: Node) -> Node:
    while isinstance(node, Filter):
        node = node.input
    return node


def joined_below(node: Join, child: Node) -> Join | None:
    """The join below an input that is part of the same operator: derived tables and joins with
    tables, which go row by row, do not part the two.

    But a table does that joins several inputs by its columns, or by something computed, and whose
    own columns the join above reads.
    """
    sides = (node.left, node.left_schema), (node.right, node.right_schema)
    schema = next(schema for side, schema in sides if side is child)
    own = dict(zip(schema.names, child.schema.names, strict=True))
    read = {own[name] for name in _read_by(node) if name in own}
    while True:
        if isinstance(child, Project):
            by_name = {column.name: column.expr for column in child.columns}
            read = {name for one in read for name in by_name[one].columns()}
            child = child.input
        elif isinstance(child, Filter):
            child = child.input
        elif isinstance(child, Join) and not (child.left.streams() and child.right.streams()):
            rows, columns = stream_side(child)
            names = dict(zip(columns, rows.schema.names, strict=True))
            if read - names.keys() and _ties_several(child):
                return None
            read = {names[name] for name in read if name in names}
            child = rows
        else:
            return child if isinstance(child, Join) and same_operator(node, child) else None


def stream_side(node: Join) -> tuple[Node, tuple[str, ...]]:
    """The input of a join with a table that is no table, and its columns by the join's names."""
    if node.left.streams():
        return node.left, node.left_schema.names
    return node.right, node.right_schema.names


def _read_by(node: Join) -> set[str]:
    exprs = [key for pair in node.keys for key in pair]
    exprs += [column for time in node.times for column in (time.left, time.right)]
    exprs += [] if node.residual is None else [node.residual]
    return {name for expr in exprs for name in expr.columns()}


def _ties_several(node: Join) -> bool:
    """Whether a join with a table goes by something else than plain columns of one input."""
    rows, columns = stream_side(node)
    keys = [key for pair in node.keys for key in pair if key.columns() <= set(columns)]
    if node.residual is not None or not all(isinstance(key, Column) for key in keys):
        return True
    below = rows
    while isinstance(below, Filter | Project):
        below = below.input
    if not isinstance(below, Join):
        return False
    tree, names = Tree.of(below), dict(zip(columns, rows.schema.names, strict=True))
    handed = [tree.names.get(handed_on(rows, names[n], below)) for k in keys for n in k.columns()]
    owners = {i for i, one in enumerate(tree.inputs) for name in handed if name in one.names}
    return None in handed or len(owners) != 1


def handed_on(node: Node, name: str, join: Join) -> str:
    """The column of a join below that a column is, or whose instant it is; else an empty name."""
    while node is not join:
        if isinstance(node, Project):
            expr = next(c.expr for c in node.columns if c.name == name)
            if isinstance(expr, Call) and expr.function == "window_time":
                expr = expr.arguments[0]
            if not isinstance(expr, Column):
                return ""
            name = expr.name
        if isinstance(node, Join):
            rows, columns = stream_side(node)
            if name not in columns:
                return ""
            name, node = rows.schema.names[columns.index(name)], rows
        else:
            (node,) = node.inputs
    return name


def same_operator(node: Join, child: Node) -> bool:
    """Whether a join below is part of the tree of inner joins that ``node`` belongs to."""
    return (
        isinstance(child, Join)
        and isinstance(node.time, SameWindow | IntervalBound)
        and isinstance(child.time, SameWindow | IntervalBound)
        and all(j.kind is JoinKind.INNER and not j.emits_window for j in (node, child))
        and bool(child.left.streams() and child.right.streams())
    )


def open_sessions_of(node: Node, column: str) -> frozenset[Join]:
    """The session joins whose open sessions hold a time column back: whatever comes out of them
    may be as old as the oldest of their sessions."""
    match node:
        case Filter() | Sink():
            return open_sessions_of(node.input, column)
        case Project():
            expr = next(c.expr for c in node.columns if c.name == column)
            below = (open_sessions_of(node.input, name) for name in expr.columns())
            return frozenset().union(*below)
        case Aggregate():
            return open_sessions_of(node.input, node.time.name)
        case Union():
            place = node.schema.names.index(column)
            parts = (open_sessions_of(p, p.schema.names[place]) for p in node.parts)
            return frozenset().union(*parts)
        case Join():
            found: frozenset[Join] = frozenset()
            times = {c.name for t in ((node.time,) if node.time else ()) for c in (t.left, t.right)}
            for side, schema in ((node.left, node.left_schema), (node.right, node.right_schema)):
                for name in ({column} | times) & set(schema.names):
                    own = side.schema.names[schema.names.index(name)]
                    found |= open_sessions_of(side, own)
            its_window = node.emits_window and column == "window"
            if isinstance(node.time, SameSession) and not its_window:
                found |= {node}
            return found
        case _:
            return frozenset()
