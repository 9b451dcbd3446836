"""One spelling per meaning: terms, conditions and polynomials by themselves."""

from __future__ import annotations

import itertools
import random

import pytest

from headrace.merge.conditions import Conditions
from headrace.merge.polynomials import (
    MOST_TERMS,
    ONE,
    Polynomial,
    add,
    at_most_zero,
    is_linear,
    is_zero,
    items_of,
    multiply,
    variables_of,
)
from headrace.merge.ranges import combine, fits, range_of_type
from headrace.merge.rebuilding import Rebuilding
from headrace.merge.terms import Terms
from headrace.plan.expressions import Call, Cast, Column, Expr, Literal
from headrace.plan.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    DataType,
)
from tests.merge.generate import arithmetic, truth, whole, wide
from tests.merge.interpreter import value_of

NAMES = {
    "y": TINYINT,
    "i": INT,
    "j": INT,
    "l": BIGINT,
    "d": DOUBLE,
    "e": DOUBLE,
    "s": STRING,
    "b": BOOLEAN,
    "c": BOOLEAN,
}
Y, N, M, LARGE, D, E, S, B, C = (Column(name, kind) for name, kind in NAMES.items())
TRUE, FALSE, UNKNOWN = (Literal(value, BOOLEAN) for value in (True, False, None))


class Space:
    """Terms over one relation with the columns above."""

    def __init__(self, unbounded: bool = False) -> None:
        self.terms = Terms(unbounded)
        self.conditions = Conditions(self.terms)
        leaf = self.terms.intern(("stream", "s"))
        self.columns = {n: self.terms.variable(leaf, n, kind) for n, kind in NAMES.items()}

    def term(self, expr: Expr) -> int:
        return self.terms.term(expr, self.columns)

    def kept(self, *filters: Expr) -> int:
        """The number of what a row must fulfil to pass these filters, one after the other."""
        predicate: tuple[frozenset[int] | int, ...] = ()
        for condition in filters:
            predicate = self.conditions.where(predicate, condition, self.columns)
        return self.conditions.number(predicate)

    def same_value(self, one: Expr, other: Expr) -> bool:
        return self.term(one) == self.term(other)

    def same_rows(self, one: Expr, other: Expr) -> bool:
        return self.kept(one) == self.kept(other)


@pytest.fixture
def space() -> Space:
    return Space()


def plus(left: Expr, right: Expr | int) -> Expr:
    return arithmetic("+", left, whole(right) if isinstance(right, int) else right)


def minus(left: Expr, right: Expr | int) -> Expr:
    return arithmetic("-", left, whole(right) if isinstance(right, int) else right)


def times(left: Expr, right: Expr | int) -> Expr:
    return arithmetic("*", left, whole(right) if isinstance(right, int) else right)


def less(left: Expr, right: Expr | int) -> Expr:
    return truth("<", left, whole(right) if isinstance(right, int) else right)


def negated(expr: Expr) -> Expr:
    return truth("not", expr)


# --- polynomials ---------------------------------------------------------------------------------


def value(polynomial: Polynomial, variables: dict[int, int]) -> int:
    total = 0
    for monomial, coefficient in polynomial.items():
        for variable in monomial:
            coefficient *= variables[variable]
        total += coefficient
    return total


def random_polynomial(chance: random.Random) -> Polynomial:
    monomials: list[tuple[int, ...]] = [(), (1,), (2,), (1, 1), (1, 2), (2, 2, 2)]
    chosen = chance.sample(monomials, chance.randint(0, 4))
    return {monomial: chance.choice((-3, -2, -1, 1, 2, 6)) for monomial in chosen}


def test_polynomials_add_and_multiply_as_numbers_do() -> None:
    chance = random.Random(1)
    for _ in range(300):
        a, b = random_polynomial(chance), random_polynomial(chance)
        product = multiply(a, b)
        assert product is not None
        # No zero is kept, so that equal polynomials are equal dicts.
        assert 0 not in {*product.values(), *add(a, b).values(), *add(a, b, -1).values()}
        for x, y in itertools.product((-3, 0, 1, 7), repeat=2):
            at = {1: x, 2: y}
            assert value(product, at) == value(a, at) * value(b, at)
            assert value(add(a, b), at) == value(a, at) + value(b, at)
            assert value(add(a, b, -1), at) == value(a, at) - value(b, at)


