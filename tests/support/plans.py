"""Random plans that mean something: typed expressions over given streams and tables.

Everything generated here is a query that Headrace accepts, that cannot raise (no overflow within
the depth used, no division, no failing cast) and that means the same in Spark and in DuckDB. So a
difference between two runs of such a plan is a defect, never an accident of the generator.

Start at :func:`plans`; the strategies named after shapes (``aggregate_plans``, ``join_plans``, …)
are for tests of one operator. Plans end in plain column names, without the dots of joins.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from headrace.plan.durations import SECOND
from headrace.plan.expressions import (
    AggregateCall,
    Call,
    Cast,
    Column,
    Expr,
    Literal,
    Named,
    window_time,
)
from headrace.plan.nodes import (
    WINDOW_COLUMN,
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
    Source,
    Table,
    Union,
)
from headrace.plan.times import event_times
from headrace.plan.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    WINDOW,
    DataType,
    Schema,
)
from headrace.plan.windows import Hopping, InheritedWindow, Landmark, Session, Trailing, Window

BIDS = Source(
    "bids",
    Schema.of(
        [
            ("auction", BIGINT),
            ("bidder", BIGINT),
            ("price", INT),
            ("fee", DOUBLE),
            ("channel", STRING),
            ("ts", TIMESTAMP),
        ]
    ),
    time="ts",
    delay=10 * SECOND,
)
CLICKS = Source(
    "clicks",
    Schema.of(
        [
            ("auction", BIGINT),
            ("page", STRING),
            ("score", INT),
            ("fresh", BOOLEAN),
            ("at", TIMESTAMP),
        ]
    ),
    time="at",
    delay=5 * SECOND,
)
ITEMS = Table("items", Schema.of([("id", BIGINT), ("category", STRING), ("weight", DOUBLE)]))

STREAMS: tuple[Source, ...] = (BIDS, CLICKS)
TABLES: tuple[Table, ...] = (ITEMS,)

#: Values that literals take; rows made by ``tests.support.rows`` take the same ones, so that
#: predicates and joins find something.
INTEGERS = range(-3, 13)
STRINGS = ("", "a", "b", "ab", "Ab", "a%", "zebra")
# Multiples of a quarter add up exactly, in any order.
DOUBLES = tuple(n / 4 for n in range(-8, 41))

_VALUE_TYPES = (BIGINT, INT, DOUBLE, STRING, BOOLEAN)


# --- expressions ---------------------------------------------------------------------------------


def literals(kind: DataType) -> st.SearchStrategy[Expr]:
    """Constants of a type; NULL only now and then."""
    values: dict[DataType, st.SearchStrategy[object]] = {
        BIGINT: st.sampled_from(INTEGERS),
        INT: st.sampled_from(INTEGERS),
        DOUBLE: st.sampled_from(DOUBLES),
        STRING: st.sampled_from(STRINGS),
        BOOLEAN: st.booleans(),
    }
    return values[kind].map(lambda value: Literal(value, kind))  # type: ignore[arg-type]


def _leaves(schema: Schema, kind: DataType) -> st.SearchStrategy[Expr]:
    columns = [Column(f.name, f.type) for f in schema if f.type == kind]
    found: list[st.SearchStrategy[Expr]] = [literals(kind)]
    if columns:
        # Columns are what makes a query: three of four leaves.
        found += [st.sampled_from(columns)] * 3
    return st.one_of(found)


def expressions(schema: Schema, kind: DataType, depth: int = 2) -> st.SearchStrategy[Expr]:
    """Expressions of one type over a schema."""
    if depth == 0:
        return _leaves(schema, kind)

    def below(other: DataType) -> st.SearchStrategy[Expr]:
        return expressions(schema, other, depth - 1)

    def call(function: str, *kinds: DataType) -> st.SearchStrategy[Expr]:
        return st.tuples(*map(below, kinds)).map(lambda args: Call(function, args, kind))

    choices: list[st.SearchStrategy[Expr]] = [_leaves(schema, kind), _leaves(schema, kind)]
    if kind == BIGINT:
        choices += [call(operator, BIGINT, BIGINT) for operator in ("+", "-", "*")]
        choices += [call("abs", BIGINT), below(INT).map(lambda e: Cast(e, BIGINT))]
    elif kind == INT:
        choices += [call("length", STRING)]
    elif kind == DOUBLE:
        choices += [call(operator, DOUBLE, DOUBLE) for operator in ("+", "-", "*")]
        choices += [below(INT).map(lambda e: Cast(e, DOUBLE))]
    elif kind == STRING:
        choices += [call("upper", STRING), call("lower", STRING), call("||", STRING, STRING)]
    if kind == BOOLEAN:
        choices += [predicates(schema, depth)]
    else:
        choices += [call("coalesce", kind, kind), _cases(schema, kind, depth)]
    return st.one_of(choices)


@st.composite
def _cases(draw: st.DrawFn, schema: Schema, kind: DataType, depth: int) -> Expr:
    arguments: list[Expr] = []
    for _ in range(draw(st.integers(1, 2))):
        arguments.append(draw(predicates(schema, depth - 1)))
        arguments.append(draw(expressions(schema, kind, depth - 1)))
    arguments.append(draw(st.one_of(_leaves(schema, kind), st.just(Literal(None, kind)))))
    return Call("case", tuple(arguments), kind)


@st.composite
def predicates(draw: st.DrawFn, schema: Schema, depth: int = 2) -> Expr:
    """Conditions over a schema, in Spark's three-valued logic."""
    form = draw(st.sampled_from(("compare", "compare", "isnull", "in", "like", "logic", "not")))
    if depth <= 0 and form in ("logic", "not"):
        form = "compare"
    below = max(depth - 1, 0)
    if form == "logic":
        arguments = tuple(draw(predicates(schema, below)) for _ in range(2))
        return Call(draw(st.sampled_from(("and", "or"))), arguments, BOOLEAN)
    if form == "not":
        return Call("not", (draw(predicates(schema, below)),), BOOLEAN)
    if form == "like":
        pattern = Literal(draw(st.sampled_from(("a%", "%b", "%b%", "_"))), STRING)
        return Call("like", (draw(expressions(schema, STRING, below)), pattern), BOOLEAN)
    kind = draw(st.sampled_from((BIGINT, INT, DOUBLE, STRING)))
    value = draw(expressions(schema, kind, below))
    if form == "isnull":
        return Call("isnull", (value,), BOOLEAN)
    if form == "in":
        choices = draw(st.lists(literals(kind), min_size=1, max_size=3))
        return Call("in", (value, *choices), BOOLEAN)
    operator = draw(st.sampled_from(("=", "!=", "<", "<=", ">", ">=", "<=>")))
    return Call(operator, (value, draw(_leaves(schema, kind))), BOOLEAN)


