"""Where the parts of a plan stand in the text, for those who find fault with it later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.errors import Position
from headrace.plan.expressions import Expr
from headrace.plan.nodes import Aggregate, Join, Node
from headrace.sql.calls import Origins
from headrace.sql.positions import position_of


@dataclass(frozen=True)
class Places:
    """The places of a plan's joins and aggregates, and of its expressions.

    ``whole`` is that of the query itself, for all that has none.
    """

    plan: Node | None = None
    whole: Position | None = None
    nodes: Mapping[Node, Position | None] = field(default_factory=dict)
    origins: Origins = field(default_factory=Origins)

    def of(self, expr: Expr) -> Position | None:
        """The place of an expression, or of the first part of it that has one."""
        return position_of(self.origins.of(expr)) or self.whole

    def of_node(self, rewritten: Node, node: Node) -> Position | None:
        """The place of a join or aggregate of the plan, which the optimizer may have rewritten.

        It moves neither past another of its kind, so they are the same ones in the same order.
        """
        if self.plan is None:
            return self.whole
        kind = Aggregate if isinstance(node, Aggregate) else Join
        written = [n for n in self.plan.walk() if isinstance(n, kind)]
        now = [n for n in rewritten.walk() if isinstance(n, kind)]
        if len(written) != len(now) or node not in now:
            return self.whole
        return self.nodes.get(written[now.index(node)]) or self.whole


NO_PLACES = Places()
