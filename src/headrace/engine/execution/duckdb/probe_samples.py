"""What a part of a multi-way join tells of its probes, so that orders can be chosen by it.

The orders that ran tell what each of their steps found. Of others samples tell, which are looked
up as rows would be in an epoch to come: in all segments, and a match is what has not expired and
meets the conditions. Some of the rows that an input holds are looked up in every other input: that
holds for rows that others find there. Some of its new rows go on with what they found, through
every set of inputs, since what a probe finds may depend on what the row has met before.

A few rows may find more than all others together, and a sample of every n-th row may have none of
them, or far too many. To see how much a row would find next costs less than to find it. So of many
more rows than are followed it is looked up, those that would find very much are all followed, and
of the rest every n-th, which stands for n.

This module goes to the executors by value and needs nothing there but DuckDB, pyarrow and numpy.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np

from headrace.engine.execution.duckdb.local_index import KEY, Array, Path, Segment, path_hashes
from headrace.engine.execution.duckdb.probe_kernel import (
    IndexedInput,
    ProbeJoinKernel,
    Rows,
    expanded,
    look_up,
)

#: Rows of an input that are looked up in the others, and the share of a large number of them.
SAMPLED, SAMPLED_SHARE = 256, 0.01
#: Of so many times as many rows it is looked up how much they would find.
LOOKED_OVER = 16
#: Of what a sample finds in one step, so many candidates are looked at, spread over all of them.
MOST_CANDIDATES = 1 << 15
#: Keys of a segment that are looked for in the larger ones, to count keys that both have once.
SAMPLED_KEYS = 256
#: Up to so many inputs all sets of them are gone through; of more, and where DuckDB must decide
#: conditions at every step, those that the order which runs goes through.
MOST_WALKED, MOST_WALKED_WITH_CONDITIONS = 5, 3

#: Rows that were looked up, those that found any, rows that go on, and rows found in vain.
Counts = tuple[int, int, int, int]
#: Whose new rows they are, the inputs that they have met as bits, the prober and the probed.
SampledStep = tuple[int, int, int, int]
#: Rows of a sample, and how many each of them stands for.
Stratum = tuple[Rows, float]


def statistics_of(join: ProbeJoinKernel) -> dict[str, Any]:
    """Section 4.3, and more: counts of all pairs, of steps, and how many keys each index has."""
    began = time.perf_counter()
    counts: list[tuple[int, ...]] = []
    keys: list[tuple[int, int, float]] = []
    sampled: dict[SampledStep, Counts] = {}
    for driver, source in enumerate(join.inputs):
        for other in range(len(join.inputs)):
            path = join.path(driver, other) if other != driver else ()
            if path:
                keys.append((driver, other, _distinct(join.inputs[other], path)))
        rows, _ = _sample(join, driver, 0, 1)
        pairs = _steps(join, driver, {1 << driver: [(rows, 1.0)]}, frozenset())
        counts += [(driver, step[3], *found) for step, found in pairs]
        if source.new is not None:
            rows, weight = _sample(join, driver, int(source.starts[source.old_count]), LOOKED_OVER)
            sampled |= _walked(join, driver, _told_apart(join, driver, rows, weight))
    now = time.perf_counter()
    join.seconds |= {"statistics": now - began, "all": now - join.began}
    return {
        "counts": counts,
        "sampled": [(*step, *found) for step, found in sampled.items()],
        "observed": [(*step, *found) for step, found in join.steps.items()],
        "keys": keys,
        "rows": [source.held for source in join.inputs],
        "arrivals": [0 if s.new is None else s.new.count for s in join.inputs],
        "whole": [one["whole"] for one in join.spec["inputs"]],
        "results": join.results,
        "looked_up": join.looked_up,
        "found": join.found,
        "seconds": join.seconds,
    }


def _sample(join: ProbeJoinKernel, driver: int, first: int, times: int) -> tuple[Rows, float]:
    """Some rows of an input, of those from this one on, that would probe others, so many times what
    is followed; and how many each of them stands for."""
    source = join.inputs[driver]
    size = times * max(SAMPLED, int((source.held - first) * SAMPLED_SHARE))
    # Rows lie in the order of hashes, so every n-th of them is a fair sample of keys.
    step = max(1, (source.held - first) // size)
    positions = np.arange(first, source.held, step)
    names = {key: f"{KEY}{key}" for key in join.classes[driver]}
    values = {
        key: source.numbers(name, positions) if len(positions) else positions
        for key, name in names.items()
    }
    rows = Rows({driver: positions}, values)
    return join.meeting(join.alive(rows, driver), frozenset((driver,)), driver), float(step)


def _told_apart(join: ProbeJoinKernel, driver: int, rows: Rows, weight: float) -> list[Stratum]:
    """Those of some rows that would find very much in one of the next inputs, and some of the rest.

    Very much is more than the share of a row among those that are followed.
    """
    size = max(SAMPLED, int(len(rows) * SAMPLED_SHARE))
    if len(rows) <= size:
        return [(rows, weight)]
    many = np.zeros(len(rows), bool)
    for prober, probed in _pairs(join, driver, rows.met):
        path = join.path(prober, probed)
        hashes = path_hashes(rows.values.__getitem__, path)
        candidates = np.zeros(len(rows), np.int64)
        for segment in join.inputs[probed].segments:
            if segment.count:
                _, slots = segment.indexes[path].look_up(hashes)
                candidates += slots
        many |= candidates * size > int(candidates.sum())
    rest = np.flatnonzero(~many)
    some = rest[:: max(1, len(rest) // size)]
    strata = [(rows.taken(np.flatnonzero(many)), weight)]
    if len(some):
        strata.append((rows.taken(some), weight * len(rest) / len(some)))
    return [(part, each) for part, each in strata if len(part)]


def _walked(join: ProbeJoinKernel, driver: int, rows: list[Stratum]) -> dict[SampledStep, Counts]:
    """Steps of the sets of inputs that are gone through, the small ones first."""
    inputs = len(join.inputs)
    most = MOST_WALKED_WITH_CONDITIONS if join.spec["conditions"] else MOST_WALKED
    if inputs <= most:
        wanted = frozenset(range(1 << inputs))
    else:
        wanted = frozenset(_prefixes(driver, join.spec["orders"].get(driver, ())))
    samples = {1 << driver: rows}
    counts = dict[SampledStep, Counts]()
    for _ in range(inputs - 1):
        following = dict[int, list[Stratum]]()
        counts |= _steps(join, driver, samples, wanted, following)
        samples = following
    return counts


def _prefixes(driver: int, order: Any) -> Iterator[int]:
    met = 1 << driver
    for _, probed in order:
        met |= 1 << probed
        yield met


def _steps(
    join: ProbeJoinKernel,
    driver: int,
    samples: dict[int, list[Stratum]],
    wanted: frozenset[int],
    following: dict[int, list[Stratum]] | None = None,
) -> Iterator[tuple[SampledStep, Counts]]:
    """All steps that can follow; what rows become in them is noted of the sets that are wanted."""
    everything = (1 << len(join.inputs)) - 1
    for met, strata in samples.items():
        for prober, probed in _pairs(join, driver, met):
            weighed: list[tuple[Counts, float]] = []
            joined: list[Stratum] = []
            for rows, weight in strata:
                looked = _looked_up(join, rows, prober, probed) if len(rows) else None
                if looked is None:
                    continue
                counts, matched, step = looked
                weighed.append((counts, weight))
                joined.append((matched, weight * step))
            if not weighed:
                continue
            yield (driver, met, prober, probed), _together(weighed)
            after = met | 1 << probed
            if following is None or after not in wanted or after in (everything, *following):
                continue
            following[after] = [
                part
                for matched, weight in joined
                for part in _told_apart(join, driver, *_thinned(matched, weight))
            ]


def _together(weighed: list[tuple[Counts, float]]) -> Counts:
    """Counts of rows that stand for more or fewer others, as of so many that are alike."""
    if len(weighed) == 1:
        return weighed[0][0]
    sampled = sum(counts[0] for counts, _ in weighed)
    scale = sampled / sum(counts[0] * weight for counts, weight in weighed)
    queries, matches, rows, wasted = (
        round(scale * sum(counts[place] * weight for counts, weight in weighed))
        for place in range(4)
    )
    return queries, max(matches, min(rows, 1)), rows, wasted


def _thinned(rows: Rows, weight: float) -> tuple[Rows, float]:
    step = max(1, len(rows) // (SAMPLED * LOOKED_OVER))
    return rows.taken(slice(None, None, step)), weight * step


def _pairs(join: ProbeJoinKernel, driver: int, met: int) -> Iterator[tuple[int, int]]:
    """What can be probed, and by whom: for each set of keys the driver, or the first input."""
    present = [driver, *(i for i in range(len(join.inputs)) if met >> i & 1 and i != driver)]
    for probed in range(len(join.inputs)):
        if met >> probed & 1:
            continue
        paths: set[Path] = set()
        for prober in present:
            path = join.path(prober, probed)
            if path and path not in paths:
                paths.add(path)
                yield prober, probed


def _looked_up(
    join: ProbeJoinKernel, rows: Rows, prober: int, probed: int
) -> tuple[Counts, Rows, int] | None:
    """What rows find in one input, and how many of these each row that is followed stands for; None
    if a condition fails, which is not for a sample to say."""
    path = join.path(prober, probed)
    hashes = path_hashes(rows.values.__getitem__, path)
    source = join.inputs[probed]
    runs = [
        (int(start), segment, *segment.indexes[path].look_up(hashes))
        for start, segment in zip(source.starts, source.segments, strict=False)
        if segment.count
    ]
    candidates = sum(int(many.sum()) for *_, many in runs)
    # Where it is not 1, rows that found few may be taken for such that found none: of what follows
    # from that only the product is right, the rows that a probe finds.
    step = candidates // MOST_CANDIDATES + 1
    pairs = [
        _spread(hashes, segment, path, begins, many, start, step)
        for start, segment, begins, many in runs
    ]
    none = np.zeros(0, np.int64)
    sources = np.concatenate([none, *(one for one, _ in pairs)])
    positions = np.concatenate([none, *(one for _, one in pairs)])
    if not len(sources):
        return (len(rows), 0, 0, 0), rows.taken(slice(0)), 1
    try:
        joined = join.joined(rows, sources, positions, probed, path)
    except duckdb.Error:
        return None
    wasted = (len(sources) - len(joined)) * step
    return (len(rows), joined.origins, len(joined) * step, wasted), joined, step


def _spread(
    hashes: Array, segment: Segment, path: Path, begins: Array, many: Array, start: int, step: int
) -> tuple[Array, Array]:
    """Which row met which, of every n-th candidate."""
    if step == 1:
        return expanded(hashes, segment.indexes[path], begins, many, start)
    ends = np.cumsum(many.astype(np.int64))
    chosen = np.arange(0, int(ends[-1]), step)
    sources = np.searchsorted(ends, chosen, "right")
    begins = begins[sources] + (chosen - (ends - many)[sources])
    one = np.ones(len(chosen), np.int64)
    which, positions = expanded(hashes[sources], segment.indexes[path], begins, one, start)
    return sources[which], positions


def _distinct(source: IndexedInput, path: Path) -> float:
    """How many keys an input has: those of its largest segment, and of each smaller one the share
    that the larger ones do not have, judged by a sample (equation 11)."""
    ordered = sorted(source.segments, key=lambda segment: -segment.count)
    total = 0.0
    for position, segment in enumerate(ordered):
        slots = segment.indexes[path]
        if not segment.count:
            continue
        if position == 0:
            total += slots.keys
            continue
        sample = slots.hashes[:: max(1, segment.count // SAMPLED_KEYS)]
        fresh = np.ones(len(sample), bool)
        for larger in ordered[:position]:
            if larger.count:
                sources, _ = look_up(larger, path, sample)
                fresh &= np.bincount(sources, minlength=len(sample)) == 0
        total += slots.keys * float(fresh.mean())
    return total
