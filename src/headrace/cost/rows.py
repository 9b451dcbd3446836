"""How many rows per second flow into and out of each node of a plan.

An observed subplan has its observed rate. Otherwise, with λ the rate of an input in rows per second
and d the number of different keys:

    filter k = constant      λ / d                       other filters: unknown
    aggregate, windows l/s   Σ min(d, λ l) / s           one group where there are no keys
    join within a time span  λ₁ λ₂ span / max(d₁, d₂)    span: upper - lower, or for windows below
    union                    Σ λ

``span`` of a window join is the mean length of time around a row that shares a window with it:
2 l - s for windows that meet or overlap (l for tumbling ones), l² / s for sampling ones.

Rejected: a fixed selectivity for filters nothing is known about (a third is customary). It makes
up a number, and a plan chosen by it is chosen by accident.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.cost.cost import Cost
from headrace.cost.window_joins import time_span
from headrace.plan.expressions import Call, Column, Expr, Literal, conjuncts
from headrace.plan.nodes import (
    Aggregate,
    Filter,
    Join,
    JoinKind,
    Node,
    Project,
    Sink,
    Source,
    Table,
    Union,
)
from headrace.plan.windows import Hopping
from headrace.stats.catalog import Statistics
from headrace.stats.figure import UNKNOWN, Exact, Figure, estimated, total


@dataclass(frozen=True)
class Flow:
    """Rows per second into and out of a node."""

    rows_in: Figure
    rows_out: Figure

    def __str__(self) -> str:
        return f"in {self.rows_in}/s, out {self.rows_out}/s"


def row_flow(plan: Node, statistics: Statistics) -> dict[Node, Flow]:
    """The flow at every node; a shared subplan is there once."""
    flows: dict[Node, Flow] = {}

    def visit(node: Node) -> Figure:
        if node not in flows:
            rates = [visit(child) for child in node.inputs]
            rows_out = _rows_out(node, rates, statistics)
            rows_in = total(rates) if rates else rows_out
            flows[node] = Flow(rows_in, rows_out)
        return flows[node].rows_out

    visit(plan)
    return flows


def flow_cost(plan: Node, statistics: Statistics) -> Cost:
    """All rows that go into some node, per second."""
    return Cost(total([flow.rows_in for flow in row_flow(plan, statistics).values()]), "rows/s")


def _rows_out(node: Node, rates: list[Figure], statistics: Statistics) -> Figure:
    match node:
        case Source():
            return statistics.of_stream(node.stream).rate
        case Table():
            # Read as it stands; nothing flows.
            return Exact(0)
        case Filter():
            return rates[0] * _selectivity(node, statistics)
        case Project() | Sink():
            return rates[0]
        case Union():
            return total(rates)
        case Aggregate():
            return _groups_per_second(node, rates[0], statistics)
        case Join():
            return _pairs_per_second(node, rates, statistics)
        case _:
            return UNKNOWN


def _selectivity(node: Filter, statistics: Statistics) -> Figure:
    share: Figure = Exact(1)
    for part in conjuncts(node.predicate):
        match part:
            case Literal(value=value):
                share = share * (1 if value is True else 0)
            case (
                Call(function="=", arguments=(Column(name=name), Literal()))
                | Call(function="=", arguments=(Literal(), Column(name=name)))
            ):
                share = share / estimated(distinct_values(node.input, [name], statistics))
            case _:
                return UNKNOWN
    return share


def _groups_per_second(node: Aggregate, rate: Figure, statistics: Statistics) -> Figure:
    figures: list[Figure] = []
    for window in node.windows:
        if not isinstance(window, Hopping):
            return UNKNOWN
        groups = _distinct_of_expressions(node.input, (k.expr for k in node.keys), statistics)
        per_window = groups.least(rate * (window.length / 1_000))
        figures.append(estimated(per_window / (window.slide / 1_000)))
    return total(figures)


def _pairs_per_second(node: Join, rates: list[Figure], statistics: Statistics) -> Figure:
    span = None if node.time is None else time_span(node.time)
    if span is None or node.kind is not JoinKind.INNER or node.residual is not None:
        return UNKNOWN
    left = _distinct_of_expressions(
        node.left, (_below(key, node, "left") for key, _ in node.keys), statistics
    )
    right = _distinct_of_expressions(
        node.right, (_below(key, node, "right") for _, key in node.keys), statistics
    )
    return estimated(rates[0] * rates[1] * (span / 1_000) / left.greatest(right))


def _below(key: Expr, node: Join, side: str) -> Expr:
    """A join's key as its input names it."""
    inner, outer = (
        (node.left.schema, node.left_schema)
        if side == "left"
        else (node.right.schema, node.right_schema)
    )
    if isinstance(key, Column) and key.name in outer:
        field = inner.fields[outer.names.index(key.name)]
        return Column(field.name, field.type)
    return key


def _distinct_of_expressions(node: Node, exprs: Iterable[Expr], statistics: Statistics) -> Figure:
    names: list[str] = []
    for expr in exprs:
        if not isinstance(expr, Column):
            return UNKNOWN
        names.append(expr.name)
    return distinct_values(node, names, statistics) if names else Exact(1)


def distinct_values(node: Node, names: list[str], statistics: Statistics) -> Figure:
    """How many different values these columns of a node take, traced down to what was observed."""
    match node:
        case Source():
            return statistics.of_stream(node.stream).distinct_of(names)
        case Filter() | Sink():
            # A filter can only take values away: an upper bound, so an estimate.
            below = distinct_values(node.input, names, statistics)
            return estimated(below) if isinstance(node, Filter) else below
        case Project():
            columns = {c.name: c.expr for c in node.columns}
            return _distinct_of_expressions(node.input, (columns[n] for n in names), statistics)
        case _:
            return UNKNOWN
