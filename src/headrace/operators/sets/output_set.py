"""The aggregation set of a query's output, kept up to date by what enters and leaves its windows.

It is a log: an epoch appends by how much its groups have changed, and whoever reads it adds up. So
it costs what has changed to write, and what there are groups to read, which all come out anyway.
Only what can be subtracted exactly can be kept so (see ``optimizer.early.output``).

What it holds is of a watermark, and its files tell of which. A set that is not of the last one, or
that nobody wants in an epoch, is dropped, and begins anew from all joined rows.

Paper: Early Aggregation, Section 6.1, Figure 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from headrace.definitions.definition import (
    Definition,
    Sql,
    any_of,
    call,
    column,
    keep,
    number,
    select,
)
from headrace.operators.base import EpochStep, Operator, Store
from headrace.operators.epoch import Epoch
from headrace.operators.old_and_new import old_and_new
from headrace.operators.panes.partial_rows import merge_groups
from headrace.operators.sets.window_pairs import PAIRS, WindowPairs
from headrace.operators.write import Writing
from headrace.plan.types import Schema


@dataclass
class OutputSet(Store):
    """The groups of joined rows, each with its number of rows.

    ``counted`` says which partial, a sum, is of how many values.
    """

    name: str
    pairs: WindowPairs
    streams: frozenset[str]
    counted: Mapping[str, str]
    wishes: list[Callable[[Epoch], bool]] = field(default_factory=list)

    @property
    def immediate(self) -> bool:
        return False

    def inputs(self) -> tuple[Operator, ...]:
        return (self.pairs,)

    @property
    def schema(self) -> Schema:
        return self.pairs.schema

    @property
    def _keys(self) -> list[str]:
        return self.pairs.join.keys

    # Reading

    def is_current(self, epoch: Epoch) -> bool:
        """Whether this epoch has brought it up to date."""
        return bool(epoch.new_files(self.name))

    def groups(self, epoch: Epoch) -> exp.Query | None:
        """The groups that have rows."""
        rows = old_and_new(
            epoch.old(self.name, self.schema), epoch.new(self.name, self.schema), mark=False
        )
        if rows is None:
            return None
        (pairs,) = self.pairs.join.aggregates[PAIRS].partials
        some = column(pairs.name) > exp.Literal.number(0)
        columns = keep(self.schema.names)
        for name, count in self.counted.items():
            has_values = column(count) > exp.Literal.number(0)
            columns[name] = exp.Case(ifs=[exp.If(this=has_values, true=column(name))])
        return select(self._added_up(rows), columns, [some])

    def _added_up(self, rows: exp.Query) -> exp.Query:
        merged = {p.name: p.merge(column(p.name)) for p in self.pairs.partials}
        return merge_groups(rows, self._keys, merged)

    def _changes(self, rows: exp.Query) -> exp.Query:
        """Without groups to which nothing was added after all."""
        zero = exp.Literal.number(0)
        changed: list[Sql] = [column(p.name).neq(zero) for p in self.pairs.partials]
        return select(rows, keep(self.schema.names), [any_of(changed)])

    # Updating

    def advance(self, epoch: Epoch) -> Writing[None]:
        arrangement = epoch.state.arrangement(self.name)
        after = epoch.after(self.streams)
        if after is None:
            return
        wanted = any(wish(epoch) for wish in self.wishes)
        goes_on = wanted and self._is_of_the_last(epoch)
        if not goes_on:
            epoch.state.garbage += [(epoch.number, file.path) for file in arrangement.files]
            arrangement.replace(list(arrangement.files), [])
            epoch.life.outputs_with_tables[self.name] = epoch.number
        if not wanted:
            return
        groups = self.pairs.changed(epoch) if goes_on else self.pairs.whole(epoch)
        if groups is None:
            return
        yield from epoch.append(
            self.name,
            Definition(self._changes(groups), self.schema),
            first=call("min", number(after)),
            last=call("max", number(after)),
            partial=True,
            split_by=self.split_by,
        )

    def _is_of_the_last(self, epoch: Epoch) -> bool:
        """Whether it holds what was in the windows when the epoch before ended."""
        files = epoch.state.arrangement(self.name).files
        if self.pairs.has_tables:
            begun = epoch.life.outputs_with_tables.get(self.name, epoch.number)
            if any(file.epochs[0] < begun for file in files):
                return False
        if any(file.epoch == epoch.number - 1 for file in files):
            return True
        # Nothing has moved since, where the watermark has not.
        before = epoch.before(self.streams)
        return before is not None and before in {file.last for file in files}

    # Keeping

    def horizon(self, epoch: Epoch) -> int | None:
        return None

    def compacted(self, epoch: Epoch, rows: Definition) -> Definition:
        return Definition(self._changes(self._added_up(rows.query)), self.schema)

    @property
    def split_by(self) -> tuple[str, ...]:
        return tuple(self._keys)

    def step(self) -> EpochStep:
        keys = ", ".join(str(key.expr) for key in self.pairs.node.keys) or "(all rows)"
        return EpochStep(
            f"add what changed to {self.name}, where that costs less than to join anew",
            (f"group by {keys}",),
        )
