"""``${NAME}`` and ``${NAME:-default}`` in values of a pipeline file, taken from the environment.

A value is put in when YAML has been read: whatever it holds, it is text of the scalar in which it
stands. ``$${`` stands for ``${``. Every other dollar sign is one: those of regular expressions, of
JSON paths, and of Spark's own ``${env:NAME}``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.errors import Position

_REFERENCE = re.compile(
    r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<fallback>:-(?P<default>[^}]*))?\}"
)


@dataclass(frozen=True)
class Substitution:
    """A stretch of the written text, and what stands for it."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Substituted:
    """A text with values put in, which still knows how it was written."""

    written: str
    pieces: tuple[Substitution, ...] = ()
    #: The values that the environment gave.
    values: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def text(self) -> str:
        done, parts = 0, []
        for piece in self.pieces:
            parts += [self.written[done : piece.start], piece.text]
            done = piece.end
        return "".join([*parts, self.written[done:]])

    def position_written(self, inside: Position) -> Position:
        """Where a place of the text stands as written; within a value, where that is named.

        >>> text = substituted("a ${A} c", {"A": "1\\n2"}.get)
        >>> str(text.position_written(Position(2, 3)))
        'line 1, column 8'
        """
        lines = self.text.split("\n")[: inside.line - 1]
        place = sum(len(line) + 1 for line in lines) + inside.column - 1
        done = 0
        for piece in self.pieces:
            begin = piece.start - done
            if place < begin:
                break
            if place < begin + len(piece.text):
                return position_in(self.written, piece.start, inside.file)
            place -= len(piece.text)
            done += piece.end - piece.start
        return position_in(self.written, place + done, inside.file)


class Unset(Exception):
    """A name that the environment does not have."""

    def __init__(self, name: str, place: int, number: int) -> None:
        super().__init__(name)
        self.name, self.place, self.number = name, place, number


class Nested(Exception):
    """A default that names another value."""

    def __init__(self, place: int, number: int) -> None:
        super().__init__(place)
        self.place, self.number = place, number


def substituted(written: str, environment: Callable[[str], str | None]) -> Substituted:
    """The text with its references replaced.

    >>> substituted("${A} $1 $${A} ${B:-none}", {"A": "x"}.get).text
    'x $1 ${A} none'
    """
    pieces, values = [], set()
    for number, match in enumerate(_REFERENCE.finditer(written)):
        name, default = match["name"], match["default"]
        if name is None:
            pieces.append(Substitution(match.start(), match.end(), "${"))
            continue
        if default is not None and "${" in default:
            raise Nested(match.start(), number)
        value = environment(name)
        # As in a shell, :- stands in for what is empty as well.
        if default is not None and not value:
            value = default
        elif value is None:
            raise Unset(name, match.start(), number)
        else:
            values.add(value)
        pieces.append(Substitution(match.start(), match.end(), value))
    return Substituted(written, tuple(pieces), frozenset(values))


def references(text: str) -> list[int]:
    """Where references stand in a text."""
    return [match.start() for match in _REFERENCE.finditer(text)]


def position_in(text: str, place: int, file: str | None) -> Position:
    before = text[:place]
    return Position(before.count("\n") + 1, place - (before.rfind("\n") + 1) + 1, file)
