"""Typed scalar and aggregate expressions: frozen, value-equal, free of Spark and of SQL text.

Operators and functions are one kind, :class:`Call`, named as Spark names its functions, so a rule
that treats ``a + b`` and ``upper(a)`` alike needs one case. The operators have the names listed in
``OPERATORS``; every other name is a Spark function that is passed through.
"""

from __future__ import annotations

import datetime
import decimal as decimal_module
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headrace.plan.hashing import hashed_once
from headrace.plan.types import BOOLEAN, TIMESTAMP, DataType

LiteralValue = (
    None
    | bool
    | int
    | float
    | str
    | bytes
    | decimal_module.Decimal
    | datetime.date
    | datetime.datetime
)

#: Operator names of :class:`Call`, with their SQL spelling. ``case`` holds condition, value,
#: condition, value, …, default; ``in`` the value and then the list; ``field`` a struct and the
#: field's name; ``item`` an array or map and the index.
OPERATORS = {
    "+": "+",
    "-": "-",
    "*": "*",
    "/": "/",
    "%": "%",
    "div": "DIV",
    "negative": "-",
    "=": "=",
    "<=>": "<=>",
    "!=": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "and": "AND",
    "or": "OR",
    "not": "NOT",
    "||": "||",
    "&": "&",
    "|": "|",
    "^": "^",
    "~": "~",
    "like": "LIKE",
    "ilike": "ILIKE",
    "rlike": "RLIKE",
    "isnull": "IS NULL",
    "in": "IN",
    "case": "CASE",
    "field": ".",
    "item": "[]",
}

COMPARISONS = frozenset({"=", "<=>", "!=", "<", "<=", ">", ">="})


@dataclass(frozen=True)
class Expr:
    """Base of expressions; ``type`` is known for each."""

    @property
    def type(self) -> DataType:
        raise NotImplementedError

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return self

    def walk(self) -> Iterator[Expr]:
        """This expression and all below it, outermost first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def columns(self) -> frozenset[str]:
        """Names of the input columns it reads."""
        return frozenset(e.name for e in self.walk() if isinstance(e, Column))

    def transform(self, change: Callable[[Expr], Expr]) -> Expr:
        """Rebuild from the leaves up, each node passed through ``change``."""
        children = self.children
        changed = tuple(child.transform(change) for child in children)
        return change(self if changed == children else self.with_children(changed))

    def __str__(self) -> str:
        from headrace.plan.text import expression_text

        return expression_text(self)


@hashed_once
@dataclass(frozen=True)
class Column(Expr):
    """A column of the input, by name. Above a join the name is qualified: ``a.ts``."""

    name: str
    data_type: DataType

    @property
    def type(self) -> DataType:
        return self.data_type


@dataclass(frozen=True)
class Literal(Expr):
    """A constant. Intervals hold their SQL text, such as ``5 minutes``."""

    value: LiteralValue
    data_type: DataType

    @property
    def type(self) -> DataType:
        return self.data_type

    def __eq__(self, other: object) -> bool:
        # In Python 0.0 equals -0.0; in SQL a sum, a quotient and a text tell them apart.
        if not isinstance(other, Literal) or self.data_type != other.data_type:
            return False
        return self._exactly == other._exactly

    def __hash__(self) -> int:
        return hash((self._exactly, self.data_type))

    @property
    def _exactly(self) -> LiteralValue:
        return repr(self.value) if isinstance(self.value, float) else self.value


@hashed_once
@dataclass(frozen=True)
class Call(Expr):
    """An operator or a Spark scalar function."""

    function: str
    arguments: tuple[Expr, ...]
    data_type: DataType

    @property
    def type(self) -> DataType:
        return self.data_type

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.arguments

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Call(self.function, children, self.data_type)


@hashed_once
@dataclass(frozen=True)
class Cast(Expr):
    """``CAST``, or ``TRY_CAST`` when ``safe``."""

    argument: Expr
    data_type: DataType
    safe: bool = False

    @property
    def type(self) -> DataType:
        return self.data_type

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.argument,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Cast(children[0], self.data_type, self.safe)


@hashed_once
@dataclass(frozen=True)
class AggregateCall(Expr):
    """An aggregate function; stands only in the aggregates of an Aggregate node.

    ``count`` without arguments is ``COUNT(*)``.
    """

    function: str
    arguments: tuple[Expr, ...]
    data_type: DataType
    distinct: bool = False
    filter: Expr | None = None

    @property
    def type(self) -> DataType:
        return self.data_type

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.arguments + ((self.filter,) if self.filter is not None else ())

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        split = len(self.arguments)
        return AggregateCall(
            self.function,
            children[:split],
            self.data_type,
            self.distinct,
            children[split] if self.filter is not None else None,
        )


@hashed_once
@dataclass(frozen=True)
class Named:
    """An expression and the column name it gets."""

    name: str
    expr: Expr

    def __str__(self) -> str:
        if isinstance(self.expr, Column) and self.expr.name == self.name:
            return self.name
        return f"{self.expr} AS {self.name}"


def conjunction(predicates: list[Expr]) -> Expr | None:
    """All of these, or nothing where there is none."""
    if not predicates:
        return None
    result = predicates[0]
    for predicate in predicates[1:]:
        result = Call("and", (result, predicate), BOOLEAN)
    return result


def conjuncts(predicate: Expr | None) -> list[Expr]:
    """The parts of a predicate that AND joins."""
    if predicate is None:
        return []
    if isinstance(predicate, Call) and predicate.function == "and":
        return [part for argument in predicate.arguments for part in conjuncts(argument)]
    return [predicate]


def without_casts(expr: Expr) -> Expr:
    """What is cast, where something is."""
    while isinstance(expr, Cast):
        expr = expr.argument
    return expr


def window_time(window: Expr) -> Expr:
    """A window's last instant, the event time of what is computed from it."""
    return Call("window_time", (window,), TIMESTAMP)
