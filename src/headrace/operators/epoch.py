"""One epoch: what operators may ask for while a set of micro-batches is processed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlglot import exp

from headrace.definitions.definition import Definition, Sql
from headrace.failpoints import failpoint
from headrace.operators.inputs import Inputs, NewRows, ProbedInput
from headrace.operators.write import Inner, RowFilter, Write, Writing
from headrace.plan.types import Schema
from headrace.planner.choices import Choices
from headrace.planner.joined_rows import JoinRun
from headrace.planner.joined_sets import SetJoinRun
from headrace.planner.probe_order import ProbeOrders
from headrace.planner.statistics import RuntimeStatistics
from headrace.state.arrangement import StateFile
from headrace.state.clocks import Clocks
from headrace.state.committed import Committed
from headrace.stats.load import Load, SeenPanes, SetWork, load_of_panes


class EpochServices(Protocol):
    """What operators ask of whoever runs the epoch."""

    @property
    def inputs(self) -> Inputs:
        """The named inputs of the epoch's definitions."""

    def parts_of_indexes(self, rows: int, /) -> int:
        """Into how many parts indexes of so many rows are cut."""


class StateFolder(Protocol):
    """Where the files of the state go."""

    def new_path(self, area: str, folder: str, name: str, /) -> str: ...


@dataclass
class EngineLife:
    """What lasts from start to stop, and is nothing to the next start."""

    #: Tells apart the lives of an engine, none of which knows what another left on executors.
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    #: The files of the tables' sets that this life has written.
    table_files: dict[str, list[str]] = field(default_factory=dict)
    #: Outputs that were joined with tables, by the epoch in which this life began them: another
    #: life may have known other tables.
    outputs_with_tables: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Probed:
    """A multi-way join of this epoch: its results by name, and where what it learns belongs."""

    name: exp.Select
    join: ProbedInput
    orders: ProbeOrders


