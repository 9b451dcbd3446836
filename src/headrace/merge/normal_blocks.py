"""Blocks in one spelling as wholes: what no condition says by itself, but all of them together do.

Columns that are equal stand for each other, and a constant for a column that equals it: ``WHERE
i = 4 AND j > i`` says that ``j > 4``, and shows 4 as ``i``. Of a relation that is joined with
itself nobody knows which copy is the first: all labels are tried, and the least spelling is taken.

Rows, and what raises, stay as they are: only conditions that never raise are used, and columns are
replaced only where equal values are the same values.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import permutations, product
from math import factorial, prod

from headrace.merge.conditions import Conditions, Predicate
from headrace.merge.polynomials import ONE
from headrace.merge.rebuilding import Rebuilding
from headrace.merge.terms import is_plain
from headrace.plan.expressions import LiteralValue
from headrace.plan.types import BOOLEAN, DataType

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_DAY_ZERO = datetime.date(1970, 1, 1)
#: Ways to label the copies of relations that are joined with themselves; beyond these, as written.
MOST_LABELINGS = 24
#: Equations that follow from equations: rounds of looking for them.
_MOST_ROUNDS = 8


@dataclass(frozen=True)
class NormalBlock:
    """A block's predicate in the one spelling, with its number, and what becomes of its columns:
    ``labeled`` says which copy of a relation they are of, and then ``equated`` what stands for them
    by the equations of the predicate."""

    predicate: Predicate
    where: int
    labeled: Callable[[int], int]
    equated: Callable[[int], int]


class NormalBlocks:
    """Spells blocks."""

    def __init__(self, conditions: Conditions) -> None:
        self._conditions = conditions
        self._terms = conditions.terms
        self._equated_blocks: dict[Predicate, NormalBlock] = {}

    def block(
        self, leaves: tuple[int, ...], predicate: Predicate, columns: Mapping[str, int]
    ) -> NormalBlock:
        labelings = list(self._labelings(leaves))
        if not labelings:
            return self._equated(predicate)
        tried = [self._labeled(labeling, predicate) for labeling in labelings]
        return min(tried, key=lambda block: self._spelling(block, columns))

    def _spelling(self, block: NormalBlock, columns: Mapping[str, int]) -> tuple[list[int], ...]:
        where = [
            sorted(segment) if isinstance(segment, frozenset) else [segment]
            for segment in block.predicate
        ]
        shown = (block.equated(block.labeled(term)) for term in columns.values())
        return (*where, sorted(shown))

    # Copies of a relation

    def _labelings(self, leaves: tuple[int, ...]) -> Iterator[Mapping[int, int]]:
        """The ways to exchange the copies of relations that are there more than once."""
        forms = self._terms.forms
        copies: dict[int, list[int]] = {}
        for leaf in leaves:
            form = forms[leaf]
            copies.setdefault(form[1] if form[0] == "again" else leaf, []).append(leaf)
        several = [sorted(group) for group in copies.values() if len(group) > 1]
        if not several or prod(factorial(len(group)) for group in several) > MOST_LABELINGS:
            return
        for orders in product(*map(permutations, several)):
            yield {
                old: new
                for group, order in zip(several, orders, strict=True)
                for old, new in zip(group, order, strict=True)
            }

    def _labeled(self, labeling: Mapping[int, int], predicate: Predicate) -> NormalBlock:
        relabeled = Rebuilding(self._conditions, leaves=labeling)
        block = self._equated(relabeled.predicate(predicate))
        return NormalBlock(block.predicate, block.where, relabeled.rebuilt, block.equated)

    # Equations

    def _equated(self, predicate: Predicate) -> NormalBlock:
        """With what is equal to others, or to a constant, replaced by it."""
        block = self._equated_blocks.get(predicate)
        if block is None:
            block = self._equated_blocks[predicate] = self._solved(predicate)
        return block

    def _solved(self, predicate: Predicate) -> NormalBlock:
        number = self._conditions.number
        # One that raises would meet what stands for its columns.
        only = predicate[0] if len(predicate) == 1 else None
        solution = self._solution(only) if isinstance(only, frozenset) else None
        if solution is None:
            return NormalBlock(predicate, number(predicate), as_it_is, as_it_is)
        parts, rebuilding = solution
        return NormalBlock((parts,), number((parts,)), as_it_is, rebuilding.rebuilt)

    def _solution(self, given: frozenset[int]) -> tuple[frozenset[int], Rebuilding] | None:
        """The conjunction over one column of each class of equal ones; None if there are none."""
        conditions = self._conditions
        classes = _Classes(self._is_constant)
        parts, rebuilding = conditions.simplified(given), None
        for _ in range(_MOST_ROUNDS):
            news = [classes.join(a, b) for part in parts for a, b in self._equations(part)]
            if not any(news):
                break
            rebuilding = Rebuilding(conditions, variables=classes.standing())
            rebuilt = (new for part in given for new in rebuilding.parts(part))
            parts = conditions.simplified(frozenset(rebuilt))
        if rebuilding is None:
            return None
        equations = [p for a, b in classes.standing().items() for p in self._equal(a, b)]
        return frozenset(conditions.simplified(parts | frozenset(equations))), rebuilding

    def _equal(self, variable: int, standing: int) -> list[int]:
        conditions, terms = self._conditions, self._terms
        kind = terms.kind(variable)
        assert kind is not None
        if standing == conditions.true:
            return [variable]
        if standing == conditions.false:
            return conditions.true_parts(conditions.negated(variable))
        equal = conditions.comparisons.of("=", (kind, kind), variable, standing, casts=False)
        return conditions.true_parts(equal)

    def _equations(self, part: int) -> Iterator[tuple[int, int]]:
        """Columns that a condition makes equal to others, or to constants."""
        conditions, terms = self._conditions, self._terms
        form = terms.forms[part]
        match form:
            case ("var", _, _) if terms.kind(part) == BOOLEAN:
                yield part, conditions.true
            case ("fails", inner) if self._is_column(inner):
                yield inner, conditions.false
            case ("linear", "=", items, _):
                yield from self._linear_equation(dict(items))
            case ("compare", "=", (one, other), first, second) if one == other:
                stands = self._is_column(second) or terms.is_constant(second)
                if stands and is_plain(DataType(one)) and self._is_column(first):
                    yield first, second

    def _linear_equation(self, items: dict[tuple[int, ...], int]) -> Iterator[tuple[int, int]]:
        terms = self._terms
        constant = items.pop(ONE, 0)
        if any(len(monomial) != 1 or not self._is_column(monomial[0]) for monomial in items):
            return
        variables = [(monomial[0], factor) for monomial, factor in items.items()]
        kinds = [terms.kind(variable) for variable, _ in variables]
        match variables:
            case [(variable, 1)]:
                kind = kinds[0]
                value = _uncounted(-constant, kind) if kind is not None else None
                if value is not None and kind is not None:
                    yield variable, terms.constant(value, kind)
            case [(one, 1), (other, -1)] if constant == 0:
                integers = all(kind is not None and kind.is_integer for kind in kinds)
                if kinds[0] == kinds[1] or integers:
                    yield one, other

    def _is_constant(self, term: int) -> bool:
        flags = self._conditions.true, self._conditions.false
        return term in flags or self._terms.is_constant(term)

    def _is_column(self, term: int) -> bool:
        kind = self._terms.kind(term)
        return self._terms.forms[term][0] == "var" and kind is not None and is_plain(kind)


class _Classes:
    """Columns that are equal, in classes; a constant stands for its class, or the first column."""

    def __init__(self, is_constant: Callable[[int], bool]) -> None:
        self._is_constant = is_constant
        self._above: dict[int, int] = {}

    def join(self, one: int, other: int) -> bool:
        """Put two classes together; whether they were two."""
        one, other = self._top(one), self._top(other)
        if one == other:
            return False
        constants = [term for term in (one, other) if self._is_constant(term)]
        if len(constants) == 2:
            # Nothing can be both, which the conditions say when one is put for the other.
            return False
        standing = constants[0] if constants else min(one, other)
        self._above[one if standing == other else other] = standing
        return True

    def standing(self) -> dict[int, int]:
        """What stands for each column that something else stands for."""
        return {term: self._top(term) for term in self._above}

    def _top(self, term: int) -> int:
        while term in self._above:
            term = self._above[term]
        return term


def _uncounted(ticks: int, kind: DataType) -> LiteralValue:
    """The constant that is counted so."""
    try:
        if kind.is_integer:
            return ticks
        if kind.is_decimal:
            return Decimal(ticks).scaleb(-kind.decimal_parameters[1])
        if kind.name == "date":
            return _DAY_ZERO + datetime.timedelta(days=ticks)
        return _EPOCH + datetime.timedelta(microseconds=ticks)
    except OverflowError:
        return None


def as_it_is(term: int) -> int:
    """What becomes of columns that nothing stands for."""
    return term
