"""Plans and expressions as text.

Expressions print as Spark SQL that means the same. A plan prints as a tree, a line per node; a
subplan that is used more than once is named once (``r0 := …``) and referred to by its name, also
across several queries.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Mapping, Sequence

from headrace.errors import PlanError
from headrace.plan.durations import format_duration
from headrace.plan.expressions import (
    OPERATORS,
    AggregateCall,
    Call,
    Cast,
    Column,
    Expr,
    Literal,
    Named,
)
from headrace.plan.join_graph import join_graph, order_text
from headrace.plan.nodes import (
    Aggregate,
    Filter,
    IntervalBound,
    Join,
    JoinTime,
    Node,
    Project,
    SameSession,
    SameWindow,
    Sink,
    Source,
    Table,
    Union,
)
from headrace.plan.windows import (
    Current,
    Hopping,
    InheritedWindow,
    Landmark,
    Session,
    Trailing,
    Window,
)
from headrace.redaction import redacted, shown_option

# How tightly Spark's grammar binds, loosest first.
_OR, _AND, _NOT, _PREDICATE = 1, 2, 3, 4
_TIGHTNESS = {
    "or": _OR,
    "and": _AND,
    "not": _NOT,
    **dict.fromkeys(("=", "<=>", "!=", "<", "<=", ">", ">="), _PREDICATE),
    **dict.fromkeys(("like", "ilike", "rlike", "isnull", "in"), _PREDICATE),
    "|": 5,
    "^": 6,
    "&": 7,
    **dict.fromkeys(("+", "-", "||"), 8),
    **dict.fromkeys(("*", "/", "%", "div"), 9),
    **dict.fromkeys(("negative", "~"), 10),
    **dict.fromkeys(("field", "item"), 11),
}
_ATOM = 12
_NEGATABLE = {"like": "NOT LIKE", "ilike": "NOT ILIKE", "rlike": "NOT RLIKE", "in": "NOT IN"}
_SUFFIXES = {"tinyint": "Y", "smallint": "S", "bigint": "L", "float": "F", "double": "D"}
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


# --- expressions ---------------------------------------------------------------------------------


def expression_text(expr: Expr) -> str:
    """The expression as Spark SQL.

    >>> from headrace.plan.types import BOOLEAN, INT
    >>> a, one = Column("a", INT), Literal(1, INT)
    >>> expression_text(Call("*", (Call("+", (a, one), INT), one), INT))
    '(a + 1) * 1'
    >>> expression_text(Call("not", (Call("isnull", (a,), BOOLEAN),), BOOLEAN))
    'a IS NOT NULL'
    """
    match expr:
        case Column(name=name):
            return _name(name)
        case Literal():
            return _literal(expr)
        case Cast(argument=argument, data_type=kind, safe=safe):
            return f"{'TRY_CAST' if safe else 'CAST'}({expression_text(argument)} AS {kind})"
        case AggregateCall():
            return _aggregate(expr)
        case Call():
            return _operator(expr) if expr.function in OPERATORS else _function(expr)
        case _:
            raise PlanError(f"cannot print an expression of kind {type(expr).__name__}")


def _tightness(expr: Expr) -> int:
    if isinstance(expr, Call):
        return _TIGHTNESS.get(expr.function, _ATOM)
    if isinstance(expr, Literal) and _is_negative(expr):
        return _TIGHTNESS["negative"]
    return _ATOM


def _is_negative(literal: Literal) -> bool:
    value = literal.value
    if isinstance(value, float):
        return math.isfinite(value) and math.copysign(1, value) < 0
    return isinstance(value, int | decimal.Decimal) and value < 0


def _operand(expr: Expr, at_least: int) -> str:
    text = expression_text(expr)
    return text if _tightness(expr) >= at_least else f"({text})"


def _function(call: Call) -> str:
    return f"{call.function}({', '.join(map(expression_text, call.arguments))})"


def _operator(call: Call) -> str:
    function, arguments = call.function, call.arguments
    own = _TIGHTNESS.get(function, _ATOM)
    match function:
        case "case":
            return _case(arguments)
        case "not":
            return _negation(arguments[0])
        case "isnull":
            return f"{_operand(arguments[0], own + 1)} IS NULL"
        case "in":
            return _membership(arguments, "IN")
        case "field":
            return f"{_operand(arguments[0], own)}.{_field_name(arguments[1])}"
        case "item":
            return f"{_operand(arguments[0], own)}[{expression_text(arguments[1])}]"
        case "negative" | "~":
            # '- -1' would read as a comment without the brackets.
            return f"{OPERATORS[function]}{_operand(arguments[0], own + 1)}"
        case "and" | "or":
            return f" {OPERATORS[function]} ".join(_operand(a, own) for a in arguments)
        case _:
            # Comparisons do not chain; the others group to the left.
            first = own + 1 if own == _PREDICATE else own
            texts = [_operand(arguments[0], first)]
            texts += [_operand(a, own + 1) for a in arguments[1:]]
            return f" {OPERATORS[function]} ".join(texts)


def _negation(argument: Expr) -> str:
    if isinstance(argument, Call):
        if argument.function == "isnull":
            return f"{_operand(argument.arguments[0], _PREDICATE + 1)} IS NOT NULL"
        if argument.function == "in":
            return _membership(argument.arguments, "NOT IN")
        if argument.function in _NEGATABLE:
            left, right = (_operand(a, _PREDICATE + 1) for a in argument.arguments[:2])
            return f"{left} {_NEGATABLE[argument.function]} {right}"
    return f"NOT {_operand(argument, _PREDICATE + 1)}"


def _membership(arguments: tuple[Expr, ...], word: str) -> str:
    choices = ", ".join(map(expression_text, arguments[1:]))
    return f"{_operand(arguments[0], _PREDICATE + 1)} {word} ({choices})"


def _case(arguments: tuple[Expr, ...]) -> str:
    pairs = len(arguments) // 2
    whens = [
        f"WHEN {expression_text(arguments[2 * i])} THEN {expression_text(arguments[2 * i + 1])}"
        for i in range(pairs)
    ]
    default = arguments[2 * pairs :]
    if default and not (isinstance(default[0], Literal) and default[0].value is None):
        whens.append(f"ELSE {expression_text(default[0])}")
    return " ".join(["CASE", *whens, "END"])


def _field_name(field: Expr) -> str:
    if isinstance(field, Literal) and isinstance(field.value, str):
        return _name(field.value)
    return expression_text(field)


def named_text(named: Named) -> str:
    """An expression and its name, which is left out where it says nothing new."""
    text = expression_text(named.expr)
    return text if text in (named.name, _name(named.name)) else f"{text} AS {_name(named.name)}"


def _aggregate(call: AggregateCall) -> str:
    arguments = ", ".join(map(expression_text, call.arguments))
    if call.function == "count" and not call.arguments:
        arguments = "*"
    text = f"{call.function}({'DISTINCT ' if call.distinct else ''}{arguments})"
    if call.filter is not None:
        text += f" FILTER (WHERE {expression_text(call.filter)})"
    return text


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _literal(literal: Literal) -> str:
    value, kind = literal.value, literal.data_type
    suffix = _SUFFIXES.get(kind.name, "")
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return f"{value}{suffix}"
        case float():
            if math.isfinite(value):
                return f"{value!r}{suffix}"
            spelt = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
            return f"{kind}('{spelt}')"
        case decimal.Decimal():
            # Without a point Spark would read an integer.
            text = f"{value:f}"
            return text if "." in text else f"{text}BD"
        case bytes():
            return f"X'{value.hex().upper()}'"
        case datetime.datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case datetime.date():
            return f"DATE '{value.isoformat()}'"
        case str():
            escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
            return f"INTERVAL '{escaped}'" if kind.is_interval else f"'{escaped}'"


# --- windows and joins ---------------------------------------------------------------------------


def window_text(window: Window, time: str) -> str:
    """The window as a query writes it.

    >>> window_text(Hopping(3_600_000, 600_000), "ts")
    "window(ts, '1 hour', '10 minutes')"
    """
    match window:
        case Hopping(length=length, slide=slide, offset=offset):
            spans = [length] if window.tumbling and not offset else [length, slide]
            spans += [offset] if offset else []
            durations = ", ".join(f"'{format_duration(span)}'" for span in spans)
            return f"window({time}, {durations})"
        case Session(gap=gap):
            return f"session_window({time}, '{format_duration(gap)}')"
        case Trailing(length=length):
            return f"trailing({time}, '{format_duration(length)}')"
        case Current(length=length, offset=offset):
            return window_text(Hopping(length, length, offset), time)
        case Landmark():
            return f"landmark({time})"
        case InheritedWindow():
            return time
        case _:
            raise PlanError(f"cannot print a window of kind {type(window).__name__}")


def windows_text(node: Aggregate) -> str:
    """All windows of an aggregate, as its query writes them."""
    texts = [window_text(window, _name(node.time.name)) for window in node.windows]
    if node.also:
        texts += [window_text(part.window, _name(part.time.name)) for part in node.also]
        return ", ".join(texts)
    return texts[0] if len(texts) == 1 else f"windows({', '.join(texts)})"


def join_time_text(time: JoinTime) -> str:
    """A join's condition on time, as a query writes it."""
    left, right = _name(time.left.name), _name(time.right.name)
    match time:
        case SameWindow(window=window):
            return f"{window_text(window, left)} = {window_text(window, right)}"
        case SameSession(gap=gap):
            session = Session(gap)
            return f"{window_text(session, left)} = {window_text(session, right)}"
        case IntervalBound(lower=None, upper=None):
            return f"{right} at any time from {left}"
        case IntervalBound(lower=None, upper=int(upper)):
            return f"{right} <= {_shifted(left, upper)}"
        case IntervalBound(lower=int(lower), upper=None):
            return f"{right} >= {_shifted(left, lower)}"
        case IntervalBound(lower=int(lower), upper=int(upper)):
            return f"{right} BETWEEN {_shifted(left, lower)} AND {_shifted(left, upper)}"
        case _:
            raise PlanError(f"cannot print a join time of kind {type(time).__name__}")


