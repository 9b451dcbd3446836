r"""Regular expressions that Java's engine and RE2, which is DuckDB's, read alike.

What is taken: plain characters, ``.``, classes, groups, alternatives, ``^`` and ``$``, ``\d \w \D
\W`` and escaped punctuation, and quantifiers, also lazy ones. Both then look for the first match
from the left, and prefer what stands first in the pattern. Not taken is what RE2 does not have,
what goes by other tables of letters, and repetitions of what may be empty, of which the engines
tell different groups.

Two things are written otherwise. Java's ``.`` leaves out five characters, RE2's one; and Java's
``$`` also stands before a line break that ends the text. It takes nothing of that, and does not
stand within ``\r\n``: a pattern with ``$`` must not itself match a line break.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from headrace.engine.execution.duckdb.untranslatable import (
    Untranslatable,
    constant_number,
    constant_text,
)
from headrace.sql.render import type_of

_NO_LINE_BREAK = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_AT_THE_END = r"(?:(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z)"
_LINE_BREAKS = "\u0085\u2028\u2029"
_PUNCTUATION = frozenset(r".\+*?()[]{}|^$-/&=:;,#%@!<>~'\"_ ")
_CLASSES = {"d": r"[0-9]", "D": r"[^0-9]", "w": r"[a-zA-Z0-9_]", "W": r"[^a-zA-Z0-9_]"}
_IN_CLASSES = {"d": "0-9", "w": "a-zA-Z0-9_"}


@dataclass(frozen=True)
class Pattern:
    """A pattern in RE2's terms, how many groups it has, and what is known of its matches."""

    text: str
    groups: int
    may_be_empty: bool
    has_end: bool