def test_spellings_of_comparisons_hold_for_the_same_numbers() -> None:
    chance = random.Random(2)
    for _ in range(300):
        polynomial = random_polynomial(chance)
        low, zero = at_most_zero(polynomial), is_zero(polynomial)
        for x, y in itertools.product(range(-4, 5), repeat=2):
            at = {1: x, 2: y}
            number = value(polynomial, at)
            spelt = low if isinstance(low, bool) else value(dict(low), at) <= 0
            assert spelt == (number <= 0), (polynomial, at)
            spelt = zero if isinstance(zero, bool) else value(dict(zero), at) == 0
            assert spelt == (number == 0), (polynomial, at)


def test_a_bound_is_tightened_to_the_least_factor() -> None:
    assert at_most_zero({(1,): 10, ONE: -35}) == (((), -3), ((1,), 1))
    assert at_most_zero({(1,): -10, ONE: 35}) == (((), 4), ((1,), -1))
    assert at_most_zero({(1,): 4, (2,): 6, ONE: -9}) == (((), -4), ((1,), 2), ((2,), 3))
    assert at_most_zero({ONE: 1}) is False
    assert at_most_zero({}) is True


def test_an_equation_has_one_sign() -> None:
    assert is_zero({(1,): -2, (2,): 4}) == is_zero({(1,): 1, (2,): -2}) == (((1,), 1), ((2,), -2))
    assert is_zero({(1,): 2, ONE: -7}) is False
    assert is_zero({(1,): 2, ONE: -8}) == (((), -4), ((1,), 1))


def test_variables_and_degrees() -> None:
    items = items_of({(1, 2): 3, (4,): 1, ONE: 5})
    assert variables_of(items) == {1, 2, 4}
    assert not is_linear(items)
    assert is_linear(items_of({(1,): 3, ONE: 5}))


def test_long_products_are_left_as_they_are() -> None:
    many = {(n,): 1 for n in range(MOST_TERMS)}
    assert multiply(many, {(0,): 1, (1,): 1}) is None
    assert multiply(many, {(0,): 1}) is not None


@pytest.mark.parametrize("function", ["+", "-", "*"])
def test_ranges_hold_what_can_come_out(function: str) -> None:
    for left, right in itertools.product([(-3, 2), (0, 4), (-5, -1)], repeat=2):
        low, high = combine(function, left, right)
        results = [
            {"+": a + b, "-": a - b, "*": a * b}[function]
            for a in range(left[0], left[1] + 1)
            for b in range(right[0], right[1] + 1)
        ]
        assert (low, high) == (min(results), max(results))


def test_ranges_of_types() -> None:
    assert range_of_type(SMALLINT) == (-32_768, 32_767)
    assert fits((-128, 127), TINYINT)
    assert not fits((-128, 128), TINYINT)
    assert not fits((-129, 0), TINYINT)


# --- terms ---------------------------------------------------------------------------------------


def test_sums_that_cannot_overflow_have_one_spelling(space: Space) -> None:
    n, m = wide(N), wide(M)
    assert space.same_value(plus(n, m), plus(m, n))
    assert space.same_value(minus(plus(n, 5), 5), n)
    assert space.same_value(times(plus(n, m), 2), plus(plus(times(m, 2), n), n))
    assert space.same_value(Cast(N, BIGINT), N)
    assert not space.same_value(minus(n, m), minus(m, n))
    assert not space.same_value(plus(n, 1), n)


def test_sums_that_might_overflow_stay_as_they_are(space: Space) -> None:
    assert not space.same_value(minus(plus(N, 5), 5), N)
    assert not space.same_value(plus(plus(N, M), 1), plus(N, plus(M, 1)))
    assert not space.same_value(Cast(LARGE, INT), LARGE)
    # But the order of two operands is no matter, not even for an overflow.
    assert space.same_value(plus(N, M), plus(M, N))
    assert space.terms.raises(space.term(plus(N, M)))
    assert not space.terms.raises(space.term(plus(wide(N), wide(M))))


