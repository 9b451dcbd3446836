"""Random sets of queries that share subplans: what each gives beside the others it gives alone.

A set has a few *trunks* (joins, aggregates, derived tables of some streams) and *heads* over them
(windows, holistic aggregates, sessions, further joins), so that several queries read one subplan,
by this time of it or that, in other spellings and under other names. Most heads read every column
of their trunk: what pruning leaves of it is then the same for all of them, and state is shared.

The clocks of the streams lie far apart and leap, delays and ttls differ, and rows come late, so
state expires while others still need it.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from headrace.compiler.planning import plan_all
from headrace.errors import HeadraceError
from headrace.optimizer import optimize
from headrace.plan.durations import SECOND
from headrace.plan.nodes import Node, OutputMode, Sink, Source, Table
from headrace.plan.types import BIGINT, STRING, TIMESTAMP, Schema
from headrace.planner.live_query import LiveQuery
from headrace.sql import plan_query
from tests.support.stepped_engine import Member, Streams
from tests.support.streams import BEGIN, Row

COLUMNS = Schema.of([("k", BIGINT), ("g", STRING), ("v", BIGINT), ("w", BIGINT), ("ts", TIMESTAMP)])
NAMES = ("a", "b", "c", "d")
LABELS = Table("labels", Schema.of([("k", BIGINT), ("label", STRING)]))
#: Settings of which each set takes one value; none of them may ever show in a result.
CHOICES: Mapping[str, Sequence[str]] = {
    "merge.strategy": ("sm+", "sm+", "sm", "sm-bu", "none", "hb", "hb+", "structural"),
    "compaction.files": ("2", "3", "16"),
    "joins.passes": ("auto", "whole", "terms"),
    "probe.use": ("auto", "auto", "always", "never"),
    "windows.sharing": ("factors", "windows", "none"),
    "windows.closing": ("auto", "flat", "tree"),
    "tasks.rows": ("2", "1000", "1000"),
    "tasks.buckets": ("1", "3"),
}


@dataclass(frozen=True)
class QuerySet:
    """Queries that run together, what their streams bring, and what must not show in results."""

    seed: int
    streams: Streams
    members: tuple[Member, ...]
    restarts: frozenset[int] = frozenset()
    settings: Mapping[str, str] = field(default_factory=dict)
    #: Whether even the smallest new rows that several read are computed once for all of them.
    holds: bool = False

    @property
    def compared(self) -> list[Member]:
        """All but those that only keep streams going."""
        return [member for member in self.members if not member.key.startswith(KEEPER)]

    @property
    def keepers(self) -> list[Member]:
        return [member for member in self.members if member.key.startswith(KEEPER)]

    def plan(self, member: Member) -> Node:
        return plan_query(member.sql, self.streams.catalog).plan

    def __str__(self) -> str:
        lines = [f"set {self.seed}: {len(self.compared)} queries"]
        for source in self.streams.catalog.values():
            if isinstance(source, Source):
                lines.append(f"  {source.stream}: delay {source.delay} ms, ttl {source.ttl}")
        for number, epoch in enumerate(self.streams.epochs, 1):
            for name, rows in epoch.items():
                lines.append(f"  epoch {number} {name}: {', '.join(map(_row_text, rows))}")
        lines += [f"  {name}: {rows}" for name, rows in self.streams.tables.items()]
        lines += [f"  {member}" for member in self.members]
        lines.append(f"  restarts after {sorted(self.restarts)}, {dict(self.settings)}")
        return "\n".join(lines)


#: How the keys of queries begin that keep streams going for those who join late.
KEEPER = "keep_"


def random_set(seed: int, spark: bool = False) -> QuerySet:
    """A set from a seed; with ``spark`` also what only Spark can run."""
    chance = random.Random(f"set {seed}")
    writer = _SetWriter(chance, spark)
    members = writer.members()
    number = len(writer.epochs)
    restarts: frozenset[int] = frozenset()
    if chance.random() < 0.6:
        # That somebody has left is written down with the next epoch.
        leaving = {m.leaves_after for m in members}
        free = [n for n in range(1, number) if n not in leaving]
        restarts = frozenset(chance.sample(free, min(len(free), chance.choice((1, 1, 2)))))
    settings = {key: chance.choice(values) for key, values in CHOICES.items()}
    streams = Streams(writer.catalog, writer.epochs, writer.tables)
    return QuerySet(seed, streams, members, restarts, settings, chance.random() < 0.5)


# --- streams -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clock:
    """How far a stream's time is before the others' (seconds), and after which epoch it leaps."""

    ahead: int
    leap_after: int | None
    leap: int


class _SetWriter:
    """Writes the streams and the queries of one set."""

    def __init__(self, chance: random.Random, spark: bool) -> None:
        self.chance = chance
        self.spark = spark
        self.theme = chance.choices(tuple(_THEMES), [w for w, _ in _THEMES.values()])[0]
        self.names = NAMES[: chance.choice((2, 3, 3, 4))]
        self.clocks = {name: self._clock() for name in self.names}
        if self.theme == "by keys":
            self._let_one_lag()
        self.catalog: dict[str, Source | Table] = {
            name: Source(
                name,
                COLUMNS,
                time="ts",
                delay=chance.choice((0, 0, 0, 2, 10, 60)) * SECOND,
                ttl=chance.choice((None, 5 * SECOND, 30 * SECOND, 100 * SECOND)),
            )
            for name in self.names
        }
        self.tables: dict[str, list[Row]] = {}
        if spark:
            self.catalog["labels"] = LABELS
            self.tables["labels"] = [{"k": n, "label": f"l{n}"} for n in (0, 0, 1, None)]
        #: Heads of one set use the same few windows, or they would share little.
        self.lengths = chance.sample((5, 10, 20, 30, 60), 2)
        #: Whether queries write what they share alike and read all of it: what pruning leaves is
        #: then the same for all of them. Else each spells it in a way of its own.
        self.alike = chance.random() < 0.65
        self.aliases = chance.choice(_ALIASES)
        self.keys = chance.choice((1, 2, 3))
        self.epochs = self._epochs()

    def _clock(self) -> Clock:
        after = self.chance.choice((None, None, None, 1, 2))
        ahead = self.chance.choice((0, 0, 15, 60, 90))
        return Clock(ahead, after, self.chance.choice((60, 200, 1000)))

    def _let_one_lag(self) -> None:
        """What one join may forget by the clocks of its streams another still needs."""
        self.names = NAMES[: self.chance.choice((3, 3, 4))]
        ahead = self.chance.choice((200, 1000))
        after = self.chance.choice((0, 0, 1))
        *others, last = self.names
        self.clocks = {name: Clock(0, after, ahead) for name in others} | {last: Clock(0, None, 0)}

    def _epochs(self) -> list[dict[str, list[Row]]]:
        chance = self.chance
        number = chance.choice((4, 4, 5))
        step = chance.choice((5, 10, 20, 30))
        epochs: list[dict[str, list[Row]]] = [{} for _ in range(number)]
        greatest = 0
        for name, clock in self.clocks.items():
            source = self.catalog[name]
            assert isinstance(source, Source)
            late = chance.choice((0.0, 0.1, 0.3))
            rows = chance.choice((10, 14, 18))
            for index, epoch in enumerate(epochs):
                now = clock.ahead + (index + 1) * step
                if clock.leap_after is not None and index > clock.leap_after:
                    now += clock.leap
                greatest = max(greatest, now)
                count = 0 if chance.random() < 0.1 else chance.randrange(1, rows + 1)
                epoch[name] = [self._row(source, now, step, late) for _ in range(count)]
        # What is still open closes in the end, and some rows follow that may not meet it any more.
        end = greatest + 400
        epochs.append({name: [self._row(self.catalog[name], end, 3, 0.0)] for name in self.names})
        if chance.random() < 0.5:
            epochs.append(
                {
                    name: [self._row(self.catalog[name], end + 5, 5, 0.5) for _ in range(2)]
                    for name in self.names
                }
            )
        return epochs

    def _row(self, source: Source | Table, now: int, spread: int, late: float) -> Row:
        assert isinstance(source, Source)
        chance = self.chance
        behind = chance.randrange(0, spread * 1000 + 1)
        if chance.random() < late:
            behind += source.delay + chance.randrange(0, 40) * SECOND
        elif chance.random() < 0.5:
            behind -= behind % SECOND
        time = BEGIN.replace(second=0) + datetime.timedelta(milliseconds=now * SECOND - behind)
        key = 0 if chance.random() < 0.4 else chance.randrange(self.keys)
        return {
            "k": None if chance.random() < 0.04 else key,
            "g": chance.choice(("x", "x", "y", None)),
            "v": None if chance.random() < 0.08 else chance.randrange(10),
            "w": chance.randrange(4),
            "ts": None if chance.random() < 0.02 else time,
        }

    # --- members ---------------------------------------------------------------------------------

    def members(self) -> tuple[Member, ...]:
        chance = self.chance
        heads = list(_heads(self, _THEMES[self.theme][1](self)))
        number = chance.choice((2, 3, 3, 4, 4, 5, 8))
        made: list[Member] = []
        while len(made) < number:
            sql, mode = self._accepted(heads)
            made.append(Member(f"q{len(made)}", sql, mode))
        if chance.random() < 0.4:
            made = self._coming_and_going(made)
        return tuple(made)

    def _accepted(self, heads: list[Callable[[], str]]) -> tuple[str, OutputMode]:
        """A query that is not refused, by whatever rule."""
        for _ in range(200):
            sql = self.chance.choice(heads)()
            mode = OutputMode.APPEND
            updates = "GROUP BY" in sql and "session_window" not in sql
            if "landmark(" in sql or (updates and self.chance.random() < 0.15):
                mode = OutputMode.UPDATE
            try:
                plan = optimize(plan_query(sql, self.catalog).plan).plan
                plan_all([LiveQuery(Sink(plan, "q", "memory", mode), None)])
            except HeadraceError:
                continue
            return sql, mode
        raise AssertionError("every query of this theme is refused")

    def _coming_and_going(self, members: list[Member]) -> list[Member]:
        """Some join while others run and some leave; one may take the name of one that left."""
        chance = self.chance
        last = len(self.epochs)
        changed = []
        free: list[tuple[int, str]] = []
        for index, member in enumerate(members):
            joins, leaves = 0, None
            if index and chance.random() < 0.4:
                joins = chance.choice((1, 1, 2, last - 2))
            if index and chance.random() < 0.2 and joins + 2 < last - 1:
                leaves = chance.randrange(joins + 2, last - 1)
            name = member.key
            taken = [one for one in free if 0 < one[0] <= joins]
            if taken and chance.random() < 0.5:
                name = taken[0][1]
                free.remove(taken[0])
            if leaves is not None:
                free.append((leaves + 1, name))
            changed.append(replace(member, joins_after=joins, leaves_after=leaves, name=name))
        keepers = [Member(f"{KEEPER}{name}", f"SELECT k, ts FROM {name}") for name in self.names]
        return [*keepers, *changed]

    # --- pieces of SQL ---------------------------------------------------------------------------

    def bounds(self, one: str, other: str) -> tuple[int, int]:
        """Bounds on ``other - one`` in seconds that rows of both streams meet."""
        apart = self.clocks[other].ahead - self.clocks[one].ahead
        middle = apart if self.chance.random() < 0.7 else 0
        wide = (0, 5, 10, 20, 40)
        return middle - self.chance.choice(wide), middle + self.chance.choice(wide)

    def window(self) -> str:
        length = self.chance.choice(self.lengths)
        if self.chance.random() < 0.3:
            return f"'{length} seconds', '{max(1, length // 2)} seconds'"
        return f"'{length} seconds'"

    def moment(self, column: str) -> str:
        """A timestamp that is computed from an event time, and is none itself."""
        if self.spark and self.chance.random() < 0.5:
            return f"{column} {self.chance.choice('+-')} INTERVAL 1 HOUR"
        shift = self.chance.choice((-3_600_000_000, 3_600_000_000, -5_000_000, 0))
        return f"timestamp_micros(unix_micros({column}) + {shift})"

    def pair(self) -> tuple[str, str]:
        one, other = self.chance.sample(self.names, 2)
        return one, other


_ALIASES: Sequence[Mapping[str, str]] = (
    {"x": "x", "y": "y", "z": "z"},
    {"x": "l", "y": "r", "z": "t"},
    {"x": "q1", "y": "q2", "z": "q3"},
)


# --- trunks --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trunk:
    """A subplan that several heads read.

    ``columns`` are the names under which heads know them, with what they are and how they are
    written; ``parts`` (of a union, or one) are what they are selected from, each in several
    spellings. ``{x}``, ``{y}`` and ``{z}`` stand for aliases. ``stream`` is the stream whose clock
    each event time follows.
    """

    columns: tuple[tuple[str, str, str], ...]
    parts: tuple[tuple[str, ...], ...]
    streams: Mapping[str, str]

    def of(self, *kinds: str) -> list[str]:
        return [name for name, kind, _ in self.columns if kind in kinds]

    @cached_property
    def times(self) -> list[str]:
        return self.of("time")

    def spelled(self, chance: random.Random, aliases: Mapping[str, str]) -> Spelled:
        columns = list(self.columns)
        if chance.random() < 0.5:
            chance.shuffle(columns)
        renames = chance.random() < 0.3
        names = {
            name: f"{name}_{index}" if renames else name
            for index, (name, _, _) in enumerate(columns)
        }
        selects = []
        for spellings in self.parts:
            listed = ", ".join(
                f"{text.format(**aliases)} AS {names[name]}" for name, _, text in columns
            )
            selects.append(f"SELECT {listed} {chance.choice(spellings).format(**aliases)}")
        return Spelled(" UNION ALL ".join(selects), names, chance.random() < 0.6)


@dataclass(frozen=True)
class Spelled:
    """A trunk as one query writes it: as a common table expression, or in place."""

    text: str
    names: Mapping[str, str]
    common: bool

    def query(self, columns: Sequence[str], tail: str = "") -> str:
        listed = ", ".join(columns)
        if self.common:
            return f"WITH p AS ({self.text}) SELECT {listed} FROM p{tail}"
        return f"SELECT {listed} FROM ({self.text}) p{tail}"

    def __getitem__(self, name: str) -> str:
        return f"p.{self.names[name]}"


def _between(one: str, other: str, lower: int, upper: int) -> tuple[str, ...]:
    """``other - one`` within bounds, in several spellings."""
    return (
        f"{other} BETWEEN {_shifted(one, lower)} AND {_shifted(one, upper)}",
        f"{other} >= {_shifted(one, lower)} AND {other} <= {_shifted(one, upper)}",
        f"{one} BETWEEN {_shifted(other, -upper)} AND {_shifted(other, -lower)}",
    )


def _shifted(column: str, seconds: int) -> str:
    if seconds == 0:
        return column
    return f"{column} {'-' if seconds < 0 else '+'} INTERVAL {abs(seconds)} SECONDS"


def _joined(one: str, other: str, conditions: Sequence[str], kind: str = "JOIN") -> tuple[str, ...]:
    """Spellings of a join, from either side where it is an inner one."""
    found = []
    for condition in conditions:
        found.append(f"FROM {one} {{x}} {kind} {other} {{y}} ON {{x}}.k = {{y}}.k AND {condition}")
        if kind == "JOIN":
            found.append(
                f"FROM {other} {{y}} JOIN {one} {{x}} ON {condition} AND {{y}}.k = {{x}}.k"
            )
    return tuple(found)


_PAIR = (
    ("k", "key", "{x}.k"),
    ("av", "number", "{x}.v"),
    ("bv", "number", "{y}.v"),
    ("at", "time", "{x}.ts"),
    ("bt", "time", "{y}.ts"),
)


def _interval_pair(writer: _SetWriter, kind: str = "JOIN") -> Trunk:
    one, other = writer.pair()
    conditions = _between("{x}.ts", "{y}.ts", *writer.bounds(one, other))
    return Trunk(_PAIR, (_joined(one, other, conditions, kind),), {"at": one, "bt": other})


def _outer_pair(writer: _SetWriter) -> Trunk:
    return _interval_pair(writer, writer.chance.choice(("LEFT JOIN", "FULL JOIN")))


def _window_pair(writer: _SetWriter) -> Trunk:
    one, other = writer.pair()
    window = f"'{max(writer.lengths)} seconds'"
    condition = f"window({{x}}.ts, {window}) = window({{y}}.ts, {window})"
    return Trunk(_PAIR, (_joined(one, other, (condition,)),), {"at": one, "bt": other})


def _session_pair(writer: _SetWriter) -> Trunk:
    one, other = writer.pair()
    gap = f"'{writer.chance.choice((20, 60))} seconds'"
    condition = f"session_window({{x}}.ts, {gap}) = session_window({{y}}.ts, {gap})"
    return Trunk(_PAIR, (_joined(one, other, (condition,)),), {"at": one, "bt": other})


def _state_pair(writer: _SetWriter, pair: tuple[str, str] | None = None) -> Trunk:
    one, other = pair or writer.pair()
    columns = tuple((n, "moment" if kind == "time" else kind, text) for n, kind, text in _PAIR)
    return Trunk(columns, (_joined(one, other, ("true",)),), {"at": one, "bt": other})


def _state_triple(writer: _SetWriter, names: Sequence[str]) -> Trunk:
    one, other, third = names
    columns = tuple((n, "moment" if kind == "time" else kind, text) for n, kind, text in _PAIR)
    spellings = (
        f"FROM {one} {{x}} JOIN {other} {{y}} ON {{x}}.k = {{y}}.k "
        f"JOIN {third} {{z}} ON {{x}}.k = {{z}}.k",
        f"FROM {third} {{z}} JOIN {one} {{x}} ON {{z}}.k = {{x}}.k "
        f"JOIN {other} {{y}} ON {{x}}.k = {{y}}.k",
    )
    return Trunk((*columns, ("cv", "number", "{z}.v")), (spellings,), {})


def _triple(writer: _SetWriter) -> Trunk:
    if len(writer.names) < 3:
        return _interval_pair(writer)
    one, other, third = writer.chance.sample(writer.names, 3)
    first = _between("{x}.ts", "{y}.ts", *writer.bounds(one, other))
    through, stream = writer.chance.choice((("{x}", one), ("{y}", other)))
    lower, upper = writer.bounds(stream, third)
    second = _between(f"{through}.ts", "{z}.ts", lower, upper)
    joins = tuple(
        f"{text} JOIN {third} {{z}} ON {{x}}.k = {{z}}.k AND {condition}"
        for text in _joined(one, other, first)
        for condition in second[:2]
    )
    columns = (*_PAIR, ("cv", "number", "{z}.v"), ("ct", "time", "{z}.ts"))
    return Trunk(columns, (joins,), {"at": one, "bt": other, "ct": third})


def _derived(writer: _SetWriter) -> Trunk:
    """A stream with columns that are computed from its time, before the time or after it."""
    name = writer.chance.choice(writer.names)
    columns = [
        ("k", "key", "{x}.k"),
        ("av", "number", "{x}.v"),
        ("m", "moment", writer.moment("{x}.ts")),
        ("bv", "number", "{x}.w"),
        ("at", "time", "{x}.ts"),
    ]
    return Trunk(tuple(columns), ((f"FROM {name} {{x}}",),), {"at": name})


def _single(writer: _SetWriter) -> Trunk:
    name = writer.chance.choice(writer.names)
    columns = (
        ("k", "key", "{x}.k"),
        ("av", "number", "{x}.v"),
        ("bv", "number", "{x}.w"),
        ("g", "text", "{x}.g"),
        ("at", "time", "{x}.ts"),
    )
    limit = writer.chance.randrange(1, 4)
    spellings: tuple[str, ...] = (f"FROM {name} {{x}}",)
    if writer.chance.random() < 0.3:
        spellings = (
            f"FROM {name} {{x}} WHERE {{x}}.w < {limit}",
            f"FROM {name} {{x}} WHERE NOT {{x}}.w >= {limit}",
        )
    return Trunk(columns, (spellings,), {"at": name})


def _union(writer: _SetWriter) -> Trunk:
    one, other = writer.pair()
    columns = (
        ("k", "key", "{x}.k"),
        ("av", "number", "{x}.v"),
        ("bv", "number", "{x}.w"),
        ("at", "time", "{x}.ts"),
    )
    return Trunk(columns, ((f"FROM {one} {{x}}",), (f"FROM {other} {{x}}",)), {"at": one})


def _grouped(writer: _SetWriter) -> Trunk:
    """Windows of a stream; what lies above goes by the windows."""
    name = writer.chance.choice(writer.names)
    length = f"'{min(writer.lengths)} seconds'"
    columns = (
        ("k", "key", "{x}.k"),
        ("av", "number", "sum({x}.v)"),
        ("bv", "number", "count(*)"),
        ("win", "window", "window"),
    )
    spellings = (
        f"FROM {name} {{x}} GROUP BY {{x}}.k, window({{x}}.ts, {length})",
        f"FROM {name} {{x}} GROUP BY window({{x}}.ts, {length}, {length}), {{x}}.k",
    )
    return Trunk(columns, (spellings,), {"win": name})


def _labelled(writer: _SetWriter) -> Trunk:
    """A stream with a static table, which only Spark reads."""
    name = writer.chance.choice(writer.names)
    columns = (
        ("k", "key", "{x}.k"),
        ("av", "number", "{x}.v"),
        ("bv", "number", "{x}.w"),
        ("g", "text", "{y}.label"),
        ("at", "time", "{x}.ts"),
    )
    kind = writer.chance.choice(("JOIN", "LEFT JOIN"))
    return Trunk(
        columns, ((f"FROM {name} {{x}} {kind} labels {{y}} ON {{x}}.k = {{y}}.k",),), {"at": name}
    )


Trunks = list[Trunk]


def _several_times(writer: _SetWriter) -> Trunks:
    maker = writer.chance.choice(
        (_interval_pair, _interval_pair, _window_pair, _triple, _outer_pair, _session_pair)
    )
    return [maker(writer)]


def _by_keys(writer: _SetWriter) -> Trunks:
    """Joins of one stream, whose rows die, with each of the others."""
    hub = writer.chance.choice(writer.names[:-1])
    others = [name for name in reversed(writer.names) if name != hub]
    ttl = writer.chance.choice((5, 30, 100)) * SECOND
    source = writer.catalog[hub]
    assert isinstance(source, Source)
    writer.catalog[hub] = replace(source, ttl=ttl)
    trunks = [_state_pair(writer, (hub, other)) for other in others]
    if len(others) > 1 and writer.chance.random() < 0.5:
        trunks.append(_state_triple(writer, (hub, *others[:2])))
    return trunks


def _of_inputs(writer: _SetWriter) -> Trunks:
    return [_derived(writer), _derived(writer)]


def _of_streams(writer: _SetWriter) -> Trunks:
    makers = [_single, _single, _derived, _union, _grouped]
    if writer.spark:
        makers.append(_labelled)
    return [maker(writer) for maker in writer.chance.sample(makers, 2)]


def _anything(writer: _SetWriter) -> Trunks:
    makers = [_interval_pair, _window_pair, _session_pair, _state_pair, _triple, _outer_pair]
    makers += [_derived, _single, _union, _grouped]
    if writer.spark:
        makers.append(_labelled)
    return [maker(writer) for maker in writer.chance.sample(makers, 3)]


_THEMES: Mapping[str, tuple[float, Callable[[_SetWriter], Trunks]]] = {
    "several times": (4, _several_times),
    "by keys": (2, _by_keys),
    "of inputs": (1, _of_inputs),
    "of streams": (2, _of_streams),
    "anything": (2, _anything),
}


# --- heads ---------------------------------------------------------------------------------------


def _heads(writer: _SetWriter, trunks: Trunks) -> Iterator[Callable[[], str]]:
    """What queries of the set may be: each writes another one every time."""
    for trunk in trunks:
        head = _Head(writer, trunk)
        if not trunk.times or writer.chance.random() < 0.5:
            yield head.rows
        if trunk.times:
            # By a time, in few forms: most queries of a set are to meet each other.
            forms = [*(head.holistic,) * 3, *(head.trailing,) * 2, *(head.timed_join,) * 3]
            forms += [head.window, head.session, head.landmark, head.windows]
            yield from writer.chance.sample(forms, 3)
        if trunk.of("window"):
            yield from (head.cascade, head.cascade, head.by_window)
        if "m" in trunk.of("moment"):
            yield from (head.of_inputs, head.of_inputs, head.keyed_join)
        elif trunk.of("moment") or len(trunk.times) == 1:
            yield from (head.keyed_join, head.keyed_join)


class _Head:
    """Queries over one trunk."""

    def __init__(self, writer: _SetWriter, trunk: Trunk) -> None:
        self.writer = writer
        self.chance = writer.chance
        self.trunk = trunk
        self._usual = trunk.spelled(writer.chance, writer.aliases)

    def everything(self, p: Spelled, share: float = 0.8) -> list[str]:
        """All columns as they are, or some."""
        names = list(p.names)
        if not self.writer.alike and self.chance.random() > share:
            names = self.chance.sample(names, max(1, len(names) - 2))
        return [f"{p[name]} AS {name}" for name in names]

    def where(self, p: Spelled, share: float = 0.25) -> str:
        if self.writer.alike or self.chance.random() > share:
            return ""
        number = p[self.chance.choice(self.trunk.of("number"))]
        limit = self.chance.randrange(2, 8)
        return self.chance.choice(
            (
                f" WHERE {number} >= {limit - 1}",
                f" WHERE NOT {number} > {limit}",
                f" WHERE {number} IS NOT NULL",
            )
        )

    def rows(self) -> str:
        p = self.spelled()
        return p.query(self.everything(p), self.where(p))

    def grouped(
        self, p: Spelled, time: str, window: str, shown: Sequence[str], holistic: bool
    ) -> str:
        """Aggregates by a window of a time; mostly over all columns of the trunk."""
        chance = self.chance
        keys = [p["k"]] if chance.random() < 0.7 else []
        numbers = self.trunk.of("number")
        calls = ["count(*)"] if chance.random() < 0.6 else []
        simple = ("sum", "count", "min", "max")
        calls += [f"{chance.choice(simple)}({p[chance.choice(numbers)]})"]
        if holistic:
            of = p[chance.choice(numbers)]
            calls.append(chance.choice((f"count(DISTINCT {of})", f"median({of})")))
        if self.writer.alike or chance.random() < 0.5:
            rest = [*numbers, *self.trunk.of("time", "moment", "text"), *([] if keys else ["k"])]
            calls += [f"max({p[name]})" for name in rest]
        columns = [f"{key} AS kk" for key in keys] + list(shown)
        columns += [f"{call} AS f{index}" for index, call in enumerate(dict.fromkeys(calls))]
        if chance.random() < 0.3:
            chance.shuffle(columns)
        having = " HAVING count(*) > 1" if chance.random() < 0.1 else ""
        groups = [*keys, window]
        return p.query(columns, f"{self.where(p)} GROUP BY {', '.join(groups)}{having}")

    def window(self, holistic: bool = False) -> str:
        p, time = self.by_time()
        return self.grouped(
            p, time, f"window({p[time]}, {self.writer.window()})", ["window"], holistic
        )

    def holistic(self) -> str:
        return self.window(holistic=True)

    def windows(self) -> str:
        p, time = self.by_time()
        sets = ", ".join(f"window({p[time]}, '{length} seconds')" for length in self.writer.lengths)
        return self.grouped(p, time, f"windows({sets})", ["window", "window_id"], False)

    def trailing(self) -> str:
        p, time = self.by_time()
        length = f"'{self.chance.choice((60, 90, 120))} seconds'"
        return self.grouped(
            p, time, f"trailing({p[time]}, {length})", ["window"], self.chance.random() < 0.3
        )

    def landmark(self) -> str:
        p, time = self.by_time()
        return self.grouped(p, time, f"landmark({p[time]})", [], False)

    def session(self) -> str:
        p, time = self.by_time()
        gap = f"'{self.chance.choice((5, 20))} seconds'"
        return self.grouped(
            p,
            time,
            f"session_window({p[time]}, {gap})",
            ["session_window"],
            self.chance.random() < 0.3,
        )

    def spelled(self) -> Spelled:
        if self.writer.alike:
            return self._usual
        return self.trunk.spelled(self.chance, self.chance.choice(_ALIASES))

    def by_time(self) -> tuple[Spelled, str]:
        return self.spelled(), self.chance.choice(self.trunk.times)

    def cascade(self) -> str:
        p = self.spelled()
        window = f"window(window_time({p['win']}), {self.writer.window()})"
        return self.grouped(p, "win", window, ["window"], self.chance.random() < 0.3)

    def by_window(self) -> str:
        p = self.spelled()
        return self.grouped(p, "win", p["win"], ["window"], self.chance.random() < 0.3)

    def timed_join(self) -> str:
        """The trunk with one more stream, by one of its times."""
        p, time = self.by_time()
        stream = self.chance.choice(self.writer.names)
        if self.chance.random() < 0.25:
            window = f"'{max(self.writer.lengths)} seconds'"
            condition = f"window({p[time]}, {window}) = window(s.ts, {window})"
        else:
            bounds = self.writer.bounds(self.trunk.streams[time], stream)
            condition = self.chance.choice(_between(p[time], "s.ts", *bounds))
        kind = "LEFT JOIN" if self.chance.random() < 0.15 else "JOIN"
        tail = f" {kind} {stream} s ON {p['k']} = s.k AND {condition}"
        columns = [*self.everything(p, 0.9), "s.v AS sv", "s.ts AS st"]
        return p.query(columns, tail + self.where(p, 0.15))

    def keyed_join(self) -> str:
        """The trunk with one more stream, by keys alone."""
        p = self.spelled()
        stream = self.chance.choice(self.writer.names)
        tail = f" JOIN {stream} s ON {p['k']} = s.k{self.where(p, 0.3)}"
        return p.query([*self.everything(p, 0.5), "s.v AS sv"], tail)

    def of_inputs(self) -> str:
        """A window of each input over a join by keys."""
        chance = self.chance
        p = self.spelled()
        stream = chance.choice(self.writer.names)
        windows = []
        for time in (p["at"], "s.ts"):
            trails = chance.random() < 0.6
            # Streams lag behind each other, and in short windows there would be nobody to meet.
            length = f"'{4 * chance.choice(self.writer.lengths)} seconds'"
            windows.append(f"trailing({time}, {length})" if trails else f"landmark({time})")
        if not any("trailing" in window for window in windows):
            windows[0] = f"trailing({p['at']}, '{4 * max(self.writer.lengths)} seconds')"
        keys = [p["k"]] if chance.random() < 0.5 else []
        calls = ["count(*)", f"sum({p['av']})", "sum(s.v)", f"max({p['m']})", f"min({p['m']})"]
        calls = ["count(*)", *chance.sample(calls[1:], 2)]
        columns = [f"{key} AS kk" for key in keys] + ["window"]
        columns += [f"{call} AS f{index}" for index, call in enumerate(calls)]
        tail = f" JOIN {stream} s ON {p['k']} = s.k GROUP BY {', '.join([*keys, *windows])}"
        return p.query(columns, tail)


def _row_text(row: Row) -> str:
    shown = dict(row)
    if shown.get("ts") is not None:
        seconds = (shown["ts"] - BEGIN.replace(second=0)).total_seconds()
        shown["ts"] = f"{seconds:g} s"
    return "(" + ", ".join(str(value) for value in shown.values()) + ")"
