"""Aggregates over columns of several inputs, from aggregates of each input alone.

A joined row of sets stands for every pair of their rows. Over all pairs of n values a with m values
b, each of one input,

    Σ a·b = Σa · Σb        Σ (a + b) = m · Σa + n · Σb        count = n · m

and the variance of a sum and the covariance of both follow from the mean and the spread of each.
So where the argument is a product, a sum or a difference of one expression per input, each set
holds what there is to know of its own *factor*. Of whole numbers, whose product or sum may not fit
its type for some pair, a set holds the least and the greatest factor as well: they have met, so
what fails for a pair fails for one of these, and the other way round.

Conditions: two inputs (of doubles any number, in any nesting); factors that cannot fail by
themselves; ints, bigints or doubles; conditions of a FILTER over one input each. A filter over
another input than the argument is a factor of 1 where it holds. In all other cases the columns that
the aggregate reads tell rows apart in the sets, and it is computed above the join (``sets``).

Paper: Early Aggregation, Section 4, Definition 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce

from headrace.optimizer.early.aggregates import PAIRS, SPREADS
from headrace.optimizer.safety import can_raise
from headrace.plan.expressions import (
    AggregateCall,
    Call,
    Cast,
    Expr,
    Literal,
    conjunction,
    conjuncts,
)
from headrace.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, DataType

Owners = Callable[[Expr], frozenset[int]]

#: What a set may hold of its factor.
TOTAL, COUNT, LEAST, MOST, SPREAD = "total", "count", "least", "most", "spread"
_ONE = Literal(1, INT)
_COMPUTED = frozenset({"sum", "avg", "mean", "count"}) | SPREADS


@dataclass(frozen=True)
class Factored:
    """An aggregate as the factors that inputs contribute, in the order of ``inputs``.

    ``operator`` joins them: ``*``, ``+``, ``-``, or ``,`` for the two sides of a pair. ``corners``
    says that the operator may fail or go beyond what is finite, and that the least and greatest
    factors are needed to tell. ``type`` is that of the factors.
    """

    call: AggregateCall
    operator: str
    inputs: tuple[int, ...]
    factors: tuple[Expr, ...]
    type: DataType
    corners: bool

    def calls(self, factor: Expr) -> dict[str, AggregateCall]:
        """What the set of an input computes of its factor, which is given in its own columns."""
        function = self.call.function
        wide = Cast(factor, DOUBLE) if self.type != DOUBLE else factor
        calls: dict[str, AggregateCall] = {}
        if function in SPREADS | PAIRS:
            calls[SPREAD] = AggregateCall("var_pop", (wide,), DOUBLE)
        elif function != "count":
            summed = factor if function == "sum" else wide
            kind = BIGINT if summed.type.is_integer else DOUBLE
            calls[TOTAL] = AggregateCall("sum", (summed,), kind)
        if function in ("count", "avg", "mean") or (function == "sum" and self.operator != "*"):
            calls[COUNT] = AggregateCall("count", (factor,), BIGINT)
        if self.corners:
            calls[LEAST] = AggregateCall("min", (factor,), self.type)
            calls[MOST] = AggregateCall("max", (factor,), self.type)
        return calls


def factored(call: AggregateCall, owners: Owners) -> Factored | None:
    """An aggregate over several inputs as factors of each; None where it has no such form."""
    if call.distinct or len(owners(call)) < 2:
        return None
    split = _of_argument(call, owners)
    if split is None:
        return None
    operator, kind, unfiltered = split
    factors = _filtered(unfiltered, call.filter, owners, operator, kind)
    if factors is None or any(map(can_raise, factors.values())):
        return None
    if call.function in SPREADS | PAIRS and len(factors) != 2:
        return None
    typed = {i: f if f.type == kind else Cast(f, kind) for i, f in factors.items()}
    if any(can_raise(factor) for factor in typed.values()):
        return None
    several = len(unfiltered) > 1
    whole = several and operator != "," and kind.is_integer
    infinite = several and operator == "*" and call.function not in SPREADS | {"count"}
    inputs, values = tuple(typed), tuple(typed.values())
    return Factored(call, operator, inputs, values, kind, whole or infinite)


def _of_argument(
    call: AggregateCall, owners: Owners
) -> tuple[str, DataType, dict[int, Expr]] | None:
    """The operator, its type and the factors, before any are filtered."""
    if call.function in PAIRS:
        sides = _sides(call.arguments, owners)
        return None if sides is None else (",", DOUBLE, sides)
    if call.function not in _COMPUTED or len(call.arguments) > 1:
        return None
    if len(frozenset[int]().union(*map(owners, call.arguments))) < 2:
        return _of_one(call, owners)
    (argument,) = call.arguments
    if not isinstance(argument, Call) or argument.function not in ("*", "+", "-"):
        return None
    operator, kind = argument.function, argument.type
    if kind == DOUBLE:
        terms = _terms(argument, owners)
        return None if terms is None else ("+" if operator == "-" else operator, kind, terms)
    sides = _sides(argument.arguments, owners) if kind in (INT, BIGINT) else None
    return None if sides is None else (operator, kind, sides)


def _of_one(call: AggregateCall, owners: Owners) -> tuple[str, DataType, dict[int, Expr]] | None:
    """An argument over one input, or none: the others have but conditions of the filter."""
    if call.function == "count":
        counted: dict[int, Expr] = {
            owner: Call("case", (_not_null(argument), _ONE), INT)
            for argument in call.arguments
            for owner in owners(argument)
        }
        return "*", INT, counted
    (argument,) = call.arguments
    if not owners(argument) or argument.type not in (INT, BIGINT, DOUBLE):
        return None
    (owner,) = owners(argument)
    return "*", argument.type, {owner: argument}


def _not_null(value: Expr) -> Expr:
    return Call("not", (Call("isnull", (value,), BOOLEAN),), BOOLEAN)


def _sides(operands: Iterable[Expr], owners: Owners) -> dict[int, Expr] | None:
    """Two operands, each of which is of one input, and of another one."""
    sides: dict[int, Expr] = {}
    for operand in operands:
        if len(owners(operand)) != 1:
            return None
        (owner,) = owners(operand)
        if owner in sides:
            return None
        sides[owner] = operand
    return sides


def _terms(expr: Call, owners: Owners) -> dict[int, Expr] | None:
    """A product or a sum of doubles, its operands put together by input.

    Doubles are added and multiplied in another order then, as they are when they are summed up.
    """
    listed = list(_flat(expr, expr.function == "*", False))
    if any(len(owners(term)) > 1 for _, term in listed):
        return None
    constants = [term for term in listed if not owners(term[1])]
    by_owner: dict[int, list[tuple[bool, Expr]]] = {}
    for negative, term in listed:
        for owner in owners(term):
            by_owner.setdefault(owner, []).append((negative, term))
    if len(by_owner) < 2:
        return None
    by_owner[next(iter(by_owner))] += constants
    operator = "*" if expr.function == "*" else "+"
    return {owner: reduce(_joined(operator), terms, None) for owner, terms in by_owner.items()}  # type: ignore[misc]


def _flat(expr: Expr, product: bool, negative: bool) -> Iterable[tuple[bool, Expr]]:
    """The operands of a nested product or sum, with whether they are subtracted."""
    operators = ("*",) if product else ("+", "-")
    if isinstance(expr, Call) and expr.function in operators and expr.type == DOUBLE:
        left, right = expr.arguments
        yield from _flat(left, product, negative)
        yield from _flat(right, product, negative ^ (expr.function == "-"))
    else:
        yield negative, expr


def _joined(operator: str) -> Callable[[Expr | None, tuple[bool, Expr]], Expr]:
    def join(one: Expr | None, term: tuple[bool, Expr]) -> Expr:
        negative, other = term
        other = other if other.type == DOUBLE else Cast(other, DOUBLE)
        if one is None:
            return Call("negative", (other,), DOUBLE) if negative else other
        return Call("-" if negative else operator, (one, other), DOUBLE)

    return join


def _filtered(
    factors: dict[int, Expr],
    condition: Expr | None,
    owners: Owners,
    operator: str,
    kind: DataType,
) -> dict[int, Expr] | None:
    """The factors of rows that a filter lets in, NULL for others; None if it is over several.

    An input of which only the filter reads something is a factor of 1.
    """
    wanted: dict[int, list[Expr]] = {}
    for conjunct in conjuncts(condition):
        if len(owners(conjunct)) != 1:
            return None
        (owner,) = owners(conjunct)
        if owner not in factors and operator != "*":
            return None
        wanted.setdefault(owner, []).append(conjunct)
    filtered = dict(factors)
    for owner, conditions in wanted.items():
        condition = conjunction(conditions)
        assert condition is not None
        factor = factors.get(owner, _ONE if kind == INT else Cast(_ONE, kind))
        filtered[owner] = Call("case", (condition, factor), factor.type)
    return filtered
