"""The aggregation set of a static table: a window that no row enters or leaves.

It is computed once in the life of an engine, stored as a file that tasks can read, and fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlglot import exp

from headrace.definitions.definition import Definition, call, column, keep, number, select, sql_of
from headrace.definitions.partials import Partial, state_of_row
from headrace.operators.base import EpochStep, Operator, Store
from headrace.operators.epoch import Epoch
from headrace.operators.old_and_new import old_and_new
from headrace.operators.panes.pane_store import ROWS
from headrace.operators.stateless import static_rows
from headrace.operators.write import Writing
from headrace.plan.expressions import Expr
from headrace.plan.nodes import Node, Table
from headrace.plan.types import BIGINT, Field, Schema
from headrace.state.arrangement import StateFile


@dataclass
class TableSet(Store):
    """The set of a static table: computed once in the life of an engine, and fixed."""

    name: str
    node: Node
    keys: tuple[Expr, ...]
    partials: dict[str, Partial] = field(default_factory=dict)
    wishes: list[Callable[[Epoch], bool]] = field(default_factory=list)

    @property
    def key_names(self) -> list[str]:
        return [f"__key{index}" for index in range(len(self.keys))]

    @property
    def schema(self) -> Schema:
        fields = [Field(n, k.type) for n, k in zip(self.key_names, self.keys, strict=True)]
        partials = [self.partials[name] for name in sorted(self.partials)]
        return Schema((*fields, Field(ROWS, BIGINT), *(p.field for p in partials)))

    @property
    def immediate(self) -> bool:
        return True

    def inputs(self) -> tuple[Operator, ...]:
        return ()

    def advance(self, epoch: Epoch) -> Writing[None]:
        arrangement = epoch.state.arrangement(self.name)
        if epoch.life.table_files.get(self.name) == _paths(arrangement.files):
            return
        self._forget(epoch, arrangement.files)
        partials = [self.partials[name] for name in sorted(self.partials)]
        groups = {n: sql_of(k) for n, k in zip(self.key_names, self.keys, strict=True)}
        rows = static_rows(self.node)
        if any(wish(epoch) for wish in self.wishes):
            positions = [exp.Literal.number(i + 1) for i in range(len(groups))]
            states = {ROWS: exp.Count(this=exp.Star()), **{p.name: p.update for p in partials}}
            query = select(rows.query, {**groups, **states}, group_by=positions)
            if not groups:
                query = select(query, None, [column(ROWS) > exp.Literal.number(0)])
        else:
            alone = {ROWS: number(1), **{p.name: state_of_row(p) for p in partials}}
            query = select(rows.query, {**groups, **alone})
        seen = yield from epoch.append(
            self.name,
            Definition(query, self.schema),
            first=call("min", exp.Cast(this=exp.Null(), to=exp.DataType.build("bigint"))),
            last=call("max", exp.Cast(this=exp.Null(), to=exp.DataType.build("bigint"))),
            watch={ROWS: call("sum", column(ROWS))},
            split_by=tuple(self.key_names),
        )
        epoch.statistics.table_rows[self.name] = int(seen[ROWS] or 0)
        epoch.life.table_files[self.name] = _paths(arrangement.files)

    def rows(self, epoch: Epoch) -> exp.Query | None:
        """All of it; None where the table is empty."""
        old, new = epoch.old(self.name, self.schema), epoch.new(self.name, self.schema)
        return old_and_new(old, new, mark=False)

    def _forget(self, epoch: Epoch, files: list[StateFile]) -> None:
        """What an earlier run knew of the table counts no more."""
        epoch.state.garbage += [(epoch.number, file.path) for file in files]
        epoch.state.arrangement(self.name).replace(files, [])

    def horizon(self, epoch: Epoch) -> int | None:
        return None

    def compacted(self, epoch: Epoch, rows: Definition) -> Definition:
        return Definition(select(rows.query, keep(self.schema.names)), self.schema)

    def step(self) -> EpochStep:
        keys = ", ".join(map(str, self.keys)) or "(all rows)"
        names = ", ".join(sorted(n.shown for n in self.node.walk() if isinstance(n, Table)))
        return EpochStep(f"aggregation set of table {names}, once", (f"group by {keys}",))


def _paths(files: list[StateFile]) -> list[str]:
    return [file.path for file in files if file.rows]
