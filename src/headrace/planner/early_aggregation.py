"""Which inputs of an aggregation join are aggregated early, from the rows that are there.

All subsets of the inputs that can be are costed (above six inputs, those that one change after the
other leads to). What they are costed by is seen while they run: the rows and groups of each set,
and how many values each key takes. Sets and rows are stored alike, so the choice may be another one
in every epoch; it changes when that promises to save something.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from headrace.cost.early_aggregation import (
    MOST_LISTED,
    Derived,
    EarlyModel,
    InputFlow,
    StreamFigures,
    Tuning,
    choices,
    engine_cost,
    published_cost,
)
from headrace.cost.window_joins import JoinCost, JoinLoad
from headrace.optimizer.early.shape import AggregationJoin
from headrace.optimizer.joins.search import join_cost
from headrace.plan.join_graph import pairs_of
from headrace.stats.load import Load


@dataclass(frozen=True)
class EarlyPolicy:
    """How the choice is made. ``least_gain`` is the share of the cost that a change must save.

    ``model`` is this engine's, or the published one for hash joins or for nested loops.
    """

    tuning: Tuning = field(default_factory=Tuning)
    least_gain: float = 0.1
    model: EarlyModel = EarlyModel.ENGINE


@dataclass
class EarlyMemory:
    """What was learnt of sets while they ran."""

    #: The loads of sets, by name; the same that layouts of panes are chosen by.
    loads: dict[str, Load] = field(default_factory=dict)
    #: The files of the tables' sets that this run has written, and the rows behind them.
    tables: dict[str, list[str]] = field(default_factory=dict)
    table_rows: dict[str, int] = field(default_factory=dict)
    #: What was chosen last, by the hash of the aggregate, and in which epoch.
    chosen: dict[str, tuple[int, frozenset[int]]] = field(default_factory=dict)
    #: Changes since they were last asked for.
    changes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class SetLoads:
    """What is known of the sets of an aggregation join.

    ``table_rows`` are rows and groups of the inputs that are tables; ``keys`` how many values each
    key takes, by input and position of the key's class.
    """

    sets: Mapping[int, Load]
    table_rows: Mapping[int, tuple[float, float]]
    keys: Mapping[tuple[int, int], float]


def plan_costs(
    shape: AggregationJoin,
    loads: SetLoads,
    tuning: Tuning,
    model: EarlyModel = EarlyModel.ENGINE,
) -> dict[frozenset[int], float]:
    """Seconds per millisecond of the streams' time, for each choice of inputs."""
    costs = _Costs(shape, loads, tuning, model)
    if len(shape.eligible) <= MOST_LISTED:
        return {choice: costs.of(choice) for choice in choices(shape.eligible)}
    found = {choice: costs.of(choice) for choice in (frozenset[int](), shape.eligible)}
    best = min(found, key=lambda choice: found[choice])
    while True:
        for index in shape.eligible:
            found.setdefault(best ^ {index}, costs.of(best ^ {index}))
        better = min(found, key=lambda choice: found[choice])
        if better == best:
            return found
        best = better


