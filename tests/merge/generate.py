"""Random plans over a few columns and constants, so that different plans often mean the same.

Unlike ``tests.support.plans`` these may overflow and divide by zero: whether an error stays where
it was is part of what merging must not change. ``WORDS`` has columns of all types; ``FEW`` is so
small a vocabulary that plans meet by chance.
"""

from __future__ import annotations

import datetime
import math
import random
from dataclasses import dataclass, replace
from typing import Any

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
    Source,
    Table,
    Union,
)
from headrace.plan.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    TINYINT,
    DataType,
    Schema,
)
from headrace.plan.windows import Hopping, Session, Window

READINGS = Source(
    "readings",
    Schema.of(
        [
            *(("y", TINYINT), ("z", TINYINT), ("i", INT), ("j", INT), ("l", BIGINT), ("m", BIGINT)),
            *(("d", DOUBLE), ("e", DOUBLE), ("s", STRING), ("t", STRING)),
            *(("b", BOOLEAN), ("c", BOOLEAN), ("at", TIMESTAMP), ("ts", TIMESTAMP)),
        ]
    ),
    "ts",
    delay=5 * SECOND,
)
EVENTS = Source(
    "events",
    Schema.of(
        [
            *(("i", INT), ("l", BIGINT), ("d", DOUBLE), ("s", STRING)),
            *(("b", BOOLEAN), ("ts", TIMESTAMP)),
        ]
    ),
    "ts",
)
PLACES = Table("places", Schema.of([("l", BIGINT), ("s", STRING), ("i", INT)]))
LEAVES: tuple[Source | Table, ...] = (READINGS, EVENTS, PLACES)

START = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
#: Small enough that no expression made here overflows.
SMALL: dict[str, tuple[Any, ...]] = {
    "tinyint": (-2, -1, 0, 1, 2, 3),
    "int": (-2, -1, 0, 1, 2, 3, 4),
    "bigint": (-2, -1, 0, 1, 2, 3, 4),
    "double": (-1.25, 0.0, 0.5, 1.0, 1.5, 2.0),
    "string": ("", "a", "b", "ab", "A"),
    "boolean": (True, False),
    "timestamp": tuple(START + datetime.timedelta(seconds=n) for n in range(0, 40, 2)),
}


def _around(half: int) -> tuple[int, ...]:
    return (-half, -half + 1, -half + 2, half - 3, half - 2, half - 1)


#: The borders of each type, and what doubles have beside numbers.
EDGES: dict[str, tuple[Any, ...]] = {
    "tinyint": (*SMALL["tinyint"], *_around(1 << 7)),
    "int": (*SMALL["int"], *_around(1 << 31), 127, 128),
    "bigint": (*SMALL["bigint"], *_around(1 << 63), 1 << 53, (1 << 53) + 1, (1 << 31) - 1, 1 << 31),
    "double": (*SMALL["double"], -0.0, math.nan, math.inf, -math.inf, 1e300, -1e300, 0.1),
    "string": (*SMALL["string"], "a%", "1", "_"),
    "boolean": SMALL["boolean"],
    "timestamp": SMALL["timestamp"],
}


def rows(
    leaf: Source | Table, values: dict[str, tuple[Any, ...]], count: int, chance: random.Random
) -> list[dict[str, Any]]:
    """Rows of these values; one in eight is NULL, but a stream's time never."""
    time = leaf.time if isinstance(leaf, Source) else None
    return [
        {
            f.name: None
            if f.name != time and chance.random() < 0.125
            else chance.choice(values[f.type.name])
            for f in leaf.schema
        }
        for _ in range(count)
    ]


# --- expressions ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Words:
    """What expressions are made of. ``raising`` allows what might stop a query."""

    columns: tuple[Column, ...]
    integers: tuple[int, ...] = (-2, -1, 0, 1, 2, 3, 5)
    raising: bool = True

    @classmethod
    def of(cls, schema: Schema, **options: Any) -> Words:
        return cls(tuple(Column(f.name, f.type) for f in schema), **options)

    def typed(self, kind: DataType) -> list[Column]:
        return [column for column in self.columns if column.type == kind]

    @property
    def numbers(self) -> list[Column]:
        return [column for column in self.columns if column.type.is_integer]


