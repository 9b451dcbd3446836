"""In which order new rows of each input of a multi-way join probe the others, while it runs.

The epochs of a join make up cycles. Each epoch tells what a sample of its new rows found; when a
cycle ends, the statistics of the next one are forecast from the past ones, and the strategy plans
orders by them. No state depends on an order, so changing it costs nothing; still it changes only
when that is expected to save something, or noise would make it change for ever.

What an order took is held against what the sample of the same epoch promised of it. If that was
more than the written order would have taken, the input goes back to the written one, and needs new
evidence to leave it (``regret``).

Paper: Multi-Way Joins, Section 3.1, Algorithm 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.cost.probing import (
    ProbeModel,
    ProbeTuning,
    match_only,
    query_cost,
    query_only,
    sequence_rank,
)
from headrace.optimizer.joins.search import listed_orders
from headrace.optimizer.probing import ablations, dp_pick, fixed_order
from headrace.optimizer.probing.describe import DescribedProbes, ProbedOrder, order_cost
from headrace.optimizer.probing.fixed_order import initial_orders
from headrace.optimizer.probing.graph import ProbeGraph, ProbeSequence
from headrace.optimizer.probing.sequences import sequence_text
from headrace.optimizer.probing.strategies import STRATEGIES
from headrace.optimizer.probing.strategy import Choice
from headrace.optimizer.safety import can_raise
from headrace.plan.expressions import Call
from headrace.plan.join_graph import JoinGraph, inputs_of, join_graph, topmost_joins, with_order
from headrace.plan.json import plan_hash
from headrace.plan.nodes import Join, JoinKind, Node, Order
from headrace.plan.types import BOOLEAN
from headrace.planner.decision import Alternative, PlannedQuery, RankedPlan
from headrace.planner.names import PROBE_ORDER
from headrace.planner.policy import PlannerPolicy
from headrace.planner.regret import Promise, Regret, Regrets, Subject
from headrace.planner.statistics import RuntimeStatistics
from headrace.stats.probes import Cycle, EdgeCounts, ProbeHistory, ProbeStatistics, ProbeStep

#: What of the costs the strategies compare that plan by those of whole sequences.
COMPARED_BY: dict[str, Callable[[ProbeTuning], ProbeTuning]] = {
    dp_pick.NAME: lambda tuning: tuning,
    ablations.QUERY_COST_ONLY: query_only,
    ablations.MATCH_COST_ONLY: match_only,
}


NO_REGRETS: Mapping[int, Regret] = {}


def compared_by(policy: PlannerPolicy) -> ProbeTuning | None:
    """By which costs orders are compared; None for strategies that do not look at those of whole
    sequences, and so cannot be asked what they expect to save."""
    if policy.probe_strategy not in COMPARED_BY:
        return None
    return COMPARED_BY[policy.probe_strategy](policy.probe_tuning)


def is_guarded(policy: PlannerPolicy) -> bool:
    """Whether orders are held to what they promise: not those of strategies and models that are
    there for comparison, which are left as they are published."""
    return policy.probe_strategy == dp_pick.NAME and policy.probe_cost_model is ProbeModel.ENGINE


def is_probed(join: Join, graph: JoinGraph, policy: PlannerPolicy) -> bool:
    """Whether new rows of a join's inputs look the others up in indexes."""
    if policy.probe_use == "never" or (policy.probe_use == "auto" and graph.timed):
        return False
    plain = join.kind is JoinKind.INNER and not join.emits_window
    return plain and probe_graph(probed_graph(graph)).connected


def probed_graph(graph: JoinGraph) -> JoinGraph:
    """The graph by the keys that are looked up: what cannot be is a condition, if other keys tie
    its inputs together all the same.

    Indexes hold no fractions, of which 0.0 and -0.0 are equal and many are not a number. A key that
    may raise stays one: it is computed for rows without a partner too.
    """
    edges = [edge for edge in graph.keys if edge.left_key.type.is_fractional]
    conditions = tuple(Call("=", (edge.left_key, edge.right_key), BOOLEAN) for edge in edges)
    if any(map(can_raise, conditions)):
        return graph
    rest = tuple(edge for edge in graph.keys if edge not in edges)
    by_others = replace(graph, keys=rest, predicates=(*graph.predicates, *conditions))
    return by_others if probe_graph(by_others).connected else graph


