"""The steps that generated queries are made of, and the forms in which each can be written.

A step adds an operator or two to a plan. Its forms mean the same: ``a > b`` and ``b - 3 < a - 3``,
or two filters in either order. They are the rewrite rules of the query-merging paper's generator;
windows have one form only, since plans hold them in milliseconds.

Paper: Query Merging, Section 8.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from random import Random
from typing import TypeVar

from benchmarks.merging.query_set_plans import (
    MIRRORED,
    TIMES,
    aggregated,
    arithmetic,
    attribute,
    comparison,
    constant,
    joined,
    mapped,
    projected,
)
from headrace.plan.expressions import Expr
from headrace.plan.nodes import Filter, Node, Source, Union
from headrace.plan.windows import Hopping

#: What windows are made of: a stream has one event time, and windows of another never close.
TIME = TIMES[0]
#: Figures that columns are shifted by.
SMALL = range(1, 11)

_T = TypeVar("_T")


def shuffled(items: Sequence[_T], chance: Random) -> list[_T]:
    return chance.sample(items, len(items))


@dataclass(frozen=True)
class Step:
    """A part of a query; ``written`` adds it to a plan, in one of its forms."""

    def written(self, node: Node, chance: Random) -> Node:
        raise NotImplementedError


@dataclass(frozen=True)
class Bounds(Step):
    """Filters by constants, in any order."""

    bounds: tuple[tuple[str, str, int], ...]

    def written(self, node: Node, chance: Random) -> Node:
        for name, operator, figure in shuffled(self.bounds, chance):
            node = Filter(node, comparison(operator, attribute(node, name), constant(figure)))
        return node


@dataclass(frozen=True)
class Compare(Step):
    """A filter by two columns, in either order; ``shifted`` by some figure on both sides."""

    left: str
    operator: str
    right: str
    shifted: bool

    def written(self, node: Node, chance: Random) -> Node:
        left: Expr = attribute(node, self.left)
        right: Expr = attribute(node, self.right)
        if self.shifted:
            shift, figure = chance.choice("+-*"), constant(chance.choice(SMALL))
            left, right = arithmetic(shift, left, figure), arithmetic(shift, right, figure)
        if chance.random() < 0.5:
            return Filter(node, comparison(MIRRORED[self.operator], right, left))
        return Filter(node, comparison(self.operator, left, right))


@dataclass(frozen=True)
class Tenfold(Step):
    """A column times ten, and a bound between two multiples of ten: 31 to 38 are all alike."""

    name: str

    def written(self, node: Node, chance: Random) -> Node:
        column = attribute(node, self.name)
        node = mapped(node, self.name, arithmetic("*", constant(10), column))
        return Filter(node, comparison("<", column, constant(chance.randint(31, 38))))


@dataclass(frozen=True)
class Assign(Step):
    """A column that is set to a figure, which a filter then adds: by the column, or as it is."""

    target: str
    figure: int
    left: str
    operator: str
    right: str

    def written(self, node: Node, chance: Random) -> Node:
        node = mapped(node, self.target, constant(self.figure))
        added = chance.choice((constant(self.figure), attribute(node, self.target)))
        right = arithmetic("+", attribute(node, self.right), added)
        return Filter(node, comparison(self.operator, attribute(node, self.left), right))


@dataclass(frozen=True)
class Combine(Step):
    """A column that becomes the sum or product of several, in any order."""

    target: str
    operator: str
    operands: tuple[str, ...]

    def written(self, node: Node, chance: Random) -> Node:
        columns: list[Expr] = [attribute(node, n) for n in shuffled(self.operands, chance)]
        value = reduce(lambda left, right: arithmetic(self.operator, left, right), columns)
        return mapped(node, self.target, value)


@dataclass(frozen=True)
class Shift(Step):
    """Columns that are each changed by a figure, in any order."""

    shifts: tuple[tuple[str, str, int], ...]

    def written(self, node: Node, chance: Random) -> Node:
        for name, operator, figure in shuffled(self.shifts, chance):
            value = arithmetic(operator, attribute(node, name), constant(figure))
            node = mapped(node, name, value)
        return node


@dataclass(frozen=True)
class Compute(Step):
    """A column that is computed from a figure and another one; it has a single form."""

    target: str
    figure: int
    operator: str
    operand: str

    def written(self, node: Node, chance: Random) -> Node:
        value = arithmetic(self.operator, constant(self.figure), attribute(node, self.operand))
        return mapped(node, self.target, value)


@dataclass(frozen=True)
class Keep(Step):
    """A projection, with the names that columns get; it has a single form."""

    columns: tuple[tuple[str, str], ...]

    def written(self, node: Node, chance: Random) -> Node:
        return projected(node, self.columns)


@dataclass(frozen=True)
class UnionWith(Step):
    """A union with a stream; it has a single form."""

    other: Source

    def written(self, node: Node, chance: Random) -> Node:
        return Union((node, self.other))


@dataclass(frozen=True)
class JoinWith(Step):
    """A window join with a stream, on either side."""

    other: Source
    keys: tuple[str, str]
    window: Hopping

    def written(self, node: Node, chance: Random) -> Node:
        mine, theirs = self.keys
        if chance.random() < 0.5:
            return joined(self.other, node, (theirs, mine), TIME, self.window)
        return joined(node, self.other, (mine, theirs), TIME, self.window)


@dataclass(frozen=True)
class AggregateOver(Step):
    """An aggregate per window; it has a single form."""

    window: Hopping
    function: str
    argument: str
    key: str | None
    alias: str | None

    def written(self, node: Node, chance: Random) -> Node:
        return aggregated(
            node, TIME, self.window, self.function, self.argument, self.key, self.alias
        )