def test_without_overflows_they_have_one_spelling_too() -> None:
    space = Space(unbounded=True)
    assert space.same_value(minus(plus(N, 5), 5), N)
    assert space.same_value(times(times(LARGE, LARGE), 2), times(plus(LARGE, LARGE), LARGE))
    assert space.same_value(Cast(LARGE, INT), LARGE)
    assert not space.terms.raises(space.term(plus(N, M)))
    # A zero still divides.
    assert space.terms.raises(space.term(Call("div", (N, M), BIGINT)))


def test_a_room_is_found_step_by_step(space: Space) -> None:
    """TINYINT leaves room in INT for a product of four, but not of five."""
    y = Cast(Y, INT)
    two = times(y, y)
    assert space.same_value(times(two, two), times(y, times(y, two)))
    assert not space.terms.raises(space.term(times(two, two)))
    assert space.terms.raises(space.term(times(times(two, two), y)))
    assert not space.terms.raises(space.term(times(wide(times(two, two)), y)))


def test_the_negative_of_the_least_number_is_not_there(space: Space) -> None:
    assert space.terms.raises(space.term(Call("negative", (N,), INT)))
    n = wide(N)
    opposite = Call("negative", (n,), BIGINT)
    assert not space.terms.raises(space.term(opposite))
    assert space.same_value(opposite, times(n, -1))


def test_variables_that_vanish_still_make_null(space: Space) -> None:
    n, m = wide(N), wide(M)
    nothing = minus(n, n)
    assert not space.same_value(nothing, whole(0))
    assert not space.same_value(nothing, minus(m, m))
    assert space.same_value(nothing, times(n, 0))
    assert space.same_value(minus(plus(n, m), m), plus(n, minus(m, m)))
    assert not space.same_value(minus(plus(n, m), m), n)
    assert space.same_value(times(minus(n, n), m), minus(times(n, m), times(n, m)))


def test_literals_of_other_types_are_other_terms(space: Space) -> None:
    values: list[tuple[object, DataType]] = [
        (1, INT),
        (1.0, DOUBLE),
        ("1", STRING),
        (True, BOOLEAN),
        (0.0, DOUBLE),
        (-0.0, DOUBLE),
        (None, INT),
        (None, STRING),
    ]
    numbers = {space.term(Literal(value, kind)) for value, kind in values}  # type: ignore[arg-type]
    assert len(numbers) == len(values)
    # Whole numbers are what they are, in any width.
    assert space.same_value(Literal(1, INT), Literal(1, BIGINT))


def test_what_is_done_to_a_number_depends_on_its_width(space: Space) -> None:
    def text(expr: Expr) -> Expr:
        return Cast(expr, STRING)

    assert space.same_value(N, wide(N))
    assert not space.same_value(Call("~", (N,), INT), Call("~", (Cast(Y, INT),), INT))
    assert not space.same_value(
        Call("coalesce", (N, N), INT), Call("coalesce", (wide(N), wide(N)), BIGINT)
    )
    assert space.same_value(text(N), text(N))


def test_doubles_commute_and_do_nothing_else(space: Space) -> None:
    def sum_of(a: Expr, b: Expr) -> Expr:
        return Call("+", (a, b), DOUBLE)

    assert space.same_value(sum_of(D, E), sum_of(E, D))
    assert not space.same_value(sum_of(sum_of(D, E), E), sum_of(D, sum_of(E, E)))
    assert not space.same_value(Call("-", (D, D), DOUBLE), Literal(0.0, DOUBLE))


def test_what_is_not_deterministic_equals_nothing(space: Space) -> None:
    drawn = Call("rand", (), DOUBLE)
    assert not space.same_value(drawn, drawn)
    assert not space.same_rows(truth("<", drawn, D), truth("<", drawn, D))
    now = Call("current_timestamp", (), TIMESTAMP)
    assert not space.same_value(now, now)


# --- conditions as values ------------------------------------------------------------------------


