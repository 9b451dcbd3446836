"""What every physical operator is.

An operator turns the new rows of its inputs into its own new rows, its *delta*, once per epoch.
What it must remember it appends to arrangements. Everything that decides a delta is (the new
rows, the arrangements, the watermarks before and after), so any plan may run on any epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from headrace.definitions.definition import Definition
from headrace.operators.epoch import Epoch
from headrace.operators.write import Writing
from headrace.plan.nodes import Node
from headrace.plan.types import Schema


@dataclass(frozen=True)
class EpochStep:
    """One thing an operator does in an epoch, as ``explain`` tells it."""

    name: str
    detail: tuple[str, ...] = ()

    def describe(self) -> str:
        return "\n".join((self.name, *(f"    {line}" for line in self.detail)))


class Operator(ABC):
    """Base of physical operators.

    ``immediate`` says that the delta depends on the new rows and the watermarks *before* the
    epoch alone. Immediate deltas are read first; what they showed of the times in the new rows
    gives the watermarks after, which the other operators wait for. ``stores`` are the
    arrangements that it reads.
    """

    node: Node
    immediate = False
    stores: tuple[Store, ...] = ()

    @property
    @abstractmethod
    def inputs(self) -> tuple[Operator, ...]: ...

    @abstractmethod
    def delta(self, epoch: Epoch) -> Definition | None:
        """This epoch's new output rows; None where it is known that there are none."""

    def new_rows(self, epoch: Epoch) -> Definition | None:
        """The same, as whoever reads them should ask for them: what several readers need may have
        been computed for all of them already."""
        if id(self) in epoch.shared_rows:
            return epoch.shared_rows[id(self)]
        return self.delta(epoch)

    @abstractmethod
    def steps(self) -> tuple[EpochStep, ...]:
        """What it does, for explain."""


class Store(ABC):
    """An arrangement and what keeps it up to date."""

    name: str

    @property
    def identity(self) -> str:
        """What it holds, whatever the layout that it is stored by."""
        return self.name

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The columns of its files."""

    @property
    @abstractmethod
    def immediate(self) -> bool:
        """Whether it can be appended to before the watermarks after the epoch are known."""

    @abstractmethod
    def advance(self, epoch: Epoch) -> Writing[None]:
        """Append what this epoch brings."""

    def counts(self) -> str | None:
        """The stream whose rows it can count while it appends them, if it reads all of them."""
        return None

    def late_counters(self) -> list[str]:
        """Names under which it counts, in the epoch, rows that came too late."""
        return []

    @abstractmethod
    def horizon(self, epoch: Epoch) -> int | None:
        """Times below this are no longer needed; None keeps everything."""

    def serves(self, needed: Store) -> bool:
        """Whether it has kept all that another of the same name would have."""
        return set(needed.schema) <= set(self.schema)

    def released_by(self) -> frozenset[frozenset[str]]:
        """The sets of clocks by whose watermarks its readers let go of rows."""
        return frozenset()

    @property
    def endless(self) -> bool:
        """Whether rows are kept for ever, whatever any watermark does."""
        return False

    @property
    def split_by(self) -> tuple[str, ...]:
        """Columns by one of which its rows are told apart where several tasks read them."""
        return ()

    @abstractmethod
    def compacted(self, epoch: Epoch, rows: Definition) -> Definition:
        """The same state from fewer rows, for merging files."""

    @abstractmethod
    def inputs(self) -> tuple[Operator, ...]: ...

    @abstractmethod
    def step(self) -> EpochStep: ...
