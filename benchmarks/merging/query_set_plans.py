"""Plans of query sets: one node for each operator of the query-merging paper's language.

Streams are called ``example1``, ``example2`` and so on. Each has six integers, named by letters,
and two times. The letters come round: with three schemas, ``example1`` and ``example4`` both have
a to f.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from headrace.errors import PlanError
from headrace.plan.expressions import AggregateCall, Call, Column, Expr, Literal, Named
from headrace.plan.nodes import (
    WINDOW_COLUMN,
    Aggregate,
    Filter,
    Join,
    JoinKind,
    Node,
    OutputMode,
    Project,
    SameWindow,
    Sink,
    Source,
    Union,
)
from headrace.plan.types import BIGINT, BOOLEAN, DOUBLE, TIMESTAMP, DataType, Field, Schema
from headrace.plan.windows import Hopping

FIELDS = 6
TIMES = ("time1", "time2")
#: The comparisons of the language, with the one that means the same with its sides exchanged.
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
AGGREGATES = ("sum", "avg", "min", "max")
_LETTERS = "abcdefghijklmnopqrstuvwx"
_STREAM = re.compile(r"example(\d+)")


@lru_cache(maxsize=1024)
def source(stream: str, schemas: int) -> Source:
    """A stream by its name, where the streams take that many schemas in turn.

    >>> source("example5", schemas=3).schema.names[:6]
    ('g', 'h', 'i', 'j', 'k', 'l')
    """
    match = _STREAM.fullmatch(stream)
    if match is None:
        raise PlanError(f"no stream {stream!r}", hint="streams are named example1, example2, …")
    first = (int(match[1]) - 1) % schemas * FIELDS
    fields = [Field(letter, BIGINT) for letter in _LETTERS[first : first + FIELDS]]
    fields += [Field(time, TIMESTAMP) for time in TIMES]
    return Source(stream, Schema(tuple(fields)), TIMES[0])


# Thousands of queries have the same few columns. Made once each, they leave less for the garbage
# collector to look through: without this, it takes half of the time of reading a set.
@lru_cache(maxsize=4096)
def _column(name: str, kind: DataType) -> Column:
    return Column(name, kind)


@lru_cache(maxsize=4096)
def _kept(field: Field) -> Named:
    return Named(field.name, _column(field.name, field.type))


def attribute(node: Node, name: str) -> Column:
    """The column that is meant by a name.

    Above a join, both sides may have it. It is then that of the stream whose name is smaller: the
    variants of a query differ in the order of their sides, and must still mean the same.
    """
    sides: list[Field] = []
    for field in node.schema.fields:
        if field.name == name:
            return _column(name, field.type)
        if field.name.endswith(f".{name}"):
            sides.append(field)
    if not sides:
        raise PlanError(f"no attribute {name!r}", hint=f"there are {', '.join(node.schema.names)}")
    side = min(sides, key=lambda field: field.name)
    return _column(side.name, side.type)


def constant(value: int) -> Literal:
    return Literal(value, BIGINT)


def arithmetic(operator: str, left: Expr, right: Expr) -> Call:
    return Call(operator, (left, right), BIGINT)


def comparison(operator: str, left: Expr, right: Expr) -> Call:
    return Call(operator, (left, right), BOOLEAN)


def mapped(node: Node, name: str, value: Expr) -> Project:
    """All columns, one of them with a new value."""
    target = attribute(node, name)
    if target.type != value.type:
        raise PlanError(f"{name} is a {target.type}, and cannot become a {value.type}")
    return Project(
        node,
        tuple(
            Named(target.name, value) if field.name == target.name else _kept(field)
            for field in node.schema.fields
        ),
    )


def projected(node: Node, columns: Iterable[tuple[str, str]]) -> Project:
    """Some columns, each with the name it gets."""
    plan = Project(node, tuple(Named(alias, attribute(node, name)) for name, alias in columns))
    _ = plan.schema  # Raises at once if two columns get the same name.
    return plan


def joined(left: Node, right: Node, keys: tuple[str, str], time: str, window: Hopping) -> Join:
    """The pairs with equal keys whose times, of the same name on both sides, share a window."""
    left_alias, right_alias = _first_stream(left), _first_stream(right)
    if left_alias == right_alias:
        right_alias += "_2"
    for side, which in ((left, "left"), (right, "right")):
        if time not in side.schema:
            raise PlanError(f"the {which} side of the join does not have {time!r}")
    return Join(
        left,
        right,
        JoinKind.INNER,
        left_alias,
        right_alias,
        ((_of_side(left, left_alias, keys[0]), _of_side(right, right_alias, keys[1])),),
        SameWindow(_of_side(left, left_alias, time), _of_side(right, right_alias, time), window),
    )


def aggregated(
    node: Node,
    time: str,
    window: Hopping,
    function: str,
    argument: str,
    key: str | None = None,
    alias: str | None = None,
) -> Aggregate:
    """One aggregate per window, and per key where there is one."""
    column = attribute(node, argument)
    if function in ("sum", "avg") and not column.type.is_numeric:
        raise PlanError(f"{argument} is a {column.type}, which has no {function}")
    kind = DOUBLE if function == "avg" else column.type
    keys = () if key is None else (Named(key, attribute(node, key)),)
    name = alias or argument
    while name in (key, WINDOW_COLUMN):
        name += "_2"
    return Aggregate(
        node,
        keys,
        attribute(node, time),
        (window,),
        (Named(name, AggregateCall(function, (column,), kind)),),
    )


def sink(node: Node, number: int) -> Sink:
    """Where the rows of the query of that number go: nowhere."""
    return Sink(node, f"q{number}", "noop", OutputMode.APPEND)


def _first_stream(node: Node) -> str:
    return next(n.stream for n in node.walk() if isinstance(n, Source))


def _of_side(side: Node, alias: str, name: str) -> Column:
    column = attribute(side, name)
    return _column(f"{alias}.{column.name}", column.type)


def to_sql(node: Node) -> str:
    """The query as Headrace's SQL, a SELECT for each operator.

    A join stands in the FROM of the projection or aggregate above it, since its own columns may
    have the same names on both sides.
    """
    match node:
        case Sink():
            return to_sql(node.input)
        case Source():
            return f"SELECT * FROM {node.stream}"
        case Union():
            return " UNION ALL ".join(to_sql(part) for part in node.parts)
        case Filter():
            return f"SELECT * FROM {_relation(node.input)} WHERE {node.predicate}"
        case Project():
            return f"SELECT {', '.join(map(str, node.columns))} FROM {_relation(node.input)}"
        case Aggregate(windows=(Hopping() as window,)):
            columns = [*map(str, node.keys), WINDOW_COLUMN, *map(str, node.aggregates)]
            grouping = [*(str(key.expr) for key in node.keys), _window_sql(node.time, window)]
            return (
                f"SELECT {', '.join(columns)} FROM {_relation(node.input)} "
                f"GROUP BY {', '.join(grouping)}"
            )
        case _:
            raise PlanError(f"{type(node).__name__} has no SQL of its own")


def _relation(node: Node) -> str:
    match node:
        case Source():
            return node.stream
        case Join(time=SameWindow() as time, keys=((left, right),)):
            sides = (_window_sql(column, time.window) for column in (time.left, time.right))
            return (
                f"({to_sql(node.left)}) AS {node.left_alias} "
                f"JOIN ({to_sql(node.right)}) AS {node.right_alias} "
                f"ON {left} = {right} AND {' = '.join(sides)}"
            )
        case _:
            return f"({to_sql(node)}) AS below"


def _window_sql(time: Column, window: Hopping) -> str:
    slide = "" if window.tumbling else f", '{window.slide} milliseconds'"
    return f"window({time}, '{window.length} milliseconds'{slide})"
