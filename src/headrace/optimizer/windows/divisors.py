"""Divisors of durations, which are products of small primes."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1_000)
def divisors(number: int) -> tuple[int, ...]:
    """All divisors, ascending.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    products = [1]
    for prime in primes(number):
        powers = [1]
        while number % (powers[-1] * prime) == 0:
            powers.append(powers[-1] * prime)
        products = [divisor * power for divisor in products for power in powers]
    return tuple(sorted(products))


@lru_cache(maxsize=1_000)
def primes(number: int) -> tuple[int, ...]:
    """The primes that divide a number.

    >>> primes(3_600_000)
    (2, 3, 5)
    """
    factors = []
    divisor = 2
    while divisor * divisor <= number:
        if number % divisor == 0:
            factors.append(divisor)
            while number % divisor == 0:
                number //= divisor
        divisor += 1
    return (*factors, number) if number > 1 else tuple(factors)