def probe_graph(graph: JoinGraph) -> ProbeGraph:
    classes = (frozenset(index for index, _ in members) for members in graph.key_classes)
    return ProbeGraph(len(graph.leaves), tuple(classes))


@dataclass(frozen=True)
class Switch:
    """A change of the order in which an input's new rows probe."""

    epoch: int
    driver: int
    before: ProbeSequence
    after: ProbeSequence
    #: The share of the cost that it was expected to save.
    gain: float
    #: Why the order before was left, if not for what this one saves.
    regret: Regret | None = None

    def text(self, names: Sequence[str]) -> str:
        before, after = (sequence_text(s, names) for s in (self.before, self.after))
        if self.regret is not None:
            return f"probe order {after} again ({before} {self.regret.text})"
        return f"probe order {after} (was {before}, saves {self.gain:.0%})"


@dataclass
class ProbeOrders:
    """What is known of one multi-way join, and the orders that it has at present."""

    graph: ProbeGraph
    names: tuple[str, ...]
    initial: tuple[int, ...]
    #: What the user asks of all joins, and what holds for this one.
    asked: PlannerPolicy
    policy: PlannerPolicy
    orders: dict[int, ProbeSequence]
    history: ProbeHistory
    identity: str
    regrets: Regrets
    statistics: ProbeStatistics | None = None
    switches: list[Switch] = field(default_factory=list)
    #: Seconds that tasks spent on statistics, and altogether.
    statistics_seconds: float = 0.0
    seconds: float = 0.0
    #: Rows that all probes so far looked up and found; results are among the latter.
    looked_up: int = 0
    found: int = 0
    parts: int = 1
    _epochs: int = 0
    _began: float = field(default_factory=time.monotonic)

    @classmethod
    def begin(
        cls, join: Join, graph: JoinGraph, policy: PlannerPolicy, statistics: RuntimeStatistics
    ) -> ProbeOrders:
        """The order asked for, or the one written, until something is known of the join. Who asks
        for an order gets it, and no other."""
        initial = inputs_of(graph.written if join.order is None else join.order)
        probed = probe_graph(probed_graph(graph))
        identity = plan_hash(join)
        history = statistics.probes.get(identity)
        if history is None or history.length != policy.probe_history:
            past = () if history is None else history.cycles
            history = ProbeHistory(policy.probe_history, past)
            statistics.probes[identity] = history
        orders = cls(
            probed,
            graph.names,
            initial,
            policy,
            policy if join.order is None else policy.with_fixed_probes(),
            initial_orders(probed, initial),
            history,
            identity,
            statistics.regrets,
        )
        # What an earlier run has learnt holds from the first epoch on.
        orders._plan(0)
        return orders

    def learn(self, epoch: int, observed: Sequence[Mapping[str, Any]]) -> list[Switch]:
        """Take in what the parts of an epoch saw; the switches if that ends a cycle."""
        if not observed:
            return []
        self._add(observed)
        self._epochs += 1
        if not self.policy.probe_cycle.is_over(
            self._epochs, 1_000 * (time.monotonic() - self._began)
        ):
            return []
        self._epochs, self._began = 0, time.monotonic()
        ended = self.history.close()
        return [] if ended is None else self._plan(epoch, self._judge(ended))

    def _add(self, observed: Sequence[Mapping[str, Any]]) -> None:
        edges: dict[tuple[int, int], EdgeCounts] = {}
        keys: dict[tuple[int, int], float] = {}
        rows: dict[int, float] = {}
        arrivals: dict[int, int] = {}
        steps: dict[str, dict[ProbeStep, EdgeCounts]] = {"sampled": {}, "observed": {}}
        for part in observed:
            for one, other, *counts in part["counts"]:
                edges[one, other] = edges.get((one, other), EdgeCounts()) + EdgeCounts(*counts)
            for kind, by_step in steps.items():
                for driver, met, one, other, *counts in part[kind]:
                    step = driver, met, (one, other)
                    by_step[step] = by_step.get(step, EdgeCounts()) + EdgeCounts(*counts)
            # Of an input that every part holds whole each tells the same.
            whole = part["whole"]
            for one, other, count in part["keys"]:
                before = keys.get((one, other), 0.0)
                keys[one, other] = max(before, count) if whole[other] else before + count
            for index, held in enumerate(part["rows"]):
                was = rows.get(index, 0.0)
                rows[index] = max(was, held) if whole[index] else was + held
            for index, new in enumerate(part["arrivals"]):
                so_far = arrivals.get(index, 0)
                arrivals[index] = max(so_far, new) if whole[index] else so_far + new
            self.statistics_seconds += part["seconds"]["statistics"]
            self.seconds += part["seconds"]["all"]
            self.looked_up += part["looked_up"]
            self.found += part["found"]
        self.history.add(edges, keys, rows, arrivals, steps["sampled"], steps["observed"])

    def _judge(self, ended: Cycle) -> dict[int, Regret]:
        """The inputs whose orders did not keep their promise in a cycle."""
        promised, forecast = self.history.sample(), self.history.forecast(smooth=False)
        if promised is None or forecast is None or not is_guarded(self.policy):
            return {}
        regrets = {}
        for driver, written in self._written.items():
            sequence = self.orders[driver]
            taken = observed_cost(sequence, ended, forecast, self.policy.probe_tuning)
            unknown, chosen = self._rank(sequence, promised)
            instead_unknown, instead = self._rank(written, forecast)
            if taken is None or unknown or instead_unknown:
                continue
            plan = None if sequence == written else _plan_name(sequence)
            promise = Promise(chosen, instead)
            regret = self.regrets.judge(self._subject(driver), plan, promise, taken)
            if regret is not None:
                regrets[driver] = regret
        return regrets

    def _subject(self, driver: int) -> Subject:
        return Subject(PROBE_ORDER, self.identity, str(driver))

    @property
    def _written(self) -> dict[int, ProbeSequence]:
        return initial_orders(self.graph, self.initial)

    def _plan(self, epoch: int, regrets: Mapping[int, Regret] = NO_REGRETS) -> list[Switch]:
        statistics = self.statistics = self.history.forecast(self.policy.probe_smoothing)
        if statistics is None:
            return []
        policy = self.policy
        planned = STRATEGIES[policy.probe_strategy].orders(
            Choice(
                self.graph,
                statistics,
                policy.probe_tuning,
                policy.probe_cost_model,
                self.initial,
            )
        )
        switches = []
        written = self._written
        for driver, wanted in planned.items():
            before, regret = self.orders[driver], regrets.get(driver)
            after = wanted if self._admits(driver, wanted, written[driver]) else written[driver]
            if regret is not None and after == before:
                after = written[driver]
            gain = self.gain(before, after)
            enough = compared_by(policy) is None or gain >= policy.least_gain_of_orders
            if after != before and (enough or regret is not None):
                switches.append(Switch(epoch, driver, before, after, gain, regret))
                self.orders[driver] = after
        self.switches += switches
        return switches

    def _admits(self, driver: int, wanted: ProbeSequence, written: ProbeSequence) -> bool:
        """Whether an order may be taken, after all that was seen of it."""
        if self.statistics is None or not is_guarded(self.policy) or wanted == written:
            return True
        unknown, chosen = self._rank(wanted, self.statistics)
        instead_unknown, instead = self._rank(written, self.statistics)
        if unknown or instead_unknown:
            # What is not known was promised by nobody.
            return True
        promise = Promise(chosen, instead)
        return self.regrets.admits(self._subject(driver), _plan_name(wanted), promise)

    def costs(self, sequences: Mapping[int, ProbeSequence]) -> ProbedOrder:
        """What new rows are expected to cost in these orders, as far as that is known."""
        costs = {driver: self._cost(sequence) for driver, sequence in sequences.items()}
        costed = {driver: cost for driver, cost in costs.items() if cost is not None}
        cycles = self.history.cycles
        arrivals = cycles[-1].arrivals if cycles else {}
        rows = sum(arrivals.values())
        if len(costed) < len(costs) or not rows:
            return ProbedOrder(sequences, costs, None)
        total = sum(costed[driver] * arrivals.get(driver, 0) for driver in costed)
        return ProbedOrder(sequences, costs, total / rows)

    def _cost(self, sequence: ProbeSequence) -> float | None:
        if self.statistics is None:
            return None
        unknown, seconds = self._rank(sequence, self.statistics)
        return None if unknown else seconds

    def describe(self, join: Join, orders: Sequence[Order]) -> DescribedProbes:
        """The orders that it has, and what it would cost to have one of these for all inputs."""
        changes = [f"epoch {s.epoch}: {s.text(self.names)}" for s in self.switches]
        return DescribedProbes(
            join,
            self.names,
            self.graph,
            self._why(join),
            self.costs(dict(self.orders)),
            self.costs(self._written),
            self.statistics,
            len(self.history.cycles),
            tuple(changes),
            {o: self.costs(initial_orders(self.graph, inputs_of(o))) for o in orders},
        )

    def _why(self, join: Join) -> str:
        if join.order is not None:
            return "as asked for"
        if self.policy.probe_strategy == fixed_order.NAME:
            return "as written"
        if self.statistics is None:
            return f"as written until something is known of the streams, then by {self._by}"
        return f"by {self._by}"

    @property
    def _by(self) -> str:
        model = self.policy.probe_cost_model.value
        return f"{self.policy.probe_strategy} with the cost model {model!r}"

    def gain(self, before: ProbeSequence, after: ProbeSequence) -> float:
        """The share of the cost of one order that another is expected to save."""
        if self.statistics is None:
            return 0.0
        unknown, stay = self._rank(before, self.statistics)
        still_unknown, change = self._rank(after, self.statistics)
        if unknown != still_unknown:
            # What is not known cannot be compared; better is what is known.
            return 1.0 if still_unknown < unknown else 0.0
        return 1 - change / stay if stay > 0 else 0.0

    def _rank(self, sequence: ProbeSequence, statistics: ProbeStatistics) -> tuple[int, float]:
        tuning = compared_by(self.policy) or self.policy.probe_tuning
        return sequence_rank(sequence, statistics, tuning, self.policy.probe_cost_model)


