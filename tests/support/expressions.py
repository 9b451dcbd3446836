"""Random SQL expressions that mean the same in Spark and DuckDB and cannot raise.

No zero divisor (divisors are constants), no overflow at these depths, no cast that fails.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from headrace.plan.types import Schema
from tests.support.streams import ODD_COLUMN, STRINGS


@dataclass(frozen=True)
class Scope:
    """The columns that an expression may name: SQL text and type."""

    columns: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, schema: Schema, alias: str | None = None) -> Scope:
        prefix = f"{alias}." if alias else ""
        return cls(tuple((f"{prefix}{f.name}", f.type.name) for f in schema))

    def __add__(self, other: Scope) -> Scope:
        return Scope(self.columns + other.columns)

    def of_type(self, *kinds: str) -> list[str]:
        return [name for name, kind in self.columns if kind.startswith(kinds)]

    @property
    def steady_doubles(self) -> list[str]:
        """Columns of doubles that are numbers: fit for variances and medians."""
        return [name for name in self.of_type("double") if not name.endswith(ODD_COLUMN)]


def integer(chance: random.Random, scope: Scope, depth: int = 2) -> str:
    names = scope.of_type("bigint", "int")
    if depth == 0 or (names and chance.random() < 0.3):
        return chance.choice(names) if names and chance.random() < 0.8 else _number(chance)

    def below() -> str:
        return integer(chance, scope, depth - 1)

    forms: list[Callable[[], str]] = [
        lambda: f"({below()} + {below()})",
        lambda: f"({below()} - {below()})",
        lambda: f"({below()} * {chance.randrange(-3, 4)})",
        lambda: f"({below()} % {chance.choice((2, 3, 7))})",
        lambda: f"({below()} div {chance.choice((2, 5))})",
        lambda: f"pmod({below()}, {chance.choice((2, 3, 7))})",
        lambda: f"abs({below()})",
        lambda: f"coalesce({below()}, {_number(chance)})",
        lambda: f"nullif({below()}, {_number(chance)})",
        lambda: f"greatest({below()}, {below()})",
        lambda: f"least({below()}, {below()})",
        lambda: f"if({predicate(chance, scope, 0)}, {below()}, {below()})",
        lambda: (
            f"CASE WHEN {predicate(chance, scope, 0)} THEN {below()} ELSE {_number(chance)} END"
        ),
        lambda: f"length({text(chance, scope, depth - 1)})",
    ]
    return chance.choice(forms)()


def double(chance: random.Random, scope: Scope, depth: int = 2, steady: bool = False) -> str:
    """A double; ``steady`` ones are never NaN or infinite."""
    names = scope.steady_doubles if steady else scope.of_type("double")
    if names and (depth == 0 or chance.random() < 0.4):
        return chance.choice(names)
    if depth == 0:
        return f"CAST({integer(chance, scope, 0)} AS DOUBLE)"

    def below() -> str:
        return double(chance, scope, depth - 1, steady)

    forms: list[Callable[[], str]] = [
        lambda: f"({integer(chance, scope, depth - 1)} / {chance.choice((2, 4, -8))})",
        lambda: f"({below()} + {below()})",
        lambda: f"({below()} * 0.5)",
        lambda: f"coalesce({below()}, 1.25)",
        lambda: f"CAST({integer(chance, scope, depth - 1)} AS DOUBLE)",
        lambda: f"abs({below()})",
    ]
    return chance.choice(forms)()


def text(chance: random.Random, scope: Scope, depth: int = 2) -> str:
    names = scope.of_type("string")
    if depth == 0 or (names and chance.random() < 0.4):
        return chance.choice(names) if names and chance.random() < 0.8 else _string(chance)

    def below() -> str:
        return text(chance, scope, depth - 1)

    forms: list[Callable[[], str]] = [
        lambda: f"upper({below()})",
        lambda: f"lower({below()})",
        lambda: f"trim({below()})",
        lambda: f"concat({below()}, {below()})",
        lambda: f"({below()} || {_string(chance)})",
        lambda: f"substring({below()}, 1, {chance.randrange(0, 3)})",
        lambda: f"coalesce({below()}, {_string(chance)})",
        lambda: f"CASE WHEN {predicate(chance, scope, 0)} THEN {below()} END",
        lambda: f"CAST({integer(chance, scope, depth - 1)} AS STRING)",
    ]
    return chance.choice(forms)()


def predicate(chance: random.Random, scope: Scope, depth: int = 1) -> str:
    """A condition in three-valued logic."""

    def below() -> str:
        return predicate(chance, scope, depth - 1)

    if depth > 0 and chance.random() < 0.4:
        forms: list[Callable[[], str]] = [
            lambda: f"({below()} AND {below()})",
            lambda: f"({below()} OR {below()})",
            lambda: f"NOT ({below()})",
        ]
        return chance.choice(forms)()
    deep = max(depth, 0)
    operator = chance.choice(("=", "<>", "<", "<=", ">", ">=", "<=>"))
    number = integer(chance, scope, deep)
    leaves: list[Callable[[], str]] = [
        lambda: f"{number} {operator} {integer(chance, scope, 0)}",
        lambda: f"{number} BETWEEN {chance.randrange(-10, 10)} AND {chance.randrange(5, 60)}",
        lambda: f"{number} IN ({chance.randrange(0, 3)}, {chance.randrange(0, 9)}, 40)",
        lambda: f"{number} IS {chance.choice(('NULL', 'NOT NULL'))}",
        lambda: f"{double(chance, scope, deep)} {operator} {chance.choice(('0.5', '2', '-1.25'))}",
        lambda: f"{text(chance, scope, deep)} {operator} {_string(chance)}",
        lambda: f"{text(chance, scope, deep)} LIKE {chance.choice(_PATTERNS)}",
        lambda: f"{text(chance, scope, deep)} IS NOT NULL",
    ]
    for name in scope.of_type("boolean"):
        leaves += [lambda name=name: name, lambda name=name: f"NOT {name}"]  # type: ignore[misc]
    for name in scope.of_type("decimal"):
        leaves.append(lambda name=name: f"{name} {operator} 12.5")  # type: ignore[misc]
    return chance.choice(leaves)()


def value(chance: random.Random, scope: Scope, depth: int = 2) -> str:
    """Any expression."""
    maker = chance.choice((integer, integer, double, text))
    return maker(chance, scope, depth)


def aggregate(chance: random.Random, scope: Scope, holistic: bool = True) -> tuple[str, str]:
    """An aggregate call and the type class of its result: integer, double, text or other."""
    condition = ""
    if chance.random() < 0.25:
        condition = f" FILTER (WHERE {predicate(chance, scope)})"
    number = integer(chance, scope, 1)
    steady = chance.choice((number, double(chance, scope, 1, steady=True)))
    forms: list[Callable[[], tuple[str, str]]] = [
        lambda: ("count(*)", "integer"),
        lambda: (f"count({value(chance, scope, 1)})", "integer"),
        lambda: (f"sum({number})", "integer"),
        lambda: (f"sum({double(chance, scope, 1)})", "double"),
        lambda: (f"avg({steady})", "double"),
        lambda: (f"min({number})", "integer"),
        lambda: (f"max({double(chance, scope, 1)})", "double"),
        lambda: (f"{chance.choice(('min', 'max'))}({text(chance, scope, 1)})", "text"),
        lambda: (f"count_if({predicate(chance, scope)})", "integer"),
        lambda: (f"{chance.choice(_SPREADS)}({steady})", "double"),
    ]
    for name in scope.of_type("decimal"):
        forms.append(lambda name=name: (f"{chance.choice(_TOTALS)}({name})", "other"))  # type: ignore[misc]
    if holistic:
        forms += [
            lambda: (f"count(DISTINCT {value(chance, scope, 1)})", "integer"),
            lambda: (f"median({steady})", "double"),
            lambda: (f"percentile({steady}, {chance.choice((0, 0.25, 0.9, 1))})", "double"),
        ]
    call, kind = chance.choice(forms)()
    return call + condition, kind


_PATTERNS = ("'a%'", "'%b'", "'_'", "'%''%'", "'%x%'")
_SPREADS = ("stddev", "stddev_pop", "variance", "var_pop", "stddev_samp", "var_samp")
_TOTALS = ("sum", "min", "max")


def _number(chance: random.Random) -> str:
    return str(chance.choice((0, 1, 2, 5, 17, 40)))


def _string(chance: random.Random) -> str:
    plain = chance.choice(STRINGS)
    return "'" + plain.replace("\\", "\\\\").replace("'", "\\'") + "'"
