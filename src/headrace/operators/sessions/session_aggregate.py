"""Session windows: emitted when a session has been silent for its gap."""

from __future__ import annotations

from sqlglot import exp

from headrace.definitions.definition import (
    Definition,
    Sql,
    all_of,
    call,
    column,
    keep,
    micros,
    named,
    number,
    select,
    sql_of,
    struct,
    union_all,
)
from headrace.definitions.partials import Decomposed, of_rows
from headrace.operators.base import EpochStep, Operator
from headrace.operators.epoch import Epoch
from headrace.operators.rows.row_store import StoredRows
from headrace.operators.sessions.session_store import FIRST, LAST, SessionStore
from headrace.plan.nodes import WINDOW_COLUMN, Aggregate


class SessionAggregate(Operator):
    """Closed sessions, finished from partials or, for holistic functions, from stored rows."""

    def __init__(
        self,
        node: Aggregate,
        store: SessionStore,
        aggregates: dict[str, Decomposed] | None,
        rows: StoredRows | None,
    ) -> None:
        self.node: Aggregate = node
        self.store = store
        self._aggregates = aggregates
        self._rows = rows

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self.store.inputs()

    def delta(self, epoch: Epoch) -> Definition | None:
        closed = self.store.closed(epoch)
        if closed is None:
            return None
        if self._aggregates is None:
            return self._from_rows(epoch, closed)
        columns: dict[str, Sql] = {
            key.name: column(stored)
            for key, stored in zip(self.node.keys, self.store.key_names, strict=True)
        }
        columns[WINDOW_COLUMN] = self._window()
        columns |= {name: parts.finish for name, parts in self._aggregates.items()}
        ordered = {name: columns[name] for name in self.node.schema.names}
        return Definition(select(closed, ordered), self.node.schema)

    def _window(self) -> Sql:
        end = column(LAST) + number(self.store.gap * 1_000)
        return struct(
            start=call("timestamp_micros", column(FIRST)), end=call("timestamp_micros", end)
        )

    def _from_rows(self, epoch: Epoch, closed: exp.Query) -> Definition | None:
        """Join the closed sessions with the rows that lie in them."""
        assert self._rows is not None
        sides = [self._rows.old(epoch), self._rows.new(epoch)]
        parts = [rows.query for rows in sides if rows is not None]
        if not parts:
            return None
        time = micros(column(self.node.time.name))
        keyed = {f"__row{i}": sql_of(key.expr) for i, key in enumerate(self.node.keys)}
        rows = select(union_all(parts), None).select(
            *(named(value, name) for name, value in {**keyed, "__at": time}.items()), copy=False
        )
        sessions = select(closed, keep([*self.store.key_names, FIRST, LAST]))
        matches: list[Sql] = [
            exp.NullSafeEQ(this=column(f"__row{i}"), expression=column(name))
            for i, name in enumerate(self.store.key_names)
        ]
        matches += [column("__at") >= column(FIRST), column("__at") <= column(LAST)]
        joined = (
            exp.Select(expressions=[exp.Star()])
            .from_(rows.subquery("r", copy=False), copy=False)
            .join(
                sessions.subquery("s", copy=False),
                on=all_of(matches),
                join_type="inner",
                copy=False,
            )
        )
        columns: dict[str, Sql] = {
            key.name: column(stored)
            for key, stored in zip(self.node.keys, self.store.key_names, strict=True)
        }
        columns[WINDOW_COLUMN] = self._window()
        columns |= {a.name: of_rows(a.expr) for a in self.node.aggregates}
        by = [column(name) for name in (*self.store.key_names, FIRST, LAST)]
        ordered = {name: columns[name] for name in self.node.schema.names}
        return Definition(select(joined, ordered, (), by), self.node.schema)

    def steps(self) -> tuple[EpochStep, ...]:
        source = "rows" if self._aggregates is None else "partials"
        return (EpochStep(f"emit closed sessions of {self.store.name}", (f"from {source}",)),)
