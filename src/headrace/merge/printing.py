"""A global plan as people and programs read it: text, JSON and DOT of its description."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from headrace.errors import QueryError
from headrace.merge.describe import DescribedOperator, DescribedPlan, DescribedStore, Description
from headrace.plan.dot import plans_dot, quoted, wrapped
from headrace.plan.text import node_details
from headrace.redaction import redacted, redacted_json

MODES = ("simple", "json", "dot")

#: Names that are listed in full; of more only the first few are.
_MOST_NAMES = 6
_FIRST_NAMES = 3


def explain_merged(description: Description, mode: str = "simple") -> str:
    """The description in one of the modes."""
    match mode:
        case "simple":
            return redacted(_text(description))
        case "json":
            return json.dumps(redacted_json(to_json(description)), indent=2, ensure_ascii=False)
        case "dot":
            return redacted(_dot(description))
        case _:
            raise QueryError(
                f"explain of all queries has no mode {mode!r}",
                hint=f"the modes are {', '.join(MODES)}",
            )


# --- text ----------------------------------------------------------------------------------------


def _text(description: Description) -> str:
    count = description.queries
    if not count:
        return "no queries"
    lines = [
        "== Sharing ==",
        f"{count} {'query' if count == 1 else 'queries'}: {description.alone} operators alone, "
        f"{description.merged} merged, {description.percent:.1f}% fewer",
        *_state(description),
        _kinds(description.plans),
        f"by strategy {description.strategy.value}, scope {description.scope.value}",
    ]
    if description.apart:
        lines.append(f"apart until they have caught up: {_names(description.apart)}")
    state = _shared_state(description.stores)
    return "\n\n".join(["\n".join(lines), *map(_plan_text, description.plans), *state])


def _state(description: Description) -> list[str]:
    """How many stores there are, and would be."""
    if not description.stores:
        return []
    count = len(description.stores)
    alone = description.stores_alone
    return [
        f"state: {alone} {'store' if alone == 1 else 'stores'} alone, {count} shared, "
        f"{100 * (alone - count) / alone if alone else 0.0:.1f}% fewer"
    ]


def _shared_state(stores: Sequence[DescribedStore]) -> list[str]:
    """The stores that several queries read, and who does."""
    several = [store for store in stores if len(store.queries) > 1]
    if not several:
        return []
    lines = [f"{store.name}: {store.text}  ({_names(store.queries)})" for store in several]
    return ["\n".join(["== State that several read ==", *lines])]


def _kinds(plans: Sequence[DescribedPlan]) -> str:
    """How many queries share how much."""
    groups = [group for plan in plans for group in plan.equal]
    equal = f"equal {sum(map(len, groups))}"
    if groups:
        equal += f" in {len(groups)} {'group' if len(groups) == 1 else 'groups'}"
    return (
        f"{equal}, share parts {sum(len(plan.parts) for plan in plans)}, "
        f"share state {sum(len(plan.state) for plan in plans)}, "
        f"read the same {sum(len(plan.reading) for plan in plans)}, "
        f"share nothing {sum(len(plan.nothing) for plan in plans)}"
    )


def _plan_text(plan: DescribedPlan) -> str:
    lines = [f"== {plan.title} =="]
    lines += [f"equal: {_names(group)}" for group in plan.equal]
    for label, names in (
        ("share parts", plan.parts),
        ("share state", plan.state),
        ("read the same", plan.reading),
        ("share nothing", plan.nothing),
    ):
        if names:
            lines.append(f"{label}: {_names(names)}")
    blocks = ["\n".join(lines)]
    for place, operator in enumerate(plan.operators):
        if operator.name:
            blocks.append(_hanging(f"{operator.name} := ", _tree(plan, place)))
    queries: dict[int, list[str]] = {}
    for name, place in plan.roots.items():
        queries.setdefault(place, []).append(name)
    for place, alike in queries.items():
        name = plan.operators[place].name
        blocks.append(_hanging(f"{_label(alike)}: ", [name] if name else _tree(plan, place)))
    return "\n\n".join(blocks)


def _tree(plan: DescribedPlan, place: int) -> list[str]:
    operator = plan.operators[place]
    lines = [operator.text + _note(operator)]
    for below in operator.inputs:
        name = plan.operators[below].name
        lines += ["  " + line for line in ([name] if name else _tree(plan, below))]
    return lines


def _note(operator: DescribedOperator) -> str:
    """Who uses it and what that saves; without a name it has the users of what reads it."""
    if not operator.shared:
        return ""
    users = f"{_names(operator.queries)}; " if operator.name else ""
    return f"  ({users}{_saving(operator)})"


def _saving(operator: DescribedOperator) -> str:
    rows = f", {operator.saved_rows} rows/s" if operator.rows.known else ""
    return f"saves {operator.saved}{rows}"


def _names(names: Sequence[str]) -> str:
    label = _label(names)
    return label if len(names) <= _MOST_NAMES else f"{len(names)} queries: {label}"


def _label(names: Sequence[str]) -> str:
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    return ", ".join([*names[:_FIRST_NAMES], "…"])


def _hanging(label: str, lines: Iterable[str]) -> str:
    first, *rest = lines
    return "\n".join([label + first, *(" " * len(label) + line for line in rest)])


# --- JSON ----------------------------------------------------------------------------------------


def to_json(description: Description) -> dict[str, Any]:
    """The description as plain values; an unknown figure is null, never a number."""
    return {
        "queries": description.queries,
        "strategy": description.strategy.value,
        "scope": description.scope.value,
        "operators": {
            "alone": description.alone,
            "merged": description.merged,
            "percent_saved": round(description.percent, 2),
        },
        "apart": list(description.apart),
        "state": {
            "alone": description.stores_alone,
            "shared": len(description.stores),
            "stores": [
                {
                    "name": store.name,
                    "kind": store.kind,
                    "text": store.text,
                    "queries": list(store.queries),
                }
                for store in description.stores
            ],
        },
        "plans": [_plan_json(plan) for plan in description.plans],
    }


def _plan_json(plan: DescribedPlan) -> dict[str, Any]:
    return {
        "tenant": plan.tenant,
        "streams": list(plan.streams),
        "equal": [list(group) for group in plan.equal],
        "parts": list(plan.parts),
        "state": list(plan.state),
        "reading": list(plan.reading),
        "nothing": list(plan.nothing),
        "roots": dict(plan.roots),
        "operators": [
            {
                "id": place,
                "name": operator.name or None,
                "kind": type(operator.node).__name__,
                "text": operator.text,
                "inputs": list(operator.inputs),
                "queries": list(operator.queries),
                "evaluations_saved": operator.saved,
                "rows_per_second_saved": operator.saved_rows.number,
            }
            for place, operator in enumerate(plan.operators)
        ],
    }


# --- DOT -----------------------------------------------------------------------------------------


def _dot(description: Description) -> str:
    """One graph, a frame for each set of streams; shared operators are coloured and bold."""
    lines: list[str] = []
    for number, plan in enumerate(description.plans):
        lines += [
            f"  subgraph cluster_{number} {{",
            f'    label={quoted(plan.title)}; style=rounded; color="#bbbbbb";'
            ' fontname="Helvetica"; fontsize=11;',
        ]
        for place, operator in enumerate(plan.operators):
            lines.append(f"    p{number}_{place} [{_attributes(operator)}];")
        for place, operator in enumerate(plan.operators):
            lines += [f"    p{number}_{below} -> p{number}_{place};" for below in operator.inputs]
        for index, (name, place) in enumerate(plan.roots.items()):
            sink = f"p{number}_q{index}"
            lines.append(f"    {sink} [label={quoted(name)}, shape=plaintext, style=solid];")
            lines.append(f"    p{number}_{place} -> {sink} [style=dashed];")
        lines.append("  }")
    return plans_dot([], beside=lines)


def _attributes(operator: DescribedOperator) -> str:
    title, parts = node_details(operator.node)
    lines = [line for part in (title, *parts) for line in wrapped(part)]
    if not operator.shared:
        return f"label={quoted(*lines)}"
    count = len(operator.queries)
    users = f"{count} {'query' if count == 1 else 'queries'}, {_saving(operator)}"
    label = quoted(*lines, f"{operator.name}: {users}" if operator.name else users)
    return f'label={label}, fillcolor="#fdebc8", color="#c0392b", penwidth=2'