def observed_cost(
    sequence: ProbeSequence, cycle: Cycle, statistics: ProbeStatistics, tuning: ProbeTuning
) -> float | None:
    """Seconds that an order took for each row that began it; None if none did.

    By the counts of its probes, which are exact, and by what a probe and a row cost.
    """
    driver = sequence[0][0] if sequence else 0
    met, began, seconds = 1 << driver, 0, 0.0
    for edge in sequence:
        counts = cycle.observed.get((driver, met, edge))
        if counts is None:
            # No row got that far.
            break
        began = began or counts.queries
        seconds += counts.queries * query_cost(statistics.keys.get(edge, 1.0), tuning)
        seconds += (counts.rows + counts.wasted) * tuning.match
        met |= 1 << edge[1]
    return seconds / began if began else None


def _plan_name(sequence: ProbeSequence) -> str:
    """An order as the experience with it is kept.

    >>> _plan_name(((0, 2), (2, 1)))
    '0-2 2-1'
    """
    return " ".join(f"{one}-{other}" for one, other in sequence)


def describe(query: PlannedQuery) -> list[DescribedProbes]:
    """The joins of a query whose inputs probe each other, with their orders."""
    return _probed(query, query.plan)


def alternatives(query: PlannedQuery) -> Iterator[RankedPlan]:
    """The orders that could hold for the new rows of all inputs of a join."""
    for probes in _probed(query, query.own):
        for sequence, probed in probes.alternatives.items():
            info = Alternative(
                f"probe order {', '.join(probes.names[i] for i in inputs_of(sequence))}",
                order_cost(probed),
                PROBE_ORDER,
                False,
                "new rows of each input probe the others in this order",
            )
            yield RankedPlan(info, with_order(query.own, probes.join, sequence))


def _probed(query: PlannedQuery, plan: Node) -> list[DescribedProbes]:
    described = []
    for join in topmost_joins(plan):
        graph = join_graph(join)
        if join.emits_window or not is_probed(join, graph, query.policy):
            continue
        orders = query.choices.probes.get(plan_hash(join))
        if orders is None:
            statistics = RuntimeStatistics(
                probes=dict(query.statistics.probes), regrets=query.statistics.regrets.copy()
            )
            orders = ProbeOrders.begin(join, graph, query.policy, statistics)
        listed = listed_orders(graph, None, query.policy.disabled_join_rules)
        described.append(orders.describe(join, [order.order for order in listed]))
    return described
