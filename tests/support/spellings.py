"""The same query, written in many ways: derived tables, CTEs, views, commas, WHERE and USING.

A query is held as what it means (inputs, what ties each to those before it, filters, what is
shown), and ``flat()`` is the plainest text of it. ``spelt()`` writes it in another way: inputs
renamed in tables of their own, the first few joins in one that hands on its columns under other
names and computes some already, conditions in the WHERE, filters below.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

#: A column of an input, as conditions name it.
_REFERENCE = re.compile(r"\b([a-f])\.(k|v|ts)\b")
_COLUMNS = ("k", "v", "ts")


@dataclass(frozen=True)
class Written:
    """A query over the joined inputs ``aliases``, each a stream of the same name.

    ``ties`` are the conditions of each input after the first, ``shown`` expressions and their
    names; ``groups`` is what follows GROUP BY, if something does.
    """

    aliases: tuple[str, ...]
    ties: tuple[tuple[str, ...], ...]
    filters: tuple[str, ...]
    shown: tuple[tuple[str, str], ...]
    groups: str = ""

    def flat(self) -> str:
        first, *others = self.aliases
        joins = [
            f" JOIN {alias} ON {' AND '.join(ties)}"
            for alias, ties in zip(others, self.ties, strict=True)
        ]
        return self._text(first + "".join(joins), self.filters, {})

    def _text(self, source: str, where: Sequence[str], names: Mapping[str, str]) -> str:
        shown = ", ".join(f"{renamed(expr, names)} AS {name}" for expr, name in self.shown)
        text = f"SELECT {shown} FROM {source}"
        if where:
            text += f" WHERE {' AND '.join(renamed(part, names) for part in where)}"
        return text + (f" GROUP BY {renamed(self.groups, names)}" if self.groups else "")


@dataclass
class Spelling:
    """A text and the views that it reads."""

    sql: str = ""
    views: dict[str, str] = field(default_factory=dict)


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Columns as ``names`` has them, computed parts first."""
    for computed, name in names.items():
        if not _REFERENCE.fullmatch(computed):
            text = text.replace(computed, name)
    return _REFERENCE.sub(lambda found: names.get(found[0], found[0]), text)


def inputs_of(text: str) -> set[str]:
    return {found[1] for found in _REFERENCE.finditer(text)}


def spelt(query: Written, chance: random.Random) -> Spelling:
    """The query in some other way."""
    return _Speller(query, chance).spelling()


