"""Terms: what a column's value is, in one spelling per meaning.

Every distinct term, and every condition made of terms, is interned: it gets a small number, and
equal meanings get equal numbers. So a signature is compared by comparing numbers, however deep the
expressions are. A form that is not understood is kept as written, over the terms of its arguments:
it equals only itself. Unknown means unequal.

Paper: Query Merging, Section 4.1, Section 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from headrace.merge.constants import computed
from headrace.merge.polynomials import (
    ONE,
    Polynomial,
    add,
    items_of,
    multiply,
    variables_of,
)
from headrace.merge.ranges import Range, combine, fits, range_of_type
from headrace.merge.spelling import NULL_WITH_ANY, spelt
from headrace.optimizer.safety import is_deterministic, raises_itself
from headrace.plan.expressions import Call, Cast, Column, Expr, Literal, LiteralValue
from headrace.plan.types import BOOLEAN, DataType

#: Columns of a relation and their terms.
Environment = Mapping[str, int]
Form = tuple[Any, ...]

#: Operators for which the order of two operands changes nothing, not even an overflow.
_COMMUTATIVE = frozenset({"+", "*", "&", "|", "^", "<=>"})
#: Functions of any number of arguments, in any order where equal values are the same values.
_IN_ANY_ORDER = frozenset({"greatest", "least"})
_ARITHMETIC = frozenset({"+", "-", "*"})
_SIGNS = {"+": 1, "-": -1}
_PLAIN = frozenset({"string", "boolean", "date", "timestamp"})


def is_plain(kind: DataType) -> bool:
    """Whether values of this type are equal only if they are the same, as 0.0 and -0.0 are not."""
    return kind.is_integer or kind.is_decimal or kind.name in _PLAIN


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
        self._kinds: dict[int, DataType] = {}
        self._constants: dict[int, LiteralValue] = {}
        self._unique = 0
        #: Translates conditions that stand where a value does; set by ``Conditions``.
        self.condition: Callable[[Expr, Environment], int] | None = None
        #: A number for when a condition is true; set by ``Conditions``.
        self.truth: Callable[[int], int] = lambda condition: condition
        #: What the quotient of two columns of groups is; set by ``Signer``.
        self.quotient: Callable[[object, object], object | None] = lambda one, other: None

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
        self._kinds.setdefault(number, kind)
        if kind.is_integer:
            self._ranges[number] = range_of_type(kind)
        return number

    def kind(self, variable: int) -> DataType | None:
        """The type of a variable; a column of another type may stand for it, with equal values."""
        return self._kinds.get(variable)

    # Expressions

    def term(self, expr: Expr, columns: Environment) -> int:
        expr = spelt(expr)
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
        return self.constant(expr.value, expr.type)

    def constant(self, value: LiteralValue, kind: DataType) -> int:
        if kind.is_integer and isinstance(value, int):
            return self.polynomial({ONE: value} if value else {}, frozenset())
        # Written out: 0.0 and -0.0 are equal in Python, and 1, 1.0 and True are one key.
        number = self.intern(("value", kind.name, repr(value)))
        self._constants[number] = value
        return number

    def value_of(self, term: int) -> LiteralValue:
        """The constant that a term is; None if it is none."""
        form = self.forms[term]
        if form[0] == "poly" and not variables_of(form[1]) | form[2]:
            return int(dict(form[1]).get(ONE, 0))
        return self._constants.get(term)

    def is_null(self, term: int) -> bool:
        return bool(self.forms[term][0] == "null")

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
            raises = raises_itself(expr) or self.raises(inner)
            return self.cast(expr.argument.type.name, expr.type, expr.safe, inner, raises)
        self._unique += 1
        return self.intern(("unknown", self._unique), True)

    def _call(self, expr: Call, arguments: tuple[int, ...]) -> int:
        if not is_deterministic(Call(expr.function, (), expr.type)):
            self._unique += 1
            return self.intern(("unknown", self._unique), True)
        kinds = tuple(argument.type for argument in expr.arguments)
        whole = all(kind.is_integer for kind in kinds)
        overflow_only = self.unbounded and whole and expr.function in _ARITHMETIC
        raises = any(map(self.raises, arguments)) or (raises_itself(expr) and not overflow_only)
        return self.call(expr.function, expr.type, kinds, arguments, raises)

    def call(
        self,
        function: str,
        kind: DataType,
        kinds: tuple[DataType, ...],
        arguments: tuple[int, ...],
        raises: bool,
    ) -> int:
        """A function of terms; ``kinds`` are the types that its arguments have."""
        value = computed(function, kind, [self.value_of(a) for a in arguments], kinds)
        if value is not None:
            return self.constant(value, kind)
        if function == "/":
            quotient = self._quotient(kind, arguments)
            if quotient is not None:
                return quotient
        if function == "case" and not raises:
            arguments = self._with_truths(arguments)
        elif function == "coalesce":
            arguments, kinds = self._first_that_is_there(kind, arguments, kinds)
            if len(arguments) == 1 and kinds == (kind,):
                return arguments[0]
        elif function in _IN_ANY_ORDER:
            # 0.0 and -0.0 are equal, and the first of them is taken.
            if not raises and is_plain(kind) and len(set(kinds)) == 1:
                arguments = tuple(sorted(set(arguments)))
                kinds = kinds[: len(arguments)]
        elif function in _COMMUTATIVE and self.in_any_order(arguments):
            pairs = sorted(zip(arguments, (k.name for k in kinds), strict=True))
            arguments = tuple(argument for argument, _ in pairs)
            kinds = tuple(DataType(name) for _, name in pairs)
        names = tuple(k.name for k in kinds)
        return self._typed(("call", function, kind.name, names, arguments), raises, kind)

    def _quotient(self, kind: DataType, arguments: tuple[int, ...]) -> int | None:
        """A column of groups that is what one of their columns by another is."""
        one, other = (self.forms[argument] for argument in arguments)
        if one[0] != "var" or other[0] != "var" or one[1] != other[1]:
            return None
        column = self.quotient(one[2], other[2])
        return None if column is None else self.variable(one[1], column, kind)

    def _with_truths(self, arguments: tuple[int, ...]) -> tuple[int, ...]:
        """A CASE asks of its conditions only whether they are true."""
        conditions = range(0, len(arguments) - 1, 2)
        return tuple(
            self.truth(argument) if place in conditions else argument
            for place, argument in enumerate(arguments)
        )

    def _first_that_is_there(
        self, kind: DataType, arguments: tuple[int, ...], kinds: tuple[DataType, ...]
    ) -> tuple[tuple[int, ...], tuple[DataType, ...]]:
        """One level of COALESCE, without what is never looked at."""
        needed: list[tuple[int, DataType]] = []
        for argument, own in zip(arguments, kinds, strict=True):
            form = self.forms[argument]
            if form[0] == "call" and form[1] == "coalesce" and own == kind:
                needed += zip(form[4], map(DataType, form[3]), strict=True)
            elif not self.is_null(argument):
                needed.append((argument, own))
            if needed and self.is_constant(needed[-1][0]):
                break
        if not needed:
            return arguments, kinds
        return tuple(a for a, _ in needed), tuple(k for _, k in needed)

    def _typed(self, form: Form, raises: bool, kind: DataType) -> int:
        number = self.intern(form, raises)
        self._kinds.setdefault(number, kind)
        if kind.is_integer:
            self._ranges.setdefault(number, range_of_type(kind))
        return number

    def cast(self, given: str, wanted: DataType, safe: bool, inner: int, raises: bool) -> int:
        return self._typed(("cast", given, wanted.name, safe, inner), raises, wanted)

    def in_any_order(self, operands: Collection[int]) -> bool:
        """Whether it does not matter which of two operands is computed first.

        Spark does not look at the second if the first is NULL, so the order may decide if a row
        raises; but not where one of them is a constant.
        """
        if len(operands) != 2:
            return False
        return not any(map(self.raises, operands)) or any(map(self.is_constant, operands))

    def is_constant(self, term: int) -> bool:
        return self.value_of(term) is not None

    def inside(self, term: int) -> frozenset[int]:
        """The variables that a term is computed of, and what is not understood in it."""
        form = self.forms[term]
        match form[0]:
            case "null" | "value" | "true" | "false":
                return frozenset()
            case "poly" | "linear":
                below: Iterable[int] = variables_of(form[-2]) | form[-1]
            case "cast":
                below = (form[4],)
            case "call":
                below = form[4]
            case "compare":
                below = form[3:5]
            case "isnull" | "notnull" | "fails":
                below = (form[1],)
            case "and" | "or" | "any" | "all" | "where" if not self.raises(term):
                below = form[1]
            case _:
                return frozenset({term})
        return frozenset(variable for one in below for variable in self.inside(one))

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
        match form[0]:
            case "poly" | "linear":
                inner: frozenset[int] = variables_of(form[-2]) | form[-1]
            case "value" | "true" | "false" | "isnull" | "notnull":
                return frozenset()
            case "compare":
                inner = frozenset(form[3:5])
            case "fails":
                inner = frozenset({form[1]})
            case "cast" if not form[3] and not self.raises(term):
                inner = frozenset({form[4]})
            case "call" if form[1] in NULL_WITH_ANY and not self.raises(term):
                inner = frozenset(form[4])
            case _:
                return frozenset({term})
        return frozenset(part for one in inner for part in self.parts(one))


def _variables(polynomial: Polynomial) -> frozenset[int]:
    return frozenset(variable for monomial in polynomial for variable in monomial)
