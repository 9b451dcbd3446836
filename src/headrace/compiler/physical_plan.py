"""What a compilation makes: the operators and stores that run in each epoch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from headrace.definitions.definition import Definition
from headrace.operators.base import EpochStep, Operator, Store
from headrace.operators.output_rows import OutputRows
from headrace.operators.panes.pane_store import PaneStore
from headrace.operators.rows.delta_join import DeltaJoin
from headrace.operators.rows.probe_join import ProbeJoin
from headrace.plan.nodes import Source
from headrace.plan.relabelling import Relabelling
from headrace.plan.types import Schema
from headrace.planner.early_aggregation import EarlyChoice
from headrace.planner.live_query import LiveQuery
from headrace.planner.pane_layout import PanePlan
from headrace.planner.policy import PlannerPolicy


@dataclass(frozen=True)
class QueryOutput:
    """The operator whose new rows are those of a query, and what the query makes of them."""

    operator: Operator
    schema: Schema
    relabelling: Relabelling

    def of(self, rows: Definition) -> OutputRows:
        """The operator's rows under the query's own names."""
        return OutputRows(rows, self.schema, self.relabelling.columns)

    def steps(self) -> tuple[EpochStep, ...]:
        return tuple(
            EpochStep("compute " + ", ".join(map(str, projection.columns)))
            for projection in self.relabelling.projections
        )


@dataclass
class PhysicalPlan:
    """Everything that runs in an epoch: stores in the order they advance, and query outputs."""

    stores: list[Store] = field(default_factory=list)
    outputs: dict[str, QueryOutput] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    #: The queries as they run: with the plans into which they were merged.
    queries: dict[str, LiveQuery] = field(default_factory=dict)
    #: How panes are laid out, and what of that was changed by this plan.
    panes: PanePlan = field(default_factory=PanePlan)
    changes: tuple[str, ...] = ()
    #: The aggregates over joins that choose their inputs in each epoch.
    early_choices: list[EarlyChoice] = field(default_factory=list)
    policy: PlannerPolicy = field(default_factory=PlannerPolicy)

    def only(self, query: str) -> PhysicalPlan:
        """The part that one query needs."""
        output = self.outputs[query]
        return replace(
            self,
            stores=self.stores_of(output.operator),
            outputs={query: output},
            sources={s: self.sources[s] for s in self.queries[query].sink.streams()},
            queries={query: self.queries[query]},
        )

    def released_by(self, store: Store) -> frozenset[frozenset[str]]:
        """The sets of streams by whose watermarks a store lets rows go; sessions follow theirs."""
        return frozenset(
            frozenset(clock for clock in clocks if clock in self.sources)
            for clocks in store.released_by()
        )

    def output_operators(self) -> list[Operator]:
        """Those whose rows queries put out, each once."""
        return list({id(o.operator): o.operator for o in self.outputs.values()}.values())

    def operators(self) -> Iterator[Operator]:
        """Every operator once."""
        seen: set[int] = set()
        due = [*self.output_operators(), *(o for store in self.stores for o in store.inputs())]
        while due:
            operator = due.pop()
            if id(operator) not in seen:
                seen.add(id(operator))
                yield operator
                due += operator.inputs

    def subjects(self) -> frozenset[str]:
        """What statistics are kept of: stores, groupings, and joins by their hashes."""
        names = {store.name for store in self.stores}
        names.update(store.family for store in self.stores if isinstance(store, PaneStore))
        names.update(o.identity for o in self.operators() if isinstance(o, DeltaJoin | ProbeJoin))
        names.update(choice.identity for choice in self.early_choices)
        return frozenset(names)

    def stores_of(self, operator: Operator) -> list[Store]:
        """The stores that an operator depends on, itself or through its inputs."""
        stores_below: list[Store] = []
        for below in operator.inputs:
            stores_below += self.stores_of(below)
        return list(distinct_stores([*stores_below, *operator.stores]))

    def readers(self) -> list[tuple[Operator, int]]:
        """Operators with state, and how many stores and outputs read the new rows of each."""
        by_operator: dict[int, tuple[Operator, int]] = {}

        def visit(operator: Operator) -> None:
            if operator.stores:
                _, before = by_operator.get(id(operator), (operator, 0))
                by_operator[id(operator)] = operator, before + 1
                return
            for below in operator.inputs:
                visit(below)

        for output in self.output_operators():
            visit(output)
        for store in self.stores:
            for source in store.inputs():
                visit(source)
        return list(by_operator.values())

    def steps(self, query: str) -> list[EpochStep]:
        """What happens for one query in an epoch, in order."""
        output = self.outputs[query]
        steps: list[EpochStep] = []

        def visit(operator: Operator) -> None:
            for below in operator.inputs:
                visit(below)
            for store in operator.stores:
                if store.step() not in steps:
                    steps.append(store.step())
            for step in operator.steps():
                if step not in steps:
                    steps.append(step)

        visit(output.operator)
        return [*steps, *(step for step in output.steps() if step not in steps)]


def distinct_stores(stores: Iterable[Store]) -> tuple[Store, ...]:
    distinct: list[Store] = []
    for store in stores:
        if not any(store is other for other in distinct):
            distinct.append(store)
    return tuple(distinct)
