"""Plans with one thing changed that matters: near misses, which merging must tell apart.

A mutant may still mean the same by accident (``i < 1`` and ``i <= 0``), so what counts is that one
that is called equal gives equal results. Start at :func:`mutants`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headrace.errors import HeadraceError
from headrace.plan.durations import SECOND
from headrace.plan.expressions import AggregateCall, Call, Cast, Column, Expr, Literal, Named
from headrace.plan.nodes import (
    Aggregate,
    Filter,
    IntervalBound,
    Join,
    JoinKind,
    JoinTime,
    Node,
    Project,
    SameWindow,
    Union,
)
from headrace.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, TINYINT, Schema
from headrace.plan.windows import Hopping, Session, Window
from tests.merge.generate import arithmetic, truth, whole, wide

_CHANGED = {
    "<": ("<=", ">"),
    "<=": ("<", ">="),
    ">": (">=", "<"),
    ">=": (">", "<="),
    "=": ("<=>", "!="),
    "!=": ("=",),
    "<=>": ("=",),
    "and": ("or",),
    "or": ("and",),
    "+": ("-", "*"),
    "-": ("+",),
    "*": ("+",),
    "isnull": ("isnotnull",),
    "isnotnull": ("isnull",),
    "upper": ("lower",),
    "lower": ("upper",),
}


def mutants(plan: Node) -> Iterator[Node]:
    """Plans that differ from this one in one place."""
    for changed in _of_node(plan):
        if changed is not None:
            yield changed
    for index, below in enumerate(plan.inputs):
        for changed in mutants(below):
            inputs = (*plan.inputs[:index], changed, *plan.inputs[index + 1 :])
            made = _tried(plan, inputs)
            if made is not None:
                yield made


def _tried(plan: Node, inputs: tuple[Node, ...]) -> Node | None:
    """The node over other inputs; none where a column that it needs is gone."""
    try:
        made = plan.with_inputs(inputs)
        _ = made.schema
    except HeadraceError:
        return None
    return made


def _of_node(node: Node) -> Iterator[Node | None]:
    match node:
        case Filter(input=below, predicate=predicate):
            yield below
            yield Filter(below, truth("not", predicate))
            for changed in of_expression(predicate, below.schema):
                yield Filter(below, changed)
            if isinstance(below, Union):
                yield from _in_one_branch(below, predicate)
        case Project():
            yield from _of_columns(node)
        case Union(parts=parts):
            yield parts[0]
            yield Union((*parts, parts[0]))
            yield from _with_exchanged_columns(node)
        case Aggregate():
            yield from _of_aggregate(node)
        case Join():
            yield from _of_join(node)


def _in_one_branch(union: Union, predicate: Expr) -> Iterator[Node]:
    for chosen in range(len(union.parts)):
        names = {
            ours: Column(theirs.name, theirs.type)
            for ours, theirs in zip(union.schema.names, union.parts[chosen].schema, strict=True)
        }
        lowered = predicate.transform(
            lambda e, names=names: names[e.name] if isinstance(e, Column) else e  # type: ignore[misc]
        )
        parts = list(union.parts)
        parts[chosen] = Filter(parts[chosen], lowered)
        yield Union(tuple(parts))


def _of_columns(node: Project) -> Iterator[Node]:
    for index, column in enumerate(node.columns):

        def put(expr: Expr, index: int = index, name: str = column.name) -> Project:
            columns = list(node.columns)
            columns[index] = Named(name, expr)
            return Project(node.input, tuple(columns))

        for changed in of_expression(column.expr, node.input.schema):
            yield put(changed)
        if column.expr.type.is_integer:
            yield put(Cast(column.expr, BIGINT if column.expr.type != BIGINT else DOUBLE))
        columns = list(node.columns)
        columns[index] = Named(f"{column.name}_", column.expr)
        yield Project(node.input, tuple(columns))


def _with_exchanged_columns(node: Union) -> Iterator[Node]:
    """Two columns of one type change places in one part."""
    part = node.parts[-1]
    fields = part.schema.fields
    for index, field in enumerate(fields):
        for other in range(index + 1, len(fields)):
            if fields[other].type == field.type:
                order = list(range(len(fields)))
                order[index], order[other] = other, index
                columns = tuple(
                    Named(fields[n].name, Column(fields[n].name, fields[n].type)) for n in order
                )
                yield Union((*node.parts[:-1], Project(part, columns)))


# --- expressions ---------------------------------------------------------------------------------


def of_expression(expr: Expr, schema: Schema) -> Iterator[Expr]:
    """The expression with one part changed, the type of the whole kept."""
    for changed in _here(expr, schema):
        if changed.type == expr.type:
            yield changed
    for index, child in enumerate(expr.children):
        for changed in of_expression(child, schema):
            children = (*expr.children[:index], changed, *expr.children[index + 1 :])
            yield expr.with_children(children)


def _here(expr: Expr, schema: Schema) -> Iterator[Expr]:
    match expr:
        case Column():
            for field in schema:
                if field.type == expr.type and field.name != expr.name:
                    yield Column(field.name, field.type)
            if expr.type.is_integer:
                yield arithmetic("*", expr, Literal(0, expr.type))
                yield arithmetic("+", expr, Literal(1, expr.type))
                yield arithmetic("-", expr, expr)
                halved = Cast(Call("div", (wide(expr), whole(2)), BIGINT), expr.type)
                yield arithmetic("*", halved, Literal(2, expr.type))
                yield Call("coalesce", (expr, Literal(0, expr.type)), expr.type)
                yield Cast(Cast(expr, TINYINT, safe=True), expr.type)
        case Literal(value=bool(value)):
            yield Literal(not value, BOOLEAN)
        case Literal(value=int(value)):
            yield Literal(value + 1, expr.type)
            yield Literal(value - 1, expr.type)
            yield Literal(None, expr.type)
        case Literal(value=float(value)):
            yield Literal(value + 0.5, DOUBLE)
            yield Literal(-value, DOUBLE)
        case Literal(value=str(value)) if expr.type == STRING:
            yield Literal(value + "b", STRING)
            yield Literal(value + "%", STRING)
        case Call(function=function, arguments=arguments):
            for other in _CHANGED.get(function, ()):
                yield Call(other, arguments, expr.type)
            if function == "not":
                yield arguments[0]
            if function in ("and", "or"):
                yield arguments[0]
                yield arguments[1]
            if function == "in":
                yield truth("in", *arguments, Literal(None, arguments[0].type))
                if len(arguments) > 2:
                    yield truth("in", *arguments[:-1])
            if function in ("+", "-") and expr.type == BIGINT:
                yield Call("div", arguments, BIGINT)
            if function in ("-", "div", "||"):
                yield Call(function, tuple(reversed(arguments)), expr.type)
        case Cast(argument=argument):
            if argument.type in (INT, TINYINT) and expr.type == BIGINT:
                yield Cast(Cast(argument, TINYINT, safe=True), BIGINT)


# --- windows and joins ---------------------------------------------------------------------------


def _of_aggregate(node: Aggregate) -> Iterator[Node]:
    for index, window in enumerate(node.windows):
        for other in _of_window(window):
            if other not in node.windows:
                windows = (*node.windows[:index], other, *node.windows[index + 1 :])
                yield replace(node, windows=windows)
    if len(node.windows) > 1:
        yield replace(node, windows=node.windows[:1])
    for index, key in enumerate(node.keys):
        yield replace(node, keys=(*node.keys[:index], *node.keys[index + 1 :]))
        for changed in of_expression(key.expr, node.input.schema):
            keys = (*node.keys[:index], Named(key.name, changed), *node.keys[index + 1 :])
            yield replace(node, keys=keys)
    for index, named in enumerate(node.aggregates):
        assert isinstance(named.expr, AggregateCall)
        for call in _of_call(named.expr, node.input.schema):
            calls = (
                *node.aggregates[:index],
                Named(named.name, call),
                *node.aggregates[index + 1 :],
            )
            yield replace(node, aggregates=calls)


def _of_window(window: Window) -> Iterator[Window]:
    match window:
        case Hopping(length=length, slide=slide, offset=offset):
            yield Hopping(length + SECOND, slide, offset)
            yield Hopping(length, slide + SECOND, offset)
            yield Hopping(length, slide, offset + SECOND)
        case Session(gap=gap):
            yield Session(gap + SECOND)


_OTHER_CALL = {"min": "max", "max": "min", "avg": "stddev", "count": "sum", "sum": "count"}


def _of_call(call: AggregateCall, schema: Schema) -> Iterator[AggregateCall]:
    if call.arguments:
        other = _OTHER_CALL.get(call.function)
        if other is not None:
            yield replace(call, function=other)
        if call.function in ("count", "sum", "avg"):
            yield replace(call, distinct=not call.distinct)
        if call.function == "count":
            yield replace(call, arguments=(), distinct=False)
    if call.filter is not None:
        yield replace(call, filter=None)
        for changed in of_expression(call.filter, schema):
            yield replace(call, filter=changed)
    for index, argument in enumerate(call.arguments):
        for changed in of_expression(argument, schema):
            arguments = (*call.arguments[:index], changed, *call.arguments[index + 1 :])
            yield replace(call, arguments=arguments)


def _of_join(node: Join) -> Iterator[Node]:
    for kind in JoinKind:
        if kind is not node.kind:
            yield replace(node, kind=kind)
    for index, (left, right) in enumerate(node.keys):
        yield replace(node, keys=(*node.keys[:index], *node.keys[index + 1 :]))
        for changed in of_expression(right, node.right_schema):
            yield replace(node, keys=(*node.keys[:index], (left, changed), *node.keys[index + 1 :]))
    if node.residual is not None:
        yield replace(node, residual=None)
        for changed in of_expression(node.residual, node.schema):
            yield replace(node, residual=changed)
    if node.time is not None:
        for time in _of_time(node.time):
            yield replace(node, time=time)
        yield _turned(node)


def _of_time(time: JoinTime) -> Iterator[JoinTime]:
    match time:
        case IntervalBound(lower=lower, upper=upper):
            assert lower is not None
            assert upper is not None
            yield replace(time, lower=lower - 2 * SECOND)
            yield replace(time, upper=upper + 2 * SECOND)
            yield replace(time, lower=-upper, upper=-lower)
            yield SameWindow(time.left, time.right, Hopping(10 * SECOND, 10 * SECOND))
        case SameWindow(window=window):
            for other in _of_window(window):
                assert isinstance(other, Hopping)
                yield replace(time, window=other)


def _turned(node: Join) -> Node:
    """The sides exchanged, but the bounds on time not."""
    assert node.time is not None
    return replace(
        node,
        left=node.right,
        right=node.left,
        left_alias=node.right_alias,
        right_alias=node.left_alias,
        keys=tuple((b, a) for a, b in node.keys),
        time=replace(node.time, left=node.time.right, right=node.time.left),
    )