def _shifted(time: str, by: int) -> str:
    if by == 0:
        return time
    return f"{time} {'+' if by > 0 else '-'} INTERVAL '{format_duration(abs(by))}'"


# --- nodes ---------------------------------------------------------------------------------------


def node_details(node: Node) -> tuple[str, list[str]]:
    """A node's title and the parts that describe it, without its inputs, as they may be shown."""
    title, parts = _details(node)
    return redacted(title), [redacted(part) for part in parts]


def _details(node: Node) -> tuple[str, list[str]]:
    match node:
        case Source():
            time = f"time {_name(node.time)}" + (" (processing)" if node.processing else "")
            parts = [time]
            parts += [f"delay {format_duration(node.delay)}"] if node.delay else []
            parts += [f"ttl {format_duration(node.ttl)}"] if node.ttl is not None else []
            return f"Source {_name(node.shown)} [{_names(node.columns.names)}]", parts
        case Table():
            return f"Table {_name(node.shown)} [{_names(node.columns.names)}]", []
        case Filter():
            return f"Filter {node.predicate}", []
        case Project():
            return f"Project [{', '.join(map(named_text, node.columns))}]", []
        case Aggregate():
            parts = [f"by {', '.join(map(named_text, node.keys))}"] if node.keys else []
            return f"Aggregate [{', '.join(map(named_text, node.aggregates))}]", [
                *parts,
                f"over {windows_text(node)}",
                *([f"windows share: {node.sharing}"] if node.sharing else []),
                *([f"aggregated early: {node.early}"] if node.early else []),
            ]
        case Join():
            return f"Join {node.kind.value}{_sides(node)}", _join_parts(node)
        case Union():
            return "Union", []
        case Sink():
            parts = [f"{key}={shown_option(key, value)}" for key, value in node.options]
            return f"Sink {node.name} to {node.format}, {node.mode.value}", parts
        case _:
            raise PlanError(f"cannot print a node of kind {type(node).__name__}")


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(map(_name, names))


