"""What compiling a part of a plan needs of the compilation that it is part of."""

from __future__ import annotations

from typing import Protocol

from headrace.definitions.lateness import Lateness
from headrace.operators.base import Operator, Store
from headrace.operators.rows.row_store import Retention, StoredRows
from headrace.plan.nodes import Node, OutputMode
from headrace.planner.early_aggregation import EarlyChoice
from headrace.planner.policy import PlannerPolicy


class CompilerContext(Protocol):
    """All live queries, compiled one after another over shared stores."""

    starts_at: int | None
    mode: OutputMode
    policy: PlannerPolicy
    stores: dict[str, Store]

    def input(self, node: Node) -> Operator: ...

    def whole_from(self, node: Node) -> int | None: ...

    def stored_rows(
        self, node: Node, time: str, lateness: Lateness | None, retention: Retention
    ) -> StoredRows: ...

    def register(self, store: Store) -> None: ...

    def note_choice(self, choice: EarlyChoice) -> None: ...