WORDS = Words.of(READINGS.schema)
FEW = Words(
    tuple(Column(n, READINGS.schema[n].type) for n in ("y", "i", "j", "b")), integers=(0, 1, 2)
)


def whole(value: int, kind: DataType = INT) -> Literal:
    return Literal(value, kind)


def arithmetic(function: str, left: Expr, right: Expr) -> Call:
    """``+``, ``-`` or ``*`` of whole numbers, of the wider type."""
    kind = left.type if left.type.integer_rank >= right.type.integer_rank else right.type
    return Call(function, (left, right), kind)


def truth(function: str, *arguments: Expr) -> Call:
    return Call(function, arguments, BOOLEAN)


def wide(expr: Expr) -> Expr:
    return expr if expr.type == BIGINT else Cast(expr, BIGINT)


def integer(chance: random.Random, words: Words, depth: int = 2) -> Expr:
    """A whole number; half of the sums are of widened columns, which cannot overflow."""
    draw = chance.random()
    if depth == 0 or draw < 0.3:
        return _number(chance, words)

    def below() -> Expr:
        return integer(chance, words, depth - 1)

    if draw < 0.7:
        function = chance.choice(("+", "-", "+", "-", "*"))
        if not words.raising or chance.random() < 0.5:
            return arithmetic(function, wide(_narrow(chance, words)), wide(_narrow(chance, words)))
        return arithmetic(function, below(), below())
    if draw < 0.8:
        return wide(below())
    if draw < 0.85 and words.raising:
        inner = below()
        return Call("negative", (inner,), inner.type)
    if draw < 0.9 and words.raising:
        return Call("div", (wide(below()), whole(chance.choice((2, 3)))), BIGINT)
    if draw < 0.93 and words.raising:
        return Call("div", (wide(below()), _number(chance, words)), BIGINT)
    if words.typed(STRING) and draw < 0.96:
        return Call("length", (text(chance, words, depth - 1),), INT)
    return Call("coalesce", (wide(below()), wide(_number(chance, words))), BIGINT)


def _number(chance: random.Random, words: Words) -> Expr:
    if words.numbers and chance.random() < 0.75:
        return chance.choice(words.numbers)
    return whole(chance.choice(words.integers))


def _narrow(chance: random.Random, words: Words) -> Expr:
    """A number that leaves room in a BIGINT."""
    narrow = [column for column in words.numbers if column.type != BIGINT]
    if narrow and chance.random() < 0.7:
        return chance.choice(narrow)
    return whole(chance.choice(words.integers))


def double(chance: random.Random, words: Words, depth: int = 1) -> Expr:
    draw = chance.random()
    if depth == 0 or draw < 0.5:
        if chance.random() < 0.75:
            return chance.choice(words.typed(DOUBLE))
        return Literal(chance.choice((0.0, 0.5, 1.0, 2.0)), DOUBLE)
    if draw < 0.85:
        parts = (double(chance, words, depth - 1), double(chance, words, depth - 1))
        return Call(chance.choice(("+", "-", "*")), parts, DOUBLE)
    return Cast(_number(chance, words), DOUBLE)


def text(chance: random.Random, words: Words, depth: int = 1) -> Expr:
    draw = chance.random()
    if depth == 0 or draw < 0.6:
        if chance.random() < 0.75:
            return chance.choice(words.typed(STRING))
        return Literal(chance.choice(("", "a", "ab", "1")), STRING)
    if draw < 0.8:
        return Call(chance.choice(("upper", "lower")), (text(chance, words, depth - 1),), STRING)
    return Call("||", (text(chance, words, depth - 1), text(chance, words, depth - 1)), STRING)


_COMPARISONS = ("<", "<=", ">", ">=", "=", "!=", "<=>")