class _Speller:
    def __init__(self, query: Written, chance: random.Random) -> None:
        self.query = query
        self.chance = chance
        #: Where each column is to be had by now, by its first name.
        self.names: dict[str, str] = {}
        self.filters = list(query.filters)
        self.ctes: list[str] = []
        self.views: dict[str, str] = {}

    def spelling(self) -> Spelling:
        aliases = self.query.aliases
        sources = {alias: self._input(alias) for alias in aliases}
        inside = self.chance.randrange(len(aliases))
        text, joined = sources[aliases[0]], 1
        if inside and self.chance.random() < 0.75:
            text, joined = self._derived(sources, inside + 1), inside + 1
        text, where = self._joins(text, sources, joined, len(aliases))
        where = self._shuffled([*where, *self.filters])
        sql = self.query._text(text, where, self.names)
        if self.ctes:
            sql = f"WITH {', '.join(self.ctes)} {sql}"
        return Spelling(sql, self.views)

    def _input(self, alias: str) -> str:
        """An input of the FROM, maybe with other names for its columns and with its filters."""
        if self.chance.random() < 0.4:
            return alias
        own = [part for part in self.filters if inputs_of(part) == {alias}]
        if own and self.chance.random() < 0.5:
            self.filters = [part for part in self.filters if part not in own]
        else:
            own = []
        columns = [f"{alias}{column}_" for column in _COLUMNS]
        shown = ", ".join(f"{c} AS {n}" for c, n in zip(_COLUMNS, columns, strict=True))
        body = f"SELECT {shown} FROM {alias}"
        if own:
            body += f" WHERE {' AND '.join(own)}"
        for column, name in zip(_COLUMNS, columns, strict=True):
            self.names[f"{alias}.{column}"] = f"{alias}.{name}"
        return self._relation(body, alias, f"{alias}_of_its_own")

    def _relation(self, body: str, alias: str, name: str) -> str:
        """A query as something that a FROM can read: in place, or by a name."""
        form = self.chance.choice(("derived", "cte", "view"))
        if form == "derived" or (form == "view" and self.ctes):
            return f"({body}) AS {alias}"
        if form == "view":
            self.views[name] = body
        else:
            self.ctes.append(f"{name} AS ({body})")
        return f"{name} AS {alias}"

    def _derived(self, sources: Mapping[str, str], count: int) -> str:
        """The first joins in a table of their own."""
        inside = set(self.query.aliases[:count])
        body, where = self._joins(sources[self.query.aliases[0]], sources, 1, count)
        own = [p for p in self.filters if inputs_of(p) <= inside and self.chance.random() < 0.7]
        self.filters = [part for part in self.filters if part not in own]
        columns = {f"{alias}.{c}": f"{alias}_{c}" for alias in sorted(inside) for c in _COLUMNS}
        for position, (expr, _) in enumerate(self.query.shown):
            is_computed = not _REFERENCE.fullmatch(expr) and "(*)" not in expr
            is_plain = not re.match(r"(count|sum|min|max|window)\b", expr)
            if is_computed and is_plain and inputs_of(expr) <= inside:
                columns[expr] = f"computed{position}"
        shown = ", ".join(f"{renamed(expr, self.names)} AS {n}" for expr, n in columns.items())
        text = f"SELECT {shown} FROM {body}"
        where = self._shuffled([*where, *own])
        if where:
            text += f" WHERE {' AND '.join(renamed(part, self.names) for part in where)}"
        source = self._relation(text, "joined", "joined_before")
        self.names.update({expr: f"joined.{name}" for expr, name in columns.items()})
        return source

    def _joins(
        self, text: str, sources: Mapping[str, str], first: int, last: int
    ) -> tuple[str, list[str]]:
        """The text with more inputs joined, and the conditions that are left for its WHERE."""
        left: list[str] = []
        commas = self.chance.random() < 0.3
        for position in range(first, last):
            alias, ties = self.query.aliases[position], self.query.ties[position - 1]
            out = 0 if commas else self.chance.choice((0, len(ties), self.chance.randrange(9)))
            here, there = list(ties[:out]), list(ties[out:])
            left += there
            if here:
                on = " AND ".join(self._turned(renamed(part, self.names)) for part in here)
                text += f" JOIN {sources[alias]} ON {on}"
            else:
                text += self.chance.choice((", ", " CROSS JOIN ", " JOIN ")) + sources[alias]
        return text, left

    def _turned(self, condition: str) -> str:
        one, equals, other = condition.partition(" = ")
        if equals and self.chance.random() < 0.5:
            condition = f"{other} = {one}"
        return f"({condition})" if self.chance.random() < 0.3 else condition

    def _shuffled(self, parts: list[str]) -> list[str]:
        """Conditions in another order, but for those of one pair of inputs."""
        queues: dict[tuple[str, ...], list[str]] = {}
        for part in parts:
            queues.setdefault(tuple(sorted(inputs_of(part))), []).append(part)
        result = []
        while any(queues.values()):
            result.append(self.chance.choice([q for q in queues.values() if q]).pop(0))
        return result


def other_way_round(query: Written, chance: random.Random) -> Written:
    """The same with its inputs in another order, each tied to those before it."""
    ties = [part for some in query.ties for part in some]
    while True:
        aliases = chance.sample(query.aliases, len(query.aliases))
        groups: list[tuple[str, ...]] = []
        rest = list(ties)
        for position in range(1, len(aliases)):
            before = set(aliases[: position + 1])
            here = tuple(part for part in rest if inputs_of(part) <= before)
            rest = [part for part in rest if part not in here]
            groups.append(here)
        if all(any(".k = " in part for part in group) for group in groups):
            return replace(query, aliases=tuple(aliases), ties=tuple(groups))
