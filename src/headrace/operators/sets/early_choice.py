"""Which inputs of an aggregation join are aggregated early, by what is known of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from headrace.operators.epoch import Epoch
from headrace.operators.sets.definition import SetColumns
from headrace.optimizer.early.shape import AggregationJoin
from headrace.plan.json import plan_hash
from headrace.planner.early_aggregation import (
    EarlyMemory,
    EarlyPolicy,
    SetLoads,
    choose_early_inputs,
    early_text,
)
from headrace.planner.join_order import JoinMemory
from headrace.state.committed import Committed


@dataclass(frozen=True)
class EarlyChoice:
    """The choice of one query, which may be another one in each epoch unless it is forced."""

    shape: AggregationJoin
    inputs_of_join: tuple[SetColumns, ...]
    policy: EarlyPolicy
    forced: frozenset[int] | None

    @cached_property
    def identity(self) -> str:
        return plan_hash(self.shape.node)

    def inputs(self, epoch: Epoch) -> frozenset[int]:
        if self.forced is not None:
            return self.forced
        loads = self.known_loads(epoch.early, epoch.joins, epoch.state)
        return choose_early_inputs(
            self.shape, self.identity, epoch.number, loads, self.policy, epoch.early
        )

    def wants(self, index: int, epoch: Epoch) -> bool:
        """Whether an epoch's rows of an input should be aggregated.

        Now and then they are, to see how many groups they make.
        """
        if index in self.inputs(epoch):
            return True
        return self.forced is None and epoch.counts_keys and index in self.shape.eligible

    def known_loads(
        self, early: EarlyMemory, joins: JoinMemory, state: Committed
    ) -> SetLoads | None:
        """What is known of the sets, or None while something is missing."""
        sets, tables, keys = {}, {}, {}
        for index, source in enumerate(self.inputs_of_join):
            is_table = self.shape.is_table(index)
            if is_table:
                rows = early.table_rows.get(source.store)
                if rows is None:
                    return None
                tables[index] = float(rows), float(state.arrangement(source.store).rows)
            elif source.store not in early.loads:
                return None
            else:
                sets[index] = early.loads[source.store]
            for position, key in source.joined_by:
                counted = joins.keys.get((source.store, key))
                if counted is None and not is_table:
                    return None
                keys[index, position] = tables[index][1] if counted is None else counted
        return SetLoads(sets, tables, keys)

    @property
    def text(self) -> str:
        """The choice for people."""
        if self.forced is None:
            return "aggregated early: the inputs for which that costs least in that epoch"
        return f"aggregated early: {early_text(self.shape, self.forced)}, as asked for"
