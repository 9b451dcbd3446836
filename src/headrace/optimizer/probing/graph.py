"""Which inputs of a multi-way join can be probed from which (the graph G of Section 4.2).

Inputs that have a key of one class of equal keys can all be probed from each other, even where the
query's text does not compare just these two.

Paper: Multi-Way Joins, Section 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from headrace.errors import PlanError
from headrace.stats.probes import Edge

#: For each input after the first, by which pair it is probed. The first pair's probing input, the
#: driver, is where a new row came from.
ProbeSequence = tuple[Edge, ...]


@dataclass(frozen=True)
class ProbeGraph:
    """Inputs by number, and for each class of equal keys the inputs that have such a key.

    Sets of inputs are masks of bits: a search asks for thousands of them.
    """

    count: int
    classes: tuple[frozenset[int], ...]

    @property
    def everything(self) -> int:
        """The mask of all inputs."""
        return (1 << self.count) - 1

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """All pairs that share a class, in both directions."""
        inputs = range(self.count)
        return tuple(
            (left, right)
            for left in inputs
            for right in inputs
            if left != right and self.shared(left, right)
        )

    def shared(self, left: int, right: int) -> frozenset[int]:
        """Positions of the classes in which both inputs have a key."""
        return frozenset(
            position
            for position, members in enumerate(self.classes)
            if left in members and right in members
        )

    def ways(self, driver: int, right: int) -> tuple[int, ...]:
        """Masks of the inputs from which one can be probed by the same classes.

        Of inputs with the driver's classes only the driver is left, as it is always present; its
        way is the first.
        """
        groups: dict[frozenset[int], int] = {}
        for left in (driver, *range(self.count)):
            shared = self.shared(left, right)
            if left != right and shared:
                groups[shared] = groups.get(shared, 0) | 1 << left
        return tuple(1 << driver if way >> driver & 1 else way for way in groups.values())

    def pairs(self, present: int, driver: int, right: int) -> tuple[Edge, ...]:
        """By which pairs an input can be probed from those present: one for each set of classes.

        Of several inputs with the same classes the driver stands for all, else the first one: their
        keys are equal, so all look up the same value, and the statistics that describe it best are
        those of the row that began.
        """
        able = [way & present for way in self.ways(driver, right)]
        return tuple((first_of(way), right) for way in able if way)

    @cached_property
    def connected(self) -> bool:
        """Whether every input is reached from any other."""
        reached, before = 1, 0
        while reached != before:
            before = reached
            for left, right in self.edges:
                if reached >> left & 1:
                    reached |= 1 << right
        return reached & self.everything == self.everything

    def require_connected(self) -> None:
        if not self.connected:
            raise PlanError(
                "inputs of the multi-way join share no key with the others",
                hint="compare a key of each input with one of another, as in a.k = b.k",
            )


def first_of(mask: int) -> int:
    """The first input of a set that is not empty.

    >>> first_of(0b1100)
    2
    """
    return (mask & -mask).bit_length() - 1
