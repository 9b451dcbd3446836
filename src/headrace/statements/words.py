"""A text of statements, word by word, each with its place.

The words are those of the SQL reader, so that quotes and comments end where they do there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import ClassVar, NoReturn

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from headrace.errors import Position
from headrace.sql.dialect import HeadraceDialect
from headrace.sql.positions import place_of_offset
from headrace.statements.statement import StatementError


class _StatementDialect(HeadraceDialect):
    class Tokenizer(HeadraceDialect.Tokenizer):
        # SHOW and EXPLAIN would take the rest of the text for one word.
        COMMANDS: ClassVar[set[TokenType]] = set()


_NO_WORDS = (TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER)


def split(text: str, file: str | None = None) -> Iterator[Words]:
    """The statements of a text, without those that are empty."""
    try:
        tokens = _StatementDialect().tokenize(text)
    except TokenError as error:
        raise StatementError(
            f"the text cannot be read: {str(error).splitlines()[0]}",
            hint="look for a quote or a comment that is not closed",
        ) from None
    statement: list[Token] = []
    for token in tokens:
        if token.token_type != TokenType.SEMICOLON:
            statement.append(token)
        elif statement:
            yield Words(text, tuple(statement), file)
            statement = []
    if statement:
        yield Words(text, tuple(statement), file)


@dataclass
class Words:
    """One statement, of which some was read."""

    text: str
    tokens: tuple[Token, ...]
    file: str | None = None
    place: int = 0

    @property
    def next(self) -> Token | None:
        return self.tokens[self.place] if self.place < len(self.tokens) else None

    @property
    def at(self) -> Position:
        """Where the next word stands, or the end of the statement."""
        token = self.next
        offset = self.tokens[-1].end + 1 if token is None else token.start
        return replace(place_of_offset(self.text, offset), file=self.file)

    def refuse(self, message: str, hint: str | None = None, at: Position | None = None) -> NoReturn:
        raise StatementError(message, hint=hint, position=at or self.at)

    def is_next(self, *words: str) -> bool:
        """Whether these words come next."""
        coming = self.tokens[self.place : self.place + len(words)]
        return len(coming) == len(words) and all(
            token.token_type not in _NO_WORDS and token.text.upper() == word
            for token, word in zip(coming, words, strict=True)
        )

    def take(self, *words: str) -> bool:
        """Read these words if they come next."""
        if self.is_next(*words):
            self.place += len(words)
            return True
        return False

    def expect(self, word: str, example: str) -> None:
        if not self.take(word):
            self.refuse(f"{word} is missing before {self.shown()}", f"write {example}")

    def one_of(self, choices: dict[str, str], what: str) -> str:
        """One of some words; what each stands for."""
        for word, meaning in choices.items():
            if self.take(word):
                return meaning
        near = get_close_matches(self.shown(quoted=False).upper(), list(choices), 1)
        hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(choices)}"
        self.refuse(f"{what} is missing before {self.shown()}", hint)

    def name(self, what: str, advice_for: Callable[[str], str | None]) -> str:
        """A name; ``advice_for`` says what to do about one that is not good."""
        at = self.at
        name = self._word(f"the name of a {what}")
        while self.is_next("-") and advice_for(f"{name}-x") is None:
            self.place += 1
            name += f"-{self._word(f'the rest of the name of a {what}')}"
        advice = advice_for(name)
        if advice is not None:
            self.refuse(f"{name!r} cannot be a name", advice, at)
        return name

    def word(self, what: str) -> str:
        """A word, quoted or not."""
        return self._word(what)

    def _word(self, what: str) -> str:
        token = self.next
        plain = token is not None and token.text.replace("_", "a").isalnum()
        if token is None or not (plain or token.token_type == TokenType.IDENTIFIER):
            self.refuse(f"{what} is missing before {self.shown()}")
        if token.token_type in (TokenType.STRING, TokenType.NUMBER):
            self.refuse(f"{self.shown()} is not {what}", "write it without quotes, or with `")
        self.place += 1
        return str(token.text)

    def string(self) -> str | None:
        """A text in quotes, if it comes next."""
        token = self.next
        if token is None or token.token_type != TokenType.STRING:
            return None
        self.place += 1
        return str(token.text)

    def number(self) -> int:
        token = self.next
        if token is None or token.token_type != TokenType.NUMBER or not token.text.isdecimal():
            self.refuse(f"{self.shown()} is not a whole number")
        self.place += 1
        return int(token.text)

    def in_parentheses(self) -> str:
        """The text between parentheses, the first of which comes next."""
        begin, depth = self.at, 0
        start = self.tokens[self.place].end + 1
        while (token := self.next) is not None:
            self.place += 1
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
            if depth == 0:
                return self.text[start : token.start].strip()
        self.refuse("a parenthesis is not closed", at=begin)

    def rest(self, what: str) -> tuple[str, Position]:
        """All that is left, as it is written, and where it begins."""
        token, at = self.next, self.at
        if token is None:
            self.refuse(f"{what} is missing", "write SELECT …")
        self.place = len(self.tokens)
        return self.text[token.start : self.tokens[-1].end + 1], at

    def end(self) -> None:
        if self.next is not None:
            self.refuse(f"nothing is expected here, but {self.shown()}", "end with ;")

    def shown(self, quoted: bool = True) -> str:
        """The next word, for people."""
        token = self.next
        if token is None:
            return "the end"
        return repr(str(token.text)) if quoted else str(token.text)
