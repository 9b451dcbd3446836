"""What comes out of a plan in each epoch: the meaning of results, node by node.

Every row is tagged with the epoch in which it comes out of its node (``__epoch``), so a node is
one DuckDB table over all epochs. What depends on time is then a condition on watermarks: a small
table ``(epoch, before, after)`` per operator, in microseconds, with the operator's lag already
taken off; NULL is "no watermark yet". Only sessions, which grow and close epoch by epoch, are a
loop in Python. Their rows come out late, so operators above a session join go by its clock as well
as by the streams'.

``__dies`` is the watermark from which on a row no longer counts in state-based joins (its time
plus its stream's ``ttl``); NULL is never.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import duckdb
import pyarrow as pa

from headrace.plan.nodes import (
    Aggregate,
    Filter,
    IntervalBound,
    Join,
    JoinKind,
    Node,
    OutputMode,
    Project,
    SameSession,
    SameWindow,
    Sink,
    Source,
    Table,
    Union,
)
from headrace.plan.types import INT, Field, Schema
from headrace.plan.windows import Current, Hopping, InheritedWindow, Landmark, Session, Trailing
from tests.support.compare import plain_rows
from tests.support.duck import Rows, comma, duck_sql, fetch, fresh, load, micros_of, quote
from tests.support.oracle_batch import (
    common_windows,
    grouped,
    grouping_columns,
    in_windows,
    join_condition,
    leaf_name,
    leaves,
    nulls_for,
    relation,
    side,
)
from tests.support.oracle_sessions import SessionRow, Watermarks, held_back, run_sessions
from tests.support.oracle_times import (
    Tree,
    closing_lag,
    join_lag,
    joined_below,
    open_sessions_of,
)


def run_epochs(
    plan: Node,
    epochs: Sequence[Mapping[str, Rows]],
    tables: Mapping[str, Rows] | None = None,
    mode: OutputMode = OutputMode.APPEND,
    watermarks: Mapping[str, Watermarks] | None = None,
    idle: Sequence[Collection[str]] | None = None,
) -> list[list[tuple[Any, ...]]]:
    """The rows that come out in each epoch.

    ``epochs`` holds the rows that each stream hands over in each epoch (a stream that is not named
    has none); delays and ttls are those of the plan's sources. ``watermarks`` takes the place of
    the streams' own, for examples that end time. ``idle`` names the streams that are idle in each
    epoch, unless they have rows in it.
    """
    with fresh() as database:
        silent = [
            set(idle[n]) - _streams_with_rows(plan, e) if idle else set()
            for n, e in enumerate(epochs)
        ]
        run = _Run(database, watermarks or stream_watermarks(plan, epochs), silent)
        for leaf in leaves(plan):
            name = leaf_name(leaf)
            if isinstance(leaf, Table):
                load(database, name, (tables or {})[name], leaf.schema)
            else:
                rows = [
                    {**row, "__epoch": number}
                    for number, epoch in enumerate(epochs)
                    for row in _dicts(epoch.get(name, []))
                ]
                tagged = Schema((*leaf.schema.fields, Field("__epoch", INT)))
                load(database, name, rows, tagged)
        result = run.table(plan, update=mode is OutputMode.UPDATE)
        columns = comma(map(quote, plan.schema.names))
        out: list[list[tuple[Any, ...]]] = [[] for _ in epochs]
        for number, *values in fetch(database, f"SELECT __epoch, {columns} FROM {result}"):
            out[number] += plain_rows([values])
        return out


def stream_watermarks(plan: Node, epochs: Sequence[Mapping[str, Rows]]) -> dict[str, Watermarks]:
    """Each stream's watermark: its greatest time so far in whole milliseconds, less its delay."""
    marks: dict[str, Watermarks] = {}
    for source in plan.walk():
        if isinstance(source, Source) and source.stream not in marks:
            after: int | None = None
            marks[source.stream] = []
            for epoch in epochs:
                before = after
                times = [row.get(source.time) for row in _dicts(epoch.get(source.stream, []))]
                seen = [
                    micros_of(time) // 1000 - source.delay for time in times if time is not None
                ]
                after = max([*seen, *([] if before is None else [before])], default=None)
                marks[source.stream].append((before, after))
    return {
        stream: [tuple(None if m is None else m * 1000 for m in pair) for pair in pairs]  # type: ignore[misc]
        for stream, pairs in marks.items()
    }