def _sides(node: Join) -> str:
    if node.left_alias is None and node.right_alias is None:
        return ""
    return f" {node.left_alias or '_'}, {node.right_alias or '_'}"


def _join_parts(node: Join) -> list[str]:
    parts = []
    if node.keys:
        keys = [
            f"{_operand(a, _PREDICATE + 1)} = {_operand(b, _PREDICATE + 1)}" for a, b in node.keys
        ]
        parts.append(f"on {' AND '.join(keys)}")
    if node.times:
        parts.append(f"within {' AND '.join(join_time_text(time) for time in node.times)}")
    if node.residual is not None:
        parts.append(f"where {node.residual}")
    if node.emits_window:
        parts.append("a row per window")
    if node.order is not None:
        parts.append(f"in the order {order_text(node.order, join_graph(node).names)}")
    return parts


def node_text(node: Node) -> str:
    """One line about one node, without its inputs."""
    title, parts = node_details(node)
    return " ".join([title, *(f"{part}," for part in parts)]).removesuffix(",")


# --- plans ---------------------------------------------------------------------------------------


def shared_nodes(plans: Sequence[Node]) -> list[Node]:
    """Subplans with more than one user, each before those that use it; leaves are not counted."""
    uses: dict[Node, int] = {}
    finished: list[Node] = []

    def visit(node: Node) -> None:
        uses[node] = uses.get(node, 0) + 1
        if uses[node] == 1:
            for child in node.inputs:
                visit(child)
            finished.append(node)

    for plan in plans:
        visit(plan)
    return [node for node in finished if uses[node] > 1 and node.inputs]


