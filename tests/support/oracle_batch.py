"""The batch meaning of a plan: what it says of complete inputs, as one DuckDB query.

No epochs, no watermarks, nothing is late: every window is closed, every row without a partner
comes out. A landmark holds the totals over everything; a trailing window is the one at the last
watermark; ``ttl`` is ignored, because it speaks of when rows arrive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import duckdb

from headrace.plan.nodes import (
    Aggregate,
    Filter,
    IntervalBound,
    Join,
    Node,
    Project,
    SameSession,
    SameWindow,
    Sink,
    Source,
    Table,
    Union,
)
from headrace.plan.times import aggregate_lag
from headrace.plan.types import Schema
from headrace.plan.windows import Hopping, InheritedWindow, Landmark, Session, Trailing
from tests.support.compare import plain_rows
from tests.support.duck import Rows, comma, duck_sql, fetch, fresh, load, quote

WINDOW_OF = 'struct_pack("start" := make_timestamp({0}), "end" := make_timestamp({1}))'


def run_batch(plan: Node, tables: Mapping[str, Rows]) -> list[tuple[Any, ...]]:
    """The rows of a plan over complete inputs; ``tables`` holds its streams and tables by name."""
    with fresh() as database:
        for leaf in leaves(plan):
            load(database, leaf_name(leaf), tables[leaf_name(leaf)], leaf.schema)
        return plain_rows(fetch(database, relation(plan, database)))


def leaf_name(leaf: Source | Table) -> str:
    return leaf.stream if isinstance(leaf, Source) else leaf.table


def leaves(plan: Node) -> list[Source | Table]:
    """One leaf per stream or table, with all columns that any read of it names."""
    found: dict[str, Source | Table] = {}
    for node in plan.walk():
        if isinstance(node, Source | Table):
            known = found.setdefault(leaf_name(node), node)
            more = [f for f in node.schema if f.name not in known.schema]
            if more:
                columns = Schema((*known.schema.fields, *more))
                found[leaf_name(node)] = replace(known, columns=columns)
    return list(found.values())


def relation(node: Node, database: duckdb.DuckDBPyConnection) -> str:
    """A SELECT that gives the node's columns, by name and in order."""

    def below(child: Node) -> str:
        return relation(child, database)

    match node:
        case Source():
            columns = comma(map(quote, node.schema.names))
            # Rows without a time are dropped at ingest, whatever the query.
            return (
                f"SELECT {columns} FROM {quote(node.stream)} WHERE {quote(node.time)} IS NOT NULL"
            )
        case Table():
            return f"SELECT {comma(map(quote, node.schema.names))} FROM {quote(node.table)}"
        case Sink():
            return below(node.input)
        case Filter():
            return f"SELECT * FROM ({below(node.input)}) WHERE {duck_sql(node.predicate)}"
        case Project():
            columns = comma(f"{duck_sql(c.expr)} AS {quote(c.name)}" for c in node.columns)
            return f"SELECT {columns} FROM ({below(node.input)})"
        case Union():
            return " UNION ALL ".join(f"(SELECT * FROM ({below(part)}))" for part in node.parts)
        case Aggregate():
            return _aggregate(node, below(node.input), database)
        case Join():
            return _join(node, below(node.left), below(node.right))
        case _:
            raise NotImplementedError(f"the oracle has no {type(node).__name__}")


def window_starts(time: str, window: Hopping) -> str:
    """A list of the starts (microseconds) of the windows that hold a time (microseconds)."""
    length, slide, offset = window.length * 1000, window.slide * 1000, window.offset * 1000
    # A remainder has the sign of what is divided: times before 1970 are negative.
    last = f"({time} - (({time} - {offset}) % {slide} + {slide}) % {slide})"
    return (
        f"list_filter(generate_series({last} - {(window.overlap - 1) * slide}, {last}, {slide}), "
        f"lambda s: s + {length} > {time})"
    )


def shares_window(left: str, right: str, window: Hopping) -> str:
    """Whether the last window that holds the earlier time also holds the later one."""
    starts = window_starts(f"least({left}, {right})", window)
    # Above an outer join a time may be missing, which greatest and least would pass over.
    both = f"{left} IS NOT NULL AND {right} IS NOT NULL"
    return f"({both} AND greatest({left}, {right}) < list_max({starts}) + {window.length * 1000})"


def grouping_columns(node: Aggregate) -> str:
    """The keys under neutral names, and all columns of the input for the aggregates."""
    return comma([*(f"{duck_sql(k.expr)} AS __k{i}" for i, k in enumerate(node.keys)), "*"])


