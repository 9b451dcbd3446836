"""Aggregation sets of trailing windows, updated with window increments and decrements.

Definition 4 of the paper on aggregation join queries. When the watermark moves from t1 to t2, the
window of an input moves from W(t1) to W(t2): rows enter it (those that the watermark passed, and
late ones) and rows leave it. What enters is added to its groups. What leaves is taken off:

- counts, and sums of whole numbers and decimals, are subtracted;
- an extreme stays what it is unless the row that leaves is as extreme as it, and only then is the
  group computed again from the rows that are left;
- a sum of doubles, and a state that is none of these, is computed again when a row leaves its
  group: subtracting does not undo what adding has rounded, and nothing brings a sum back from
  infinity.

An epoch writes the groups that it *touched* anew, and of a group's entries the newest counts. An
entry as old as the window is long has nothing left in it, so files leave as their time comes.

Paper: Early Aggregation, Section 4, Definition 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from headrace.definitions.definition import (
    Definition,
    Sql,
    any_of,
    call,
    column,
    keep,
    named,
    number,
    select,
    sql_of,
    union_all,
)
from headrace.definitions.partials import Partial, state_of_row
from headrace.operators.base import EpochStep, Operator, Store
from headrace.operators.epoch import Epoch
from headrace.operators.old_and_new import old_and_new
from headrace.operators.panes.pane_store import ROWS
from headrace.operators.rows.row_store import StoredRows
from headrace.operators.sets.watched_keys import GROUPS, take_keys, watch_keys
from headrace.operators.sets.window_change import WindowChange
from headrace.operators.sets.window_load import Entered, window_load
from headrace.operators.write import RowFilter, Write, Writing
from headrace.plan.expressions import Expr
from headrace.plan.nodes import Node
from headrace.plan.types import BIGINT, BOOLEAN, DOUBLE, Field, Schema
from headrace.plan.windows import InputWindowKind, Landmark
from headrace.sql.render import data_type
from headrace.stats.load import SeenSet, SetWork, skew_of

_EXTREMES = frozenset({"min", "max", "bool_and", "bool_or", "every", "some", "any"})
#: An entry's number, the watermark it was written at, and whether its group is computed again.
VERSION, AT, AGAIN = "__version", "__at", "__again"
_KIND = "__kind"
#: How many rows of a group entered, which is not stored.
_CAME = "__came"
_OLD, _ENTERS, _LEAVES = 0, 1, 2
#: Of the groups that were touched: their rows, the squares of these, and how many have any.
_HELD, _SQUARES, _HOLDING = "__held", "__squares", "__holding"

#: Types of which a value is equal to itself in every engine, and nothing else is.
_PLAIN = frozenset(
    {"bigint", "int", "smallint", "tinyint", "string", "boolean", "date", "timestamp"}
)

#: Leaves out entries of which it is known that nobody asks for them.
Near = Callable[[exp.Query], exp.Query]


@dataclass
class TrailingSet(Store):
    """The set of a stream's trailing window, or of all of it up to the watermark."""

    name: str
    reader: Operator
    rows: StoredRows
    keys: tuple[Expr, ...]
    window: InputWindowKind
    streams: frozenset[str]
    partials: dict[str, Partial] = field(default_factory=dict)
    wishes: list[Callable[[Epoch], bool]] = field(default_factory=list)
    #: Key columns by which it is joined; their values are counted.
    joined_by: set[str] = field(default_factory=set)

    @property
    def immediate(self) -> bool:
        return False

    def inputs(self) -> tuple[Operator, ...]:
        return (self.reader,)

    @property
    def key_names(self) -> list[str]:
        return [f"__key{index}" for index in range(len(self.keys))]

    @property
    def schema(self) -> Schema:
        fields = [Field(n, k.type) for n, k in zip(self.key_names, self.keys, strict=True)]
        fields += [Field(VERSION, BIGINT), Field(AT, BIGINT), Field(AGAIN, BOOLEAN)]
        fields.append(Field(ROWS, BIGINT))
        fields += [p.field for p in self._ordered()]
        return Schema((*fields, *(Field(_values(p), BIGINT) for p in self._sums())))

    def _ordered(self) -> list[Partial]:
        return [self.partials[name] for name in sorted(self.partials)]

    def _sums(self) -> list[Partial]:
        return [p for p in self._ordered() if _is_sum(p)]

    # Reading

    def change(self, epoch: Epoch) -> WindowChange | None:
        after = epoch.after(self.streams)
        if after is None:
            return None
        return WindowChange(self.window, epoch.before(self.streams), after)

    def is_wanted(self, epoch: Epoch) -> bool:
        """Whether its groups are kept in this epoch."""
        return any(wish(epoch) for wish in self.wishes)

    def current(self, epoch: Epoch, near: Near | None = None) -> exp.Query | None:
        """The groups that have rows now; those that are ``near`` at least, where that is asked."""
        entries = old_and_new(
            epoch.old(self.name, self.schema), epoch.new(self.name, self.schema), mark=False
        )
        return None if entries is None else self._with_rows(entries, near)

    def row_by_row(self, epoch: Epoch) -> exp.Query | None:
        """The same of an input that is not aggregated: a group for each row."""
        change = self.change(epoch)
        rows = None if change is None else change.now.of(self.rows, epoch, old=True, new=True)
        return None if rows is None else self._each_row(rows)

    def previous(self, epoch: Epoch, near: Near | None = None) -> exp.Query | None:
        """What was in the window before this epoch: groups where they were kept, else rows."""
        entries = epoch.old(self.name, self.schema)
        if entries is not None:
            # A set that begins anew in this epoch has let go of all that it knew.
            return self._with_rows(entries.query, near)
        change = self.change(epoch)
        span = None if change is None else change.was
        rows = None if span is None else span.of(self.rows, epoch, old=True, new=False)
        return None if rows is None else self._each_row(rows)

    def moved(self, epoch: Epoch, partials: Sequence[Partial]) -> exp.Query | None:
        """What entered the window less what left it, by groups: all of it are differences."""
        change = self.change(epoch)
        if change is None or change.before is None:
            return None
        enters = (
            change.now.of(self.rows, epoch, old=False, new=True),
            change.entered.of(self.rows, epoch, old=True, new=False),
        )
        left = None if change.left is None else change.left.of(self.rows, epoch, True, False)
        parts = [
            self._difference(rows, partials, leaves)
            for rows, leaves in ((enters[0], False), (enters[1], False), (left, True))
            if rows is not None
        ]
        if not parts:
            return None
        sums = {ROWS: _total(column(ROWS)), **{p.name: p.merge(column(p.name)) for p in partials}}
        by = [column(name) for name in self.key_names]
        return select(union_all(parts), {**keep(self.key_names), **sums}, (), by)

    def _difference(self, rows: exp.Query, partials: Sequence[Partial], leaves: bool) -> exp.Query:
        columns: dict[str, Sql] = {ROWS: _signed(exp.Count(this=exp.Star()), leaves)}
        columns |= {p.name: _as(p, _signed(p.update.copy(), leaves)) for p in partials}
        positions = [exp.Literal.number(i + 1) for i in range(len(self.keys))]
        return select(rows, {**self._groups(), **columns}, group_by=positions)

    def _with_rows(self, entries: exp.Query, near: Near | None) -> exp.Query:
        entries = entries if near is None else near(entries)
        return select(self._newest(entries), None, [column(ROWS) > exp.Literal.number(0)])

    def _each_row(self, rows: exp.Query) -> exp.Query:
        states = {ROWS: number(1), **{p.name: state_of_row(p) for p in self._ordered()}}
        return select(rows, {**self._groups(), **states})

    def _groups(self) -> dict[str, Sql]:
        return {n: sql_of(k) for n, k in zip(self.key_names, self.keys, strict=True)}

    def _newest(self, entries: exp.Query) -> exp.Query:
        by = [column(name) for name in self.key_names]
        newest = exp.Window(this=call("max", column(VERSION)), partition_by=by)
        ranked = select(entries, None).select(named(newest, "__newest"), copy=False)
        return select(ranked, keep(self.schema.names), [column(VERSION).eq(column("__newest"))])

    # Updating

    def advance(self, epoch: Epoch) -> Writing[None]:
        arrangement = epoch.state.arrangement(self.name)
        change = self.change(epoch)
        if change is None:
            return
        wanted = self.is_wanted(epoch)
        written = max((f.last for f in arrangement.files if f.last is not None), default=None)
        if not wanted or written != change.before:
            # What it knew is not of the last watermark: it begins anew from the window's rows.
            epoch.state.garbage += [(epoch.number, file.path) for file in arrangement.files]
            arrangement.replace(list(arrangement.files), [])
            change = WindowChange(self.window, None, change.after)
        if not wanted:
            yield from self._look_at(epoch)
            return
        anew = change.before is None
        enters = [change.now.of(self.rows, epoch, old=anew, new=True)]
        if not anew:
            enters.append(change.entered.of(self.rows, epoch, old=True, new=False))
        moved = [(rows, _ENTERS) for rows in enters if rows is not None]
        left = None if change.left is None else change.left.of(self.rows, epoch, True, False)
        if left is not None:
            moved.append((left, _LEAVES))
        if not moved:
            return
        parts = [self._states(rows, kind) for rows, kind in moved]
        old = None if anew else epoch.old(self.name, self.schema)
        if old is not None:
            touched = self._touched(old.query, [rows.copy() for rows, _ in moved])
            parts.insert(0, self._entries(touched))
        updated = self._updated(union_all(parts))
        entered = column(_CAME) > exp.Literal.number(0)
        seen = yield from self._append(
            epoch, updated, 0, change.after, self._watched(epoch, call("count_if", entered))
        )
        again = bool(seen[AGAIN])
        noted = self._note(epoch, seen, anew)
        if again:
            rows = change.now.of(self.rows, epoch, old=True, new=True)
            if rows is not None:
                yield from self._append(epoch, self._again(epoch, rows), 1, change.after)
        if noted is not None and not anew:
            self._note_work(epoch, noted, left is not None, again)

    def _note_work(self, epoch: Epoch, noted: SeenSet, some_left: bool, again: bool) -> None:
        """What it took to update the set: rows that entered and about as many that left, the
        entries that there were, and all rows of the window where groups were computed again."""
        arrangement, came = epoch.state.arrangement(self.name), noted.rows
        grouped = came * (1 + some_left)
        grouped += sum(file.rows for file in arrangement.before(epoch.number))
        held = epoch.statistics.moving.get(self.name)
        if again and held is not None:
            grouped += held.rows
        stored = came + sum(file.rows for file in epoch.new_files(self.name))
        epoch.set_work[self.name] = SetWork(came, noted.load.milliseconds, grouped, stored)

    def _look_at(self, epoch: Epoch) -> Writing[None]:
        """Count the groups of rows that enter the window, where nothing aggregates them."""
        change = self.change(epoch)
        assert change is not None
        new = change.now.of(self.rows, epoch, old=False, new=True)
        passed = change.entered.of(self.rows, epoch, old=True, new=False)
        enters = [rows for rows in (new, passed) if rows is not None]
        if not enters or change.before == change.after:
            return
        columns: dict[str, Sql] = {**self._groups(), _CAME: number(1)}
        fields = [field for field in self.schema if field.name in columns]
        written = yield Write(
            f"groups of {self.name}",
            union_all([select(rows, columns) for rows in enters]),
            Schema((*fields, Field(_CAME, BIGINT))),
            watch=self._watched(epoch, None),
            only_seen=True,
        )
        self._note(epoch, written.seen, change.before is None)

    def _watched(self, epoch: Epoch, groups: Sql | None) -> dict[str, Sql]:
        """Rows that enter, their groups, counted so or by their hashes, and keys."""
        entered = column(_CAME) > exp.Literal.number(0)
        counted: dict[str, list[Sql]] = {
            name: [exp.Case(ifs=[exp.If(this=entered.copy(), true=column(name))])]
            for name in self.joined_by
        }
        watched: dict[str, Sql] = {_CAME: call("sum", column(_CAME))}
        if groups is not None:
            rows = column(ROWS)
            watched |= {
                _HELD: call("sum", rows),
                _SQUARES: call("sum", rows * rows.copy()),
                _HOLDING: call("count_if", rows.copy() > exp.Literal.number(0)),
            }
        if groups is None:
            counted[GROUPS] = [column(name) for name in (*self.key_names, _CAME)]
        else:
            watched[GROUPS] = groups
        recent = epoch.state.arrangement(self.rows.store.name).recent_rows
        return watched | watch_keys(counted, recent)

    def _note(self, epoch: Epoch, seen: dict[str, Any], anew: bool) -> SeenSet | None:
        change = self.change(epoch)
        assert change is not None
        counted = take_keys(seen)
        # Nothing is counted where no row entered.
        groups = counted.pop(GROUPS, None) or float(seen.pop(GROUPS, None) or 0)
        entered = Entered(float(seen.pop(_CAME) or 0), groups, counted, anew)
        noted = window_load(epoch, change, self.rows.store.name, entered)
        held, squares, groups = (seen.pop(name, None) for name in (_HELD, _SQUARES, _HOLDING))
        if noted is None:
            return None
        if held is not None and squares is not None:
            noted = replace(noted, skew=skew_of(float(squares), float(held), float(groups)))
        epoch.statistics.note_set(self.name, noted)
        return noted

    def _append(
        self,
        epoch: Epoch,
        groups: exp.Query,
        version: int,
        at: int,
        watch: Mapping[str, Sql] | None = None,
    ) -> Writing[dict[str, Any]]:
        fixed: dict[str, Sql] = {VERSION: number(2 * epoch.number + version), AT: number(at)}
        only_seen = [] if watch is None else [_CAME]
        shown = [*self.schema.names, *only_seen]
        columns = {name: fixed.get(name, column(name)) for name in shown}
        return (
            yield from epoch.append(
                self.name,
                Definition(select(groups, columns), self.schema),
                first=call("min", column(AT)),
                last=call("max", column(AT)),
                watch={AGAIN: call("count_if", column(AGAIN)), **(watch or {})},
                keep=RowFilter(exp.true(), self.schema.names) if only_seen else None,
                split_by=tuple(self.key_names),
                again="-again" if version else "",
            )
        )

    def _entries(self, stored: exp.Query) -> exp.Query:
        """The groups as they were, beside those that enter and leave."""
        nothing = {_gone(p): _null(p) for p in self._extremes()}
        plain = [*self.key_names, ROWS, *(p.name for p in self._ordered())]
        plain += [_values(p) for p in self._sums()]
        columns = {**keep(plain), **nothing, _KIND: number(_OLD)}
        # A group that lost all of its rows lost its extremes with them, and begins anew.
        some = [column(ROWS) > exp.Literal.number(0)]
        return select(self._newest(stored), columns, some)

    def _touched(self, stored: exp.Query, moved: list[exp.Query]) -> exp.Query:
        """The entries of groups that rows enter or leave: the others stay as they are, unread but
        for their keys."""
        if not self.keys or not all(key.type.name in _PLAIN for key in self.keys):
            return stored
        positions = [exp.Literal.number(i + 1) for i in range(len(self.keys))]
        named_keys = {f"__moved{i}": sql_of(key) for i, key in enumerate(self.keys)}
        keys = union_all([select(rows, named_keys, group_by=positions) for rows in moved])
        groups_touched = (
            select(keys, None, (), ()) if len(moved) == 1 else _distinct(keys, named_keys)
        )
        on = [
            exp.NullSafeEQ(this=column(name), expression=column(f"__moved{i}"))
            for i, name in enumerate(self.key_names)
        ]
        return (
            exp.Select(expressions=[exp.Star()])
            .from_(select(stored, None).subquery("l", copy=False), copy=False)
            .join(
                groups_touched.subquery("r", copy=False),
                on=exp.and_(*on, copy=False),
                join_type="inner",
                copy=False,
            )
        )

    def _states(self, rows: exp.Query, kind: int) -> exp.Query:
        """Groups of rows that enter or leave; those that leave with the opposite sign."""
        groups = self._groups()
        leaves = kind == _LEAVES

        def signed(value: Sql) -> Sql:
            return _signed(value, leaves)

        columns: dict[str, Sql] = {ROWS: signed(exp.Count(this=exp.Star()))}
        for partial in self._ordered():
            if is_additive(partial):
                columns[partial.name] = _as(partial, signed(partial.update.copy()))
            else:
                columns[partial.name] = _null(partial) if leaves else partial.update.copy()
        for partial in self._sums():
            columns[_values(partial)] = signed(_count_values(partial))
        for partial in self._extremes():
            columns[_gone(partial)] = partial.update.copy() if leaves else _null(partial)
        positions = [exp.Literal.number(i + 1) for i in range(len(groups))]
        some = select(rows, {**groups, **columns}, group_by=positions)
        return select(some, None).select(named(number(kind), _KIND), copy=False)

    def _extremes(self) -> list[Partial]:
        return [p for p in self._ordered() if _is_extreme(p)]

    def _updated(self, together: exp.Query) -> exp.Query:
        """The groups that were touched, with what entered added and what left taken off."""
        counted: dict[str, Sql] = {
            ROWS: _total(column(ROWS)),
            _CAME: _total(_when(_ENTERS, column(ROWS))),
        }
        leaving = [_when(_LEAVES, number(1))]
        again: list[Sql] = []
        for partial in self._ordered():
            merged = partial.merge(column(partial.name))
            if _is_sum(partial):
                values = _total(column(_values(partial)))
                some = exp.If(this=values.copy() > exp.Literal.number(0), true=merged)
                merged = exp.Case(ifs=[some])
                counted[_values(partial)] = values
            if not is_additive(partial) and not _is_extreme(partial):
                again.append(call("count", leaving[0].copy()) > exp.Literal.number(0))
            counted[partial.name] = merged
        for partial in self._extremes():
            was = call("max", _when(_OLD, column(partial.name)))
            gone = partial.merge(column(_gone(partial)))
            again.append(exp.EQ(this=was, expression=gone))
        touched = call("count", _when(_OLD, number(1), other=True))
        is_again = exp.paren(any_of(again)) if again else exp.false()
        counted[AGAIN] = call("coalesce", is_again, exp.false())
        counted["__touched"] = touched
        columns = {**keep(self.key_names), **counted}
        grouped = select(together, columns, (), [column(name) for name in self.key_names])
        # A group that is empty now has nothing to be computed from.
        left = exp.and_(column(AGAIN), column(ROWS) > exp.Literal.number(0), copy=False)
        names = [n for n in self.schema.names if n not in (VERSION, AT, AGAIN)]
        shown = {**keep([*names, _CAME]), AGAIN: left}
        return select(grouped, shown, [column("__touched") > exp.Literal.number(0)])

    def _again(self, epoch: Epoch, rows: exp.Query) -> exp.Query:
        """The groups whose extremes have left, from the rows of the window."""
        flagged = epoch.new(self.name, self.schema)
        assert flagged is not None
        states: dict[str, Sql] = {ROWS: exp.Count(this=exp.Star())}
        states |= {p.name: p.update.copy() for p in self._ordered()}
        states |= {_values(p): _count_values(p) for p in self._sums()}
        positions = [exp.Literal.number(i + 1) for i in range(len(self.keys))]
        computed = select(rows, {**self._groups(), **states}, group_by=positions)
        nothing: dict[str, Sql] = {ROWS: number(0)}
        nothing |= {p.name: _null(p) for p in self._ordered()}
        nothing |= {_values(p): number(0) for p in self._sums()}
        groups_again = select(flagged.query, {**keep(self.key_names), **nothing}, [column(AGAIN)])
        marked: list[exp.Query] = [
            select(part, None).select(named(flag, AGAIN), copy=False)
            for part, flag in ((computed, exp.false()), (groups_again, exp.true()))
        ]
        merged: dict[str, Sql] = {ROWS: _total(column(ROWS))}
        merged |= {p.name: p.merge(column(p.name)) for p in self._ordered()}
        merged |= {_values(p): _total(column(_values(p))) for p in self._sums()}
        merged[AGAIN] = call("max", column(AGAIN))
        by = [column(name) for name in self.key_names]
        grouped = select(union_all(marked), {**keep(self.key_names), **merged}, (), by)
        names = [n for n in self.schema.names if n not in (VERSION, AT, AGAIN)]
        return select(grouped, {**keep(names), AGAIN: exp.false()}, [column(AGAIN)])

    # Keeping

    def horizon(self, epoch: Epoch) -> int | None:
        after = epoch.after(self.streams)
        if after is None or isinstance(self.window, Landmark):
            return None
        return after - self.window.length

    def released_by(self) -> frozenset[frozenset[str]]:
        return frozenset({self.streams})

    @property
    def endless(self) -> bool:
        return isinstance(self.window, Landmark)

    def compacted(self, epoch: Epoch, rows: Definition) -> Definition:
        horizon = self.horizon(epoch)
        where = [] if horizon is None else [column(AT) >= number(horizon)]
        return Definition(select(self._newest(rows.query), None, where), self.schema)

    @property
    def split_by(self) -> tuple[str, ...]:
        return tuple(self.key_names)

    def step(self) -> EpochStep:
        keys = ", ".join(map(str, self.keys)) or "(all rows)"
        return EpochStep(
            f"update aggregation set {self.name}",
            (f"group by {keys}, {self.window.name}", f"partials: {len(self.partials)}"),
        )