def plan_text(node: Node) -> str:
    """The plan as an indented tree, shared subplans first.

    >>> from headrace.plan.types import BOOLEAN, INT, TIMESTAMP, Schema
    >>> bids = Source("bids", Schema.of([("price", INT), ("ts", TIMESTAMP)]), "ts")
    >>> cheap = Filter(bids, Call("<", (Column("price", INT), Literal(5, INT)), BOOLEAN))
    >>> print(plan_text(Union((cheap, cheap))))
    r0 := Filter price < 5
            Source bids [price, ts] time ts
    <BLANKLINE>
    Union
      r0
      r0
    """
    return plans_text([node])


def plans_text(
    plans: Sequence[Node],
    names: Sequence[str] | None = None,
    notes: Mapping[Node, str] | None = None,
) -> str:
    """Several plans, with what they share printed once.

    ``names`` label the plans; ``notes`` go behind the line of a node, such as its rows per second.
    """
    notes = notes or {}
    labels: dict[Node, str] = {}
    blocks = []
    for node in shared_nodes(plans):
        label = f"r{len(labels)} := "
        blocks.append(_hanging(label, _tree(node, labels, notes)))
        labels[node] = f"r{len(labels)}"
    for index, plan in enumerate(plans):
        lines = [labels[plan]] if plan in labels else _tree(plan, labels, notes)
        blocks.append(_hanging(f"{names[index]}: " if names else "", lines))
    return "\n\n".join(blocks)


def _tree(node: Node, labels: dict[Node, str], notes: Mapping[Node, str]) -> list[str]:
    lines = [node_text(node) + (f"  ({notes[node]})" if node in notes else "")]
    for child in node.inputs:
        below = [labels[child]] if child in labels else _tree(child, labels, notes)
        lines += ["  " + line for line in below]
    return lines


def _hanging(label: str, lines: list[str]) -> str:
    return "\n".join([label + lines[0], *(" " * len(label) + line for line in lines[1:])])
