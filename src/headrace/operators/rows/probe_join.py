"""Joins without a bound on time: one operator for all inputs, whose new rows probe indexes.

What a stream keeps for such a join may be any number of times larger than a micro-batch, so new
rows look the others up in indexes that tasks keep beside the durable state, in the order that the
data of late suggests. A delta join over the same inputs defines what comes out, and runs where
tasks cannot do it.

Paper: Multi-Way Joins, Section 3.1.
"""

from __future__ import annotations

from functools import cached_property

from sqlglot import exp

from headrace.definitions.definition import Definition, qualify, table
from headrace.definitions.join_shape import JoinShape
from headrace.operators.base import EpochStep, Operator
from headrace.operators.epoch import Epoch, Probed
from headrace.operators.inputs import STORED, ProbedInput, ProbedLeaf
from headrace.operators.rows.delta_join import DeltaJoin, JoinInput
from headrace.optimizer.probing.fixed_order import NAME as FIXED_ORDER
from headrace.plan.expressions import Expr
from headrace.plan.join_graph import order_text
from headrace.plan.json import plan_hash
from headrace.plan.nodes import Join
from headrace.planner.policy import PlannerPolicy
from headrace.planner.probe_order import ProbeOrders


class ProbeJoin(Operator):
    """An inner join of two or more streams by equal keys."""

    def __init__(
        self,
        node: Join,
        pairs: DeltaJoin,
        inputs: tuple[JoinInput, ...],
        shape: JoinShape,
        streams: frozenset[str],
        policy: PlannerPolicy,
    ) -> None:
        self.node: Join = node
        self._pairs = pairs
        self._inputs = inputs
        self._shape = shape
        self._graph = shape.graph
        self._streams = streams
        self._policy = policy

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self._pairs.inputs

    @cached_property
    def identity(self) -> str:
        return plan_hash(self.node)

    def delta(self, epoch: Epoch) -> Definition | None:
        probed = epoch.probed.get(id(self))
        if probed is not None:
            # Another query asked for the same; both get what is found once.
            return Definition(probed.name, self.node.schema)
        leaves = [self._leaf(index, epoch) for index in range(len(self._inputs))]
        if not any(leaf.new.files for leaf in leaves):
            return None
        if not all(leaf.old.files or leaf.new.files for leaf in leaves):
            # A stream that never had a row leaves nothing to find.
            return None
        orders = self._orders(epoch)
        cut_by = self._cut_by(leaves)
        last = self._shape.last
        join = ProbedInput(
            leaves,
            [*self._shape.certain, *([] if last is None else [last])],
            {driver: orders.orders[driver] for driver, leaf in enumerate(leaves) if leaf.new.files},
            self.node.schema,
            lambda: self._definition(epoch),
            epoch.life.name,
            epoch.number,
            cut_by,
        )
        # Indexes are cut anew when there are more parts, so their number never falls.
        wanted = 1 if cut_by is None else epoch.executor.parts_of_indexes(join.rows)
        join.parts = orders.parts = max(orders.parts, wanted)
        name = epoch.inputs.bind(join)
        epoch.probed[id(self)] = Probed(name, join, orders)
        return Definition(name, self.node.schema)

    def _orders(self, epoch: Epoch) -> ProbeOrders:
        running = epoch.choices.probes.get(self.identity)
        if running is None or running.asked != self._policy:
            running = ProbeOrders.begin(self.node, self._graph, self._policy, epoch.statistics)
            epoch.choices.probes[self.identity] = running
        return running

    def _definition(self, epoch: Epoch) -> exp.Query:
        rows = self._pairs.delta(epoch)
        assert rows is not None, "all inputs have rows, and some have new ones"
        return rows.query

    def _leaf(self, index: int, epoch: Epoch) -> ProbedLeaf:
        source = self._inputs[index]
        old, new = source.rows.files(epoch)
        ours = [key for members in self._graph.key_classes for i, key in members if i == index]
        keys: dict[int, tuple[Expr, str | None]] = {}
        for key, (position, stored) in zip(ours, source.keys, strict=True):
            # Of several keys of one class the first; that they are equal is a condition.
            keys.setdefault(position, (key, stored))
        return ProbedLeaf(
            source.rows.store.name,
            old,
            new,
            qualify(source.rows.reading(table(STORED)), source.schema),
            source.schema,
            keys,
            source.lives,
            self._streams,
            epoch.before(self._streams),
        )

    def _cut_by(self, leaves: list[ProbedLeaf]) -> int | None:
        """The class of keys by which most rows are told apart; inputs without such a key are read
        whole by every part."""
        apart: dict[int, int] = {}
        for leaf in leaves:
            for position, (_, stored) in leaf.keys.items():
                if stored is not None:
                    held = sum(file.rows for file in (*leaf.old.files, *leaf.new.files))
                    apart[position] = apart.get(position, 0) + held
        return max(sorted(apart), key=lambda position: apart[position], default=None)

    def steps(self) -> tuple[EpochStep, ...]:
        names = ", ".join(self._graph.names)
        if self.node.order is not None:
            line = f"in the order {order_text(self.node.order, self._graph.names)}, as asked for"
        elif self._policy.probe_strategy == FIXED_ORDER:
            line = f"in the order {order_text(self._graph.written, self._graph.names)}, as written"
        else:
            line = f"in orders that follow the data, by {self._policy.probe_strategy}"
        return (EpochStep(f"new rows of {names} probe the others", (line,)),)
