"""Which inputs of an aggregation join are aggregated early, from the rows that are there.

All subsets of the inputs that can be are costed (above six inputs, those that one change after the
other leads to). What they are costed by is seen while they run: the rows and groups of each set,
and how many values each key takes. Sets and rows are stored alike, so the choice may be another one
in every epoch; it changes when that promises to save something.

Paper: Early Aggregation, Section 6.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Protocol

from headrace.cost.early_aggregation import (
    MOST_LISTED,
    EarlyModel,
    InputFlow,
    SetFigures,
    StreamFigures,
    Tuning,
    choices,
    engine_cost,
    plan_name,
    published_cost,
)
from headrace.cost.moving_output import upkeep_cost
from headrace.cost.window_joins import JoinCost, JoinLoad
from headrace.optimizer.early.describe import (
    DescribedEarly,
    JoinedRows,
    LateAggregate,
    aggregates_over_joins,
)
from headrace.optimizer.early.shape import (
    AggregationJoin,
    Declined,
    aggregation_join,
    with_early,
)
from headrace.optimizer.early.upkeep import ANEW, KEPT, why_joined_anew
from headrace.optimizer.joins.search import join_cost
from headrace.plan.join_graph import pairs_of
from headrace.plan.json import plan_hash
from headrace.plan.windows import Landmark
from headrace.planner.choices import Choices, EarlyInputs
from headrace.planner.decision import Alternative, PlannedQuery, RankedPlan
from headrace.planner.names import EARLY_AGGREGATION
from headrace.planner.policy import PlannerPolicy
from headrace.planner.regret import NOTHING_REGRETTED, Promise, Regrets, Subject
from headrace.planner.statistics import RuntimeStatistics
from headrace.stats.load import Load, different


@dataclass(frozen=True)
class SetLoads:
    """What is known of the sets of an aggregation join.

    ``table_rows`` are rows and groups of the inputs that are tables, ``window_rows`` those in the
    windows of inputs that have one of their own; ``keys`` how many values each key takes, by input
    and position of the key's class. ``matches`` is how many times the rows came out of the join
    that keys tell, for choices that ran, and ``skews`` how unequal the groups of inputs are.
    """

    sets: Mapping[int, Load]
    table_rows: Mapping[int, tuple[float, float]]
    keys: Mapping[tuple[int, int], float]
    window_rows: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    matches: Mapping[frozenset[int], float] = field(default_factory=dict)
    skews: Mapping[int, float] = field(default_factory=dict)


def plan_costs(
    shape: AggregationJoin,
    loads: SetLoads,
    tuning: Tuning,
    model: EarlyModel = EarlyModel.ENGINE,
    outputs: tuple[str, ...] = (ANEW,),
) -> dict[frozenset[int], float]:
    """Seconds per millisecond of the streams' time, for each choice of inputs.

    ``outputs`` are the ways in which an output may follow windows that move; a choice costs what
    the cheapest of them does.
    """
    costs = ChoiceCosts(shape, loads, tuning, model, outputs)
    if len(shape.eligible) <= MOST_LISTED:
        return {choice: costs.of(choice) for choice in choices(shape.eligible)}
    cost_of = {choice: costs.of(choice) for choice in (frozenset[int](), shape.eligible)}
    best = min(cost_of, key=lambda choice: cost_of[choice])
    while True:
        for index in shape.eligible:
            cost_of.setdefault(best ^ {index}, costs.of(best ^ {index}))
        better = min(cost_of, key=lambda choice: cost_of[choice])
        if better == best:
            return cost_of
        best = better


def output_costs(
    shape: AggregationJoin, loads: SetLoads, tuning: Tuning, early: frozenset[int]
) -> dict[str, float]:
    """What a choice of inputs costs with either way to put out windows that move."""
    return ChoiceCosts(shape, loads, tuning, EarlyModel.ENGINE).by_output(early)


def output_ways(shape: AggregationJoin, policy: PlannerPolicy) -> tuple[str, ...]:
    """The ways in which an output may follow its windows."""
    keeps = policy.keeps_outputs and shape.input_windows is not None
    if not keeps or why_joined_anew(shape) is not None:
        return (ANEW,)
    return (shape.node.output,) if shape.node.output else (ANEW, KEPT)


@dataclass
class ChoiceCosts:
    """Costs of one aggregation join under one load."""

    shape: AggregationJoin
    loads: SetLoads
    tuning: Tuning
    model: EarlyModel
    #: The ways in which an output may follow windows that move.
    outputs: tuple[str, ...] = (ANEW,)

    def of(self, early: frozenset[int]) -> float:
        if self.model is not EarlyModel.ENGINE:
            nested = self.model is EarlyModel.NESTED_LOOPS
            return published_cost(self._figures(), early, self.tuning, nested) / 1_000
        if self.outputs != (ANEW,):
            costs = self.by_output(early)
            return min(costs[way] for way in self.outputs)
        return self.of_flows(early, self.flows)

    @cached_property
    def flows(self) -> list[InputFlow]:
        return [self._flow(index) for index in range(len(self.shape.graph.leaves))]

    def of_flows(self, early: frozenset[int], flows: list[InputFlow]) -> float:
        """With these rows of each input, all of them joined."""
        joined = self._joined(self._held(early, flows)) * self._match(early)
        return engine_cost(flows, early, joined, self.tuning)

    def joined(self, early: frozenset[int]) -> float:
        """Rows that come out of the join per millisecond, by numbers of keys alone."""
        return self._joined(self._held(early, self.flows))

    def _match(self, early: frozenset[int]) -> float:
        return match_of(early, self.loads.matches, self.loads.skews)

    def _held(self, early: frozenset[int], flows: list[InputFlow]) -> tuple[float, ...]:
        """What the join reads of each input."""
        return tuple(flow.joined(index in early) for index, flow in enumerate(flows))

    def by_output(self, early: frozenset[int]) -> dict[str, float]:
        """The costs where windows move, by the way in which the output follows them."""
        stored = [replace(flow, joined_late=0.0, joined_early=0.0) for flow in self.flows]
        moved = [self._moved(index) for index in range(len(stored))]
        match = self._match(early)
        follows = upkeep_cost(
            self._held(early, self.flows),
            moved,
            lambda rates: self._joined(rates) * match,
            self._output_groups(),
            1 / self._firing,
            self.tuning,
        )
        return {
            ANEW: self.of_flows(early, self.flows),
            KEPT: engine_cost(stored, early, 0.0, self.tuning) + follows,
        }

    def _moved(self, index: int) -> float:
        """The groups of an input's rows that enter or leave its window, per millisecond."""
        if self.shape.is_table(index):
            return 0.0
        assert self.shape.input_windows is not None
        load = self.loads.sets[index]
        leave = not isinstance(self.shape.input_windows[index], Landmark)
        return different(load.rows * (2 if leave else 1), load.keys) / load.milliseconds

    def _output_groups(self) -> float:
        """The groups that come out, at most: the joined rows of sets, and the groups of those
        inputs that have keys of the query."""
        groups = self._held(self.shape.graph.everything, self.flows)
        grouped = {i for key in self.shape.keys for i in self.shape.graph.owners(key.expr)}
        of_keys = prod(groups[index] * self._firing for index in grouped)
        return min(self._joined(groups), of_keys / self._firing)

    def _figures(self) -> SetFigures:
        """Rates, windows, groups and selectivities as the paper's equations take them."""
        streams = []
        for index in range(len(self.shape.graph.leaves)):
            counted = (n for (owner, _), n in self.loads.keys.items() if owner == index)
            selectivity = 1 / max(1.0, prod(counted))
            if self.shape.is_table(index):
                rows, groups = self.loads.table_rows[index]
                streams.append(
                    StreamFigures(0.0, rows, max(1.0, groups * selectivity), selectivity)
                )
                continue
            load = self.loads.sets[index]
            rate = load.rows / load.milliseconds
            lengths = [float(window.length) for window in self.shape.windows]
            window = rate * max(lengths, default=load.milliseconds)
            window, _ = self.loads.window_rows.get(index, (window, 0.0))
            groups = max(1.0, load.keys * selectivity)
            streams.append(StreamFigures(rate * 1_000, window, groups, selectivity))
        return SetFigures(tuple(streams))

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
            return self._moving_flow(index, load)
        window = self.shape.per_window
        if window is not None:
            # Both sides are placed in every window: rows one by one, groups as they merge there.
            overlap = window.length / window.slide
            groups = load.groups(window.length) / window.slide
            return InputFlow(rate, rate, stored, rate * overlap, min(groups, rate * overlap))
        return InputFlow(rate, rate, stored, rate, stored)

    def _moving_flow(self, index: int, load: Load) -> InputFlow:
        """An input whose window moves: its rows are stored in any case, and with every step of the
        watermark the whole window is joined, row by row or group by group."""
        assert self.shape.input_windows is not None
        step = load.milliseconds
        came = load.rows
        leave = not isinstance(self.shape.input_windows[index], Landmark)
        moved = came * 2 if leave else came
        held, groups = self.loads.window_rows.get(index, (came, different(came, load.keys)))
        # Groups that rows enter or leave are written anew, beside those that are there.
        touched = different(moved, load.keys)
        return InputFlow(
            (moved + groups) / step,
            came / step,
            (came + touched) / step,
            held / step,
            groups / step,
        )

    def _joined(self, rates: tuple[float, ...]) -> float:
        """Rows that come out of the joins in the order written, per millisecond."""
        window = self.shape.per_window
        if window is not None:
            # Per window, and a window every slide.
            pairs = rates[0] * rates[1] * window.slide
            return pairs * self._costs(rates).key_share((0, 1))
        costs = self._costs(rates)
        joined_rows = 0.0
        for left, right in pairs_of(self.shape.graph.written):
            members = _members(left) | _members(right)
            joined_rows += costs.rows(sum(1 << index for index in members))
        return joined_rows

    def _costs(self, rates: tuple[float, ...]) -> JoinCost:
        load = JoinLoad(rates, self.loads.keys, self._firing)
        return join_cost(self.shape.graph, load)


