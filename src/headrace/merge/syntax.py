"""How a plan is written: what the strategies that do not look at meaning compare.

``literal`` is the hash-based signature (HB): an operator's own text over those of its inputs.
``sorted`` is the improved one (HB+): operands, the sides of comparisons and the sides of joins are
put in alphabetical order first, where that changes no result. ``same_structure`` compares operator
graphs node by node (SA).

Paper: Query Merging, Section 6.3, Section 8.1.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace

from headrace.optimizer.safety import raises_itself
from headrace.plan.expressions import Call, Column, Expr, Literal
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
    Sink,
    Source,
)

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_SUMS = frozenset({"+", "*"})
_ARITHMETIC = _SUMS | {"-", "negative"}
_CONDITIONS = frozenset({"and", "or"})


class Syntax:
    """Numbers for the ways in which operators are written.

    ``unbounded`` sorts sums as if nothing ever overflowed.
    """

    def __init__(self, sort: bool, unbounded: bool = False) -> None:
        self._form = _Sorted(unbounded).form if sort else _literal_form
        self._numbers: dict[Hashable, int] = {}

    def keys(self, plan: Node) -> dict[int, int]:
        """A number for every operator of a plan, by the operator's identity."""
        numbers: dict[int, int] = {}

        def visit(node: Node) -> int:
            number = numbers.get(id(node))
            if number is None:
                below = [visit(child) for child in node.inputs]
                if isinstance(node, Sink):
                    number = below[0]
                else:
                    form = self._form(node, below)
                    number = self._numbers.setdefault(form, len(self._numbers))
                numbers[id(node)] = number
            return number

        visit(plan)
        return numbers


def own_fields(node: Node, without: str | None = None) -> tuple[Hashable, ...]:
    """What an operator says itself, without its inputs."""
    return (
        type(node).__name__,
        *(
            value
            for field in fields(node)
            if not isinstance(value := getattr(node, field.name), Node)
            and field.name not in ("parts", without)
        ),
    )


def _literal_form(node: Node, below: Sequence[int]) -> Hashable:
    return own_fields(node), tuple(below)


@dataclass(frozen=True)
class _Sorted:
    """Operators with everything in alphabetical order that may stand in any."""

    unbounded: bool

    def form(self, node: Node, below: Sequence[int]) -> Hashable:
        match node:
            case Filter():
                return "filter", self.text(node.predicate), below[0]
            case Project():
                return "project", tuple((c.name, self.text(c.expr)) for c in node.columns), below[0]
            case Aggregate():
                keys = tuple((key.name, self.text(key.expr)) for key in node.keys)
                return "aggregate", keys, own_fields(node, without="keys"), below[0]
            case Join(kind=JoinKind.INNER, residual=None, emits_window=False, order=None) if (
                len(node.times) <= 1
            ):
                return self._join(node, below)
            case _:
                return _literal_form(node, below)

    def _join(self, node: Join, below: Sequence[int]) -> Hashable:
        """The sides in order, each with its alias, its keys and its time."""
        sides = [
            (
                below[index],
                alias or "",
                tuple(self.text(pair[index]) for pair in node.keys),
                tuple((time.left, time.right)[index].name for time in node.times),
            )
            for index, alias in enumerate((node.left_alias, node.right_alias))
        ]
        times = node.times
        if sides[1] < sides[0]:
            sides.reverse()
            times = tuple(map(_mirrored_time, times))
        return "join", tuple(sides), tuple(map(_condition, times))

    def text(self, expr: Expr) -> str:
        """An expression with its operands in alphabetical order."""
        if isinstance(expr, Column):
            return expr.name
        if isinstance(expr, Literal):
            return f"{expr.value!r}:{expr.type}"
        if isinstance(expr, Call):
            if self._is_chain(expr):
                parts = sorted(self._operands(expr, expr.function))
                return f"({f' {expr.function} '.join(parts)})"
            parts = [self.text(argument) for argument in expr.arguments]
            if expr.function in _FLIPPED and len(parts) == 2:
                left, right = parts
                if right < left and not self._raises(expr) and self._in_any_order(expr):
                    return f"({right} {_FLIPPED[expr.function]} {left})"
                return f"({left} {expr.function} {right})"
            if expr.function in _SUMS and self._in_any_order(expr):
                # Two operands may change places, also where three would round otherwise.
                parts.sort()
            return f"{expr.function}({', '.join(parts)}):{expr.type}"
        return repr(expr)

    def _is_chain(self, expr: Call) -> bool:
        """Whether the operands of nested calls may stand in any order."""
        if expr.function in _SUMS:
            return expr.type.is_integer and self.unbounded
        # One that comes first may keep rows away from one that raises.
        return expr.function in _CONDITIONS and not any(map(self._raises, expr.walk()))

    def _in_any_order(self, expr: Call) -> bool:
        """Whether it does not matter which operand is computed first (``Terms.in_any_order``)."""
        raising = any(self._raises(part) for operand in expr.arguments for part in operand.walk())
        return not raising or any(
            isinstance(operand, Literal) and operand.value is not None for operand in expr.arguments
        )

    def _raises(self, expr: Expr) -> bool:
        overflows = isinstance(expr, Call) and expr.function in _ARITHMETIC and expr.type.is_integer
        return raises_itself(expr) and not (self.unbounded and overflows)

    def _operands(self, expr: Expr, function: str) -> list[str]:
        """The operands of a chain of one and the same operator."""
        if isinstance(expr, Call) and expr.function == function:
            return [part for inner in expr.arguments for part in self._operands(inner, function)]
        return [self.text(expr)]


def _condition(time: JoinTime) -> Hashable:
    """What a condition says, whatever columns it is about."""
    rest = (f.name for f in fields(time) if f.name not in ("left", "right"))
    return (type(time).__name__, *(getattr(time, name) for name in rest))


def _mirrored_time(time: JoinTime) -> JoinTime:
    """The same condition, told from the other side."""
    if isinstance(time, IntervalBound):
        lower, upper = (None if b is None else -b for b in (time.upper, time.lower))
        return IntervalBound(time.right, time.left, lower, upper)
    return replace(time, left=time.right, right=time.left)


def same_structure(one: Node, other: Node) -> bool:
    """Whether two plans are the same graph of the same operators; inputs may be exchanged."""
    if one is other:
        return True
    if isinstance(one, Sink) and isinstance(other, Sink):
        return same_structure(one.input, other.input)
    if type(one) is not type(other) or len(one.inputs) != len(other.inputs):
        return False
    if isinstance(one, Source) or not isinstance(one, Join):
        return own_fields(one) == own_fields(other) and all(
            same_structure(a, b) for a, b in zip(one.inputs, other.inputs, strict=True)
        )
    assert isinstance(other, Join)
    if own_fields(one) == own_fields(other):
        return same_structure(one.left, other.left) and same_structure(one.right, other.right)
    return (
        own_fields(one) == own_fields(_mirrored(other))
        and same_structure(one.left, other.right)
        and same_structure(one.right, other.left)
    )


def _mirrored(node: Join) -> Join:
    """An inner join with its sides exchanged, where that is but another way to write it."""
    time = node.time
    if node.kind is not JoinKind.INNER or node.also or not isinstance(time, SameWindow):
        return node
    return replace(
        node,
        left=node.right,
        right=node.left,
        left_alias=node.right_alias,
        right_alias=node.left_alias,
        keys=tuple((b, a) for a, b in node.keys),
        time=_mirrored_time(time),
    )
