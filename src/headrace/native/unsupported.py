"""What plain Structured Streaming cannot do, and why: each refusal names Spark's reason."""

from __future__ import annotations

from headrace.errors import HeadraceError
from headrace.plan.expressions import AggregateCall
from headrace.plan.nodes import (
    Aggregate,
    IntervalBound,
    Join,
    JoinKind,
    Node,
    OutputMode,
    SameSession,
    Source,
)
from headrace.plan.windows import Current, Hopping, Landmark, Session, Trailing


class NativeUnsupported(HeadraceError):
    """A plan that plain Structured Streaming cannot run; Headrace can."""

    condition = "NATIVE_UNSUPPORTED"


def require_supported(plan: Node, mode: OutputMode = OutputMode.APPEND) -> None:
    """Raise NativeUnsupported, with the reason, for the first thing that Spark cannot do."""
    nodes = list(plan.walk())
    for node in nodes:
        if isinstance(node, Aggregate):
            _require_aggregate(node, mode)
        elif isinstance(node, Join):
            _require_join(node)
    stateful = sum(_stateful_operators(node) for node in nodes)
    landmarks = any(isinstance(n, Aggregate) and isinstance(n.windows[0], Landmark) for n in nodes)
    if stateful > 1 and (mode is OutputMode.UPDATE or landmarks):
        raise NativeUnsupported("Spark chains stateful operators in append mode only")


def _stateful_operators(node: Node) -> int:
    if isinstance(node, Aggregate):
        return len(node.windows)
    return int(isinstance(node, Join) and _is_stream_join(node))


def _is_stream_join(node: Join) -> bool:
    return bool(node.left.streams() and node.right.streams())


def _require_aggregate(node: Aggregate, mode: OutputMode) -> None:
    for named in node.aggregates:
        call = named.expr
        if isinstance(call, AggregateCall) and call.distinct:
            raise NativeUnsupported(
                f"Spark has no DISTINCT aggregates on streams, asked for in {named.name}"
            )
    for window in node.windows:
        match window:
            case Trailing() | Current():
                raise NativeUnsupported("Spark has no window that ends at the watermark")
            case Hopping() if window.slide > window.length:
                raise NativeUnsupported(
                    f"Spark's window() wants a slide of at most the length, not {window.name}"
                )
            case Session() if not node.keys:
                raise NativeUnsupported("Spark's session windows on streams need a grouping key")
            case Session() if mode is OutputMode.UPDATE:
                raise NativeUnsupported("Spark's session windows have no update mode")


def _require_join(node: Join) -> None:
    if not _is_stream_join(node):
        outer_side = node.left if node.kind.keeps_left else node.right
        if node.kind is JoinKind.FULL or (
            node.kind is not JoinKind.INNER and not outer_side.streams()
        ):
            raise NativeUnsupported("Spark cannot keep a table's rows in a join with a stream")
        return
    match node.time:
        case SameSession():
            raise NativeUnsupported("Spark has no join by session windows")
        case None:
            if node.kind is not JoinKind.INNER:
                raise NativeUnsupported("Spark wants a time bound for an outer join of streams")
            for source in node.walk():
                if isinstance(source, Source) and source.ttl is not None:
                    raise NativeUnsupported(
                        f"Spark has no ttl for joins without a time bound ({source.shown} has one)"
                    )
        case IntervalBound(lower=lower, upper=upper) if node.kind is not JoinKind.INNER:
            if (node.kind.keeps_left and upper is None) or (
                node.kind.keeps_right and lower is None
            ):
                raise NativeUnsupported("Spark wants a time bound for an outer join of streams")