# --- stateless -----------------------------------------------------------------------------------


@st.composite
def filtered(draw: st.DrawFn, node: Node) -> Node:
    """The node, or a filter on it."""
    if draw(st.booleans()):
        return Filter(node, draw(predicates(node.schema)))
    return node


@st.composite
def projected(draw: st.DrawFn, node: Node, keep: Sequence[str]) -> Node:
    """A projection that keeps some columns under their names and computes others.

    ``keep`` are columns that must stay, such as event times.
    """
    schema = node.schema
    names = [n for n in schema.names if n in keep or draw(st.booleans())]
    columns = [Named(name, Column(name, schema[name].type)) for name in names]
    fresh = [name for name in ("x0", "x1", "x2", "x3") if name not in schema]
    for name in fresh[: draw(st.integers(0 if columns else 1, 2))]:
        kind = draw(st.sampled_from(_VALUE_TYPES))
        columns.append(Named(name, draw(expressions(schema, kind))))
    return Project(node, tuple(columns))


@st.composite
def stateless_plans(draw: st.DrawFn, streams: Sequence[Source] = STREAMS) -> Node:
    """Filters and projections of one stream, its time kept."""
    source = draw(st.sampled_from(streams))
    node = draw(filtered(source))
    if draw(st.booleans()):
        node = draw(projected(node, [source.time]))
        node = draw(filtered(node))
    return node