def match_of(
    early: frozenset[int], matches: Mapping[frozenset[int], float], skews: Mapping[int, float]
) -> float:
    """How many times the rows come out of a join that numbers of keys tell.

    Of a choice that never ran this is told by others. Rows of which more were aggregated stand
    for those that would come out otherwise; how many of them is as unequal as their groups, so
    that a key which has many rows is not overlooked where it is one group. And aggregated rows
    never find more than the rows that they are made of.
    """
    if early in matches:
        return matches[early]
    wider = [other for other in matches if other > early]
    if wider:
        nearest = min(wider, key=lambda other: (len(other), sorted(other)))
        return matches[nearest] * prod(skews.get(index, 1.0) for index in nearest - early)
    return min([1.0, *(matches[other] for other in matches if other < early)])


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
    policy: PlannerPolicy,
    choices: Choices,
    regrets: Regrets = NOTHING_REGRETTED,
    choice: EarlyChoice | None = None,
) -> frozenset[int]:
    """The inputs to aggregate early in an epoch.

    While nothing is known, all that can be: that is what is cheaper more often than not, and the
    only way to learn how many groups there are.
    """
    before = choices.early.get(identity)
    if before is not None and before.epoch == epoch:
        return before.inputs
    chosen = shape.eligible if before is None else before.inputs
    if loads is not None:
        ways = output_ways(shape, policy)
        costs = plan_costs(shape, loads, policy.early_tuning, policy.early_cost_model, ways)
        admitted = [c for c in costs if _admits(identity, c, costs, policy, regrets)]
        best = min(admitted, key=lambda choice: costs[choice])
        if best != chosen and costs[best] <= costs[chosen] * (1 - policy.least_gain):
            saved = 1 - costs[best] / costs[chosen]
            choices.changes.append(
                f"early aggregation of {early_text(shape, best)} "
                f"(was {early_text(shape, chosen)}, expected to save {saved:.0%})"
            )
            chosen = best
    choices.early[identity] = EarlyInputs(epoch, chosen, choice, loads)
    return chosen


