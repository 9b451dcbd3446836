"""Workloads of aggregates over joins: which inputs are aggregated before they are joined.

Two and three streams that meet in windows; few groups or nearly as many as rows, few values of the
join's key or many, equal rates or very unequal ones; and what changes: groups that become many,
bursts, skew. Beside them, those of the paper's four showcases.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from benchmarks.choices.streams import Column, Phase, StreamOf, Workload, hot, uniform, zipf

#: Rows of an epoch.
RATES = (500, 2_000, 8_000)
#: Values of a grouping attribute, and of the join's key.
GROUPS, VALUES = (1, 20, 400, 10_000), (20, 300, 3_000)
WINDOWS = ("10 seconds", "30 seconds", "1 minutes")
TRAITS = ("few groups", "many groups", "any", "skew", "groups that become many", "burst")
#: The most pairs that joining row by row may make in an epoch.
MOST_PAIRS = 300_000


def early_workloads(length: int) -> Iterator[Workload]:
    for trait in TRAITS:
        for inputs in (2, 3):
            for number in (1, 2):
                yield _generated(f"early/{inputs} streams/{trait}/{number}", trait, inputs, length)
    for name, (rows, groups, values, window) in SHOWCASES.items():
        streams = tuple(
            StreamOf(f"s{n}", (Phase(count, {"j": uniform(values), "g": uniform(some)}),))
            for n, (count, some) in enumerate(zip(rows, groups, strict=True), 1)
        )
        sql = _sql(len(rows), [n for n, some in enumerate(groups, 1) if some > 1], window)
        yield Workload(f"early/showcase {name}", sql, streams, (2 * length,), ("published",))


#: Rows of an epoch, groups, values of the key, window: Figure 10, at as many rows.
SHOWCASES = {
    "LAP": ((3_000, 5_000), (1_500, 1_500), 100, "1 seconds"),
    "EAP10": ((3_000, 5_000), (1, 1_500), 100, "1 seconds"),
    "EAP01": ((3_000, 5_000), (1_500, 1), 100, "1 seconds"),
    "EAP11": ((3_000, 5_000), (150, 150), 10, "4 seconds"),
}


def _generated(name: str, trait: str, inputs: int, length: int) -> Workload:
    chance = random.Random(name)
    values, window = chance.choice(VALUES), chance.choice(WINDOWS)
    per_window = {"10 seconds": 6, "30 seconds": 2, "1 minutes": 1}[window]
    rates = [chance.choice(RATES) for _ in range(inputs)]
    while _pairs(rates, values, per_window) * (16 if trait == "burst" else 1) > MOST_PAIRS:
        rates[rates.index(max(rates))] //= 2
    groups = [_groups(trait, chance) for _ in range(inputs)]
    changes = trait in ("groups that become many", "burst")
    streams = []
    for number in range(inputs):
        phases = []
        for phase in range(3 if changes else 1):
            rows, some = rates[number], groups[number]
            if trait == "burst" and phase == 1:
                rows *= 4
            if trait == "groups that become many" and phase == 1:
                some = 10_000
            phases.append(Phase(rows, _columns(trait, values, some)))
        streams.append(StreamOf(f"s{number + 1}", tuple(phases)))
    grouped = [n for n in range(1, inputs + 1) if groups[n - 1] > 1] or [1]
    lengths = (length,) * 3 if changes else (2 * length,)
    return Workload(name, _sql(inputs, grouped, window), tuple(streams), lengths, (trait,))


def _pairs(rates: Sequence[int], values: int, per_window: int) -> float:
    """Rows of the join in an epoch."""
    pairs = float(per_window) * values
    for rate in rates:
        pairs *= rate / per_window / values
    return pairs


def _groups(trait: str, chance: random.Random) -> int:
    match trait:
        case "few groups" | "groups that become many" | "skew":
            return chance.choice(GROUPS[:2])
        case "many groups":
            return chance.choice(GROUPS[2:])
        case _:
            return chance.choice(GROUPS)


def _columns(trait: str, values: int, groups: int) -> dict[str, Column]:
    if trait == "skew":
        return {"j": hot(values, 0.05), "g": zipf(groups, 1.0)}
    return {"j": uniform(values), "g": uniform(groups)}


def _sql(inputs: int, grouped: Sequence[int], window: str) -> str:
    joins = "".join(
        f" JOIN s{n} ON s1.j = s{n}.j AND window(s1.ts, '{window}') = window(s{n}.ts, '{window}')"
        for n in range(2, inputs + 1)
    )
    keys = [f"s{n}.g" for n in grouped]
    columns = [f"{key} AS g{n}" for n, key in zip(grouped, keys, strict=True)]
    sums = [f"SUM(s{n}.v) AS v{n}" for n in range(1, inputs + 1)]
    return (
        f"SELECT {', '.join([*columns, 'window', *sums, 'COUNT(*) AS n'])} FROM s1{joins} "
        f"GROUP BY {', '.join([*keys, f'''window(s1.ts, '{window}')'''])}"
    )
