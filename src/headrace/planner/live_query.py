"""A query that takes part in epochs, as planner and compiler see it."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plan.nodes import Sink


@dataclass(frozen=True)
class LiveQuery:
    """A query that takes part: its optimized plan, and from when it sees every row."""

    sink: Sink
    starts_at: int | None