def subject_of(identity: str) -> Subject:
    return Subject(EARLY_AGGREGATION, identity)


def choice_name(early: frozenset[int]) -> str:
    """A choice as the experience with it is kept.

    >>> choice_name(frozenset({2, 0}))
    '0 2'
    """
    return " ".join(map(str, sorted(early)))


def is_guarded(policy: PlannerPolicy) -> bool:
    """Whether choices are held to what they promise: not those of the published models, which are
    there for comparison."""
    return policy.early_cost_model is EarlyModel.ENGINE


def _admits(
    identity: str,
    early: frozenset[int],
    costs: Mapping[frozenset[int], float],
    policy: PlannerPolicy,
    regrets: Regrets,
) -> bool:
    if not early or not is_guarded(policy):
        return True
    promise = Promise(costs[early], costs[frozenset()])
    return regrets.admits(subject_of(identity), choice_name(early), promise)


def early_text(shape: AggregationJoin, early: frozenset[int]) -> str:
    return ", ".join(shape.names[index] for index in sorted(early)) or "nothing"


class JoinedSet(Protocol):
    """A set of an aggregation join, as far as the choice needs it."""

    @property
    def store(self) -> str: ...

    @property
    def joined_by(self) -> tuple[tuple[int, str], ...]:
        """Stored columns that are keys of the join, by the position of their class."""


class PlanningEpoch(Protocol):
    """What the choice asks of an epoch."""

    @property
    def number(self) -> int: ...

    @property
    def statistics(self) -> RuntimeStatistics: ...

    @property
    def choices(self) -> Choices: ...

    def stored_rows(self, store: str, /) -> int:
        """The rows of an arrangement."""