def atom(chance: random.Random, words: Words, depth: int = 1) -> Expr:
    """A condition without AND, OR and NOT."""
    draw = chance.random()
    compare = chance.choice(_COMPARISONS)
    others = chance.random() < 0.35
    if others and draw < 0.3 and words.typed(DOUBLE):
        return truth(compare, double(chance, words), double(chance, words, 0))
    if others and draw < 0.6 and words.typed(STRING):
        value = text(chance, words)
        form = chance.choice(("compare", "like", "in"))
        if form == "like":
            return truth("like", value, Literal(chance.choice(("a", "a%", "_", "%b%")), STRING))
        if form == "in":
            choices = [Literal(chance.choice(("a", "b", "")), STRING) for _ in range(2)]
            return truth("in", value, *choices)
        return truth(compare, value, text(chance, words, 0))
    if others and draw < 0.8 and words.typed(TIMESTAMP):
        left, right = (chance.choice(words.typed(TIMESTAMP)) for _ in range(2))
        moment = Literal(chance.choice(SMALL["timestamp"][:6]), TIMESTAMP)
        return truth(compare, left, chance.choice((right, moment)))
    if others and words.typed(BOOLEAN):
        column = chance.choice(words.typed(BOOLEAN))
        return chance.choice((column, truth("=", column, Literal(draw < 0.9, BOOLEAN))))
    value = integer(chance, words, depth)
    if draw < 0.12:
        return truth(chance.choice(("isnull", "isnotnull")), value)
    if draw < 0.3:
        choices = [whole(chance.choice(words.integers)) for _ in range(chance.choice((1, 2, 3)))]
        if chance.random() < 0.1:
            choices.append(Literal(None, INT))
        return truth("in", value, *choices)
    return truth(compare, value, integer(chance, words, chance.choice((0, 0, depth))))


def condition(chance: random.Random, words: Words, depth: int = 2) -> Expr:
    draw = chance.random()
    if depth == 0 or draw < 0.3:
        return atom(chance, words)
    if draw < 0.45:
        return truth("not", condition(chance, words, depth - 1))
    function = "and" if draw < 0.75 else "or"
    return truth(function, condition(chance, words, depth - 1), condition(chance, words, depth - 1))


def value(chance: random.Random, words: Words) -> Expr:
    """Anything but a time."""
    makers = [integer, integer, condition]
    makers += [double] if words.typed(DOUBLE) else []
    makers += [text] if words.typed(STRING) else []
    return chance.choice(makers)(chance, words)


# --- row by row ----------------------------------------------------------------------------------


def filtered(chance: random.Random, node: Node, words: Words, most: int = 2) -> Node:
    for _ in range(chance.randint(0, most)):
        node = Filter(node, condition(chance, words))
    return node


def row_plan(chance: random.Random, words: Words = WORDS) -> Node:
    """Filters and projections of one stream, and now and then a union of such."""
    if chance.random() < 0.15:
        kinds = [chance.choice((integer, integer, condition)) for _ in range(2)]
        parts = []
        for _ in range(chance.choice((2, 2, 3))):
            below = filtered(chance, READINGS, words, 1)
            made = [kind(chance, words, 1) for kind in kinds]
            made = [wide(e) if e.type.is_integer else e for e in made]
            names = [Named(f"u{n}", e) for n, e in enumerate(made)]
            parts.append(Project(below, (Named("ts", Column("ts", TIMESTAMP)), *names)))
        union = Union(tuple(parts))
        return filtered(chance, union, _over(words, union), 1)
    node = filtered(chance, READINGS, words)
    columns = [Named(c.name, c) for c in words.columns if chance.random() < 0.6]
    columns += [Named(f"x{n}", value(chance, words)) for n in range(chance.randint(0, 2))]
    project = Project(node, tuple(columns) or (Named("n", chance.choice(words.numbers)),))
    return filtered(chance, project, _over(words, project), 1)


def small_plan(chance: random.Random) -> Node:
    """So little that two of them are often the same."""
    node: Node = READINGS
    for _ in range(chance.choice((1, 1, 2))):
        node = Filter(node, _small_condition(chance, chance.choice((0, 1, 1, 2))))
    return Project(node, (Named("i", Column("i", INT)),))


