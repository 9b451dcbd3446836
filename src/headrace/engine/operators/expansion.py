"""From rows or panes to the windows that hold them, as SQL."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from headrace.engine.relations import (
    Sql,
    all_of,
    any_of,
    call,
    column,
    floor_to,
    named,
    number,
    select,
    struct,
)
from headrace.plan.windows import Hopping

WINDOW_INDEX = "__window"
WINDOW_START = "__start"


@dataclass(frozen=True)
class Ends:
    """The windows of interest: those whose end lies in ``(above, up_to]``, from a start on."""

    above: int | None
    up_to: int | None
    start_from: int | None = None

    def condition(self, window: Hopping, start: Sql) -> list[Sql]:
        found: list[Sql] = []
        if self.above is not None:
            found.append(start.copy() > number(self.above - window.length))
        if self.up_to is not None:
            found.append(start.copy() <= number(self.up_to - window.length))
        if self.start_from is not None:
            found.append(start.copy() >= number(self.start_from))
        return found

    def least_time(self, windows: tuple[Hopping, ...]) -> int | None:
        """No row before this time lies in a window of interest."""
        if self.above is None:
            return self.start_from
        earliest = min(self.above - window.length + 1 for window in windows)
        return earliest if self.start_from is None else max(earliest, self.start_from)

    def greatest_time(self) -> int | None:
        """No row at or after the latest end lies in a window of interest."""
        return None if self.up_to is None else self.up_to - 1


def expand(source: exp.Query, time: Sql, windows: tuple[Hopping, ...], ends: Ends) -> exp.Select:
    """Each input row once per window of interest that holds its time (ms).

    Adds the columns ``__window`` (which of the windows) and ``__start``. ``inline`` over an array
    of structs is code-generated; a ``sequence`` of starts is not and was 14 times slower.
    """
    if len(windows) == 1 and windows[0].overlap == 1:
        window = windows[0]
        start = floor_to(time, window.slide, window.offset)
        placed = _with_columns(source, {WINDOW_INDEX: exp.Literal.number(0), WINDOW_START: start})
        where = ends.condition(window, column(WINDOW_START))
        if window.slide > window.length:
            where.append(time.copy() < column(WINDOW_START) + number(window.length))
        return select(placed, None, where)
    candidates: list[Sql] = []
    for index, window in enumerate(windows):
        for back in range(window.overlap):
            start = floor_to(time.copy(), window.slide, window.offset) - number(back * window.slide)
            fields = {WINDOW_INDEX: exp.Literal.number(index), WINDOW_START: exp.paren(start)}
            candidates.append(struct(**fields))
    generator = call("inline", call("array", *candidates))
    placed = select(source, None)
    placed = placed.select(generator, copy=False)
    checks = []
    for index, window in enumerate(windows):
        inside = [
            column(WINDOW_INDEX).eq(index),
            time.copy() < column(WINDOW_START) + number(window.length),
            *ends.condition(window, column(WINDOW_START)),
        ]
        condition = all_of(inside)
        assert condition is not None
        checks.append(exp.paren(condition))
    return select(placed, None, [exp.paren(any_of(checks))])


def end_of(windows: tuple[Hopping, ...]) -> Sql:
    """The end of the window that a row was expanded to."""
    if len(windows) == 1:
        return column(WINDOW_START) + number(windows[0].length)
    lengths = exp.Case(
        ifs=[
            exp.If(this=column(WINDOW_INDEX).eq(index), true=number(window.length))
            for index, window in enumerate(windows)
        ]
    )
    return column(WINDOW_START) + lengths


def name_of(windows: tuple[Hopping, ...]) -> Sql:
    """The name of the window that a row was expanded to."""
    return exp.Case(
        ifs=[
            exp.If(this=column(WINDOW_INDEX).eq(index), true=exp.Literal.string(window.name))
            for index, window in enumerate(windows)
        ]
    )


def _with_columns(source: exp.Query, columns: dict[str, Sql]) -> exp.Select:
    query = select(source, None)
    return query.select(*(named(value, name) for name, value in columns.items()), copy=False)
