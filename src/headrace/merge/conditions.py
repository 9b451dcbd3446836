"""Conditions in one spelling: three-valued where a value is wanted, two-valued in a filter.

Only identities of SQL's three-valued logic are used to write a condition anew: negations go down
to the comparisons, comparisons of whole numbers become polynomials against zero. A filter then
asks one question less: it keeps a row if its condition is *true*, and being true distributes over
AND and OR. There ``d > d - 4`` says that ``d`` is not NULL, and nothing else.

Paper: Query Merging, Section 4.2.1.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.merge.bounds import Bounds
from headrace.merge.comparisons import NEGATED, Comparisons, is_ordered, meet_without_rounding
from headrace.merge.constants import exact, instant
from headrace.merge.polynomials import Items, variables_of
from headrace.merge.spelling import spelt
from headrace.merge.terms import Environment, Terms
from headrace.optimizer.safety import raises_itself
from headrace.plan.expressions import Call, Expr, Literal
from headrace.plan.types import BIGINT, BOOLEAN, DataType

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
        self.comparisons = Comparisons(terms, self.true, self.false, self.unknown)
        self._bounds = Bounds(terms, self.true, self.false)
        self._simplified: dict[frozenset[int], frozenset[int]] = {}
        terms.condition = self.value
        terms.truth = self.truth

    # Three-valued

    def value(self, expr: Expr, columns: Environment, negated: bool = False) -> int:
        """A boolean expression as a term: true, false or NULL on the same rows."""
        expr = spelt(expr)
        if isinstance(expr, Literal):
            return self._literal(expr, negated)
        if isinstance(expr, Call):
            function, arguments = expr.function, expr.arguments
            if function == "not":
                return self.value(arguments[0], columns, not negated)
            if function in ("and", "or"):
                joined = "or" if (function == "or") != negated else "and"
                return self.joined(joined, [self.value(a, columns, negated) for a in arguments])
            if function in NEGATED:
                chosen = NEGATED[function] if negated else function
                return self.comparison(chosen, arguments[0], arguments[1], columns)
            if function in ("isnull", "isnotnull"):
                inner = self.terms.term(arguments[0], columns)
                return self.null_test(inner, (function == "isnull") != negated)
            if function == "in" and _compares_one_by_one(arguments):
                chosen = "!=" if negated else "="
                return self.joined(
                    "and" if negated else "or",
                    [self.comparison(chosen, arguments[0], a, columns) for a in arguments[1:]],
                )
            if function == "<=>":
                left, right = arguments
                equal = self._safe_equality(left, right, columns, negated)
                if equal is not None:
                    return equal
            return self._boolean(self.terms.opaque(expr, columns), negated)
        return self._boolean(self.terms.term(expr, columns), negated)

    def _literal(self, expr: Literal, negated: bool) -> int:
        if expr.value is None:
            return self.unknown
        return self.true if bool(expr.value) != negated else self.false

    def _boolean(self, term: int, negated: bool) -> int:
        return self.terms.intern(("fails", term), self.terms.raises(term)) if negated else term

    def null_test(self, term: int, wants_null: bool) -> int:
        """Whether a term is NULL; a sum is if one of its parts is."""
        terms = self.terms
        if terms.is_null(term):
            return self.true if wants_null else self.false
        kind = "isnull" if wants_null else "notnull"
        parts = [terms.intern((kind, part), terms.raises(part)) for part in terms.parts(term)]
        if not parts:
            return self.false if wants_null else self.true
        return self.joined("or" if wants_null else "and", parts)

    def negated(self, condition: int) -> int:
        """NOT, carried down to what cannot be turned."""
        terms = self.terms
        form = terms.forms[condition]
        match form[0]:
            case "true":
                return self.false
            case "false":
                return self.true
            case "null":
                return condition
            case "fails":
                return int(form[1])
            case "isnull" | "notnull":
                other = "notnull" if form[0] == "isnull" else "isnull"
                return terms.intern((other, form[1]), terms.raises(condition))
            case "and" | "or":
                other = "or" if form[0] == "and" else "and"
                return self.joined(other, [self.negated(part) for part in form[1]])
            case "linear":
                a, gone = dict(form[2]), form[3]
                op = {"<=": ">", "=": "!=", "!=": "="}[form[1]]
                return self.comparisons.of_numbers(op, a, {}, gone)
            case "compare" if isinstance(form[1], str) and form[1] in NEGATED:
                turned = (form[0], NEGATED[form[1]], *form[2:])
                if is_ordered(form[2]) and terms.is_constant(form[4]):
                    return terms.intern(turned, terms.raises(condition))
                kinds = DataType(form[2][0]), DataType(form[2][1])
                raises = terms.raises(condition)
                return self.comparisons.of(turned[1], kinds, form[3], form[4], raises)
            case _:
                return self._boolean(condition, negated=True)

    def of_flags(
        self, function: str, kinds: tuple[DataType, DataType], first: int, second: int
    ) -> int | None:
        """``flag = TRUE`` and its like, as a condition; None for anything else."""
        if kinds != (BOOLEAN, BOOLEAN) or function not in ("=", "!="):
            return None
        for one, other in ((first, second), (second, first)):
            if other in (self.true, self.false):
                return one if (other == self.true) == (function == "=") else self.negated(one)
        return None

    def counted(self, term: int, kind: DataType | None) -> int:
        """A constant that stands for a decimal or a time, as the whole number that is counted."""
        value = self.terms.value_of(term)
        if value is None or kind is None or kind.is_integer:
            return term
        ticks = instant(value)
        if kind.is_decimal:
            amount = exact(value)
            assert amount is not None
            ticks = int(amount * 10 ** kind.decimal_parameters[1])
        return term if ticks is None else self.terms.constant(ticks, BIGINT)

    def times(self, said: tuple[object, ...], left: int, right: int) -> int:
        """A condition on the times of two rows; which of them stands left is no matter."""
        if right < left:
            left, right = right, left
            if said[0] == "within":
                lower, upper = (None if b is None else -b for b in (said[2], said[1]))  # type: ignore[operator]
                said = ("within", lower, upper)
        return self.terms.intern(("compare", said, (), left, right))

    def joined(self, kind: str, parts: list[int]) -> int:
        forms = self.terms.forms
        flat: list[int] = []
        for part in parts:
            form = forms[part]
            flat += form[1] if form[0] == kind else [part]
        if any(map(self.terms.raises, flat)):
            # One that comes first may keep rows away from one that raises.
            return self.terms.intern((kind, tuple(flat)), True)
        neutral, decisive = (self.true, self.false) if kind == "and" else (self.false, self.true)
        conjuncts = {part for part in flat if part != neutral}
        if decisive in conjuncts:
            return decisive
        if len(conjuncts) <= 1:
            return conjuncts.pop() if conjuncts else neutral
        return self.terms.intern((kind, tuple(sorted(conjuncts))))

    def comparison(self, function: str, left: Expr, right: Expr, columns: Environment) -> int:
        if function in ("=", "!="):
            for one, other in ((left, right), (right, left)):
                is_boolean_literal = isinstance(other, Literal) and isinstance(other.value, bool)
                if is_boolean_literal and one.type == BOOLEAN:
                    return self.value(one, columns, (function == "=") != other.value)  # type: ignore[attr-defined]
        first, second = self.terms.term(left, columns), self.terms.term(right, columns)
        # It may bring an operand to the other's type, which is a cast like any other.
        casts = raises_itself(Call(function, (left, right), BOOLEAN))
        return self.comparisons.of(function, (left.type, right.type), first, second, casts)

    def _safe_equality(
        self, left: Expr, right: Expr, columns: Environment, negated: bool
    ) -> int | None:
        """``a <=> b`` beside a constant: equal, and there. None where both may be anything."""
        if isinstance(left, Literal):
            left, right = right, left
        if not isinstance(right, Literal) or raises_itself(Call("=", (left, right), BOOLEAN)):
            return None
        value = self.terms.term(left, columns)
        if self.terms.raises(value):
            return None
        if right.value is None:
            return self.null_test(value, not negated)
        equal = self.comparison("!=" if negated else "=", left, right, columns)
        return self.joined(
            "or" if negated else "and", [equal, self.null_test(value, wants_null=negated)]
        )

    # Two-valued

    def truth(self, condition: int) -> int:
        """A number for the rows on which a condition is true."""
        return self.number(self.both((), self.true_parts(condition)))

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
        there = {part for variable in vanished for part in self.terms.parts(variable)}
        present = [self.terms.intern(("notnull", part)) for part in sorted(there)]
        if variables_of(items):
            return [self.terms.intern(("linear", op, items, frozenset())), *present]
        return present if not items else [self.false]

    def _true_or(self, parts: tuple[int, ...]) -> list[int]:
        choices: set[frozenset[int]] = set()
        for part in parts:
            inner = self.simplified(frozenset(self.true_parts(part)))
            if not inner:
                return []
            if self.false in inner:
                continue
            choices.add(inner)
        if not choices:
            return [self.false]
        # What all choices say need not be chosen.
        common = frozenset.intersection(*choices)
        rest = {choice - common for choice in choices}
        if frozenset() in rest:
            return sorted(common)
        chosen = sorted(self.terms.intern(("all", tuple(sorted(choice)))) for choice in rest)
        return [*sorted(common), self.terms.intern(("any", tuple(chosen)))]

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
            shortest = self._without_known_presence(self._bounds.tightened(parts))
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
            if form[0] in ("linear", "compare", "var", "call", "cast", "fails"):
                present |= self.terms.parts(part)
        return frozenset(part for part in parts if tested.get(part) not in present)


def _compares_one_by_one(arguments: tuple[Expr, ...]) -> bool:
    """Whether ``x IN (a, b)`` is ``x = a OR x = b``: Spark brings all of them to one type first."""
    kinds = {argument.type for argument in arguments if argument.type.name != "void"}
    return len(kinds) <= 1 or meet_without_rounding(*kinds)