@st.composite
def union_plans(draw: st.DrawFn, streams: Sequence[Source] = STREAMS) -> Node:
    """Two or three differently computed parts, column types matched by position."""
    kinds = draw(st.lists(st.sampled_from(_VALUE_TYPES), min_size=1, max_size=3))
    parts = []
    for number in range(draw(st.integers(2, 3))):
        source = draw(st.sampled_from(streams))
        node = draw(filtered(source))
        values = [draw(expressions(node.schema, kind, 1)) for kind in kinds]
        # A union goes by position: the parts' own names differ, and some are swapped.
        names = [f"u{index}" for index in range(len(kinds))]
        if number and draw(st.booleans()):
            names = draw(st.permutations(names))
        elif number:
            names = [f"w{index}" for index in range(len(kinds))]
        columns = [Named("at", Column(source.time, TIMESTAMP))]
        columns += [Named(name, value) for name, value in zip(names, values, strict=True)]
        parts.append(Project(node, tuple(columns)))
    return draw(filtered(Union(tuple(parts))))


# --- windows and aggregates ----------------------------------------------------------------------


@st.composite
def hopping_windows(draw: st.DrawFn) -> Hopping:
    """Tumbling, overlapping and sampling windows of a few seconds to a minute."""
    length = draw(st.sampled_from((2, 5, 10, 15, 30, 60))) * SECOND
    slide = draw(st.sampled_from((length, length, 5 * SECOND, 10 * SECOND, 20 * SECOND)))
    offset = draw(st.sampled_from((0, 0, 0, 1 * SECOND, 3 * SECOND)))
    # At most this many windows hold one row; more only makes runs slow.
    if length // slide > 6:
        slide = length // 2
    return Hopping(length, slide, offset)


@st.composite
def window_sets(draw: st.DrawFn) -> tuple[Window, ...]:
    """What an aggregate may be over: one hopping window mostly, or several, or another kind."""
    form = draw(st.sampled_from(("one", "one", "one", "many", "session", "trailing", "landmark")))
    if form == "many":
        return tuple(draw(st.lists(hopping_windows(), min_size=2, max_size=4, unique=True)))
    if form == "session":
        return (Session(draw(st.sampled_from((1, 2, 5))) * SECOND),)
    if form == "trailing":
        return (Trailing(draw(st.sampled_from((5, 20, 60))) * SECOND),)
    if form == "landmark":
        return (Landmark(),)
    return (draw(hopping_windows()),)


@st.composite
def aggregate_calls(draw: st.DrawFn, schema: Schema, holistic: bool = True) -> AggregateCall:
    """Any aggregate function, sometimes with a filter."""
    names = ["count_all", "count", "sum", "avg", "min", "max", "count_if", "stddev", "variance"]
    if holistic:
        names += ["count_distinct", "median", "percentile"]
    name = draw(st.sampled_from(names))
    condition = draw(predicates(schema, 1)) if draw(st.integers(0, 3)) == 0 else None
    if name == "count_all":
        return AggregateCall("count", (), BIGINT, filter=condition)
    if name == "count_if":
        return AggregateCall("count_if", (draw(predicates(schema, 1)),), BIGINT, filter=condition)
    if name in ("count", "count_distinct"):
        value = draw(expressions(schema, draw(st.sampled_from(_VALUE_TYPES)), 1))
        return AggregateCall("count", (value,), BIGINT, name == "count_distinct", condition)
    if name in ("min", "max"):
        value = draw(expressions(schema, draw(st.sampled_from((BIGINT, INT, DOUBLE, STRING))), 1))
        return AggregateCall(name, (value,), value.type, filter=condition)
    value = draw(expressions(schema, draw(st.sampled_from((BIGINT, INT, DOUBLE))), 1))
    if name == "sum":
        result = DOUBLE if value.type == DOUBLE else BIGINT
        return AggregateCall("sum", (value,), result, filter=condition)
    arguments = (value, Literal(0.25, DOUBLE)) if name == "percentile" else (value,)
    return AggregateCall(name, arguments, DOUBLE, filter=condition)


