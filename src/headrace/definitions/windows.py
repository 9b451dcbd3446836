"""From rows or panes to the windows that hold them, as SQL.

What a row is offered to, the windows and how far back each begins, is a constant array of structs,
and one expression places the row into whichever window of the array it meets. With an expression
per window the generated Java method of 40 windows is too long for the JIT compiler: ten times
slower. An array of starts made by ``sequence`` is not code-generated at all: 14 times slower.

The bounds of an epoch are in that array too, and not in conditions, so that Spark need not compile
the same code for each epoch (see ``constants``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from headrace.definitions.definition import (
    Sql,
    call,
    column,
    constants,
    named,
    number,
    select,
    text,
)
from headrace.plan.windows import Hopping

WINDOW_INDEX = "__window"
WINDOW_START = "__start"

# The fields of an offer, besides the number of its window.
_LENGTH, _SLIDE, _OFFSET, _BACK = "__length", "__slide", "__offset", "__back"
_ABOVE, _UP_TO, _START_FROM = "__above", "__up_to", "__start_from"


@dataclass(frozen=True)
class Ends:
    """The windows of interest: those whose end lies in ``(above, up_to]``, from a start on."""

    above: int | None
    up_to: int | None
    start_from: int | None = None

    def bounds(self) -> dict[str, int]:
        """The bounds as fields of an offer."""
        fields = {_ABOVE: self.above, _UP_TO: self.up_to, _START_FROM: self.start_from}
        return {name: value for name, value in fields.items() if value is not None}

    def conditions(self) -> list[Sql]:
        """Whether a row was placed into a window of interest."""
        end = column(WINDOW_START) + column(_LENGTH)
        conditions: list[Sql] = []
        if self.above is not None:
            conditions.append(end > column(_ABOVE))
        if self.up_to is not None:
            conditions.append(end.copy() <= column(_UP_TO))
        if self.start_from is not None:
            conditions.append(column(WINDOW_START) >= column(_START_FROM))
        return conditions

    def least_time(self, windows: Iterable[Hopping]) -> int | None:
        """No row before this time lies in a window of interest."""
        if self.above is None:
            return self.start_from
        earliest = min(self.above - window.length + 1 for window in windows)
        return earliest if self.start_from is None else max(earliest, self.start_from)

    def greatest_time(self) -> int | None:
        """No row at or after the latest end lies in a window of interest."""
        return None if self.up_to is None else self.up_to - 1


def ends_of_interest(
    before: int | None, after: int | None, lag: int, start_from: int | None, changes: bool
) -> Ends | None:
    """The windows that an epoch may put out, by its watermarks; None where there are none.

    Those that close in it, or with ``changes`` all that are still open.
    """
    above = None if before is None else before - lag
    if changes:
        return Ends(above, None, start_from)
    if after is None or before == after:
        return None
    return Ends(above, after - lag, start_from)


def expand(source: exp.Query, time: Sql, windows: Mapping[int, Hopping], ends: Ends) -> exp.Select:
    """Each input row once per window of interest that holds its time (ms).

    Adds the columns ``__window`` (the number of the window) and ``__start``.
    """
    bounds = ends.bounds()
    offered = [o for index, window in windows.items() for o in offers(index, window, **bounds)]
    generated = select(source, None)
    generated = generated.select(call("inline", constants(offered)), copy=False)
    placed = select(generated, None)
    placed = placed.select(named(start_of_offer(time), WINDOW_START), copy=False)
    inside = time.copy() < column(WINDOW_START) + column(_LENGTH)
    return select(placed, None, [inside, *ends.conditions()])


#: A window that a row may be in: numbers by name.
Offer = dict[str, int]


def offers(index: int, window: Hopping, **more: int) -> list[Offer]:
    """The windows of a set that may hold a time: the latest, the one before, …"""
    return [
        {
            WINDOW_INDEX: index,
            _LENGTH: window.length,
            _SLIDE: window.slide,
            _OFFSET: window.offset,
            _BACK: back * window.slide,
            **more,
        }
        for back in range(window.overlap)
    ]


def offers_by_number(offered: list[list[Offer]]) -> Sql:
    """An array of offers for each of several numbers, as one constant."""
    names = next(offer for some in offered for offer in some)
    fields = ", ".join(f"{name}: bigint" for name in names)
    kind = f"array<array<struct<{fields}>>>"
    return call("from_json", text(json.dumps(offered)), text(kind))


def start_of_offer(time: Sql) -> Sql:
    """The start of the window that a row was offered to."""
    into = call("pmod", exp.paren(time.copy() - column(_OFFSET)), column(_SLIDE))
    return time - into - column(_BACK)


def length_of_offer() -> Sql:
    return column(_LENGTH)


def numbered(windows: Iterable[Hopping]) -> dict[int, Hopping]:
    return dict(enumerate(windows))


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
