"""Terms: what a column's value is, in one spelling per meaning.

Every distinct term, and every condition made of terms, is interned: it gets a small number, and
equal meanings get equal numbers. So a signature is compared by comparing numbers, however deep the
expressions are. A form that is not understood is kept as written, over the terms of its arguments:
it equals only itself. Unknown means unequal.

Paper: Query Merging, Section 4.1, Section 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from headrace.merge.polynomials import (
    ONE,
    Items,
    Polynomial,
    add,
    items_of,
    multiply,
    variables_of,
)
from headrace.merge.ranges import Range, combine, fits, range_of_type
from headrace.optimizer.safety import is_deterministic, raises_itself
from headrace.plan.expressions import Call, Cast, Column, Expr, Literal
from headrace.plan.types import BOOLEAN, DataType

#: Columns of a relation and their terms.
Environment = Mapping[str, int]
Form = tuple[Any, ...]

#: Operators for which the order of two operands changes nothing, not even an overflow.
_COMMUTATIVE = frozenset({"+", "*", "&", "|", "^", "<=>"})
_ARITHMETIC = frozenset({"+", "-", "*"})
_SIGNS = {"+": 1, "-": -1}


class Terms:
    """All terms of a global plan, each with its number.

    ``unbounded`` takes whole numbers as mathematics has them, as if nothing ever overflowed;
    otherwise a sum is rearranged only where the types of its columns rule an overflow out.
    """

    def __init__(self, unbounded: bool = False) -> None:
        self.unbounded = unbounded
        self._numbers: dict[Form, int] = {}
        self.forms: list[Form] = []
        self._raises: list[bool] = []
        self._ranges: dict[int, Range] = {}
        self._unique = 0
        #: Translates conditions that stand where a value does; set by ``Conditions``.
        self.condition: Callable[[Expr, Environment], int] | None = None

    # Interning

    def intern(self, form: Form, raises: bool = False) -> int:
        number = self._numbers.get(form)
        if number is None:
            number = len(self.forms)
            self._numbers[form] = number
            self.forms.append(form)
            self._raises.append(raises)
        return number

    def raises(self, term: int) -> bool:
        """Whether evaluating it on some row might stop the query."""
        return self._raises[term]

    def variable(self, leaf: int, name: object, kind: DataType) -> int:
        """A column of a leaf relation, about which nothing is known but its type."""
        number = self.intern(("var", leaf, name))
        if kind.is_integer:
            self._ranges[number] = range_of_type(kind)
        return number

    # Expressions

    def term(self, expr: Expr, columns: Environment) -> int:
        if isinstance(expr, Column):
            return columns[expr.name]
        if isinstance(expr, Literal):
            return self._literal(expr)
        if isinstance(expr, Call):
            if expr.function in _ARITHMETIC and expr.type.is_integer:
                return self._arithmetic(expr, columns)
            if expr.function == "negative" and expr.type.is_integer:
                return self._negative(expr, columns)
            if expr.type == BOOLEAN and self.condition is not None:
                return self.condition(expr, columns)
        if isinstance(expr, Cast) and expr.type.is_integer and expr.argument.type.is_integer:
            inner = self.term(expr.argument, columns)
            # Where TRY_CAST finds no room it gives NULL, and does not raise.
            roomy = self.unbounded and not expr.safe
            if roomy or fits(self.range(inner, expr.argument.type), expr.type):
                return inner
        return self.opaque(expr, columns)

    def _literal(self, expr: Literal) -> int:
        if expr.value is None:
            return self.intern(("null", expr.type.name))
        if expr.type.is_integer and isinstance(expr.value, int):
            return self.polynomial({ONE: expr.value} if expr.value else {}, frozenset())
        # Written out: 0.0 and -0.0 are equal in Python, and 1, 1.0 and True are one key.
        return self.intern(("value", expr.type.name, repr(expr.value)))

    def _arithmetic(self, expr: Call, columns: Environment) -> int:
        first, second = expr.arguments
        if not (first.type.is_integer and second.type.is_integer):
            return self.opaque(expr, columns)
        left, right = self.term(first, columns), self.term(second, columns)
        if not self.in_any_order((left, right)):
            return self._call(expr, (left, right))
        values: Range | None = None
        if not self.unbounded:
            values = combine(
                expr.function, self.range(left, first.type), self.range(right, second.type)
            )
            if not fits(values, expr.type):
                return self._call(expr, (left, right))
        (a, gone_a), (b, gone_b) = self.as_polynomial(left), self.as_polynomial(right)
        if expr.function == "*":
            result = multiply(a, b)
        else:
            result = add(a, b, _SIGNS[expr.function])
        if result is None:
            return self._call(expr, (left, right))
        gone = gone_a | gone_b
        if len(result) < len(a) + len(b):
            gone |= _variables(a) | _variables(b)
            gone -= _variables(result)
        number = self.polynomial(result, gone)
        if values is not None:
            self._ranges.setdefault(number, values)
        return number

    def _negative(self, expr: Call, columns: Environment) -> int:
        (argument,) = expr.arguments
        zero = Literal(0, argument.type)
        return self._arithmetic(Call("-", (zero, argument), expr.type), columns)

    def opaque(self, expr: Expr, columns: Environment) -> int:
        if isinstance(expr, Call):
            return self._call(expr, tuple(self.term(a, columns) for a in expr.arguments))
        if isinstance(expr, Cast):
            inner = self.term(expr.argument, columns)
            given = expr.argument.type.name
            form = ("cast", given, expr.type.name, expr.safe, inner)
            return self._typed(form, raises_itself(expr) or self.raises(inner), expr.type)
        self._unique += 1
        return self.intern(("unknown", self._unique), True)

    def _call(self, expr: Call, arguments: tuple[int, ...]) -> int:
        if not is_deterministic(Call(expr.function, (), expr.type)):
            self._unique += 1
            return self.intern(("unknown", self._unique), True)
        raising = any(map(self.raises, arguments))
        kinds = tuple(argument.type.name for argument in expr.arguments)
        if expr.function in _COMMUTATIVE and self.in_any_order(arguments):
            (one, k1), (two, k2) = sorted(zip(arguments, kinds, strict=True))
            arguments, kinds = (one, two), (k1, k2)
        form = ("call", expr.function, expr.type.name, kinds, arguments)
        whole = all(argument.type.is_integer for argument in expr.arguments)
        overflow_only = self.unbounded and whole and expr.function in _ARITHMETIC
        return self._typed(form, raising or (raises_itself(expr) and not overflow_only), expr.type)

    def _typed(self, form: Form, raises: bool, kind: DataType) -> int:
        number = self.intern(form, raises)
        if kind.is_integer:
            self._ranges.setdefault(number, range_of_type(kind))
        return number

    def in_any_order(self, operands: Collection[int]) -> bool:
        """Whether it does not matter which of two operands is computed first.

        Spark does not look at the second if the first is NULL, so the order may decide if a row
        raises; but not where one of them is a constant.
        """
        if len(operands) != 2:
            return False
        return not any(map(self.raises, operands)) or any(map(self._is_constant, operands))

    def _is_constant(self, term: int) -> bool:
        form = self.forms[term]
        return form[0] == "value" or (form[0] == "poly" and not variables_of(form[1]) | form[2])

    # Polynomials

    def polynomial(self, polynomial: Polynomial, vanished: frozenset[int]) -> int:
        """The term of a polynomial. ``vanished`` are variables that it no longer holds, but whose
        NULL still makes it NULL: ``a - a`` is 0 only where ``a`` is not NULL."""
        if len(polynomial) == 1 and not vanished:
            ((monomial, coefficient),) = polynomial.items()
            if coefficient == 1 and len(monomial) == 1:
                return monomial[0]
        items = items_of(polynomial)
        number = self._numbers.get(("poly", items, vanished))
        if number is None:
            parts = variables_of(items) | vanished
            number = self.intern(("poly", items, vanished), any(map(self.raises, parts)))
        return number

    def as_polynomial(self, term: int) -> tuple[Polynomial, frozenset[int]]:
        form = self.forms[term]
        if form[0] == "poly":
            return dict(form[1]), form[2]
        return {(term,): 1}, frozenset()

    def range(self, term: int, kind: DataType) -> Range:
        """The whole numbers that a term can be."""
        form = self.forms[term]
        if form[0] == "poly" and not variables_of(form[1]):
            constant = dict(form[1]).get(ONE, 0)
            return constant, constant
        return self._ranges.get(term) or range_of_type(kind)

    def parts(self, term: int) -> frozenset[int]:
        """The terms whose NULL makes this one NULL, and nothing else does."""
        form = self.forms[term]
        if form[0] == "poly":
            gone: frozenset[int] = form[2]
            return variables_of(form[1]) | gone
        return frozenset({term})

    # Renaming

    def renamed(self, number: int, changes: Mapping[int, int], done: dict[int, int]) -> int:
        """The same term or condition over other leaves, for a relation that is joined with itself.

        ``changes`` are leaves and what stands for them. Only forms that name leaves are rebuilt.
        """
        if number in done:
            return done[number]
        form = self.forms[number]
        if form[0] == "var":
            leaf = changes.get(form[1], form[1])
            kind = self._ranges.get(number)
            result = self.intern(("var", leaf, form[2]))
            if kind is not None:
                self._ranges[result] = kind
        elif form[0] in ("poly", "linear"):
            result = self._renamed_polynomial(form, changes, done, self._raises[number])
        else:
            raises = self._raises[number]
            result = self.intern(self._renamed_form(form, changes, done, raises), raises)
        done[number] = result
        return result

    def _renamed_polynomial(
        self, form: Form, changes: Mapping[int, int], done: dict[int, int], raises: bool
    ) -> int:
        items: Items = form[-2]
        moved = {
            tuple(sorted(self.renamed(v, changes, done) for v in monomial)): coefficient
            for monomial, coefficient in items
        }
        gone = frozenset(self.renamed(v, changes, done) for v in form[-1])
        if form[0] == "poly":
            return self.polynomial(moved, gone)
        if form[1] != "<=" and moved[min(m for m in moved if m)] < 0:
            moved = {m: -c for m, c in moved.items()}
        return self.intern(("linear", form[1], items_of(moved), gone), raises)

    def _renamed_form(
        self, form: Form, changes: Mapping[int, int], done: dict[int, int], raises: bool
    ) -> Form:
        kind = form[0]
        if kind in ("null", "value", "true", "false", "unknown"):
            return form
        if kind == "cast":
            return (*form[:-1], self.renamed(form[-1], changes, done))
        if kind == "call":
            return (*form[:-1], tuple(self.renamed(a, changes, done) for a in form[-1]))
        if kind == "compare":
            return (*form[:-2], *(self.renamed(a, changes, done) for a in form[-2:]))
        # Conditions: isnull, notnull, holds, fails over a term; and, or, any, all over conditions.
        if isinstance(form[1], tuple):
            moved = [self.renamed(a, changes, done) for a in form[1]]
            return (kind, tuple(moved if raises else sorted(moved)))
        return (kind, self.renamed(form[1], changes, done))


def _variables(polynomial: Polynomial) -> frozenset[int]:
    return frozenset(variable for monomial in polynomial for variable in monomial)
