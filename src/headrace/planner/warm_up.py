"""How long a query that joins late waits until what it puts out is whole."""

from __future__ import annotations

from headrace.plan.nodes import Aggregate, Filter, Join, Node, Project, Sink
from headrace.plan.reach import reach_of


def warm_up(node: Node) -> int:
    """How much time must pass after a beginning until a node's output is whole, in ms."""
    own = 0
    match node:
        case Join():
            reach = reach_of(node.time)
            own = max(reach.before or 0, 0) + max(reach.after or 0, 0)
        case Aggregate():
            spans = [getattr(w, "length", 0) + getattr(w, "gap", 0) for w in node.windows]
            own = max(spans)
    return own + max((warm_up(below) for below in node.inputs), default=0)


def warm_up_below(sink: Sink) -> int:
    """The warm-up of a query: that of what its last aggregate reads, or of all it does.

    Windows are whole from their start; a session is if nothing before it could be part of it.
    """
    node: Node = sink.input
    while isinstance(node, Filter | Project):
        node = node.input
    if not isinstance(node, Aggregate):
        return warm_up(node)
    return warm_up(node.input) + max(getattr(window, "gap", 0) for window in node.windows)
