"""Rows that tell two predicates apart: a cheap look before the solver is asked.

Most predicates that are shown to be worth a proof are unequal after all. A row that one of them
keeps and the other does not ends the matter. So rows are made that one of them keeps: within the
bounds that it names, and then moved until its sums come out right. Some of them are then put just
beyond a bound, or have a NULL where one of them asks for it.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any

from headrace.merge.comparisons import compares, is_ordered
from headrace.merge.conditions import Predicate
from headrace.merge.constants import place
from headrace.merge.polynomials import Items, constant_and_body
from headrace.merge.terms import Terms

#: Rows that are tried, half of them made for either predicate.
TRIES = 40


#: The least and the greatest value of columns; None is without bound.
Bounds = dict[int, tuple[int | None, int | None]]


#: Columns with their values; of doubles and texts, their places.
Row = dict[int, int | Fraction | None]


class Witnesses:
    """Looks for rows on which predicates differ."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms

    def differ(self, one: Predicate, other: Predicate) -> bool:
        """Whether a row was found that only one of them keeps."""
        return any(first != second for first, second in self._kept(one, other))

    def escapes(self, one: Predicate, other: Predicate) -> bool:
        """Whether a row was found that the first keeps and the second does not."""
        return any(first and not second for first, second in self._kept(one, other))

    def _kept(self, one: Predicate, other: Predicate) -> Iterator[tuple[bool, bool]]:
        """Which of them keep a row, for one row after the other."""
        chance = random.Random(7)
        ours, theirs = list(_parts(one)), list(_parts(other))
        variables = sorted(self._variables([*ours, *theirs]))
        made_for = [(parts, self._bounds(parts)) for parts in (ours, theirs)]
        beyond = [edge for _, bounds in made_for for edge in _beyond(bounds)]
        null_tested = sorted(self._variables([*ours, *theirs], ("isnull", "notnull")))
        ordered = self._ordered([*ours, *theirs])
        for number in range(TRIES):
            parts, near = made_for[number % 2]
            row: Row = {v: _value(chance, *near.get(v, (None, None))) for v in variables}
            self._move(row, parts, near, chance)
            if beyond and number % 4 > 1:
                variable, value = chance.choice(beyond)
                row[variable] = value
            row |= {term: chance.choice(places) for term, places in ordered.items()}
            if null_tested and number % 8 > 5:
                row[chance.choice(null_tested)] = None
            guesses: dict[int, bool] = {}
            yield (
                all(self._holds(part, row, guesses, chance) for part in ours),
                all(self._holds(part, row, guesses, chance) for part in theirs),
            )

    def _variables(
        self, conditions: Iterable[int], kinds: Collection[str] = ("linear",)
    ) -> set[int]:
        """The columns that conditions of these kinds are about."""
        variables: set[int] = set()
        for condition in conditions:
            form = self._terms.forms[condition]
            if form[0] in ("any", "all"):
                variables |= self._variables(form[1], kinds)
            elif form[0] in kinds:
                linear = form[0] == "linear"
                variables |= {v for m, _ in form[2] for v in m} if linear else {form[1]}
        return variables

    def _ordered(self, conditions: Iterable[int]) -> dict[int, list[Fraction]]:
        """Doubles and texts that are compared: the places of constants, between and beyond them."""
        named: dict[int, set[Fraction]] = {}
        every: set[Fraction] = set()
        for form in self._comparisons(conditions):
            places = [place(self._terms.value_of(term)) for term in form[3:5]]
            every |= {where for where in places if where is not None}
            for term, where in zip(form[3:5], reversed(places), strict=True):
                if not self._terms.is_constant(term):
                    named.setdefault(term, set()).update(() if where is None else (where,))
        return {
            # Those that are compared with each other need the same places.
            term: _around(sorted(places or every or {Fraction(0)}))
            for term, places in sorted(named.items())
        }

    def _comparisons(self, conditions: Iterable[int]) -> Iterator[tuple[Any, ...]]:
        for condition in conditions:
            form = self._terms.forms[condition]
            if form[0] in ("any", "all"):
                yield from self._comparisons(form[1])
            elif form[0] == "compare" and is_ordered(form[2]):
                yield form

    def _place(self, term: int, row: Row) -> Fraction | None:
        value = self._terms.value_of(term)
        if value is not None:
            return place(value)
        found = row.get(term)
        return None if found is None else Fraction(found)

    def _bounds(self, conditions: list[int]) -> Bounds:
        """What the conditions on single columns say of each."""
        bounds: Bounds = {}
        for condition in conditions:
            form = self._terms.forms[condition]
            if form[0] != "linear":
                continue
            constant, body = constant_and_body(form[2])
            if len(body) != 1 or len(body[0][0]) != 1 or form[1] == "!=":
                continue
            (variable,), factor = body[0]
            low, high = bounds.get(variable, (None, None))
            edge = -constant if factor > 0 else constant
            if form[1] == "=" or factor > 0:
                high = edge if high is None else min(high, edge)
            if form[1] == "=" or factor < 0:
                low = edge if low is None else max(low, edge)
            bounds[variable] = low, high
        return bounds

    def _move(self, row: Row, parts: list[int], near: Bounds, chance: random.Random) -> None:
        """Change columns of a row so that sums are what they should be, where that is easy."""
        for part in (*parts, *parts):
            form = self._terms.forms[part]
            if form[0] != "linear" or form[1] == "!=":
                continue
            total = _total(form[2], row)
            if total is None or total == 0 or (total < 0 and form[1] == "<="):
                continue
            single = [(m[0], factor) for m, factor in form[2] if len(m) == 1]
            if not single:
                # A product is moved by one of its factors, if the others are one.
                product, factor = chance.choice([(m, f) for m, f in form[2] if m])
                row |= dict.fromkeys(product, 1)
                single, total = [(product[0], factor)], _total(form[2], row) or 0
            movable = [(v, f) for v, f in single if form[1] == "<=" or total % f == 0]
            # Rather one that is not told what to be.
            free = [(v, f) for v, f in movable if not _is_fixed(near.get(v))]
            if movable:
                variable, factor = chance.choice(free or movable)
                steps = -(-total // abs(factor))
                row[variable] = (row[variable] or 0) + (-steps if factor > 0 else steps)

    def _holds(
        self, condition: int, row: Row, guesses: dict[int, bool], chance: random.Random
    ) -> bool:
        form = self._terms.forms[condition]
        match form[0]:
            case "linear":
                total = _total(form[2], row)
                if total is None:
                    return False
                return total <= 0 if form[1] == "<=" else (total == 0) == (form[1] == "=")
            case "all":
                return all(self._holds(part, row, guesses, chance) for part in form[1])
            case "any":
                return any(self._holds(part, row, guesses, chance) for part in form[1])
            case "notnull":
                return row.get(form[1], 0) is not None
            case "isnull":
                return row.get(form[1], 0) is None
            case "false":
                return False
            case "compare" if is_ordered(form[2]):
                one, other = self._place(form[3], row), self._place(form[4], row)
                return one is not None and other is not None and compares(form[1], one, other)
            case "fails" | "var" | "call" | "cast":
                flag = form[1] if form[0] == "fails" else condition
                if row.get(flag, 0) is None:
                    return False
                truth = guesses.setdefault(flag, chance.random() < 0.5)
                return truth != bool(form[0] == "fails")
            case _:
                # Whatever it is, it may be true or false; the same on both sides.
                return guesses.setdefault(condition, chance.random() < 0.8)


def _around(places: list[Fraction]) -> list[Fraction]:
    """Places, and one on either side of each."""
    between = [(a + b) / 2 for a, b in pairwise(places)]
    return [places[0] - 1, *places, *between, places[-1] + 1]


def _is_fixed(bounds: tuple[int | None, int | None] | None) -> bool:
    return bounds is not None and bounds[0] is not None and bounds[0] == bounds[1]


def _beyond(bounds: Bounds) -> Iterator[tuple[int, int]]:
    """Values just outside of bounds."""
    for variable, (low, high) in bounds.items():
        if low is not None:
            yield variable, low - 1
        if high is not None:
            yield variable, high + 1


def _total(items: Items, row: Row) -> int | None:
    total = 0
    for monomial, product in items:
        for variable in monomial:
            value = row[variable]
            if value is None:
                return None
            product *= int(value)
        total += product
    return total


def _parts(predicate: Predicate) -> Iterable[int]:
    for segment in predicate:
        yield from sorted(segment) if isinstance(segment, frozenset) else (segment,)


def _value(chance: random.Random, low: int | None, high: int | None) -> int:
    """A number within bounds, near an edge as often as not."""
    if low is None and high is None:
        return chance.choice((0, 1, -1, chance.randint(-100, 100), chance.randint(-(10**4), 10**4)))
    reach = chance.choice((0, 1, 30, 10**4))
    if low is None:
        assert high is not None
        return high - chance.randint(0, reach)
    if high is None:
        return low + chance.randint(0, reach)
    return min(low + chance.randint(0, reach), max(low, high))
