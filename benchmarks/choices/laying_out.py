"""Window layouts: the work of the layout that was chosen, and of the others that there are.

Work is as the planner's model has it (``cost.panes``), with rows that are counted instead of
estimated: passes over an epoch's rows, rows and groups that they store, groups that are read to
close windows, that are merged and that come out. Every layout that the planner
knows for the true load is run, and the one that it takes without a load.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from unittest import mock

from benchmarks.choices.measuring import Forced, Measured, Problem
from benchmarks.choices.streams import Workload
from headrace.cost.panes import EMIT, GROUP, LEVEL, MERGE, PASS, READ, ROW
from headrace.optimizer.windows.layout import CostModel, RankedLayout, Sharing, layouts
from headrace.plan.nodes import Aggregate, Node
from headrace.plan.windows import Hopping
from headrace.planner import pane_layout
from headrace.planner.grouping import windows_of
from headrace.planner.policy import PlannerPolicy
from headrace.stats.load import Load

#: Of the layouts that cost least by the model with the true load, and of all others.
MOST_LAYOUTS = 6
#: A layout that is forced is not held to what it promises.
NOT_HELD = PlannerPolicy(window_cost_model=CostModel.PAPER)
#: Groupings of a statement that computes results straight from panes.
_LEVELS = 1


class LayoutProblem(Problem):
    """Which panes are stored."""

    def __init__(self, plan: Node, workload: Workload) -> None:
        self.plan = plan
        (self.node,) = (node for node in plan.walk() if isinstance(node, Aggregate))
        self.workload = workload

    def forced(self, chosen: Measured) -> Iterator[Forced]:
        wanted: dict[object, RankedLayout] = {}
        for load in self._loads:
            ranked = layouts(windows_of([self.node]), load)
            step = max(1, len(ranked) // MOST_LAYOUTS)
            for one in (*ranked[:3], *ranked[3::step], ranked[-1]):
                wanted.setdefault(one.layout, one)
        for one in wanted.values():
            name = ", ".join(pane.name for pane in one.layout.panes)
            for closing in ("auto", "flat") if len(one.layout.panes) == 1 else ("auto",):
                policy = replace(NOT_HELD, window_closing=closing)
                yield Forced(f"{name}, {closing}", self.plan, policy, partial(_only, one))

    @property
    def _loads(self) -> list[Load]:
        """The true load of each phase."""
        (stream,) = self.workload.streams
        found = []
        for phase in range(len(stream.phases)):
            table = stream.table(self.workload.name, 1, phase, self.workload.step)
            assert table is not None
            keys = len(table.column("k").unique())
            found.append(Load(float(table.num_rows), float(self.workload.step), float(keys)))
        return found

    def blind(self) -> Forced:
        """The layout that is chosen while no load is known, and kept."""
        first = layouts(windows_of([self.node]), None)[0]
        return Forced("without statistics", self.plan, NOT_HELD, partial(_only, first))

    @contextmanager
    def watching(self, measured: Measured) -> Iterator[None]:
        yield

    def settle(self, runs: Sequence[Measured]) -> None:
        for run in runs:
            run.work = {epoch: _work(run, epoch) for epoch in run.counted}

    def best_work(self, runs: Sequence[Measured], epochs: Sequence[int]) -> float:
        return min(run.work_of(epochs) for run in runs)


def _only(ranked: RankedLayout) -> AbstractContextManager[object]:
    """The planner knows no other layout meanwhile."""

    def layouts_of(
        windows: frozenset[Hopping],
        load: Load | None,
        sharing: Sharing = Sharing.FACTORS,
        model: CostModel = CostModel.ENGINE,
    ) -> list[RankedLayout]:
        return [ranked]

    return mock.patch.object(pane_layout, "layouts", layouts_of)


def _work(run: Measured, epoch: int) -> float:
    storing, answering = run.counted[epoch].storing, run.counted[epoch].answering
    out = run.results_of[epoch]
    higher = max(0, answering.levels - _LEVELS)
    return (
        PASS * storing.statements
        + ROW * storing.grouped
        + GROUP * storing.written
        + READ * answering.scanned
        + MERGE * answering.grouped
        + LEVEL * higher
        + EMIT * out
    )