@st.composite
def aggregated(
    draw: st.DrawFn,
    node: Node,
    time: str,
    windows: st.SearchStrategy[tuple[Window, ...]] | None = None,
    holistic: bool = True,
) -> Aggregate:
    """Some groups over some windows of this time column."""
    schema = node.schema
    candidates = [f for f in schema if f.type in (BIGINT, INT, STRING, BOOLEAN)]
    chosen = draw(
        st.lists(st.sampled_from(candidates), max_size=2, unique=True)
        if candidates
        else st.just([])
    )
    keys = [Named(f"k{i}", Column(f.name, f.type)) for i, f in enumerate(chosen)]
    if not keys and draw(st.booleans()):
        keys = [Named("k0", draw(expressions(schema, draw(st.sampled_from((BIGINT, STRING))), 1)))]
    given_window = schema[time].type == WINDOW
    sets = (
        (InheritedWindow(),)
        if given_window
        else draw(windows if windows is not None else window_sets())
    )
    calls = draw(st.lists(aggregate_calls(schema, holistic), min_size=1, max_size=3))
    return Aggregate(
        node,
        tuple(keys),
        Column(time, schema[time].type),
        sets,
        tuple(Named(f"v{i}", call) for i, call in enumerate(calls)),
    )


@st.composite
def aggregate_plans(
    draw: st.DrawFn,
    streams: Sequence[Source] = STREAMS,
    windows: st.SearchStrategy[tuple[Window, ...]] | None = None,
    holistic: bool = True,
) -> Node:
    """One windowed aggregate of a filtered and projected stream, sometimes with HAVING."""
    source = draw(st.sampled_from(streams))
    below = draw(filtered(source))
    if draw(st.integers(0, 2)) == 0:
        below = draw(projected(below, [source.time, "auction"]))
    node: Node = draw(aggregated(below, source.time, windows, holistic))
    if draw(st.integers(0, 2)) == 0:
        node = Filter(node, draw(predicates(node.schema, 1)))
    if draw(st.integers(0, 2)) == 0:
        keep = [WINDOW_COLUMN] if WINDOW_COLUMN in node.schema else []
        node = draw(projected(node, keep))
    return node


@st.composite
def stacked_aggregate_plans(draw: st.DrawFn, streams: Sequence[Source] = STREAMS) -> Node:
    """An aggregate of an aggregate: by the window it carries, or by wider windows of its time."""
    one = hopping_windows().map(lambda w: (w,))
    source = draw(st.sampled_from(streams))
    first = draw(aggregated(draw(filtered(source)), source.time, one, False))
    if draw(st.booleans()):
        return draw(aggregated(first, WINDOW_COLUMN))
    handed_on = window_time(Column(WINDOW_COLUMN, WINDOW))
    rest = [Named(f.name, Column(f.name, f.type)) for f in first.schema if f.type != WINDOW]
    below = Project(first, (Named("last", handed_on), *rest))
    return draw(aggregated(below, "last", one, False))


# --- joins ---------------------------------------------------------------------------------------


def _qualified(alias: str, column: str, schema: Schema) -> Column:
    return Column(f"{alias}.{column}", schema[column].type)


@st.composite
def join_times(draw: st.DrawFn, left: Column, right: Column) -> JoinTime:
    """Window, interval or session conditions between two time columns."""
    form = draw(st.sampled_from(("window", "window", "within", "within", "session")))
    if form == "window":
        return SameWindow(left, right, draw(hopping_windows()))
    if form == "session":
        return SameSession(left, right, draw(st.sampled_from((1, 2, 5))) * SECOND)
    lower = draw(st.sampled_from((-10, -5, 0, 2))) * SECOND
    return IntervalBound(left, right, lower, lower + draw(st.sampled_from((0, 3, 10))) * SECOND)


@st.composite
def join_plans(draw: st.DrawFn, streams: Sequence[Source] = STREAMS) -> Node:
    """A two-way join of streams on a key and time, with a residual sometimes; columns renamed."""
    return draw(_renamed(draw(_stream_joins(streams))))


