"""Whether the rows of an operator that several read are computed once and written for all of them.

A join whose pairs go to three queries would run three times, once within each of their results.
Where that costs more than one job does, its new rows are written first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.plan.nodes import Node
from headrace.plan.text import node_text
from headrace.planner.decision import PlannedQuery
from headrace.planner.policy import PlannerPolicy


def pays_to_share(readers: int, rows: int, policy: PlannerPolicy) -> bool:
    """Whether reading this many stored rows for each further reader costs more than a job."""
    return policy.shares_rows and readers > 1 and (readers - 1) * rows >= policy.rows_per_job


@dataclass(frozen=True)
class DescribedReaders:
    """An operator whose new rows several read."""

    node: Node
    readers: int
    rows_per_job: int

    @property
    def text(self) -> str:
        return (
            f"{node_text(self.node)}: {self.readers} read its new rows, which are computed once in "
            f"epochs where that saves reading {self.rows_per_job:,} rows"
        )

    def to_json(self) -> dict[str, Any]:
        return {"operator": node_text(self.node), "readers": self.readers}


def describe(query: PlannedQuery) -> list[DescribedReaders]:
    """What a query reads that others read too, or that it reads more than once."""
    if not query.policy.shares_rows:
        return []
    return [
        DescribedReaders(node, readers, query.policy.rows_per_job)
        for node, readers in query.readers.items()
    ]