def _small_condition(chance: random.Random, depth: int) -> Expr:
    if depth:
        function = chance.choice(("and", "and", "or", "not"))
        below = [_small_condition(chance, depth - 1) for _ in range(1 if function == "not" else 2)]
        return truth(function, *below)
    i, j, y = (Column(n, READINGS.schema[n].type) for n in "ijy")
    number = whole(chance.choice((0, 1, 2)))
    left = chance.choice(
        (i, i, j, y, arithmetic("-", wide(i), wide(j)), arithmetic("*", wide(i), whole(2)))
    )
    if chance.random() < 0.1:
        return truth(chance.choice(("isnull", "isnotnull")), left)
    if chance.random() < 0.1:
        return truth("in", left, number, whole(chance.choice((0, 1, 2))))
    right = chance.choice((number, number, number, i, j))
    return truth(chance.choice(("<", "<=", ">", ">=", "=", "!=")), left, right)


def _columns(node: Node) -> tuple[Column, ...]:
    return tuple(Column(f.name, f.type) for f in node.schema)


def _over(words: Words, node: Node) -> Words:
    return replace(words, columns=_columns(node))


# --- windows, joins and unions -------------------------------------------------------------------


def structured_plan(chance: random.Random) -> Node:
    """Windowed aggregates, joins, unions, and aggregates over them; nothing here raises."""
    forms = (aggregate_plan, aggregate_plan, join_plan, join_plan, union_aggregate, three_way_plan)
    return chance.choice(forms)(chance)


def safe(node: Node) -> Words:
    return Words(_columns(node), raising=False)


def hopping(chance: random.Random) -> Hopping:
    length = chance.choice((5, 10, 20)) * SECOND
    return Hopping(length, chance.choice((length, 5 * SECOND)), chance.choice((0, 0, 1)) * SECOND)


def grouped(chance: random.Random, node: Node, time: str) -> Aggregate:
    words = safe(node)
    windows: tuple[Window, ...] = (hopping(chance),)
    if chance.random() < 0.15:
        windows = (Session(3 * SECOND),)
    elif chance.random() < 0.2:
        windows = tuple(dict.fromkeys((windows[0], hopping(chance), hopping(chance))))
    simple = [c for c in words.columns if c.type in (INT, BIGINT, STRING, BOOLEAN)]
    keys = [Named(f"k{n}", c) for n, c in enumerate(chance.sample(simple, chance.randint(0, 2)))]
    calls = [Named(f"v{n}", _call(chance, words)) for n in range(chance.randint(1, 3))]
    return Aggregate(node, tuple(keys), Column(time, TIMESTAMP), windows, tuple(calls))


def _call(chance: random.Random, words: Words) -> AggregateCall:
    chosen = condition(chance, words, 1) if chance.random() < 0.25 else None
    name = chance.choice(("count", "count_all", "sum", "avg", "min", "max", "count_if"))
    if name == "count_all":
        return AggregateCall("count", (), BIGINT, filter=chosen)
    if name == "count_if":
        return AggregateCall("count_if", (condition(chance, words, 1),), BIGINT, filter=chosen)
    argument = integer(chance, words, 1)
    if name == "count":
        distinct = chance.random() < 0.4
        return AggregateCall("count", (argument,), BIGINT, distinct, chosen)
    if name in ("min", "max"):
        return AggregateCall(name, (argument,), argument.type, filter=chosen)
    kind = BIGINT if name == "sum" else DOUBLE
    return AggregateCall(name, (argument,), kind, filter=chosen)


def narrowed(chance: random.Random, source: Source) -> Node:
    """A stream, filtered and with a computed column perhaps."""
    node = filtered(chance, source, safe(source), 2)
    if chance.random() < 0.4:
        kept = [Named(c.name, c) for c in _columns(node) if c.name in ("i", "l", "s", "ts", "b")]
        node = Project(node, (*kept, Named("x", integer(chance, safe(node), 1))))
        node = filtered(chance, node, safe(node), 1)
    return node


