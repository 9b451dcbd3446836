"""A figure is Exact, Estimated or Unknown, and arithmetic keeps track of which.

Unknown is absorbing, two exact figures give an exact one, anything else is an estimate. Figures
have no ``<``: whoever compares must first ask whether both are known (``cost.cheaper`` does).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """Base of the three kinds."""

    @property
    def known(self) -> bool:
        return False

    @property
    def number(self) -> float | None:
        """The value, or None when unknown."""
        return None

    def to_json(self) -> list[Any] | None:
        """How sure the figure is, and its value; nothing for what is unknown."""
        return None if self.number is None else [type(self).__name__.lower(), self.number]

    def __add__(self, other: Figure | float) -> Figure:
        return _combined(lambda a, b: a + b, self, other)

    def __sub__(self, other: Figure | float) -> Figure:
        return _combined(lambda a, b: a - b, self, other)

    def __mul__(self, other: Figure | float) -> Figure:
        return _combined(lambda a, b: a * b, self, other)

    def __truediv__(self, other: Figure | float) -> Figure:
        return _combined(lambda a, b: a / b if b else math.nan, self, other)

    def __radd__(self, other: float) -> Figure:
        return Exact(other) + self

    def __rsub__(self, other: float) -> Figure:
        return Exact(other) - self

    def __rmul__(self, other: float) -> Figure:
        return Exact(other) * self

    def __rtruediv__(self, other: float) -> Figure:
        return Exact(other) / self

    def least(self, other: Figure | float) -> Figure:
        return _combined(min, self, other)

    def greatest(self, other: Figure | float) -> Figure:
        return _combined(max, self, other)


@dataclass(frozen=True)
class Exact(Figure):
    """Counted, or true by definition."""

    value: float

    @property
    def known(self) -> bool:
        return True

    @property
    def number(self) -> float:
        return self.value

    def __str__(self) -> str:
        return _digits(self.value)


@dataclass(frozen=True)
class Estimated(Figure):
    """Derived by a model, smoothed or sampled."""

    value: float

    @property
    def known(self) -> bool:
        return True

    @property
    def number(self) -> float:
        return self.value

    def __str__(self) -> str:
        return f"~{_digits(self.value)}"


@dataclass(frozen=True)
class Unknown(Figure):
    """Nothing is known; never to be taken for zero or for infinity."""

    def __str__(self) -> str:
        return "?"


UNKNOWN = Unknown()


def figure_from_json(value: Sequence[Any] | None) -> Figure:
    """The figure that ``to_json`` wrote.

    >>> figure_from_json(Estimated(2.5).to_json()), figure_from_json(UNKNOWN.to_json())
    (Estimated(value=2.5), Unknown())
    """
    if value is None:
        return UNKNOWN
    kind, number = value
    return Exact(number) if kind == "exact" else Estimated(number)


def estimated(figure: Figure) -> Figure:
    """The same figure, no longer exact."""
    return Estimated(figure.number) if figure.number is not None else UNKNOWN


def total(figures: list[Figure]) -> Figure:
    """The sum; exactly zero of none."""
    result: Figure = Exact(0)
    for figure in figures:
        result = result + figure
    return result


def _combined(
    operation: Callable[[float, float], float], left: Figure, right: Figure | float
) -> Figure:
    if not isinstance(right, Figure):
        right = Exact(right)
    if left.number is None or right.number is None:
        return UNKNOWN
    value = operation(left.number, right.number)
    # A quotient by zero, or a product beyond all bounds, says nothing.
    if not math.isfinite(value):
        return UNKNOWN
    return (
        Exact(value) if isinstance(left, Exact) and isinstance(right, Exact) else Estimated(value)
    )


def _digits(value: float) -> str:
    """Readable: whole numbers in full up to a million, else three digits.

    >>> _digits(12345.0), _digits(0.016666), _digits(12_300_000.0)
    ('12,345', '0.0167', '12.3 M')
    """
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
