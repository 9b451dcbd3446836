"""What ``explain`` tells of an aggregate over joins: its sets, its plans, and why not others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.cost.cost import Cost, unknown_cost
from headrace.cost.early_aggregation import MOST_LISTED, choices, plan_name
from headrace.optimizer.early.guards import may_fail
from headrace.optimizer.early.sets import EarlySet, early_sets, stays_above
from headrace.optimizer.early.shape import AggregationJoin
from headrace.plan.durations import format_duration
from headrace.plan.expressions import Expr
from headrace.plan.nodes import Aggregate, Join, Node
from headrace.plan.substitute import by_position, substituted
from headrace.plan.text import windows_text
from headrace.stats.figure import Estimated

UNIT = "s per hour of the streams"


@dataclass(frozen=True)
class LateAggregate:
    """An aggregate over a join that is computed after it, and why."""

    node: Aggregate
    reason: str

    @property
    def text(self) -> str:
        return f"{aggregate_text(self.node)}\n   after the join: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        return {"aggregate": aggregate_text(self.node), "late": self.reason}


@dataclass(frozen=True)
class JoinedRows:
    """Rows that come out of a join per millisecond: by numbers of keys, and as they were seen."""

    estimated: float
    seen: float | None

    @property
    def text(self) -> str:
        seen = "" if self.seen is None else f"; seen: {_hourly(self.seen)}"
        return f"the join gives {_hourly(self.estimated)}{seen}"

    def to_json(self) -> dict[str, Any]:
        return {
            "estimated": _hourly(self.estimated).to_json(),
            "seen": None if self.seen is None else _hourly(self.seen).to_json(),
        }


def _hourly(rows: float) -> Cost:
    return Cost(Estimated(rows * 3_600_000), "rows per hour")


@dataclass(frozen=True)
class DescribedEarly:
    """An aggregate over sets: what is aggregated early, and what each choice would cost.

    ``costs`` are seconds per millisecond of the streams' time; None while too little is known.
    """

    shape: AggregationJoin
    chosen: frozenset[int]
    forced: bool
    costs: Mapping[frozenset[int], float] | None
    joined: JoinedRows | None = None

    def name(self, choice: frozenset[int]) -> str:
        names = [self.shape.names[index] for index in sorted(choice)]
        return ", ".join(names) or "nothing"

    def cost(self, choice: frozenset[int]) -> Cost:
        if self.costs is None or choice not in self.costs:
            return unknown_cost(UNIT)
        return Cost(Estimated(self.costs[choice] * 3_600_000), UNIT)

    @property
    def plans(self) -> list[frozenset[int]]:
        """The choices, cheapest first where that is known; with many inputs those looked at."""
        if self.costs is not None:
            costs = self.costs
            return sorted(costs, key=lambda choice: costs[choice])
        if len(self.shape.eligible) > MOST_LISTED:
            return [self.shape.eligible, frozenset()]
        return list(choices(self.shape.eligible))[::-1]

    @property
    def text(self) -> str:
        lines = [aggregate_text(self.shape.node)]
        lines += [f"   {line}" for line in self._sets()]
        if self.forced:
            why = "as asked for"
        elif self.costs is None:
            why = "as long as nothing is known of the streams"
        else:
            why = f"{self.cost(self.chosen)}"
        lines.append(f"   aggregated early: {self.name(self.chosen)}, {why}")
        lines += [] if self.joined is None else [f"   {self.joined.text}"]
        others = [choice for choice in self.plans if choice != self.chosen]
        if others:
            lines.append("   instead of")
        for choice in others:
            cost = self.cost(choice)
            shown_cost = f"  {cost}" if cost.known else ""
            name = plan_name(choice, len(self.shape.names))
            lines.append(f"      {self.name(choice)} ({name}){shown_cost}")
        lines += [f"   {line}" for line in self._above()]
        for index, reason in self.shape.declined.items():
            lines.append(f"   never {self.shape.names[index]}: {reason}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "aggregate": aggregate_text(self.shape.node),
            "inputs": list(self.shape.names),
            "early": self.name(self.chosen),
            "joined": None if self.joined is None else self.joined.to_json(),
            "plans": [
                {"early": self.name(choice), "cost": self.cost(choice).to_json()}
                for choice in self.plans
            ],
            "declined": {self.shape.names[i]: why for i, why in self.shape.declined.items()},
        }

    def _above(self) -> list[str]:
        """What is computed after the join, because it may fail for a row that meets nobody, or is
        over several inputs."""
        held = [named.expr for named in (*self.shape.keys, *self.shape.aggregates)]
        one_sided = [e for e in held if len(self.shape.graph.owners(e)) == 1 and may_fail(e)]
        lines = [
            f"after the join: {expr}, which might fail for a row that meets nobody"
            if stays_above(expr)
            else f"after the join: {expr} of rows for which it might fail"
            for expr in dict.fromkeys(one_sided)
        ]
        split = early_sets(self.shape).factored
        lines += [
            f"after the join: {named.expr}, over columns of several inputs"
            for position, named in enumerate(self.shape.aggregates)
            if len(self.shape.graph.owners(named.expr)) > 1 and position not in split
        ]
        return lines

    def _sets(self) -> list[str]:
        lines = []
        sets = early_sets(self.shape)
        for index, early in enumerate(sets.inputs):
            groups = ", ".join(map(str, self._groups(index, early))) or "all rows"
            computed: list[Expr] = [
                self._own(index, self.shape.aggregates[at].expr) for at, _ in early.measures
            ]
            computed += [self._own(index, call) for _, _, call in early.factors]
            parts = [*dict.fromkeys(map(str, computed)), *(["count(*)"] if early.counts else [])]
            pane = self.shape.panes[index]
            if self.shape.input_windows is not None:
                window = self.shape.input_windows[index]
                where = f" in {getattr(window, 'name', window)}" if window is not None else ""
            elif self.shape.is_table(index):
                where = ", once"
            elif pane is None:
                where = ""
            else:
                where = f" in panes of {format_duration(pane.length)}"
            what = ", ".join(parts) or "nothing but the groups"
            lines.append(f"{self.shape.names[index]} by {groups}{where}: {what}")
        return lines

    def _groups(self, index: int, early: EarlySet) -> list[Expr]:
        """The groups of a set as the query has them, without those that only tell what may fail."""
        written = {f"__group{at}": key.expr for at, key in enumerate(self.shape.keys)}
        return [
            self._own(index, written[group.name]) if group.name in written else group.expr
            for group in early.groups
            if group.name not in early.unsound
            and (early.sound is None or group.name != early.sound.name)
        ]

    def _own(self, index: int, expr: Expr) -> Expr:
        leaf = self.shape.graph.leaves[index]
        return substituted(expr, by_position(leaf.schema, leaf.node.schema))


def aggregate_text(node: Aggregate) -> str:
    """An aggregate in one line."""
    calls = ", ".join(str(named.expr) for named in node.aggregates) or "groups"
    keys = ", ".join(str(named.expr) for named in node.keys)
    return f"{calls}{' by ' + keys if keys else ''} over {windows_text(node)}"


def aggregates_over_joins(plan: Node) -> list[Aggregate]:
    """The aggregates that early aggregation is about at all."""
    aggregates = []
    for node in plan.walk():
        if isinstance(node, Aggregate) and node not in aggregates and _joins_below(node.input):
            aggregates.append(node)
    return aggregates


def _joins_below(node: Node) -> bool:
    if isinstance(node, Join):
        return True
    return not isinstance(node, Aggregate) and any(_joins_below(part) for part in node.inputs)