def grouped(
    node: Aggregate,
    rows: str,
    window: tuple[str, str],
    extra: str = "",
    having: str = "count(*) > 0",
) -> str:
    """Groups of rows that carry ``__k0…``, ``__group`` and, for several windows, ``__id``.

    ``window`` holds expressions for the window's start and end; ``extra`` is one more column to
    group by. Without keys and rows there is no group, not an empty one, hence ``having``.
    """
    keys = [f"__k{i}" for i in range(len(node.keys))]
    columns = [f"{key} AS {quote(k.name)}" for key, k in zip(keys, node.keys, strict=True)]
    groups = list(keys)
    if node.has_window_column:
        columns.append(f"{WINDOW_OF.format(*window)} AS {quote('window')}")
        groups.append("__group")
    if len(node.windows) > 1:
        columns.append("__id AS window_id")
        groups.append("__id")
    columns += [f"{duck_sql(a.expr)} AS {quote(a.name)}" for a in node.aggregates]
    if extra:
        groups.append(extra)
        columns.insert(0, extra)
    by = f"GROUP BY {comma(groups)}" if groups else ""
    return f"SELECT {comma(columns)} FROM ({rows}) {by} HAVING {having}"


def _aggregate(node: Aggregate, rows: str, database: duckdb.DuckDBPyConnection) -> str:
    time = quote(node.time.name)
    rows = f"SELECT {grouping_columns(node)} FROM ({rows}) WHERE {time} IS NOT NULL"
    micros = f"epoch_us({time})"
    first = node.windows[0]
    match first:
        case Landmark():
            return grouped(node, rows, ("", ""))
        case InheritedWindow():
            rows = f"SELECT *, {time} AS __group FROM ({rows})"
            return grouped(node, rows, ('epoch_us(__group."start")', 'epoch_us(__group."end")'))
        case Trailing():
            end = _last_watermark(node, database)
            if end is None:
                return (
                    f"SELECT * FROM ({grouped(node, _tagged(rows, '0'), ('0', '0'))}) WHERE false"
                )
            start = end - first.length * 1000
            rows = f"{_tagged(rows, '0')} WHERE {micros} >= {start} AND {micros} < {end}"
            return grouped(node, rows, (str(start), str(end)))
        case Session():
            return _sessions(node, rows, micros, first)
        case Hopping():
            # __end depends on the window set and its start, so any of the group's is the group's.
            return grouped(node, in_windows(node, rows), ("__group", "any_value(__end)"))
        case _:
            raise NotImplementedError(f"the oracle has no window {first}")


def in_windows(node: Aggregate, rows: str) -> str:
    """Each row once per window that holds it: ``__id`` of the set, ``__group`` start, ``__end``."""
    micros = f"epoch_us({quote(node.time.name)})"
    parts = []
    for window in node.windows:
        assert isinstance(window, Hopping)
        parts.append(
            f"SELECT *, '{window.name}' AS __id, __group + {window.length * 1000} AS __end "
            f"FROM (SELECT *, unnest({window_starts(micros, window)}) AS __group FROM ({rows}))"
        )
    return " UNION ALL ".join(parts)


def _tagged(rows: str, group: str) -> str:
    return f"SELECT *, {group} AS __group FROM ({rows})"


def _sessions(node: Aggregate, rows: str, micros: str, window: Session) -> str:
    keys = [f"__k{i}" for i in range(len(node.keys))]
    by = f"PARTITION BY {comma(keys)}" if keys else ""
    gap = window.gap * 1000
    # A pause longer than the gap opens a session; one of exactly the gap does not.
    opens = f"SELECT *, {micros} - lag({micros}) OVER ({by} ORDER BY {micros}) > {gap} AS __opens"
    rows = f"{opens} FROM ({rows})"
    count = f"count(*) FILTER (WHERE __opens) OVER ({by} ORDER BY {micros})"
    rows = f"SELECT *, {count} AS __group FROM ({rows})"
    return grouped(node, rows, (f"min({micros})", f"max({micros}) + {gap}"))


