"""Sampled truth: a filter's answers on a few made-up rows, as bits of a number.

Predicates that are equal agree on every row, so those whose bits differ need no proof that they
are unequal, and a hash finds the few that are worth one.
"""

from __future__ import annotations

import random
from fractions import Fraction

from headrace.merge.comparisons import compares, is_ordered
from headrace.merge.conditions import Predicate
from headrace.merge.constants import place
from headrace.merge.polynomials import Items
from headrace.merge.terms import Terms

#: Rows that are tried.
ROWS = 64
_ALL = (1 << ROWS) - 1


class Fingerprints:
    """Answers of conditions, each computed once."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._bits: dict[int, int] = {}
        self._values: dict[int, list[int | None]] = {}

    def of(self, predicate: Predicate) -> int:
        bits = _ALL
        for segment in predicate:
            for part in segment if isinstance(segment, frozenset) else (segment,):
                bits &= self._of(part)
        return bits

    def _of(self, condition: int) -> int:
        bits = self._bits.get(condition)
        if bits is None:
            bits = self._bits[condition] = self._computed(condition)
        return bits

    def _computed(self, condition: int) -> int:
        form = self._terms.forms[condition]
        kind = form[0]
        if kind in ("all", "any"):
            bits = _ALL if kind == "all" else 0
            for part in form[1]:
                bits = bits & self._of(part) if kind == "all" else bits | self._of(part)
            return bits
        if kind == "false":
            return 0
        if kind == "linear":
            return self._linear(form[1], form[2])
        if kind == "compare" and is_ordered(form[2]):
            return self._ordered(form[1], form[2][0], form[3], form[4])
        if kind in ("isnull", "notnull"):
            nulls = sum(1 << i for i, v in enumerate(self._column(form[1])) if v is None)
            return nulls if kind == "isnull" else _ALL & ~nulls
        if kind in ("var", "call", "cast", "fails"):
            flag = form[1] if kind == "fails" else condition
            nulls = sum(1 << i for i, v in enumerate(self._column(flag)) if v is None)
            truths = random.Random(f"condition {flag}").getrandbits(ROWS)
            return (_ALL & ~truths if kind == "fails" else truths) & ~nulls
        # Not understood: any answers will do, as long as they are always the same.
        return random.Random(f"condition {condition}").getrandbits(ROWS)

    def _ordered(self, op: str, kind: str, first: int, second: int) -> int:
        bits = 0
        sides = zip(self._places(first, kind), self._places(second, kind), strict=True)
        for row, (one, other) in enumerate(sides):
            if one is not None and other is not None:
                bits |= compares(op, one, other) << row
        return bits

    def _places(self, term: int, kind: str) -> list[Fraction | None]:
        """Where the values of a double or a text stand; NULL where ``_column`` has it."""
        value = self._terms.value_of(term)
        if value is not None:
            return [place(value)] * ROWS
        chance = random.Random(f"places {term}")
        drawn_places: list[Fraction | None] = []
        for row, counted in enumerate(self._column(term)):
            if kind == "string":
                length = row % 3
                drawn = place("".join(chance.choice("abcmxAM01 ") for _ in range(length)))
            else:
                drawn = Fraction(chance.randint(-400, 400), (1, 2, 8, 100)[row % 4])
            drawn_places.append(None if counted is None else drawn)
        return drawn_places

    def _linear(self, op: str, items: Items) -> int:
        bits = 0
        for row in range(ROWS):
            total: int | None = 0
            for monomial, coefficient in items:
                product: int | None = coefficient
                for variable in monomial:
                    value = self._column(variable)[row]
                    product = None if value is None or product is None else product * value
                total = None if total is None or product is None else total + product
            if total is None:
                continue
            holds = total <= 0 if op == "<=" else (total == 0) == (op == "=")
            bits |= holds << row
        return bits

    def _column(self, variable: int) -> list[int | None]:
        """Values of a column: small and large ones, negative ones and NULL."""
        values = self._values.get(variable)
        if values is None:
            chance = random.Random(f"column {variable}")
            values = []
            for row in range(ROWS):
                reach = (3, 30, 100, 10_000)[row % 4]
                values.append(None if chance.random() < 0.04 else chance.randint(-reach, reach))
            self._values[variable] = values
        return values
