"""One run of a multi-way join under Headrace, which all parts of the bench are made of."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import BenchError
from benchmarks.harness.report import Setup
from benchmarks.probing.drifting_streams import Drift, Growth
from headrace.contestants import StreamFolder, empty_folder, open_session
from headrace.native.compare import Case

OURS, FIXED = "dp_pick", "fixed_order"
COMPARED = {
    FIXED: {"probe.strategy": FIXED},
    "selectivity_first": {"probe.strategy": "selectivity_first"},
    "cost_greedy": {"probe.strategy": "cost_greedy"},
    OURS: {"probe.strategy": OURS},
}
ABLATIONS = {
    "query_cost_only": {"probe.strategy": "query_cost_only"},
    "match_cost_only": {"probe.strategy": "match_cost_only"},
    "no_smoothing": {"probe.strategy": OURS, "probe.smoothing": "false"},
    "published_model": {"probe.strategy": OURS, "probe.costModel": "paper"},
}
CONTESTANTS = {**COMPARED, **ABLATIONS}
#: What a part finds: its cases, and its figures for the summary.
Found = tuple[list[Case], dict[str, float]]


@dataclass(frozen=True)
class Size:
    """What is run at a scale. Without a scale factor the tables are not those of TPC-DS."""

    factor: float | None
    orders: tuple[tuple[str, ...], ...]
    batches: int
    swept_batches: int
    swept_orders: int
    cycles: tuple[int, ...]
    histories: tuple[int, ...]
    drift: Drift
    drift_repeats: int
    native_rows: int
    growth: Growth
    ratios: tuple[int, int]


@dataclass(frozen=True)
class Run:
    """One run of Headrace; seconds of its epochs, whole and in the join phase alone."""

    seconds: float
    epochs: tuple[float, ...]
    joining: tuple[float, ...]
    results: int
    state_rows: int
    switches: int
    statistics_share: float
    #: Rows that probes looked up, and those that they found and that are no results.
    looked_up: int
    intermediate: int

    @property
    def join_seconds(self) -> float:
        return sum(self.joining)


@dataclass
class ProbeBench:
    """What the parts are given; ``gainers`` are the orders with the greatest gain, once known."""

    setup: Setup
    size: Size
    gainers: Sequence[tuple[str, ...]]

    def joined(
        self,
        streams: list[StreamFolder],
        sql: str,
        settings: Mapping[str, str],
        out: Path | None = None,
    ) -> Run:
        """One run from an empty checkpoint; without a folder the results are counted only."""
        place = empty_folder(self.setup.work / "headrace")
        # Every epoch is wanted, however many there are.
        settings = {**settings, "progress.retained": "100000"}
        hr = open_session(self.setup.spark, streams, place, settings)
        writer = hr.sql(sql).writeStream.queryName("joined")
        if out is None:
            handle = writer.format("noop").start()
        else:
            handle = writer.format("parquet").start(str(out))
        started = time.perf_counter()
        hr.start(availableNow=True)
        hr.awaitTermination()
        seconds = time.perf_counter() - started
        last = handle.lastProgress
        if handle.exception() is not None or last is None:
            raise BenchError(f"the join failed under Headrace: {handle.exception()}")
        epochs = hr.recentProgress
        plan = hr._engine.plan
        probed = [] if plan is None else list(plan.choices.probes.values())
        if not probed:
            raise BenchError("the join did not probe indexes")
        return Run(
            seconds,
            tuple(epoch["seconds"] for epoch in epochs),
            tuple(epoch["durationMs"].get("outputs", 0) / 1_000 for epoch in epochs),
            int(last["totalOutputRows"]),
            int(last["stateRows"]),
            sum(len(epoch["planChanges"]) for epoch in epochs),
            sum(one.statistics_seconds for one in probed)
            / max(1e-9, sum(one.seconds for one in probed)),
            sum(one.looked_up for one in probed),
            sum(one.found for one in probed) - int(last["totalOutputRows"]),
        )


def clocked(one: Run, clock: str) -> float:
    return one.seconds if clock == "run" else one.join_seconds
