"""The algebra: the nodes that logical plans are made of.

Nodes are frozen and compare by value; a schema is derived, never stored twice. Two queries that
share a subplan hold equal nodes, and whoever walks the plans finds them by equality.

Column names: below a join they are the relation's own; a join qualifies the columns of a named
input with its alias (``a.ts``), so a predicate keeps its meaning wherever joins are reordered.

Paper: Window Join Reordering, Section 2.1, Section 2.2, Table 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

from headrace.errors import PlanError
from headrace.plan.expressions import AggregateCall, Column, Expr, Named
from headrace.plan.hashing import hashed_once
from headrace.plan.types import BOOLEAN, STRING, TIMESTAMP, WINDOW, Field, Schema
from headrace.plan.windows import Hopping, InheritedWindow, Landmark, Window
from headrace.redaction import shown_option

if TYPE_CHECKING:
    from headrace.plan.relabelling import Relabelling

WINDOW_COLUMN = "window"
WINDOW_ID_COLUMN = "window_id"
PROCESSING_TIME_COLUMN = "processing_time"


@dataclass(frozen=True)
class Node:
    """Base of plan nodes."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return self

    @cached_property
    def schema(self) -> Schema:
        raise NotImplementedError

    @cached_property
    def times_by_grid(self) -> dict[Hopping | None, dict[str, int]]:
        """What ``event_times`` has found of this node: a join asks its inputs several times, and so
        do they theirs."""
        return {}

    def walk(self) -> Iterator[Node]:
        """This node and all below it, outermost first; shared subplans come once per use."""
        yield self
        for child in self.inputs:
            yield from child.walk()

    def transform(self, change: Callable[[Node], Node]) -> Node:
        """Rebuild from the leaves up, each node passed through ``change``."""
        changed = tuple(child.transform(change) for child in self.inputs)
        return change(self if changed == self.inputs else self.with_inputs(changed))

    def streams(self) -> frozenset[str]:
        """Names of the streams that feed it."""
        return frozenset(n.stream for n in self.walk() if isinstance(n, Source))

    def __str__(self) -> str:
        from headrace.plan.text import plan_text

        return plan_text(self)


@hashed_once
@dataclass(frozen=True)
class Source(Node):
    """A stream, with the columns that are read from it.

    ``time`` is its event-time column; a processing-time stream has the column
    ``processing_time``, which holds the time recorded for the row's micro-batch. ``spelling`` is
    the stream's name as its user writes it, where that is not how it goes by inside.
    """

    stream: str
    columns: Schema
    time: str
    delay: int = 0
    ttl: int | None = None
    processing: bool = False
    spelling: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.time not in self.columns:
            raise PlanError(f"stream {self.shown!r} is read without its time column {self.time!r}")

    @property
    def shown(self) -> str:
        """The name that people see."""
        return self.spelling or self.stream

    @cached_property
    def schema(self) -> Schema:
        return self.columns


@hashed_once
@dataclass(frozen=True)
class Table(Node):
    """A static relation; ``spelling`` is as that of a stream."""

    table: str
    columns: Schema
    spelling: str = field(default="", compare=False)

    @property
    def shown(self) -> str:
        """The name that people see."""
        return self.spelling or self.table

    @cached_property
    def schema(self) -> Schema:
        return self.columns


@hashed_once
@dataclass(frozen=True)
class Filter(Node):
    """The rows for which the predicate is true."""

    input: Node
    predicate: Expr

    def __post_init__(self) -> None:
        _require(self.predicate, self.input, "a filter")
        if self.predicate.type != BOOLEAN:
            raise PlanError(
                f"a filter needs a condition, but {self.predicate} is {self.predicate.type}"
            )

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return Filter(inputs[0], self.predicate)

    @cached_property
    def schema(self) -> Schema:
        return self.input.schema


@hashed_once
@dataclass(frozen=True)
class Project(Node):
    """New columns from old, row by row."""

    input: Node
    columns: tuple[Named, ...]

    def __post_init__(self) -> None:
        for column in self.columns:
            _require(column.expr, self.input, "a projection")

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return Project(inputs[0], self.columns)

    @cached_property
    def schema(self) -> Schema:
        return Schema(tuple(Field(c.name, c.expr.type) for c in self.columns))


@dataclass(frozen=True)
class InputWindow:
    """The window of one input of a join, by its time column."""

    time: Column
    window: Window


