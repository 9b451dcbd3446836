"""The optimizer changes neither what comes out nor in which epoch, late rows included."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.optimizer import optimize
from headrace.plan.nodes import Node, OutputMode
from headrace.plan.text import plan_text
from tests.support import plans as shapes
from tests.support.oracle import assert_same_rows, run_epochs
from tests.support.rows import random_tables, reading_all_columns

LEAVES = (*shapes.STREAMS, *shapes.TABLES)
EPOCHS = 4
SHAPES = {
    "aggregate": shapes.aggregate_plans(),
    "join": shapes.join_plans(),
    "table join": shapes.table_join_plans(),
    "joined aggregate": shapes.joined_aggregate_plans(),
}


def epochs_and_tables(seed: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows over two minutes, handed over in an order that makes some of them late."""
    random_source = random.Random(seed)
    tables = random_tables(LEAVES, 60, random_source)
    epochs: list[dict[str, Any]] = [{} for _ in range(EPOCHS)]
    for stream in shapes.STREAMS:
        timed = [row for row in tables[stream.stream] if row[stream.time] is not None]
        timed.sort(key=lambda row: row[stream.time].timestamp() + random_source.uniform(0, 40))
        size = -(-len(timed) // EPOCHS)
        for number in range(EPOCHS):
            epochs[number][stream.stream] = timed[number * size : (number + 1) * size]
    return epochs, {table.table: tables[table.table] for table in shapes.TABLES}


@pytest.mark.parametrize("shape", SHAPES)
def test_each_epoch_stays_as_it_was(shape: str) -> None:
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(SHAPES[shape], st.integers(0, 2**16), st.sampled_from(OutputMode))
    def unchanged(plan: Node, seed: int, mode: OutputMode) -> None:
        optimized = optimize(plan).plan
        if optimized == plan:
            return
        epochs, tables = epochs_and_tables(seed)
        before, after = (
            run_epochs(reading_all_columns(p, LEAVES), epochs, tables, mode)
            for p in (plan, optimized)
        )
        context = f"seed {seed}\n{plan_text(plan)}\nafter:\n{plan_text(optimized)}"
        for number, (found, expected) in enumerate(zip(after, before, strict=True)):
            assert_same_rows(found, expected, f"epoch {number}, {context}", plan.schema.names)

    unchanged()
