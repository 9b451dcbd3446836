"""How a plan is measured: what its epochs read, looked up and joined, and the CPU they took."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.choices.streams import Workload
from benchmarks.harness.counted_rows import CountedRows, counting_rows
from benchmarks.harness.stepped import cpu_clock, stepped
from headrace.contestants import empty_folder
from headrace.plan.nodes import Node
from headrace.planner.policy import PlannerPolicy


@dataclass(frozen=True)
class Forced:
    """A plan, and what leaves the planner no choice while it runs (nothing: it chooses)."""

    name: str
    plan: Node
    policy: PlannerPolicy
    by: Callable[[], AbstractContextManager[object]] = nullcontext


@dataclass
class Measured:
    """What one run took, epoch by epoch: work in the planner's unit, rows of all operators, CPU."""

    name: str
    work: dict[int, float] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    cpu: dict[int, float] = field(default_factory=dict)
    #: What the decision was made of, in counts.
    steps: dict[int, dict[Any, Any]] = field(default_factory=dict)
    counted: dict[int, CountedRows] = field(default_factory=dict)
    results_of: dict[int, int] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)
    #: The order of each epoch, where that is what is decided.
    orders: dict[int, Any] = field(default_factory=dict)

    @property
    def results(self) -> int:
        return sum(self.results_of.values())

    def work_of(self, epochs: Sequence[int]) -> float:
        return sum(self.work.get(epoch, 0.0) for epoch in epochs)

    def rows_of(self, epochs: Sequence[int]) -> int:
        return sum(self.rows[epoch] for epoch in epochs)

    def cpu_of(self, epochs: Sequence[int]) -> float:
        return sum(self.cpu[epoch] for epoch in epochs)


class Problem(ABC):
    """What is to be decided for a workload, and how its work is told from what is counted."""

    plan: Node

    @abstractmethod
    def forced(self, chosen: Measured) -> Iterator[Forced]:
        """The plans that are run, the written one first; ``chosen`` is the planner's own run."""

    @abstractmethod
    def watching(self, measured: Measured) -> AbstractContextManager[None]:
        """Take down the work of each epoch, where the engine tells it while it runs."""

    def all_forced(self) -> Iterator[Forced]:
        """All plans that ``forced`` may give."""
        return self.forced(Measured(""))

    def settle(self, runs: Sequence[Measured]) -> None:  # noqa: B027 - most know it at once
        """Work out the work of all epochs, where it takes what all runs have counted."""

    @abstractmethod
    def blind(self) -> Forced:
        """The plan that is chosen while nothing is known of the streams, kept for good."""

    @abstractmethod
    def best_work(self, runs: Sequence[Measured], epochs: Sequence[int]) -> float:
        """The work of the best plan, one for all of these epochs."""


def measure(
    problem: Problem,
    workload: Workload,
    epochs: Sequence[dict[str, list[Path]]],
    folder: Path,
    forced: Forced,
) -> Measured:
    """Run a plan over all epochs, in this process."""
    measured = Measured(forced.name)
    place = empty_folder(folder)
    with (
        forced.by(),
        problem.watching(measured),
        stepped(forced.plan, workload.catalog, place, forced.policy) as engine,
    ):
        for number, files in enumerate(epochs):
            with counting_rows() as counted:
                began = cpu_clock()
                report = engine.step(files)
                measured.cpu[number] = cpu_clock() - began
            measured.counted[number] = counted
            measured.rows[number] = counted.total
            measured.changes += [f"{number}: {change}" for change in engine.changes]
            engine.changes.clear()
            measured.results_of[number] = sum(report.rows_out.values())
    return measured