def test_negation_goes_down_to_comparisons(space: Space) -> None:
    assert space.same_value(negated(less(N, M)), truth(">=", N, M))
    assert space.same_value(
        negated(truth("or", less(N, 3), B)), truth("and", negated(B), truth(">=", N, whole(3)))
    )
    assert space.same_value(negated(negated(B)), B)
    assert not space.same_value(negated(B), B)
    assert not space.same_value(negated(truth("<=>", N, M)), truth("!=", N, M))


def test_null_is_neither_true_nor_false(space: Space) -> None:
    """As values these differ, though one of them may be true where the other is."""
    n = wide(N)
    assert not space.same_value(truth("=", N, N), TRUE)
    assert not space.same_value(less(n, n), FALSE)
    assert not space.same_value(truth("or", B, negated(B)), TRUE)
    assert not space.same_value(truth("and", B, UNKNOWN), FALSE)
    assert not space.same_value(truth("=", times(n, 2), whole(7)), FALSE)
    assert space.same_value(truth("=", times(n, 2), whole(7)), less(n, n))
    assert not space.same_value(less(n, n), less(wide(M), wide(M)))
    assert space.same_value(truth("and", B, truth("and", TRUE, C)), truth("and", C, B))
    assert space.term(truth("and", B, truth("<", whole(2), whole(1)))) == space.conditions.false
    assert space.term(truth("or", B, truth("<", whole(1), whole(2)))) == space.conditions.true
    assert space.term(negated(UNKNOWN)) == space.conditions.unknown


def test_tests_for_null_look_into_sums(space: Space) -> None:
    both = plus(wide(N), wide(M))
    missing = truth("isnull", both)
    assert space.same_value(missing, truth("or", truth("isnull", M), truth("isnull", N)))
    assert space.same_value(negated(missing), truth("isnotnull", both))
    assert space.same_value(truth("isnull", minus(wide(N), wide(N))), truth("isnull", N))
    assert space.same_value(truth("isnull", whole(1)), negated(TRUE))
    # A sum that overflows is not NULL: it stops the query.
    assert not space.same_value(
        truth("isnull", plus(N, M)), truth("or", truth("isnull", N), truth("isnull", M))
    )


def test_lists_are_comparisons(space: Space) -> None:
    listed = truth("in", N, whole(1), whole(2))
    either = truth("or", truth("=", N, whole(2)), truth("=", whole(1), N))
    assert space.same_value(listed, either)
    assert space.same_value(
        negated(listed), truth("and", truth("!=", N, whole(1)), truth("!=", N, whole(2)))
    )
    assert not space.same_value(
        truth("in", N, whole(1), Literal(None, INT)), truth("=", N, whole(1))
    )


def test_texts_and_patterns(space: Space) -> None:
    def like(pattern: str) -> Expr:
        return truth("like", S, Literal(pattern, STRING))

    assert space.same_value(like("ab"), truth("=", S, Literal("ab", STRING)))
    assert space.same_value(negated(like("ab")), truth("!=", Literal("ab", STRING), S))
    for pattern in ("a%", "a_", "a\\b"):
        assert not space.same_value(like(pattern), truth("=", S, Literal(pattern, STRING)))


def test_flags(space: Space) -> None:
    assert space.same_value(truth("=", B, TRUE), B)
    assert space.same_value(truth("=", FALSE, B), negated(B))
    assert space.same_value(truth("!=", B, TRUE), negated(B))
    assert space.same_value(truth("!=", B, FALSE), B)
    assert space.same_value(truth("=", B, C), truth("=", C, B))
    assert not space.same_value(truth("=", B, UNKNOWN), negated(B))


# --- conditions of filters -----------------------------------------------------------------------


def test_a_filter_asks_only_for_what_is_true(space: Space) -> None:
    n = wide(N)
    there = truth("isnotnull", N)
    assert space.same_rows(less(minus(n, 4), n), there)
    assert space.same_rows(truth("=", N, N), there)
    assert space.same_rows(truth("and", less(N, 3), there), less(N, 3))
    assert space.same_rows(truth("and", truth("=", S, S), truth("isnotnull", S)), truth("=", S, S))
    assert space.same_rows(truth("and", B, UNKNOWN), truth("and", UNKNOWN, B))
    assert space.conditions.false in space.terms.forms[space.kept(B, UNKNOWN)][1]
    assert space.same_rows(truth("or", B, UNKNOWN), B)
    assert space.same_rows(TRUE, truth("<", whole(1), whole(2)))
    assert not space.same_rows(truth("or", B, negated(B)), TRUE)
    assert space.same_rows(truth("isnull", N), negated(there))