@dataclass(frozen=True)
class EarlyChoice:
    """The choice of one query, which may be another one in each epoch unless it is forced."""

    shape: AggregationJoin
    sets: tuple[JoinedSet, ...]
    policy: PlannerPolicy
    forced: frozenset[int] | None
    #: The store of its output, where the inputs have windows that move.
    output_store: str = ""

    @cached_property
    def identity(self) -> str:
        return plan_hash(self.shape.node)

    @property
    def subject(self) -> str:
        """Tells plans apart that choose for themselves, and those whose inputs were chosen."""
        if self.forced is None:
            return self.identity
        return f"{self.identity} {early_text(self.shape, self.forced)}"

    def chosen(self, choices: Choices) -> frozenset[int]:
        """The inputs that were aggregated early last."""
        last = choices.early.get(self.identity, EarlyInputs(0, self.shape.eligible))
        return last.inputs if self.forced is None else self.forced

    def inputs(self, epoch: PlanningEpoch) -> frozenset[int]:
        """The inputs that are aggregated before the join in this epoch."""
        if self.forced is not None:
            return self.forced
        loads = self.loads(epoch.statistics, epoch.stored_rows)
        return choose_early_inputs(
            self.shape,
            self.identity,
            epoch.number,
            loads,
            self.policy,
            epoch.choices,
            epoch.statistics.regrets,
            self,
        )

    def wants(self, index: int, epoch: PlanningEpoch) -> bool:
        """Whether an epoch's rows of an input should be aggregated."""
        return index in self.inputs(epoch)

    def loads(
        self, statistics: RuntimeStatistics, stored_rows: Callable[[str], int]
    ) -> SetLoads | None:
        """What is known of the sets, or None while something is missing."""
        sets, tables, keys, windows, skews = {}, {}, {}, {}, {}
        for index, joined_set in enumerate(self.sets):
            is_table = self.shape.is_table(index)
            if is_table:
                rows = statistics.table_rows.get(joined_set.store)
                if rows is None:
                    return None
                tables[index] = float(rows), float(stored_rows(joined_set.store))
            elif joined_set.store not in statistics.sets:
                return None
            else:
                sets[index] = statistics.sets[joined_set.store]
                held = statistics.moving.get(joined_set.store)
                if held is not None:
                    windows[index] = held.rows, held.groups
                skews[index] = statistics.skews.get(joined_set.store, 1.0)
            for position, key in joined_set.joined_by:
                counted = statistics.keys.get((joined_set.store, key))
                if counted is None and not is_table:
                    return None
                keys[index, position] = tables[index][1] if counted is None else counted
        seen = statistics.set_matches.get(self.identity, {})
        matches = {early: one.factor for early, one in seen.items()}
        return SetLoads(sets, tables, keys, windows, matches, skews)

    def described(
        self, statistics: RuntimeStatistics, choices: Choices, stored_rows: Callable[[str], int]
    ) -> DescribedEarly:
        """By which plan the aggregate is computed, and what the others would cost."""
        loads = self.loads(statistics, stored_rows)
        costs, joined, chosen = None, None, self.chosen(choices)
        if loads is not None:
            tuning, model = self.policy.early_tuning, self.policy.early_cost_model
            ways = output_ways(self.shape, self.policy)
            costs = plan_costs(self.shape, loads, tuning, model, ways)
            rows = ChoiceCosts(self.shape, loads, tuning, EarlyModel.ENGINE).joined(chosen)
            match = loads.matches.get(chosen)
            joined = JoinedRows(rows, None if match is None else rows * match)
        return DescribedEarly(self.shape, chosen, self.forced is not None, costs, joined)

    @property
    def text(self) -> str:
        """The choice for people."""
        if self.forced is None:
            return "aggregated early: the inputs for which that costs least in that epoch"
        return f"aggregated early: {early_text(self.shape, self.forced)}, as asked for"


def describe(query: PlannedQuery) -> list[DescribedEarly | LateAggregate]:
    """Each aggregate over joins of a query: early, or late and why."""
    by_node = {choice.shape.node: choice for choice in query.early_choices}
    aggregates: list[DescribedEarly | LateAggregate] = []
    for node in aggregates_over_joins(query.plan):
        choice = by_node.get(node)
        if choice is not None:
            aggregates.append(choice.described(query.statistics, query.choices, query.stored_rows))
            continue
        shape = aggregation_join(node)
        reason = shape.reason if isinstance(shape, Declined) else "as asked for"
        aggregates.append(LateAggregate(node, reason))
    return aggregates


def alternatives(query: PlannedQuery) -> Iterator[RankedPlan]:
    """The other sets of inputs that could be aggregated before a join."""
    for early in describe(query):
        if isinstance(early, LateAggregate) or early.forced:
            continue
        for choice in early.plans:
            names = early.name(choice) if choice else "none"
            info = Alternative(
                f"aggregated early: {early.name(choice)}",
                early.cost(choice),
                EARLY_AGGREGATION,
                choice == early.chosen,
                f"{plan_name(choice, len(early.shape.names))} of the paper",
            )
            yield RankedPlan(info, with_early(query.own, early.shape.node, names))
