"""Which queries keep their state together: the stores of a plan, with those that read each."""

from __future__ import annotations

from headrace.compiler.physical_plan import PhysicalPlan
from headrace.merge.describe import DescribedStore
from headrace.state.store_names import kind_of


def described_stores(physical: PhysicalPlan) -> tuple[DescribedStore, ...]:
    """Every store with the queries whose results are made of it, in the order of their names."""
    readers: dict[str, list[str]] = {store.name: [] for store in physical.stores}
    by_output: dict[int, list[str]] = {}
    for query, output in physical.outputs.items():
        operator = output.operator
        if id(operator) not in by_output:
            # Queries that mean the same have one operator.
            by_output[id(operator)] = [store.name for store in physical.stores_of(operator)]
        for name in by_output[id(operator)]:
            readers.setdefault(name, []).append(query)
    texts = {store.name: ", ".join(store.step().detail[:1]) for store in physical.stores}
    return tuple(
        DescribedStore(name, kind_of(name).value, texts.get(name, ""), tuple(queries))
        for name, queries in readers.items()
    )
