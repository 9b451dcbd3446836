"""Bounds of one and the same value, drawn together: what a conjunction says of it, in the fewest
conditions.

Values that have a next one (sums of whole numbers, decimals, dates, timestamps) lie between two
whole numbers, those that have not (doubles, texts) between two constants that may or may not be
among them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from headrace.merge.comparisons import is_ordered
from headrace.merge.constants import place
from headrace.merge.polynomials import ONE, Items, at_most_zero, constant_and_body, is_zero
from headrace.merge.terms import Terms

#: A comparison of a sum with zero: operator, sign of the sum, constant, and its number.
_Linear = tuple[str, int, int, int]


class Bounds:
    """Tightens conjunctions."""

    def __init__(self, terms: Terms, true: int, false: int) -> None:
        self._terms = terms
        self._true = true
        self._false = false

    def tightened(self, parts: frozenset[int]) -> frozenset[int]:
        """The same conjunction with as few bounds as say it."""
        forms = self._terms.forms
        sums: dict[Items, list[_Linear]] = {}
        ordered: dict[tuple[object, int], list[int]] = {}
        for part in parts:
            form = forms[part]
            if form[0] == "linear":
                constant, body = constant_and_body(form[2])
                sign = 1 if body[0][1] > 0 else -1
                if sign < 0:
                    body = tuple((m, -c) for m, c in body)
                sums.setdefault(body, []).append((form[1], sign, constant, part))
            elif form[0] == "compare" and is_ordered(form[2]) and self._terms.is_constant(form[4]):
                ordered.setdefault((form[2], form[3]), []).append(part)
        result = set(parts)
        for body, bounds in sums.items():
            if len(bounds) > 1:
                result -= {part for *_, part in bounds}
                result |= self._interval(body, bounds)
        for comparisons in ordered.values():
            if len(comparisons) > 1:
                result -= set(comparisons)
                result |= self._between(comparisons)
        return frozenset(result)

    # Values that have a next one

    def _interval(self, body: Items, bounds: list[_Linear]) -> set[int]:
        """``body`` between bounds, without some values, in the fewest conditions."""
        low: int | None = None
        high: int | None = None
        excluded = set()
        for op, sign, constant, _ in bounds:
            # sign * body + constant (op) 0
            value = -constant * sign
            if op == "!=":
                excluded.add(value)
                continue
            if op == "=" or sign > 0:
                high = value if high is None else min(high, value)
            if op == "=" or sign < 0:
                low = value if low is None else max(low, value)
        while low is not None and low in excluded:
            low += 1
        while high is not None and high in excluded:
            high -= 1
        if low is not None and high is not None and low > high:
            # Nothing can be true; the other conditions stay, to tell such queries apart.
            return {self._false, *(part for *_, part in bounds)}
        conditions = set()
        if low is not None and low == high:
            conditions.add(self._bound("=", body, 1, low))
        else:
            if low is not None:
                conditions.add(self._bound("<=", body, -1, low))
            if high is not None:
                conditions.add(self._bound("<=", body, 1, high))
        for value in excluded:
            if (low is None or value > low) and (high is None or value < high):
                conditions.add(self._bound("!=", body, 1, value))
        return conditions

    def _bound(self, op: str, body: Items, sign: int, value: int) -> int:
        polynomial = {m: sign * c for m, c in body}
        polynomial[ONE] = -sign * value
        items = at_most_zero(polynomial) if op == "<=" else is_zero(polynomial)
        if isinstance(items, bool):
            return self._true if items else self._false
        return self._terms.intern(("linear", op, items, frozenset()))

    # Values that have not

    def _between(self, comparisons: list[int]) -> set[int]:
        """The comparisons of one value with constants that the others do not imply."""
        bounds = [self._placed(comparison) for comparison in sorted(comparisons)]
        if any(bound is None for bound in bounds):
            return set(comparisons)
        placed = [bound for bound in bounds if bound is not None]
        low = max((b for b in placed if b.op in (">", ">=", "=")), key=_from_below, default=None)
        high = min((b for b in placed if b.op in ("<", "<=", "=")), key=_from_above, default=None)
        excluded = {b.place: b for b in placed if b.op == "!="}
        if low is not None and high is not None and _is_empty(low, high, excluded):
            return {self._false, *comparisons}
        low, high = self._open(low, excluded, ">"), self._open(high, excluded, "<")
        if low is not None and high is not None and low.place == high.place:
            return {self._with("=", low)}
        conditions = {bound.number for bound in (low, high) if bound is not None}
        for bound in excluded.values():
            above = low is None or bound.place > low.place
            below = high is None or bound.place < high.place
            if above and below:
                conditions.add(bound.number)
        return conditions

    def _placed(self, comparison: int) -> _Placed | None:
        form = self._terms.forms[comparison]
        where = place(self._terms.value_of(form[4]))
        return None if where is None else _Placed(form[1], where, comparison)

    def _open(self, bound: _Placed | None, excluded: Iterable[Fraction], op: str) -> _Placed | None:
        """A bound without the value that it names, where that is left out."""
        if bound is None or bound.op in ("<", ">") or bound.place not in excluded:
            return bound
        return _Placed(op, bound.place, self._with(op, bound))

    def _with(self, op: str, bound: _Placed) -> int:
        """The same comparison with another operator."""
        form = self._terms.forms[bound.number]
        return self._terms.intern((form[0], op, *form[2:]))


@dataclass(frozen=True, slots=True)
class _Placed:
    """A comparison with a constant that has a place."""

    op: str
    place: Fraction
    number: int


def _from_below(bound: _Placed) -> tuple[Fraction, bool, bool]:
    return bound.place, bound.op == ">", bound.op == "="


def _from_above(bound: _Placed) -> tuple[Fraction, bool, bool]:
    return bound.place, bound.op != "<", bound.op != "="


def _is_empty(low: _Placed, high: _Placed, excluded: Iterable[Fraction]) -> bool:
    if low.place != high.place:
        return low.place > high.place
    return low.op == ">" or high.op == "<" or low.place in excluded