@hashed_once
@dataclass(frozen=True)
class Aggregate(Node):
    """Groups per window. Several windows may be computed at once (``windows(...)`` in SQL).

    The output is the keys, ``window``, ``window_id`` where there are several windows, and the
    aggregates; a landmark has no window column. ``time`` is the column that windows are made of:
    an event-time column, or for a Given window the window column itself. ``sharing`` forces how
    its windows share work ('none', 'windows' or 'factors'); empty leaves that to the planner.
    ``early`` says that it is computed from sets that are aggregated below its joins: of the inputs
    that the planner chooses ('auto'), or of those named ('a, b', or 'none'); 'late' forbids it.
    ``also`` are windows of the other inputs of the join below it, where each input has its own;
    ``output`` says whether what comes out of these is joined 'anew' with each step of the watermark
    or 'incremental', kept up to date; empty leaves that to the planner.
    """

    input: Node
    keys: tuple[Named, ...]
    time: Column
    windows: tuple[Window, ...]
    aggregates: tuple[Named, ...]
    sharing: str = ""
    early: str = ""
    also: tuple[InputWindow, ...] = ()
    output: str = ""

    def __post_init__(self) -> None:
        if not self.windows:
            raise PlanError("an aggregate over a stream needs a window")
        if len(self.windows) > 1 and not all(isinstance(w, Hopping) for w in self.windows):
            raise PlanError("only tumbling and hopping windows can be computed together")
        if len(set(self.windows)) != len(self.windows):
            raise PlanError("the same window is asked for twice")
        _require(self.time, self.input, "an aggregate")
        wanted = WINDOW if isinstance(self.windows[0], InheritedWindow) else TIMESTAMP
        if self.time.type != wanted:
            raise PlanError(
                f"windows are made of a {wanted}, but {self.time.name} is {self.time.type}"
            )
        for named in self.keys + self.aggregates:
            _require(named.expr, self.input, "an aggregate")
        for named in self.aggregates:
            if not isinstance(named.expr, AggregateCall):
                raise PlanError(f"{named.expr} is not an aggregate")

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return replace(self, input=inputs[0])

    @property
    def from_sets(self) -> bool:
        """Whether it is computed from sets of the inputs of its join, and not from joined rows."""
        return self.early not in ("", "late") or bool(self.also)

    @property
    def has_window_column(self) -> bool:
        return not isinstance(self.windows[0], Landmark)

    @cached_property
    def schema(self) -> Schema:
        fields = [Field(k.name, k.expr.type) for k in self.keys]
        if self.has_window_column:
            fields.append(Field(WINDOW_COLUMN, WINDOW))
        if len(self.windows) > 1:
            fields.append(Field(WINDOW_ID_COLUMN, STRING))
        fields += [Field(a.name, a.expr.type) for a in self.aggregates]
        return Schema(tuple(fields))