@dataclass
class Epoch:
    """The inputs, clocks and state of one epoch.

    ``clocks_before`` are those at its start; ``clocks_after`` are known once every admitted batch
    was read.
    """

    number: int
    executor: EpochServices
    checkpoint: StateFolder
    state: Committed
    batches: Mapping[str, NewRows]
    clocks_before: Clocks
    clocks_after: Clocks = field(default_factory=Clocks)
    seen: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Which store counts the rows of a stream while it appends them.
    counted_by: dict[str, str] = field(default_factory=dict)
    #: Late rows, by store and by rule: queries that share a store may judge rows differently.
    late: dict[tuple[str, str], int] = field(default_factory=dict)
    #: What this epoch brought to each grouping that has panes, and what became of it in each kind
    #: of them.
    loads: dict[str, Load] = field(default_factory=dict)
    panes: dict[str, list[SeenPanes]] = field(default_factory=dict)
    #: What is known, which an epoch adds to, and what was chosen last.
    statistics: RuntimeStatistics = field(default_factory=RuntimeStatistics)
    choices: Choices = field(default_factory=Choices)
    #: Whether this epoch counts the keys of joins.
    counts_keys: bool = False
    life: EngineLife = field(default_factory=EngineLife)
    #: Multi-way joins that were asked for, by operator.
    probed: dict[int, Probed] = field(default_factory=dict)
    #: Passes of delta joins that were asked for.
    joins: list[JoinRun] = field(default_factory=list)
    #: Joins of aggregation sets that were asked for, and what was done to sets.
    set_joins: list[SetJoinRun] = field(default_factory=list)
    set_work: dict[str, SetWork] = field(default_factory=dict)
    #: New rows that were computed once for several readers, by operator; None is no rows.
    shared_rows: dict[int, Definition | None] = field(default_factory=dict)
    #: Operators of which that was tried, whether it went well or not.
    shared_attempts: set[int] = field(default_factory=set)
    #: Definitions over others; those are kept, so that none is mistaken for another.
    _derived: dict[tuple[str, int], tuple[exp.Query, exp.Query]] = field(default_factory=dict)

    def note_panes(self, family: str, seen: SeenPanes) -> None:
        """What a store of a grouping took in."""
        panes = self.panes.setdefault(family, [])
        panes.append(seen)
        load = load_of_panes(panes)
        if load is not None:
            self.loads[family] = load

    def derived(self, what: str, rows: exp.Query, derive: Callable[[], exp.Query]) -> exp.Query:
        """A definition over another one: the same for all who ask, so that it is run once."""
        derived = self._derived.get((what, id(rows)))
        if derived is None:
            derived = self._derived[what, id(rows)] = (rows, derive())
        return derived[1]

    @property
    def inputs(self) -> Inputs:
        """The named inputs of definitions."""
        return self.executor.inputs

    def before(self, streams: Iterable[str]) -> int | None:
        """The operator's watermark at the start of the epoch; None while it has none."""
        return self.clocks_before.at(streams)

    def after(self, streams: Iterable[str]) -> int | None:
        return self.clocks_after.at(streams)

    def old(
        self, name: str, schema: Schema, first: int | None = None, last: int | None = None
    ) -> Definition | None:
        """Rows of an arrangement from earlier epochs, at least those of this span of time."""
        return self._read(self.state.arrangement(name).before(self.number), schema, first, last)

    def new(self, name: str, schema: Schema) -> Definition | None:
        """Rows that this epoch appended."""
        return self._read(self.new_files(name), schema, None, None)

    def rows(self, name: str, first: int | None, last: int | None) -> int:
        """How many rows of an arrangement there are to read for a span of time, at most."""
        files = self.state.arrangement(name).files
        return sum(file.rows for file in files if file.overlaps(first, last))

    def times(self, name: str, first: int | None, last: int | None) -> Iterator[int]:
        """Times between which the rows of an arrangement lie that there are for a span of time."""
        for file in self.state.arrangement(name).files:
            if file.rows and file.first is not None and file.last is not None:
                begin = file.first if first is None else max(first, file.first)
                end = file.last if last is None else min(last, file.last)
                if begin <= end:
                    yield from (begin, end)

    def stored_rows(self, store: str) -> int:
        """The rows of an arrangement."""
        return self.state.arrangement(store).rows

    def new_files(self, name: str) -> list[StateFile]:
        return self.state.arrangement(name).of(self.number)

    def append(
        self,
        name: str,
        rows: Definition,
        first: Sql,
        last: Sql,
        watch: Mapping[str, Sql] | None = None,
        keep: RowFilter | None = None,
        inner: Inner | None = None,
        partial: bool = False,
        split_by: tuple[str, ...] = (),
        again: str = "",
    ) -> Writing[dict[str, Any]]:
        """Append rows to an arrangement; ``first`` and ``last`` aggregate the time they span.

        What ``partial`` and ``split_by`` mean is said at ``Write``. Who appends twice in an epoch
        gives the second time a name: files of one name would be one file.
        """
        arrangement = self.state.arrangement(name)
        written = yield Write(
            name,
            rows.query,
            rows.schema,
            path=self.checkpoint.new_path("state", name, f"{self.number:010d}{again}"),
            watch={"first": first, "last": last, **(watch or {})},
            expected_rows=arrangement.recent_rows,
            keep=keep,
            inner=inner,
            partial=partial,
            split_by=split_by,
        )
        failpoint("state.after")
        arrangement.append(
            StateFile(f.path, self.number, f.rows, f.size, f.first, f.last, split=f.split)
            for f in written.files
        )
        return {k: value for k, value in written.seen.items() if k not in ("first", "last")}

    def _read(
        self, files: list[StateFile], schema: Schema, first: int | None, last: int | None
    ) -> Definition | None:
        wanted = [file for file in files if file.rows and file.overlaps(first, last)]
        if not wanted:
            return None
        return Definition(self.executor.inputs.bind_files(wanted, schema), schema)
