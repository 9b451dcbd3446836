"""Where in the user's text a node of sqlglot's tree began."""

from __future__ import annotations

from sqlglot import exp

from headrace.errors import Position

_LINE = "headrace_line"
_COLUMN = "headrace_column"


def mark_positions(tree: exp.Expr, text: str, shift: int = 0) -> None:
    """Turn the offsets that the parser left into lines and columns.

    They stay with the nodes when trees of several texts are put together. ``shift`` is the length
    of what was put before the user's own text.
    """
    for node in tree.walk():
        offset = node.meta.get("start")
        if offset is not None:
            place = place_of_offset(text, offset, shift)
            node.meta[_LINE], node.meta[_COLUMN] = place.line, place.column


def place_of_offset(text: str, offset: int, shift: int = 0) -> Position:
    """The line and column of a character of the text."""
    line = text.count("\n", 0, offset) + 1
    column = offset - text.rfind("\n", 0, offset)
    return Position(line, column - (shift if line == 1 else 0))


def position_of(node: exp.Expr | None) -> Position | None:
    """Where a node begins: its own mark, or else the first mark below it."""
    if node is None:
        return None
    if _LINE in node.meta:
        return Position(node.meta[_LINE], node.meta[_COLUMN])
    marked = [below.meta for below in node.walk() if _LINE in below.meta]
    places = [(meta[_LINE], meta[_COLUMN]) for meta in marked]
    return Position(*min(places)) if places else None
