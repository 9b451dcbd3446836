"""A cost, and the only place where costs are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.errors import PlanError
from headrace.stats.figure import UNKNOWN, Figure

T = TypeVar("T")


@dataclass(frozen=True)
class Cost:
    """A figure and what it counts. Costs in different units are never compared."""

    figure: Figure
    unit: str

    @property
    def known(self) -> bool:
        return self.figure.known

    def __str__(self) -> str:
        return f"{self.figure} {self.unit}"

    def to_json(self) -> dict[str, Any]:
        """An unknown cost is null, never a number."""
        kind = type(self.figure).__name__.lower()
        return {"value": self.figure.number, "kind": kind, "unit": self.unit}


def unknown_cost(unit: str) -> Cost:
    return Cost(UNKNOWN, unit)


def cheaper(left: Cost, right: Cost) -> bool:
    """Whether ``left`` is known to cost less than ``right``.

    Where one of them is unknown neither is cheaper: an Unknown is not a number.
    """
    if left.unit != right.unit:
        raise PlanError(f"a cost in {left.unit} cannot be compared with one in {right.unit}")
    a, b = left.figure.number, right.figure.number
    return a is not None and b is not None and a < b


def ranked(choices: Iterable[T], cost: Callable[[T], Cost]) -> list[T]:
    """The cheapest first; those of unknown cost after the others, in the order they came."""
    choices = list(choices)
    costed = [choice for choice in choices if cost(choice).known]
    ordered: list[T] = []
    for choice in costed:
        place = next(
            (i for i, other in enumerate(ordered) if cheaper(cost(choice), cost(other))),
            len(ordered),
        )
        ordered.insert(place, choice)
    return ordered + [choice for choice in choices if not cost(choice).known]
