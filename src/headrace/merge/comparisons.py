"""Comparisons in one spelling.

Whole numbers, decimals, dates and timestamps have a next value: their comparisons are polynomials
of whole numbers against zero, with the tightest bound (a decimal counted by its last digit, a date
in days, a timestamp in microseconds). Doubles and texts have an order only: a comparison with a
constant has the constant at the right. All else stays as written, its sides in one order where that
changes nothing.

Paper: Query Merging, Section 4.2.1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction
from math import lcm

from headrace.merge.constants import as_double, exact, instant, is_exact_double, place
from headrace.merge.polynomials import (
    ONE,
    Items,
    Polynomial,
    add,
    at_most_zero,
    is_zero,
    variables_of,
)
from headrace.merge.terms import Terms
from headrace.plan.types import DATE, DOUBLE, STRING, TIMESTAMP, DataType
from headrace.sql.typing import as_decimal

MIRRORED: Mapping[str, str] = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "=": "=", "!=": "!="}
NEGATED: Mapping[str, str] = {
    "=": "!=",
    "!=": "=",
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
}
_TURNED = frozenset({">", ">="})
_TRUE_OF_EQUALS = frozenset({"=", "<=", ">="})
#: Digits of a decimal, beyond which Spark rounds.
_MOST_DIGITS = 38

#: What stands on one side: a polynomial, the terms that make it NULL though they are not in it, and
#: what it is divided by.
_Number = tuple[Polynomial, frozenset[int], int]


class Comparisons:
    """Makes comparisons of terms."""

    def __init__(self, terms: Terms, true: int, false: int, unknown: int) -> None:
        self._terms = terms
        self._truths = {True: true, False: false}
        self._unknown = unknown

    def of(
        self, function: str, kinds: tuple[DataType, DataType], first: int, second: int, casts: bool
    ) -> int:
        """``first function second``; ``casts`` is whether bringing them to one type may raise."""
        terms = self._terms
        exchangeable = terms.in_any_order((first, second))
        calm = not casts and not terms.raises(first) and not terms.raises(second)
        if calm and (terms.is_null(first) or terms.is_null(second)):
            return self._unknown
        if exchangeable and not casts:
            numbers = self._numbers(kinds, first, second)
            if numbers is not None:
                return self.of_numbers(function, *numbers)
        if calm and first == second and kinds[0] == kinds[1]:
            return self._known(function in _TRUE_OF_EQUALS, terms.parts(first))
        if calm:
            ordered = self._ordered(function, kinds, first, second)
            if ordered is not None:
                return ordered
        names = (kinds[0].name, kinds[1].name)
        mirrored = function in _TURNED
        if function in ("=", "!="):
            mirrored = (names[1], second) < (names[0], first)
        if mirrored and exchangeable and not casts:
            function = MIRRORED[function]
            first, second, names = second, first, (names[1], names[0])
        return terms.intern(("compare", function, names, first, second), not calm)

    # Numbers and times

    def _numbers(
        self, kinds: tuple[DataType, DataType], first: int, second: int
    ) -> tuple[Polynomial, Polynomial, frozenset[int]] | None:
        """Both sides as polynomials, multiplied until they are whole; None if they are no such."""
        if kinds[0] == kinds[1] and kinds[0] in (DATE, TIMESTAMP):
            sides = [self._time(first), self._time(second)]
        elif meet_without_rounding(*kinds):
            sides = [self._number(first, kinds[0]), self._number(second, kinds[1])]
        else:
            sides = self._beside_double(kinds, first, second)
        one, other = sides
        if one is None or other is None:
            return None
        (a, gone_a, over_a), (b, gone_b, over_b) = one, other
        common = lcm(over_a, over_b)
        a = {m: c * (common // over_a) for m, c in a.items()}
        b = {m: c * (common // over_b) for m, c in b.items()}
        return a, b, gone_a | gone_b

    def _time(self, term: int) -> _Number | None:
        value = self._terms.value_of(term)
        if value is None:
            return {(term,): 1}, frozenset(), 1
        ticks = instant(value)
        return None if ticks is None else ({ONE: ticks} if ticks else {}, frozenset(), 1)

    def _number(self, term: int, kind: DataType) -> _Number:
        """A whole number or a decimal."""
        terms = self._terms
        value = exact(terms.value_of(term))
        if value is not None:
            polynomial = {ONE: value.numerator} if value else {}
            return polynomial, frozenset(), value.denominator
        term, kind = self._without_cast(term, kind)
        if kind.is_integer:
            return *terms.as_polynomial(term), 1
        # By its last digit.
        return {(term,): 1}, frozenset(), int(10 ** kind.decimal_parameters[1])

    def _without_cast(self, term: int, kind: DataType) -> tuple[int, DataType]:
        """What was cast to a wider type that holds it exactly."""
        form = self._terms.forms[term]
        if form[0] == "cast" and not self._terms.raises(term):
            given = DataType(form[1])
            if _holds(kind, given):
                return self._without_cast(form[4], given)
        return term, kind

    def _beside_double(
        self, kinds: tuple[DataType, DataType], first: int, second: int
    ) -> list[_Number | None]:
        """A whole number beside a constant, both of which Spark compares as doubles."""
        sides: list[_Number | None] = []
        for term, kind, other in ((first, kinds[0], second), (second, kinds[1], first)):
            bound = exact(self._terms.value_of(other))
            value = exact(self._terms.value_of(term))
            inner, inner_kind = self._without_cast(term, kind)
            if value is not None and is_exact_double(value):
                sides.append(self._number(term, kind))
            elif bound is not None and is_exact_double(bound) and inner_kind.is_integer:
                sides.append((*self._terms.as_polynomial(inner), 1))
            else:
                sides.append(None)
        return sides

    def of_numbers(
        self, function: str, a: Polynomial, b: Polynomial, gone: frozenset[int] = frozenset()
    ) -> int:
        """A comparison of whole numbers: a polynomial, against zero."""
        if function in _TURNED:
            function, a, b = MIRRORED[function], b, a
        difference = add(a, b, -1)
        both = gone | {v for m in (*a, *b) for v in m}
        if function == "<":
            difference, function = add(difference, {ONE: 1}), "<="
        items = at_most_zero(difference) if function == "<=" else is_zero(difference)
        if isinstance(items, bool):
            return self._known(items if function != "!=" else not items, both)
        gone = both - variables_of(items)
        return self._terms.intern(("linear", function, items, gone), self._any_raises(both))

    def _known(self, truth: bool, present: Collection[int]) -> int:
        """What is true, or false, but for NULL."""
        if not present:
            return self._truths[truth]
        items: Items = () if truth else ((ONE, 1),)
        form = ("linear", "<=", items, frozenset(present))
        return self._terms.intern(form, self._any_raises(present))

    def _any_raises(self, parts: Collection[int]) -> bool:
        return any(map(self._terms.raises, parts))

    # Doubles and texts

    def _ordered(
        self, function: str, kinds: tuple[DataType, DataType], first: int, second: int
    ) -> int | None:
        """A comparison with a constant, which stands at the right."""
        values = self._terms.value_of(first), self._terms.value_of(second)
        if values[0] is None and values[1] is None:
            return None
        if values[1] is None:
            function, kinds = MIRRORED[function], (kinds[1], kinds[0])
            first, second, values = second, first, (values[1], values[0])
        if values[0] is None and kinds[0].is_fractional and kinds[1].is_numeric:
            if kinds[1].name == "float":
                return None
            value = as_double(values[1])
            assert value is not None
            kinds = DOUBLE, DOUBLE
            second = self._terms.constant(value, DOUBLE)
        elif kinds != (STRING, STRING):
            return None
        if values[0] is not None:
            places = place(values[0]), place(values[1])
            if places[0] is None or places[1] is None:
                return None
            return self._truths[compares(function, places[0], places[1])]
        names = kinds[0].name, kinds[1].name
        return self._terms.intern(("compare", function, names, first, second))


def compares(function: str, left: Fraction, right: Fraction) -> bool:
    """Whether values at these places stand so to each other."""
    return {
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
        "=": left == right,
        "!=": left != right,
    }[function]


def is_ordered(names: object) -> bool:
    """Whether a comparison of these types goes by the one order of doubles, or of texts."""
    return names in (("double", "double"), ("string", "string"))


def meet_without_rounding(*kinds: DataType) -> bool:
    """Whether these are whole numbers or decimals that one type holds all of."""
    if not all(kind.is_integer or kind.is_decimal for kind in kinds):
        return False
    if all(kind.is_integer for kind in kinds):
        return True
    digits = [as_decimal(kind) for kind in kinds]
    return max(p - s for p, s in digits) + max(s for _, s in digits) <= _MOST_DIGITS


def _holds(wide: DataType, narrow: DataType) -> bool:
    """Whether a cast to the wider type keeps every value as it is."""
    if not narrow.is_integer and not narrow.is_decimal:
        return False
    if wide == DOUBLE:
        # Of a bigint it does not; beside the constants that ask, that is no matter.
        return narrow.is_integer
    if not wide.is_decimal:
        return False
    (p1, s1), (p2, s2) = as_decimal(wide), as_decimal(narrow)
    return s1 >= s2 and p1 - s1 >= p2 - s2
