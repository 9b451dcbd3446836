"""Probe orders of a multi-way join: do they follow the data, and what is that worth?

After Section 5 of the paper on run-time optimized multi-way joins. Each part has its cases, and can
be run alone by naming it in the environment variable ``HEADRACE_BENCH_CASES``:

- *tpcds*: the paper's query from all 24 initial orders, by every strategy (Figures 2 and 3).
- *sweeps*: the length of a cycle and that of the history (Figures 4 and 5).
- *counted*: both, and the ablations under the published cost model too, by the rows that are looked
  up and by processor time, over a hundred micro-batches and without Spark (Figures 3 to 5).
- *drift*: data that change, against every fixed order, and against one that knows the changes.
- *native*: a cascade of plain Spark's joins, and the rows that it keeps.
- *state*: whether an epoch takes longer when much more is kept.
- *search*: how long it takes to choose orders.

Two clocks run. The *run* is all from start to end; most of it is what any streaming query does for
its micro-batches. The *join phase* is the part of the epochs that computes results.

Paper: Multi-Way Joins, Section 5.2, Section 5.3, Section 5.4.
"""

from __future__ import annotations

from benchmarks.harness.parts import Parts, run_parts
from benchmarks.harness.report import Report, Setup
from benchmarks.probing.counted import counted
from benchmarks.probing.drift import drift
from benchmarks.probing.drifting_streams import Drift, Growth
from benchmarks.probing.native import native
from benchmarks.probing.runs import ProbeBench, Size
from benchmarks.probing.state import search, state
from benchmarks.probing.tpcds import sweeps, tpcds
from benchmarks.probing.tpcds_streams import ORDERS

#: The parts, in the order they run, and about which share of the time each takes.
PARTS: Parts[ProbeBench] = {
    "tpcds": (tpcds, 0.5),
    "sweeps": (sweeps, 0.12),
    "counted": (counted, 0.1),
    "drift": (drift, 0.15),
    "native": (native, 0.08),
    "state": (state, 0.04),
    "search": (search, 0.01),
}
#: Where dpPick gained most in the paper; swept if this machine was not asked which these are.
PUBLISHED_GAINERS = (("cr", "wr", "sr", "cu"), ("wr", "cu", "cr", "sr"))

SIZES = {
    "tiny": Size(
        factor=None,
        orders=ORDERS[:1],
        batches=2,
        swept_batches=3,
        swept_orders=1,
        cycles=(1, 2),
        histories=(1,),
        drift=Drift(200, 1, keys=20, matches=3),
        drift_repeats=1,
        native_rows=400,
        growth=Growth(50, 7),
        ratios=(2, 5),
    ),
    "small": Size(
        factor=1,
        orders=ORDERS[::12],
        batches=4,
        swept_batches=8,
        swept_orders=1,
        cycles=(1, 3),
        histories=(1, 5),
        drift=Drift(10_000, 5),
        drift_repeats=1,
        native_rows=40_000,
        growth=Growth(2_000, 26),
        ratios=(5, 22),
    ),
    "full": Size(
        factor=2,
        orders=ORDERS,
        batches=5,
        swept_batches=20,
        swept_orders=2,
        cycles=(1, 2, 3, 5, 8, 12),
        histories=(1, 2, 5, 10, 20),
        drift=Drift(20_000, 12),
        drift_repeats=1,
        native_rows=1_000_000,
        growth=Growth(10_000, 106),
        ratios=(10, 100),
    ),
}


def run(setup: Setup) -> Report:
    bench = ProbeBench(setup, SIZES[setup.scale], PUBLISHED_GAINERS)
    return run_parts("probe-order", setup, PARTS, bench)
