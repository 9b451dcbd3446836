"""The global query plan: all standing queries, with each operator they share once.

It is made of shared plans, one for each set of streams (and tenant); the source index finds the
shared plan that a new query can have anything in common with, the query index the operators of a
query that leaves. An operator counts its users and goes with the last of them. Adding and removing
cost what the query itself has of operators, however many queries there are.

Paper: Query Merging, Section 5, Section 6.2, Section 7.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from headrace.errors import QueryError
from headrace.merge.solver import SOLVER_STEPS
from headrace.merge.strategies import Matcher, MergeStrategy, make_matcher
from headrace.plan.nodes import Node, Sink


class Scope(Enum):
    """What may be shared: whole queries alone, or any part of them."""

    COMPLETE = "complete"
    PARTIAL = "partial"


@dataclass(eq=False, slots=True)
class SharedOperator:
    """An operator of the global plan. ``users`` are operators above it, and sinks."""

    number: int
    node: Node
    inputs: tuple[SharedOperator, ...]
    key: int
    users: int = 0

    def walk(self) -> Iterator[SharedOperator]:
        yield self
        for below in self.inputs:
            yield from below.walk()


@dataclass(frozen=True)
class SourceKey:
    """What queries must agree on to share anything: whose they are, and what they read."""

    tenant: str | None
    streams: tuple[str, ...]


@dataclass(eq=False, slots=True)
class SharedPlan:
    """The merged operators of queries over the same streams."""

    key: SourceKey
    #: By the operator's key, and for looking from the sources up by its inputs too.
    operators: dict[object, SharedOperator] = field(default_factory=dict)
    queries: dict[str, SharedOperator] = field(default_factory=dict)
    size: int = 0


@dataclass(frozen=True)
class Placed:
    """How a query was added: how many operators it has, and how many of them were there."""

    name: str
    root: SharedOperator
    operators: int
    shared: int

    @property
    def complete(self) -> bool:
        """Whether all of it but its sink was there."""
        return self.shared == self.operators - 1


class GlobalPlan:
    """All queries, merged by one strategy."""

    def __init__(
        self,
        strategy: MergeStrategy = MergeStrategy.SM_PLUS,
        scope: Scope = Scope.PARTIAL,
        unbounded: bool = False,
        solver_steps: int = SOLVER_STEPS,
        use_source_index: bool = True,
        matcher: Matcher | None = None,
    ) -> None:
        self.strategy = strategy
        self.scope = scope
        self._unbounded = unbounded
        self._solver_steps = solver_steps
        self._use_source_index = use_source_index
        self._matcher = matcher or make_matcher(strategy, unbounded, solver_steps)
        self._keeps_meanings = matcher is not None
        self._plans: dict[SourceKey, SharedPlan] = {}
        self._queries: dict[str, tuple[SharedPlan, Sink, str | None]] = {}
        self._numbers = 0
        self._removed = 0
        #: Operators of all queries, sinks and all, as if nothing were shared.
        self.total = 0

    # Changes

    def add(self, sink: Sink, tenant: str | None = None) -> Placed:
        """Merge a query into the plan."""
        if sink.name in self._queries:
            raise QueryError(
                f"there is a query named {sink.name!r} already", condition="DUPLICATE_QUERY"
            )
        plan = self._plan_for(sink, tenant)
        if self.scope is Scope.COMPLETE:
            root, added = self._add_whole(plan, sink.input)
        elif self.strategy is MergeStrategy.SM_BU:
            root, added = self._add_upwards(plan, sink.input)
        else:
            root, added = self._add_parts(plan, sink.input)
        root.users += 1
        plan.queries[sink.name] = root
        plan.size += added + 1
        self._queries[sink.name] = (plan, sink, tenant)
        operators = 1 + _size(sink.input)
        self.total += operators
        return Placed(sink.name, root, operators, operators - 1 - added)

    def remove(self, name: str) -> None:
        """Let a query go, with the operators that served it alone."""
        if name not in self._queries:
            raise QueryError(f"there is no query named {name!r}", condition="UNKNOWN_QUERY")
        plan, sink, _ = self._queries.pop(name)
        self.total -= 1 + _size(sink.input)
        root = plan.queries.pop(name)
        plan.size -= 1
        self._release(plan, root)
        if not plan.queries:
            del self._plans[plan.key]
        self._removed += 1
        many = self._removed > 1_000 and self._removed > 4 * len(self._queries)
        if many and not self._keeps_meanings:
            self._forget_meanings()

    def change(
        self,
        adding: Iterable[Sink] = (),
        removing: Iterable[str] = (),
        tenants: Mapping[str, str] | None = None,
    ) -> list[Placed]:
        """A batch of changes: those that leave first, so that nothing is merged with them."""
        for name in removing:
            self.remove(name)
        return [self.add(sink, (tenants or {}).get(sink.name)) for sink in adding]

    def _release(self, plan: SharedPlan, operator: SharedOperator) -> None:
        operator.users -= 1
        if operator.users:
            return
        plan.size -= 1
        for handle in (operator.key, _upward(operator.key, operator.inputs)):
            if plan.operators.get(handle) is operator:
                del plan.operators[handle]
        for below in operator.inputs:
            self._release(plan, below)

    def _forget_meanings(self) -> None:
        """Start anew with the live queries: meanings of those that left are kept by nobody."""
        live = [(sink, tenant) for _, sink, tenant in self._queries.values()]
        self._matcher = make_matcher(self.strategy, self._unbounded, self._solver_steps)
        self._plans, self._queries, self._removed, self.total = {}, {}, 0, 0
        for sink, tenant in live:
            self.add(sink, tenant)

    # Finding what is there

    def _plan_for(self, sink: Sink, tenant: str | None) -> SharedPlan:
        streams = tuple(sorted(sink.streams())) if self._use_source_index else ()
        key = SourceKey(tenant, streams)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = SharedPlan(key)
        return plan

    def _add_whole(self, plan: SharedPlan, node: Node) -> tuple[SharedOperator, int]:
        """Share a query as a whole or not at all."""
        key = self._matcher.root(node)
        shared = plan.operators.get(key)
        if shared is not None:
            return shared, 0
        copies: dict[int, SharedOperator] = {}
        root = self._copied(node, copies)
        root.key = key
        plan.operators[key] = root
        return root, len(copies)

    def _copied(self, node: Node, copies: dict[int, SharedOperator]) -> SharedOperator:
        if id(node) not in copies:
            inputs = tuple(self._copied(below, copies) for below in node.inputs)
            copies[id(node)] = self._new(node, inputs, -1)
        return copies[id(node)]

    def _add_parts(self, plan: SharedPlan, node: Node) -> tuple[SharedOperator, int]:
        """Share the largest parts that are there, looking from the sink down."""
        if self.strategy is MergeStrategy.SM_PLUS:
            shared = plan.operators.get(self._matcher.root(node))
            if shared is not None:
                return shared, 0
        keys = self._matcher.keys(node)
        added = 0

        def place(node: Node) -> SharedOperator:
            nonlocal added
            key = keys[id(node)]
            shared = plan.operators.get(key)
            if shared is None:
                shared = self._new(node, tuple(place(below) for below in node.inputs), key)
                plan.operators[key] = shared
                added += 1
            return shared

        return place(node), added

    def _add_upwards(self, plan: SharedPlan, node: Node) -> tuple[SharedOperator, int]:
        """Share from the sources up, as far as each next operator is there."""
        keys = self._matcher.keys(node)
        added = 0

        def place(node: Node) -> SharedOperator:
            nonlocal added
            inputs = tuple(place(below) for below in node.inputs)
            handle = _upward(keys[id(node)], inputs)
            shared = plan.operators.get(handle)
            if shared is None:
                shared = self._new(node, inputs, keys[id(node)])
                plan.operators[handle] = shared
                added += 1
            return shared

        return place(node), added

    def _new(self, node: Node, inputs: tuple[SharedOperator, ...], key: int) -> SharedOperator:
        self._numbers += 1
        for below in inputs:
            below.users += 1
        return SharedOperator(self._numbers, node, inputs, key)

    # Reading

    def __len__(self) -> int:
        return len(self._queries)

    def __contains__(self, name: str) -> bool:
        return name in self._queries

    @property
    def plans(self) -> tuple[SharedPlan, ...]:
        return tuple(self._plans.values())

    @property
    def size(self) -> int:
        """Operators that are left after merging, a sink for each query."""
        return sum(plan.size for plan in self._plans.values())

    @property
    def sharing_efficiency(self) -> float:
        """The percentage of all operators that merging made needless."""
        return 100 * (self.total - self.size) / self.total if self.total else 0.0

    def root(self, name: str) -> SharedOperator:
        """The operator that feeds a query's sink."""
        return self._queries[name][0].queries[name]


def _upward(key: int, inputs: tuple[SharedOperator, ...]) -> tuple[int, ...]:
    return (key, *(below.number for below in inputs))


def _size(node: Node) -> int:
    """Operators of a plan; sources and all."""
    return 1 + sum(map(_size, node.inputs))
