"""``explain``: what a query means, what became of it, what will run, and what it costs, as text.

Only text is put together here. The plan, its trace, the engine's steps and the alternatives are the
very objects that run, so an explanation cannot disagree with them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import dedent
from typing import Any, Protocol

from headrace.cost.rows import flow_cost, row_flow
from headrace.errors import QueryError
from headrace.optimizer.advice import advise
from headrace.optimizer.driver import Optimized
from headrace.optimizer.windows.describe import DescribedWindows
from headrace.plan.dot import plan_dot
from headrace.plan.json import plan_hash, to_json
from headrace.plan.nodes import Node
from headrace.plan.text import plan_text, plans_text
from headrace.plan.window_graph import graph_cluster
from headrace.planner.decision import Alternative
from headrace.planner.explaining import Section
from headrace.redaction import redacted, redacted_json
from headrace.sql.views import View
from headrace.stats.catalog import NO_STATISTICS, Statistics

MODES = ("simple", "extended", "cost", "json", "dot")


class Describable(Protocol):
    """A physical step that can say what it does; the lines after the first are its details."""

    def describe(self) -> str: ...


@dataclass(frozen=True)
class Explanation:
    """All that ``explain`` prints from."""

    logical: Node
    optimized: Optimized
    steps: Sequence[Describable] = ()
    alternatives: Sequence[Alternative] = ()
    statistics: Statistics = NO_STATISTICS
    #: What the planner decided of it, beside the other queries.
    decided: Sequence[Section] = ()
    #: Who runs what is written in an epoch, and why.
    executors: Sequence[str] = ()
    #: What the engine advises, besides what the plan and the statistics show.
    advice: Sequence[str] = ()
    #: What the text names and the plan has in its place.
    views: Sequence[View] = ()


def explain(query: Explanation, mode: str = "simple") -> str:
    """The explanation in one of the modes that PySpark has, or as ``dot``."""
    if mode == "json":
        return json.dumps(redacted_json(_as_json(query)), indent=2, ensure_ascii=False)
    return redacted(_text(query, mode))


def _text(query: Explanation, mode: str) -> str:
    match mode:
        case "simple":
            return _joined(
                _views_section(query),
                _plan_section(query),
                *_decision_sections(query),
                _steps_section(query),
                _executors_section(query),
            )
        case "extended":
            return _joined(
                _views_section(query),
                _section("As written", plan_text(query.logical)),
                _rules_section(query.optimized),
                _plan_section(query),
                *_decision_sections(query),
                _steps_section(query),
                _executors_section(query),
                _alternatives_section(query),
                _advice_section(query),
            )
        case "cost":
            return _joined(
                _cost_section(query),
                *_decision_sections(query),
                _alternatives_section(query),
                _advice_section(query),
            )
        case "dot":
            beside = [
                line
                for number, windows in enumerate(_windows(query))
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


def _views_section(query: Explanation) -> str:
    """The views that the plan has in it, each as it was written."""
    written = [f"{v.name}\n{_indented(dedent(v.text).strip())}" for v in query.views]
    return _section("Views", "\n".join(written)) if written else ""


def _plan_section(query: Explanation) -> str:
    return _section("Plan", plan_text(query.optimized.plan))


def _decision_sections(query: Explanation) -> list[str]:
    """A section for each decision that has anything to tell."""
    return [
        _section(section.heading, "\n".join(part.text for part in section.parts))
        for section in query.decided
        if section.parts
    ]


def _windows(query: Explanation) -> list[DescribedWindows]:
    """What has a graph of windows to draw."""
    parts = (part for section in query.decided for part in section.parts)
    return [part for part in parts if isinstance(part, DescribedWindows)]


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
    texts = [*advise(query.optimized.plan, query.statistics), *query.advice]
    return list(dict.fromkeys(texts))


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
        "views": [
            {"name": view.name, "sql": view.text, "reads": [below.name for below in view.reads]}
            for view in query.views
        ],
        "logical": to_json(query.logical),
        "optimized": to_json(plan),
        "hash": plan_hash(plan),
        "rules": [
            {"stage": step.stage, "rule": step.rule, "pass": step.number, "fired": count}
            for step in query.optimized.trace.steps
            if (count := len(step.firings))
        ],
        **{section.key: [part.to_json() for part in section.parts] for section in query.decided},
        "steps": [step.describe() for step in query.steps],
        "rows_per_second": [
            {
                "node": plan_hash(node),
                "in": flow.rows_in.number,
                "out": flow.rows_out.number,
            }
            for node, flow in flows.items()
        ],
        "cost": flow_cost(plan, query.statistics).to_json(),
        "alternatives": [
            {
                "name": choice.name,
                "cost": choice.cost.to_json(),
                "rule": choice.rule,
                "chosen": choice.chosen,
                "reason": choice.reason,
            }
            for choice in query.alternatives
        ],
        "advice": _advice(query),
    }
