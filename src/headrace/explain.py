"""``explain``: what a query means, what became of it, what will run, and what it costs, as text.

Only text is put together here. The plan, its trace, the engine's steps and the alternatives are the
very objects that run, so an explanation cannot disagree with them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from headrace.cost.cost import Cost
from headrace.cost.rows import flow_cost, row_flow
from headrace.errors import QueryError
from headrace.optimizer.advice import advise
from headrace.optimizer.driver import Optimized
from headrace.optimizer.early.describe import DescribedEarly, LateAggregate, aggregate_text
from headrace.optimizer.joins.describe import DescribedJoin, FixedJoin, hourly_cost
from headrace.optimizer.probing.describe import DescribedProbes, order_cost
from headrace.optimizer.windows.describe import DescribedWindows
from headrace.plan.dot import plan_dot
from headrace.plan.join_graph import order_text
from headrace.plan.json import plan_hash, to_json
from headrace.plan.nodes import Node
from headrace.plan.text import plan_text, plans_text
from headrace.plan.window_graph import graph_cluster
from headrace.redaction import redacted, redacted_json
from headrace.stats.catalog import NO_STATISTICS, Statistics

MODES = ("simple", "extended", "cost", "json", "dot")


class Describable(Protocol):
    """A physical step that can say what it does; the lines after the first are its details."""

    def describe(self) -> str: ...


@dataclass(frozen=True)
class Alternative:
    """A valid plan for the query, and why it was chosen or not."""

    name: str
    cost: Cost
    rule: str
    chosen: bool
    reason: str


@dataclass(frozen=True)
class Explanation:
    """All that ``explain`` prints from."""

    logical: Node
    optimized: Optimized
    steps: Sequence[Describable] = ()
    alternatives: Sequence[Alternative] = ()
    statistics: Statistics = NO_STATISTICS
    #: Aggregates over windows that share work, or could.
    windows: Sequence[DescribedWindows] = ()
    #: Joins of streams, with the orders that they could have.
    joins: Sequence[DescribedJoin | FixedJoin | DescribedProbes] = ()
    #: Aggregates over joins, with the inputs that could be aggregated before.
    early: Sequence[DescribedEarly | LateAggregate] = ()
    #: Who runs what is written in an epoch, and why.
    executors: Sequence[str] = ()
    #: What the engine advises, besides what the plan and the statistics show.
    advice: Sequence[str] = ()


def explain(query: Explanation, mode: str = "simple") -> str:
    """The explanation in one of the modes that PySpark has, or as ``dot``."""
    if mode == "json":
        return json.dumps(redacted_json(_as_json(query)), indent=2, ensure_ascii=False)
    return redacted(_text(query, mode))


def _text(query: Explanation, mode: str) -> str:
    match mode:
        case "simple":
            return _joined(
                _plan_section(query),
                _windows_section(query),
                _joins_section(query),
                _early_section(query),
                _steps_section(query),
                _executors_section(query),
            )
        case "extended":
            return _joined(
                _section("As written", plan_text(query.logical)),
                _rules_section(query.optimized),
                _plan_section(query),
                _windows_section(query),
                _joins_section(query),
                _early_section(query),
                _steps_section(query),
                _executors_section(query),
                _alternatives_section(query),
                _advice_section(query),
            )
        case "cost":
            return _joined(
                _cost_section(query),
                _windows_section(query),
                _joins_section(query),
                _early_section(query),
                _alternatives_section(query),
                _advice_section(query),
            )
        case "dot":
            beside = [
                line
                for number, windows in enumerate(query.windows)
                for line in graph_cluster(windows.graph, f"g{number}", windows.title, windows.costs)
            ]
            return plan_dot(query.optimized.plan, _notes(query), beside)
        case _:
            raise QueryError(
                f"explain has no mode {mode!r}", hint=f"the modes are {', '.join(MODES)}"
            )


def _joined(*sections: str) -> str:
    return "\n\n".join(section for section in sections if section)


def _section(title: str, body: str) -> str:
    return f"== {title} ==\n{body}"


def _plan_section(query: Explanation) -> str:
    return _section("Plan", plan_text(query.optimized.plan))


def _windows_section(query: Explanation) -> str:
    """Which windows are computed from which, and what that saves."""
    if not query.windows:
        return ""
    return _section("Windows", "\n".join(windows.text for windows in query.windows))


def _joins_section(query: Explanation) -> str:
    """In which order joins run, in which they could, and why not in others."""
    if not query.joins:
        return ""
    return _section("Joins", "\n".join(join.text for join in query.joins))


def _early_section(query: Explanation) -> str:
    """Which inputs of joins are aggregated before them, what that costs, and why not others."""
    if not query.early:
        return ""
    return _section("Early aggregation", "\n".join(part.text for part in query.early))


def _steps_section(query: Explanation) -> str:
    if not query.steps:
        return ""
    lines = []
    for number, step in enumerate(query.steps, 1):
        first, *rest = step.describe().splitlines() or [""]
        label = f"{number}. "
        lines.append(label + first)
        lines += [" " * len(label) + line.rstrip() for line in rest]
    return _section("Steps of an epoch", "\n".join(lines))


def _executors_section(query: Explanation) -> str:
    return _section("Executors", "\n".join(query.executors)) if query.executors else ""


def _rules_section(optimized: Optimized) -> str:
    """The plan after every rule, or that it is the same; later passes only where they change it."""
    blocks = []
    for step in optimized.trace.steps:
        title = f"{step.stage}: {step.rule}"
        if step.number > 1:
            title += f", pass {step.number}"
        if step.changed:
            times = "" if len(step.firings) == 1 else f" ({len(step.firings)} times)"
            blocks.append(f"after {title}{times}\n{_indented(plan_text(step.plan))}")
        elif step.number == 1:
            blocks.append(f"after {title}: same as above")
    return _section("After each rule", "\n".join(blocks) or "no rule ran")


def _cost_section(query: Explanation) -> str:
    plan = query.optimized.plan
    total = flow_cost(plan, query.statistics)
    text = plans_text([plan], notes=_notes(query))
    return _section("Rows per second", f"{text}\n\ninto all nodes together: {total}")


def _notes(query: Explanation) -> dict[Node, str]:
    flows = row_flow(query.optimized.plan, query.statistics)
    return {node: str(flow) for node, flow in flows.items()}


def _alternatives_section(query: Explanation) -> str:
    if not query.alternatives:
        return ""
    rows = [("", "plan", "cost", "rule", "why")]
    for choice in query.alternatives:
        mark = "*" if choice.chosen else ""
        rows.append((mark, choice.name, str(choice.cost), choice.rule, choice.reason))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return _section("Alternatives", "\n".join(lines))


def _advice(query: Explanation) -> list[str]:
    found = [*advise(query.optimized.plan, query.statistics), *query.advice]
    return list(dict.fromkeys(found))


def _advice_section(query: Explanation) -> str:
    pieces = _advice(query)
    body = "\n".join(f"{number}. {text}" for number, text in enumerate(pieces, 1))
    return _section("Advice", body or "no advice")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.splitlines())


def _as_json(query: Explanation) -> dict[str, Any]:
    plan = query.optimized.plan
    flows = row_flow(plan, query.statistics)
    return {
        "logical": to_json(query.logical),
        "optimized": to_json(plan),
        "hash": plan_hash(plan),
        "rules": [
            {"stage": step.stage, "rule": step.rule, "pass": step.number, "fired": count}
            for step in query.optimized.trace.steps
            if (count := len(step.firings))
        ],
        "windows": [
            {
                "title": windows.title,
                **windows.graph.to_json(),
                "items": {
                    "before": _number_json(windows.items_before),
                    "after": _number_json(windows.items_after),
                },
                "searches": [
                    {"panes": pane.name, "gap": found.gap, "complete": found.complete}
                    for pane, found in windows.searches
                ],
                "seconds": {
                    "before": windows.seconds_before.figure.number,
                    "after": windows.seconds_after.figure.number,
                },
                "layouts": [
                    {"name": entry.name, "cost": _cost_json(entry.cost)}
                    for entry in windows.layouts
                ],
            }
            for windows in query.windows
        ],
        "joins": [_join_json(join) for join in query.joins],
        "early": [_early_json(part) for part in query.early],
        "steps": [step.describe() for step in query.steps],
        "rows_per_second": [
            {
                "node": plan_hash(node),
                "in": flow.rows_in.number,
                "out": flow.rows_out.number,
            }
            for node, flow in flows.items()
        ],
        "cost": _cost_json(flow_cost(plan, query.statistics)),
        "alternatives": [
            {
                "name": choice.name,
                "cost": _cost_json(choice.cost),
                "rule": choice.rule,
                "chosen": choice.chosen,
                "reason": choice.reason,
            }
            for choice in query.alternatives
        ],
        "advice": _advice(query),
    }


def _join_json(join: DescribedJoin | FixedJoin | DescribedProbes) -> dict[str, Any]:
    if isinstance(join, FixedJoin):
        return {"fixed": join.text}
    if isinstance(join, DescribedProbes):
        return _probes_json(join)
    return {
        "inputs": list(join.names),
        "level": None if join.level is None else join.level.value,
        "order": join.name(join.chosen),
        "orders": [
            {
                "order": join.name(order),
                "cost": _cost_json(hourly_cost(order)),
                "rules": list(order.rules),
            }
            for order in join.orders
        ],
        "refused": [
            {"order": order_text(order, join.names), "reason": reason}
            for order, reason in join.refused
        ],
    }


def _probes_json(join: DescribedProbes) -> dict[str, Any]:
    known = join.statistics
    edges = [] if known is None else [edge for edge in join.graph.edges if known.knows(edge)]
    return {
        "inputs": list(join.names),
        "why": join.why,
        "probes": {
            join.names[driver]: [join.names[probed] for _, probed in sequence]
            for driver, sequence in join.running.sequences.items()
        },
        "cost": _cost_json(order_cost(join.running)),
        "written": _cost_json(order_cost(join.written)),
        "statistics": [
            {
                "from": join.names[edge[0]],
                "to": join.names[edge[1]],
                "found": known.rates[edge],
                "rows": known.means[edge],
                "keys": known.keys[edge],
            }
            for edge in edges
            if known is not None
        ],
        "changes": list(join.changes),
    }


def _early_json(part: DescribedEarly | LateAggregate) -> dict[str, Any]:
    if isinstance(part, LateAggregate):
        return {"aggregate": aggregate_text(part.node), "late": part.reason}
    return {
        "aggregate": aggregate_text(part.shape.node),
        "inputs": list(part.shape.names),
        "early": part.name(part.chosen),
        "plans": [
            {"early": part.name(choice), "cost": _cost_json(part.cost(choice))}
            for choice in part.plans
        ],
        "declined": {part.shape.names[i]: reason for i, reason in part.shape.declined.items()},
    }


def _number_json(number: Fraction) -> float | int:
    """JSON has numbers of any size, and floats only those that they can hold."""
    try:
        return float(number)
    except OverflowError:
        return round(number)


def _cost_json(cost: Cost) -> dict[str, Any]:
    """An unknown cost is null, never a number."""
    kind = type(cost.figure).__name__.lower()
    return {"value": cost.figure.number, "kind": kind, "unit": cost.unit}
