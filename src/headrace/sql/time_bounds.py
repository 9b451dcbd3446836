"""Bounds on the difference of two times, in any shape that users write them.

``b.ts >= a.ts - INTERVAL 5 MINUTES``, ``a.ts + INTERVAL 1 HOUR > b.ts`` and
``b.ts - a.ts <= INTERVAL 10 SECONDS`` are all linear in the times: each is brought to
``right - left <= bound`` or ``>=``. Bounds are whole milliseconds and inclusive. A comparison
that says more (a strict one, or microseconds) keeps its place as a predicate besides.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plan.expressions import Call, Column, Expr, Literal
from headrace.plan.types import INTERVAL, TIMESTAMP
from headrace.sql.literals import interval_microseconds


@dataclass(frozen=True)
class Bound:
    """``right - left`` within ``[lower, upper]`` milliseconds, from one comparison.

    ``exact`` says that the bound is all that the comparison says.
    """

    left: Expr
    right: Expr
    lower: int | None
    upper: int | None
    exact: bool


@dataclass(frozen=True)
class _Linear:
    """A sum of times, each with a factor, and a constant in microseconds."""

    factors: tuple[tuple[Expr, int], ...]
    constant: int

    def plus(self, other: _Linear, sign: int) -> _Linear:
        total = dict(self.factors)
        for atom, factor in other.factors:
            total[atom] = total.get(atom, 0) + sign * factor
        factors = tuple((atom, factor) for atom, factor in total.items() if factor)
        return _Linear(factors, self.constant + sign * other.constant)


def time_bound(predicate: Expr, left: frozenset[str], right: frozenset[str]) -> Bound | None:
    """The bound that a comparison sets between a time of the left and one of the right side.

    ``left`` and ``right`` are the event-time columns of the two sides.
    """
    if not isinstance(predicate, Call) or predicate.function not in ("=", "<", "<=", ">", ">="):
        return None
    first, second = _linear(predicate.arguments[0]), _linear(predicate.arguments[1])
    if first is None or second is None:
        return None
    difference = first.plus(second, -1)
    of_left = [pair for pair in difference.factors if _column(pair[0]) in left]
    of_right = [pair for pair in difference.factors if _column(pair[0]) in right]
    if len(difference.factors) != 2 or len(of_left) != 1 or len(of_right) != 1:
        return None
    (left_atom, left_factor), (right_atom, right_factor) = of_left[0], of_right[0]
    if (left_factor, right_factor) not in ((-1, 1), (1, -1)):
        return None
    operator, limit = predicate.function, -difference.constant
    if right_factor < 0:
        operator = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(operator, operator)
        limit = -limit
    whole = limit % 1_000 == 0
    # Floor and ceiling only widen; the predicate that stays makes up for it.
    lower = limit // 1_000 if operator in (">", ">=", "=") else None
    upper = -(-limit // 1_000) if operator in ("<", "<=", "=") else None
    return Bound(left_atom, right_atom, lower, upper, whole and operator in ("<=", ">=", "="))


def _column(atom: Expr) -> str | None:
    if isinstance(atom, Column):
        return atom.name
    inner = atom.children[0] if atom.children else None
    return inner.name if isinstance(inner, Column) else None


def _linear(expr: Expr) -> _Linear | None:
    match expr:
        case Column() if expr.type == TIMESTAMP:
            return _Linear(((expr, 1),), 0)
        case Call(function="window_time"):
            return _Linear(((expr, 1),), 0)
        case Literal() if expr.type == INTERVAL:
            return _Linear((), interval_microseconds(expr))
        case Call(function="+" | "-" as operator, arguments=(first, second)):
            one, other = _linear(first), _linear(second)
            if one is None or other is None:
                return None
            return one.plus(other, 1 if operator == "+" else -1)
        case Call(function="negative", arguments=(argument,)):
            inner = _linear(argument)
            return None if inner is None else _Linear((), 0).plus(inner, -1)
        case _:
            return None