def aggregate_plan(chance: random.Random) -> Node:
    source = chance.choice((READINGS, EVENTS))
    node: Node = grouped(chance, narrowed(chance, source), source.time)
    return filtered(chance, node, safe(node), 1)


def side(chance: random.Random, source: Source | Table) -> Node:
    return filtered(chance, source, safe(source), 1)


def join_time(chance: random.Random, left: Column, right: Column) -> JoinTime:
    if chance.random() < 0.5:
        return SameWindow(left, right, hopping(chance))
    lower = chance.choice((-6, 0, 2)) * SECOND
    return IntervalBound(left, right, lower, lower + chance.choice((0, 4, 10)) * SECOND)


def join_plan(chance: random.Random) -> Node:
    """A join under plain names, with conditions above it, and now and then groups of it."""
    left: Source | Table = chance.choice((READINGS, EVENTS))
    right: Source | Table = chance.choice((READINGS, EVENTS, EVENTS, PLACES))
    a, b = side(chance, left), side(chance, right)
    keys = tuple(
        (
            Column(f"a.{name}", left.schema[name].type),
            Column(f"b.{other}", right.schema[other].type),
        )
        for name, other in chance.sample(
            (("l", "l"), ("i", "i"), ("i", "l")), chance.choice((1, 2))
        )
    )
    time = None
    if isinstance(right, Source):
        time = join_time(
            chance, Column(f"a.{left.time}", TIMESTAMP), Column(f"b.{right.time}", TIMESTAMP)
        )
    kinds = [JoinKind.INNER] * 5 + [JoinKind.LEFT]
    join = Join(a, b, chance.choice(kinds), "a", "b", keys, time)
    node: Node = join
    for _ in range(chance.randint(0, 2)):
        schema = chance.choice((join.schema, join.left_schema, join.right_schema))
        node = Filter(node, condition(chance, Words.of(schema, raising=False), 1))
    kept = [f for f in join.schema if f.name[2:] in ("i", "l", "s", "ts")]
    named = [Named(f.name.replace(".", "_"), Column(f.name, f.type)) for f in kept]
    node = Project(node, tuple(named))
    if chance.random() < 0.3:
        return grouped(chance, node, "a_ts")
    return node


def three_way_plan(chance: random.Random) -> Node:
    """``a`` with ``b`` and with ``c``, each by a condition of their own."""
    node: Node = side(chance, READINGS)
    alias: str | None = "a"
    for other, source in (("b", EVENTS), ("c", chance.choice((EVENTS, READINGS)))):
        key = chance.choice(("l", "i"))
        kind = READINGS.schema[key].type
        keys = ((Column(f"a.{key}", kind), Column(f"{other}.{key}", kind)),)
        time = join_time(chance, Column("a.ts", TIMESTAMP), Column(f"{other}.ts", TIMESTAMP))
        right = side(chance, source)
        node = Join(node, right, JoinKind.INNER, alias, other, keys, time)
        alias = None
    kept = [f for f in node.schema if f.name in ("a.i", "b.l", "c.s", "a.ts", "c.ts")]
    return Project(node, tuple(Named(f.name[0] + f.name[2:], Column(f.name, f.type)) for f in kept))


def union_plan(chance: random.Random) -> Node:
    parts: list[Node] = []
    for _ in range(chance.choice((2, 2, 3))):
        source = chance.choice((READINGS, EVENTS))
        node = filtered(chance, source, safe(source), 1)
        columns = [Named(n, Column(n, source.schema[n].type)) for n in ("i", "l", "s", "ts")]
        columns.append(Named("x", wide(integer(chance, safe(source), 1))))
        parts.append(Project(node, tuple(columns)))
    union = Union(tuple(parts))
    return filtered(chance, union, safe(union), 1)


def union_aggregate(chance: random.Random) -> Node:
    node = union_plan(chance)
    return grouped(chance, node, "ts") if chance.random() < 0.6 else node
