"""Integer polynomials, the normal form of arithmetic on whole numbers.

A polynomial is a dict from monomials to coefficients, a monomial a sorted tuple of variables with
repetition: ``3xy² - 7`` is ``{(x, y, y): 3, (): -7}``. Two expressions made of ``+``, ``-`` and
``*`` have equal polynomials if and only if they agree on all integers, so equality is decided
exactly and without a solver.
"""

from __future__ import annotations

from math import gcd

Monomial = tuple[int, ...]
Polynomial = dict[Monomial, int]
#: A polynomial in one spelling, which can be hashed.
Items = tuple[tuple[Monomial, int], ...]

#: The monomial of a constant.
ONE: Monomial = ()

#: A product of sums may have exponentially many terms; beyond this it is left as it stands.
MOST_TERMS = 256


def add(left: Polynomial, right: Polynomial, sign: int = 1) -> Polynomial:
    """``left + sign * right``."""
    total = dict(left)
    for monomial, coefficient in right.items():
        value = total.get(monomial, 0) + sign * coefficient
        if value:
            total[monomial] = value
        else:
            total.pop(monomial, None)
    return total


def multiply(left: Polynomial, right: Polynomial) -> Polynomial | None:
    """The product; None if it has too many terms to be worth expanding."""
    if len(left) * len(right) > MOST_TERMS:
        return None
    product: Polynomial = {}
    for a, x in left.items():
        for b, y in right.items():
            monomial = tuple(sorted(a + b)) if a and b else a or b
            value = product.get(monomial, 0) + x * y
            if value:
                product[monomial] = value
            else:
                product.pop(monomial, None)
    return product


def items_of(polynomial: Polynomial) -> Items:
    return tuple(sorted(polynomial.items()))


def at_most_zero(polynomial: Polynomial) -> Items | bool:
    """``polynomial <= 0`` over the integers, with the least coefficients; a truth if constant.

    The bound is tightened: ``10n - 35 <= 0`` says no more than ``n - 3 <= 0``.

    >>> at_most_zero({(7,): 10, (): -35})
    (((), -3), ((7,), 1))
    """
    constant = polynomial.get(ONE, 0)
    body = {m: c for m, c in polynomial.items() if m}
    if not body:
        return constant <= 0
    divisor = gcd(*body.values())
    reduced = {m: c // divisor for m, c in body.items()}
    bound = -(-constant // divisor)
    if bound:
        reduced[ONE] = bound
    return items_of(reduced)


def is_zero(polynomial: Polynomial) -> Items | bool:
    """``polynomial = 0`` over the integers, in one spelling; a truth if that is known.

    >>> is_zero({(7,): -2, (): 7})
    False
    """
    constant = polynomial.get(ONE, 0)
    body = {m: c for m, c in polynomial.items() if m}
    if not body:
        return constant == 0
    divisor = gcd(*body.values())
    if constant % divisor:
        return False
    if body[min(body)] < 0:
        divisor = -divisor
    return items_of({m: c // divisor for m, c in polynomial.items() if c})


def constant_and_body(items: Items) -> tuple[int, Items]:
    """The constant of a polynomial, and the rest of it.

    >>> constant_and_body((((), -3), ((7,), 1)))
    (-3, (((7,), 1),))
    """
    if items and items[0][0] == ONE:
        return items[0][1], items[1:]
    return 0, items


def variables_of(items: Items) -> frozenset[int]:
    return frozenset(variable for monomial, _ in items for variable in monomial)


def is_linear(items: Items) -> bool:
    return all(len(monomial) <= 1 for monomial, _ in items)
