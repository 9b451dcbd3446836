"""Workloads of joins without a bound on time: in which order new rows probe the other inputs.

Shapes are stars of three to five dimensions, snowflakes, chains, cliques (one key in all of them)
and bushy graphs (two centres that are joined); dimensions are loaded first, or move like the rest.
In each shape the keys are skewed, drift from phase to phase, depend on each other, come in bursts,
or none of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping

from benchmarks.choices.streams import (
    Column,
    Phase,
    StreamOf,
    Workload,
    apart,
    constant,
    follows,
    hot,
    partly,
    serial,
    uniform,
    zipf,
)

TRAITS = ("plain", "skew", "drift", "burst", "correlated")
SHARES = (0.05, 0.2, 0.5, 0.9)
EACH = (1, 2, 4)
ROWS, KEYS = 1_000, 200


def probed_workloads(length: int) -> Iterator[Workload]:
    """Each shape with each trait; phases of so many epochs."""
    for shape, build in SHAPES.items():
        for trait in TRAITS:
            # All orders of five dimensions take many runs.
            if shape == "star of 5, static" and trait not in ("drift", "correlated"):
                continue
            name = f"probes/{shape}/{trait}"
            yield build(name, trait, random.Random(name), length)


def _star(dimensions: int, static: bool) -> Callable[..., Workload]:
    def build(name: str, trait: str, chance: random.Random, length: int) -> Workload:
        names = [f"d{n}" for n in range(1, dimensions + 1)]
        keys = [f"k{n}" for n in range(1, dimensions + 1)]
        phases = _phases(keys, trait, chance)
        facts = StreamOf("f", tuple(Phase(rows, columns) for rows, columns in phases))
        others = [_dimension(one, chance, static) for one in names]
        written = [*zip(names, keys, strict=True)]
        chance.shuffle(written)
        joins = " ".join(f"JOIN {d} ON f.{k} = {d}.k" for d, k in written)
        sql = f"SELECT f.v, {', '.join(f'{d}.v AS {d}v' for d in names)} FROM f {joins}"
        lengths = (length,) * len(phases)
        return Workload(name, sql, (facts, *others), lengths, _traits(trait, static))

    return build


def _snowflake(static: bool) -> Callable[..., Workload]:
    """Facts meet two dimensions, each of which meets one of its own."""

    def build(name: str, trait: str, chance: random.Random, length: int) -> Workload:
        phases = _phases(["k1", "k2"], trait, chance)
        facts = StreamOf("f", tuple(Phase(rows, columns) for rows, columns in phases))
        outer = [_dimension(one, chance, static) for one in ("e1", "e2")]
        inner = [
            _dimension(one, chance, static, {"m": partly(KEYS, chance.choice(SHARES))})
            for one in ("d1", "d2")
        ]
        joins = ["d1 ON f.k1 = d1.k", "d2 ON f.k2 = d2.k", "e1 ON d1.m = e1.k", "e2 ON d2.m = e2.k"]
        if chance.random() < 0.5:
            joins = [joins[1], joins[3], joins[0], joins[2]]
        sql = f"SELECT f.v, e1.v AS e1v, e2.v AS e2v FROM f JOIN {' JOIN '.join(joins)}"
        lengths = (length,) * len(phases)
        return Workload(name, sql, (facts, *inner, *outer), lengths, _traits(trait, static))

    return build


def _chain(name: str, trait: str, chance: random.Random, length: int) -> Workload:
    """a meets b, b meets c, c meets d, and all bring new rows."""
    middles: dict[str, tuple[str, ...]] = {
        "a": ("x",), "b": ("x", "y"), "c": ("y", "z"), "d": ("z",)
    }  # fmt: skip
    streams = []
    counts = {"a": 400, "b": 200, "c": 100, "d": 50}
    names = [*counts]
    sizes = [*counts.values()]
    chance.shuffle(sizes)
    lengths = (length, length) if trait in ("drift", "burst") else (2 * length,)
    for stream, rows in zip(names, sizes, strict=True):
        phases = []
        for number in range(len(lengths)):
            count, columns = _phases([*middles[stream]], trait, chance, 300, mild=True)[number]
            phases.append(Phase(rows * count // ROWS, columns))
        streams.append(StreamOf(stream, tuple(phases)))
    sql = (
        "SELECT a.v AS av, d.v AS dv FROM a JOIN b ON a.x = b.x JOIN c ON b.y = c.y "
        "JOIN d ON c.z = d.z"
    )
    return Workload(name, sql, tuple(streams), lengths, (trait, "chain"))


def _clique(name: str, trait: str, chance: random.Random, length: int) -> Workload:
    """Four streams by one key, of very unequal rates, as in the paper's query."""
    rows = [400, 150, 60, 30]
    chance.shuffle(rows)
    lengths = (length, length) if trait in ("drift", "burst") else (2 * length,)
    streams = []
    for stream, count in zip("abcd", rows, strict=True):
        phases = tuple(
            Phase(count * here // ROWS, columns)
            for here, columns in _phases(["k"], trait, chance, 1_000, mild=True)[: len(lengths)]
        )
        streams.append(StreamOf(stream, phases))
    joins = " ".join(f"JOIN {other} ON a.k = {other}.k" for other in "bcd")
    sql = f"SELECT a.k, a.v AS av, b.v AS bv, c.v AS cv, d.v AS dv FROM a {joins}"
    return Workload(name, sql, tuple(streams), lengths, (trait, "clique"))


def _bushy(name: str, trait: str, chance: random.Random, length: int) -> Workload:
    """Two centres that are joined, with a dimension each; the second centre is kept, too."""
    phases = _phases(["k", "g"], trait, chance)
    left = StreamOf("f", tuple(Phase(rows, columns) for rows, columns in phases))
    right = StreamOf("g", constant(100, {"g": uniform(KEYS), "k": partly(KEYS, 0.3)}))
    dimensions = [_dimension(one, chance, True) for one in ("d", "e")]
    sql = (
        "SELECT f.v, g.v AS gv, d.v AS dv, e.v AS ev FROM f JOIN g ON f.g = g.g "
        "JOIN d ON f.k = d.k JOIN e ON g.k = e.k"
    )
    lengths = (length,) * len(phases)
    return Workload(name, sql, (left, right, *dimensions), lengths, (trait, "bushy"))


SHAPES: Mapping[str, Callable[..., Workload]] = {
    "star of 3, static": _star(3, True),
    "star of 3": _star(3, False),
    "star of 4, static": _star(4, True),
    "star of 5, static": _star(5, True),
    "snowflake, static": _snowflake(True),
    "snowflake": _snowflake(False),
    "chain of 4": _chain,
    "clique of 4": _clique,
    "bushy": _bushy,
}


def _dimension(
    name: str, chance: random.Random, static: bool, others: Mapping[str, Column] | None = None
) -> StreamOf:
    """So many rows of each key to begin with; then nothing, or a few new ones."""
    columns = {"k": serial(KEYS), **(others or {})}
    load = Phase(KEYS * chance.choice(EACH), columns)
    later = Phase(0 if static else 20, {**columns, "k": uniform(4 * KEYS)})
    return StreamOf(name, (later,), load)


def _phases(
    keys: list[str],
    trait: str,
    chance: random.Random,
    values: int = KEYS,
    mild: bool = False,
) -> list[tuple[int, dict[str, Column]]]:
    """Rows of an epoch and their keys, in each of two phases (drift has three).

    ``mild`` skew is for inputs that all keep what they get: their hot keys multiply each other.
    """

    def plain() -> dict[str, Column]:
        return {key: partly(values, chance.choice(SHARES)) for key in keys}

    match trait:
        case "skew":
            heavy: dict[str, Column] = {
                key: zipf(values, chance.choice((0.3, 0.6)))
                if mild
                else chance.choice((zipf(values, 1.2), hot(values, 0.4), partly(values, 0.3)))
                for key in keys
            }
            return [(ROWS, heavy), (ROWS, heavy)]
        case "drift":
            return [(ROWS, plain()) for _ in range(3)]
        case "burst":
            columns = plain()
            return [(ROWS // 4, columns), (ROWS * 2, columns)]
        case "correlated":
            first, *rest = keys
            tied: dict[str, Column] = {first: partly(values, 0.5)}
            for number, key in enumerate(rest):
                tied[key] = (
                    apart(first, values, 0.9) if number % 2 == 0 else follows(first, 2 * values)
                )
            return [(ROWS, tied), (ROWS, tied)]
        case _:
            columns = plain()
            return [(ROWS, columns), (ROWS, columns)]


def _traits(trait: str, static: bool) -> tuple[str, ...]:
    return (trait, "static dimensions") if static else (trait,)
