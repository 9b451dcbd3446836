"""Reading stored partial aggregates, merging them, and finishing them as a query's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from headrace.definitions.definition import Definition, Sql, call, column, keep, named, select
from headrace.definitions.partials import Decomposed
from headrace.operators.epoch import Epoch
from headrace.operators.old_and_new import NEW, old_and_new
from headrace.operators.panes.pane_store import ROWS, PaneStore
from headrace.plan.nodes import Aggregate


def read_panes(
    epoch: Epoch, store: PaneStore, first: int | None, last: int | None, mark_new: bool
) -> exp.Query | None:
    """The stored partials of a span of time, this epoch's own included."""
    new = epoch.new(store.name, store.schema)
    old = epoch.old(store.name, store.schema, first, last)
    return old_and_new(old, new, mark_new)


def merges(
    aggregates: Mapping[str, Decomposed], only_changed: bool, present: str | None = None
) -> dict[str, Sql]:
    """How the stored columns of a group become one row. ``present`` marks a query's own rows."""
    needed = {p.name: p for parts in aggregates.values() for p in parts.partials}
    merged: dict[str, Sql] = {p.name: p.merge(column(p.name)) for p in needed.values()}
    if only_changed:
        # A row that another query's filter let in changes nothing for this one.
        changed = column(NEW) if present is None else exp.and_(column(NEW), column(present))
        merged[NEW] = call("max", call("coalesce", changed, exp.false()))
    return merged


def merge_groups(rows: exp.Query, groups: Sequence[str], merged: Mapping[str, Sql]) -> exp.Query:
    columns = {**keep(groups), **{name: value.copy() for name, value in merged.items()}}
    return select(rows, columns, (), [column(name) for name in groups])


def finished(
    node: Aggregate,
    keys: Sequence[str],
    aggregates: Mapping[str, Decomposed],
    merged: exp.Query,
    extra: Mapping[str, Sql],
    only_changed: bool,
    present: str | None = None,
    different: Mapping[str, Sql] | None = None,
) -> Definition:
    """The query's rows from merged partials.

    ``keys`` are the stored columns of the query's keys, ``extra`` its columns besides keys and
    aggregates. ``different`` are aggregates of different values; where there are some, the partials
    are of groups by these values, whose columns follow those of the keys.
    """
    keys = keys[: len(node.keys)]
    if different:
        merged = _of_groups(keys, aggregates, merged, extra, only_changed, different)
        extra = keep(extra)
    columns: dict[str, Sql] = {
        key.name: column(stored) for key, stored in zip(node.keys, keys, strict=True)
    }
    columns |= extra
    columns |= {name: parts.finish for name, parts in aggregates.items()}
    columns |= {name: column(_place(at)) for at, name in enumerate(different or ())}
    ordered = {name: columns[name] for name in node.schema.names}
    where: list[Sql] = [column(NEW)] if only_changed else []
    if present is not None:
        where.append(column(present))
    return Definition(select(merged, ordered, where), node.schema)


def _of_groups(
    keys: Sequence[str],
    aggregates: Mapping[str, Decomposed],
    merged: exp.Query,
    extra: Mapping[str, Sql],
    only_changed: bool,
    different: Mapping[str, Sql],
) -> exp.Query:
    """The groups of the query's own keys, from groups that are told apart by values as well."""
    rows = select(merged, None)
    for name, value in extra.items():
        rows = rows.select(named(value, name), copy=False)
    groups = [*keys, *extra]
    columns = {**merges(aggregates, only_changed), ROWS: exp.Count(this=exp.Star())}
    columns |= {_place(at): value for at, value in enumerate(different.values())}
    grouped = merge_groups(rows, groups, columns)
    # Without groups even no rows would make one.
    return select(grouped, None, [column(ROWS) > exp.Literal.number(0)])


def _place(at: int) -> str:
    """The column of an aggregate of different values before it has its name."""
    return f"__different{at}"
