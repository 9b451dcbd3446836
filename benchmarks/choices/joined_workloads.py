"""Workloads of joins within windows: in which order the joins of an epoch are computed.

Shapes are stars, cliques by one key and by two, chains and snowflakes, within tumbling windows,
windows that overlap, intervals, and windows that differ; rates differ up to ten times. In each the
keys are skewed, drift, depend on each other, come in bursts, or none of it. Besides there are the
queries of the bench ``join-order``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.choices.streams import (
    Column,
    Phase,
    StreamOf,
    Workload,
    follows,
    hot,
    partly,
    uniform,
    zipf,
)
from benchmarks.joins.join_queries import KEYS, QUERIES, SETTINGS, JoinQuery

TRAITS = ("plain", "skew", "drift", "burst", "correlated")
MINUTE = 60_000
#: Streams of such rates, in rows of an epoch.
RATES = (80, 250, 800)
TUMBLING = "window({0}.ts, '1 minutes') = window({1}.ts, '1 minutes')"
OVERLAPPING = (
    "window({0}.ts, '1 minutes', '30 seconds') = window({1}.ts, '1 minutes', '30 seconds')"
)
SHORT = "window({0}.ts, '10 seconds') = window({1}.ts, '10 seconds')"
NEAR = "{1}.ts BETWEEN {0}.ts - INTERVAL 5 SECONDS AND {0}.ts + INTERVAL 5 SECONDS"
AFTER = "{1}.ts BETWEEN {0}.ts AND {0}.ts + INTERVAL 30 SECONDS"


def joined_workloads(length: int) -> Iterator[Workload]:
    """Each shape with each trait; phases of so many epochs."""
    for shape, (keys, ties) in SHAPES.items():
        for trait in TRAITS:
            name = f"joins/{shape}/{trait}"
            yield _generated(name, shape, keys, ties, trait, length)
    for query in QUERIES.values():
        for setting in query.settings:
            yield _published(query, setting)


#: A tie: two streams, the keys that are equal, and the condition on their times.
Tie = tuple[str, str, Sequence[tuple[str, str]], str]

SHAPES: Mapping[str, tuple[Mapping[str, Sequence[str]], Sequence[Tie]]] = {
    "star of 3": (
        {"f": ("k1", "k2"), "d1": ("k",), "d2": ("k",)},
        (
            ("f", "d1", [("k1", "k")], TUMBLING),
            ("f", "d2", [("k2", "k")], TUMBLING),
        ),
    ),
    "star of 5": (
        {"f": ("k1", "k2", "k3", "k4"), **{f"d{n}": ("k",) for n in range(1, 5)}},
        tuple(("f", f"d{n}", [(f"k{n}", "k")], TUMBLING) for n in range(1, 5)),
    ),
    "clique of 4": (
        dict.fromkeys("abcd", ("k",)),
        tuple(("a", name, [("k", "k")], TUMBLING) for name in "bcd"),
    ),
    "two keys": (
        dict.fromkeys("abc", ("k", "j")),
        tuple(("a", name, [("k", "k"), ("j", "j")], TUMBLING) for name in "bc"),
    ),
    "overlapping": (
        dict.fromkeys("abc", ("k",)),
        tuple(("a", name, [("k", "k")], OVERLAPPING) for name in "bc"),
    ),
    "windows that differ": (
        dict.fromkeys("abcd", ("k",)),
        (
            ("a", "b", [("k", "k")], TUMBLING),
            ("a", "c", [("k", "k")], SHORT),
            ("a", "d", [("k", "k")], OVERLAPPING),
        ),
    ),
    "intervals": (
        dict.fromkeys("abc", ("k",)),
        (("a", "b", [("k", "k")], AFTER), ("a", "c", [("k", "k")], NEAR)),
    ),
    "chain of 4": (
        {"a": ("x",), "b": ("x", "y"), "c": ("y", "z"), "d": ("z",)},
        (
            ("a", "b", [("x", "x")], TUMBLING),
            ("b", "c", [("y", "y")], TUMBLING),
            ("c", "d", [("z", "z")], TUMBLING),
        ),
    ),
    "snowflake": (
        {"f": ("k1", "k2"), "d": ("k", "m"), "e": ("k", "m"), "g": ("k",), "h": ("k",)},
        (
            ("f", "d", [("k1", "k")], TUMBLING),
            ("f", "e", [("k2", "k")], TUMBLING),
            ("d", "g", [("m", "k")], TUMBLING),
            ("e", "h", [("m", "k")], TUMBLING),
        ),
    ),
}


def _generated(
    name: str,
    shape: str,
    keys: Mapping[str, Sequence[str]],
    ties: Sequence[Tie],
    trait: str,
    length: int,
) -> Workload:
    chance = random.Random(name)
    count = {"drift": 3, "burst": 2}.get(trait, 1)
    lengths = (length,) * count if count > 1 else (2 * length,)
    streams = []
    for stream, columns in keys.items():
        rows = chance.choice(RATES)
        phases = []
        drawn = _columns(columns, trait, chance)
        bursts = chance.random() < 0.5
        for phase in range(count):
            if trait == "drift" and phase:
                drawn = _columns(columns, trait, chance)
            # More than three inputs multiply a burst often enough.
            most = 4 if len(keys) <= 3 else 2
            many = most if trait == "burst" and phase == 1 and bursts else 1
            phases.append(Phase(rows * many, drawn))
        streams.append(StreamOf(stream, tuple(phases)))
    joins = "".join(
        f" JOIN {right} ON "
        + " AND ".join(f"{left}.{one} = {right}.{other}" for one, other in pairs)
        + f" AND {when.format(left, right)}"
        for left, right, pairs, when in ties
    )
    first = next(iter(keys))
    values = ", ".join(f"{stream}.v AS {stream}v" for stream in keys)
    sql = f"SELECT {values} FROM {first}{joins}"
    return Workload(name, sql, tuple(streams), lengths, (trait, shape))


def _columns(names: Sequence[str], trait: str, chance: random.Random) -> dict[str, Column]:
    values = chance.choice((40, 100, 400))
    columns: dict[str, Column] = {}
    for number, name in enumerate(names):
        match trait:
            case "skew":
                columns[name] = chance.choice(
                    (zipf(values, 0.8), hot(values, 0.15), uniform(values))
                )
            case "drift":
                columns[name] = partly(values, chance.choice((0.1, 0.5, 1.0)))
            case "correlated" if number:
                columns[name] = follows(names[0], values, chance.choice((0.0, 0.3)))
            case _:
                columns[name] = uniform(values)
    return columns


def _published(query: JoinQuery, setting: str) -> Workload:
    """A query of the paper: half an hour of event time in an epoch."""
    rates = SETTINGS[setting]
    total = sum(rates[name] for name in query.streams)
    # As many rows in all as keep the worst order's intermediate rows below a million.
    streams = tuple(
        StreamOf(name, (Phase(max(4, 1_600 * rates[name] // total), {"k": uniform(KEYS)}),))
        for name in query.streams
    )
    name = f"joins/{query.name}/{setting}"
    return Workload(name, query.sql, streams, (6,), ("published",), step=100 * MINUTE)