class WindowRows(Operator):
    """The stored rows that a set's window is made of, for who asks what has to be stored first."""

    def __init__(self, node: Node, rows: StoredRows) -> None:
        self.node = node
        self.stores = (rows.store,)

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self.stores[0].inputs()

    def delta(self, epoch: Epoch) -> Definition | None:
        raise AssertionError("rows of a window are read by its set")

    def steps(self) -> tuple[EpochStep, ...]:
        return ()


def _distinct(rows: exp.Query, names: Mapping[str, Sql]) -> exp.Select:
    return select(rows, keep(names), (), [column(name) for name in names])


def _signed(value: Sql, leaves: bool) -> Sql:
    return exp.Neg(this=exp.paren(value)) if leaves else value


def _is_sum(partial: Partial) -> bool:
    return partial.call is not None and partial.call.function == "sum"


def is_additive(partial: Partial) -> bool:
    """Whether what leaves can be subtracted, exactly."""
    counts = partial.call is not None and partial.call.function in ("count", "count_if")
    return counts or (_is_sum(partial) and partial.type != DOUBLE)


def _is_extreme(partial: Partial) -> bool:
    """Whether what leaves changes nothing unless it is as extreme as what there is.

    Bits are no extremes: the rows that are left may have one that those which leave have not.
    """
    return partial.call is not None and partial.call.function in _EXTREMES


def _values(partial: Partial) -> str:
    """The column that counts the values of a sum: a sum of none is NULL."""
    return f"__values{partial.name}"


def _gone(partial: Partial) -> str:
    """The column of the extreme among the rows that leave."""
    return f"__gone{partial.name}"


def _null(partial: Partial) -> Sql:
    return exp.Cast(this=exp.Null(), to=data_type(partial.type))


def _as(partial: Partial, value: Sql) -> Sql:
    return exp.Cast(this=value, to=data_type(partial.type))


def _total(value: Sql) -> Sql:
    return exp.Cast(this=call("sum", value), to=exp.DataType.build("bigint"))


def _when(kind: int, value: Sql, other: bool = False) -> Sql:
    """The value in entries of a kind, or of any other kind."""
    is_kind: Sql = column(_KIND).eq(kind)
    return exp.Case(ifs=[exp.If(this=exp.Not(this=is_kind) if other else is_kind, true=value)])


def _count_values(partial: Partial) -> Sql:
    """How many rows a sum has values of."""
    return call("count", state_of_row(partial))
