"""What merging did, for people and programs: each operator of the global plan once, who uses it,
and what that saves.

An operator is shown as the query wrote it that brought it in; queries that name or order its
columns otherwise have a projection of their own over it, which is no operator of the global plan.
``printing`` has the forms in which a description is read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from headrace.cost.rows import row_flow
from headrace.merge.global_plan import GlobalPlan, Scope, SharedOperator, SharedPlan
from headrace.merge.rewriting import Merging
from headrace.merge.strategies import MergeStrategy
from headrace.plan.nodes import Node, Sink, Source
from headrace.plan.text import node_text
from headrace.stats.catalog import NO_STATISTICS, Statistics
from headrace.stats.figure import UNKNOWN, Figure


@dataclass(frozen=True)
class DescribedOperator:
    """An operator of the global plan. ``inputs`` are places in the list of its plan's operators.

    ``evaluations`` is how often it would be computed in a micro-batch if each query that uses it
    did so by itself, ``rows`` how many rows per second go into it, if it is shared.
    """

    node: Node
    inputs: tuple[int, ...]
    queries: tuple[str, ...]
    evaluations: int
    rows: Figure
    #: A name to refer to it by, if several operators or sinks read it; else nothing.
    name: str = ""

    @property
    def text(self) -> str:
        return node_text(self.node)

    @property
    def shared(self) -> bool:
        return self.evaluations > 1

    @property
    def saved(self) -> int:
        """Evaluations per micro-batch that merging makes needless."""
        return self.evaluations - 1

    @property
    def saved_rows(self) -> Figure:
        """Rows per second that need not go into it again; unknown where the flow is."""
        return self.rows * self.saved


@dataclass(frozen=True)
class DescribedStore:
    """State that is kept, and the queries whose results are made of it."""

    name: str
    kind: str
    #: What it holds.
    text: str
    queries: tuple[str, ...]


@dataclass(frozen=True)
class DescribedPlan:
    """The queries over one set of streams (of one tenant). Every query is in one of the lists."""

    tenant: str | None
    streams: tuple[str, ...]
    #: Each after those that it reads.
    operators: tuple[DescribedOperator, ...]
    #: By query, the place of the operator that feeds its sink.
    roots: Mapping[str, int]
    #: Groups of queries that give the same rows.
    equal: tuple[tuple[str, ...], ...]
    #: Queries that share operators with others, but have some of their own.
    parts: tuple[str, ...]
    #: Queries that read state that is kept for others too, and share no operator with them.
    state: tuple[str, ...]
    #: Queries that read the same columns of a stream or table as others, and share nothing else.
    reading: tuple[str, ...]
    nothing: tuple[str, ...]

    @property
    def title(self) -> str:
        streams = ", ".join(self.streams) or "all streams"
        return streams if self.tenant is None else f"{streams} of {self.tenant}"


@dataclass(frozen=True)
class Description:
    """All queries of a global plan, and what merging them saves."""

    strategy: MergeStrategy
    scope: Scope
    #: Operators of all queries, sinks and all: as if each ran alone, and merged.
    alone: int
    merged: int
    plans: tuple[DescribedPlan, ...]
    #: Queries that joined late, and are computed apart until they have caught up.
    apart: tuple[str, ...] = ()
    #: The state of all of them, if it is known how they run.
    stores: tuple[DescribedStore, ...] = ()

    @property
    def queries(self) -> int:
        return sum(len(plan.roots) for plan in self.plans)

    @property
    def stores_alone(self) -> int:
        """How many stores there would be if each query kept its own."""
        return sum(len(store.queries) for store in self.stores)

    @property
    def percent(self) -> float:
        """The sharing efficiency: the share of all operators that merging made needless."""
        return 100 * (self.alone - self.merged) / self.alone if self.alone else 0.0


def describe(
    plan: GlobalPlan,
    statistics: Statistics = NO_STATISTICS,
    apart: Collection[str] = (),
    stores: tuple[DescribedStore, ...] = (),
) -> Description:
    """What a global plan holds, and the state that its queries keep.

    ``apart`` are its queries that are not yet computed with others.
    """
    sharing_state = {q for store in stores if len(store.queries) > 1 for q in store.queries}
    plans: list[DescribedPlan] = []
    names = 0
    for shared in plan.plans:
        described = _Reader(shared, statistics, names).plan(sharing_state)
        names += sum(bool(operator.name) for operator in described.operators)
        plans.append(described)
    there = [name for described in plans for name in described.roots]
    late = tuple(name for name in there if name in apart)
    return Description(plan.strategy, plan.scope, plan.total, plan.size, tuple(plans), late, stores)


def planned_together(merging: Merging, queries: Mapping[str, Sink]) -> GlobalPlan:
    """The global plan that these queries would run by."""
    merging.update(queries)
    for name, sink in queries.items():
        # Merging that merges nothing keeps no plan.
        if name not in merging.global_plan:
            merging.global_plan.add(sink)
    return merging.global_plan


class _Reader:
    """Reads one shared plan. Its queries are copied at once: an engine may go on meanwhile."""

    def __init__(self, shared: SharedPlan, statistics: Statistics, names: int) -> None:
        self._key = shared.key
        self._roots = dict(shared.queries)
        self._statistics = statistics
        self._names = names
        #: Operators by their number, each after its inputs.
        self._order: dict[int, SharedOperator] = {}
        for root in self._roots.values():
            self._visit(root)
        self._uses: dict[int, int] = dict.fromkeys(self._order, 0)
        self._evaluations: dict[int, int] = dict.fromkeys(self._order, 0)
        self._users: dict[int, set[str]] = {number: set() for number in self._order}
        self._count()

    def _visit(self, operator: SharedOperator) -> None:
        if operator.number not in self._order:
            for below in operator.inputs:
                self._visit(below)
            self._order[operator.number] = operator

    def _count(self) -> None:
        """From the sinks down: who uses an operator, and how often alone."""
        for name, root in self._roots.items():
            self._uses[root.number] += 1
            self._evaluations[root.number] += 1
            self._users[root.number].add(name)
        for number in reversed(self._order):
            for below in self._order[number].inputs:
                self._uses[below.number] += 1
                self._evaluations[below.number] += self._evaluations[number]
                self._users[below.number] |= self._users[number]

    def plan(self, sharing_state: Collection[str]) -> DescribedPlan:
        places = {number: place for place, number in enumerate(self._order)}
        queries = {name: place for place, name in enumerate(self._roots)}
        operators = []
        for number, operator in self._order.items():
            name = ""
            if self._uses[number] > 1:
                name, self._names = f"r{self._names}", self._names + 1
            operators.append(
                DescribedOperator(
                    operator.node,
                    tuple(places[below.number] for below in operator.inputs),
                    tuple(sorted(self._users[number], key=queries.__getitem__)),
                    self._evaluations[number],
                    self._rows(operator),
                    name,
                )
            )
        alike: dict[int, list[str]] = {}
        for query, root in self._roots.items():
            alike.setdefault(root.number, []).append(query)
        kinds: dict[str, list[str]] = {"parts": [], "state": [], "reading": [], "nothing": []}
        for root_number, names in alike.items():
            if len(names) == 1:
                kind = self._kind(self._order[root_number])
                if kind != "parts" and names[0] in sharing_state:
                    kind = "state"
                kinds[kind].append(names[0])
        return DescribedPlan(
            self._key.tenant,
            tuple(self._spelling(stream) for stream in self._key.streams),
            tuple(operators),
            {query: places[root.number] for query, root in self._roots.items()},
            tuple(tuple(names) for names in alike.values() if len(names) > 1),
            tuple(kinds["parts"]),
            tuple(kinds["state"]),
            tuple(kinds["reading"]),
            tuple(kinds["nothing"]),
        )

    def _spelling(self, stream: str) -> str:
        nodes = (operator.node for operator in self._order.values())
        spellings = (n.shown for n in nodes if isinstance(n, Source) and n.stream == stream)
        return next(spellings, stream)

    def _kind(self, root: SharedOperator) -> str:
        """What a query that is like no other has in common with the rest."""
        due, seen, reads_the_same = [root], {root.number}, False
        while due:
            operator = due.pop()
            if len(self._users[operator.number]) > 1:
                if operator.inputs:
                    return "parts"
                reads_the_same = True
            fresh = {o.number: o for o in operator.inputs if o.number not in seen}
            seen |= fresh.keys()
            due += fresh.values()
        return "reading" if reads_the_same else "nothing"

    def _rows(self, operator: SharedOperator) -> Figure:
        if self._statistics is NO_STATISTICS or self._evaluations[operator.number] < 2:
            return UNKNOWN
        return row_flow(operator.node, self._statistics)[operator.node].rows_in
