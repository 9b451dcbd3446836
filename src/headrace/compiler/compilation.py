"""What is compiled when queries come and go: of thousands of them, the few plans that are new.

A compilation goes on from the one before as long as nothing of that has to go. A plan that comes
is added, as it would have been the last of a compilation of all; a query of a plan that is there,
and one that leaves others of its plan behind, changes nothing but who has the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.compiler.compile import Compiler, union_sources
from headrace.compiler.physical_plan import PhysicalPlan, QueryOutput
from headrace.operators.base import Operator
from headrace.plan.nodes import Node, OutputMode, Source
from headrace.planner.grouping import aggregates_by_family
from headrace.planner.live_query import LiveQuery
from headrace.planner.pane_layout import PanePlan
from headrace.planner.policy import PlannerPolicy

#: A plan that is computed, from when its queries see every row, and how it puts its rows out.
_Key = tuple[int, int | None, OutputMode]


class Compilation:
    """The operators of all queries that run, with the stores they share."""

    def __init__(self) -> None:
        self._compiler: Compiler | None = None
        self._plans: dict[_Key, Node] = {}
        self._operators: dict[_Key, Operator] = {}

    def compile(
        self, queries: Iterable[LiveQuery], panes: PanePlan, policy: PlannerPolicy
    ) -> PhysicalPlan:
        """Operators for these queries; panes are laid out already."""
        by_name = {query.sink.name: query for query in sorted(queries, key=_lateness)}
        keys = {name: _key(query) for name, query in by_name.items()}
        plans = {keys[n]: query.sink.relabelling.computes for n, query in by_name.items()}
        sources = _sources(plans, panes)
        compiler = self._compiler
        if compiler is None or not self._goes_on(compiler, plans, sources, panes, policy):
            compiler = Compiler(panes, policy)
            self._plans, self._operators = {}, {}
        # Whatever goes wrong on the way, what is half done is not gone on from.
        self._compiler = None
        compiler.lay_out(panes)
        read = compiler.physical.sources.keys()
        compiler.read({s: source for s, source in sources.items() if s not in read})
        for key, plan in plans.items():
            if key not in self._operators:
                self._plans[key] = plan
                self._operators[key] = compiler.add(plan, *key[1:])
        self._compiler = compiler
        physical = compiler.physical
        return replace(
            physical,
            stores=list(physical.stores),
            outputs={
                name: QueryOutput(
                    self._operators[keys[name]], query.sink.schema, query.sink.relabelling
                )
                for name, query in by_name.items()
            },
            sources=dict(physical.sources),
            queries=by_name,
            panes=panes,
            early_choices=list(physical.early_choices),
        )

    def _goes_on(
        self,
        compiler: Compiler,
        plans: Mapping[_Key, Node],
        sources: Mapping[str, Source],
        panes: PanePlan,
        policy: PlannerPolicy,
    ) -> bool:
        """Whether all that was compiled is still wanted as it is, and comes before what is new."""
        before = compiler.physical
        new = plans.keys() - self._plans.keys()
        last = max(map(_lateness_of, self._plans), default=(False, 0))
        return (
            before.policy == policy
            and self._plans.keys() <= plans.keys()
            and all(last <= _lateness_of(key) for key in new)
            and all(sources[s] == source for s, source in before.sources.items())
            and all(
                panes.layouts_of(plan) == compiler.panes.layouts_of(plan)
                for plan in self._plans.values()
            )
        )


def _sources(plans: Mapping[_Key, Node], panes: PanePlan) -> dict[str, Source]:
    computed = list({id(plan): plan for plan in plans.values()}.values())
    families = aggregates_by_family(computed)
    inputs = [panes.hosts[family].input for family in families if family in panes.hosts]
    return union_sources([*computed, *inputs])


def _key(query: LiveQuery) -> _Key:
    return id(query.sink.relabelling.computes), query.starts_at, query.sink.mode


def _lateness(query: LiveQuery) -> tuple[bool, int]:
    return _lateness_of(_key(query))


def _lateness_of(key: _Key) -> tuple[bool, int]:
    _, starts_at, _ = key
    return starts_at is not None, starts_at or 0
