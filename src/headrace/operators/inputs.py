"""The named inputs of definitions: files of an arrangement, and the new rows of a stream.

A definition names its inputs; what stands behind a name is known here. An executor that needs an
input as something of its own (a view, a list of files) makes it when it runs the definition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlglot import exp

from headrace.definitions.definition import table
from headrace.plan.expressions import Expr
from headrace.plan.nodes import Source
from headrace.plan.types import Schema
from headrace.state.arrangement import StateFile

PREFIX = "headrace_input_"


class NewRows(Protocol):
    """This epoch's rows of a stream, and the files that hold them where that is known."""

    @property
    def source(self) -> Source: ...

    @property
    def files(self) -> Sequence[str] | None: ...

    @property
    def expected_rows(self) -> int | None: ...


@dataclass
class FilesInput:
    """Rows of an arrangement. Columns that a file lacks are NULL."""

    files: Sequence[StateFile]
    schema: Schema

    @property
    def rows(self) -> int | None:
        return sum(file.rows for file in self.files)

    @property
    def paths(self) -> list[str]:
        return [file.path for file in self.files]


@dataclass
class BatchInput:
    """This epoch's rows of a stream."""

    batch: NewRows

    @property
    def schema(self) -> Schema:
        return self.batch.source.schema

    @property
    def rows(self) -> int | None:
        return self.batch.expected_rows

    @property
    def paths(self) -> list[str]:
        """The files that hold the rows; none where only Spark can read them."""
        return list(self.batch.files or ())


@dataclass(frozen=True)
class ProbedLeaf:
    """An input of a multi-way join: what is stored of it, and how a row of the join is made of it.

    ``rows`` is a query over the stored rows under the name ``STORED`` whose columns are named as
    the join names them. ``keys`` are the keys that it has of each class of equal keys, with the
    stored column that the key is, if it is one. ``lives`` are the columns by which its rows expire,
    with the milliseconds that they live, once the ``watermark`` of ``clocks`` has passed them.
    """

    store: str
    old: FilesInput
    new: FilesInput
    rows: exp.Query
    schema: Schema
    keys: Mapping[int, tuple[Expr, str | None]]
    lives: Mapping[str, int]
    clocks: frozenset[str]
    watermark: int | None


@dataclass
class ProbedInput:
    """The new results of a multi-way join in an epoch.

    Whoever has indexes of the inputs probes them in the given ``orders`` (for each input with new
    rows the pairs of probing and probed input), and notes what it ``observed``; others run the
    ``definition``. ``run`` tells apart the lives of an engine.
    """

    leaves: Sequence[ProbedLeaf]
    conditions: Sequence[exp.Expr]
    orders: Mapping[int, Sequence[tuple[int, int]]]
    schema: Schema
    definition: Callable[[], exp.Query]
    run: str
    epoch: int
    #: The class of equal keys by which the work is cut into parts.
    cut_by: int | None
    parts: int = 1
    observed: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(file.rows for leaf in self.leaves for file in (*leaf.old.files, *leaf.new.files))

    @property
    def paths(self) -> list[str]:
        return []


#: The name under which the query of a leaf reads its stored rows.
STORED = "headrace_stored"

Input = FilesInput | BatchInput | ProbedInput


def all_paths(source: Input) -> Iterator[str]:
    """All files that may be read for an input, now or by way of an index."""
    yield from source.paths
    if isinstance(source, ProbedInput):
        for leaf in source.leaves:
            yield from leaf.old.paths
            yield from leaf.new.paths


class Inputs:
    """The inputs of one epoch's definitions, by name."""

    def __init__(self) -> None:
        self._known: dict[str, Input] = {}
        self._more: dict[str, int] = {}
        self._joins: dict[str, dict[frozenset[int], int]] = {}
        self._count = 0

    def clear(self) -> None:
        """Names may be used again."""
        self._known.clear()
        self._more.clear()
        self._joins.clear()
        self._count = 0

    def bind_files(self, files: Sequence[StateFile], schema: Schema) -> exp.Select:
        """Name the rows of some files of an arrangement."""
        return self.bind(FilesInput(files, schema))

    def bind_batch(self, batch: NewRows) -> exp.Select:
        """Name the new rows of a stream."""
        return self.bind(BatchInput(batch))

    def bind(self, source: Input) -> exp.Select:
        """Give an input a name that definitions can use."""
        name = self.new_name()
        self._known[name] = source
        return table(name)

    def new_name(self) -> str:
        self._count += 1
        return f"{PREFIX}{self._count - 1}"

    def of(self, *queries: exp.Expr) -> Mapping[str, Input]:
        """The inputs that some definitions read."""
        return {name: self._known[name] for name in names_in(*queries) if name in self._known}

    def rows(self, *queries: exp.Expr) -> int | None:
        """How many rows definitions read and make, as far as that is known."""
        total = 0
        for name, source in self.of(*queries).items():
            if source.rows is None:
                return None
            total += source.rows + self._more.get(name, 0)
        return total

    def learn(self, name: str, observed: Mapping[str, Any]) -> None:
        """Note what a part of a multi-way join has seen."""
        source = self._known[name]
        if isinstance(source, ProbedInput):
            source.observed.append(observed)

    def watch_join(self) -> tuple[str, Mapping[frozenset[int], int]]:
        """A label for a join, and what it is seen to give: rows, by the inputs that were joined."""
        label = f"j{len(self._joins)}"
        rows_of_steps = self._joins[label] = {}
        return label, rows_of_steps

    @property
    def watches_joins(self) -> bool:
        """Whether somebody wants to know what joins give."""
        return bool(self._joins)

    def note_joined(self, rows: Mapping[tuple[str, tuple[int, ...]], int]) -> None:
        """Note what came out of joins; several definitions may have run the same one."""
        for (label, inputs), count in rows.items():
            rows_of_steps = self._joins.get(label)
            if rows_of_steps is not None:
                rows_of_steps[frozenset(inputs)] = max(
                    count, rows_of_steps.get(frozenset(inputs), 0)
                )

    def expect_more(self, query: exp.Query, rows: int) -> None:
        """A definition makes this many rows of those that it reads."""
        for name in self.of(query):
            self._more[name] = self._more.get(name, 0) + rows
            return


def names_in(*queries: exp.Expr) -> Iterator[str]:
    """The names of the engine's own inputs in definitions, each once."""
    seen: set[str] = set()
    for query in queries:
        for relation in query.find_all(exp.Table):
            if relation.name.startswith(PREFIX) and relation.name not in seen:
                seen.add(relation.name)
                yield relation.name
