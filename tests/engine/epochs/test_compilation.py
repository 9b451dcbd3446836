"""A compilation that goes on from the one before it makes what a new one would."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from headrace.compiler.compilation import Compilation
from headrace.compiler.physical_plan import PhysicalPlan
from headrace.compiler.planning import PlanState, plan_all
from headrace.errors import HeadraceError
from headrace.operators.base import Operator
from headrace.operators.panes.pane_store import PaneStore
from headrace.operators.rows.row_store import RowStore
from headrace.optimizer import optimize
from headrace.plan.nodes import Sink
from headrace.planner.live_query import LiveQuery
from headrace.planner.merging import begin_merging
from headrace.planner.policy import PlannerPolicy
from headrace.sql import plan_query
from headrace.stats.catalog import Statistics
from tests.support.queries import random_catalog, random_query
from tests.support.seeds import Seeds


def told(physical: PhysicalPlan) -> dict[str, Any]:
    """All that can be seen of a plan, whatever the order in which it was made."""
    stores = {}
    for store in physical.stores:
        more: list[Any] = []
        if isinstance(store, PaneStore):
            more = [sorted(store.partials), store.active, store.closings, store.wanted]
            more.append(sorted(map(repr, store.retentions)))
        if isinstance(store, RowStore):
            more = [sorted(store.columns), store.lateness, sorted(map(repr, store.wanted))]
            more.append(sorted(map(repr, store.retentions)))
        stores[store.name] = [
            repr(store.step()),
            set(store.schema),
            sorted(store.late_counters()),
            physical.released_by(store),
            [shape(operator) for operator in store.inputs()],
            *more,
        ]
    outputs = {
        name: [physical.steps(name), shape(output.operator), output.relabelling.columns]
        for name, output in physical.outputs.items()
    }
    return {"stores": stores, "outputs": outputs, "sources": physical.sources}


def shape(operator: Operator) -> list[Any]:
    own = [type(operator).__name__, operator.immediate, [s.name for s in operator.stores]]
    return [*own, *(shape(below) for below in operator.inputs)]


def test_queries_that_come_and_go(seeds: Seeds) -> None:
    went_on = compiled = 0
    for seed in seeds.some(660, 6):
        chance = random.Random(seed)
        policy, catalog = PlannerPolicy(), random_catalog(chance)
        merging = begin_merging(policy, Statistics)
        compilation, state = Compilation(), PlanState(merging=merging)
        live: dict[str, LiveQuery] = {}
        texts: list[tuple[str, Any]] = []
        for step in range(14):
            for _ in range(chance.randrange(1, 4)):
                if texts and chance.random() < 0.8:
                    text, mode = chance.choice(texts)
                else:
                    query = random_query(chance)
                    text, mode = query.sql, query.mode
                    texts.append((text, mode))
                name = f"q{len(texts)}-{step}-{chance.random()}"
                plan = optimize(plan_query(text, catalog).plan).plan
                starts_at = chance.choice([None, None, 1_000 * step + 1])
                live[name] = LiveQuery(Sink(plan, name, "noop", mode), starts_at)
            for name in [n for n in live if chance.random() < 0.05]:
                del live[name]
            kept = compilation._compiler
            try:
                physical = plan_all(
                    live.values(), replace(state, compilation=compilation), policy=policy
                )
            except HeadraceError:
                # Not in this mode, or not beside others of another layout: it never ran.
                live, compilation = {}, Compilation()
                continue
            # The plans are merged by now: the same ones, compiled by themselves.
            anew = plan_all(
                physical.queries.values(), PlanState(physical.panes, settled=True), policy=policy
            )
            assert told(physical) == told(anew), f"seed {seed}, step {step}"
            compiled += 1
            went_on += kept is not None and compilation._compiler is kept
            state = replace(state, panes=physical.panes)
    assert went_on > 15, (went_on, compiled)
