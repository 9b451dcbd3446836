"""Odd names for a random case, which must not change what comes out.

Every name of a case (streams, tables, columns, aliases) gets another one: with capitals, of other
alphabets, of 200 letters, keywords, digits, and for columns whatever a DataFrame may call them.
Each mention in the query is spelt with a case of its own. Rows are compared by position, so the
oracle computes the case as it was.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlglot

from headrace.names import folded, quoted
from headrace.plan.nodes import Source, Table
from headrace.plan.types import Schema
from tests.support.queries import Case
from tests.support.streams import Row

#: What streams, tables and queries may be called.
WORDS = (
    *("Bids", "ORDER", "Select", "FROM", "Join", "Values", "1st", "42", "1e5", "_", "_x", "Null"),
    *("Größe", "ÉTÉ", "日本", "हिन्दी", "ΣΊΣΥΦΟΣ", "İstanbul", "Straße", "x_x0123456789abcdef"),
    *("rows", "results", "Global_Temp", "N" * 200, "Ж" * 200, "Ü" + "y" * 199),
)
#: What else columns and aliases may be called.
ODDITIES = (
    *("My Col", "x/y", "50%", "It's", 'say "Hi"', "Tick`s", "``", "a=b", "A,b;c", "{X}", "(n)"),
    *("$1", "back\\slash", "*", ":p", "?", "#", "--c", "/*c*/", "-", " ", "Tab\tbed", "[i]", "😀"),
)
#: Names with dots are left to columns: before a dot stands an alias.
DOTTED = ("a.b", "A.B.C", ".", "k.")
#: Names that mean something in every query.
_FIXED = frozenset(("seconds", "session_window", "window_id", "window", "start", "end"))


@dataclass(frozen=True)
class Renamed:
    """Queries over the same streams under other names. ``names`` maps the old to the new ones."""

    names: Mapping[str, str]
    sql: tuple[str, ...]
    streams: Mapping[str, Source]
    tables: Mapping[str, Table]

    def rows(self, rows: Sequence[Row]) -> list[Row]:
        """Rows of a stream or table with the new names of its columns."""
        return [{self.names[name]: value for name, value in row.items()} for row in rows]


def rename(cases: Sequence[Case], chance: random.Random) -> Renamed:
    """Cases over one catalog under other names; streams and tables go by their old ones."""
    catalog = cases[0].catalog
    columns = {name for node in catalog.values() for name in node.schema.names}
    words: set[str] = set()
    aliases: set[str] = set()
    for case in cases:
        for *_, text, before_dot in _tokens(case.query.sql):
            words.add(text)
            aliases |= {text} if before_dot else set()
    names: dict[str, str] = {}
    taken = set(_FIXED)
    for name in sorted({*catalog, *columns, *words}):
        pool = WORDS if name in catalog else (*WORDS, *ODDITIES)
        if name not in catalog and name not in aliases:
            pool += DOTTED
        names[name] = _fresh(chance, pool, taken)
    return Renamed(
        names,
        tuple(_respelt(case.query.sql, names, chance) for case in cases),
        {n: _source(s, names) for n, s in catalog.items() if isinstance(s, Source)},
        {
            n: replace(t, table=names[n], columns=_schema(t.columns, names))
            for n, t in catalog.items()
            if isinstance(t, Table)
        },
    )


def another_case(name: str, chance: random.Random) -> str:
    """The name with some letters in another case, by which it is still the same."""
    letters = [c.swapcase() if chance.random() < 0.3 else c for c in name]
    other = "".join(letters)
    return other if len(other) == len(name) and folded(other) == folded(name) else name


def _fresh(chance: random.Random, pool: tuple[str, ...], taken: set[str]) -> str:
    for _ in range(100):
        name = another_case(chance.choice(pool), chance)
        if folded(name) not in taken:
            taken.add(folded(name))
            return name
    raise AssertionError("the pool of names is too small")


def _tokens(sql: str) -> list[tuple[int, int, str, bool]]:
    """Place, end, text and whether a dot follows, of the names in a query."""
    found = []
    tokens: list[Any] = [*sqlglot.tokenize(sql, read="spark"), None]
    for token, after in itertools.pairwise(tokens):
        following = after.text if after is not None else ""
        is_name = token.token_type.name == "VAR" and token.text.lower() not in _FIXED
        if is_name and following != "(":
            found.append((token.start, token.end + 1, token.text, following == "."))
    return found


def _respelt(sql: str, names: Mapping[str, str], chance: random.Random) -> str:
    parts, done = [], 0
    for start, end, text, _ in _tokens(sql):
        parts += [sql[done:start], quoted(another_case(names[text], chance))]
        done = end
    return "".join([*parts, sql[done:]])


def _source(source: Source, names: Mapping[str, str]) -> Source:
    return replace(
        source,
        stream=names[source.stream],
        columns=_schema(source.columns, names),
        time=names[source.time],
    )


def _schema(schema: Schema, names: Mapping[str, str]) -> Schema:
    return Schema(tuple(replace(f, name=names[f.name]) for f in schema))


def query_names(chance: random.Random, number: int) -> list[str]:
    """Different names for queries."""
    taken: set[str] = set()
    return [_fresh(chance, (*WORDS, "a-b", "-"), taken) for _ in range(number)]
