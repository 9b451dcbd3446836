"""Plans as Graphviz DOT text: rows flow upwards, shared nodes are drawn once, windows are marked.

Only text is made here; nothing needs Graphviz to be installed.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from headrace.plan.nodes import Aggregate, Join, Node, Sink, Source, Table
from headrace.plan.text import node_details, shared_nodes

_WIDTH = 44
# Long column lists say nothing in a picture; the text printer has them all.
_LINES = 8

_FILL = {Source: "#dbe9f6", Table: "#e8e3f3", Aggregate: "#fdebc8", Join: "#dff0d8"}
_SHARED_BORDER = "#c0392b"


def plan_dot(
    node: Node, labels: Mapping[Node, str] | None = None, beside: Sequence[str] = ()
) -> str:
    """One plan as a DOT graph; ``labels`` adds a line to nodes, such as their rows per second.

    ``beside`` are lines of DOT for what stands beside the plan.
    """
    return plans_dot([node], labels=labels, beside=beside)


def plans_dot(
    plans: Sequence[Node],
    names: Sequence[str] | None = None,
    labels: Mapping[Node, str] | None = None,
    beside: Sequence[str] = (),
) -> str:
    """Several plans in one graph; what they share has a heavy border and one place."""
    order: dict[Node, str] = {}

    def visit(node: Node) -> None:
        if node not in order:
            for child in node.inputs:
                visit(child)
            order[node] = f"n{len(order)}"

    for plan in plans:
        visit(plan)
    shared = set(shared_nodes(plans))
    lines = [
        "digraph plan {",
        "  rankdir=BT;",
        '  graph [fontname="Helvetica", ranksep=0.35, nodesep=0.3];',
        '  node [fontname="Helvetica", fontsize=11, shape=box, style="rounded,filled",'
        ' fillcolor="#f7f7f7", color="#777777", margin="0.14,0.08"];',
        '  edge [fontname="Helvetica", fontsize=10, color="#555555", arrowsize=0.7];',
    ]
    for node, identifier in order.items():
        lines.append(f"  {identifier} [{_attributes(node, node in shared, labels or {})}];")
    for node, identifier in order.items():
        for index, child in enumerate(node.inputs):
            attributes = _edge(node, index)
            lines.append(f"  {order[child]} -> {identifier}{attributes};")
    for index, plan in enumerate(plans):
        if names is not None:
            lines.append(
                f"  q{index} [label={quoted(names[index])}, shape=plaintext, style=solid];"
            )
            lines.append(f"  {order[plan]} -> q{index} [style=dashed];")
    return "\n".join([*lines, *beside, "}"]) + "\n"


def _attributes(node: Node, shared: bool, labels: Mapping[Node, str]) -> str:
    title, parts = node_details(node)
    lines = [*wrapped(title), *(line for part in parts for line in wrapped(part))]
    if len(lines) > _LINES:
        lines = [*lines[: _LINES - 1], "…"]
    if node in labels:
        lines.append(labels[node])
    attributes = [f"label={quoted(*lines)}"]
    for kind, colour in _FILL.items():
        if isinstance(node, kind):
            attributes.append(f'fillcolor="{colour}"')
    if isinstance(node, Sink):
        attributes.append("style=filled")
    if isinstance(node, Table):
        attributes.append("shape=cylinder")
    if _has_windows(node):
        # A second frame says: this node keeps rows or panes of a stretch of time.
        attributes.append("peripheries=2")
    if shared:
        attributes.append(f'color="{_SHARED_BORDER}", penwidth=2')
    return ", ".join(attributes)


def _has_windows(node: Node) -> bool:
    return isinstance(node, Aggregate) or (isinstance(node, Join) and node.time is not None)


def _edge(node: Node, index: int) -> str:
    if not isinstance(node, Join):
        return ""
    alias = (node.left_alias, node.right_alias)[index]
    return f" [label={quoted(alias)}]" if alias else ""


def wrapped(text: str) -> list[str]:
    """A label's text in lines."""
    return textwrap.wrap(text, _WIDTH, subsequent_indent="  ", break_long_words=True)


def quoted(*lines: str) -> str:
    """A DOT string with its lines to the left, as ``\\l`` asks for."""
    escaped = [line.replace("\\", "\\\\").replace('"', '\\"') for line in lines]
    if len(escaped) == 1:
        return f'"{escaped[0]}"'
    return '"' + "".join(line + "\\l" for line in escaped) + '"'
