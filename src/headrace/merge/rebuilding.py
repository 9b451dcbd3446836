"""Terms and conditions made anew over other variables, in the one spelling of what comes out.

Two things ask for it: a relation that is joined with itself, whose copies have columns of their own
(``leaves``), and equations that let one column stand for another, or a constant for it
(``variables``).
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.merge.conditions import Conditions, Predicate
from headrace.merge.polynomials import ONE, Items, Polynomial, add, multiply
from headrace.merge.terms import Form
from headrace.plan.types import DataType

_NOTHING_INSIDE = frozenset({"null", "value", "true", "false", "unknown"})


class Rebuilding:
    """Replaces variables, those of whole relations or single ones."""

    def __init__(
        self,
        conditions: Conditions,
        leaves: Mapping[int, int] | None = None,
        variables: Mapping[int, int] | None = None,
    ) -> None:
        self._conditions = conditions
        self._terms = conditions.terms
        self._leaves = leaves or {}
        self._variables = variables or {}
        self._done: dict[int, int] = {}

    def rebuilt(self, number: int) -> int:
        """The same term or condition over what stands for its variables."""
        result = self._done.get(number)
        if result is None:
            result = self._done[number] = self._made(number, self._terms.forms[number])
        return result

    def predicate(self, predicate: Predicate) -> Predicate:
        return tuple(
            frozenset(part for old in segment for part in self.parts(old))
            if isinstance(segment, frozenset)
            else self.rebuilt(segment)
            for segment in predicate
        )

    def parts(self, condition: int) -> list[int]:
        """The conditions that a conjunct of a filter becomes."""
        return self._conditions.true_parts(self.rebuilt(condition))

    def _made(self, number: int, form: Form) -> int:
        terms, kind = self._terms, form[0]
        raises = terms.raises(number)
        if kind in _NOTHING_INSIDE:
            return number
        if kind == "var":
            return self._variable(number, form)
        if kind == "poly":
            return self._sum(form[1], form[2])
        if kind == "linear":
            return self._linear(form)
        if kind == "cast":
            return terms.cast(form[1], DataType(form[2]), form[3], self.rebuilt(form[4]), raises)
        if kind == "call":
            kinds = tuple(map(DataType, form[3]))
            arguments = tuple(map(self.rebuilt, form[4]))
            return terms.call(form[1], DataType(form[2]), kinds, arguments, raises)
        if kind == "compare":
            return self._compared(form, raises)
        if kind == "where":
            return self._conditions.truth(self._all(form[1]))
        return self._condition(form)

    def _variable(self, number: int, form: Form) -> int:
        if number in self._variables:
            return self._variables[number]
        leaf = self._leaves.get(form[1])
        if leaf is None:
            return number
        kind = self._terms.kind(number)
        assert kind is not None
        return self._terms.variable(leaf, form[2], kind)

    def _sum(self, items: Items, vanished: frozenset[int]) -> int:
        total, gone = self._polynomial(items)
        gone |= {part for v in vanished for part in self._parts(v)}
        return self._terms.polynomial(total, frozenset(gone - _variables(total)))

    def _polynomial(self, items: Items) -> tuple[Polynomial, set[int]]:
        """The sum over what stands for its variables, and what makes it NULL beside it."""
        total: Polynomial = {}
        met: set[int] = set()
        for monomial, coefficient in items:
            product: Polynomial | None = {ONE: coefficient}
            for variable in monomial:
                factor, gone = self._terms.as_polynomial(self._number(variable))
                assert product is not None
                met |= gone | _variables(factor)
                product = multiply(product, factor)
            # A variable becomes a variable or a constant, so that no product grows.
            assert product is not None
            total = add(total, product)
        return total, met

    def _number(self, variable: int) -> int:
        """A constant that stands for a variable, counted as the variable is."""
        replaced = self.rebuilt(variable)
        return self._conditions.counted(replaced, self._terms.kind(variable))

    def _parts(self, variable: int) -> frozenset[int]:
        """What makes it NULL that stands for a variable."""
        replaced = self.rebuilt(variable)
        return frozenset() if self._terms.is_constant(replaced) else frozenset({replaced})

    def _linear(self, form: Form) -> int:
        total, gone = self._polynomial(form[2])
        gone |= {part for v in form[3] for part in self._parts(v)}
        return self._conditions.comparisons.of_numbers(form[1], total, {}, frozenset(gone))

    def _compared(self, form: Form, raises: bool) -> int:
        first, second = self.rebuilt(form[3]), self.rebuilt(form[4])
        if isinstance(form[1], tuple):
            return self._conditions.times(form[1], first, second)
        kinds = DataType(form[2][0]), DataType(form[2][1])
        truth = self._conditions.of_flags(form[1], kinds, first, second)
        if truth is not None and not raises:
            return truth
        return self._conditions.comparisons.of(form[1], kinds, first, second, raises)

    def _condition(self, form: Form) -> int:
        """Conditions: isnull, notnull, fails over a term; and, or, any, all over conditions."""
        conditions, kind = self._conditions, form[0]
        match kind:
            case "isnull" | "notnull":
                return conditions.null_test(self.rebuilt(form[1]), kind == "isnull")
            case "fails":
                return conditions.negated(self.rebuilt(form[1]))
            case "and" | "or":
                return conditions.joined(kind, [self.rebuilt(part) for part in form[1]])
            case "all":
                return self._all(form[1])
            case "any":
                return conditions.joined("or", [self.rebuilt(part) for part in form[1]])
            case _:
                raise AssertionError(f"{kind} is no form of a condition")

    def _all(self, parts: tuple[int, ...]) -> int:
        return self._conditions.joined("and", [self.rebuilt(part) for part in parts])


def _variables(polynomial: Polynomial) -> set[int]:
    return {variable for monomial in polynomial for variable in monomial}
