"""Random streams: what real ones do wrong, in a few rows.

Rows come late (beyond the delay), out of order and twice; epochs and whole streams are empty; keys
are skewed or NULL, values and times are NULL; times lie exactly on the borders of windows, exactly
one gap after another row, or a microsecond beside it. One generator on ``random.Random`` serves
both seeds (``random_epochs``) and Hypothesis (``epoch_lists``, whose choices shrink).
"""

from __future__ import annotations

import datetime
import decimal
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from headrace.plan.durations import SECOND
from headrace.plan.nodes import Source, Table
from headrace.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, TIMESTAMP, Schema
from headrace.plan.types import decimal as decimal_type

Row = dict[str, Any]
Epochs = list[dict[str, list[Row]]]
#: The streams that are idle in each epoch.
Idle = list[set[str]]

BIDS = Source(
    "bids",
    Schema.of(
        [
            ("k", BIGINT),
            ("name", STRING),
            ("price", BIGINT),
            ("fee", DOUBLE),
            ("ratio", DOUBLE),
            ("amount", decimal_type(12, 2)),
            ("flag", BOOLEAN),
            ("ts", TIMESTAMP),
        ]
    ),
    time="ts",
    delay=5 * SECOND,
)
CLICKS = Source(
    "clicks",
    Schema.of(
        [("k", BIGINT), ("name", STRING), ("score", INT), ("page", STRING), ("at", TIMESTAMP)]
    ),
    time="at",
    delay=2 * SECOND,
)
STOPS = Source(
    "stops",
    Schema.of([("k", BIGINT), ("weight", DOUBLE), ("code", STRING), ("ts", TIMESTAMP)]),
    time="ts",
    delay=0,
)
ITEMS = Table("items", Schema.of([("k", BIGINT), ("label", STRING), ("size", DOUBLE)]))

SOURCES: tuple[Source, ...] = (BIDS, CLICKS, STOPS)
TABLES: tuple[Table, ...] = (ITEMS,)

#: Not at a round hour, and long after 1970, where Spark's first watermark stands.
BEGIN = datetime.datetime(2024, 3, 1, 11, 59, 37, tzinfo=datetime.UTC)
STRINGS = ("", "a", "b", "ab", "Ab", "é", "it's", "a\\b", "100%", " x ")
# Multiples of a quarter add up exactly in any order, so sums need no tolerance.
DOUBLES = tuple(n / 4 for n in range(-20, 41))
ODD_DOUBLES = (math.nan, math.inf, -math.inf)
#: The column whose doubles may be NaN or infinite; variances and medians stay away from it.
ODD_COLUMN = "ratio"


@dataclass(frozen=True)
class Habits:
    """How one stream misbehaves; shares are of its rows."""

    rows: int  # at most this many in an epoch
    keys: int
    skew: float  # share of rows with the first key
    step: int  # milliseconds of event time that an epoch advances, about
    late: float
    twice: float
    null_value: float
    null_time: float
    border: float  # exactly on a second
    neighbour: float  # a round distance from the row before, or a microsecond beside it
    idle: float  # share of epochs without rows
    spread: int = 0  # milliseconds of event time over which the rows of an epoch lie


def random_habits(chance: random.Random, step: int) -> Habits:
    # One stream in thirty is empty throughout.
    idle = 1.0 if chance.random() < 0.03 else chance.choice((0.0, 0.1))
    return Habits(
        rows=chance.choice((4, 8, 16)),
        keys=chance.choice((1, 2, 3, 4)),
        skew=chance.choice((0.2, 0.5, 0.8)),
        step=round(step * chance.choice((0.8, 1, 1, 1, 1.2, 3))),
        late=chance.choice((0.0, 0.1, 0.3)),
        twice=chance.choice((0.0, 0.1)),
        null_value=chance.choice((0.0, 0.1, 0.3)),
        null_time=chance.choice((0.0, 0.05)),
        border=chance.choice((0.1, 0.5, 1.0)),
        neighbour=chance.choice((0.0, 0.2)),
        idle=idle,
    )


def dense_habits(chance: random.Random, step: int) -> Habits:
    """Streams of one pace with many rows of few keys, so that joins of three of them match."""
    usual = random_habits(chance, step)
    keys = chance.choice((1, 2, 3))
    rows = chance.choice((16, 24, 40))
    return replace(
        usual, rows=rows, keys=keys, step=step, spread=step, null_time=0.02, idle=usual.idle / 4
    )


def random_epochs(
    chance: random.Random,
    sources: Sequence[Source] = SOURCES,
    epochs: int | None = None,
    habits_of: Callable[[random.Random, int], Habits] = random_habits,
) -> Epochs:
    """The rows of each stream in each epoch; the same Random gives the same rows."""
    number = chance.randrange(4, 9) if epochs is None else epochs
    out: Epochs = [{} for _ in range(number)]
    # Streams that run at about one pace have something to join.
    step = chance.choice((2, 4, 8, 15)) * SECOND
    # A last leap in time closes most of what is open.
    leap = (chance.choice((0, 90, 90, 90, 90)) if habits_of is random_habits else 90) * SECOND
    for source in sources:
        habits = habits_of(chance, step)
        now = 0  # milliseconds of event time since BEGIN
        history: list[Row] = []
        for epoch in out:
            now += round(habits.step * chance.choice((0.5, 1, 1, 1.5, 4)))
            now += leap if epoch is out[-1] else 0
            count = 0 if chance.random() < habits.idle else chance.randrange(1, habits.rows + 1)
            rows = [_random_row(chance, source, habits, now, history) for _ in range(count)]
            epoch[source.stream] = rows
    return out


