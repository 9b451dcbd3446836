"""Data that change: one order for all of it, the orders that follow it, and one that knows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean

from benchmarks import BenchError
from benchmarks.probing.drifting_streams import ORDERS as DRIFT_ORDERS
from benchmarks.probing.drifting_streams import drift_figures
from benchmarks.probing.runs import COMPARED, FIXED, OURS, Found, ProbeBench, Run
from headrace.native.compare import Case


def drift(bench: ProbeBench) -> Found:
    drift = bench.size.drift
    folder = bench.setup.work / "drift"
    streams = drift.write(folder)
    expected = drift.results(folder)
    contestants: dict[str, tuple[str, dict[str, str]]] = {
        f"fixed {' '.join(order)}": (drift.query(order), COMPARED[FIXED]) for order in DRIFT_ORDERS
    }
    first = drift.query(DRIFT_ORDERS[0])
    contestants[OURS] = first, COMPARED[OURS]
    contestants[f"{OURS}, cycle 4"] = first, {**COMPARED[OURS], "probe.cycle": "4"}
    found: dict[str, list[Run]] = {name: [] for name in contestants}
    few = replace(drift, batches_per_phase=max(1, drift.batches_per_phase // 6))
    bench.joined(few.write(bench.setup.work / "drift-warm"), first, COMPARED[OURS])
    for turn in range(bench.size.drift_repeats):
        names = list(contestants)
        for name in names if turn % 2 == 0 else reversed(names):
            one = bench.joined(streams, *contestants[name])
            if len(one.joining) != drift.batches:
                raise BenchError(
                    f"{drift.batches} micro-batches made {len(one.joining)} epochs, so phases "
                    "cannot be told apart",
                    hint="run it again on a machine that does less besides",
                )
            found[name].append(one)
            bench.setup.say(
                f"drift: {name} took {one.seconds:.2f} s, joining {one.join_seconds:.2f} s"
            )
    wrong = [name for name, ones in found.items() if any(o.results != expected for o in ones)]
    case = _drift_case(bench, found, wrong, expected)
    return [case], {f"drift, {name}": value for name, value in case.ratio.items()}


def _drift_case(
    bench: ProbeBench, found: Mapping[str, Sequence[Run]], wrong: Sequence[str], expected: int
) -> Case:
    drift = bench.size.drift
    # Means over the runs, epoch by epoch.
    joining = {
        name: [mean(batch) for batch in zip(*(one.joining for one in ones), strict=True)]
        for name, ones in found.items()
    }
    runs = {name: mean(one.seconds for one in ones) for name, ones in found.items()}
    fixed = [name for name in found if name.startswith("fixed")]
    ratio, notes = drift_figures(drift, joining, runs, fixed)
    notes |= {
        "target": f"{OURS}/oracle <= 1.15, of the best single order saved >= 0.3",
        "results": expected,
        "switches": {name: ones[-1].switches for name, ones in found.items()},
    }
    if wrong:
        notes["difference"] = f"{wrong[0]} does not have the {expected} results of DuckDB"
    return Case("drift/four phases", not wrong, drift.total_rows, runs, ratio, notes)
