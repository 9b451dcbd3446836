"""The paper's query on TPC-DS: from every initial order, by every strategy (Figures 2 to 5).

Paper: Multi-Way Joins, Section 5.2, Section 5.3, Section 5.4.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import Any

from benchmarks.harness.fingerprints import fingerprint
from benchmarks.probing.runs import (
    ABLATIONS,
    COMPARED,
    CONTESTANTS,
    FIXED,
    OURS,
    Found,
    ProbeBench,
    Run,
    clocked,
)
from benchmarks.probing.tpcds_streams import (
    ORDERS,
    TpcdsTables,
    generated,
    join_query,
    order_name,
    synthetic,
)
from headrace.contestants import StreamFolder, empty_folder
from headrace.native.compare import Case

#: Mean reductions of the run by dpPick, in percent, on 96 cores and Flink (Sections 5.2 and 5.3).
PUBLISHED = {
    FIXED: 31.2,
    "cost_greedy": 20.4,
    "selectivity_first": 56.1,
    "query_cost_only": 19.5,
    "match_cost_only": 6.3,
}
MOST_STATISTICS = 0.03
#: What depends on the order, counted and not timed.
WORK: Mapping[str, Callable[[Run], int]] = {
    "rows looked up": lambda one: one.looked_up,
    "intermediate rows": lambda one: one.intermediate,
}
#: By initial order and contestant.
Runs = Mapping[tuple[str, ...], Mapping[str, Run]]


def tpcds(bench: ProbeBench) -> Found:
    tables = tables_of(bench)
    streams = tables.write_streams(bench.setup.work / "streams", bench.size.batches)
    # Runs that write what they find come first: they warm up, too.
    difference = _differences(bench, tables, streams)
    runs: dict[tuple[str, ...], dict[str, Run]] = {}
    for number, order in enumerate(bench.size.orders):
        names = list(CONTESTANTS)
        turned = number % len(names)
        # Each order has all contestants in a row, and each time another one begins, so that
        # whatever changes on the machine meanwhile hurts all alike.
        for name in names[turned:] + names[:turned]:
            one = bench.joined(streams, join_query(order), CONTESTANTS[name])
            runs.setdefault(order, {})[name] = one
            bench.setup.say(
                f"{order_name(order)}: {name} took {one.seconds:.2f} s, "
                f"{one.join_seconds:.2f} s of them joining"
            )
            if one.results != tables.results:
                difference = difference or (
                    f"{name} from {order_name(order)}: {one.results} instead of "
                    f"{tables.results} results"
                )
    bench.gainers = sorted(
        runs, key=lambda order: _reduction(runs[order], FIXED, joining=True), reverse=True
    )[:2]
    case = _tpcds_case(bench, tables, runs, difference)
    return [case], _tpcds_summary(runs)


def sweeps(bench: ProbeBench) -> Found:
    tables = tables_of(bench)
    streams = tables.write_streams(bench.setup.work / "streams", bench.size.swept_batches)
    orders = bench.gainers[: bench.size.swept_orders]
    _swept(bench, streams, orders[0], COMPARED[OURS])  # Only to warm up.
    fixed = {order: _swept(bench, streams, order, COMPARED[FIXED]) for order in orders}
    cases = []
    summary: dict[str, float] = {}
    swept: tuple[tuple[str, str, tuple[int, ...], dict[str, str]], ...] = (
        ("epochs of a cycle", "probe.cycle", bench.size.cycles, {}),
        # Of the shortest cycles, because only these are as many as a history has room for.
        ("cycles of the history", "probe.history", bench.size.histories, {"probe.cycle": "1"}),
    )
    for what, setting, values, others in swept:
        runs: dict[tuple[str, ...], list[Run]] = {order: [] for order in orders}
        for value in values:
            for order in orders:
                settings = {**COMPARED[OURS], **others, setting: str(value)}
                runs[order].append(_swept(bench, streams, order, settings))
        cases.append(_sweep_case(bench, what, values, tables, fixed, runs))
        # One run of each, so the spread is told, and no value is called the best.
        summary |= {f"{what}, {name}": value for name, value in cases[-1].ratio.items()}
    return cases, summary


def tables_of(bench: ProbeBench) -> TpcdsTables:
    if bench.size.factor is None:
        return synthetic(bench.setup.work / "tables", 600)
    return generated(bench.size.factor, bench.setup.say)


def _differences(bench: ProbeBench, tables: TpcdsTables, streams: list[StreamFolder]) -> str | None:
    """Whether some strategy finds other rows than DuckDB does of the whole tables."""
    whole = empty_folder(bench.setup.work / "expected")
    expected = fingerprint(tables.write_join(whole))
    shutil.rmtree(whole)
    difference = None
    for number, (name, settings) in enumerate(CONTESTANTS.items()):
        order = ORDERS[number * 5 % len(ORDERS)]
        out = empty_folder(bench.setup.work / "out")
        bench.joined(streams, join_query(order), settings, out)
        found = fingerprint(out)
        shutil.rmtree(out)
        bench.setup.say(f"{name} from {order_name(order)}: {found[0]:,} rows, compared")
        if found != expected:
            difference = f"{name} from {order_name(order)}: {found} instead of {expected}"
    return difference


def _tpcds_case(
    bench: ProbeBench,
    tables: TpcdsTables,
    runs: Runs,
    difference: str | None,
) -> Case:
    seconds = {n: mean(of[n].seconds for of in runs.values()) for n in CONTESTANTS}
    joining = {n: mean(of[n].join_seconds for of in runs.values()) for n in CONTESTANTS}
    share = max(one.statistics_share for of in runs.values() for one in of.values())
    factor = "synthetic" if bench.size.factor is None else f"SF{bench.size.factor:g}"
    notes: dict[str, Any] = {
        "target": f"statistics take at most {MOST_STATISTICS:.0%} of the time of tasks",
        "results": tables.results,
        "micro-batches": bench.size.batches,
        "published mean reductions, percent": PUBLISHED,
        "mean join phase seconds": {n: round(s, 3) for n, s in joining.items()},
        "run seconds": _by_order(runs, lambda one: round(one.seconds, 3)),
        "join phase seconds": _by_order(runs, lambda one: round(one.join_seconds, 3)),
        "switches": _by_order(runs, lambda one: one.switches),
        "rows looked up": _by_order(runs, lambda one: one.looked_up),
        "intermediate rows": _by_order(runs, lambda one: one.intermediate),
        "greatest share of statistics": round(share, 4),
        "orders with the greatest gain": [order_name(order) for order in bench.gainers],
        "bars": {
            f"{title}, {clock}": _bars(runs, names, clock)
            for clock in ("run", "join phase")
            for title, names in (
                ("strategies", tuple(COMPARED)),
                ("ablations", (FIXED, OURS, *ABLATIONS)),
            )
        },
    }
    if difference is not None:
        notes["difference"] = difference
    return Case(
        f"TPC-DS {factor}/{len(runs)} initial orders",
        difference is None,
        sum(tables.rows.values()),
        seconds,
        {
            f"{name}/{OURS} ({clock})": of[name] / of[OURS]
            for clock, of in (("run", seconds), ("join phase", joining))
            for name in CONTESTANTS
            if name != OURS
        },
        notes,
    )


def _sweep_case(
    bench: ProbeBench,
    what: str,
    values: tuple[int, ...],
    tables: TpcdsTables,
    fixed: Mapping[tuple[str, ...], Run],
    runs: Mapping[tuple[str, ...], Sequence[Run]],
) -> Case:
    all_runs = [*fixed.values(), *(one for ones in runs.values() for one in ones)]
    seconds = {f"{order_name(order)} {FIXED}": one.seconds for order, one in fixed.items()}
    for order, ones in runs.items():
        for value, one in zip(values, ones, strict=True):
            seconds[f"{order_name(order)} {value}"] = one.seconds
    notes = {
        "series": {
            "x": what,
            "y": "seconds of the join phase",
            "at": list(values),
            "lines": _lines(fixed, runs, "join phase"),
        },
        "run seconds": _lines(fixed, runs, "run"),
        "switches": {order_name(o): [one.switches for one in runs[o]] for o in runs},
        "micro-batches": bench.size.swept_batches,
    }
    ratio = {
        f"{order_name(order)} longest/shortest": max(one.join_seconds for one in ones)
        / min(one.join_seconds for one in ones)
        for order, ones in runs.items()
    }
    equal = all(one.results == tables.results for one in all_runs)
    return Case(f"sweep/{what}", equal, sum(tables.rows.values()), seconds, ratio, notes)


def _swept(
    bench: ProbeBench,
    streams: list[StreamFolder],
    order: tuple[str, ...],
    settings: Mapping[str, str],
) -> Run:
    one = bench.joined(streams, join_query(order), settings)
    told = ", ".join(f"{key}={value}" for key, value in settings.items())
    bench.setup.say(
        f"{order_name(order)}: {told}: {one.seconds:.2f} s, joining {one.join_seconds:.2f} s"
    )
    return one


def _tpcds_summary(runs: Runs) -> dict[str, float]:
    summary: dict[str, float] = {}
    for other in CONTESTANTS:
        if other == OURS:
            continue
        for clock in ("run", "join phase"):
            saved = [_reduction(of, other, joining=clock != "run") for of in runs.values()]
            for figure, value in (("mean", mean(saved)), ("min", min(saved)), ("max", max(saved))):
                summary[f"TPC-DS reduction vs {other} {figure} ({clock})"] = value
        for what, count in WORK.items():
            saved = [1 - count(of[OURS]) / max(1, count(of[other])) for of in runs.values()]
            summary[f"TPC-DS reduction vs {other} mean ({what})"] = mean(saved)
    ours = [of[OURS] for of in runs.values()]
    summary["TPC-DS switches of dp_pick, mean"] = mean(one.switches for one in ours)
    summary[f"TPC-DS share of statistics at most (target <= {MOST_STATISTICS:g})"] = max(
        one.statistics_share for one in ours
    )
    return summary


def _reduction(of: Mapping[str, Run], other: str, *, joining: bool) -> float:
    """The share of another strategy's time that dp_pick saves."""
    clock = "join phase" if joining else "run"
    return 1 - clocked(of[OURS], clock) / clocked(of[other], clock)


def _bars(runs: Runs, names: Sequence[str], clock: str) -> dict[str, Any]:
    """A group of bars for each order, as ``bar_charts`` draws them."""
    return {
        "x": "initial order",
        "y": f"seconds of the {clock}",
        "groups": [order_name(order) for order in runs],
        "bars": {n: [round(clocked(of[n], clock), 3) for of in runs.values()] for n in names},
    }


def _by_order(runs: Runs, figure: Any) -> dict[str, Any]:
    return {
        order_name(order): {name: figure(of[name]) for name in CONTESTANTS}
        for order, of in runs.items()
    }


def _lines(
    fixed: Mapping[tuple[str, ...], Run],
    runs: Mapping[tuple[str, ...], Sequence[Run]],
    clock: str,
) -> dict[str, list[float]]:
    """As in the paper's figures: the fixed order for comparison, which does not depend on it."""
    lines = {}
    for order, ones in runs.items():
        lines[f"{order_name(order)} {FIXED}"] = [round(clocked(fixed[order], clock), 3)] * len(ones)
        lines[f"{order_name(order)} {OURS}"] = [round(clocked(one, clock), 3) for one in ones]
    return lines