def _streams_with_rows(plan: Node, epoch: Mapping[str, Rows]) -> set[str]:
    """The streams that have rows with a time in an epoch."""
    sources = (node for node in plan.walk() if isinstance(node, Source))
    return {
        source.stream
        for source in sources
        if any(row.get(source.time) is not None for row in _dicts(epoch.get(source.stream, [])))
    }


def _dicts(rows: Rows) -> Sequence[Mapping[str, Any]]:
    return rows.to_pylist() if isinstance(rows, pa.Table) else rows


@dataclass
class _Run:
    """One evaluation: the database and the watermarks of its streams."""

    database: duckdb.DuckDBPyConnection
    streams: Mapping[str, Watermarks]
    #: The streams that are idle in each epoch.
    idle: Sequence[Collection[str]]
    numbers: Any = field(default_factory=count)
    #: Watermarks of the joins that are part of a tree above them, by identity.
    trees: dict[int, Watermarks] = field(default_factory=dict)
    #: Joins whose inputs have windows of their own, which take the place of a ttl, by identity.
    windowed: set[int] = field(default_factory=set)
    #: The table and the clock of each session join: what lies above asks for the clock first.
    session_joins: dict[Join, tuple[str, Watermarks]] = field(default_factory=dict)

    def create(self, select: str) -> str:
        name = f"__t{next(self.numbers)}"
        self.database.execute(f"CREATE TABLE {name} AS {select}")
        return name

    def watermarks(self, node: Node, lag: int, below: Iterable[Join] = ()) -> Watermarks:
        """The least of the watermarks of streams that are not idle, less the lag.

        It stays where it was if that would be lower, if no stream counts, and while one that counts
        has no watermark. ``below`` are the session joins that hold back the times by which the node
        goes; one of them whose streams are all idle does not count either.
        """
        mine = [(frozenset({s}), self.streams[s]) for s in sorted(node.streams())]
        mine += [(join.streams(), self.session_join(join)[1]) for join in below]
        # Who gives watermarks also says where they begin.
        before = _least([marks[0][0] for _, marks in mine if marks])
        result: Watermarks = []
        for number, idle in enumerate(self.idle):
            counting = [marks[number][1] for feeding, marks in mine if not feeding <= set(idle)]
            least = _least(counting)
            after = before if least is None else least if before is None else max(before, least)
            result.append((_behind(before, lag), _behind(after, lag)))
            before = after
        return result

    def watermark_table(self, marks: Watermarks) -> str:
        name = f"__t{next(self.numbers)}"
        self.database.execute(f"CREATE TABLE {name} (epoch INT, before BIGINT, after BIGINT)")
        for number, (before, after) in enumerate(marks):
            self.database.execute(f"INSERT INTO {name} VALUES (?, ?, ?)", [number, before, after])
        return name

    def table(self, node: Node, update: bool = False) -> str:
        """The name of a table of all rows that the node puts out, tagged with their epochs.

        ``update`` is the output mode of the aggregate that ends the query; what lies below another
        stateful operator always hands on final rows.
        """
        match node:
            case Source():
                time = quote(node.time)
                dies = "NULL" if node.ttl is None else f"epoch_us({time}) + {node.ttl * 1000}"
                return self.create(
                    f"SELECT __epoch, CAST({dies} AS BIGINT) AS __dies, "
                    f"{comma(map(quote, node.schema.names))} "
                    f"FROM {quote(node.stream)} WHERE {time} IS NOT NULL"
                )
            case Sink():
                return self.table(node.input, update)
            case Filter():
                below = self.table(node.input, update)
                return self.create(f"SELECT * FROM {below} WHERE {duck_sql(node.predicate)}")
            case Project():
                columns = comma(f"{duck_sql(c.expr)} AS {quote(c.name)}" for c in node.columns)
                below = self.table(node.input, update)
                return self.create(f"SELECT __epoch, __dies, {columns} FROM {below}")
            case Union():
                parts = [
                    f"(SELECT __epoch, __dies, {comma(map(quote, part.schema.names))} "
                    f"FROM {self.table(part, update)})"
                    for part in node.parts
                ]
                return self.create(" UNION ALL ".join(parts))
            case Aggregate():
                return self.aggregate(node, update)
            case Join() if not (node.left.streams() and node.right.streams()):
                return self.table_join(node, update)
            case Join(time=None):
                return self.state_join(node)
            case Join(time=SameSession()):
                return self.session_join(node)[0]
            case Join():
                return self.time_join(node)
            case _:
                raise NotImplementedError(f"the oracle has no {type(node).__name__}")

    # --- aggregates ------------------------------------------------------------------------------

    def aggregate(self, node: Aggregate, update: bool) -> str:
        time = quote(node.time.name)
        if node.also:
            self.windowed |= {id(join) for join in node.input.walk() if isinstance(join, Join)}
        below = self.table(node.input)
        rows = f"SELECT {grouping_columns(node)} FROM {below} WHERE {time} IS NOT NULL"
        marks = self.watermarks(
            node, closing_lag(node), open_sessions_of(node.input, node.time.name)
        )
        wm = self.watermark_table(marks)
        match node.windows[0]:
            case Landmark():
                rows = f"SELECT r.*, epoch AS __out FROM ({rows}) r JOIN {wm} ON epoch >= __epoch"
                window = ("", "")
                # The groups that got rows in the epoch, with totals over everything so far.
                return self._groups(node, rows, window, having="max(__epoch) = __out")
            case (Trailing() | Current()) as window if node.also:
                rows = self._windows_of_inputs(node, below, wm)
                return self._groups(node, rows, (_begin(window, "__group"), "__group"))
            case Trailing(length=length):
                micros = f"epoch_us({time})"
                rows = (
                    f"SELECT rows.*, epoch AS __out, after AS __group FROM ({rows}) rows JOIN {wm} "
                    f"ON epoch >= __epoch AND after > coalesce(before, after - 1) "
                    f"AND {micros} >= after - {length * 1000} AND {micros} < after"
                )
                return self._groups(node, rows, (f"__group - {length * 1000}", "__group"))
            case Session(gap=gap):
                return self.session_aggregate(node, rows, gap * 1000, marks, update)
            case InheritedWindow():
                rows = (
                    f'SELECT *, {time} AS __group, epoch_us(({time})."end") AS __end FROM ({rows})'
                )
                window = ('epoch_us(__group."start")', 'epoch_us(__group."end")')
            case Hopping():
                rows = in_windows(node, rows)
                window = ("__group", "any_value(__end)")
            case other:
                raise NotImplementedError(f"the oracle has no window {other}")
        # A row counts in a window that was open when its epoch began.
        counted = (
            f"SELECT rows.* FROM ({rows}) rows JOIN {wm} ON epoch = __epoch "
            f"WHERE before IS NULL OR __end > before"
        )
        if update:
            rows = f"SELECT c.*, epoch AS __out FROM ({counted}) c JOIN {wm} ON epoch >= __epoch"
            return self._groups(node, rows, window, having="max(__epoch) = __out")
        closing = f"(SELECT min(epoch) FROM {wm} WHERE after >= __end)"
        rows = (
            f"SELECT * FROM (SELECT *, {closing} AS __out FROM ({counted})) WHERE __out IS NOT NULL"
        )
        return self._groups(node, rows, window)

    def _windows_of_inputs(self, node: Aggregate, below: str, wm: str) -> str:
        """Joined rows whose every part is in its own window when the watermark has moved."""
        parts = [(node.time, node.windows[0]), *((p.time, p.window) for p in node.also)]
        held = []
        for time, window in parts:
            micros = f"epoch_us({quote(time.name)})"
            held.append(f"{micros} < after")
            if isinstance(window, Trailing | Current):
                held.append(f"{micros} >= {_begin(window, 'after')}")
        return (
            f"SELECT {grouping_columns(node)}, epoch AS __out, after AS __group "
            f"FROM {below} rows JOIN {wm} ON epoch >= __epoch "
            f"AND after > coalesce(before, after - 1) AND {' AND '.join(held)}"
        )

    def _groups(
        self, node: Aggregate, rows: str, window: tuple[str, str], having: str = "count(*) > 0"
    ) -> str:
        groups = grouped(node, rows, window, extra="__out", having=having)
        columns = comma(map(quote, node.schema.names))
        return self.create(
            f"SELECT __out AS __epoch, CAST(NULL AS BIGINT) AS __dies, {columns} FROM ({groups})"
        )

    def session_aggregate(
        self, node: Aggregate, rows: str, gap: int, marks: Watermarks, update: bool
    ) -> str:
        keys = comma(f"__k{i}" for i in range(len(node.keys))) or "1"
        micros = f"epoch_us({quote(node.time.name)})"
        numbered = self.create(
            f"SELECT *, row_number() OVER () AS __row, "
            f"dense_rank() OVER (ORDER BY {keys}) AS __key FROM ({rows})"
        )
        members = [
            SessionRow(row, key, at, epoch)
            for row, key, at, epoch in fetch(
                self.database, f"SELECT __row, __key, {micros}, __epoch FROM {numbered}"
            )
            if marks[epoch][0] is None or at + gap > marks[epoch][0]
        ]
        sessions = self._memberships(run_sessions(members, gap, marks, update).out)
        rows = (
            f"SELECT r.*, session AS __group, epoch AS __out "
            f"FROM {numbered} r JOIN {sessions} ON member = __row"
        )
        return self._groups(node, rows, (f"min({micros})", f"max({micros}) + {gap}"))

    def _memberships(self, sessions: list[tuple[int, int, int]]) -> str:
        name = f"__t{next(self.numbers)}"
        self.database.execute(f"CREATE TABLE {name} (member BIGINT, session BIGINT, epoch INT)")
        if sessions:
            self.database.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", sessions)
        return name

    # --- joins -----------------------------------------------------------------------------------

    def sides(self, node: Join, update: bool = False) -> tuple[str, str]:
        """Tables of both inputs with the join's names, epochs and ends of life."""
        names = []
        for which, child in (("left", node.left), ("right", node.right)):
            if child.streams():
                rows = f"SELECT * FROM {self.table(child, update)}"
            else:
                static = relation(child, self.database)
                rows = f"SELECT NULL AS __epoch, NULL AS __dies, * FROM ({static})"
            tags = f", __epoch AS __{which}_epoch, __dies AS __{which}_dies"
            names.append(self.create(side(node, rows, which, tags)))
        return names[0], names[1]

    def on_time(self, node: Join, rows: str, which: str, wm: str) -> str:
        """The rows of a side that are not below the watermark at the start of their epoch."""
        assert node.time is not None
        moment = f"epoch_us({quote((node.time.left if which == 'left' else node.time.right).name)})"
        return self.create(
            f"SELECT s.* FROM {rows} s JOIN {wm} ON epoch = __{which}_epoch "
            f"WHERE before IS NULL OR {moment} >= before"
        )

    def pairs(self, node: Join, left: str, right: str) -> str:
        """Matching rows, each tagged with the epoch of its last contributor."""
        # A static side has no epoch and no end of life; greatest and least pass over NULL.
        select = (
            "SELECT *, greatest(__left_epoch, __right_epoch) AS __epoch, "
            "least(__left_dies, __right_dies) AS __dies "
            f"FROM {left} JOIN {right} ON {join_condition(node)}"
        )
        if node.emits_window:
            assert isinstance(node.time, SameWindow)
            select = common_windows(node.time, select)
        return self.create(select)

    def joined(self, node: Join, pairs: str, left_alone: str = "", right_alone: str = "") -> str:
        """The join's output: pairs, and rows alone that carry ``__out``, the epoch they come in."""
        text = f"SELECT __epoch, __dies, {comma(map(quote, node.schema.names))} FROM {pairs}"
        window = ", NULL" if node.emits_window else ""
        left, right = (comma(map(quote, s.names)) for s in (node.left_schema, node.right_schema))
        no_left, no_right = nulls_for(node.left_schema), nulls_for(node.right_schema)
        if left_alone:
            text += (
                f" UNION ALL SELECT __out, __left_dies, {left}, {no_right}{window} "
                f"FROM ({left_alone}) WHERE __left_row NOT IN (SELECT __left_row FROM {pairs})"
            )
        if right_alone:
            text += (
                f" UNION ALL SELECT __out, __right_dies, {no_left}, {right}{window} "
                f"FROM ({right_alone}) WHERE __right_row NOT IN (SELECT __right_row FROM {pairs})"
            )
        return self.create(text)

    def table_join(self, node: Join, update: bool) -> str:
        """Stream and static table: row by row, in the stream row's own epoch."""
        left, right = self.sides(node, update)
        pairs = self.pairs(node, left, right)
        alone = []
        for which, keeps, child in (
            ("left", node.kind.keeps_left, node.left),
            ("right", node.kind.keeps_right, node.right),
        ):
            if keeps and not child.streams():
                raise NotImplementedError(
                    "a static row without partner would have to wait for ever"
                )
            rows = left if which == "left" else right
            alone.append(f"SELECT *, __{which}_epoch AS __out FROM {rows}" if keeps else "")
        return self.joined(node, pairs, *alone)

    def state_join(self, node: Join) -> str:
        """No bound in time: a pair needs both rows alive in the epoch of its later row.

        A tree of such joins is one operator, whose watermark is the least of all its streams'.
        """
        if node.kind.keeps_left or node.kind.keeps_right:
            raise NotImplementedError("a state-based join is inner")
        marks = self.trees.get(id(node)) or self.watermarks(node, 0)
        for child in (node.left, node.right):
            while isinstance(child, Filter | Project):
                child = child.input
            if isinstance(child, Join) and child.time is None and len(child.streams()) > 1:
                self.trees[id(child)] = marks
        pairs = self.pairs(node, *self.sides(node))
        if id(node) in self.windowed:
            return self.joined(node, pairs)
        wm = self.watermark_table(marks)
        alive = self.create(
            f"SELECT pairs.* FROM {pairs} pairs JOIN {wm} ON epoch = __epoch "
            # The pair's end of life is the lesser of its rows'.
            f"WHERE before IS NULL OR __dies IS NULL OR __dies >= before"
        )
        return self.joined(node, alive)

    def time_join(self, node: Join) -> str:
        """Interval and window joins; a row alone comes out when no partner can come any more.

        A tree of inner joins is one operator: its watermark is the least of all its streams', and
        a row is judged by it once, where it enters the tree.
        """
        assert node.time is not None
        below = open_sessions_of(node, node.time.left.name)
        marks = self.trees.get(id(node)) or self.watermarks(node, Tree.of(node).lag, below)
        wm = self.watermark_table(marks)
        inner = [joined_below(node, child) for child in (node.left, node.right)]
        self.trees |= {id(join): marks for join in inner if join is not None}
        left, right = self.sides(node)
        if inner[0] is None:
            left = self.on_time(node, left, "left", wm)
        if inner[1] is None:
            right = self.on_time(node, right, "right", wm)
        pairs = self.pairs(node, left, right)
        left_alone = right_alone = ""
        if node.kind.keeps_left:
            left_alone = self.alone(node, left, "left", wm)
        if node.kind.keeps_right:
            right_alone = self.alone(node, right, "right", wm)
        return self.joined(node, pairs, left_alone, right_alone)

    def alone(self, node: Join, rows: str, which: str, wm: str) -> str:
        """All rows of a side with the epoch in which they would come out without a partner."""
        assert node.time is not None
        moment = f"epoch_us({quote((node.time.left if which == 'left' else node.time.right).name)})"
        match node.time:
            case IntervalBound(lower=lower, upper=upper):
                reach = upper if which == "left" else None if lower is None else -lower
                passed = "false" if reach is None else f"after > {moment} + {reach * 1000}"
            case SameWindow(window=window):
                slide, offset = window.slide * 1000, window.offset * 1000
                into = f"(({moment} - {offset}) % {slide} + {slide}) % {slide}"
                last_start = f"({moment} - {into})"
                passed = f"after >= {last_start} + {window.length * 1000}"
            case other:
                raise NotImplementedError(f"no rule for {other}")
        out = f"(SELECT min(epoch) FROM {wm} WHERE epoch >= __{which}_epoch AND {passed})"
        return f"SELECT * FROM (SELECT *, {out} AS __out FROM {rows}) WHERE __out IS NOT NULL"

    def session_join(self, node: Join) -> tuple[str, Watermarks]:
        """The pairs of all sessions, and the clock of what lies above."""
        if node not in self.session_joins:
            self.session_joins[node] = self._session_join(node)
        return self.session_joins[node]

    def _session_join(self, node: Join) -> tuple[str, Watermarks]:
        """Rows of one session of their key, over both inputs; all comes out when it closes."""
        assert isinstance(node.time, SameSession)
        below = open_sessions_of(node, node.time.left.name) - {node}
        marks = self.watermarks(node, join_lag(node), below)
        wm = self.watermark_table(marks)
        left, right = self.sides(node)
        left, right = self.on_time(node, left, "left", wm), self.on_time(node, right, "right", wm)
        both = self._both_sides(node, node.time, left, right)
        members = [SessionRow(*row) for row in fetch(self.database, both)]
        if node.kind is JoinKind.INNER:
            # Without a partner nothing comes out, so a NULL key makes no session.
            members = [member for member in members if member.key > 0]
        run = run_sessions(members, node.time.gap * 1000, marks, False)
        sessions = self._memberships(run.out)
        # Rows of the right side have negative numbers among the members.
        left = self.create(
            f"SELECT s.*, session AS __left_session, epoch AS __out FROM {left} s "
            f"JOIN {sessions} ON member = __left_row"
        )
        right = self.create(
            f"SELECT s.*, session AS __right_session, epoch AS __out FROM {right} s "
            f"JOIN {sessions} ON member = -__right_row"
        )
        found = self.pairs(node, left, right)
        pairs = self.create(f"SELECT * REPLACE (__out AS __epoch) FROM {found}")
        joined = self.joined(
            node,
            pairs,
            f"SELECT * FROM {left}" if node.kind.keeps_left else "",
            f"SELECT * FROM {right}" if node.kind.keeps_right else "",
        )
        return joined, held_back(self.watermarks(node, 0, below), run.open_since)

    def _both_sides(self, node: Join, time: SameSession, left: str, right: str) -> str:
        """Member number, key number, time and epoch of the rows of both sides."""
        parts = []
        for which, sign, rows, column, position in (
            ("left", "", left, time.left, 0),
            ("right", "-", right, time.right, 1),
        ):
            keys = comma(f"{duck_sql(pair[position])} AS k{n}" for n, pair in enumerate(node.keys))
            parts.append(
                f"SELECT {sign}__{which}_row AS member, epoch_us({quote(column.name)}) AS moment, "
                f"__{which}_epoch AS epoch, {keys} FROM {rows}"
            )
        names = [f"k{n}" for n in range(len(node.keys))]
        # A NULL key matches nothing: such a row is a session of its own.
        alone = " OR ".join(f"{name} IS NULL" for name in names) or "false"
        key = f"CASE WHEN {alone} THEN -row_number() OVER () ELSE dense_rank() OVER (ORDER BY "
        return (
            f"SELECT member, {key}{comma(names) or 1}) END AS key, moment, epoch "
            f"FROM ({' UNION ALL '.join(parts)})"
        )


def _least(marks: Sequence[int | None]) -> int | None:
    known = [mark for mark in marks if mark is not None]
    return min(known) if known and len(known) == len(marks) else None


def _behind(mark: int | None, lag: int) -> int | None:
    return None if mark is None else mark - lag * 1000


def _begin(window: Trailing | Current, end: str) -> str:
    """Where a window begins that ends at an instant, in microseconds."""
    if isinstance(window, Trailing):
        return f"{end} - {window.length * 1000}"
    # The last border below the end.
    length, offset = window.length * 1000, window.offset * 1000
    return f"({end} - 1 - (({end} - 1 - {offset}) % {length} + {length}) % {length})"