def test_bounds_of_one_sum_are_taken_together(space: Space) -> None:
    def both(one: Expr, other: Expr) -> Expr:
        return truth("and", one, other)

    at_least, at_most = truth(">=", N, whole(2)), truth("<=", N, whole(2))
    two = truth("=", N, whole(2))
    assert space.same_rows(both(at_least, at_most), two)
    assert space.same_rows(both(at_least, truth("!=", N, whole(2))), truth(">", N, whole(2)))
    assert space.same_rows(both(less(N, 5), less(N, 3)), less(N, 3))
    assert space.same_rows(both(less(N, 5), truth("!=", N, whole(9))), less(N, 5))
    assert not space.same_rows(both(less(N, 5), truth("!=", N, whole(1))), less(N, 5))
    assert space.same_rows(both(two, less(N, 9)), two)
    difference = minus(wide(N), wide(M))
    assert space.same_rows(
        both(truth("<=", difference, whole(1)), truth(">=", difference, whole(1))),
        truth("=", plus(wide(M), 1), N),
    )
    # Holes move a bound, one after the other.
    holes = both(truth("!=", N, whole(3)), truth("!=", N, whole(4)))
    assert space.same_rows(both(truth(">=", N, whole(3)), holes), truth(">=", N, whole(5)))


def test_bounds_that_meet_at_zero(space: Space) -> None:
    zero = truth("and", truth(">=", N, whole(0)), truth("<=", N, whole(0)))
    assert space.same_rows(zero, truth("=", N, whole(0)))


def test_contradictions_are_false_but_not_all_the_same(space: Space) -> None:
    nothing = truth("and", less(N, 2), truth(">", N, whole(5)))
    other = truth("and", less(M, 2), truth(">", M, whole(5)))
    form = space.terms.forms[space.kept(nothing)]
    assert space.conditions.false in form[1]
    assert not space.same_rows(nothing, TRUE)
    assert space.kept(nothing) == space.kept(less(N, 2), truth(">", N, whole(5)))
    assert not space.same_rows(nothing, less(N, 2))
    assert not space.same_rows(other, less(M, 2))


def test_least_factors_of_filters(space: Space) -> None:
    n, m = wide(N), wide(M)
    assert space.same_rows(less(times(n, 10), 35), truth("<=", N, whole(3)))
    assert space.same_rows(less(times(n, -10), 35), truth(">=", N, whole(-3)))
    assert space.same_rows(
        less(minus(times(n, 6), times(m, 4)), 3),
        truth("<=", minus(times(n, 3), times(m, 2)), whole(1)),
    )
    assert not space.same_rows(less(times(n, 10), 35), less(N, 3))
    # An equation that has no whole solution is false, but NULL where its column is.
    never = truth("=", times(n, 2), whole(7))
    assert space.same_rows(never, FALSE)
    assert space.same_rows(negated(never), truth("isnotnull", N))


def test_filters_in_a_row_are_one(space: Space) -> None:
    assert space.kept(less(N, 3), B) == space.kept(truth("and", B, less(N, 3)))
    assert space.kept(less(N, 3), B) == space.kept(B, less(N, 3), B)
    assert space.kept(less(N, 3)) != space.kept(less(N, 3), B)
    assert space.kept() == space.kept(TRUE)


