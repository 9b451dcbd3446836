"""Conditions in one spelling: three-valued where a value is wanted, two-valued in a filter.

Only identities of SQL's three-valued logic are used to write a condition anew: negations go down
to the comparisons, comparisons of whole numbers become polynomials against zero. A filter then
asks one question less: it keeps a row if its condition is *true*, and being true distributes over
AND and OR. There ``d > d - 4`` says that ``d`` is not NULL, and nothing else.

Paper: Query Merging, Section 4.2.1.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.merge.polynomials import (
    ONE,
    Items,
    add,
    at_most_zero,
    constant_and_body,
    is_zero,
    variables_of,
)
from headrace.merge.terms import Environment, Terms
from headrace.optimizer.safety import raises_itself
from headrace.plan.expressions import Call, Expr, Literal
from headrace.plan.types import BOOLEAN, STRING

_MIRRORED = {">": "<", ">=": "<="}
_NEGATED = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_ORDERED = frozenset({"<", "<="})

#: The condition under which a filter keeps a row: conditions that must all be true, in any order,
#: and between them those that might raise, each in its place.
Predicate = tuple[frozenset[int] | int, ...]


def raising_parts(predicate: Predicate) -> tuple[int, ...]:
    """The conditions that might raise, in the order in which rows meet them."""
    return tuple(part for part in predicate if isinstance(part, int))


def safe_parts(predicate: Predicate) -> list[int]:
    """The conditions that never raise."""
    return [part for segment in predicate if isinstance(segment, frozenset) for part in segment]


def prefixes(predicate: Predicate) -> list[Predicate]:
    """What keeps rows away from each condition that might raise, and at last the whole."""
    places = [place for place, part in enumerate(predicate) if isinstance(part, int)]
    return [*(predicate[:place] for place in places), predicate]


class Conditions:
    """Translates boolean expressions, over the terms of a global plan."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.true = terms.intern(("true",))
        self.false = terms.intern(("false",))
        self.unknown = terms.intern(("null", BOOLEAN.name))
        self._simplified: dict[frozenset[int], frozenset[int]] = {}
        terms.condition = self.value

    # Three-valued

    def value(self, expr: Expr, columns: Environment, negated: bool = False) -> int:
        """A boolean expression as a term: true, false or NULL on the same rows."""
        if isinstance(expr, Literal):
            return self._literal(expr, negated)
        if isinstance(expr, Call):
            function, arguments = expr.function, expr.arguments
            if function == "not":
                return self.value(arguments[0], columns, not negated)
            if function in ("and", "or"):
                joined = "or" if (function == "or") != negated else "and"
                return self._joined(joined, [self.value(a, columns, negated) for a in arguments])
            if function in _NEGATED:
                chosen = _NEGATED[function] if negated else function
                return self.comparison(chosen, arguments[0], arguments[1], columns)
            if function in ("isnull", "isnotnull"):
                inner = self.terms.term(arguments[0], columns)
                return self._null_test(inner, (function == "isnull") != negated)
            if function == "in" and _compares_one_by_one(arguments):
                chosen = "!=" if negated else "="
                return self._joined(
                    "and" if negated else "or",
                    [self.comparison(chosen, arguments[0], a, columns) for a in arguments[1:]],
                )
            if function == "like" and _is_plain_text(arguments):
                chosen = "!=" if negated else "="
                return self.comparison(chosen, arguments[0], arguments[1], columns)
            return self._boolean(self.terms.opaque(expr, columns), negated)
        return self._boolean(self.terms.term(expr, columns), negated)

    def _literal(self, expr: Literal, negated: bool) -> int:
        if expr.value is None:
            return self.unknown
        return self.true if bool(expr.value) != negated else self.false

    def _boolean(self, term: int, negated: bool) -> int:
        return self.terms.intern(("fails", term), self.terms.raises(term)) if negated else term

    def _null_test(self, term: int, wants_null: bool) -> int:
        """Whether a term is NULL; a sum is if one of its parts is."""
        terms = self.terms
        kind = "isnull" if wants_null else "notnull"
        parts = [terms.intern((kind, part), terms.raises(part)) for part in terms.parts(term)]
        if not parts:
            return self.false if wants_null else self.true
        return self._joined("or" if wants_null else "and", parts)

    def _joined(self, kind: str, parts: list[int]) -> int:
        forms = self.terms.forms
        flat: list[int] = []
        for part in parts:
            form = forms[part]
            flat += form[1] if form[0] == kind else [part]
        if any(map(self.terms.raises, flat)):
            # One that comes first may keep rows away from one that raises.
            return self.terms.intern((kind, tuple(flat)), True)
        neutral, decisive = (self.true, self.false) if kind == "and" else (self.false, self.true)
        kept = {part for part in flat if part != neutral}
        if decisive in kept:
            return decisive
        if len(kept) <= 1:
            return kept.pop() if kept else neutral
        return self.terms.intern((kind, tuple(sorted(kept))))

    def comparison(self, function: str, left: Expr, right: Expr, columns: Environment) -> int:
        first, second = self.terms.term(left, columns), self.terms.term(right, columns)
        exchangeable = self.terms.in_any_order((first, second))
        if exchangeable and left.type.is_integer and right.type.is_integer:
            return self._of_numbers(function, first, second)
        if function in ("=", "!="):
            for one, other in ((left, right), (right, left)):
                is_boolean_literal = isinstance(other, Literal) and isinstance(other.value, bool)
                if is_boolean_literal and one.type == BOOLEAN:
                    return self.value(one, columns, (function == "=") != other.value)  # type: ignore[attr-defined]
        kinds = (left.type.name, right.type.name)
        mirrored = function in _MIRRORED
        if function in ("=", "!="):
            mirrored = (kinds[1], second) < (kinds[0], first)
        # It may bring an operand to the other's type, which is a cast like any other.
        casts = raises_itself(Call(function, (left, right), BOOLEAN))
        if mirrored and exchangeable and not casts:
            function = _MIRRORED.get(function, function)
            first, second, kinds = second, first, (kinds[1], kinds[0])
        raises = casts or self._any_raises((first, second))
        return self.terms.intern(("compare", function, kinds, first, second), raises)

    def _of_numbers(self, function: str, left: int, right: int) -> int:
        """A comparison of whole numbers: a polynomial, against zero."""
        if function in _MIRRORED:
            function, left, right = _MIRRORED[function], right, left
        (a, gone_a), (b, gone_b) = self.terms.as_polynomial(left), self.terms.as_polynomial(right)
        difference = add(a, b, -1)
        both = gone_a | gone_b | {v for m in (*a, *b) for v in m}
        if function in _ORDERED:
            if function == "<":
                difference = add(difference, {ONE: 1})
            items, op = at_most_zero(difference), "<="
        else:
            items, op = is_zero(difference), function
            if op == "!=" and isinstance(items, bool):
                items = not items
        if isinstance(items, bool):
            truth: Items = () if items else (((), 1),)
            if not both:
                return self.true if items else self.false
            return self.terms.intern(("linear", "<=", truth, both), self._any_raises(both))
        gone = both - variables_of(items)
        return self.terms.intern(("linear", op, items, gone), self._any_raises(both))

    def _any_raises(self, parts: Iterable[int]) -> bool:
        return any(map(self.terms.raises, parts))

    # Two-valued

    def where(self, predicate: Predicate, expr: Expr, columns: Environment) -> Predicate:
        """A predicate with one condition more."""
        return self.both(predicate, self.true_parts(self.value(expr, columns)))

    def both(self, predicate: Predicate, parts: Iterable[int]) -> Predicate:
        """A predicate and further conditions after it."""
        segments = list(predicate)
        for part in parts:
            if self.terms.raises(part):
                segments.append(part)
            elif segments and isinstance(segments[-1], frozenset):
                segments[-1] = segments[-1] | {part}
            else:
                segments.append(frozenset({part}))
        return tuple(segments)

    def true_parts(self, condition: int) -> list[int]:
        """Conditions that are all true just where this one is."""
        terms = self.terms
        form = terms.forms[condition]
        kind = form[0]
        if kind == "and":
            return [part for inner in form[1] for part in self.true_parts(inner)]
        if condition == self.true:
            return []
        if condition in (self.false, self.unknown):
            return [self.false]
        if terms.raises(condition):
            return [condition]
        if kind == "linear" and (form[3] or not variables_of(form[2])):
            return self._true_linear(form[1], form[2], form[3])
        if kind == "or":
            return self._true_or(form[1])
        return [condition]

    def _true_linear(self, op: str, items: Items, vanished: frozenset[int]) -> list[int]:
        present = [self.terms.intern(("notnull", v)) for v in sorted(vanished)]
        if variables_of(items):
            return [self.terms.intern(("linear", op, items, frozenset())), *present]
        return present if not items else [self.false]

    def _true_or(self, parts: tuple[int, ...]) -> list[int]:
        choices: set[int] = set()
        for part in parts:
            inner = self.simplified(frozenset(self.true_parts(part)))
            if not inner:
                return []
            if self.false in inner:
                continue
            choices.add(self.terms.intern(("all", tuple(sorted(inner)))))
        if not choices:
            return [self.false]
        if len(choices) == 1:
            return list(self.terms.forms[choices.pop()][1])
        return [self.terms.intern(("any", tuple(sorted(choices))))]

    def number(self, predicate: Predicate) -> int:
        """A predicate in one spelling."""
        if not predicate:
            return self.terms.intern(("where", ()))
        if len(predicate) == 1 and isinstance(predicate[0], frozenset):
            parts = self.simplified(predicate[0])
            return self.terms.intern(("where", tuple(sorted(parts))))
        spelt = tuple(
            tuple(sorted(segment)) if isinstance(segment, frozenset) else segment
            for segment in predicate
        )
        return self.terms.intern(("where", spelt))

    def simplified(self, parts: frozenset[int]) -> frozenset[int]:
        """The same conjunction without what the rest of it says already."""
        shortest = self._simplified.get(parts)
        if shortest is None:
            shortest = self._without_known_presence(self._tightened(parts))
            self._simplified[parts] = shortest
        return shortest

    def _without_known_presence(self, parts: frozenset[int]) -> frozenset[int]:
        """A comparison that is true has no NULL in it, so that need not be said."""
        forms = self.terms.forms
        tested = {part: forms[part][1] for part in parts if forms[part][0] == "notnull"}
        if not tested:
            return parts
        present: set[int] = set()
        for part in parts:
            form = forms[part]
            if form[0] == "linear":
                present |= variables_of(form[2])
            elif form[0] == "compare":
                present |= {form[3], form[4]}
        return frozenset(part for part in parts if tested.get(part) not in present)

    def _tightened(self, parts: frozenset[int]) -> frozenset[int]:
        """Bounds of one and the same sum, taken together."""
        forms = self.terms.forms
        bounds: dict[Items, list[tuple[str, int, int, int]]] = {}
        for part in parts:
            form = forms[part]
            if form[0] != "linear":
                continue
            constant, body = constant_and_body(form[2])
            sign = 1 if body[0][1] > 0 else -1
            if sign < 0:
                body = tuple((m, -c) for m, c in body)
            bounds.setdefault(body, []).append((form[1], sign, constant, part))
        result = set(parts)
        for body, found in bounds.items():
            if len(found) > 1:
                result -= {part for *_, part in found}
                result |= self._interval(body, found)
        return frozenset(result)

    def _interval(self, body: Items, found: list[tuple[str, int, int, int]]) -> set[int]:
        """``body`` between bounds, without some values, in the fewest conditions."""
        low: int | None = None
        high: int | None = None
        excluded = set()
        for op, sign, constant, _ in found:
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
            return {self.false, *(part for *_, part in found)}
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
            return self.true if items else self.false
        return self.terms.intern(("linear", op, items, frozenset()))


def _compares_one_by_one(arguments: tuple[Expr, ...]) -> bool:
    """Whether ``x IN (a, b)`` is ``x = a OR x = b``: Spark brings all of them to one type first."""
    kinds = {argument.type for argument in arguments if argument.type.name != "void"}
    return len(kinds) <= 1 or all(kind.is_integer for kind in kinds)


def _is_plain_text(arguments: tuple[Expr, ...]) -> bool:
    """Whether a LIKE has a pattern that stands for itself alone."""
    if len(arguments) != 2 or arguments[0].type != STRING:
        return False
    pattern = arguments[1]
    return (
        isinstance(pattern, Literal)
        and isinstance(pattern.value, str)
        and not any(char in pattern.value for char in "%_\\")
    )
