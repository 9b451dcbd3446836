"""State far larger than a micro-batch, and the time that it takes to choose orders."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from itertools import combinations
from statistics import mean, median

from benchmarks import BenchError
from benchmarks.probing.drifting_streams import GROWTH_QUERY
from benchmarks.probing.runs import COMPARED, OURS, Found, ProbeBench
from headrace.native.compare import Case


def state(bench: ProbeBench) -> Found:
    growth = bench.size.growth
    few, many = bench.size.ratios
    streams = growth.write(bench.setup.work / "growth")
    # The first run is only to warm up, and a whole one: Java compiles for a hundred epochs, and
    # if those with little state were the ones it slows down, much state would look cheap.
    for _ in range(2):
        one = bench.joined(streams, GROWTH_QUERY, COMPARED[OURS])
    if len(one.epochs) != growth.batches:
        raise BenchError(f"{growth.batches} micro-batches made {len(one.epochs)} epochs")
    clocks = {"epoch": one.epochs, "join phase": one.joining}
    seconds = {
        _kept(clock, ratio): median(_around(of, ratio))
        for clock, of in clocks.items()
        for ratio in (few, many)
    }
    case = Case(
        f"state/{many} to 1",
        one.results == growth.results,
        3 * growth.rows * growth.batches,
        seconds,
        {
            f"state {many}/{few} ({clock})": median(_around(of, many)) / median(_around(of, few))
            for clock, of in clocks.items()
        },
        {
            "target": f"state {many}/{few} (epoch) <= 1.3",
            "results": one.results,
            "expected results": growth.results,
            # Medians leave out the epochs that merge indexes; here they are in.
            "mean seconds": {
                _kept(clock, ratio): round(mean(_around(of, ratio)), 4)
                for clock, of in clocks.items()
                for ratio in (few, many)
            },
            "longest epoch": round(max(one.epochs), 3),
            "series": {
                "x": "micro-batches in the state",
                "y": "seconds",
                "at": list(range(growth.batches)),
                "lines": {c: [round(s, 4) for s in of] for c, of in clocks.items()},
            },
        },
    )
    return [case], {f"state, {name}": value for name, value in case.ratio.items()}


def search(bench: ProbeBench) -> Found:
    return [], {"dp_pick of eight inputs, milliseconds (target < 50)": search_milliseconds()}


def _kept(clock: str, ratio: int) -> str:
    return f"{clock}, state of {ratio} micro-batches"


def _around(epochs: Sequence[float], ratio: int) -> Sequence[float]:
    """The epochs that found about so many micro-batches in the state."""
    width = max(2, ratio // 20)
    return epochs[max(0, ratio - width) : ratio + width + 1]


def search_milliseconds() -> float:
    """The longest of some searches over eight inputs of which any two share a key."""
    from headrace.cost.probing import ProbeModel, ProbeTuning
    from headrace.optimizer.probing import dp_pick
    from headrace.optimizer.probing.graph import ProbeGraph
    from headrace.optimizer.probing.strategy import Choice
    from headrace.stats.probes import ProbeStatistics

    inputs = 8
    # One key in all of them, and a key for each pair, which leaves more ways to choose from.
    pairs = tuple(frozenset(pair) for pair in combinations(range(inputs), 2))
    longest = 0.0
    for classes in ((frozenset(range(inputs)),), pairs):
        graph = ProbeGraph(inputs, classes)
        for seed in range(5):
            chance = random.Random(seed)
            statistics = ProbeStatistics(
                {edge: chance.random() for edge in graph.edges},
                {edge: 10 ** chance.uniform(0, 2) for edge in graph.edges},
                {edge: 10 ** chance.uniform(1, 6) for edge in graph.edges},
                {index: 10 ** chance.uniform(2, 7) for index in range(inputs)},
            )
            started = time.perf_counter()
            dp_pick.orders(
                Choice(
                    graph,
                    statistics,
                    ProbeTuning(),
                    ProbeModel.ENGINE,
                    tuple(range(inputs)),
                )
            )
            longest = max(longest, time.perf_counter() - started)
    return 1_000 * longest
