"""What a statement can say."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from headrace.errors import HeadraceError, Position
from headrace.pipeline import QuerySpec, StreamSpec, TableSpec, ViewSpec

Spec = StreamSpec | TableSpec | ViewSpec | QuerySpec


class StatementError(HeadraceError):
    """A statement that cannot be read."""

    condition = "INVALID_STATEMENT"


class Kind(StrEnum):
    """What has a name."""

    STREAM = "stream"
    TABLE = "table"
    VIEW = "view"
    QUERY = "query"

    @property
    def plural(self) -> str:
        return "queries" if self is Kind.QUERY else f"{self.value}s"


class ExplainMode(StrEnum):
    """How much EXPLAIN tells; ``analyze`` is about a query that runs."""

    SIMPLE = "simple"
    EXTENDED = "extended"
    COST = "cost"
    JSON = "json"
    DOT = "dot"
    ALTERNATIVES = "alternatives"
    ANALYZE = "analyze"


@dataclass(frozen=True)
class Create:
    """Register a stream, table or view, or start a query."""

    spec: Spec
    if_not_exists: bool = False
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Drop:
    kind: Kind
    name: str
    if_exists: bool
    at: Position = field(compare=False)


@dataclass(frozen=True)
class Pause:
    name: str
    at: Position = field(compare=False)


@dataclass(frozen=True)
class Resume:
    """Let a query go on that was paused or failed: where it was, or from now on."""

    name: str
    from_now: bool
    at: Position = field(compare=False)


@dataclass(frozen=True)
class Show:
    kind: Kind


@dataclass(frozen=True)
class ShowResults:
    """The newest rows of a query's result table."""

    name: str
    limit: int
    at: Position = field(compare=False)


@dataclass(frozen=True)
class Describe:
    """One thing by its name; without a kind, whatever has that name."""

    kind: Kind | None
    name: str
    at: Position = field(compare=False)


@dataclass(frozen=True)
class Explain:
    """The plan of a query that was created, by its name, or of a text."""

    mode: ExplainMode
    name: str | None
    sql: str | None
    at: Position = field(compare=False)


@dataclass(frozen=True)
class Select:
    """A query that is only to be checked: nobody has said where its rows go."""

    sql: str
    at: Position = field(compare=False)


Statement = Create | Drop | Pause | Resume | Show | ShowResults | Describe | Explain | Select

_KINDS = {
    StreamSpec: Kind.STREAM,
    TableSpec: Kind.TABLE,
    ViewSpec: Kind.VIEW,
    QuerySpec: Kind.QUERY,
}


def kind_of_spec(spec: Spec) -> Kind:
    return _KINDS[type(spec)]
