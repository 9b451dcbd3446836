"""What a compilation makes: the operators and stores that run in each epoch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.operators.base import EpochStep, Operator, Store
from headrace.plan.nodes import Source


@dataclass
class PhysicalPlan:
    """Everything that runs in an epoch: stores in the order they advance, and query outputs."""

    stores: list[Store] = field(default_factory=list)
    outputs: dict[str, Operator] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)

    def stores_of(self, operator: Operator) -> list[Store]:
        """The stores that an operator depends on, itself or through its inputs."""
        found: list[Store] = []
        for below in operator.inputs:
            found += self.stores_of(below)
        return list(distinct_stores([*found, *operator.stores]))

    def readers(self) -> list[tuple[Operator, int]]:
        """Operators with state, and how many stores and outputs read the new rows of each."""
        found: dict[int, tuple[Operator, int]] = {}

        def visit(operator: Operator) -> None:
            if operator.stores:
                _, before = found.get(id(operator), (operator, 0))
                found[id(operator)] = operator, before + 1
                return
            for below in operator.inputs:
                visit(below)

        for output in {id(operator): operator for operator in self.outputs.values()}.values():
            visit(output)
        for store in self.stores:
            for source in store.inputs():
                visit(source)
        return list(found.values())

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

        visit(output)
        return steps


def distinct_stores(stores: Iterable[Store]) -> tuple[Store, ...]:
    found: list[Store] = []
    for store in stores:
        if not any(store is known for known in found):
            found.append(store)
    return tuple(found)
