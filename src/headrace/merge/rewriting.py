"""Queries rewritten over what they share: equal parts become one and the same node.

The engine computes equal nodes once. So merging ends here: a part of a query that means the same
as a part of another is replaced by that one, under a projection where its columns have other names
or another order. The plan that a query runs is remembered as long as the query lives: state is
named by it, also when the query that it was taken from has left.

Paper: Query Merging, Section 7.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from threading import Lock
from typing import TypeVar

from headrace.merge.containing_operators import ContainingOperators
from headrace.merge.global_plan import GlobalPlan, SharedOperator
from headrace.merge.solver import SOLVER_STEPS
from headrace.merge.strategies import Matcher, MeaningMatcher, MergeStrategy, make_matcher
from headrace.plan.derived_tables import reaches_into
from headrace.plan.expressions import Column, Named, conjuncts
from headrace.plan.join_graph import belongs
from headrace.plan.nodes import Aggregate, Filter, Join, Node, Project, Sink

T = TypeVar("T")


class Merging:
    """The running plans of queries that come and go."""

    def __init__(
        self,
        strategy: MergeStrategy,
        unbounded: bool = False,
        solver_steps: int = SOLVER_STEPS,
        cost: Callable[[Node], float | None] = lambda plan: None,
    ) -> None:
        self.strategy = strategy
        #: What a plan costs in rows, where that is known.
        self._cost = cost
        self._unbounded = unbounded
        self._solver_steps = solver_steps
        self._matcher = self._made()
        self.global_plan = GlobalPlan(strategy, matcher=self._matcher)
        #: What each operator of the global plan runs, and what its columns mean.
        self._plans: dict[int, tuple[Node, Mapping[str, int]]] = {}
        self._containers = ContainingOperators()
        self._given: dict[str, Sink] = {}
        self._running: dict[str, Sink] = {}
        self._left = 0
        #: Queries that do not see yet what those before them see.
        self._late: set[str] = set()
        #: Queries change on the engine's thread, and people look at them from theirs.
        self._lock = Lock()

    def _made(self) -> Matcher:
        # By meaning alone, whatever columns are called: a name costs a projection, not a plan.
        return make_matcher(self.strategy, self._unbounded, self._solver_steps, named=False)

    def update(
        self,
        queries: Mapping[str, Sink],
        ran: Mapping[str, Node] | None = None,
        apart: Collection[str] = (),
        late: Collection[str] = (),
    ) -> dict[str, Sink]:
        """The plans to run for these queries; those that run already keep theirs.

        ``ran`` are the plans that queries ran in an earlier life. ``apart`` are queries that will
        never see what others see: to read more than they need would only cost them more. ``late``
        are those that do not see it yet. Once one does, it takes in those that run and ask for
        less.
        """
        with self._lock:
            running = self._updated(queries, ran or {}, apart)
            whole = self._late - set(late)
            self._late = {name for name in late if name in queries}
            if self._takes_in([name for name in whole if name in queries]):
                running = {name: self._running[name] for name in queries}
            return running

    def tried(self, queries: Mapping[str, Sink]) -> dict[str, Sink]:
        """The plans that these queries would run now; those that are not there yet do not stay."""
        with self._lock:
            added = {n: sink for n, sink in queries.items() if n not in self._running}
            plans = {n: self._running[n] for n in queries if n in self._running}
            tried: list[str] = []
            try:
                for name, sink in added.items():
                    self._given[name] = sink
                    self._running[name] = plans[name] = self._merged(sink, may_read_others=True)
                    tried.append(name)
            finally:
                for name in tried:
                    self._forget(name)
            return {name: plans[name] for name in queries}

    def with_locked_plan(self, see: Callable[[GlobalPlan], T]) -> T:
        """Read the global plan while nobody changes it."""
        with self._lock:
            return see(self.global_plan)

    def _updated(
        self, queries: Mapping[str, Sink], ran: Mapping[str, Node], apart: Collection[str]
    ) -> dict[str, Sink]:
        for name, sink in list(self._given.items()):
            if queries.get(name) is not sink:
                self._forget(name)
        added = [name for name in queries if name not in self._given]
        # Those that ran come first: newcomers can share their state, and not the other way. Of the
        # others those with fewer conditions: what they keep may hold what the rest wants.
        for name in sorted(added, key=lambda n: (n not in ran, _conditions(queries[n]))):
            sink = self._given[name] = queries[name]
            self._running[name] = (
                self._as_it_ran(sink, ran[name])
                if name in ran
                else self._merged(sink, name not in apart)
            )
        return {name: self._running[name] for name in queries}

    def _forget(self, name: str) -> None:
        del self._running[name], self._given[name]
        if self.strategy is MergeStrategy.NONE:
            return
        self.global_plan.remove(name)
        self._left += 1
        if self._left > 1_000 and self._left > 4 * len(self._running):
            self._start_anew()

    def _start_anew(self) -> None:
        """Keep nothing of the queries that left; those that run go on as they are."""
        self._left = 0
        self._matcher = self._made()
        self.global_plan = GlobalPlan(self.strategy, matcher=self._matcher)
        self._plans, self._containers = {}, ContainingOperators()
        for sink in self._running.values():
            self._remember(sink, sink.input)

    def _as_it_ran(self, sink: Sink, plan: Node) -> Sink:
        """State is named by the very plan that ran: one that means the same may have none."""
        own = sink if plan is sink.input else replace(sink, input=plan)
        if self.strategy is not MergeStrategy.NONE:
            self._remember(own, plan)
        return own

    def _remember(self, sink: Sink, plan: Node) -> None:
        """Take in a query that runs, with the plan that it runs."""
        root = self.global_plan.add(sink).root
        self._note(root)
        if root.node is plan:
            self._plans[root.number] = plan, self._matcher.columns(plan)

    def _merged(self, sink: Sink, may_read_others: bool) -> Sink:
        if self.strategy is MergeStrategy.NONE:
            return sink
        return self._placed(sink, self._contained(sink.input) if may_read_others else sink.input)

    def _placed(self, sink: Sink, plan: Node) -> Sink:
        """A query in the global plan, with the plan that it runs."""
        own = sink if plan is sink.input else replace(sink, input=plan)
        placed = self.global_plan.add(own)
        self._note(placed.root)
        shared = self._adapted(placed.root, plan)
        return sink if shared is sink.input else replace(sink, input=shared)

    def _contained(self, plan: Node, among: Collection[int] | None = None) -> Node:
        """The same plan, whose joins and aggregates read one that runs where they are within it.

        ``among`` are the operators that may be read, if not any; an operator of one's own is left
        for them.

        Those that stand on top only: joins below a join are part of it, and what is below an
        aggregate that reads another one is not needed.
        """
        if not isinstance(self._matcher, MeaningMatcher):
            return plan
        if isinstance(plan, Join | Aggregate):
            contained = self._containers.containing(
                plan, self._matcher.equality, self._plan_of, self._pays, among
            )
            if contained is not None:
                return contained
        if isinstance(plan, Join) or (isinstance(plan, Aggregate) and plan.from_sets):
            return plan
        inputs = tuple(self._contained(below, among) for below in plan.inputs)
        same = all(a is b for a, b in zip(inputs, plan.inputs, strict=True))
        return plan if same else plan.with_inputs(inputs)

    def _takes_in(self, wider: Collection[str]) -> bool:
        """Let queries that run read those that came later and hold more; whether any does so now.

        What reads another query has no state of its own. Its open windows, and the rows that may
        still find partners, are all with the other, which has seen what every query sees.
        """
        if not wider or not isinstance(self._matcher, MeaningMatcher):
            return False
        among: set[int] = set()
        for name in wider:
            among |= self._containers.numbers(self.global_plan.root(name))
        streams = {self._given[name].streams() for name in wider}
        narrowed: dict[str, Node] = {}
        for name, sink in self._given.items():
            if name in wider or name in self._late or sink.streams() not in streams:
                continue
            plan = self._contained(sink.input, among)
            if plan is not sink.input:
                narrowed[name] = plan
        for name, plan in narrowed.items():
            self.global_plan.remove(name)
            sink = self._given[name]
            self._running[name] = self._placed(sink, plan)
        return bool(narrowed)

    def _note(self, root: SharedOperator) -> None:
        """Others may be within what runs."""
        if isinstance(self._matcher, MeaningMatcher):
            self._containers.note(root, self._matcher.equality)

    def _plan_of(self, operator: SharedOperator) -> Node:
        return self._plan(operator)[0]

    def _pays(self, own: Node, shared: Node, wider: Node) -> bool:
        """Whether a look at another operator's rows costs less than an operator of one's own."""
        alone, both, other = self._cost(own), self._cost(shared), self._cost(wider)
        # What is there already costs nothing more; without figures, one operator less is less.
        return alone is None or both is None or other is None or both - other <= alone

    def _plan(self, operator: SharedOperator) -> tuple[Node, Mapping[str, int]]:
        planned = self._plans.get(operator.number)
        if planned is None:
            node = operator.node
            inputs = tuple(
                self._input(node, below, given)
                for below, given in zip(operator.inputs, node.inputs, strict=True)
            )
            if any(a is not b for a, b in zip(inputs, node.inputs, strict=True)):
                node = node.with_inputs(inputs)
            planned = self._plans[operator.number] = (node, self._matcher.columns(operator.node))
        return planned

    def _input(self, node: Node, below: SharedOperator, given: Node) -> Node:
        """An input of an operator: what is shared, unless the operator looks into its input."""
        if isinstance(node, Aggregate) and node.from_sets:
            return given
        adapted = self._adapted(below, given)
        # Joins of joins are one operator, with one rule of lateness: what was part of it stays so.
        if isinstance(node, Join) and (
            belongs(node, given) != belongs(node, adapted)
            or reaches_into(node, given, False) != reaches_into(node, adapted, False)
        ):
            return given
        return adapted

    def _adapted(self, operator: SharedOperator, wanted: Node) -> Node:
        """What an operator puts out, as one that stood in its place would."""
        plan, meanings = self._plan(operator)
        if plan.schema == wanted.schema and (
            operator.node is wanted or meanings == self._matcher.columns(wanted)
        ):
            return plan
        by_meaning = {(meaning, plan.schema[name].type): name for name, meaning in meanings.items()}
        wishes = self._matcher.columns(wanted)
        return Project(
            plan,
            tuple(
                Named(f.name, Column(by_meaning[wishes[f.name], f.type], f.type))
                for f in wanted.schema
            ),
        )


def _conditions(plan: Node) -> int:
    """How many conditions the filters of a plan have."""
    return sum(len(conjuncts(n.predicate)) for n in plan.walk() if isinstance(n, Filter))