def test_conditions_that_raise_keep_their_places() -> None:
    for unbounded in (False, True):
        space = Space(unbounded)
        quotient = truth(">", Call("div", (whole(10), LARGE), BIGINT), whole(1))
        guard = truth("!=", LARGE, whole(0))
        assert space.kept(guard, quotient) != space.kept(quotient, guard)
        assert space.kept(guard, quotient) == space.kept(truth("and", guard, quotient))
        assert space.kept(guard, quotient, B) != space.kept(guard, B, quotient)
        # Around them, what cannot raise moves.
        assert space.kept(guard, B, quotient) == space.kept(B, guard, quotient)
        assert space.kept(quotient, guard, B) == space.kept(quotient, B, guard)
        for function in ("and", "or"):
            one, other = truth(function, guard, quotient), truth(function, quotient, guard)
            assert space.term(one) != space.term(other)
        assert space.term(negated(truth("or", guard, quotient))) == space.term(
            truth("and", negated(guard), negated(quotient))
        )


def test_an_overflow_raises_only_in_exact_arithmetic() -> None:
    risky, guard = less(plus(N, 1), 5), truth("<", N, whole(9))
    exact, unbounded = Space(), Space(unbounded=True)
    assert exact.kept(guard, risky) != exact.kept(risky, guard)
    assert unbounded.kept(guard, risky) == unbounded.kept(risky, guard)
    assert exact.kept(less(minus(N, 5), minus(M, 5))) != exact.kept(less(N, M))
    assert unbounded.kept(less(minus(N, 5), minus(M, 5))) == unbounded.kept(less(N, M))
    n, m = wide(N), wide(M)
    assert exact.kept(less(minus(n, 5), minus(m, 5))) == exact.kept(less(N, M))


# --- three-valued logic, all of it ---------------------------------------------------------------


def test_equal_conditions_are_equal_for_all_values() -> None:
    """Every condition of three leaves and two operators: equal numbers are equal truth tables."""
    space = Space()
    leaves: list[Expr] = [B, C, UNKNOWN, truth("isnull", B), less(N, 1), truth(">=", N, whole(1))]
    leaves += [negated(leaf) for leaf in leaves[:2]]
    formulas: list[Expr] = []
    for f, g in itertools.product(("and", "or"), repeat=2):
        for a, b, c in itertools.product(leaves, repeat=3):
            formulas += [truth(f, truth(g, a, b), c), negated(truth(f, a, truth(g, b, c)))]
    rows = [
        {"b": b, "c": c, "i": i}
        for b, c, i in itertools.product((True, False, None), (True, False, None), (0, 1, None))
    ]
    values: dict[int, tuple[object, ...]] = {}
    kept: dict[int, tuple[object, ...]] = {}
    for formula in formulas:
        table = tuple(value_of(formula, row) for row in rows)
        assert values.setdefault(space.term(formula), table) == table, str(formula)
        passing = tuple(value is True for value in table)
        assert kept.setdefault(space.kept(formula), passing) == passing, str(formula)
    # Many formulas have few meanings, and most of these one number.
    assert len(formulas) == 4_096
    assert len(values) <= 1_600
    assert len(kept) < len(values)


def test_renaming_leaves_gives_the_same_of_another() -> None:
    """A relation that is joined with itself: its conditions over the copy's columns."""
    terms = Terms()
    conditions = Conditions(terms)
    one, two = terms.intern(("stream", "s")), terms.intern(("again", "s", 2))
    first = {n: terms.variable(one, n, kind) for n, kind in NAMES.items()}
    second = {n: terms.variable(two, n, kind) for n, kind in NAMES.items()}
    exprs: list[Expr] = [
        less(plus(wide(N), wide(M)), 5),
        truth("=", minus(wide(N), wide(M)), whole(0)),
        truth("or", truth("isnull", N), truth("like", S, Literal("a%", STRING))),
        truth("in", N, whole(1), whole(2)),
        negated(B),
        less(minus(wide(N), wide(N)), 1),
        truth("=", S, Literal("a", STRING)),
        plus(N, M),
        Call("coalesce", (N, M), INT),
        Cast(N, STRING),
        Literal(None, INT),
    ]
    moving = Rebuilding(conditions, leaves={one: two})
    for expr in exprs:
        moved = moving.rebuilt(terms.term(expr, first))
        assert moved == terms.term(expr, second), str(expr)
        assert moving.rebuilt(moved) == moved
        parts = conditions.true_parts(moved) if expr.type == BOOLEAN else []
        assert all(part < len(terms.forms) for part in parts)
