"""What it costs to look a key up in an index, and to go on with a row that it finds.

Measured on the code that tasks run, in this process: a probe is so short that anything around it
would hide it.

Paper: Multi-Way Joins, Section 4.1.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import log2
from statistics import median

import numpy as np
import pyarrow as pa

from headrace.cost.probing import ProbeTuning
from headrace.engine.execution.duckdb.local_index import KEY, Array, Segment, make_segment
from headrace.engine.execution.duckdb.probe_kernel import look_up_all

#: An index has that many segments as a rule, and a key is looked up in each.
SEGMENTS = 3
PROBES = 200_000
#: Rows of a key where matches are measured, and inputs whose positions go along.
MATCHES, CARRIED = 20, 3
REPEATS = 7
_PATH = (0,)


def probe_tuning(most_keys: int) -> ProbeTuning:
    """The parameters of this machine."""
    usual = ProbeTuning()
    near = min(int(usual.near), most_keys // 4)
    chance = np.random.default_rng(0)
    absent = chance.integers(1 << 40, 1 << 41, PROBES)

    def query(keys: int) -> float:
        index = _index(keys, 1)
        return _seconds(lambda: look_up_all(index, _PATH, absent)) / PROBES

    small, large = query(near), query(most_keys)
    near_index = _index(near, MATCHES)
    present = chance.integers(0, near, PROBES // MATCHES)
    matched = _seconds(lambda: _carried(near_index, present)) - small * len(present)
    return ProbeTuning(
        query=SEGMENTS * small,
        match=max(1e-10, matched / PROBES),
        miss=max(0.0, (large / small - 1) / log2(most_keys / near)),
        near=float(near),
    )


def _index(keys: int, rows: int) -> Segment:
    values = np.repeat(np.arange(keys), rows)
    return make_segment(pa.table({f"{KEY}0": values}), [_PATH], 0, 0)


def _carried(index: Segment, values: Array) -> None:
    """A probe, and the positions of other inputs that go along with what it finds."""
    sources, _ = look_up_all(index, _PATH, values)
    before = np.arange(len(values))
    for _ in range(CARRIED):
        before[sources]


def _seconds(work: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return median(times)