@dataclass
class _Costs:
    """Costs of one aggregation join under one load."""

    shape: AggregationJoin
    loads: SetLoads
    tuning: Tuning
    model: EarlyModel

    def of(self, early: frozenset[int]) -> float:
        if self.model is not EarlyModel.ENGINE:
            nested = self.model is EarlyModel.NESTED_LOOPS
            return published_cost(self._figures(), early, self.tuning, nested) / 1_000
        flows = [self._flow(index) for index in range(len(self.shape.graph.leaves))]
        rates = tuple(flow.joined(index in early) for index, flow in enumerate(flows))
        return engine_cost(flows, early, self._joined(rates), self.tuning)

    def _figures(self) -> Derived:
        """Rates, windows, groups and selectivities as the paper's equations take them."""
        found = []
        for index in range(len(self.shape.graph.leaves)):
            counted = (n for (owner, _), n in self.loads.keys.items() if owner == index)
            selectivity = 1 / max(1.0, prod(counted))
            if self.shape.is_table(index):
                rows, groups = self.loads.table_rows[index]
                found.append(StreamFigures(0.0, rows, max(1.0, groups * selectivity), selectivity))
                continue
            load = self.loads.sets[index]
            rate = load.rows / load.milliseconds
            lengths = [float(window.length) for window in self.shape.windows]
            window = rate * max(lengths, default=load.milliseconds)
            groups = max(1.0, load.keys * selectivity)
            found.append(StreamFigures(rate * 1_000, window, groups, selectivity))
        return Derived(tuple(found))

    @property
    def _firing(self) -> float:
        """Milliseconds from one result to the next: a window's slide, or an epoch."""
        slides = [float(window.slide) for window in self.shape.windows]
        epochs = (load.milliseconds for load in self.loads.sets.values())
        return min(slides, default=0.0) or max(epochs)

    def _flow(self, index: int) -> InputFlow:
        if self.shape.is_table(index):
            rows, groups = self.loads.table_rows[index]
            # Stored once; read whenever a window closes.
            return InputFlow(0.0, 0.0, 0.0, rows / self._firing, groups / self._firing)
        load = self.loads.sets[index]
        rate = load.rows / load.milliseconds
        pane = self.shape.panes[index]
        length = float(pane.length) if pane is not None else 1.0
        stored = min(rate, load.groups(length) / length)
        if self.shape.input_windows is not None:
            # Rows are kept in any case, and whole windows are joined.
            groups = load.keys / load.milliseconds
            return InputFlow(rate, rate, rate + stored, rate, min(rate, groups))
        window = self.shape.per_window
        if window is not None:
            # Both sides are placed in every window: rows one by one, groups as they merge there.
            overlap = window.length / window.slide
            groups = load.groups(window.length) / window.slide
            return InputFlow(rate, rate, stored, rate * overlap, min(groups, rate * overlap))
        return InputFlow(rate, rate, stored, rate, stored)

    def _joined(self, rates: tuple[float, ...]) -> float:
        """Rows that come out of the joins in the order written, per millisecond."""
        window = self.shape.per_window
        if window is not None:
            # Per window, and a window every slide.
            pairs = rates[0] * rates[1] * window.slide
            return pairs * self._costs(rates).key_share((0, 1))
        costs = self._costs(rates)
        made = 0.0
        for left, right in pairs_of(self.shape.graph.written):
            members = _members(left) | _members(right)
            made += costs.rows(sum(1 << index for index in members))
        return made

    def _costs(self, rates: tuple[float, ...]) -> JoinCost:
        load = JoinLoad(rates, self.loads.keys, self._firing)
        return join_cost(self.shape.graph, load)


def _members(order: object) -> frozenset[int]:
    if isinstance(order, int):
        return frozenset((order,))
    assert isinstance(order, tuple)
    return _members(order[0]) | _members(order[1])


def choose_early_inputs(
    shape: AggregationJoin,
    identity: str,
    epoch: int,
    loads: SetLoads | None,
    policy: EarlyPolicy,
    memory: EarlyMemory,
) -> frozenset[int]:
    """The inputs to aggregate early in an epoch.

    While nothing is known, all that can be: that is what is cheaper more often than not, and the
    only way to learn how many groups there are.
    """
    before = memory.chosen.get(identity)
    if before is not None and before[0] == epoch:
        return before[1]
    chosen = shape.eligible if before is None else before[1]
    if loads is not None:
        costs = plan_costs(shape, loads, policy.tuning, policy.model)
        best = min(costs, key=lambda choice: costs[choice])
        if costs[best] <= costs[chosen] * (1 - policy.least_gain):
            saved = 1 - costs[best] / costs[chosen]
            memory.changes.append(
                f"early aggregation of {early_text(shape, best)} "
                f"(was {early_text(shape, chosen)}, expected to save {saved:.0%})"
            )
            chosen = best
    memory.chosen[identity] = epoch, chosen
    return chosen


def early_text(shape: AggregationJoin, early: frozenset[int]) -> str:
    return ", ".join(shape.names[index] for index in sorted(early)) or "nothing"