def _last_watermark(node: Aggregate, database: duckdb.DuckDBPyConnection) -> int | None:
    """The final watermark (microseconds) less the lag, or None while a stream is empty."""
    marks: list[int] = []
    for source in node.walk():
        if isinstance(source, Source):
            greatest = f"SELECT max(epoch_us({quote(source.time)})) FROM {quote(source.stream)}"
            ((micros,),) = fetch(database, greatest)
            if micros is None:
                return None
            marks.append((micros // 1000 - source.delay) * 1000)
    return min(marks) - aggregate_lag(node) * 1000


def join_condition(node: Join) -> str:
    """Keys and residual, and the time condition unless it is one of sessions."""
    parts = [f"{duck_sql(left)} = {duck_sql(right)}" for left, right in node.keys]
    if node.residual is not None:
        parts.append(duck_sql(node.residual))
    for time in node.times:
        left, right = (f"epoch_us({quote(c.name)})" for c in (time.left, time.right))
        match time:
            case IntervalBound(lower=lower, upper=upper):
                if lower is not None:
                    parts.append(f"{right} - {left} >= {lower * 1000}")
                if upper is not None:
                    parts.append(f"{right} - {left} <= {upper * 1000}")
            case SameWindow(window=window):
                parts.append(shares_window(left, right, window))
            case SameSession():
                parts.append("__left_session = __right_session")
    return " AND ".join(parts) or "true"


def side(node: Join, rows: str, which: str, tags: str = "") -> str:
    """One input with the join's names, and ``__left_row`` or ``__right_row`` to tell rows apart.

    ``tags`` are further columns to select.
    """
    schema, names = (
        (node.left.schema, node.left_schema.names)
        if which == "left"
        else (node.right.schema, node.right_schema.names)
    )
    columns = comma(
        f"{quote(old)} AS {quote(new)}" for old, new in zip(schema.names, names, strict=True)
    )
    # The text may stand in a query twice, so numbers must not depend on the order rows come in;
    # equal rows may change places.
    order = comma(map(quote, schema.names))
    number = f"row_number() OVER (ORDER BY {order}) AS __{which}_row"
    return f"SELECT {columns}, {number}{tags} FROM ({rows})"


def _join(node: Join, left_rows: str, right_rows: str) -> str:
    left, right = side(node, left_rows, "left"), side(node, right_rows, "right")
    if isinstance(node.time, SameSession):
        left, right = _with_sessions(node, node.time, left, right)
    names = [*node.left_schema.names, *node.right_schema.names]
    columns = comma(map(quote, names))
    window = ""
    pairs = f"SELECT * FROM l JOIN r ON {join_condition(node)}"
    if node.emits_window:
        assert isinstance(node.time, SameWindow)
        pairs = common_windows(node.time, pairs)
        window = ", " + quote("window")
    text = f"SELECT {columns}{window} FROM pairs"
    outer_window = ", NULL" if node.emits_window else ""
    if node.kind.keeps_left:
        mine, nulls = comma(map(quote, node.left_schema.names)), nulls_for(node.right_schema)
        text += (
            f" UNION ALL SELECT {mine}, {nulls}{outer_window} "
            f"FROM l WHERE __left_row NOT IN (SELECT __left_row FROM pairs)"
        )
    if node.kind.keeps_right:
        mine, nulls = comma(map(quote, node.right_schema.names)), nulls_for(node.left_schema)
        text += (
            f" UNION ALL SELECT {nulls}, {mine}{outer_window} "
            f"FROM r WHERE __right_row NOT IN (SELECT __right_row FROM pairs)"
        )
    return (
        f"WITH l AS MATERIALIZED ({left}), r AS MATERIALIZED ({right}), "
        f"pairs AS MATERIALIZED ({pairs}) {text}"
    )


def nulls_for(schema: Schema) -> str:
    return comma(["NULL"] * len(schema))


def common_windows(time: SameWindow, pairs: str) -> str:
    """Each pair once per window that holds both of its rows."""
    left, right = (f"epoch_us({quote(c.name)})" for c in (time.left, time.right))
    both = (
        f"list_intersect({window_starts(left, time.window)}, {window_starts(right, time.window)})"
    )
    window = WINDOW_OF.format("__start", f"__start + {time.window.length * 1000}")
    return (
        f"SELECT *, {window} AS {quote('window')} "
        f"FROM (SELECT *, unnest({both}) AS __start FROM ({pairs}))"
    )


def _with_sessions(node: Join, time: SameSession, left: str, right: str) -> tuple[str, str]:
    """Both sides with ``__left_session`` and ``__right_session``: sessions over both together."""
    keys = [(duck_sql(a), duck_sql(b)) for a, b in node.keys]
    moments = (f"epoch_us({quote(time.left.name)})", f"epoch_us({quote(time.right.name)})")
    lists = [comma([*(f"{pair[i]} AS __k{n}" for n, pair in enumerate(keys))]) for i in (0, 1)]
    both = " UNION ALL ".join(
        f"SELECT '{which}' AS __side, __{which}_row AS __row, {moment} AS __at, {columns} "
        f"FROM ({rows})"
        for which, moment, columns, rows in zip(
            ("left", "right"), moments, lists, (left, right), strict=True
        )
    )
    by = f"PARTITION BY {comma(f'__k{n}' for n in range(len(keys)))}" if keys else ""
    opens = f"__at - lag(__at) OVER ({by} ORDER BY __at) > {time.gap * 1000}"
    rows = f"SELECT *, {opens} AS __opens FROM ({both})"
    session = f"count(*) FILTER (WHERE __opens) OVER ({by} ORDER BY __at)"
    rows = f"SELECT __side, __row, {session} AS __session FROM ({rows})"
    return (
        f"SELECT s.*, __session AS __left_session FROM ({left}) s "
        f"JOIN ({rows}) ON __side = 'left' AND __row = __left_row",
        f"SELECT s.*, __session AS __right_session FROM ({right}) s "
        f"JOIN ({rows}) ON __side = 'right' AND __row = __right_row",
    )
