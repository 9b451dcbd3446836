"""Rows that tell two predicates apart: a cheap look before the solver is asked.

Most predicates that are shown to be worth a proof are unequal after all. A row that one of them
keeps and the other does not ends the matter; such rows lie at the bounds that either names.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from headrace.merge.conditions import Predicate
from headrace.merge.polynomials import constant_and_body
from headrace.merge.terms import Terms

#: Rows that are tried, half of them within the bounds of either predicate.
TRIES = 40


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
        bounds = self._bounds(ours), self._bounds(theirs)
        for number in range(TRIES):
            near = bounds[number % 2]
            row = {v: _value(chance, *near.get(v, (None, None))) for v in variables}
            guesses: dict[int, bool] = {}
            yield (
                all(self._holds(part, row, guesses, chance) for part in ours),
                all(self._holds(part, row, guesses, chance) for part in theirs),
            )

    def _variables(self, conditions: Iterable[int]) -> set[int]:
        found: set[int] = set()
        for condition in conditions:
            form = self._terms.forms[condition]
            if form[0] == "linear":
                found |= {v for monomial, _ in form[2] for v in monomial}
            elif form[0] in ("any", "all"):
                found |= self._variables(form[1])
        return found

    def _bounds(self, conditions: list[int]) -> dict[int, tuple[int | None, int | None]]:
        """What the conditions on single columns say of each."""
        bounds: dict[int, tuple[int | None, int | None]] = {}
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

    def _holds(
        self, condition: int, row: dict[int, int], guesses: dict[int, bool], chance: random.Random
    ) -> bool:
        form = self._terms.forms[condition]
        match form[0]:
            case "linear":
                total = 0
                for monomial, coefficient in form[2]:
                    for variable in monomial:
                        coefficient *= row[variable]
                    total += coefficient
                return total <= 0 if form[1] == "<=" else (total == 0) == (form[1] == "=")
            case "all":
                return all(self._holds(part, row, guesses, chance) for part in form[1])
            case "any":
                return any(self._holds(part, row, guesses, chance) for part in form[1])
            case "notnull":
                return True
            case "isnull" | "false":
                return False
            case _:
                # Whatever it is, it may be true or false; the same on both sides.
                return guesses.setdefault(condition, chance.random() < 0.8)


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