class JoinKind(Enum):
    """Which rows without a partner come out."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"

    @property
    def keeps_left(self) -> bool:
        return self in (JoinKind.LEFT, JoinKind.FULL)

    @property
    def keeps_right(self) -> bool:
        return self in (JoinKind.RIGHT, JoinKind.FULL)


@dataclass(frozen=True)
class JoinTime:
    """Base of the time conditions of a join; the columns carry qualified names."""

    left: Column
    right: Column


@dataclass(frozen=True)
class SameWindow(JoinTime):
    """At least one window of the set holds both rows (sliding and tumbling window joins)."""

    window: Hopping


@dataclass(frozen=True)
class IntervalBound(JoinTime):
    """``right`` between ``left + lower`` and ``left + upper``, inclusive; None is unbounded."""

    lower: int | None
    upper: int | None

    def __post_init__(self) -> None:
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise PlanError(
                f"an interval join from {self.lower} ms to {self.upper} ms can match nothing",
                hint="the lower bound must not exceed the upper bound",
            )


@dataclass(frozen=True)
class SameSession(JoinTime):
    """Both rows are in one session of their key, over both inputs together."""

    gap: int


#: An order of joins: the position of an input, or a pair of orders that are joined.
Order = int | tuple["Order", "Order"]


@hashed_once
@dataclass(frozen=True)
class Join(Node):
    """A join of two relations on equal keys, a condition on time, and a residual predicate.

    ``time`` is None for a state-based join, and for a join with a static table.
    ``emits_window`` says that ``window`` is selected: a pair then comes out once per common
    window instead of once. ``also`` are further conditions on time, which only joins in another
    order than the one written need. ``order`` forces the order of this join and the inner joins
    below it, as pairs of positions of their inputs (see ``join_graph``); None leaves it to the
    planner.
    """

    left: Node
    right: Node
    kind: JoinKind
    left_alias: str | None
    right_alias: str | None
    keys: tuple[tuple[Expr, Expr], ...]
    time: JoinTime | None = None
    residual: Expr | None = None
    emits_window: bool = False
    also: tuple[JoinTime, ...] = ()
    order: tuple[Order, Order] | None = None

    def __post_init__(self) -> None:
        both = self.schema.names
        for left, right in self.keys:
            _require_columns(left, self.left_schema.names, "the left side of a join")
            _require_columns(right, self.right_schema.names, "the right side of a join")
        for time in self.times:
            _require_columns(time.left, self.left_schema.names, "a join's time on the left")
            _require_columns(time.right, self.right_schema.names, "a join's time on the right")
        if self.residual is not None:
            _require_columns(self.residual, both, "a join's condition")

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        left, right = inputs
        return replace(self, left=left, right=right)

    @property
    def times(self) -> tuple[JoinTime, ...]:
        """All conditions on time."""
        return (*(() if self.time is None else (self.time,)), *self.also)

    @cached_property
    def left_schema(self) -> Schema:
        """The left input's columns as the join names them."""
        return qualified(self.left.schema, self.left_alias)

    @cached_property
    def right_schema(self) -> Schema:
        """The right input's columns as the join names them."""
        return qualified(self.right.schema, self.right_alias)

    @cached_property
    def schema(self) -> Schema:
        fields = self.left_schema.fields + self.right_schema.fields
        if self.emits_window:
            fields += (Field(WINDOW_COLUMN, WINDOW),)
        return Schema(fields)


@hashed_once
@dataclass(frozen=True)
class Union(Node):
    """All rows of all inputs, columns matched by position and named by the first input."""

    parts: tuple[Node, ...]

    def __post_init__(self) -> None:
        first = self.parts[0].schema
        for part in self.parts[1:]:
            if len(part.schema) != len(first):
                raise PlanError(
                    f"UNION ALL of {len(first)} and {len(part.schema)} columns",
                    hint="select the same number of columns on each side",
                )
            for ours, theirs in zip(first, part.schema, strict=True):
                if ours.type != theirs.type:
                    raise PlanError(
                        f"UNION ALL of {ours.name} ({ours.type}) and {theirs.name} ({theirs.type})",
                        hint="cast one side so that the types agree",
                    )

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return Union(inputs)

    @cached_property
    def schema(self) -> Schema:
        return self.parts[0].schema


class OutputMode(Enum):
    """When a result comes out: once it is final, or whenever it changed."""

    APPEND = "append"
    UPDATE = "update"


@hashed_once
@dataclass(frozen=True)
class Sink(Node):
    """Where a query's rows go. ``options`` are sorted, so that equal sinks compare equal."""

    input: Node
    name: str
    format: str
    mode: OutputMode
    options: tuple[tuple[str, str], ...] = ()

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        return replace(self, input=inputs[0])

    @cached_property
    def schema(self) -> Schema:
        return self.input.schema

    @cached_property
    def relabelling(self) -> Relabelling:
        """What computes the rows, and how this query calls their columns."""
        from headrace.plan.relabelling import relabelling

        return relabelling(self.input)

    def __repr__(self) -> str:
        options = tuple((key, shown_option(key, value)) for key, value in self.options)
        return (
            f"Sink(input={self.input!r}, name={self.name!r}, format={self.format!r}, "
            f"mode={self.mode!r}, options={options!r})"
        )


def qualified(schema: Schema, alias: str | None) -> Schema:
    """The schema with ``alias.`` before each name; unchanged where there is no alias."""
    if alias is None:
        return schema
    return Schema(tuple(Field(f"{alias}.{f.name}", f.type) for f in schema))


def _require(expr: Expr, node: Node, what: str) -> None:
    _require_columns(expr, node.schema.names, what)


def _require_columns(expr: Expr, names: tuple[str, ...], what: str) -> None:
    missing = sorted(expr.columns() - set(names))
    if missing:
        raise PlanError(
            f"{what} reads {', '.join(missing)}, which its input does not have",
            hint=f"the columns are {', '.join(names)}",
        )