@st.composite
def _stream_joins(draw: st.DrawFn, streams: Sequence[Source]) -> Join:
    a, b = draw(st.sampled_from(streams)), draw(st.sampled_from(streams))
    left, right = draw(filtered(a)), draw(filtered(b))
    time = draw(join_times(_qualified("a", a.time, a.schema), _qualified("b", b.time, b.schema)))
    kinds = [JoinKind.INNER] * 3
    if not isinstance(time, SameSession):
        kinds += [JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL]
    kind = draw(st.sampled_from(kinds))
    emits_window = kind is JoinKind.INNER and isinstance(time, SameWindow) and draw(st.booleans())
    keys = (_qualified("a", "auction", a.schema), _qualified("b", "auction", b.schema))
    join = Join(left, right, kind, "a", "b", (keys,), time, None, emits_window)
    if kind is not JoinKind.INNER or draw(st.booleans()):
        return join
    residual = draw(predicates(join.schema, 1))
    return Join(left, right, kind, "a", "b", (keys,), time, residual, emits_window)


@st.composite
def _renamed(draw: st.DrawFn, join: Join) -> Node:
    """A filter above the join mostly, then plain names for its columns."""
    node: Node = join
    if draw(st.integers(0, 3)):
        # Of one side or of both: what may be pushed where depends on it.
        schemas = (join.schema, join.left_schema, join.right_schema)
        parts = [
            draw(predicates(draw(st.sampled_from(schemas)), 1))
            for _ in range(draw(st.integers(1, 3)))
        ]
        for part in parts:
            node = Filter(node, part)
    columns = [
        Named(f.name.replace(".", "_"), Column(f.name, f.type))
        for f in join.schema
        if f.name in event_times(join) or draw(st.booleans())
    ]
    first = join.schema.fields[0]
    return Project(node, tuple(columns) or (Named("c", Column(first.name, first.type)),))


@st.composite
def table_join_plans(
    draw: st.DrawFn, streams: Sequence[Source] = STREAMS, tables: Sequence[Table] = TABLES
) -> Node:
    """A stream with a static table, inner or keeping the stream."""
    source, table = draw(st.sampled_from(streams)), draw(st.sampled_from(tables))
    stream = draw(filtered(source))
    key = _qualified("s", "auction", source.schema)
    other = _qualified("t", table.schema.names[0], table.schema)
    if draw(st.booleans()):
        kind = draw(st.sampled_from((JoinKind.INNER, JoinKind.LEFT)))
        return draw(_renamed(Join(stream, table, kind, "s", "t", ((key, other),))))
    kind = draw(st.sampled_from((JoinKind.INNER, JoinKind.RIGHT)))
    return draw(_renamed(Join(table, stream, kind, "t", "s", ((other, key),))))


def _sure_times(join: Join) -> list[str]:
    """Event times of the join that are never NULL for want of a partner."""
    missing: set[str] = set()
    if join.kind.keeps_right:
        missing.update(join.left_schema.names)
    if join.kind.keeps_left:
        missing.update(join.right_schema.names)
    return sorted(set(event_times(join)) - missing)


@st.composite
def state_join_plans(draw: st.DrawFn, streams: Sequence[Source] = STREAMS) -> Node:
    """An inner join of streams with no condition on time."""
    a, b = draw(st.sampled_from(streams)), draw(st.sampled_from(streams))
    keys = (_qualified("a", "auction", a.schema), _qualified("b", "auction", b.schema))
    join = Join(draw(filtered(a)), draw(filtered(b)), JoinKind.INNER, "a", "b", (keys,))
    return draw(_renamed(join))


@st.composite
def joined_aggregate_plans(
    draw: st.DrawFn, streams: Sequence[Source] = STREAMS, holistic: bool = True
) -> Node:
    """A windowed aggregate of an inner or outer join, over a time that the join hands on."""
    join = draw(_stream_joins(streams).filter(_sure_times))
    below = draw(filtered(join))
    time = draw(st.sampled_from(_sure_times(join)))
    one = hopping_windows().map(lambda w: (w,))
    return draw(aggregated(below, time, one, holistic))


def plans(
    streams: Sequence[Source] = STREAMS, tables: Sequence[Table] = TABLES
) -> st.SearchStrategy[Node]:
    """Plans of every shape."""
    return st.one_of(
        stateless_plans(streams),
        union_plans(streams),
        aggregate_plans(streams),
        stacked_aggregate_plans(streams),
        join_plans(streams),
        state_join_plans(streams),
        joined_aggregate_plans(streams),
        *([table_join_plans(streams, tables)] if tables else []),
    )
