"""GROUP BY, aggregates and HAVING: an Aggregate, then a projection over its output."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from sqlglot import exp

from headrace.plan.expressions import AggregateCall, Column, Expr, Named
from headrace.plan.nodes import (
    WINDOW_COLUMN,
    WINDOW_ID_COLUMN,
    Aggregate,
    InputWindow,
    Join,
    Node,
    Project,
    Table,
)
from headrace.plan.times import event_times, input_times
from headrace.plan.types import STRING, TIMESTAMP, WINDOW, DataType
from headrace.plan.windows import (
    Current,
    Hopping,
    InheritedWindow,
    InputWindowKind,
    Landmark,
    Session,
    Trailing,
    Window,
)
from headrace.sql.expressions import ExpressionBinder, Origins
from headrace.sql.names import plan_name, unique
from headrace.sql.refusals import refuse
from headrace.sql.scope import Relation, Visible
from headrace.sql.windows import WindowCall


@dataclass(frozen=True)
class GroupOutput(Expr):
    """A column that the aggregate itself adds: ``window`` or ``window_id``."""

    name: str
    data_type: DataType

    @property
    def type(self) -> DataType:
        return self.data_type


@dataclass
class GroupByClause:
    """What a GROUP BY says, and the aggregates that the other clauses ask for."""

    relation: Relation
    keys: tuple[Named, ...]
    source: Expr
    time: Column
    windows: tuple[Window, ...]
    origins: Origins
    also: tuple[InputWindow, ...] = ()
    aggregates: list[Named] = field(default_factory=list)

    @property
    def overlay(self) -> tuple[Visible, ...]:
        """Names that the aggregate's output adds; they win over columns of its input."""
        first = self.windows[0]
        if isinstance(first, Landmark):
            return ()
        window = GroupOutput(WINDOW_COLUMN, WINDOW)
        names = [Visible(WINDOW_COLUMN, None, window)]
        if isinstance(first, Session):
            names.append(Visible("session_window", None, window))
        if len(self.windows) > 1:
            names.append(Visible(WINDOW_ID_COLUMN, None, GroupOutput(WINDOW_ID_COLUMN, STRING)))
        return tuple(names)

    def output(self, expr: Expr) -> Expr:
        """The expression over the aggregate's output; aggregates in it are noted."""
        for key in self.keys:
            if key.expr == expr:
                return Column(key.name, expr.type)
        if expr == self.source and not isinstance(self.windows[0], Landmark):
            return Column(WINDOW_COLUMN, WINDOW)
        match expr:
            case GroupOutput(name=name):
                return Column(name, expr.type)
            case AggregateCall():
                return Column(self._aggregate(expr), expr.type)
            case Column(name=name):
                refuse("MISSING_FROM_GROUP_BY", self.origins.of(expr), column=name)
            case WindowCall():
                refuse("SEVERAL_WINDOWS", self.origins.of(expr), count="another window than this")
            case _:
                return expr.with_children(tuple(self.output(child) for child in expr.children))

    @property
    def no_window(self) -> tuple[str, str]:
        """Why there is no column ``window``, where there is none."""
        return "a landmark reaches over everything so far", "leave it out"

    def _aggregate(self, call: AggregateCall) -> str:
        """The output column of this aggregate; the same one twice is computed once."""
        for named in self.aggregates:
            if named.expr == call:
                return named.name
        taken = {named.name for named in (*self.keys, *self.aggregates)}
        name = unique(plan_name(call), taken | {WINDOW_COLUMN, WINDOW_ID_COLUMN})
        self.aggregates.append(Named(name, call))
        return name

    def node(self) -> Aggregate:
        return Aggregate(
            self.relation.node,
            self.keys,
            self.time,
            self.windows,
            tuple(self.aggregates),
            also=self.also,
        )


def bind_grouping(
    relation: Relation,
    items: list[tuple[exp.Expr, Expr]],
    binder: ExpressionBinder,
    group: exp.Expr,
) -> GroupByClause:
    """Sort the bound items of a GROUP BY into keys and the one window."""
    times = event_times(relation.node)
    calls = [(node, expr) for node, expr in items if isinstance(expr, WindowCall)]
    given = [(node, expr) for node, expr in items if _is_given(expr, times)] if not calls else []
    if len(calls) > 1:
        return _windows_of_inputs(relation, items, calls, binder)
    if not calls and not given:
        without_window(relation, group)
    node, source = (calls or given)[0]
    for lower in relation.node.walk():
        if isinstance(lower, Aggregate) and isinstance(lower.windows[0], InputWindowKind):
            name = "landmark" if isinstance(lower.windows[0], Landmark) else "trailing"
            refuse("CHANGING_INPUT", node, window=name, what_it_is="an aggregate")
    taken = {WINDOW_COLUMN, WINDOW_ID_COLUMN}
    keys: list[Named] = []
    for _, expr in items:
        if expr != source and not any(key.expr == expr for key in keys):
            keys.append(Named(unique(plan_name(expr), taken), expr))
    if isinstance(source, WindowCall):
        check_time(relation, source, node)
        with_time, time = time_column(relation, source.time)
        return GroupByClause(with_time, tuple(keys), source, time, source.windows, binder.origins)
    assert isinstance(source, Column)
    if source.name in relation.nullable:
        refuse("NULLABLE_TIME", node, column=source.name)
    return GroupByClause(
        relation, tuple(keys), source, source, (InheritedWindow(),), binder.origins
    )


