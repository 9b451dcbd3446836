"""The two oracles are written apart; where nothing is late and time ends, they must agree."""

from __future__ import annotations

import datetime
import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.plan.nodes import Aggregate, Node
from headrace.plan.windows import Landmark, Trailing
from tests.support import plans
from tests.support.oracle import assert_same_rows, run_batch, run_epochs
from tests.support.oracle_epochs import stream_watermarks

ZERO = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
END_OF_TIME = 10**18
Epochs = list[dict[str, list[dict[str, Any]]]]


def _rows(stream: Any, chance: random.Random, begin: int) -> list[dict[str, Any]]:
    """Rows out of order by less than any delay, so that none is late."""
    return [
        {
            f.name: _value(f.type.name, chance)
            if f.name != stream.time
            else ZERO + datetime.timedelta(milliseconds=begin + chance.randrange(0, 20) * 250)
            for f in stream.schema
        }
        for _ in range(chance.randrange(0, 12))
    ]


def _value(kind: str, chance: random.Random) -> Any:
    if chance.random() < 0.1:
        return None
    return {
        "bigint": chance.randrange(0, 4),
        "int": chance.randrange(-3, 9),
        "double": chance.randrange(-8, 40) / 4,
        "string": chance.choice(plans.STRINGS),
        "boolean": chance.random() < 0.5,
    }[kind]


def _is_about_arrival(plan: Node) -> bool:
    """Whether results depend on when epochs end, which the batch meaning does not know."""
    return any(
        isinstance(node, Aggregate) and isinstance(node.windows[0], Trailing | Landmark)
        for node in plan.walk()
    )


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(plan=plans.plans(), seed=st.integers(0, 2**32))
def test_epochs_add_up_to_the_batch(plan: Node, seed: int) -> None:
    if _is_about_arrival(plan):
        return
    chance = random.Random(seed)
    epochs: Epochs = [
        {s.stream: _rows(s, chance, begin=2_000 * epoch) for s in plans.STREAMS}
        for epoch in range(5)
    ]
    items = [{"id": n, "category": "abc"[n % 3], "weight": n / 4} for n in range(3)]
    whole = {s.stream: [row for e in epochs for row in e[s.stream]] for s in plans.STREAMS}

    marks = stream_watermarks(plan, epochs)
    ended = {stream: [*m[:-1], (m[-1][0], END_OF_TIME)] for stream, m in marks.items()}
    out = run_epochs(plan, epochs, {"items": items}, watermarks=ended)
    expected = run_batch(plan, {**whole, "items": items})
    assert_same_rows([row for epoch in out for row in epoch], expected, f"seed {seed}\n{plan}")
