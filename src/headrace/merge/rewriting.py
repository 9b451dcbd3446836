"""Queries rewritten over what they share: equal parts become one and the same node.

The engine computes equal nodes once. So merging ends here: a part of a query that means the same
as a part of another is replaced by that one, under a projection where its columns have other names
or another order. The plan that a query runs is remembered as long as the query lives: state is
named by it, also when the query that it was taken from has left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from headrace.merge.containment import Wider, topmost_joins, within
from headrace.merge.global_plan import GlobalPlan, SharedOperator
from headrace.merge.strategies import Matcher, MeaningMatcher, Strategy, make_matcher
from headrace.plan.expressions import Column, Named
from headrace.plan.nodes import Aggregate, Join, Node, Project, Sink


class Merging:
    """The running plans of queries that come and go."""

    def __init__(
        self,
        strategy: Strategy,
        unbounded: bool = False,
        solver_ms: int = 20,
        cost: Callable[[Node], float | None] = lambda plan: None,
    ) -> None:
        self.strategy = strategy
        #: What a plan costs in rows, where that is known.
        self._cost = cost
        self._unbounded = unbounded
        self._solver_ms = solver_ms
        self._matcher = self._made()
        self.global_plan = GlobalPlan(strategy, matcher=self._matcher)
        #: What each operator of the global plan runs, and what its columns mean.
        self._plans: dict[int, tuple[Node, Mapping[str, int]]] = {}
        #: Joins that run, by their leaves: others may be contained in them.
        self._joins: dict[tuple[int, ...], list[SharedOperator]] = {}
        self._given: dict[str, Sink] = {}
        self._running: dict[str, Sink] = {}
        self._left = 0

    def _made(self) -> Matcher:
        # By meaning alone, whatever columns are called: a name costs a projection, not a plan.
        return make_matcher(self.strategy, self._unbounded, self._solver_ms, named=False)

    def update(
        self, queries: Mapping[str, Sink], ran: Mapping[str, Node] | None = None
    ) -> dict[str, Sink]:
        """The plans to run for these queries; those that run already keep theirs.

        ``ran`` are the plans that queries ran in an earlier life.
        """
        for name, sink in list(self._given.items()):
            if queries.get(name) is not sink:
                self._forget(name)
        ran = ran or {}
        added = [name for name in queries if name not in self._given]
        # Those that ran come first: newcomers can share their state, and not the other way.
        for name in sorted(added, key=lambda name: name not in ran):
            sink = self._given[name] = queries[name]
            self._running[name] = (
                self._as_it_ran(sink, ran[name]) if name in ran else self._merged(sink)
            )
        return {name: self._running[name] for name in queries}

    def _forget(self, name: str) -> None:
        del self._running[name], self._given[name]
        if self.strategy is Strategy.NONE:
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
        self._plans, self._joins = {}, {}
        for sink in self._running.values():
            self._note_joins(self.global_plan.add(sink).root)

    def _as_it_ran(self, sink: Sink, plan: Node) -> Sink:
        """State is named by the very plan that ran: one that means the same may have none."""
        own = sink if plan is sink.input else replace(sink, input=plan)
        if self.strategy is not Strategy.NONE:
            root = self.global_plan.add(own).root
            self._note_joins(root)
            if root.node is plan:
                self._plans[root.number] = plan, self._matcher.columns(plan)
        return own

    def _merged(self, sink: Sink) -> Sink:
        if self.strategy is Strategy.NONE:
            return sink
        plan = self._with_contained_joins(sink.input)
        own = sink if plan is sink.input else replace(sink, input=plan)
        placed = self.global_plan.add(own)
        self._note_joins(placed.root)
        shared = self._adapted(placed.root, plan)
        return (
            sink
            if shared is sink.input
            else Sink(shared, sink.name, sink.format, sink.mode, sink.options)
        )

    def _note_joins(self, root: SharedOperator) -> None:
        if not isinstance(self._matcher, MeaningMatcher):
            return
        for operator in root.walk():
            if isinstance(operator.node, Join):
                meaning = self._matcher.equality.signer.of(operator.node)
                known = self._joins.setdefault(meaning.branches[0].leaves, [])
                known[:] = [other for other in known if other.users and other is not operator]
                known.append(operator)

    def _with_contained_joins(self, plan: Node) -> Node:
        """Joins whose rows are among those of one that runs read them there, if that pays."""
        if not isinstance(self._matcher, MeaningMatcher):
            return plan
        equality = self._matcher.equality
        changes: dict[int, Node] = {}
        for join in topmost_joins(plan):
            meanings = equality.signer.signatures(join)
            for operator in self._joins.get(meanings[id(join)].branches[0].leaves, []):
                meaning = equality.signer.of(operator.node)
                if not operator.users or equality.key(meaning) == equality.key(meanings[id(join)]):
                    continue
                wider = self._plan(operator)[0]
                found = within(join, meanings, equality, Wider(wider, meaning))
                if found is not None and self._pays(join, found, wider):
                    changes[id(join)] = found
                    break
        return _replaced(plan, changes) if changes else plan

    def _pays(self, own: Node, shared: Node, wider: Node) -> bool:
        """Whether a look at another join's rows costs less than a join of one's own."""
        alone, both, other = self._cost(own), self._cost(shared), self._cost(wider)
        # A join that is there already costs nothing more; without figures, one join less is less.
        return alone is None or both is None or other is None or both - other <= alone

    def _plan(self, operator: SharedOperator) -> tuple[Node, Mapping[str, int]]:
        known = self._plans.get(operator.number)
        if known is None:
            node = operator.node
            inputs = tuple(
                self._input(node, below, given)
                for below, given in zip(operator.inputs, node.inputs, strict=True)
            )
            if any(a is not b for a, b in zip(inputs, node.inputs, strict=True)):
                node = node.with_inputs(inputs)
            known = self._plans[operator.number] = (node, self._matcher.columns(operator.node))
        return known

    def _input(self, node: Node, below: SharedOperator, given: Node) -> Node:
        """An input of an operator: what is shared, unless the operator looks into its input."""
        if isinstance(node, Aggregate) and node.from_sets:
            return given
        adapted = self._adapted(below, given)
        # Joins of joins are one operator, and a projection between would make them two.
        if isinstance(node, Join) and isinstance(given, Join) and not isinstance(adapted, Join):
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


def _replaced(node: Node, changes: Mapping[int, Node]) -> Node:
    if id(node) in changes:
        return changes[id(node)]
    inputs = tuple(_replaced(below, changes) for below in node.inputs)
    same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
    return node if same else node.with_inputs(inputs)
