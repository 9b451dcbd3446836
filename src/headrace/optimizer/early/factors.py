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
themselves; ints, bigints or doubles; conditions of a FILTER over one of these inputs each. In all
other cases the columns that the aggregate reads tell rows apart in the sets, and it is computed
above the join (``sets``).

Paper: Early Aggregation, Section 4, Definition 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce

from headrace.optimizer.early.aggregates import PAIRS, SPREADS
from headrace.optimizer.safety import can_raise
from headrace.plan.expressions import AggregateCall, Call, Cast, Expr, conjunction, conjuncts
from headrace.plan.types import BIGINT, DOUBLE, INT, DataType

Owners = Callable[[Expr], frozenset[int]]

#: What a set may hold of its factor.
TOTAL, COUNT, LEAST, MOST, SPREAD = "total", "count", "least", "most", "spread"
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
    if call.function in PAIRS:
        operator, factors, kind = ",", _sides(call.arguments, owners), DOUBLE
    elif call.function in _COMPUTED and len(call.arguments) == 1:
        argument = call.arguments[0]
        if not isinstance(argument, Call) or argument.function not in ("*", "+", "-"):
            return None
        operator, kind = argument.function, argument.type
        if kind == DOUBLE:
            factors = _terms(argument, owners)
            operator = "+" if operator == "-" else operator
        else:
            factors = _sides(argument.arguments, owners) if kind in (INT, BIGINT) else None
    else:
        return None
    if factors is None or (call.function in SPREADS | PAIRS and len(factors) != 2):
        return None
    factors = _filtered(factors, call.filter, owners)
    if factors is None or any(map(can_raise, factors.values())):
        return None
    whole = operator != "," and kind.is_integer
    typed = {i: f if f.type == kind else Cast(f, kind) for i, f in factors.items()}
    if any(can_raise(factor) for factor in typed.values()):
        return None
    corners = whole or (operator == "*" and call.function not in SPREADS | {"count"})
    return Factored(call, operator, tuple(typed), tuple(typed.values()), kind, corners)


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
    factors: dict[int, Expr], condition: Expr | None, owners: Owners
) -> dict[int, Expr] | None:
    """The factors of rows that a filter lets in, NULL for others; None if it is over several."""
    wanted: dict[int, list[Expr]] = {}
    for conjunct in conjuncts(condition):
        if len(owners(conjunct)) != 1 or not owners(conjunct) <= factors.keys():
            return None
        (owner,) = owners(conjunct)
        wanted.setdefault(owner, []).append(conjunct)
    filtered = dict(factors)
    for owner, conditions in wanted.items():
        condition = conjunction(conditions)
        assert condition is not None
        filtered[owner] = Call("case", (condition, factors[owner]), factors[owner].type)
    return filtered