def _windows_of_inputs(
    relation: Relation,
    items: list[tuple[exp.Expr, Expr]],
    calls: list[tuple[exp.Expr, WindowCall]],
    binder: ExpressionBinder,
) -> GroupByClause:
    """A window for each stream of a join, all of them up to the watermark."""
    window_of: dict[str, tuple[Column, InputWindowKind]] = {}
    streams = input_times(relation.node)
    own = [_window_of_input(call) for _, call in calls]
    if streams is None or None in own:
        refuse("SEVERAL_WINDOWS", calls[1][0], count=len(calls))
    for (node, call), window in zip(calls, own, strict=True):
        assert window is not None
        owner = next((s for s, times in streams.items() if _name_of(call.time) in times), None)
        if owner is None or not isinstance(call.time, Column):
            refuse(
                "NOT_EVENT_TIME",
                node,
                column=str(call.time),
                reason="",
                advice=f"use {' or '.join(sorted(t for times in streams.values() for t in times))}",
            )
        if owner in window_of:
            refuse("SEVERAL_WINDOWS", node, count="a second window of the same stream")
        window_of[owner] = call.time, window
    for owner, times in streams.items():
        if owner not in window_of:
            refuse("INPUT_WITHOUT_WINDOW", calls[0][0], input=owner, time=sorted(times)[0])
    # The first that has a beginning is what the results show as their window.
    bounded = [part for part in window_of.values() if not isinstance(part[1], Landmark)]
    sources = [call for _, call in calls]
    keys: list[Named] = []
    for _, expr in items:
        if expr not in sources and not any(key.expr == expr for key in keys):
            keys.append(Named(unique(plan_name(expr), {WINDOW_COLUMN, WINDOW_ID_COLUMN}), expr))
    time, window = (bounded or list(window_of.values()))[0]
    if not bounded:
        # What each brings is joined with all of the others, and stays.
        landmark = next(call for call in sources if call.time == time)
        return GroupByClause(relation, tuple(keys), landmark, time, (window,), binder.origins)
    also = tuple(InputWindow(t, w) for t, w in window_of.values() if t != time)
    source = next(call for call in sources if call.time == time)
    return GroupByClause(relation, tuple(keys), source, time, (window,), binder.origins, also)


def _window_of_input(call: WindowCall) -> InputWindowKind | None:
    """The window that a call means beside those of other inputs; None where it means none."""
    if len(call.windows) > 1:
        return None
    (window,) = call.windows
    if isinstance(window, Hopping):
        return Current(window.length, window.offset) if window.tumbling else None
    return window if isinstance(window, Trailing | Landmark) else None


def _name_of(time: Expr) -> str:
    return time.name if isinstance(time, Column) else ""


def _is_given(expr: Expr, times: dict[str, int]) -> bool:
    return isinstance(expr, Column) and expr.type == WINDOW and expr.name in times


def time_column(relation: Relation, time: Expr) -> tuple[Relation, Column]:
    """The time as a column; ``window_time(window)`` is computed below where it is needed."""
    if isinstance(time, Column):
        return relation, time
    window = time.children[0]
    assert isinstance(window, Column)
    schema = relation.node.schema
    name = unique(f"{window.name}_time", set(schema.names))
    columns = tuple(Named(f.name, Column(f.name, f.type)) for f in schema)
    node = Project(relation.node, (*columns, Named(name, time)))
    changed = Relation(node, relation.columns, relation.alias, relation.nullable)
    return changed, Column(name, TIMESTAMP)


def check_time(relation: Relation, call: WindowCall, node: exp.Expr) -> None:
    """Refuse a window over a column that is no event time at this place."""
    column = call.time if isinstance(call.time, Column) else call.time.children[0]
    assert isinstance(column, Column)
    times = event_times(relation.node)
    if column.name in relation.nullable:
        refuse("NULLABLE_TIME", node, column=column.name)
    if column.name in times:
        return
    if not times:
        refuse(
            "NO_EVENT_TIME", node, what_it_is=_without_time(relation.node), advice=_advice(relation)
        )
    refuse(
        "NOT_EVENT_TIME",
        node,
        column=column.name,
        reason="",
        advice=f"use {' or '.join(sorted(times))}",
    )


def _without_time(node: Node) -> str:
    match _untimed(node):
        case Join():
            return "a join without a bound on time"
        case Aggregate():
            return "a landmark"
        case _:
            return "this query"


def _advice(relation: Relation) -> str:
    if isinstance(_untimed(relation.node), Join):
        return "give the join a time condition, such as a BETWEEN on times with both bounds"
    return "select the stream's time column, or window, in the derived table"


def _untimed(node: Node) -> Node | None:
    """The join of streams, or the landmark, that hands on no event time.

    None where every one does: then a derived table leaves it out.
    """
    if isinstance(node, Join | Aggregate):
        if event_times(node):
            return None
        # A join with a table hands on what the stream has.
        if isinstance(node, Aggregate) or (node.left.streams() and node.right.streams()):
            return node
    return next((untimed for untimed in map(_untimed, node.inputs) if untimed is not None), None)


def without_window(relation: Relation, node: exp.Expr | None) -> NoReturn:
    """Refuse an aggregate over a stream that has no window."""
    if not relation.node.streams():
        tables = sorted({n.table for n in relation.node.walk() if isinstance(n, Table)})
        refuse("AGGREGATE_OF_TABLE", node, tables=", ".join(tables))
    times = [
        name for name in event_times(relation.node) if relation.node.schema[name].type == TIMESTAMP
    ]
    refuse("GROUP_BY_WITHOUT_WINDOW", node, time=times[0] if times else "ts")