def with_idle_streams(chance: random.Random, epochs: Epochs) -> tuple[Epochs, Idle]:
    """The same streams, one or two of which sleep for some epochs and are idle meanwhile.

    One that sleeps has no batch, or one without rows, or rows after all, as when these come in the
    very epoch that was to say that it is idle. Some epochs are only there to say so.
    """
    out: Epochs = []
    idle: Idle = []
    streams = sorted({stream for epoch in epochs for stream in epoch})
    sleeps: dict[str, range] = {}
    for stream in chance.sample(streams, chance.choice((1, 2))):
        begin = chance.randrange(0, len(epochs) // 2)
        sleeps[stream] = range(begin, chance.randrange(begin + 2, len(epochs) + 1))
    for number, epoch in enumerate(epochs):
        asleep = {stream for stream, sleep in sleeps.items() if number in sleep}
        rows = {}
        for stream, given in epoch.items():
            if stream not in asleep or chance.random() < 0.1:
                rows[stream] = given
            elif chance.random() < 0.3:
                rows[stream] = []
        out.append(rows)
        # A stream is silent before it is idle.
        idle.append({s for s in asleep if number > sleeps[s].start or chance.random() < 0.5})
        if asleep and chance.random() < 0.3:
            out.append({})
            idle.append(asleep)
    return out, idle


def random_tables(chance: random.Random, tables: Sequence[Table] = TABLES) -> dict[str, list[Row]]:
    """Static relations; some keys are missing, double or NULL."""
    habits = Habits(0, 5, 0.0, 0, 0, 0, 0.1, 0, 0, 0, 0)
    return {
        table.table: [
            {f.name: _value(chance, f.name, f.type.name, habits) for f in table.schema}
            for _ in range(chance.randrange(0, 7))
        ]
        for table in tables
    }


def epoch_lists(
    sources: Sequence[Source] = SOURCES, epochs: int | None = None
) -> st.SearchStrategy[Epochs]:
    """The same streams for Hypothesis, which can shrink what the generator chooses."""
    return st.randoms(use_true_random=False).map(
        lambda chance: random_epochs(chance, sources, epochs)
    )


def whole(epochs: Sequence[Mapping[str, list[Row]]]) -> dict[str, list[Row]]:
    """All rows of each stream, for the batch meaning."""
    names = {name for epoch in epochs for name in epoch}
    return {name: [row for epoch in epochs for row in epoch.get(name, [])] for name in names}


def _random_row(
    chance: random.Random, source: Source, habits: Habits, now: int, history: list[Row]
) -> Row:
    if history and chance.random() < habits.twice:
        return dict(chance.choice(history[-10:]))
    row = {
        f.name: _value(chance, f.name, f.type.name, habits)
        for f in source.schema
        if f.name != source.time
    }
    row[source.time] = _time(chance, source, habits, now, history)
    row = {name: row[name] for name in source.schema.names}
    history.append(row)
    return row


def _time(
    chance: random.Random, source: Source, habits: Habits, now: int, history: list[Row]
) -> datetime.datetime | None:
    if chance.random() < habits.null_time:
        return None
    known = [row[source.time] for row in history[-10:] if row[source.time] is not None]
    if known and chance.random() < habits.neighbour:
        distance = chance.choice((1, 2, 5, 10)) * SECOND * 1000 + chance.choice((-1, 0, 0, 1))
        near: datetime.datetime = chance.choice(known) + datetime.timedelta(microseconds=distance)
        return near
    late = source.delay + chance.randrange(0, 40) * SECOND
    usual = max(source.delay, habits.spread)
    behind = late if chance.random() < habits.late else chance.randrange(0, usual + 1)
    micros = (now - behind) * 1000
    if chance.random() < habits.border:
        micros -= (BEGIN.microsecond + micros) % 1_000_000
    elif chance.random() < 0.5:
        micros += chance.randrange(0, 1000)
    return BEGIN + datetime.timedelta(microseconds=micros)


def _value(chance: random.Random, name: str, kind: str, habits: Habits) -> Any:
    if chance.random() < habits.null_value:
        return None
    if name == "k":
        return 0 if chance.random() < habits.skew else chance.randrange(0, habits.keys)
    if name == ODD_COLUMN and chance.random() < 0.1:
        return chance.choice(ODD_DOUBLES)
    match kind:
        case "bigint":
            return chance.randrange(-20, 100)
        case "int":
            return chance.randrange(-5, 20)
        case "double":
            return chance.choice(DOUBLES)
        case "string":
            return chance.choice(STRINGS)
        case "boolean":
            return chance.random() < 0.5
        case _:
            return decimal.Decimal(chance.randrange(-99_999, 1_000_000)).scaleb(-2)
