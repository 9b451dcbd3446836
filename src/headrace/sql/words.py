"""Every word and every number of the text is part of the tree, or of the grammar we know.

The parser itself drops what it thinks does not matter: the length of a VARCHAR, WITHOUT TIME ZONE,
a second hint. Whatever it read and did not keep is left over here, and refused once the query is
bound and nothing with a better reason was.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from headrace.errors import Position
from headrace.sql.positions import place_of_offset
from headrace.sql.refusals import refusal

_GRAMMAR = """
    SELECT ALL DISTINCT FROM WHERE GROUP BY HAVING WITH AS UNION EXCEPT
    JOIN INNER LEFT RIGHT FULL OUTER ON USING
    AND OR NOT IN IS NULL TRUE FALSE UNKNOWN BETWEEN LIKE ILIKE RLIKE REGEXP DIV
    CASE WHEN THEN ELSE END FILTER CAST TRY_CAST EXTRACT POSITION SUBSTRING FOR OVERLAY PLACING
    TRIM BOTH LEADING TRAILING INTERVAL TO
    STRING BOOLEAN BINARY BYTE TINYINT SHORT SMALLINT INT INTEGER LONG BIGINT FLOAT REAL DOUBLE
    DEC DECIMAL NUMERIC DATE TIMESTAMP TIMESTAMP_LTZ TIMESTAMP_NTZ ARRAY MAP STRUCT VARIANT
"""
#: The words of the grammar. Names, functions and units are in the tree.
GRAMMAR = frozenset(_GRAMMAR.split())

#: What to write instead of some words that Spark has and that would mean something else here.
_ADVICE = {
    **dict.fromkeys(("CHAR", "CHARACTER", "VARCHAR"), "write STRING, which Spark makes of it"),
    "WITHOUT": "write TIMESTAMP_NTZ",
    "TIME": "use a timestamp",
}
_OTHERWISE = "leave it out, or quote it with ` if it is a name"
_LEFT_OVER = "headrace_left_over"
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_WORD = re.compile(r"[^\W\d]\w*")
_HINT_ADVICE = "write one hint, as /*+ … */ after SELECT; several go into it with commas"


def mark_left_over(tree: exp.Expr, tokens: Iterable[Token], text: str, shift: int = 0) -> None:
    """Note at the tree what of the text is neither in it nor in the grammar."""
    words = {word.upper() for part in _texts(tree) for word in _WORD.findall(part)}
    # The sign of an interval's number goes into its text.
    numbers = Counter(part.removeprefix("-") for part in _texts(tree))
    stars = len(list(tree.find_all(exp.Star, exp.Mul)))
    left_over: list[tuple[str, str, Position]] = []

    def add(what: str, advice: str, offset: int) -> None:
        left_over.append((what, advice, place_of_offset(text, offset, shift)))

    end = 0
    for token in tokens:
        written = text[token.start : token.end + 1]
        for offset in _hints(text, end, token.start):
            add("this hint", _HINT_ADVICE, offset)
        if token.token_type == TokenType.NUMBER:
            # .5 is a point and a number to the tokenizer, and 0.5 in the tree.
            pointed = token.start == end and text[end - 1 : end] == "." and numbers[f"0.{written}"]
            number = f"0.{written}" if pointed else token.text
            numbers[number] -= 1
            if numbers[number] < 0:
                add(f"the number {written}", "leave it out", token.start)
        elif token.token_type == TokenType.STAR:
            stars -= 1
            if stars < 0:
                add("a *", "leave it out", token.start)
        elif token.token_type == TokenType.HEX_STRING and written[0] == "0":
            add(written, "write the number itself, or X'…' for bytes", token.start)
        elif _WORD.fullmatch(written) and written.upper() not in words | GRAMMAR:
            add(f"the word {written}", _ADVICE.get(written.upper(), _OTHERWISE), token.start)
        end = token.end + 1
    for offset in _hints(text, end, len(text)):
        add("this hint", _HINT_ADVICE, offset)
    if left_over:
        tree.meta[_LEFT_OVER] = left_over


def _hints(text: str, begin: int, end: int) -> Iterator[int]:
    """Where hints stand between two tokens; one that was read is a token itself."""
    for comment in _COMMENT.finditer(text, begin, end):
        if comment[0].startswith("/*+"):
            yield comment.start()


def move_left_over(source: exp.Expr, target: exp.Expr) -> None:
    """A part of a tree stands for all of its text."""
    if _LEFT_OVER in source.meta:
        target.meta[_LEFT_OVER] = source.meta[_LEFT_OVER]


def refuse_left_over(tree: exp.Expr) -> None:
    """Refuse the first word or number that the parser passed over."""
    for node in tree.dfs():
        for what, advice, position in node.meta.get(_LEFT_OVER, ()):
            raise refusal("NOT_UNDERSTOOD", position, what_it_is=what, advice=advice)


def _texts(tree: exp.Expr) -> Iterable[str]:
    for node in tree.walk():
        for value in node.args.values():
            if isinstance(value, str):
                yield value
            elif isinstance(value, exp.DType):
                yield value.value
