"""The plan that runs, what it was made by, and what each query needs of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.compiler.compilation import Compilation
from headrace.compiler.physical_plan import PhysicalPlan
from headrace.compiler.planning import PlanState, layouts_are_outdated, plan_all
from headrace.merge.rewriting import Merging
from headrace.plan.json import from_json, to_json
from headrace.plan.nodes import Node
from headrace.plan.relabelling import Relabelling, relabelling
from headrace.planner.choices import Choices
from headrace.planner.live_query import LiveQuery
from headrace.planner.pane_layout import PanePlan
from headrace.planner.policy import PlannerPolicy
from headrace.planner.statistics import RuntimeStatistics
from headrace.state.committed import Committed, MergedPlan


@dataclass(frozen=True)
class _OwnStores:
    """What a plan needs of stores, as long as its panes are laid out like this.

    That is the names of the counters of each of them, and the sets of streams by whose watermarks
    they let rows go.
    """

    plan: Node
    layout: object
    counters: dict[str, list[str]]
    released_by: frozenset[frozenset[str]]


@dataclass(frozen=True)
class _WrittenPlan:
    """A plan as commits hold it."""

    plan: Node
    number: str
    text: str

    @classmethod
    def of(cls, plan: Node) -> _WrittenPlan:
        text = json.dumps(to_json(plan), separators=(",", ":"))
        return cls(plan, hashlib.sha256(text.encode()).hexdigest()[:16], text)


class LivePlan:
    """Plans the queries that share a state, and knows what was learnt while they ran."""

    def __init__(
        self, policy: PlannerPolicy, statistics: RuntimeStatistics, merging: Merging | None
    ) -> None:
        self.policy = policy
        self.statistics = statistics
        self.merging = merging
        #: The queries as they were asked for.
        self.asked: Mapping[str, LiveQuery] = {}
        self.choices = Choices()
        self.physical = PhysicalPlan(policy=policy)
        #: Changes of layouts since they were last asked for.
        self._changes: list[str] = []
        #: The stores of each query, with the counters of the rows that are late for *it*.
        self.late_counters: dict[str, dict[str, list[str]]] = {}
        #: The sets of streams by whose watermarks each query's operators go.
        self.released_by: dict[str, frozenset[frozenset[str]]] = {}
        self._own_stores: dict[tuple[int, int | None], _OwnStores] = {}
        self._written: dict[int, _WrittenPlan] = {}
        self._compilation = Compilation()

    @property
    def queries(self) -> Mapping[str, LiveQuery]:
        """What each query runs: its plan, merged with those of the others."""
        return self.physical.queries

    def use(self, queries: Mapping[str, LiveQuery], state: Committed) -> None:
        """Run these queries from now on, over this state."""
        ran = {} if self.queries else plans_that_ran(queries, state)
        self.asked = dict(queries)
        self.physical = plan_all(
            queries.values(),
            PlanState(state.panes, merging=self.merging, ran=ran, compilation=self._compilation),
            self.statistics,
            self.policy,
        )
        state.note_plan(self.physical.panes, *self._merged_plans())
        self._changes += self.physical.changes
        own = self._stores_by_query(state.panes)
        self.late_counters = {name: stores.counters for name, stores in own.items()}
        self.released_by = {name: stores.released_by for name, stores in own.items()}
        self.statistics.forget_all_but(self.physical.subjects())

    def alone(self, query: LiveQuery) -> PhysicalPlan:
        """Operators for one query, over the stores that all share."""
        state = PlanState(self.physical.panes, settled=True)
        return plan_all([query], state, self.statistics, self.policy)

    def keeps_all_of(self, query: LiveQuery) -> bool:
        """Whether everything that a query would need to remember is in the stores already."""
        stores = {store.name: store for store in self.physical.stores}
        return all(
            needed.name in stores and stores[needed.name].serves(needed)
            for needed in self.alone(query).stores
        )

    @property
    def is_outdated(self) -> bool:
        """Whether what was learnt since would lay panes out otherwise."""
        return layouts_are_outdated(self.physical, self.statistics)

    def take_changes(self) -> list[str]:
        """What the planner changed since this was last asked."""
        changes = [*self._changes, *self.choices.take_changes()]
        self._changes = []
        return changes

    def _stores_by_query(self, panes: PanePlan) -> dict[str, _OwnStores]:
        """The stores of each query as if it ran alone: merged queries have the same."""
        before, now = self._own_stores, dict[tuple[int, int | None], _OwnStores]()
        by_query = {}
        for name, live in self.queries.items():
            plan = live.sink.relabelling.computes
            key = id(plan), live.starts_at
            if key not in now:
                # To compile thousands of plans one by one takes seconds, and few have changed.
                layout = panes.layouts_of(plan)
                own = before.get(key)
                if own is None or own.plan is not plan or own.layout != layout:
                    alone = self.alone(live)
                    counters = {store.name: store.late_counters() for store in alone.stores}
                    sets = frozenset().union(*map(alone.released_by, alone.stores))
                    own = _OwnStores(plan, layout, counters, sets)
                now[key] = own
            by_query[name] = now[key]
        self._own_stores = now
        return by_query

    def _merged_plans(self) -> tuple[dict[str, MergedPlan], dict[str, str]]:
        """Which queries run another plan than their own, by its number, and these plans as text.

        State is named by the plan that runs, so a restart must find it. What queries call its
        columns is not part of it: thousands of them run few plans.
        """
        merged: dict[str, MergedPlan] = {}
        before, self._written = self._written, {}
        for name, query in self.queries.items():
            if query.sink.input is self.asked[name].sink.input:
                continue
            named = query.sink.relabelling
            key = id(named.computes)
            if key not in self._written:
                known = before.get(key)
                if known is None or known.plan is not named.computes:
                    known = _WrittenPlan.of(named.computes)
                self._written[key] = known
            merged[name] = MergedPlan(self._written[key].number, named.columns)
        return merged, {written.number: written.text for written in self._written.values()}


def plans_that_ran(queries: Mapping[str, LiveQuery], state: Committed) -> dict[str, Node]:
    """The plans of queries before a restart: their own, or those they were merged into."""
    plans = {number: from_json(json.loads(text)) for number, text in state.plans.items()}
    # Equal plans become one and the same, which is what all sharing looks at; first those that are
    # there already.
    same: dict[Node, Node] = {}
    ran: dict[str, Node] = {}
    for name in sorted(queries, key=state.merged.__contains__):
        sink, record = queries[name].sink, state.queries.get(name)
        merged = state.merged.get(name)
        if merged is not None:
            plan = plans[merged.plan]
            if merged.columns is not None:
                plan = Relabelling(plan, merged.columns).over(sink.schema)
        elif state.epoch and (record is None or record.since_epoch <= state.epoch):
            plan = sink.input
        else:
            continue
        named = relabelling(plan)
        computes = same.setdefault(named.computes, named.computes)
        if computes is not named.computes:
            plan = Relabelling(computes, named.columns).over(plan.schema)
        ran[name] = plan
    return ran