class _Reader:
    """Reads a pattern of Java's from left to right."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.place = 0
        self.groups = 0
        self.has_end = False
        self.takes_breaks = False

    def read(self) -> Pattern:
        text, empty = self._alternatives()
        if self.place < len(self.pattern) or (self.has_end and self.takes_breaks):
            raise self._unknown()
        return Pattern(text, self.groups, empty, self.has_end)

    def _unknown(self) -> Untranslatable:
        return Untranslatable(f"the pattern {self.pattern!r}, which not both engines read alike")

    def _peek(self) -> str:
        return self.pattern[self.place : self.place + 1]

    def _take(self) -> str:
        character = self._peek()
        if not character:
            raise self._unknown()
        self.place += 1
        return character

    def _alternatives(self) -> tuple[str, bool]:
        text, empty = self._sequence()
        while self._peek() == "|":
            self._take()
            more, more_empty = self._sequence()
            text, empty = f"{text}|{more}", empty or more_empty
        return text, empty

    def _sequence(self) -> tuple[str, bool]:
        text, empty = "", True
        while self._peek() not in ("", "|", ")"):
            piece, piece_empty = self._repeated()
            text, empty = text + piece, empty and piece_empty
        return text, empty

    def _repeated(self) -> tuple[str, bool]:
        piece, empty = self._atom()
        quantifier = self._quantifier()
        if not quantifier:
            return piece, empty
        if empty:
            raise self._unknown()
        return piece + quantifier, quantifier[0] in "*?" or quantifier.startswith("{0")

    def _quantifier(self) -> str:
        sign = self._peek()
        if sign in ("*", "+", "?") and sign:
            self._take()
            text = sign
        elif sign == "{":
            end = self.pattern.find("}", self.place)
            bounds = self.pattern[self.place + 1 : end].split(",") if end > 0 else []
            numbers = [bound for bound in bounds if bound]
            fits = (
                1 <= len(bounds) <= 2
                and bounds[0]
                and all(number.isdecimal() and len(number) < 4 for number in numbers)
            )
            if not fits:
                raise self._unknown()
            text, self.place = self.pattern[self.place : end + 1], end + 1
        else:
            return ""
        if self._peek() == "+":
            raise self._unknown()
        return text + (self._take() if self._peek() == "?" else "")

    def _atom(self) -> tuple[str, bool]:
        character = self._take()
        match character:
            case "(":
                return self._group()
            case "[":
                return self._class(), False
            case ".":
                return _NO_LINE_BREAK, False
            case "^":
                return "^", True
            case "$":
                self.has_end = True
                return _AT_THE_END, True
            case "\\":
                return self._escaped(), False
            case "*" | "+" | "?" | "{" | "}" | "]" | ")":
                raise self._unknown()
            case _:
                return self._plain(character), False

    def _plain(self, character: str) -> str:
        # A character of two halves in Java would be quantified by its second half alone.
        if not 0x20 <= ord(character) < 0xD800:
            raise self._unknown()
        self.takes_breaks |= character in _LINE_BREAKS
        return character

    def _group(self) -> tuple[str, bool]:
        opening = "("
        if self._peek() == "?":
            if self.pattern[self.place : self.place + 2] != "?:":
                raise self._unknown()
            self.place += 2
            opening = "(?:"
        else:
            self.groups += 1
        text, empty = self._alternatives()
        if self._take() != ")":
            raise self._unknown()
        return f"{opening}{text})", empty

    def _escaped(self) -> str:
        character = self._take()
        if character in _CLASSES:
            self.takes_breaks |= character.isupper()
            return _CLASSES[character]
        if character in ("t", "n", "r"):
            self.takes_breaks |= character != "t"
            return f"\\{character}"
        if character in _PUNCTUATION:
            return character if character in "-/&=:;,#%@!<>~'\"_ " else f"\\{character}"
        raise self._unknown()

    def _class(self) -> str:
        text = "[" + (self._take() if self._peek() == "^" else "")
        self.takes_breaks |= text == "[^"
        first = True
        while self._peek() != "]" or first:
            character = self._take()
            if character == "\\":
                character = self._take()
                if character in _IN_CLASSES:
                    text += _IN_CLASSES[character]
                elif character in ("t", "n", "r"):
                    self.takes_breaks = True
                    text += f"\\{character}"
                elif character in _PUNCTUATION:
                    text += f"\\{character}" if character in r"\]^-[" else character
                else:
                    raise self._unknown()
            elif character in "[]" or (character == "&" and self._peek() == "&"):
                raise self._unknown()
            else:
                # A range up to here.
                self.takes_breaks |= text.endswith("-") and character > "\u0085"
                text += self._plain(character)
            first = False
        self._take()
        return text + "]"


def read_pattern(pattern: str) -> Pattern:
    """A pattern of Java's in RE2's terms.

    >>> read_pattern("(&|^)channel_id=([^&]*)").text
    '(&|^)channel_id=([^&]*)'
    >>> read_pattern("a.b$").has_end
    True
    """
    return _Reader(pattern).read()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _require_text(node: exp.Expr) -> None:
    kind = type_of(node)
    if kind is None or kind.name != "string":
        raise Untranslatable(f"a pattern in a {kind}")


def matches(node: exp.RegexpLike, text: Callable[[exp.Expr], str]) -> str:
    """``RLIKE``: whether the pattern is somewhere in a text."""
    _require_text(node.this)
    pattern = read_pattern(constant_text(node.expression, "a pattern"))
    return f"regexp_matches({text(node.this)}, {_quoted(pattern.text)})"


def _extracted(nodes: Sequence[exp.Expr], texts: list[str]) -> str:
    _require_text(nodes[0])
    pattern = read_pattern(constant_text(nodes[1], "a pattern"))
    group = constant_number(nodes[2], "a group") if len(nodes) == 3 else 1
    if pattern.has_end or not 0 <= group <= pattern.groups:
        raise Untranslatable("what a pattern matches that goes up to the end of a text")
    return f"regexp_extract({texts[0]}, {_quoted(pattern.text)}, {group})"


def _replaced(nodes: Sequence[exp.Expr], texts: list[str]) -> str:
    _require_text(nodes[0])
    pattern = read_pattern(constant_text(nodes[1], "a pattern"))
    replacement = constant_text(nodes[2], "a replacement")
    if pattern.has_end or pattern.may_be_empty or len(nodes) != 3:
        raise Untranslatable("replacing what may be empty, or goes up to the end of a text")
    if "$" in replacement or "\\" in replacement:
        raise Untranslatable("a replacement with groups")
    return f"regexp_replace({texts[0]}, {_quoted(pattern.text)}, {_quoted(replacement)}, 'g')"


TRANSLATIONS: dict[str, Callable[[Sequence[exp.Expr], list[str]], str]] = {
    "regexp_extract": _extracted,
    "regexp_replace": _replaced,
}
