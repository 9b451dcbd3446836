"""The window functions: ``window``, ``windows``, ``session_window``, ``trailing``, ``landmark``.

They are no scalar functions. While a query is bound they are :class:`WindowCall` expressions,
which are compared and matched like any other; a finished plan holds none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from headrace.errors import DurationError, HeadraceError
from headrace.plan.durations import format_duration, parse_duration
from headrace.plan.expressions import Call, Column, Expr, Literal, window_time
from headrace.plan.types import INTERVAL, STRING, TIMESTAMP, WINDOW, DataType
from headrace.plan.windows import Hopping, Landmark, Session, Trailing, Window
from headrace.sql.positions import position_of
from headrace.sql.refusals import refuse


@dataclass(frozen=True)
class WindowCall(Expr):
    """A window function of a time: a column, or ``window_time`` of one."""

    function: str
    time: Expr
    windows: tuple[Window, ...]

    @property
    def type(self) -> DataType:
        return WINDOW

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.time,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return WindowCall(self.function, children[0], self.windows)

    def __str__(self) -> str:
        names = ", ".join(getattr(w, "name", "") for w in self.windows)
        return f"{self.function}({names})"


_ARGUMENTS = {
    "window": (2, 4, "window(time, length[, slide[, offset]])"),
    "session_window": (2, 2, "session_window(time, gap)"),
    "trailing": (2, 2, "trailing(time, length)"),
    "landmark": (1, 1, "landmark(time)"),
}

Bind = Callable[[exp.Expr], Expr]


def bind_window_call(node: exp.Anonymous, bind: Bind) -> WindowCall:
    """Read a window function; its time argument is bound by ``bind``."""
    name = node.name.lower()
    if name == "windows":
        return _several(node, bind)
    least, most, form = _ARGUMENTS[name]
    given = len(node.expressions)
    if not least <= given <= most:
        refuse("ARGUMENT_COUNT", node, name=name, expected=f"the form {form}", given=given)
    time = _time(node.expressions[0], name, bind)
    durations = [_duration(argument, bind) for argument in node.expressions[1:]]
    try:
        return WindowCall(name, time, (_window(name, durations),))
    except DurationError as error:
        raise at(error, node.expressions[1]) from None


def _window(name: str, durations: list[int]) -> Window:
    match name:
        case "window":
            length, *rest = durations
            slide = rest[0] if rest else length
            return Hopping(length, slide, rest[1] if len(rest) > 1 else 0)
        case "session_window":
            return Session(durations[0])
        case "trailing":
            return Trailing(durations[0])
        case _:
            return Landmark()


def _several(node: exp.Anonymous, bind: Bind) -> WindowCall:
    calls: list[WindowCall] = []
    for argument in node.expressions:
        is_window = isinstance(argument, exp.Anonymous) and argument.name.lower() == "window"
        if not is_window:
            refuse(
                "INVALID_WINDOWS",
                argument,
                reason="this is not a call of window(…)",
                time=_time_shown(calls),
            )
        call = bind_window_call(argument, bind)
        if calls and call.time != calls[0].time:
            refuse("INVALID_WINDOWS", argument, reason="the times differ", time=_time_shown(calls))
        if any(call.windows == other.windows for other in calls):
            refuse(
                "INVALID_WINDOWS",
                argument,
                reason="the same window is asked for twice",
                time=_time_shown(calls),
            )
        calls.append(call)
    if not calls:
        refuse("INVALID_WINDOWS", node, reason="there is none", time="ts")
    windows = tuple(window for call in calls for window in call.windows)
    # One window is that window: `windows(window(…))` and `window(…)` are the same query.
    return WindowCall("windows" if len(windows) > 1 else "window", calls[0].time, windows)


def _time_shown(calls: list[WindowCall]) -> str:
    time = calls[0].time if calls else None
    return time.name if isinstance(time, Column) else "ts"


def _time(node: exp.Expr, function: str, bind: Bind) -> Expr:
    """A time column; a window stands for its last instant, as in Spark."""
    time = bind(node)
    if time.type == WINDOW and isinstance(time, Column):
        return window_time(time)
    if isinstance(time, Column) and time.type == TIMESTAMP:
        return time
    if isinstance(time, Call) and time.function == "window_time":
        return time
    shown = time.name if isinstance(time, Column) else "this expression"
    advice = "use the stream's time column"
    if not isinstance(time, Column) and time.type == TIMESTAMP:
        shown, advice = "this", "use the stream's time column itself, not a computed time"
        refuse("NOT_A_TIME", node, name=function, column=shown, type="computed", advice=advice)
    refuse("NOT_A_TIME", node, name=function, column=shown, type=time.type, advice=advice)


def _duration(node: exp.Expr, bind: Bind) -> int:
    """A duration in milliseconds, from a string or an INTERVAL."""
    literal = bind(node)
    if not isinstance(literal, Literal) or literal.type not in (STRING, INTERVAL):
        raise DurationError(
            "a window's duration must be a constant",
            hint="write for example '10 minutes'",
            position=position_of(node),
        )
    try:
        return parse_duration(str(literal.value))
    except DurationError as error:
        raise at(error, node) from None


def at(error: HeadraceError, node: exp.Expr) -> HeadraceError:
    """The same error, with the place in the text."""
    return type(error)(
        error.message,
        hint=error.hint,
        position=error.position or position_of(node),
        condition=error.condition,
    )


def describe(call: WindowCall) -> str:
    """A window function as a user would write it."""
    window = call.windows[0]
    match window:
        case Hopping():
            parts = [window.length]
            if not window.tumbling or window.offset:
                parts.append(window.slide)
            if window.offset:
                parts.append(window.offset)
            return f"window({', '.join(repr(format_duration(p)) for p in parts)})"
        case Session(gap=gap):
            return f"session_window({format_duration(gap)!r})"
        case _:
            return str(call)
